//! A group that divides a topic: how far it has come, and what is none of its business.
//!
//! - Everything up to the watermark is finished, passed or gone. It moves by itself as that becomes true of the next one.
//! - Passed events are a bit each behind the watermark, and nothing below it.
//! - A generation ends when somebody moves the group, or has it handed events again: who looked for work before that must
//!   look again.

use crate::ledger::state::bitmap;
use contract::{Offset, Position, Sequence};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};

/// How a group stands in a topic that it divides.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupProgress {
    watermark: Sequence,
    passed: RoaringTreemap,
    generation: Position,
}

impl GroupProgress {
    /// One that begins behind `offset`, by the entry at `at`.
    pub(in crate::ledger) fn starting_at(offset: Offset, at: Position) -> Self {
        Self { watermark: offset.into(), passed: RoaringTreemap::new(), generation: at }
    }

    /// Everything up to here is finished, passed or gone.
    #[must_use]
    pub const fn watermark(&self) -> Sequence {
        self.watermark
    }

    /// The entry that began this generation.
    #[must_use]
    pub const fn generation(&self) -> Position {
        self.generation
    }

    /// Events behind the watermark that are none of the group's business.
    pub(in crate::ledger) const fn passed(&self) -> &RoaringTreemap {
        &self.passed
    }

    /// Whether an event is none of the group's business, or none any more.
    #[must_use]
    pub fn is_past(&self, sequence: Sequence) -> bool {
        sequence <= self.watermark || self.passed.contains(sequence.get())
    }

    pub(in crate::ledger) fn pass(&mut self, runs: &[(Sequence, Sequence)]) {
        for (from, to) in runs {
            self.passed.insert_range(from.max(&self.watermark.next()).get()..=to.get());
        }
    }

    /// Moves the watermark over what is finished or passed.
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
    }

    /// These, which were finished, are to be looked at again, and nothing else is.
    pub(in crate::ledger) fn repeat(&mut self, finished: &[Sequence], at: Position) {
        self.generation = at;
        let Some(first) = finished.first().filter(|first| **first <= self.watermark) else { return };
        self.passed.insert_range(first.get()..=self.watermark.get());
        finished.iter().for_each(|sequence| _ = self.passed.remove(sequence.get()));
        self.watermark = Sequence(first.get().saturating_sub(1));
    }

    /// The group goes on behind `offset`; going back, everything behind it is looked at again.
    pub(in crate::ledger) fn move_to(&mut self, offset: Offset, at: Position) {
        let offset = Sequence::from(offset);
        match offset < self.watermark {
            true => self.passed.clear(),
            false => _ = self.passed.remove_range(..=offset.get()),
        }
        (self.watermark, self.generation) = (offset, at);
    }

    /// Events up to here are gone.
    pub(in crate::ledger) fn trim(&mut self, through: Sequence) {
        self.watermark = self.watermark.max(through);
        self.passed.remove_range(..=self.watermark.get());
    }

    pub(in crate::ledger) fn snapshot(&self) -> GroupProgressSnapshot {
        GroupProgressSnapshot {
            watermark: self.watermark,
            passed: bitmap::to_text(&self.passed),
            generation: self.generation,
        }
    }
}

/// A division in a checkpoint.
#[derive(Serialize, Deserialize)]
pub(in crate::ledger) struct GroupProgressSnapshot {
    watermark: Sequence,
    #[serde(with = "bitmap::checked")]
    passed: String,
    generation: Position,
}

impl From<GroupProgressSnapshot> for GroupProgress {
    fn from(snapshot: GroupProgressSnapshot) -> Self {
        let GroupProgressSnapshot { watermark, passed, generation } = snapshot;
        Self { watermark, passed: bitmap::from_text(&passed).unwrap_or_default(), generation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Position = Position(7);

    /// Behind 10, of which 12 and 14 to 16 were passed and 11 is finished.
    fn sample() -> GroupProgress {
        let mut division = GroupProgress::starting_at(Offset(10), Position(1));
        division.pass(&[(Sequence(12), Sequence(12)), (Sequence(14), Sequence(16))]);
        division.advance(|sequence| sequence == Sequence(11));
        division
    }

    fn past(division: &GroupProgress) -> Vec<u64> {
        (1..=20).filter(|sequence| division.is_past(Sequence(*sequence))).collect()
    }

    #[test]
    fn the_watermark_moves_over_what_is_finished_or_passed_and_stops_at_the_first_that_is_not() {
        let mut division = sample();
        assert_eq!(division.watermark(), Sequence(12));
        division.advance(|sequence| sequence == Sequence(13));
        assert_eq!((division.watermark(), division.passed.len()), (Sequence(16), 0));
    }

    #[test]
    fn events_that_are_repeated_are_looked_at_again_and_nothing_else_is() {
        let mut division = sample();
        division.repeat(&[Sequence(3), Sequence(5)], AT);
        assert_eq!((division.watermark(), division.generation()), (Sequence(2), AT));
        assert_eq!(past(&division), [1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16]);
        division.advance(|sequence| sequence == Sequence(3));
        assert_eq!(division.watermark(), Sequence(4));
        division.advance(|sequence| sequence == Sequence(5));
        assert_eq!(division.watermark(), Sequence(12));
        let mut ahead = sample();
        ahead.repeat(&[Sequence(13)], AT);
        assert_eq!((past(&ahead), ahead.generation()), (past(&sample()), AT));
        let mut nothing = sample();
        nothing.repeat(&[], AT);
        assert_eq!(past(&nothing), past(&sample()));
    }

    #[test]
    fn a_group_that_is_moved_back_looks_at_everything_again_and_one_moved_forth_skips() {
        let mut back = sample();
        back.move_to(Offset(5), AT);
        assert_eq!(past(&back), (1..=5).collect::<Vec<_>>());
        let mut forth = sample();
        forth.move_to(Offset(15), AT);
        assert_eq!(past(&forth), (1..=16).collect::<Vec<_>>());
        let mut trimmed = sample();
        trimmed.trim(Sequence(14));
        trimmed.advance(|_| false);
        assert_eq!((trimmed.watermark(), trimmed.generation()), (Sequence(16), Position(1)));
    }

    #[test]
    fn a_division_survives_a_checkpoint() {
        let text = serde_json::to_string(&sample().snapshot()).unwrap();
        let again: GroupProgress = serde_json::from_str::<GroupProgressSnapshot>(&text).unwrap().into();
        assert_eq!(again, sample());
    }
}
