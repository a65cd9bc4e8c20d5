//! Finished claims of one handler in one topic: a bit per event, whatever the order they were finished in.
//!
//! - A finished event stays finished. Bits go with the events they speak of, when the topic is trimmed; below the trim
//!   everything counts as finished.
//! - Who may say "done" twice must be told from who lost its claim. An event that was claimed once was finished by that
//!   claim, and the log tells which it was. Of the others, which are few, the finishing token is remembered, the last
//!   [`limits::FINISHING_TOKENS_KEPT`] of them; beyond that nobody is believed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use contract::{Sequence, Token, limits};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was finished, and by whom where that is not plain.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Finished {
    all: RoaringTreemap,
    /// Those of them that were claimed more than once, or by nobody.
    contended: RoaringTreemap,
    /// Who finished those, of the last of them.
    tokens: BTreeMap<Sequence, Token>,
    /// Gone up to here, and finished for that.
    trimmed: Sequence,
}

/// Who finished an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The only claim it ever had.
    First,
    /// The claim with this token, of several.
    By(Token),
    /// Nobody who could say so again: a person decided it, or it is too long ago.
    Nobody,
}

impl Finished {
    /// Who finished an event; `None` while nobody has.
    pub(super) fn get(&self, sequence: Sequence) -> Option<Finish> {
        if sequence <= self.trimmed {
            return Some(Finish::First);
        }
        if !self.all.contains(sequence.get()) {
            return None;
        }
        Some(match self.contended.contains(sequence.get()) {
            false => Finish::First,
            true => self.tokens.get(&sequence).map_or(Finish::Nobody, |token| Finish::By(*token)),
        })
    }

    pub(super) fn insert(&mut self, sequence: Sequence, finish: Finish) {
        if sequence <= self.trimmed || !self.all.insert(sequence.get()) || finish == Finish::First {
            return;
        }
        self.contended.insert(sequence.get());
        if let Finish::By(token) = finish {
            self.tokens.insert(sequence, token);
            if self.tokens.len() > limits::FINISHING_TOKENS_KEPT {
                self.tokens.pop_first();
            }
        }
    }

    /// The highest sequence finished.
    pub(super) fn highest(&self) -> Sequence {
        Sequence(self.all.max().unwrap_or(0)).max(self.trimmed)
    }

    /// The last sequence that is gone.
    pub(super) const fn trimmed(&self) -> Sequence {
        self.trimmed
    }

    /// Events up to here are gone.
    pub(super) fn trim(&mut self, through: Sequence) {
        self.trimmed = self.trimmed.max(through);
        self.all.remove_range(..=through.get());
        self.contended.remove_range(..=through.get());
        self.tokens = self.tokens.split_off(&through.next());
    }

    pub(super) fn snapshot(&self) -> FinishedSnapshot {
        let tokens = self.tokens.iter().map(|(sequence, token)| (*sequence, *token)).collect();
        FinishedSnapshot { all: to_text(&self.all), contended: to_text(&self.contended), tokens, trimmed: self.trimmed }
    }
}

/// Finished claims in a checkpoint.
#[derive(Serialize, Deserialize)]
pub(super) struct FinishedSnapshot {
    /// The bits, as the crate `roaring` writes them, in base64.
    #[serde(with = "checked")]
    all: String,
    #[serde(with = "checked")]
    contended: String,
    tokens: Vec<(Sequence, Token)>,
    trimmed: Sequence,
}

impl From<FinishedSnapshot> for Finished {
    fn from(snapshot: FinishedSnapshot) -> Self {
        let bits = |text: &str| from_text(text).unwrap_or_default();
        Self {
            all: bits(&snapshot.all),
            contended: bits(&snapshot.contended),
            tokens: snapshot.tokens.into_iter().collect(),
            trimmed: snapshot.trimmed,
        }
    }
}

pub(super) fn to_text(bits: &RoaringTreemap) -> String {
    let mut bytes = Vec::with_capacity(bits.serialized_size());
    // Writing to memory cannot fail.
    let _ = bits.serialize_into(&mut bytes);
    STANDARD_NO_PAD.encode(bytes)
}

pub(super) fn from_text(text: &str) -> Option<RoaringTreemap> {
    RoaringTreemap::deserialize_from(STANDARD_NO_PAD.decode(text).ok()?.as_slice()).ok()
}

/// A checkpoint whose bits cannot be read is no checkpoint.
mod checked {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
        let text = String::deserialize(deserializer)?;
        match super::from_text(&text) {
            Some(_) => Ok(text),
            None => Err(de::Error::custom("bad bits")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Finished {
        let mut finished = Finished::default();
        finished.insert(Sequence(1), Finish::First);
        finished.insert(Sequence(5), Finish::By(Token(40)));
        finished.insert(Sequence(7), Finish::Nobody);
        finished
    }

    fn all(finished: &Finished) -> Vec<Option<Finish>> {
        (1..=8).map(|sequence| finished.get(Sequence(sequence))).collect()
    }

    #[test]
    fn who_finished_an_event_is_remembered_through_a_checkpoint() {
        let (first, by, nobody) = (Some(Finish::First), Some(Finish::By(Token(40))), Some(Finish::Nobody));
        let text = serde_json::to_string(&sample().snapshot()).unwrap();
        let again: Finished = serde_json::from_str::<FinishedSnapshot>(&text).unwrap().into();
        assert_eq!(again, sample());
        assert_eq!(all(&again), [first, None, None, None, by, None, nobody, None]);
        assert!(serde_json::from_str::<FinishedSnapshot>(&text.replacen("\"all\":\"", "\"all\":\"AA", 1)).is_err());
    }

    #[test]
    fn a_finish_is_final_and_a_trim_takes_the_bits_but_not_the_fact() {
        let mut finished = sample();
        finished.insert(Sequence(5), Finish::First);
        assert_eq!(finished.get(Sequence(5)), Some(Finish::By(Token(40))));
        finished.trim(Sequence(5));
        finished.insert(Sequence(2), Finish::By(Token(50)));
        assert_eq!((finished.all.len(), finished.tokens.len(), finished.highest()), (1, 0, Sequence(7)));
        assert_eq!(all(&finished)[..6], [Some(Finish::First); 5].into_iter().chain([None]).collect::<Vec<_>>());
        finished.trim(Sequence(9));
        assert_eq!((finished.all.len(), finished.highest()), (0, Sequence(9)));
    }

    #[test]
    fn of_very_many_finishing_tokens_the_last_are_kept_and_the_rest_is_not_believed() {
        let mut finished = Finished::default();
        let count = limits::FINISHING_TOKENS_KEPT as u64 + 1;
        (1..=count).for_each(|n| finished.insert(Sequence(n), Finish::By(Token(n))));
        assert_eq!(finished.get(Sequence(1)), Some(Finish::Nobody));
        assert_eq!(finished.get(Sequence(2)), Some(Finish::By(Token(2))));
    }
}
