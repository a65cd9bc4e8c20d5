//! Imported events: the lines of an export remain as many events as they were.
//!
//! - A broker exports each of its events once. So two lines of an export are two events, whatever their producers' keys: one key
//!   may have been used by two producers, or again after its window. A line is known by the event's id and the sequence it
//!   had, for as long as the topic remembers keys; so an import can be repeated.
//! - The producer's own key is remembered as well, for what is left of its window: a producer that repeats a submission
//!   after the move gets the event that was moved. A key with a `Producer-Id` is not, since an export does not contain it.
//! - An event that was *published* here under the key of a line, within the window of that line, is the same event: the line
//!   is a duplicate. A second key beside the producer's says that an import has stored it, so that no line takes
//!   another one of the same export for a duplicate.
//! - A line that was exported from this very topic is a duplicate for as long as the topic has the event.
//! - A republished copy (`republishOf`) stays a copy: it has no idempotency key in its header, and names the sequence that
//!   its first submission has here. If that event is not here, the copy is refused.
//!
//! The rows that no event's header can hold are added with a `HistoryCarried` entry in the same decision.

use super::caller_context::CallerContext;
use super::fingerprint;
use super::outcome::{SubmissionNotes, duplicate_event};
use super::prepare::destination;
use super::publish::SubmittedEvent;
use super::read::stored_at;
use crate::ledger::{
    CarriedKey, CarriedRows, Decision, IdempotencyRow, Ledger, RegisteredTopic, ReplyRecorder, read_failed,
};
use contract::{
    Atomicity, BatchOutcome, Error, ExportedNumbers, NewEvent, Position, PublishedEvent, Result, Sequence,
    UnreadableEvent,
};
use log::{IdempotencyMark, LogError, ReadLimit, ReadRange, RecordHeader, TopicNumber};
use uuid::Uuid;

/// Serialises imports of copies: the keys of copies are visible to decisions only when they are durable.
pub(crate) type CopyLock = tokio::sync::Mutex<()>;

/// By what an imported line is known.
pub(crate) struct ImportedKeys {
    /// The line's own key.
    line: IdempotencyMark,
    /// The producer's key, with and without `occurredAt` if the broker may have added that; a copy has none.
    submissions: Vec<u128>,
    /// When the event was first stored, in milliseconds.
    created_at: i64,
    is_copy: bool,
}

impl ImportedKeys {
    pub(super) fn new(
        (topic, type_tag): (&RegisteredTopic, u64),
        event: &NewEvent,
        (id, numbers): (Uuid, &ExportedNumbers),
        digest: u64,
    ) -> Self {
        let is_copy = numbers.republish_of.is_some();
        let mut submissions = Vec::new();
        if !is_copy {
            submissions.extend(fingerprint::idempotency(event, topic, type_tag, None));
            if may_be_arrival(event, numbers) {
                submissions.extend(fingerprint::idempotency_without_time(event, topic, type_tag));
                submissions.dedup();
            }
        }
        Self {
            line: IdempotencyMark { key: fingerprint::exported_line(topic.number, id, numbers.sequence), digest },
            submissions,
            created_at: numbers.created_at.millis(),
            is_copy,
        }
    }

    /// What goes into the event's header.
    pub(super) fn mark(&self) -> Option<IdempotencyMark> {
        (!self.is_copy).then_some(self.line)
    }

    pub(super) const fn digest(&self) -> u64 {
        self.line.digest
    }

    /// The row of the event that this line repeats, if it does; `carried` has the rows of this decision.
    pub(super) fn find(
        &self,
        topic: &RegisteredTopic,
        decision: &Decision<'_>,
        carried: &CarriedRows,
    ) -> Result<Option<IdempotencyRow>> {
        let now = decision.now();
        let here = carried.keys.iter().find(|carried| carried.key == self.line.key).map(|carried| carried.row);
        let line = here.map_or_else(|| decision.stored_key(self.line.key), |row| Ok(Some(row)))?;
        if let Some(row) = line.filter(|row| topic.remembers(row.time, now)) {
            return Ok(Some(row));
        }
        // Two submissions under one key are the same event only within the window between them.
        let is_same =
            |row: &IdempotencyRow| topic.remembers(row.time.min(self.created_at), row.time.max(self.created_at));
        Ok(self.published(topic, decision)?.filter(is_same))
    }

    /// The row of an event that was published here under the producer's key of this line.
    fn published(&self, topic: &RegisteredTopic, decision: &Decision<'_>) -> Result<Option<IdempotencyRow>> {
        for &key in &self.submissions {
            let Some(row) = decision.stored_key(key)? else { continue };
            let imported = decision.stored_key(fingerprint::imported_key(key))?;
            let is_imported = imported.is_some_and(|imported| imported.position == row.position);
            if !is_imported && topic.remembers(row.time, decision.now()) {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    /// Adds the rows by which the line is known beside its header.
    pub(super) fn carry(
        &self,
        topic: &RegisteredTopic,
        header: &RecordHeader,
        decision: &Decision<'_>,
        carried: &mut CarriedRows,
    ) -> Result<()> {
        let known_by = |key, time| {
            let row = IdempotencyRow { position: header.position, time, digest: self.line.digest };
            CarriedKey { key, row, topic: Some(topic.number) }
        };
        if self.is_copy {
            carried.keys.push(known_by(self.line.key, header.time));
        }
        // The clock of the other broker may have been ahead.
        let created_at = self.created_at.min(header.time);
        if topic.remembers(created_at, header.time) && self.published(topic, decision)?.is_none() {
            for &key in &self.submissions {
                carried.keys.push(known_by(key, created_at));
                carried.keys.push(known_by(fingerprint::imported_key(key), created_at));
            }
        }
        Ok(())
    }
}

/// Whether an event's `occurredAt` may be its time of arrival, which the broker adds if the producer sends none: it has whole
/// milliseconds, and is shortly before the event was stored.
fn may_be_arrival(event: &NewEvent, numbers: &ExportedNumbers) -> bool {
    const PREPARED_WITHIN_MILLIS: i64 = 60_000;
    event.occurred_at.is_some_and(|time| {
        let waited = numbers.created_at.millis().saturating_sub(time.millis());
        time.nanos() % 1_000_000 == 0 && (0..PREPARED_WITHIN_MILLIS).contains(&waited)
    })
}

/// What an exported line becomes here.
enum ResolvedLine {
    /// Nothing new: the line was exported from this topic, which still has the event.
    Stored(Box<PublishedEvent>),
    /// An event to be published, or to be refused.
    Submitted(Box<SubmittedEvent>),
}

impl CallerContext<'_> {
    /// Stores lines of an import, each independently of the others; the limits of batches do not apply.
    pub(crate) async fn import(self, events: Vec<SubmittedEvent>) -> Result<BatchOutcome> {
        let is_copy = |event: &NewEvent| event.exported.as_ref().is_some_and(|numbers| numbers.republish_of.is_some());
        let _turn = match events.iter().flatten().any(is_copy) {
            true => Some(self.rules.import_copies.lock().await),
            false => None,
        };
        let (mut stored, mut rest) = (Vec::new(), Vec::with_capacity(events.len()));
        for (index, event) in events.into_iter().enumerate() {
            match event {
                Ok(event) if event.exported.is_some() => match self.resolve(event).await? {
                    ResolvedLine::Submitted(event) => rest.push(*event),
                    ResolvedLine::Stored(event) => stored.push((index, *event)),
                },
                event => rest.push(event),
            }
        }
        let mut outcomes = match rest.is_empty() {
            true => Vec::new(),
            false => self.publish_units(rest, Atomicity::Each, ReplyRecorder::disabled()).await?,
        };
        // In ascending order, so that each lands at its own index.
        for (index, event) in stored {
            debug_assert!(index <= outcomes.len(), "an outcome for every event before it");
            outcomes.insert(index.min(outcomes.len()), Ok(event));
        }
        Ok(outcomes)
    }

    /// Looks for the event of a line in its topic, and for the event that a copy is a copy of.
    async fn resolve(self, mut event: NewEvent) -> Result<ResolvedLine> {
        let submitted = |event| Ok(ResolvedLine::Submitted(Box::new(event)));
        let (Some(found), Some(id)) = (destination(self.rules, self.logs, &event), event.id) else {
            // Publishing says what is wrong with it.
            return submitted(Ok(event));
        };
        let (ledger, topic) = (self.logs.ledger(&found.log), found.topic.number);
        let Some(numbers) = event.exported.as_mut() else { return submitted(Ok(event)) };
        // An empty topic, the usual target, is not read.
        if numbers.sequence <= found.topic.tail() {
            let there = header_at(ledger, topic, numbers.sequence).await?;
            let is_same =
                |header: &RecordHeader| header.id == id.as_u128() && header.time == numbers.created_at.millis();
            if there.as_ref().is_some_and(is_same)
                && let Some(stored) = stored_at(ledger, topic, numbers.sequence).await?
            {
                return Ok(ResolvedLine::Stored(Box::new(duplicate_event(stored, false, SubmissionNotes::default()))));
            }
        }
        let Some(original) = numbers.republish_of else { return submitted(Ok(event)) };
        if let Some(sequence) = find_original(ledger, topic, id, original).await? {
            numbers.republish_of = Some(sequence);
            return submitted(Ok(event));
        }
        let detail = format!(
            "This event is a republished copy of sequence {original}, and that event is not in this topic. Import the event \
             before its copies; if retention had removed it before the export, its copies cannot be imported."
        );
        let error = Error::invalid("/republishOf", detail);
        submitted(Err(UnreadableEvent { error, event_type: Some(event.event_type) }))
    }
}

/// The sequence here of the event that was exported with this id and sequence.
async fn find_original(ledger: &Ledger, topic: TopicNumber, id: Uuid, exported: Sequence) -> Result<Option<Sequence>> {
    let is_original = |header: &RecordHeader| {
        let has_key = header.facets.is_some_and(|facets| facets.idempotency.is_some());
        header.topic == topic && header.id == id.as_u128() && has_key
    };
    // Sequences are usually the same, if the topic was empty and its history complete.
    if let Some(header) = header_at(ledger, topic, exported).await?.filter(is_original) {
        return Ok(Some(header.sequence));
    }
    let key = fingerprint::exported_line(topic, id, exported);
    let Some(row) = ledger.query_rows(move |state| state.stored_key(key)).await? else { return Ok(None) };
    let range = ReadRange::All(Position(row.position.0.saturating_sub(1)));
    let header = first_header(ledger, range).await?;
    Ok(header.filter(|header| header.position == row.position && is_original(header)).map(|header| header.sequence))
}

/// The header of the event with this sequence, unless it was removed.
async fn header_at(ledger: &Ledger, topic: TopicNumber, sequence: Sequence) -> Result<Option<RecordHeader>> {
    let header = first_header(ledger, ReadRange::Topic(topic, Sequence(sequence.0.saturating_sub(1)))).await?;
    Ok(header.filter(|header| header.sequence == sequence))
}

async fn first_header(ledger: &Ledger, range: ReadRange) -> Result<Option<RecordHeader>> {
    match ledger.log().headers(range, ReadLimit { records: 1, bytes: 0 }).await {
        Ok(page) => Ok(page.first().copied()),
        Err(LogError::Trimmed(_)) => Ok(None),
        Err(error) => Err(read_failed(error)),
    }
}
