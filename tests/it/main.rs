//! The one integration-test binary: the broker as a program sees it, on every engine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod scenario;

mod away;
mod batches;
mod checkpoints;
mod claims;
mod cli;
mod compaction;
mod concurrency;
mod configuration;
mod consumers;
mod damage;
mod dead_letters;
mod dispatch;
mod faults;
mod fixtures;
mod groups;
mod http;
mod idempotency;
mod identifiers;
mod kill;
mod limits;
mod logs;
mod model;
mod newer;
mod overload;
mod power_cut_real;
mod projections;
mod publishing;
mod reading;
mod reclaiming;
mod registry;
mod republishing;
mod retention;
mod seed002;
mod several;
mod soak;
mod tables;
mod tidy;
mod time;
mod type_deletion;
mod versions;
mod went_back;
