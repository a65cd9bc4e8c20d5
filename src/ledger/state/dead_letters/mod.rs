//! Dead letters, as folded from the log: what was given up, and how an operator resolved it.
//!
//! - One fold ([`DeadLettersFold`]) serves both the durable rows and the overlay of rows that are not durable yet.
//! - An open letter stays until it is resolved. Of the resolved ones, the last
//!   [`contract::limits::RESOLVED_LETTERS_KEPT`] are kept.
//! - When an event is removed, the error messages in its letters are removed, too: they often quote the event.
//! - When a subscription is deleted, its open letters are discarded: one fact, however many there are.

mod fold;
mod index;
mod overlay;

pub(crate) use index::DeadLetterOwner;
pub use index::{DeadLetterRange, DeadLetterSortKey};
pub(in crate::ledger) use overlay::DeadLettersOverlay;
pub use overlay::DecidedDeadLetters;

use super::bitmap::StoredBitmap;
use super::claims::ClaimKey;
use super::dispatch::JobKey;
use crate::ledger::facts::entry::Entry;
use crate::ledger::state::table::{OverlayWriter, StateTable};
use contract::{
    ClaimAttempt, ClaimError, DeadLetterFilter, DeadLetterResolution, DeadLetterSource, DeadLetterStatus, Sequence,
    TopicId,
};
use fold::DeadLettersFold;
use index::DeadLetterIndex;
use log::{Record, RecordHeader};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use uuid::Uuid;

/// Replaces the error message of a dead letter whose event is removed.
const MESSAGE_REMOVED: &str = "Removed with the event.";

/// A claim or a job that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredDeadLetter {
    /// Its id.
    pub id: Uuid,
    /// Whether it was a handler's claim or a subscription's job.
    pub source: DeadLetterSource,
    /// The name of the handler or the subscription.
    pub name: String,
    /// The event's topic.
    pub topic: TopicId,
    /// The topic's number in its log.
    pub number: u32,
    /// The event's sequence in the topic.
    pub sequence: Sequence,
    /// The event's id.
    pub event: Uuid,
    /// The error.
    pub error: ClaimError,
    /// The attempts.
    pub attempts: Vec<ClaimAttempt>,
    /// Whether it was given up because a later event of its aggregate was finished before it.
    #[serde(default)]
    pub superseded: bool,
    /// The job that was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobKey>,
}

impl StoredDeadLetter {
    /// Whether its event is removed while error messages about it are still here.
    fn is_of_removed(&self, topic: u32, through: Sequence) -> bool {
        self.number == topic && self.sequence <= through && self.error.message != MESSAGE_REMOVED
    }

    /// Removes the error messages, which often quote the event.
    fn forget_messages(&mut self) {
        let errors = self.attempts.iter_mut().map(|attempt| &mut attempt.error).chain([&mut self.error]);
        errors.for_each(|error| MESSAGE_REMOVED.clone_into(&mut error.message));
    }

    /// The claim that was given up.
    #[must_use]
    pub fn key(&self) -> ClaimKey {
        ClaimKey { handler: self.name.clone(), topic: self.number, sequence: self.sequence }
    }
}

/// A dead letter and its resolution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterRow {
    /// The dead letter as it was given up.
    pub letter: StoredDeadLetter,
    /// When it was given up, in milliseconds.
    pub at: i64,
    /// Whether it is open, redriven or discarded.
    pub status: DeadLetterStatus,
    /// How it was resolved, and by whom.
    pub resolution: Option<DeadLetterResolution>,
}

impl DeadLetterRow {
    /// Its sort key as text: by time, then by id.
    #[must_use]
    pub fn sort_key(&self) -> String {
        format!("{:016x} {}", self.at, self.letter.id)
    }

    /// Parses such a text.
    #[must_use]
    pub fn parse_sort_key(text: &str) -> Option<DeadLetterSortKey> {
        let (at, id) = text.split_once(' ')?;
        Some((i64::from_str_radix(at, 16).ok()?, Uuid::try_parse(id).ok()?))
    }
}

/// Dead letters by id.
#[derive(Default)]
pub struct DeadLetterRows {
    rows: BTreeMap<Uuid, Arc<DeadLetterRow>>,
    /// The resolved ones, in the order they were resolved.
    resolved: VecDeque<Uuid>,
    open: DeadLetterIndex,
    all: DeadLetterIndex,
    /// Events that a corrected one has replaced, by subscription and topic: they are not delivered again. For handlers
    /// the finished claims hold the same information.
    replaced: BTreeMap<(String, u32), RoaringTreemap>,
}

impl DeadLetterRows {
    /// One dead letter.
    #[must_use]
    pub fn get(&self, id: Uuid) -> Option<&Arc<DeadLetterRow>> {
        self.rows.get(&id)
    }

    /// At most `max` letters that match the filter, in the order of the range.
    #[must_use]
    pub fn in_range(&self, filter: &DeadLetterFilter, range: DeadLetterRange, max: usize) -> Vec<Arc<DeadLetterRow>> {
        let index = if filter.resolved_too { &self.all } else { &self.open };
        let places = index.in_range(filter, range, max);
        places.iter().filter_map(|(_, id)| self.rows.get(id)).cloned().collect()
    }

    /// The owners of open letters: how many each has, when the oldest was given up, and when the newest.
    pub fn owners(&self) -> impl Iterator<Item = (&DeadLetterOwner, usize, i64, i64)> {
        self.open.owners().filter_map(|(owner, places)| {
            let ((oldest, _), (newest, _)) = (places.first()?, places.last()?);
            Some((owner, places.len(), *oldest, *newest))
        })
    }

    /// Whether a corrected event has replaced this one, for a subscription.
    #[must_use]
    pub fn is_replaced(&self, subscription: &str, topic: u32, sequence: Sequence) -> bool {
        if self.replaced.is_empty() {
            return false;
        }
        let known = self.replaced.get(&(subscription.to_owned(), topic));
        known.is_some_and(|known| known.contains(sequence.get()))
    }
}

/// Dead letters in a checkpoint.
#[derive(Serialize, Deserialize)]
pub struct DeadLettersSnapshot {
    /// The open ones, then the others in the order they were resolved.
    rows: Vec<DeadLetterRow>,
    replaced: Vec<ReplacedEventsSnapshot>,
}

/// Events that corrected ones have replaced, in a checkpoint.
#[derive(Serialize, Deserialize)]
struct ReplacedEventsSnapshot {
    subscription: String,
    topic: u32,
    sequences: StoredBitmap,
}

impl StateTable for DeadLetterRows {
    type Overlay = DeadLettersOverlay;
    type Snapshot = DeadLettersSnapshot;

    fn apply(&mut self, entry: &Entry, header: &RecordHeader) {
        DeadLettersFold::apply(self, entry, header);
    }

    fn decide(&self, overlay: &mut DeadLettersOverlay, entry: &Entry, header: &RecordHeader) {
        OverlayWriter { durable: self, overlay, at: header.position }.apply(entry, header);
    }

    fn snapshot(&self) -> DeadLettersSnapshot {
        let open = self.rows.values().filter(|row| row.status == DeadLetterStatus::Open);
        let resolved = self.resolved.iter().filter_map(|id| self.rows.get(id));
        let replaced = self.replaced.iter().map(|((name, topic), known)| ReplacedEventsSnapshot {
            subscription: name.clone(),
            topic: *topic,
            sequences: StoredBitmap(known.clone()),
        });
        DeadLettersSnapshot {
            rows: open.chain(resolved).map(|row| DeadLetterRow::clone(row)).collect(),
            replaced: replaced.collect(),
        }
    }

    fn restore(snapshot: DeadLettersSnapshot) -> Self {
        let mut dead_letters = Self::default();
        snapshot.rows.into_iter().for_each(|row| dead_letters.put(row));
        let replaced = snapshot.replaced.into_iter().map(|it| {
            let ReplacedEventsSnapshot { subscription, topic, sequences } = it;
            ((subscription, topic), sequences.0)
        });
        dead_letters.replaced = replaced.collect();
        dead_letters
    }
}

/// Logs a claim that this process has just given up. Jobs are logged by
/// `dispatch`. Error messages may quote payloads, so only the class is logged.
pub(in crate::ledger) fn log_new_letter(record: &Record) {
    const BEGINNING: &[u8] = br#"{"fact":"deadLettered""#;
    if record.header.topic.0 != 0 || !record.body.starts_with(BEGINNING) {
        return;
    }
    if let Ok(Some(Entry::DeadLettered { letter })) = Entry::of(record)
        && letter.job.is_none()
    {
        let StoredDeadLetter { name, topic, sequence, event, error, .. } = letter.as_ref();
        let (handler, reason, sequence) = (name.as_str(), error.class.as_str(), sequence.get());
        tracing::info!(handler, %topic, sequence, %event, reason, "a claim was given up and is a dead letter");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_correction_replaced_is_remembered_through_a_checkpoint() {
        let mut dead_letters = DeadLetterRows::default();
        dead_letters.replaced.entry(("mail".to_owned(), 7)).or_default().insert(3);
        let text = serde_json::to_string(&dead_letters.snapshot()).unwrap();
        let again = DeadLetterRows::restore(serde_json::from_str(&text).unwrap());
        assert!(again.is_replaced("mail", 7, Sequence(3)));
        assert!(!again.is_replaced("mail", 7, Sequence(4)) && !again.is_replaced("log", 7, Sequence(3)));
    }
}
