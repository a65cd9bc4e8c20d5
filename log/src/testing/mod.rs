//! Test support for every engine.
//!
//! - [`conformance`]: one test per promise of [`Log`]; [`conformance!`](crate::conformance) makes them an engine's own.
//! - [`model`]: a naive log, and random commands for which an engine must return the same as the model.
//! - [`fault_disk`]: a disk that fails on command.
//! - `forward_append!`, `forward_read!`, `forward_rest!`: methods of a log that forwards to another one.
//! - [`record`], [`RecordNumbering`], [`LogProbe`]: records for tests, the three numberings, and an opened engine.
//!
//! Everything here fails by panicking, with the call and its result.

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
    /// Opens the log. The one opened before is dropped by then; what was durable in it is in this one.
    fn open(&self) -> BoxFuture<'_, Arc<dyn Log>>;
}

/// The memory engine. Its records live as long as this does.
#[derive(Default)]
pub struct MemoryEngine(Arc<MemoryLog>);

impl Engine for MemoryEngine {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Log>> {
        Box::pin(async { Arc::clone(&self.0) as Arc<dyn Log> })
    }
}

/// The result of `work`; a panic if there is none after two minutes.
pub async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), work).await.expect("it should have answered by now")
}
