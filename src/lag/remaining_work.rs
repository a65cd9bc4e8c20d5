//! Remaining work: the events to be done in a topic, counted after any offset. A decision can use it, because it reads no log.

use crate::ledger::{ClaimRows, ClaimState};
use contract::Sequence;
use roaring::RoaringTreemap;
use std::collections::HashMap;

/// The events that are to be done.
pub(crate) struct RemainingWork {
    name: String,
    topic: u32,
    /// Events up to here do not count, except for their open claims.
    start: Sequence,
    /// Everything up to here was examined; events after it count unless they are settled.
    scanned: Sequence,
    /// The events to be done after `start`; one that is stored several times, at its last place.
    found: RoaringTreemap,
    /// The last places of those that are stored several times, by the sequence that identifies them.
    copied: HashMap<Sequence, Sequence>,
    /// Whether settled events after `scanned` are to be done again.
    again: bool,
}

impl RemainingWork {
    /// Every event after `start` that is not settled.
    pub(super) fn plain(name: &str, topic: u32, start: Sequence) -> Self {
        let (found, copied) = (RoaringTreemap::new(), HashMap::new());
        Self { name: name.to_owned(), topic, start, scanned: start, found, copied, again: false }
    }

    /// The events at these places, and every event after `scanned` that is not settled.
    pub(super) fn of(
        name: &str,
        topic: u32,
        (start, scanned): (Sequence, Sequence),
        found: impl Iterator<Item = (Sequence, Sequence)>,
        again: bool,
    ) -> Self {
        let (mut places, mut copied) = (RoaringTreemap::new(), HashMap::new());
        for (key, place) in found {
            places.insert(place.get());
            if key != place {
                copied.insert(key, place);
            }
        }
        Self { name: name.to_owned(), topic, start, scanned, found: places, copied, again }
    }

    /// How many events are to be done if the group is at `offset`.
    pub(crate) fn lag(&self, claims: &ClaimRows, offset: Sequence, tail: Sequence) -> u64 {
        let (name, topic) = (self.name.as_str(), self.topic);
        let start = offset.max(self.start);
        let is_shared = claims.group_progress(name, topic).is_some();
        let mut begun = 0;
        let mut rest = self.found.rank(u64::MAX).saturating_sub(self.found.rank(start.get()));
        let unread = self.scanned.max(start);
        rest += tail.get().saturating_sub(unread.get());
        if !self.again {
            rest = rest.saturating_sub(claims.settled_between(name, topic, unread, tail));
        }
        for (key, row) in claims.open(name, topic) {
            let place = self.copied.get(&key).copied().unwrap_or(key);
            let is_counted = self.found.contains(place.get()) || place > self.scanned;
            if place > start && is_counted {
                continue;
            }
            // A shared group that was moved past an event does not hand it out; a dead letter still has to be resolved.
            let is_left = is_shared && key <= offset && !matches!(row.standing, ClaimState::Dead { .. });
            begun += u64::from(!is_left);
        }
        rest + begun
    }
}
