//! Finished claims of one handler in one topic: a bit per event, whatever the order they were finished in.
//!
//! - A finished event stays finished. Bits go with the events they speak of, when the topic is trimmed; below the trim
//!   everything counts as finished.
//! - Who may say "done" twice must be told from who lost its claim. An event that was claimed once was finished by that
//!   claim, and the log tells which it was. Of the others, which are few, the finishing token is remembered, the last
//!   [`limits::FINISHING_TOKENS_KEPT`] of them; beyond that nobody is believed.

use crate::ledger::state::bitmap::{self, from_text, to_text};
use contract::{FencingToken, Sequence, limits};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was finished, and by whom where that is not plain.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::ledger) struct FinishedClaims {
    all: RoaringTreemap,
    /// Those of them that were claimed more than once, or by nobody.
    contended: RoaringTreemap,
    /// Who finished those, of the last of them.
    tokens: BTreeMap<Sequence, FencingToken>,
    /// Those that a corrected event has replaced: they are final, and no reset or republish brings them back.
    replaced: RoaringTreemap,
    /// Gone up to here, and finished for that.
    trimmed: Sequence,
}

/// Who finished an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishedBy {
    /// The only claim it ever had.
    First,
    /// The claim with this token, of several.
    By(FencingToken),
    /// Nobody who could say so again: a person decided it, or it is too long ago.
    Nobody,
    /// A person, by publishing a corrected event instead; it is never handed out again.
    Replaced,
}

impl FinishedClaims {
    /// Who finished an event; `None` while nobody has.
    pub(in crate::ledger) fn get(&self, sequence: Sequence) -> Option<FinishedBy> {
        if sequence <= self.trimmed {
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
        if sequence <= self.trimmed || !self.all.insert(sequence.get()) || finish == FinishedBy::First {
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
    }

    /// The highest sequence finished.
    pub(in crate::ledger) fn highest(&self) -> Sequence {
        Sequence(self.all.max().unwrap_or(0)).max(self.trimmed)
    }

    /// Those of a run that are finished, still there, and could be worked on again: all but the replaced ones.
    pub(in crate::ledger) fn run(&self, from: Sequence, to: Sequence) -> impl Iterator<Item = Sequence> {
        let mut bits = self.all.iter();
        bits.advance_to(from.get());
        let run = bits.take_while(move |bit| *bit <= to.get());
        run.filter(|bit| !self.replaced.contains(*bit)).map(Sequence)
    }

    /// How many events behind `after`, up to `through`, are finished.
    pub(in crate::ledger) fn count(&self, after: Sequence, through: Sequence) -> u64 {
        self.all.rank(through.get()).saturating_sub(self.all.rank(after.get()))
    }

    /// How many events behind `after`, up to `through`, are finished or among these others.
    pub(in crate::ledger) fn count_with(&self, others: &RoaringTreemap, after: Sequence, through: Sequence) -> u64 {
        let count = |bits: &RoaringTreemap| bits.rank(through.get()).saturating_sub(bits.rank(after.get()));
        (count(&self.all) + count(others)).saturating_sub(count(&(&self.all & others)))
    }

    /// Whether a corrected event has replaced this one.
    pub(in crate::ledger) fn is_replaced(&self, sequence: Sequence) -> bool {
        self.replaced.contains(sequence.get())
    }

    /// Whether nothing is remembered of an event that is still there.
    pub(in crate::ledger) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A run is to be worked on again: nothing of it counts as finished but what was replaced. What is gone stays so.
    pub(in crate::ledger) fn clear(&mut self, from: Sequence, to: Sequence) {
        let run = from.get()..=to.get();
        let replaced: Vec<_> = self.replaced.iter().filter(|bit| run.contains(bit)).collect();
        self.all.remove_range(run.clone());
        self.contended.remove_range(run);
        self.tokens.retain(|sequence, _| !(from..=to).contains(sequence));
        self.all.extend(replaced.iter().copied());
        self.contended.extend(replaced);
    }

    /// The last sequence that is gone.
    pub(in crate::ledger) const fn trimmed(&self) -> Sequence {
        self.trimmed
    }

    /// Events up to here are gone.
    pub(in crate::ledger) fn trim(&mut self, through: Sequence) {
        self.trimmed = self.trimmed.max(through);
        self.all.remove_range(..=through.get());
        self.contended.remove_range(..=through.get());
        self.replaced.remove_range(..=through.get());
        self.tokens = self.tokens.split_off(&through.next());
    }

    pub(in crate::ledger) fn snapshot(&self) -> FinishedSnapshot {
        let tokens = self.tokens.iter().map(|(sequence, token)| (*sequence, *token)).collect();
        FinishedSnapshot {
            all: to_text(&self.all),
            contended: to_text(&self.contended),
            tokens,
            replaced: to_text(&self.replaced),
            trimmed: self.trimmed,
        }
    }
}

/// Finished claims in a checkpoint.
#[derive(Serialize, Deserialize)]
pub(in crate::ledger) struct FinishedSnapshot {
    /// The bits, as the crate `roaring` writes them, in base64.
    #[serde(with = "bitmap::checked")]
    all: String,
    #[serde(with = "bitmap::checked")]
    contended: String,
    tokens: Vec<(Sequence, FencingToken)>,
    /// Without it the checkpoint is of a version that did not remember them, and the log is folded instead.
    #[serde(with = "bitmap::checked")]
    replaced: String,
    trimmed: Sequence,
}

impl From<FinishedSnapshot> for FinishedClaims {
    fn from(snapshot: FinishedSnapshot) -> Self {
        let bits = |text: &str| from_text(text).unwrap_or_default();
        Self {
            all: bits(&snapshot.all),
            contended: bits(&snapshot.contended),
            tokens: snapshot.tokens.into_iter().collect(),
            replaced: bits(&snapshot.replaced),
            trimmed: snapshot.trimmed,
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

    #[test]
    fn who_finished_an_event_is_remembered_through_a_checkpoint() {
        let (first, by, nobody) =
            (Some(FinishedBy::First), Some(FinishedBy::By(FencingToken(40))), Some(FinishedBy::Nobody));
        let text = serde_json::to_string(&sample().snapshot()).unwrap();
        let again: FinishedClaims = serde_json::from_str::<FinishedSnapshot>(&text).unwrap().into();
        assert_eq!(again, sample());
        assert_eq!(all(&again), [first, None, None, None, by, None, nobody, None]);
        assert!(serde_json::from_str::<FinishedSnapshot>(&text.replacen("\"all\":\"", "\"all\":\"AA", 1)).is_err());
    }

    #[test]
    fn a_finish_is_final_and_a_trim_takes_the_bits_but_not_the_fact() {
        let mut finished = sample();
        finished.insert(Sequence(5), FinishedBy::First);
        assert_eq!(finished.get(Sequence(5)), Some(FinishedBy::By(FencingToken(40))));
        finished.trim(Sequence(5));
        finished.insert(Sequence(2), FinishedBy::By(FencingToken(50)));
        assert_eq!((finished.all.len(), finished.tokens.len(), finished.highest()), (1, 0, Sequence(7)));
        assert_eq!(all(&finished)[..6], [Some(FinishedBy::First); 5].into_iter().chain([None]).collect::<Vec<_>>());
        finished.trim(Sequence(9));
        assert_eq!((finished.all.len(), finished.highest()), (0, Sequence(9)));
    }

    #[test]
    fn what_a_correction_has_replaced_stays_finished_when_the_rest_is_to_be_done_again() {
        let mut finished = sample();
        finished.insert(Sequence(6), FinishedBy::Replaced);
        assert_eq!(finished.run(Sequence(1), Sequence(8)).collect::<Vec<_>>(), [1, 5, 7].map(Sequence));
        finished.clear(Sequence(1), Sequence(u64::MAX));
        let again: FinishedClaims = finished.snapshot().into();
        assert_eq!(again, finished);
        assert_eq!(all(&again), [None, None, None, None, None, Some(FinishedBy::Replaced), None, None]);
        assert_eq!((again.count(Sequence(0), Sequence(9)), again.count(Sequence(6), Sequence(9))), (1, 0));
        finished.trim(Sequence(6));
        assert!(finished.is_empty() && finished.replaced.is_empty());
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
