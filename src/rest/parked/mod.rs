//! Parked polls: long polls that wait beside their connection.

mod slot;

pub(crate) use slot::*;
