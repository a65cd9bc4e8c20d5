//! The offset of a handler: every event up to it is finished, excluded by the filter, or kept by the broker as an open claim.

use contract::{Offset, Sequence};
use std::collections::BTreeSet;

/// What was read, and which of these events are not settled. The default commits nothing.
#[derive(Debug, Default)]
pub(super) struct OffsetProgress {
    read: Offset,
    open: BTreeSet<Sequence>,
    /// The committed offset.
    committed: Offset,
    /// Whether this runner commits offsets.
    is_ours: bool,
}

impl OffsetProgress {
    /// Starts after this offset.
    pub(super) const fn at(offset: Offset) -> Self {
        Self { read: offset, open: BTreeSet::new(), committed: offset, is_ours: true }
    }

    /// These events were read, and everything up to `next`.
    pub(super) fn read(&mut self, events: impl Iterator<Item = Sequence>, next: Offset) {
        if !self.is_ours {
            return;
        }
        self.open.extend(events);
        self.read = self.read.max(next);
        debug_assert!(
            self.open.last().is_none_or(|last| Offset::from(*last) <= self.read),
            "an unsettled event is at or below the read offset"
        );
    }

    /// Whether an event is at or below the offset that was read.
    pub(super) fn is_passed(&self, sequence: Sequence) -> bool {
        Offset::from(sequence) <= self.read
    }

    pub(super) fn settle(&mut self, sequence: Sequence) {
        self.open.remove(&sequence);
    }

    /// The offset to commit when this event is settled too, if it is not committed yet.
    pub(super) fn once_settled(&self, sequence: Sequence) -> Option<Offset> {
        self.uncommitted_offset(self.open.iter().find(|open| **open != sequence))
    }

    /// The offset to commit, if it is not committed yet.
    pub(super) fn to_commit(&self) -> Option<Offset> {
        self.uncommitted_offset(self.open.first())
    }

    fn uncommitted_offset(&self, first_open: Option<&Sequence>) -> Option<Offset> {
        let offset = first_open.map_or(self.read, |first| Offset(first.get().saturating_sub(1)));
        debug_assert!(offset <= self.read, "no offset beyond the read one is committed");
        (self.is_ours && offset > self.committed).then_some(offset)
    }

    /// The broker has committed this offset.
    pub(super) fn committed(&mut self, offset: Offset) {
        self.committed = self.committed.max(offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_never_passes_what_is_not_settled() {
        let mut progress = OffsetProgress::at(Offset(10));
        assert_eq!(progress.to_commit(), None);
        progress.read([11, 13, 14].map(Sequence).into_iter(), Offset(20));
        assert!(progress.is_passed(Sequence(20)) && !progress.is_passed(Sequence(21)));
        assert_eq!(progress.to_commit(), None);
        assert_eq!(progress.once_settled(Sequence(11)), Some(Offset(12)));
        assert_eq!(progress.once_settled(Sequence(13)), None);
        progress.settle(Sequence(13));
        assert_eq!(progress.once_settled(Sequence(11)), Some(Offset(13)));
        progress.settle(Sequence(11));
        assert_eq!(progress.to_commit(), Some(Offset(13)));
        progress.committed(Offset(13));
        assert_eq!((progress.to_commit(), progress.once_settled(Sequence(14))), (None, Some(Offset(20))));
        progress.settle(Sequence(14));
        progress.settle(Sequence(3));
        assert_eq!(progress.to_commit(), Some(Offset(20)));
        progress.committed(Offset(25));
        assert_eq!(progress.to_commit(), None);
    }
}
