//! Events that were answered `stale`: counted by handler, so that work that is skipped can be seen.
//!
//! - An event counts once, however often it is asked for. The count begins with the process.

use contract::{Sequence, TopicId, limits};
use roaring::RoaringTreemap;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Stale events by handler and topic.
#[derive(Default)]
pub(crate) struct StaleEvents(Mutex<HashMap<String, HashMap<TopicId, RoaringTreemap>>>);

impl StaleEvents {
    /// A handler was answered that this event is stale.
    pub(super) fn note(&self, handler: &str, topic: &TopicId, sequence: Sequence) {
        let mut known = self.lock();
        if known.len() >= limits::HANDLERS_MAX && !known.contains_key(handler) {
            return;
        }
        known.entry(handler.to_owned()).or_default().entry(topic.clone()).or_default().insert(sequence.get());
    }

    /// How many events a handler was answered `stale` for.
    pub(super) fn count(&self, handler: &str) -> u64 {
        self.lock().get(handler).map_or(0, |topics| topics.values().map(RoaringTreemap::len).sum())
    }

    /// The handler begins anew.
    pub(super) fn forget(&self, handler: &str) {
        self.lock().remove(handler);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, HashMap<TopicId, RoaringTreemap>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
