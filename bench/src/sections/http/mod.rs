//! The sections that measure over HTTP, each with servers of its own.

pub(crate) mod batch;
mod contender;
pub(crate) mod delivery;
pub(crate) mod idle;
pub(crate) mod publish;
pub(crate) mod read;
pub(crate) mod tls;

use crate::Outcome;
use tokio::runtime::{Builder, Runtime};

/// One thread for the generator: no wake-ups between threads, so it stays cheaper than the server.
pub(super) fn one_thread() -> Outcome<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}
