//! Finished claims of one handler in one topic: one bit per event, in whatever order the events were finished.
//!
//! - An event is identified by the sequence at which it was first stored. A republished copy has the same bit.
//! - A finished event stays finished, also when retention removes it: a copy of it may be stored further on. Bits of removed
//!   events are kept for the last [`limits::FINISHED_BELOW_TRIM_KEPT`] sequences below the trim; everything older counts as
//!   finished.
//! - A worker that repeats its `done` must be distinguished from one that has lost its claim. An event that was claimed once
//!   was finished by that claim, and the log has the entry. For the others, which are few, the finishing token is stored, the
//!   last [`limits::FINISHING_TOKENS_KEPT`] of them; beyond that every repeated `done` is refused.

use crate::ledger::state::bitmap::StoredBitmap;
use contract::{FencingToken, Sequence, limits};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bits in one container of a [`RoaringTreemap`], which is compressed as a whole.
const CONTAINER_BITS: u64 = 1 << 16;

/// Which events are finished, and by whom where the log alone does not say.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::ledger) struct FinishedClaims {
    all: RoaringTreemap,
    /// Events that were claimed more than once, or finished without a claim. An event that is handed out again after it was
    /// finished is one of them, although it is not in `all` until it is finished again.
    contended: RoaringTreemap,
    /// The finishing tokens of those, as far as they are kept.
    tokens: BTreeMap<Sequence, FencingToken>,
    /// Events that a corrected event has replaced: they are final, and no reset or republish brings them back.
    replaced: RoaringTreemap,
    /// Retention has removed the events up to here.
    trimmed: Sequence,
    /// Up to here no bits are kept: everything counts as finished.
    forgotten: Sequence,
}

/// Who finished an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishedBy {
    /// The only claim it ever had.
    First,
    /// The claim with this token, of several.
    By(FencingToken),
    /// No claim that is known: an operator decided it, or the token is no longer kept.
    Nobody,
    /// An operator, by publishing a corrected event instead; it is never handed out again.
    Replaced,
}

impl FinishedClaims {
    /// Who finished an event; `None` if it is not finished.
    pub(in crate::ledger) fn get(&self, sequence: Sequence) -> Option<FinishedBy> {
        if sequence <= self.forgotten {
            return Some(FinishedBy::First);
        }
        if !self.all.contains(sequence.get()) {
            return None;
        }
        if self.replaced.contains(sequence.get()) {
            return Some(FinishedBy::Replaced);
        }
        Some(match self.contended.contains(sequence.get()) {
            false => FinishedBy::First,
            true => self.tokens.get(&sequence).map_or(FinishedBy::Nobody, |token| FinishedBy::By(*token)),
        })
    }

    pub(in crate::ledger) fn insert(&mut self, sequence: Sequence, finish: FinishedBy) {
        if sequence <= self.forgotten || !self.all.insert(sequence.get()) || finish == FinishedBy::First {
            return;
        }
        self.contended.insert(sequence.get());
        if finish == FinishedBy::Replaced {
            self.replaced.insert(sequence.get());
        }
        if let FinishedBy::By(token) = finish {
            self.tokens.insert(sequence, token);
            if self.tokens.len() > limits::FINISHING_TOKENS_KEPT {
                self.tokens.pop_first();
            }
        }
        debug_assert!(self.get(sequence).is_some(), "an inserted event is finished");
    }

    /// Whether more than one claim of an event may be in the log, so that the finishing one must be recorded.
    pub(in crate::ledger) fn is_contended(&self, sequence: Sequence) -> bool {
        self.contended.contains(sequence.get())
    }

    /// The highest finished sequence; the trim, if nothing after it is finished.
    pub(in crate::ledger) fn highest(&self) -> Sequence {
        Sequence(self.all.max().unwrap_or(0)).max(self.trimmed)
    }

    /// The finished events of a range that are still stored and can be worked on again: all except the replaced ones.
    pub(in crate::ledger) fn run(&self, from: Sequence, to: Sequence) -> impl Iterator<Item = Sequence> {
        let mut bits = self.all.iter();
        bits.advance_to(from.max(self.trimmed.next()).get());
        let run = bits.take_while(move |bit| *bit <= to.get());
        run.filter(|bit| !self.replaced.contains(*bit)).map(Sequence)
    }

    /// How many events after `after`, up to `through`, are finished.
    pub(in crate::ledger) fn count(&self, after: Sequence, through: Sequence) -> u64 {
        self.all.rank(through.get()).saturating_sub(self.all.rank(after.get()))
    }

    /// How many events after `after`, up to `through`, are finished or in `others`.
    pub(in crate::ledger) fn count_with(&self, others: &RoaringTreemap, after: Sequence, through: Sequence) -> u64 {
        let count = |bits: &RoaringTreemap| bits.rank(through.get()).saturating_sub(bits.rank(after.get()));
        (count(&self.all) + count(others)).saturating_sub(count(&(&self.all & others)))
    }

    /// Whether a corrected event has replaced this one.
    pub(in crate::ledger) fn is_replaced(&self, sequence: Sequence) -> bool {
        self.replaced.contains(sequence.get())
    }

    /// Whether no event that is still stored is finished.
    pub(in crate::ledger) fn is_empty(&self) -> bool {
        self.all.max().is_none_or(|last| last <= self.trimmed.get())
    }

    /// Where the events begin that are to be worked on again from `from` on. Whoever goes back to the first stored event
    /// works again on everything that is stored, also on copies of events that were removed.
    pub(in crate::ledger) fn start_of_repeat(&self, from: Sequence) -> Sequence {
        if from <= self.trimmed.next() { self.forgotten.next() } else { from }
    }

    /// A range is to be worked on again: nothing in it counts as finished except the replaced events.
    pub(in crate::ledger) fn clear(&mut self, from: Sequence, to: Sequence) {
        let run = from.get()..=to.get();
        let replaced: Vec<_> = self.replaced.iter().filter(|bit| run.contains(bit)).collect();
        let mut claimed_before = self.all.clone();
        claimed_before.remove_range(..from.get());
        to.get().checked_add(1).into_iter().for_each(|end| _ = claimed_before.remove_range(end..));
        self.contended |= claimed_before;
        self.all.remove_range(run);
        self.tokens.retain(|sequence, _| !(from..=to).contains(sequence));
        self.all.extend(replaced);
    }

    /// Retention has removed the events up to here. Their bits stay; now and then they are compressed to runs.
    pub(in crate::ledger) fn trim(&mut self, through: Sequence) {
        let before = self.trimmed;
        self.trimmed = before.max(through);
        let forgotten = Sequence(self.trimmed.get().saturating_sub(limits::FINISHED_BELOW_TRIM_KEPT));
        if forgotten > self.forgotten {
            self.forgotten = forgotten;
            for bits in [&mut self.all, &mut self.contended, &mut self.replaced] {
                bits.remove_range(..=forgotten.get());
            }
            self.tokens = self.tokens.split_off(&forgotten.next());
        }
        if before.get() / CONTAINER_BITS < self.trimmed.get() / CONTAINER_BITS {
            for bits in [&mut self.all, &mut self.contended, &mut self.replaced] {
                bits.optimize();
            }
        }
        debug_assert!(self.forgotten <= self.trimmed, "only bits of removed events are forgotten");
    }

    pub(in crate::ledger) fn snapshot(&self) -> FinishedSnapshot {
        let tokens = self.tokens.iter().map(|(sequence, token)| (*sequence, *token)).collect();
        FinishedSnapshot {
            all: StoredBitmap(self.all.clone()),
            contended: StoredBitmap(self.contended.clone()),
            tokens,
            replaced: StoredBitmap(self.replaced.clone()),
            trimmed: self.trimmed,
            forgotten: Some(self.forgotten),
        }
    }
}

/// Finished claims in a checkpoint.
#[derive(Serialize, Deserialize)]
pub(in crate::ledger) struct FinishedSnapshot {
    /// The bits, as the crate `roaring` writes them, in base64.
    all: StoredBitmap,
    contended: StoredBitmap,
    tokens: Vec<(Sequence, FencingToken)>,
    /// If it is missing, the checkpoint was written by a version that did not record it, and the log is folded instead.
    replaced: StoredBitmap,
    trimmed: Sequence,
    /// If it is missing, the version that wrote the checkpoint removed all bits below the trim.
    #[serde(default)]
    forgotten: Option<Sequence>,
}

impl From<FinishedSnapshot> for FinishedClaims {
    fn from(snapshot: FinishedSnapshot) -> Self {
        Self {
            all: snapshot.all.0,
            contended: snapshot.contended.0,
            tokens: snapshot.tokens.into_iter().collect(),
            replaced: snapshot.replaced.0,
            trimmed: snapshot.trimmed,
            forgotten: snapshot.forgotten.unwrap_or(snapshot.trimmed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> FinishedClaims {
        let mut finished = FinishedClaims::default();
        finished.insert(Sequence(1), FinishedBy::First);
        finished.insert(Sequence(5), FinishedBy::By(FencingToken(40)));
        finished.insert(Sequence(7), FinishedBy::Nobody);
        finished
    }

    fn all(finished: &FinishedClaims) -> Vec<Option<FinishedBy>> {
        (1..=8).map(|sequence| finished.get(Sequence(sequence))).collect()
    }

    fn through_a_checkpoint(finished: &FinishedClaims) -> FinishedClaims {
        let text = serde_json::to_string(&finished.snapshot()).unwrap();
        serde_json::from_str::<FinishedSnapshot>(&text).unwrap().into()
    }

    const BY: Option<FinishedBy> = Some(FinishedBy::By(FencingToken(40)));
    const FIRST: Option<FinishedBy> = Some(FinishedBy::First);
    const NOBODY: Option<FinishedBy> = Some(FinishedBy::Nobody);

    #[test]
    fn who_finished_an_event_is_remembered_through_a_checkpoint() {
        let again = through_a_checkpoint(&sample());
        assert_eq!(again, sample());
        assert_eq!(all(&again), [FIRST, None, None, None, BY, None, NOBODY, None]);
        let text = serde_json::to_string(&sample().snapshot()).unwrap();
        assert!(serde_json::from_str::<FinishedSnapshot>(&text.replacen("\"all\":\"", "\"all\":\"AA", 1)).is_err());
    }

    /// What was never done was answered `done` once its original was removed.
    #[test]
    fn a_removed_event_is_finished_only_if_it_was_finished() {
        let mut finished = sample();
        finished.insert(Sequence(5), FinishedBy::First);
        finished.trim(Sequence(6));
        assert_eq!(all(&finished), [FIRST, None, None, None, BY, None, NOBODY, None]);
        assert_eq!(finished.highest(), Sequence(7));
        finished.insert(Sequence(2), FinishedBy::First);
        finished.trim(Sequence(9));
        assert_eq!((finished.is_empty(), finished.highest()), (true, Sequence(9)));
        assert_eq!(all(&through_a_checkpoint(&finished)), [FIRST, FIRST, None, None, BY, None, NOBODY, None]);
        assert_eq!(finished.run(Sequence(1), Sequence(9)).count(), 0);
    }

    #[test]
    fn far_below_the_trim_and_in_an_older_checkpoint_everything_counts_as_finished() {
        let mut finished = sample();
        finished.trim(Sequence(limits::FINISHED_BELOW_TRIM_KEPT + 6));
        assert_eq!((all(&finished)[3..].to_vec(), finished.tokens.len()), (vec![FIRST, FIRST, FIRST, NOBODY, None], 0));
        let mut old = sample();
        old.trim(Sequence(3));
        let text = serde_json::to_string(&old.snapshot()).unwrap();
        let text = text.replacen(",\"forgotten\":0", "", 1);
        let again: FinishedClaims = serde_json::from_str::<FinishedSnapshot>(&text).unwrap().into();
        assert_eq!(all(&again)[..5], [FIRST, FIRST, FIRST, None, BY]);
    }

    #[test]
    fn what_is_finished_again_after_a_reset_is_finished_by_the_later_claim() {
        let mut finished = sample();
        finished.clear(Sequence(1), Sequence(u64::MAX));
        assert_eq!(all(&finished), [None; 8]);
        assert!(finished.is_contended(Sequence(1)) && !finished.is_contended(Sequence(2)));
        finished.insert(Sequence(1), FinishedBy::By(FencingToken(50)));
        assert_eq!(all(&through_a_checkpoint(&finished))[0], Some(FinishedBy::By(FencingToken(50))));
    }

    #[test]
    fn what_a_correction_has_replaced_stays_finished_when_the_rest_is_to_be_done_again() {
        let mut finished = sample();
        finished.insert(Sequence(6), FinishedBy::Replaced);
        assert_eq!(finished.run(Sequence(1), Sequence(8)).collect::<Vec<_>>(), [1, 5, 7].map(Sequence));
        finished.clear(Sequence(1), Sequence(u64::MAX));
        let again = through_a_checkpoint(&finished);
        assert_eq!(again, finished);
        assert_eq!(all(&again), [None, None, None, None, None, Some(FinishedBy::Replaced), None, None]);
        assert_eq!((again.count(Sequence(0), Sequence(9)), again.count(Sequence(6), Sequence(9))), (1, 0));
        finished.trim(Sequence(6));
        finished.clear(finished.start_of_repeat(Sequence(7)), Sequence(u64::MAX));
        assert!(finished.is_empty() && finished.is_replaced(Sequence(6)));
    }

    #[test]
    fn of_very_many_finishing_tokens_the_last_are_kept_and_the_rest_is_not_believed() {
        let mut finished = FinishedClaims::default();
        let count = limits::FINISHING_TOKENS_KEPT as u64 + 1;
        (1..=count).for_each(|n| finished.insert(Sequence(n), FinishedBy::By(FencingToken(n))));
        assert_eq!(finished.get(Sequence(1)), Some(FinishedBy::Nobody));
        assert_eq!(finished.get(Sequence(2)), Some(FinishedBy::By(FencingToken(2))));
    }
}
