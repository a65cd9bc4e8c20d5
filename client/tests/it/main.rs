//! The client and its runner against a real broker, and the examples against all that they need.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod accounts;
mod dispatch;
mod handler;
mod lossy_proxy;
mod operations;
mod recipes;
mod requests;
mod runner;
mod scripted_broker;
mod starting;
mod streams;
mod test_broker;
mod verbs;
mod versions;
