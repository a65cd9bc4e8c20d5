//! The topics that are placed in side logs, and the side logs that none is placed in any more.

use super::{NamedTopic, PlacedTopic, Registry};
use crate::ledger::facts::placement::{LogLocation, TopicPlacement};
use contract::{Position, Sequence, TopicId};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Registry {
    /// A topic in a side log.
    #[must_use]
    pub fn placed(&self, id: &TopicId) -> Option<&Arc<PlacedTopic>> {
        self.names.get(id)?.elsewhere()
    }

    /// All topics in side logs, in order of their ids.
    pub fn placed_topics(&self) -> impl Iterator<Item = &Arc<PlacedTopic>> {
        self.names.values().filter_map(NamedTopic::elsewhere)
    }

    /// Whether a topic is placed in this side log.
    #[must_use]
    pub fn is_placed_in(&self, location: &LogLocation) -> bool {
        self.placed_topics().any(|known| known.placed.location == *location)
    }

    /// Side logs in files without topics, whose files may still hold bytes of deleted events.
    #[must_use]
    pub const fn unerased_logs(&self) -> &BTreeSet<LogLocation> {
        &self.unerased
    }

    pub(in crate::ledger) fn set_unerased_logs(&mut self, unerased: BTreeSet<LogLocation>) {
        self.unerased = unerased;
    }

    /// Sets the log that a topic is in.
    pub(in crate::ledger) fn place(&mut self, placement: TopicPlacement, defined_at: Position) {
        self.version = self.version.max(defined_at);
        // It is opened for the topic, and erases what was removed while it is open.
        self.unerased.remove(&placement.location);
        let id = placement.topic.definition.id.clone();
        self.names.insert(id, NamedTopic::Elsewhere(Arc::new(PlacedTopic { placed: placement, defined_at })));
    }

    pub(super) fn empty_memory(&mut self, floor: Sequence) {
        for named in self.names.values_mut() {
            if let NamedTopic::Elsewhere(known) = named
                && matches!(known.placed.location, LogLocation::Memory(_))
            {
                let PlacedTopic { placed, defined_at } = known.as_ref();
                let placement = TopicPlacement { floor, ..placed.clone() };
                *known = Arc::new(PlacedTopic { placed: placement, defined_at: *defined_at });
            }
        }
    }
}
