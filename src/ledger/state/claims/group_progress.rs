//! The progress of a shared group in a topic.
//!
//! - Every event up to the watermark is finished, passed or removed. The watermark moves on when the next event is.
//! - Passed events are those that the group's filter does not match, and copies of finished ones: a bit each after the
//!   watermark, and nothing below it.
//! - A generation ends when the group's offset is moved, or when it is to be handed events again. Work that was found in an
//!   older generation is refused.

use crate::ledger::state::bitmap::StoredBitmap;
use contract::{Offset, Position, Sequence};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};

/// A shared group's progress in a topic.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupProgress {
    watermark: Sequence,
    passed: RoaringTreemap,
    generation: Position,
}

impl GroupProgress {
    /// A group that starts after `offset`, by the entry at `at`.
    pub(in crate::ledger) fn starting_at(offset: Offset, at: Position) -> Self {
        Self { watermark: offset.into(), passed: RoaringTreemap::new(), generation: at }
    }

    /// Every event up to here is finished, passed or removed.
    #[must_use]
    pub const fn watermark(&self) -> Sequence {
        self.watermark
    }

    /// The entry that began this generation.
    #[must_use]
    pub const fn generation(&self) -> Position {
        self.generation
    }

    /// The passed events after the watermark.
    pub(in crate::ledger) const fn passed(&self) -> &RoaringTreemap {
        &self.passed
    }

    /// Whether an event is passed, or not after the watermark.
    #[must_use]
    pub fn is_past(&self, sequence: Sequence) -> bool {
        sequence <= self.watermark || self.passed.contains(sequence.get())
    }

    pub(in crate::ledger) fn pass(&mut self, runs: &[(Sequence, Sequence)]) {
        for (from, to) in runs {
            self.passed.insert_range(from.max(&self.watermark.next()).get()..=to.get());
        }
    }

    /// Moves the watermark over the events that are finished or passed.
    pub(in crate::ledger) fn advance(&mut self, is_finished: impl Fn(Sequence) -> bool) {
        let before = self.watermark;
        loop {
            let next = self.watermark.next();
            if !self.passed.contains(next.get()) && !is_finished(next) {
                break;
            }
            self.watermark = next;
        }
        if self.watermark > before {
            self.passed.remove_range(..=self.watermark.get());
        }
        debug_assert!(
            self.passed.min().is_none_or(|first| first > self.watermark.get()),
            "no bits below the watermark"
        );
    }

    /// These events, which were finished, are to be handed out again, and no others.
    pub(in crate::ledger) fn repeat(&mut self, finished: &[Sequence], at: Position) {
        self.generation = at;
        let Some(first) = finished.first().filter(|first| **first <= self.watermark) else { return };
        self.passed.insert_range(first.get()..=self.watermark.get());
        finished.iter().for_each(|sequence| _ = self.passed.remove(sequence.get()));
        self.watermark = Sequence(first.get().saturating_sub(1));
    }

    /// The group continues after `offset`. If it goes back, all later events are examined again.
    pub(in crate::ledger) fn move_to(&mut self, offset: Offset, at: Position) {
        let offset = Sequence::from(offset);
        match offset < self.watermark {
            true => self.passed.clear(),
            false => _ = self.passed.remove_range(..=offset.get()),
        }
        (self.watermark, self.generation) = (offset, at);
    }

    /// Retention has removed the events up to here.
    pub(in crate::ledger) fn trim(&mut self, through: Sequence) {
        self.watermark = self.watermark.max(through);
        self.passed.remove_range(..=self.watermark.get());
    }

    pub(in crate::ledger) fn snapshot(&self) -> GroupProgressSnapshot {
        GroupProgressSnapshot {
            watermark: self.watermark,
            passed: StoredBitmap(self.passed.clone()),
            generation: self.generation,
        }
    }
}

/// A group's progress in a checkpoint.
#[derive(Serialize, Deserialize)]
pub(in crate::ledger) struct GroupProgressSnapshot {
    watermark: Sequence,
    passed: StoredBitmap,
    generation: Position,
}

impl From<GroupProgressSnapshot> for GroupProgress {
    fn from(snapshot: GroupProgressSnapshot) -> Self {
        let GroupProgressSnapshot { watermark, passed, generation } = snapshot;
        Self { watermark, passed: passed.0, generation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Position = Position(7);

    /// After 10; 12 and 14 to 16 are passed and 11 is finished.
    fn sample() -> GroupProgress {
        let mut progress = GroupProgress::starting_at(Offset(10), Position(1));
        progress.pass(&[(Sequence(12), Sequence(12)), (Sequence(14), Sequence(16))]);
        progress.advance(|sequence| sequence == Sequence(11));
        progress
    }

    fn past(progress: &GroupProgress) -> Vec<u64> {
        (1..=20).filter(|sequence| progress.is_past(Sequence(*sequence))).collect()
    }

    #[test]
    fn the_watermark_moves_over_finished_and_passed_events_and_stops_at_the_first_other() {
        let mut progress = sample();
        assert_eq!(progress.watermark(), Sequence(12));
        progress.advance(|sequence| sequence == Sequence(13));
        assert_eq!((progress.watermark(), progress.passed.len()), (Sequence(16), 0));
    }

    #[test]
    fn events_that_are_repeated_are_handed_out_again_and_no_others() {
        let mut progress = sample();
        progress.repeat(&[Sequence(3), Sequence(5)], AT);
        assert_eq!((progress.watermark(), progress.generation()), (Sequence(2), AT));
        assert_eq!(past(&progress), [1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16]);
        progress.advance(|sequence| sequence == Sequence(3));
        assert_eq!(progress.watermark(), Sequence(4));
        progress.advance(|sequence| sequence == Sequence(5));
        assert_eq!(progress.watermark(), Sequence(12));
        let mut ahead = sample();
        ahead.repeat(&[Sequence(13)], AT);
        assert_eq!((past(&ahead), ahead.generation()), (past(&sample()), AT));
        let mut nothing = sample();
        nothing.repeat(&[], AT);
        assert_eq!(past(&nothing), past(&sample()));
    }

    #[test]
    fn a_group_that_is_moved_back_examines_everything_again_and_one_moved_forward_skips() {
        let mut back = sample();
        back.move_to(Offset(5), AT);
        assert_eq!(past(&back), (1..=5).collect::<Vec<_>>());
        let mut forward = sample();
        forward.move_to(Offset(15), AT);
        assert_eq!(past(&forward), (1..=16).collect::<Vec<_>>());
        let mut trimmed = sample();
        trimmed.trim(Sequence(14));
        trimmed.advance(|_| false);
        assert_eq!((trimmed.watermark(), trimmed.generation()), (Sequence(16), Position(1)));
    }

    #[test]
    fn progress_survives_a_checkpoint() {
        let text = serde_json::to_string(&sample().snapshot()).unwrap();
        let again: GroupProgress = serde_json::from_str::<GroupProgressSnapshot>(&text).unwrap().into();
        assert_eq!(again, sample());
    }
}
