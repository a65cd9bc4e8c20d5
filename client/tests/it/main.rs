//! The client and its runner against a real broker, and the examples against all that they need.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod accounts;
mod asking;
mod dispatch;
mod handler;
mod meddler;
mod pretend;
mod recipes;
mod runner;
mod stage;
mod starting;
mod verbs;
mod versions;
