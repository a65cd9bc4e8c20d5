//! Change feeds: which claims of a handler changed in a topic, for the process that keeps a shared group's backlog.
//!
//! - A change is noted by the fold, after the rows have changed: a reader of the feed finds the change in the rows.
//! - A feed is bounded: if it is not read, it only records that many claims have changed.
//! - A feed exists as long as a reader holds it.

use contract::Sequence;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::watch;

/// Changes remembered one by one.
const CHANGES_MAX: usize = 100_000;

/// Changes since the last [`ClaimFeed::take`].
#[derive(Default)]
pub struct ClaimFeed {
    changes: Mutex<ClaimChanges>,
    version: watch::Sender<u64>,
}

/// Some changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ClaimChanges {
    /// Events whose claims changed, by the sequences that identify them.
    pub sequences: Vec<Sequence>,
    /// Any claim may have changed.
    pub everything: bool,
}

impl ClaimFeed {
    /// The changes since the last call.
    pub fn take(&self) -> ClaimChanges {
        std::mem::take(&mut *self.lock())
    }

    /// Grows with every change.
    #[must_use]
    pub fn version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Wakes the tasks that wait for changes.
    pub fn nudge(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    fn note(&self, sequence: Option<Sequence>) {
        let mut changes = self.lock();
        match sequence.filter(|_| changes.sequences.len() < CHANGES_MAX) {
            Some(sequence) if !changes.everything => changes.sequences.push(sequence),
            _ => *changes = ClaimChanges { sequences: Vec::new(), everything: true },
        }
        drop(changes);
        self.nudge();
    }

    fn lock(&self) -> MutexGuard<'_, ClaimChanges> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The feeds that have readers, by topic and handler.
#[derive(Default)]
pub(in crate::ledger) struct ClaimFeeds(Mutex<BTreeMap<u32, BTreeMap<String, Weak<ClaimFeed>>>>);

impl ClaimFeeds {
    /// The feed of a handler in a topic.
    pub(in crate::ledger) fn open(&self, handler: &str, topic: u32) -> Arc<ClaimFeed> {
        let mut feeds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for handlers in feeds.values_mut() {
            handlers.retain(|_, feed| feed.strong_count() > 0);
        }
        feeds.retain(|_, handlers| !handlers.is_empty());
        let known = feeds.entry(topic).or_default().entry(handler.to_owned()).or_default();
        known.upgrade().unwrap_or_else(|| {
            let feed = Arc::default();
            *known = Arc::downgrade(&feed);
            feed
        })
    }

    /// The claim of one event changed; without a sequence, any claim may have.
    pub(in crate::ledger) fn note(&self, handler: &str, topic: u32, sequence: Option<Sequence>) {
        let feed = {
            let feeds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            feeds.get(&topic).and_then(|handlers| handlers.get(handler)).and_then(Weak::upgrade)
        };
        feed.into_iter().for_each(|feed| feed.note(sequence));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feed_returns_its_own_changes_once_and_loses_none() {
        let feeds = ClaimFeeds::default();
        let feed = feeds.open("billing", 3);
        assert!(Arc::ptr_eq(&feed, &feeds.open("billing", 3)));
        let version = feed.version();
        for (handler, topic, sequence) in [("billing", 3, 1), ("mailing", 3, 2), ("billing", 4, 3), ("billing", 3, 4)] {
            feeds.note(handler, topic, Some(Sequence(sequence)));
        }
        assert!(version.has_changed().unwrap());
        assert_eq!(feed.take(), ClaimChanges { sequences: vec![Sequence(1), Sequence(4)], everything: false });
        assert_eq!(feed.take(), ClaimChanges::default());
        (0..=CHANGES_MAX as u64).for_each(|n| feeds.note("billing", 3, Some(Sequence(n))));
        assert_eq!(feed.take(), ClaimChanges { sequences: Vec::new(), everything: true });
    }
}
