//! The fold: the state of the log, record by record.
//!
//! - `apply` accepts everything that was ever decided. It refuses what only a newer version can read, and changes
//!   nothing.
//! - The state holds only what is durable; what is still being written is in the [`crate::ledger::decide::overlay`].
//! - The state is a cache with a position. It can be stored, dropped and rebuilt.

pub(super) mod bitmap;
pub(super) mod catch_up;
pub(super) mod claims;
pub(super) mod consumers;
pub(super) mod dead_letters;
pub(super) mod dispatch;
pub(super) mod projections;
pub(super) mod registry;
pub(super) mod snapshot;
pub(super) mod table;
pub(super) mod tables;
pub(super) mod type_tag;

use crate::clock::ClockHold;
use crate::ledger::decide::stored_reply;
use crate::ledger::disk::row_codec::{AggregateHead, IdempotencyRow};
use crate::ledger::disk::table::DiskTables;
use crate::ledger::facts::carried_rows::{CarriedKey, CarriedRows};
use crate::ledger::facts::carried_state::CarriedPieces;
use crate::ledger::facts::entry::{self, Entry, EntryConcern};
use crate::ledger::reclaim::usage::EntryUsage;
use bytes::Bytes;
use contract::{Error, Kind, Position, Result, Sequence};
use log::{EventFacets, LogError, Record, RecordHeader, TopicNumber};
use registry::Registry;
use std::io;
use std::sync::{Arc, OnceLock};
use tables::StateTables;

/// The state of the log through one position.
pub struct LedgerState {
    /// Folded through here.
    pub(super) position: Position,
    /// The last record's time, in milliseconds.
    pub(super) time: i64,
    pub(super) registry: Arc<Registry>,
    /// Last sequence by topic number; 0 is the ledger's own.
    pub(super) tails: Vec<Sequence>,
    /// The last trimmed sequence by topic number: what outlives the trimmed events is in the log.
    pub(super) trimmed: Vec<Sequence>,
    /// The tables that change row by row, shared with readers.
    pub(super) tables: Arc<StateTables>,
    pub(super) disk_tables: DiskTables,
    /// The lifetime of idempotency keys of requests, in milliseconds.
    pub(super) answers_millis: i64,
    /// The last record: a checkpoint is matched with the log by it, and a shared log with what was read from it.
    pub(super) last: LastRecord,
    /// The connection of a shared log over which the last record was last compared ([`catch_up`]).
    pub(super) compared_over: Option<u64>,
    /// Facts of a newer version were skipped.
    pub(super) has_skipped: bool,
    /// Tables that are carried in pieces, and are not complete yet.
    pub(super) carrying: CarriedPieces,
    /// The space that entries use in the log.
    pub(super) usage: EntryUsage,
    /// Set while the state was taken from a snapshot in the log and the on-disk tables are behind it: entries up to
    /// here change only the on-disk tables. Zero otherwise.
    pub(super) facts_through: Position,
    /// Entries up to here were reclaimed, and the snapshot that replaced them is lost. Zero except during a repair.
    pub(super) lost_facts_through: Sequence,
    /// What is held because the clock is in doubt since the start. Not part of what is stored.
    pub(super) clock_hold: ClockHold,
    /// Set once an on-disk table turned out to be unreadable: no command can be decided without it.
    pub(super) table_failure: OnceLock<Error>,
}

/// The last record.
#[derive(Debug, Default)]
pub(super) struct LastRecord {
    pub(super) time: i64,
    pub(super) topic: TopicNumber,
    pub(super) sequence: Sequence,
    pub(super) body: LastBody,
}

/// The body of the last record, or its checksum from a checkpoint.
#[derive(Debug)]
pub(super) enum LastBody {
    /// The body. The checksum is computed where it is needed, not for every record.
    Known(Bytes),
    /// Its CRC32C.
    Crc(u32),
}

impl LastBody {
    pub(super) fn crc(&self) -> u32 {
        match self {
            Self::Known(body) => crc32c::crc32c(body),
            Self::Crc(crc) => *crc,
        }
    }
}

impl Default for LastBody {
    fn default() -> Self {
        Self::Known(Bytes::new())
    }
}

impl LedgerState {
    /// The state of an empty log.
    pub fn new(tables: DiskTables) -> Self {
        Self {
            position: Position::ZERO,
            time: 0,
            registry: Arc::default(),
            tails: Vec::new(),
            trimmed: Vec::new(),
            tables: Arc::default(),
            disk_tables: tables,
            answers_millis: 0,
            last: LastRecord::default(),
            compared_over: None,
            has_skipped: false,
            carrying: CarriedPieces::default(),
            usage: EntryUsage::default(),
            facts_through: Position::ZERO,
            lost_facts_through: Sequence::ZERO,
            clock_hold: ClockHold::default(),
            table_failure: OnceLock::new(),
        }
    }

    /// Folded through here.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.position
    }

    /// Topics and event types.
    #[must_use]
    pub const fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// A topic's last sequence.
    #[must_use]
    pub fn tail(&self, topic: TopicNumber) -> Sequence {
        self.tails.get(topic.0 as usize).copied().unwrap_or_default()
    }

    /// The last trimmed sequence of a topic: what must outlive the trimmed events is in the log. The engine may still
    /// hold them.
    #[must_use]
    pub fn trimmed(&self, topic: TopicNumber) -> Sequence {
        self.trimmed.get(topic.0 as usize).copied().unwrap_or_default()
    }

    /// The clock is in doubt at the start: leases and sessions continue with the time they had left, and everything
    /// else is held back.
    pub(super) fn start_held(&mut self, hold: ClockHold) {
        self.clock_hold = hold;
        if !hold.is_empty() {
            self.tables.extend_leases(hold.jump);
        }
    }

    /// The last entry that was reclaimed if the snapshot that replaced them is lost; zero except during a repair.
    #[must_use]
    pub const fn lost_facts_through(&self) -> Sequence {
        self.lost_facts_through
    }

    /// The last sequence of each topic, by number.
    #[must_use]
    pub fn tails(&self) -> &[Sequence] {
        &self.tails
    }

    /// Rows of the on-disk tables that are in RAM alone.
    #[must_use]
    pub fn dirty_rows(&self) -> usize {
        self.disk_tables.heads.dirty_rows() + self.disk_tables.keys.dirty_rows()
    }

    /// The last event of an aggregate.
    pub fn head(&self, aggregate: u128) -> Result<Option<AggregateHead>> {
        let row = self.disk_tables.heads.get(aggregate).map_err(|cause| self.table_failed(cause))?;
        Ok(row.map(AggregateHead::decode))
    }

    /// The event or the reply stored under this idempotency key, however long ago.
    pub fn stored_key(&self, key: u128) -> Result<Option<IdempotencyRow>> {
        let row = self.disk_tables.keys.get(key).map_err(|cause| self.table_failed(cause))?;
        Ok(row.map(IdempotencyRow::decode))
    }

    /// Folds the next record. A record that this version cannot read changes nothing.
    pub fn apply(&mut self, record: &Record) -> Result<(), LogError> {
        let RecordHeader { position, topic, sequence, time, facets, .. } = record.header;
        let entry = match facets {
            Some(_) => None,
            None => Entry::of(record)?,
        };
        let carried = match &entry {
            Some(Entry::PartsCarried { piece, of, text }) if position > self.facts_through => {
                self.carrying.add(*piece, *of, text)
            }
            _ => Ok(None),
        };
        let unsupported = |cause| LogError::Unsupported { position, reason: entry::unreadable("partsCarried", &cause) };
        let carried = carried.map_err(unsupported)?;
        debug_assert!(position > self.position, "position {position} follows {}", self.position);
        self.position = position;
        self.time = self.time.max(time);
        self.last = LastRecord { time, topic, sequence, body: LastBody::Known(record.body.clone()) };
        if position <= self.facts_through {
            self.apply_to_tables(entry, &record.header);
            return Ok(());
        }
        self.facts_through = Position::ZERO;
        debug_assert!(sequence > self.tail(topic), "sequence {sequence} of {topic:?} follows {}", self.tail(topic));
        self.set_tail(topic, sequence);
        match (facets, entry) {
            (Some(facets), _) => self.apply_event(&record.header, &facets),
            (None, Some(entry)) => {
                self.usage.apply(&entry, &record.header, record.body.len());
                self.apply_entry(entry, &record.header);
            }
            (None, None) => self.has_skipped = true,
        }
        carried.into_iter().for_each(|parts| self.tables.replace(parts));
        Ok(())
    }

    /// Folds a record into the on-disk tables alone: the snapshot contains its other effects.
    fn apply_to_tables(&mut self, entry: Option<Entry>, header: &RecordHeader) {
        match (header.facets, entry) {
            (Some(facets), _) => self.apply_event(header, &facets),
            (None, Some(Entry::HistoryCarried { carried })) => self.apply_carried(carried),
            (None, Some(entry)) => self.apply_key(&entry, header),
            (None, None) => (),
        }
    }

    /// Refuses an entry that does not follow the last one: the entries between were reclaimed before they were read
    /// here.
    pub(super) fn check_gap(&self, header: &RecordHeader) -> Result<(), LogError> {
        let is_entry = header.topic == TopicNumber::LEDGER && header.position > self.facts_through;
        match is_entry && header.sequence > self.tail(TopicNumber::LEDGER).next() {
            true => Err(LogError::Reclaimed(Sequence(header.sequence.get() - 1))),
            false => Ok(()),
        }
    }

    /// The space that entries use in the log.
    #[must_use]
    pub const fn usage(&self) -> &EntryUsage {
        &self.usage
    }

    /// Whether this is the last record that was applied.
    pub(super) fn ends_with(&self, record: &Record) -> bool {
        let RecordHeader { position, topic, sequence, time, .. } = record.header;
        let last = &self.last;
        (position, topic, sequence, time) == (self.position, last.topic, last.sequence, last.time)
            && crc32c::crc32c(&record.body) == last.body.crc()
    }

    fn apply_event(&mut self, header: &RecordHeader, facets: &EventFacets) {
        if let Some(aggregate) = facets.aggregate {
            let head = AggregateHead { aggregate_sequence: aggregate.sequence, sequence: header.sequence };
            self.disk_tables.heads.put(aggregate.key, head.encode());
        }
        if let Some(mark) = facets.idempotency {
            let row = IdempotencyRow { position: header.position, time: header.time, digest: mark.digest };
            self.disk_tables.keys.put(mark.key, row.encode());
        }
    }

    fn apply_entry(&mut self, entry: Entry, header: &RecordHeader) {
        match entry.concern() {
            EntryConcern::Registry => Arc::make_mut(&mut self.registry).apply(entry, *header),
            EntryConcern::History => {
                self.tables.apply(&entry, header);
                self.apply_history(entry);
            }
            EntryConcern::Tables => self.tables.apply(&entry, header),
            EntryConcern::Topic => self.apply_deletion(entry, header),
            EntryConcern::Keys => self.apply_key(&entry, header),
            // The tables are replaced when the last piece is there.
            EntryConcern::AllTables => (),
            EntryConcern::Usage => (),
        }
    }

    /// Deletes a topic. Its last sequence stays known until its events are removed ([`Self::unremoved`]).
    ///
    /// An earlier `topicTrimmed` was written before the engine removed anything, so it does not show that the events
    /// are gone. It is forgotten: only one that follows the deletion, written after the engine has removed everything,
    /// counts.
    fn apply_deletion(&mut self, entry: Entry, header: &RecordHeader) {
        self.tables.apply(&entry, header);
        if let Entry::TopicDeleted { number, through, .. } = &entry
            && *number > 0
        {
            self.set_tail(TopicNumber(*number), *through);
            set(&mut self.trimmed, TopicNumber(*number), Sequence::ZERO);
        }
        Arc::make_mut(&mut self.registry).apply(entry, *header);
    }

    /// Deleted topics whose events are not all removed yet, with their last sequences.
    #[must_use]
    pub fn unremoved(&self) -> Vec<(TopicNumber, Sequence)> {
        let deleted = self.registry.deleted_numbers().map(TopicNumber);
        let ends = deleted.map(|number| (number, self.tail(number)));
        ends.filter(|(number, tail)| self.trimmed(*number) < *tail).collect()
    }

    fn apply_key(&mut self, entry: &Entry, header: &RecordHeader) {
        if let Some((key, row)) = stored_reply::row(entry, header.position, header.time) {
            self.disk_tables.keys.put(key, row.encode());
        }
    }

    fn apply_history(&mut self, entry: Entry) {
        match entry {
            Entry::HistoryCarried { carried } => self.apply_carried(carried),
            Entry::TopicTrimmed { number, through } => {
                let topic = TopicNumber(number);
                self.set_tail(topic, through.max(self.tail(topic)));
                let trimmed = through.max(self.trimmed(topic));
                set(&mut self.trimmed, topic, trimmed);
            }
            Entry::EventsLost { number, runs } => {
                let topic = TopicNumber(number);
                let last = runs.iter().map(|(_, last)| *last).max().unwrap_or_default();
                self.set_tail(topic, last.max(self.tail(topic)));
            }
            _ => (),
        }
    }

    /// Puts rows of removed events; if the events themselves were folded, the tables hold the same rows or newer ones.
    fn apply_carried(&mut self, carried: CarriedRows) {
        for (key, head) in carried.heads {
            if self.head(key).ok().flatten().is_none_or(|known| known.sequence < head.sequence) {
                self.disk_tables.heads.put(key, head.encode());
            }
        }
        for CarriedKey { key, row, .. } in carried.keys {
            if self.stored_key(key).ok().flatten().is_none_or(|known| known.position < row.position) {
                self.disk_tables.keys.put(key, row.encode());
            }
        }
    }

    fn table_failed(&self, cause: io::Error) -> Error {
        let detail = "The broker's own tables cannot be read; it rebuilds them from the log when it is opened again.";
        let error = Error::new(Kind::Unavailable, detail).with_source(cause).with_retry_after(5);
        self.table_failure.get_or_init(|| error).clone()
    }

    fn set_tail(&mut self, topic: TopicNumber, sequence: Sequence) {
        set(&mut self.tails, topic, sequence);
    }
}

/// Sets the value of a topic in a list by topic number.
fn set(list: &mut Vec<Sequence>, topic: TopicNumber, sequence: Sequence) {
    let index = topic.0 as usize;
    if list.len() <= index {
        list.resize(index + 1, Sequence::ZERO);
    }
    if let Some(place) = list.get_mut(index) {
        *place = sequence;
    }
}
