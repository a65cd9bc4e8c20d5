//! A decision in the making: the durable state, plus what was decided since but is not durable yet.
//!
//! - Decisions see everything decided before them, durable or not; readers see only what is durable.
//! - What a decision adds can be undone to a mark, so that an atomic unit leaves no trace when one of it is refused.
//! - When the append succeeds its records are applied to the state and leave the overlay; when it fails the whole
//!   overlay is dropped.

use super::growth::{check_room, disk_full};
use super::idempotency;
use crate::ledger::disk::row_codec::{AggregateHead, IdempotencyRow};
use crate::ledger::disk::table::KeyMap;
use crate::ledger::facts::carried_state;
use crate::ledger::facts::entry::{Entry, EntryConcern};
use crate::ledger::state::LedgerState;
use crate::ledger::state::claims::DecidedClaims;
use crate::ledger::state::consumers::DecidedConsumers;
use crate::ledger::state::dead_letters::DecidedDeadLetters;
use crate::ledger::state::dispatch::DecidedDispatch;
use crate::ledger::state::projections::DecidedProjections;
use crate::ledger::state::registry::Registry;
use crate::ledger::state::tables::TableOverlays;
use bytes::{BufMut, Bytes, BytesMut};
use contract::{AggregateSequence, Error, Kind, Position, Result, Sequence, Timestamp};
use log::{AggregateMark, EventFacets, IdempotencyMark, Record, RecordHeader, StorageRoom, TopicNumber};
use std::collections::HashMap;
use std::sync::Arc;

/// What a command decides on, and where it puts what it decides.
pub struct Decision<'a> {
    state: &'a LedgerState,
    overlay: &'a mut Overlay,
    now: i64,
    /// How much room the log has.
    pub(in crate::ledger) room: StorageRoom,
}

/// Everything decided but not yet durable.
#[derive(Default)]
pub struct Overlay {
    /// Last position decided; 0 while the overlay is empty.
    position: Position,
    time: i64,
    registry: Option<Arc<Registry>>,
    tails: HashMap<TopicNumber, Sequence>,
    heads: KeyMap<AggregateHead>,
    keys: KeyMap<IdempotencyRow>,
    pub(in crate::ledger) tables: TableOverlays,
    /// Records decided and not handed over yet.
    records: Vec<Record>,
    undo: Vec<UndoStep>,
    /// Bodies are cut from one buffer, so that an event costs no allocation of its own.
    buffer: BytesMut,
    stamp: TimestampText,
}

/// An event ready to be numbered.
pub struct EventDraft {
    /// Its topic.
    pub topic: TopicNumber,
    /// Its id.
    pub id: u128,
    /// Fingerprint of its type.
    pub type_tag: u64,
    /// Fingerprint of its subject type.
    pub subject_type_tag: u64,
    /// Its tenant, or 0.
    pub tenant: u128,
    /// Its aggregate, if it speaks of one.
    pub aggregate: Option<u128>,
    /// Its idempotency key, if it has one.
    pub idempotency: Option<IdempotencyMark>,
    /// Its JSON, all but the assigned members.
    pub text: Bytes,
    /// Where in the text the assigned members go.
    pub splice: usize,
}

/// How far a decision had come; see [`Decision::undo`].
#[derive(Debug, Clone, Copy)]
pub struct UndoMark {
    undo: usize,
    records: usize,
    position: Position,
}

enum UndoStep {
    Tail(TopicNumber, Option<Sequence>),
    Head(u128, Option<AggregateHead>),
    Key(u128, Option<IdempotencyRow>),
    Registry(Option<Arc<Registry>>),
}

impl<'a> Decision<'a> {
    /// A decision on `state` and all that `overlay` holds, at `now` by the log's time.
    pub fn new(state: &'a LedgerState, overlay: &'a mut Overlay, now: i64) -> Self {
        let now = now.max(state.time).max(overlay.time);
        overlay.undo.clear();
        Self { state, overlay, now, room: StorageRoom::Ample }
    }

    /// The time of this decision, in milliseconds; never before an earlier record's.
    #[must_use]
    pub const fn now(&self) -> i64 {
        self.now
    }

    /// What is registered.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        self.overlay.registry.as_ref().unwrap_or(&self.state.registry)
    }

    /// The last position decided so far.
    #[must_use]
    pub fn position(&self) -> Position {
        self.overlay.position.max(self.state.position)
    }

    /// A topic's last sequence.
    #[must_use]
    pub fn tail(&self, topic: TopicNumber) -> Sequence {
        self.overlay.tails.get(&topic).copied().unwrap_or_else(|| self.state.tail(topic))
    }

    /// Where an aggregate stands.
    pub fn head(&self, aggregate: u128) -> Result<Option<AggregateHead>> {
        match self.overlay.heads.get(&aggregate) {
            Some(head) => Ok(Some(*head)),
            None => self.state.head(aggregate),
        }
    }

    /// The event stored under this idempotency key, however long ago.
    pub fn stored_key(&self, key: u128) -> Result<Option<IdempotencyRow>> {
        match self.overlay.keys.get(&key) {
            Some(remembered) => Ok(Some(*remembered)),
            None => self.state.stored_key(key),
        }
    }

    /// The answer kept under this key of a caller's, however long ago.
    pub fn recorded_reply(&self, key: u128) -> Result<Option<IdempotencyRow>> {
        match self.overlay.tables.reply(key) {
            Some(remembered) => Ok(Some(remembered)),
            None => self.state.stored_key(key),
        }
    }

    /// Consumers and the offsets of groups.
    #[must_use]
    pub fn consumers(&self) -> DecidedConsumers<'_> {
        self.overlay.tables.consumers(&self.state.tables, self.now)
    }

    /// Projections and their checkpoints.
    #[must_use]
    pub fn projections(&self) -> DecidedProjections<'_> {
        self.overlay.tables.projections(&self.state.tables, self.now)
    }

    /// Claims and the policies of handlers.
    #[must_use]
    pub fn claims(&self) -> DecidedClaims<'_> {
        self.overlay.tables.claims(&self.state.tables, self.now)
    }

    /// Dead letters.
    #[must_use]
    pub fn dead_letters(&self) -> DecidedDeadLetters<'_> {
        self.overlay.tables.dead_letters(&self.state.tables, self.now)
    }

    /// Subscriptions, jobs and pools.
    #[must_use]
    pub fn dispatch(&self) -> DecidedDispatch<'_> {
        self.overlay.tables.dispatch(&self.state.tables, self.now)
    }

    /// How far this decision has come.
    #[must_use]
    pub fn mark(&self) -> UndoMark {
        UndoMark { undo: self.overlay.undo.len(), records: self.overlay.records.len(), position: self.overlay.position }
    }

    /// Takes back everything since `mark`.
    pub fn undo(&mut self, mark: UndoMark) {
        let overlay = &mut *self.overlay;
        for step in overlay.undo.drain(mark.undo..).rev() {
            match step {
                UndoStep::Tail(topic, before) => restore(&mut overlay.tails, topic, before),
                UndoStep::Head(key, before) => restore(&mut overlay.heads, key, before),
                UndoStep::Key(key, before) => restore(&mut overlay.keys, key, before),
                UndoStep::Registry(before) => overlay.registry = before,
            }
        }
        overlay.tables.undo(mark.position);
        overlay.records.truncate(mark.records);
        overlay.position = mark.position;
    }

    /// Adds an event; answers its record as it will be stored.
    pub fn add_event(&mut self, draft: &EventDraft) -> Result<Record> {
        check_room(self.room)?;
        self.check_topic(draft.topic)?;
        let position = self.position().next();
        let sequence = self.tail(draft.topic).next();
        let aggregate = draft.aggregate.map(|key| self.next_in_aggregate(key)).transpose()?;
        let facets = EventFacets {
            type_tag: draft.type_tag,
            subject_type_tag: draft.subject_type_tag,
            tenant: draft.tenant,
            aggregate,
            idempotency: draft.idempotency,
        };
        let header =
            RecordHeader { position, topic: draft.topic, sequence, time: self.now, id: draft.id, facets: Some(facets) };
        let body = self.overlay.assigned_text(draft, &header);
        let record = Record { header, body };
        self.note(&record);
        Ok(record)
    }

    /// Refuses what is about a topic that was deleted since it was found.
    fn check_topic(&self, number: TopicNumber) -> Result<()> {
        match self.registry().is_deleted(number) {
            true => Err(Error::not_found("topic")),
            false => Ok(()),
        }
    }

    /// Says that what follows needs this version of the dictionary, unless the log says so already.
    pub(in crate::ledger) fn raise_dictionary(&mut self, dictionary: u32) -> Result<()> {
        if dictionary <= self.registry().dictionary() {
            return Ok(());
        }
        let by = env!("CARGO_PKG_VERSION").to_owned();
        self.put_entry(Entry::DictionaryRaised { dictionary, by }).map(drop)
    }

    /// Says again which version of the dictionary the log needs: the entry that said so first is about to go.
    pub(in crate::ledger) fn repeat_dictionary(&mut self) -> Result<()> {
        let (dictionary, by) = (self.registry().dictionary(), env!("CARGO_PKG_VERSION").to_owned());
        self.put_entry(Entry::DictionaryRaised { dictionary, by }).map(drop)
    }

    /// The durable state beneath.
    pub(crate) const fn durable(&self) -> &LedgerState {
        self.state
    }

    /// Whether there is room for nothing but what frees space.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.room == StorageRoom::Full
    }

    /// Adds a fact of the broker's own; answers its position. Refused where it makes the log grow and there is no room.
    pub fn add_entry(&mut self, entry: Entry) -> Result<Position> {
        if entry.grows() {
            check_room(self.room)?;
        }
        if self.is_full() && !entry.frees() {
            return Err(disk_full());
        }
        self.add_due_entry(entry)
    }

    /// The same for a fact that must be told whatever room there is: it follows from one that is durable elsewhere, or
    /// repeats one that was.
    pub fn add_due_entry(&mut self, entry: Entry) -> Result<Position> {
        if let Some(number) = entry.topic_number() {
            self.check_topic(TopicNumber(number))?;
        }
        self.raise_dictionary(entry.since())?;
        self.put_entry(entry)
    }

    /// Says again, as it is now, what facts that are lost may have said: how far topics were let go, and everything that
    /// changes row by row.
    pub fn carry_state(&mut self) -> Result<()> {
        let failed = |error| Error::new(Kind::Unavailable, "The state could not be written.").with_source(error);
        for entry in carried_state::pieces(&self.state.tables).map_err(failed)? {
            self.add_entry(entry)?;
        }
        let trimmed: Vec<_> =
            (0..).zip(&self.state.trimmed).filter(|(_, through)| **through > Sequence::ZERO).collect();
        for (number, through) in trimmed {
            self.add_entry(Entry::TopicTrimmed { number, through: *through })?;
        }
        Ok(())
    }

    fn put_entry(&mut self, entry: Entry) -> Result<Position> {
        let body = serde_json::to_vec(&entry)
            .map_err(|error| Error::new(Kind::Unavailable, "An entry could not be written.").with_source(error))?;
        let header = RecordHeader {
            position: self.position().next(),
            topic: TopicNumber::LEDGER,
            sequence: self.tail(TopicNumber::LEDGER).next(),
            time: self.now,
            id: 0,
            facets: None,
        };
        self.note(&Record { header, body: body.into() });
        match entry.concern() {
            EntryConcern::Registry => self.note_registered(entry, header),
            // All parts are decided by a repair alone, which decides nothing else.
            EntryConcern::History | EntryConcern::AllTables | EntryConcern::Usage => (),
            EntryConcern::Tables => self.overlay.tables.decide(&self.state.tables, &entry, &header),
            EntryConcern::Topic => {
                self.overlay.tables.decide(&self.state.tables, &entry, &header);
                self.note_registered(entry, header);
            }
            EntryConcern::Keys => {
                if let Some((key, row)) = idempotency::row(&entry, header.position, header.time) {
                    self.overlay.tables.decide_reply(key, row);
                }
            }
        }
        Ok(header.position)
    }

    fn note_registered(&mut self, entry: Entry, header: RecordHeader) {
        let mut registry = self.registry().clone();
        registry.apply(entry, header);
        let before = self.overlay.registry.replace(Arc::new(registry));
        self.overlay.undo.push(UndoStep::Registry(before));
    }

    fn next_in_aggregate(&self, key: u128) -> Result<AggregateMark> {
        let last = self.head(key)?.map_or(AggregateSequence::ZERO, |head| head.aggregate_sequence);
        Ok(AggregateMark { key, sequence: last.next() })
    }

    /// Makes the record visible to the decisions that follow.
    fn note(&mut self, record: &Record) {
        let RecordHeader { position, topic, sequence, time, facets, .. } = record.header;
        let overlay = &mut *self.overlay;
        overlay.position = position;
        overlay.time = time;
        overlay.undo.push(UndoStep::Tail(topic, overlay.tails.insert(topic, sequence)));
        if let Some(aggregate) = facets.and_then(|facets| facets.aggregate) {
            let head = AggregateHead { aggregate_sequence: aggregate.sequence, sequence };
            overlay.undo.push(UndoStep::Head(aggregate.key, overlay.heads.insert(aggregate.key, head)));
        }
        if let Some(mark) = facets.and_then(|facets| facets.idempotency) {
            let remembered = IdempotencyRow { position, time, digest: mark.digest };
            overlay.undo.push(UndoStep::Key(mark.key, overlay.keys.insert(mark.key, remembered)));
        }
        overlay.records.push(record.clone());
    }
}

impl Overlay {
    /// How many records were decided and not handed over yet.
    #[must_use]
    pub const fn records(&self) -> usize {
        self.records.len()
    }

    /// The last position decided; 0 where nothing is.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.position
    }

    /// The records decided since this was last asked.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// The record is in the state now: the overlay need not answer for it any more.
    pub fn remove_durable(&mut self, record: &Record) {
        let RecordHeader { position, topic, sequence, facets, .. } = record.header;
        if self.tails.get(&topic) == Some(&sequence) {
            self.tails.remove(&topic);
        }
        let Some(facets) = facets else {
            if self.registry.as_ref().is_some_and(|registry| registry.version() <= position) {
                self.registry = None;
            }
            self.tables.settle(position);
            return;
        };
        if let Some(aggregate) = facets.aggregate
            && self.heads.get(&aggregate.key).is_some_and(|head| head.sequence == sequence)
        {
            self.heads.remove(&aggregate.key);
        }
        if let Some(mark) = facets.idempotency
            && self.keys.get(&mark.key).is_some_and(|remembered| remembered.position == position)
        {
            self.keys.remove(&mark.key);
        }
    }

    /// Forgets everything that was not durable.
    pub fn clear(&mut self) {
        *self = Self { buffer: std::mem::take(&mut self.buffer), ..Self::default() };
    }

    /// The event's JSON with the members only the log can know.
    fn assigned_text(&mut self, draft: &EventDraft, header: &RecordHeader) -> Bytes {
        const ASSIGNED_BYTES: usize = 160;
        const BUFFER_BYTES: usize = 64 * 1024;
        let room = draft.text.len() + ASSIGNED_BYTES;
        if self.buffer.capacity() - self.buffer.len() < room {
            self.buffer = BytesMut::with_capacity(room.max(BUFFER_BYTES));
        }
        let (before, after) = draft.text.split_at(draft.splice);
        self.buffer.put_slice(before);
        let aggregate = header.facets.and_then(|facets| facets.aggregate);
        let mut number = itoa::Buffer::new();
        self.buffer.put_slice(br#","sequence":"#);
        self.buffer.put_slice(number.format(header.sequence.get()).as_bytes());
        if let Some(aggregate) = aggregate {
            self.buffer.put_slice(br#","aggregateSequence":"#);
            self.buffer.put_slice(number.format(aggregate.sequence.get()).as_bytes());
        }
        self.buffer.put_slice(br#","position":"#);
        self.buffer.put_slice(number.format(header.position.get()).as_bytes());
        self.buffer.put_slice(br#","createdAt":""#);
        self.buffer.put_slice(self.stamp.text(header.time).as_bytes());
        self.buffer.put_slice(b"\"");
        self.buffer.put_slice(after);
        self.buffer.split().freeze()
    }
}

/// The last time printed, and its text: a group's events mostly share it.
#[derive(Default)]
struct TimestampText {
    millis: i64,
    text: String,
}

impl TimestampText {
    fn text(&mut self, millis: i64) -> &str {
        if self.millis != millis || self.text.is_empty() {
            self.millis = millis;
            self.text = Timestamp::from_millis(millis).to_string();
        }
        &self.text
    }
}

fn restore<K: Eq + std::hash::Hash, V, S: std::hash::BuildHasher>(
    map: &mut HashMap<K, V, S>,
    key: K,
    before: Option<V>,
) {
    match before {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}
