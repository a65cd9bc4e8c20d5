//! The log in PostgreSQL.

#[cfg(feature = "testing")]
pub mod testing;
