//! Events that were answered `stale`: counted by handler, so that skipped work is visible.
//!
//! - An event counts once, however often it is claimed. The count starts with the process.
//! - The events of a deleted topic do not count.

use crate::ledger::RegisteredTopic;
use contract::{Sequence, TopicId, limits};
use roaring::RoaringTreemap;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Stale events by handler and topic.
#[derive(Default)]
pub(crate) struct StaleEvents(Mutex<HashMap<String, HashMap<TopicId, TopicStaleEvents>>>);

/// Stale events of a topic.
struct TopicStaleEvents {
    /// If another topic has the name now, these events are removed.
    topic: Arc<RegisteredTopic>,
    sequences: RoaringTreemap,
}

impl StaleEvents {
    /// Counts an event that a handler was told is stale.
    pub(super) fn note(&self, handler: &str, topic: &Arc<RegisteredTopic>, sequence: Sequence) {
        let mut known = self.lock();
        if known.len() >= limits::HANDLERS_MAX && !known.contains_key(handler) {
            return;
        }
        let new = || TopicStaleEvents { topic: Arc::clone(topic), sequences: RoaringTreemap::new() };
        let id = topic.topic.definition.id.clone();
        let stale = known.entry(handler.to_owned()).or_default().entry(id).or_insert_with(new);
        if !stale.topic.is_same(topic) {
            *stale = new();
        }
        stale.sequences.insert(sequence.get());
    }

    /// How many stale events a handler was told of.
    pub(super) fn count(&self, handler: &str) -> u64 {
        let mut known = self.lock();
        let Some(topics) = known.get_mut(handler) else { return 0 };
        topics.retain(|_, stale| !stale.topic.is_deleted());
        topics.values().map(|stale| stale.sequences.len()).sum()
    }

    /// Resets a handler's count.
    pub(super) fn forget(&self, handler: &str) {
        self.lock().remove(handler);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, HashMap<TopicId, TopicStaleEvents>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
