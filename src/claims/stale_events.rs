//! Events that were answered `stale`: counted by handler, so that skipped work is visible.
//!
//! - An event counts once, however often it is claimed. The count starts with the process.

use contract::{Sequence, TopicId, limits};
use roaring::RoaringTreemap;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Stale events by handler and topic.
#[derive(Default)]
pub(crate) struct StaleEvents(Mutex<HashMap<String, HashMap<TopicId, RoaringTreemap>>>);

impl StaleEvents {
    /// Counts an event that a handler was told is stale.
    pub(super) fn note(&self, handler: &str, topic: &TopicId, sequence: Sequence) {
        let mut known = self.lock();
        if known.len() >= limits::HANDLERS_MAX && !known.contains_key(handler) {
            return;
        }
        known.entry(handler.to_owned()).or_default().entry(topic.clone()).or_default().insert(sequence.get());
    }

    /// How many stale events a handler was told of.
    pub(super) fn count(&self, handler: &str) -> u64 {
        self.lock().get(handler).map_or(0, |topics| topics.values().map(RoaringTreemap::len).sum())
    }

    /// Resets a handler's count.
    pub(super) fn forget(&self, handler: &str) {
        self.lock().remove(handler);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, HashMap<TopicId, RoaringTreemap>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
