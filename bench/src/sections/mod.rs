//! The sections of the benchmark; each measures, prints its tables, and marks its targets.

pub(crate) mod append;
pub(crate) mod claims;
pub(crate) mod dispatch;
pub(crate) mod groups;
pub(crate) mod growth;
pub(crate) mod http;
pub(crate) mod memory;
pub(crate) mod open;
pub(crate) mod postgres;
pub(crate) mod publish;
pub(crate) mod read;
pub(crate) mod secrets;
pub(crate) mod wake;

use crate::Outcome;
use crate::history::History;
use crate::http::programs::{Paths, Programs};
use crate::place::Place;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// What the sections of one run have in common.
pub(crate) struct Run<'a> {
    pub(crate) place: &'a Place,
    pub(crate) quick: bool,
    history: Option<History>,
    pub(crate) programs: Programs,
}

impl<'a> Run<'a> {
    pub(crate) fn new(place: &'a Place, quick: bool, paths: Paths) -> Self {
        Self { place, quick, history: None, programs: Programs::new(paths) }
    }

    /// A number of events, or a tenth of it in a quick run.
    pub(crate) fn count(&self, events: u64) -> u64 {
        if self.quick { events / 10 } else { events }
    }

    /// How often things are measured in turns.
    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 1 } else { 5 }
    }

    /// How long one measurement of the bare disk takes.
    pub(crate) fn raw_time(&self) -> Duration {
        Duration::from_millis(if self.quick { 200 } else { 300 })
    }

    /// The common history, of at least `events`; published when it is first asked for.
    pub(crate) fn history(&mut self, events: u64) -> Outcome<&mut History> {
        if self.history.as_ref().is_none_or(|history| history.events < events) {
            self.finish()?;
        }
        let history = match self.history.take() {
            Some(history) => history,
            None => History::build(self.place, "history", events)?,
        };
        Ok(self.history.insert(history))
    }

    /// Lets go of what the sections shared.
    pub(crate) fn finish(&mut self) -> Outcome {
        self.history.take().map_or(Ok(()), History::remove)
    }
}

/// A runtime like a server's.
pub(crate) fn runtime() -> Outcome<Runtime> {
    Ok(Builder::new_multi_thread().enable_all().build()?)
}
