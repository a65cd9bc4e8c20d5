//! An outlook: what is to be done in a topic, counted behind any offset. It can be asked while something is decided.

use crate::ledger::{ClaimRows, ClaimState};
use contract::Sequence;
use roaring::RoaringTreemap;

/// What was found to be done.
pub(crate) struct RemainingWork {
    name: String,
    topic: u32,
    /// Events up to here do not count, but for their open claims.
    start: Sequence,
    /// Everything up to here was looked at; what lies behind it counts unless it is settled.
    scanned: Sequence,
    /// What was found behind `start`.
    found: RoaringTreemap,
    /// Whether what is settled behind `scanned` is to be done again.
    again: bool,
}

impl RemainingWork {
    /// Everything behind `start` that is not settled.
    pub(super) fn plain(name: &str, topic: u32, start: Sequence) -> Self {
        let found = RoaringTreemap::new();
        Self { name: name.to_owned(), topic, start, scanned: start, found, again: false }
    }

    /// These, and everything behind `scanned` that is not settled.
    pub(super) fn of(
        name: &str,
        topic: u32,
        (start, scanned): (Sequence, Sequence),
        found: RoaringTreemap,
        again: bool,
    ) -> Self {
        Self { name: name.to_owned(), topic, start, scanned, found, again }
    }

    /// How many events are to be done where the group is at `offset`.
    pub(crate) fn lag(&self, claims: &ClaimRows, offset: Sequence, tail: Sequence) -> u64 {
        let (name, topic) = (self.name.as_str(), self.topic);
        let start = offset.max(self.start);
        let is_divided = claims.group_progress(name, topic).is_some();
        let mut begun = 0;
        let mut rest = self.found.rank(u64::MAX).saturating_sub(self.found.rank(start.get()));
        let unread = self.scanned.max(start);
        rest += tail.get().saturating_sub(unread.get());
        if !self.again {
            rest = rest.saturating_sub(claims.settled_between(name, topic, unread, tail));
        }
        for (sequence, row) in claims.open(name, topic) {
            let is_counted = self.found.contains(sequence.get()) || sequence > self.scanned;
            if sequence > start && is_counted {
                continue;
            }
            // A group that was moved over an event does not hand it out; a dead letter is still somebody's business.
            let is_left = is_divided && sequence <= offset && !matches!(row.standing, ClaimState::Dead { .. });
            begun += u64::from(!is_left);
        }
        rest + begun
    }
}
