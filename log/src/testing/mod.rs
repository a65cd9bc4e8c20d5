//! What every engine is tested with.
//!
//! - [`conformance`]: one test per promise of [`Log`]; [`conformance!`](crate::conformance) makes them an engine's own.
//! - [`model`]: a naive log, and random commands under which an engine must answer as the model does.
//! - [`fault_disk`]: a disk that fails on command.
//! - `forward_append!`, `forward_read!`, `forward_rest!`: what a log that wraps another one passes on to it.
//! - [`record`], [`Numbering`], [`Probe`]: records for tests, the three numberings, and an opened engine to question.
//!
//! Everything here fails by panicking, with what was asked and what was answered.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test support: a panic is how a test fails"
)]

pub mod conformance;
pub mod fault_disk;
mod forward;
pub mod model;
mod probe;
mod random;
mod records;

pub use probe::{LogProbe, LogRefusal, NO_LIMIT, assert_covers};
pub use random::SeededRandom;
pub use records::{RecordNumbering, RecordSetters, assert_dense, positions, record, sequences};

use crate::{Log, MemoryLog};
use contract::BoxFuture;
use std::sync::Arc;
use std::time::Duration;

/// One place for one log, empty at first, that can be opened again and again.
pub trait Engine: Send + Sync {
    /// Opens the log. Nobody holds the one opened before; what was durable in it is in this one.
    fn open(&self) -> BoxFuture<'_, Arc<dyn Log>>;
}

/// The memory engine. What it holds lives as long as this does.
#[derive(Default)]
pub struct MemoryEngine(Arc<MemoryLog>);

impl Engine for MemoryEngine {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Log>> {
        Box::pin(async { Arc::clone(&self.0) as Arc<dyn Log> })
    }
}

/// The answer of `work`. Whoever still waits after two minutes waits for ever, and fails here under its name.
pub async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), work).await.expect("it should have answered by now")
}
