//! The PostgreSQL engine, on servers of the tests' own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod conformance;
mod encryption;
mod failover;
mod failures;
mod fencing;
mod replication;
mod roles;
mod schema;
mod server;
mod several;
mod support;
