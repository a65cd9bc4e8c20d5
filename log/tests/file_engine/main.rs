//! The file engine under torn writes, flipped bits, failing disks and power cuts.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a panic is how a test fails, in its helpers too"
)]

mod damage;
mod descriptors;
mod erasing;
mod faults;
mod index;
mod merging;
mod power_cut;
mod recovery;
mod repairing;
mod rewriting;
mod support;
