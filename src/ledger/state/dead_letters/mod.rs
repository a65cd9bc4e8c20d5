//! Dead letters, as the log tells them: what was given up, and what a person made of it.
//!
//! - One fold ([`Rows::apply`]) for both the durable rows and the layer of what is not durable yet.
//! - An open letter stays until somebody deals with it. Of those dealt with, the last
//!   [`limits::RESOLVED_LETTERS_KEPT`] are remembered.
//! - With a subscription its open letters are closed: one fact, however many there are.

mod index;

pub(crate) use index::DeadLetterOwner;
pub use index::{DeadLetterRange, DeadLetterSortKey};

use super::bitmap;
use super::claims::ClaimKey;
use super::dispatch::JobKey;
use crate::ledger::decide::overlay_map::OverlayMap;
use crate::ledger::facts::dispatch::DispatchFact;
use crate::ledger::facts::entry::Entry;
use crate::ledger::state::table::{Decided, OverlayWriter, StateTable};
use contract::{
    ClaimAttempt, ClaimError, DeadLetterFilter, DeadLetterResolution, DeadLetterSource, DeadLetterStatus, Error,
    Result, Sequence, Timestamp, TopicId, limits,
};
use index::DeadLetterIndex;
use log::{Record, RecordHeader};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use uuid::Uuid;

/// Who closes a letter where no person does.
const BROKER: &str = "event-broker";
const HANDLER_DELETED: &str = "The handler was deleted.";
const GROUP_DELETED: &str = "The group was deleted.";
const TOPIC_DELETED: &str = "The topic was deleted.";

/// What was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredDeadLetter {
    /// Its id.
    pub id: Uuid,
    /// Whose work it was.
    pub source: DeadLetterSource,
    /// The handler, or the subscription.
    pub name: String,
    /// The event's topic.
    pub topic: TopicId,
    /// The topic's number in its log.
    pub number: u32,
    /// The event's number there.
    pub sequence: Sequence,
    /// The event's id.
    pub event: Uuid,
    /// Why.
    pub error: ClaimError,
    /// What was tried.
    pub attempts: Vec<ClaimAttempt>,
    /// Because a later event of its aggregate was finished before it.
    #[serde(default)]
    pub superseded: bool,
    /// The job that was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobKey>,
}

impl StoredDeadLetter {
    /// The claim that was given up.
    #[must_use]
    pub fn key(&self) -> ClaimKey {
        ClaimKey { handler: self.name.clone(), topic: self.number, sequence: self.sequence }
    }
}

/// A letter with what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterRow {
    /// As it was given up.
    pub letter: StoredDeadLetter,
    /// When, in milliseconds.
    pub at: i64,
    /// How it stands.
    pub status: DeadLetterStatus,
    /// Who dealt with it.
    pub resolution: Option<DeadLetterResolution>,
}

impl DeadLetterRow {
    /// Its place among all letters: by time, then by id.
    #[must_use]
    pub fn sort_key(&self) -> String {
        format!("{:016x} {}", self.at, self.letter.id)
    }

    /// The place that such a text stands for.
    #[must_use]
    pub fn parse_sort_key(text: &str) -> Option<DeadLetterSortKey> {
        let (at, id) = text.split_once(' ')?;
        Some((i64::from_str_radix(at, 16).ok()?, Uuid::try_parse(id).ok()?))
    }
}

/// Letters by id.
#[derive(Default)]
pub struct DeadLetterRows {
    rows: BTreeMap<Uuid, Arc<DeadLetterRow>>,
    /// Those dealt with, in the order that was done.
    resolved: VecDeque<Uuid>,
    open: DeadLetterIndex,
    all: DeadLetterIndex,
    /// Events that a corrected one has replaced, by subscription and topic: they are not delivered again. What a handler
    /// has finished knows the same of its own.
    replaced: BTreeMap<(String, u32), RoaringTreemap>,
}

impl DeadLetterRows {
    /// One letter.
    #[must_use]
    pub fn get(&self, id: Uuid) -> Option<&Arc<DeadLetterRow>> {
        self.rows.get(&id)
    }

    /// At most `max` letters that are meant, in the order of the range.
    #[must_use]
    pub fn in_range(&self, filter: &DeadLetterFilter, range: DeadLetterRange, max: usize) -> Vec<Arc<DeadLetterRow>> {
        let index = if filter.resolved_too { &self.all } else { &self.open };
        let places = index.in_range(filter, range, max);
        places.iter().filter_map(|(_, id)| self.rows.get(id)).cloned().collect()
    }

    /// Who has open letters: how many, when the oldest was given up, and the newest.
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

/// Letters in a checkpoint.
#[derive(Serialize, Deserialize)]
pub struct DeadLettersSnapshot {
    /// The open ones, then the others in the order they were dealt with.
    rows: Vec<DeadLetterRow>,
    replaced: Vec<ReplacedEventsSnapshot>,
}

/// Events that corrected ones have replaced, in a checkpoint.
#[derive(Serialize, Deserialize)]
struct ReplacedEventsSnapshot {
    subscription: String,
    topic: u32,
    #[serde(with = "bitmap::checked")]
    sequences: String,
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
            sequences: bitmap::to_text(known),
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
            ((subscription, topic), bitmap::from_text(&sequences).unwrap_or_default())
        });
        dead_letters.replaced = replaced.collect();
        dead_letters
    }
}

/// Where facts about letters are folded.
pub(in crate::ledger) trait DeadLettersFold {
    fn known(&self, id: Uuid) -> Option<DeadLetterRow>;
    fn put(&mut self, row: DeadLetterRow);
    /// The open letters of a handler.
    fn open_of(&self, handler: &str) -> Vec<DeadLetterRow>;
    /// A corrected event replaces that of a letter.
    fn replace(&mut self, dead_letter: Uuid);
    /// Events of a topic up to here are gone.
    fn trim(&mut self, topic: u32, through: Sequence);

    /// Takes in one fact. Total: a fact about an unknown letter, or something else, changes nothing.
    fn apply(&mut self, entry: &Entry, header: &RecordHeader) {
        let at = Timestamp::from_millis(header.time);
        match entry {
            Entry::DeadLettered { letter } => {
                let dead_letter = StoredDeadLetter::clone(letter);
                self.put(DeadLetterRow {
                    letter: dead_letter,
                    at: header.time,
                    status: DeadLetterStatus::Open,
                    resolution: None,
                });
            }
            Entry::Redriven { letter, by, reason, new_event, .. } => {
                let resolution =
                    DeadLetterResolution { at, by: by.clone(), reason: reason.clone(), new_event_id: *new_event };
                if new_event.is_some() {
                    self.replace(*letter);
                }
                self.resolve(*letter, DeadLetterStatus::Redriven, resolution);
            }
            Entry::Discarded { letter, by, reason, .. } => {
                let resolution =
                    DeadLetterResolution { at, by: by.clone(), reason: Some(reason.clone()), new_event_id: None };
                self.resolve(*letter, DeadLetterStatus::Discarded, resolution);
            }
            Entry::Dispatch { what: DispatchFact::SubscriptionDeleted { code: Some(code), by, .. } } => {
                let (by, reason) = (by.clone().unwrap_or_default(), Some(SUBSCRIPTION_DELETED.to_owned()));
                self.close(code, &DeadLetterResolution { at, by, reason, new_event_id: None });
            }
            Entry::TopicTrimmed { number, through } => self.trim(*number, *through),
            Entry::TopicDeleted { number, .. } => {
                let (by, reason) = (BROKER.to_owned(), Some(TOPIC_DELETED.to_owned()));
                self.close_topic(*number, &DeadLetterResolution { at, by, reason, new_event_id: None });
            }
            Entry::HandlerDeleted { name, .. } => self.close_work(name, |_| true, at, HANDLER_DELETED),
            Entry::GroupDeleted { group, topics } => {
                self.close_work(group, |number| topics.contains(&number), at, GROUP_DELETED);
            }
            _ => (),
        }
    }

    /// Closes the open letters of a handler that is gone, in some topics.
    fn close_work(&mut self, handler: &str, is_meant: impl Fn(u32) -> bool, at: Timestamp, reason: &str) {
        for row in self.open_of(handler).into_iter().filter(|row| is_meant(row.letter.number)) {
            let (by, reason) = (BROKER.to_owned(), Some(reason.to_owned()));
            let resolution = DeadLetterResolution { at, by, reason, new_event_id: None };
            self.resolve(row.letter.id, DeadLetterStatus::Discarded, resolution);
        }
    }

    /// A letter is dealt with once: what comes later changes nothing.
    fn resolve(&mut self, id: Uuid, status: DeadLetterStatus, resolution: DeadLetterResolution) {
        if let Some(known) = self.known(id).filter(|known| known.status == DeadLetterStatus::Open) {
            self.put(DeadLetterRow { status, resolution: Some(resolution), ..known });
        }
    }

    /// Closes every open letter of a subscription. Only durable rows do: until the fact is durable, decisions see that
    /// the subscription's lane is gone, and there may be too many letters to copy.
    fn close(&mut self, _subscription: &str, _resolution: &DeadLetterResolution) {}

    /// Closes every open letter of a topic. Only durable rows do, as above.
    fn close_topic(&mut self, _topic: u32, _resolution: &DeadLetterResolution) {}
}

/// Why the letters of a subscription are closed that was deleted.
const SUBSCRIPTION_DELETED: &str = "The subscription was deleted.";

impl DeadLettersFold for DeadLetterRows {
    fn known(&self, id: Uuid) -> Option<DeadLetterRow> {
        self.rows.get(&id).map(|row| DeadLetterRow::clone(row))
    }

    fn open_of(&self, handler: &str) -> Vec<DeadLetterRow> {
        let (source, name) = (Some(DeadLetterSource::Handler), Some(handler.to_owned()));
        let filter = DeadLetterFilter { source, name, ..DeadLetterFilter::default() };
        let open = self.in_range(&filter, DeadLetterRange::After(None), usize::MAX);
        open.iter().map(|row| DeadLetterRow::clone(row)).collect()
    }

    fn replace(&mut self, dead_letter: Uuid) {
        let is_meant = |row: &&Arc<DeadLetterRow>| {
            row.status == DeadLetterStatus::Open && row.letter.source == DeadLetterSource::Subscription
        };
        let Some(row) = self.rows.get(&dead_letter).filter(is_meant) else { return };
        let StoredDeadLetter { name, number, sequence, .. } = &row.letter;
        self.replaced.entry((name.clone(), *number)).or_default().insert(sequence.get());
    }

    fn trim(&mut self, topic: u32, through: Sequence) {
        self.replaced.retain(|(_, number), known| {
            if *number == topic {
                known.remove_range(..=through.get());
            }
            !known.is_empty()
        });
    }

    fn put(&mut self, row: DeadLetterRow) {
        let (id, status) = (row.letter.id, row.status);
        self.all.insert(&row);
        match status {
            DeadLetterStatus::Open => self.open.insert(&row),
            DeadLetterStatus::Redriven | DeadLetterStatus::Discarded => {
                self.open.remove(&row);
                self.resolved.push_back(id);
            }
        }
        self.rows.insert(id, Arc::new(row));
        if self.resolved.len() > limits::RESOLVED_LETTERS_KEPT
            && let Some(oldest) = self.resolved.pop_front()
            && let Some(row) = self.rows.remove(&oldest)
        {
            self.all.remove(&row);
        }
    }

    fn close(&mut self, subscription: &str, resolution: &DeadLetterResolution) {
        let filter = DeadLetterFilter {
            source: Some(DeadLetterSource::Subscription),
            name: Some(subscription.to_owned()),
            ..DeadLetterFilter::default()
        };
        for row in self.in_range(&filter, DeadLetterRange::After(None), usize::MAX) {
            self.resolve(row.letter.id, DeadLetterStatus::Discarded, resolution.clone());
        }
        self.replaced.retain(|(name, _), _| name != subscription);
    }

    fn close_topic(&mut self, topic: u32, resolution: &DeadLetterResolution) {
        for row in self.in_range(&DeadLetterFilter::default(), DeadLetterRange::After(None), usize::MAX) {
            // A task is of no topic.
            if topic > 0 && row.letter.number == topic {
                self.resolve(row.letter.id, DeadLetterStatus::Discarded, resolution.clone());
            }
        }
        self.replaced.retain(|(_, number), _| *number != topic);
    }
}

fn is_open_of(row: &DeadLetterRow, handler: &str) -> bool {
    let StoredDeadLetter { source, name, .. } = &row.letter;
    row.status == DeadLetterStatus::Open && *source == DeadLetterSource::Handler && name == handler
}

/// Letters decided but not durable yet.
pub type DeadLettersOverlay = OverlayMap<Uuid, DeadLetterRow>;

fn known(durable: &DeadLetterRows, overlay: &DeadLettersOverlay, id: Uuid) -> Option<DeadLetterRow> {
    match overlay.get(&id) {
        Some(decided) => decided.cloned(),
        None => durable.known(id),
    }
}

impl DeadLettersFold for OverlayWriter<'_, DeadLetterRows> {
    fn known(&self, id: Uuid) -> Option<DeadLetterRow> {
        known(self.durable, self.overlay, id)
    }

    fn open_of(&self, handler: &str) -> Vec<DeadLetterRow> {
        let durable = self.durable.open_of(handler);
        let still = durable.into_iter().filter(|row| self.overlay.get(&row.letter.id).is_none());
        let decided = self.overlay.iter().map(|(_, row)| row).filter(|row| is_open_of(row, handler));
        still.chain(decided.cloned()).collect()
    }

    /// No decision asks for it: what is delivered is chosen from what is durable.
    fn replace(&mut self, _: Uuid) {}

    fn trim(&mut self, _: u32, _: Sequence) {}

    fn put(&mut self, row: DeadLetterRow) {
        self.overlay.set(self.at, row.letter.id, Some(row));
    }
}

/// Letters as a decision sees them: durable or decided.
pub type DecidedDeadLetters<'a> = Decided<'a, DeadLetterRows>;

impl DecidedDeadLetters<'_> {
    /// One letter.
    pub fn known(&self, id: Uuid) -> Result<DeadLetterRow> {
        known(&self.durable, self.overlay, id).ok_or_else(|| Error::not_found("dead letter"))
    }
}

/// A line of the program's log for work of a handler that this process has just given up. Jobs have their line in
/// `dispatch`. Messages may quote payloads, so only the class is in it.
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
        tracing::info!(handler, %topic, sequence, %event, reason, "work was given up and is a dead letter");
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
