//! The single integration-test binary: the broker as a program sees it, on every engine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod scenario;

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
mod declarations;
mod dispatch;
mod effects_once;
mod faults;
mod fixtures;
mod http;
mod idempotency;
mod identifiers;
mod kill;
mod limits;
mod log_rollback;
mod log_time;
mod logs;
mod model;
mod newer_entries;
mod outage;
mod overload;
mod power_cut_real;
mod projections;
mod publishing;
mod reading;
mod reclaiming;
mod registry;
mod republishing;
mod retention;
mod secrets;
mod several_brokers;
mod shared_groups;
mod skips;
mod soak;
mod tables;
mod tidy;
mod type_deletion;
mod versions;
