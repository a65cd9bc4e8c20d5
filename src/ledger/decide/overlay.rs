//! Everything that is decided and not durable yet: records on their way to the log, and what they change.
//!
//! - Every change of the decision in progress can be undone to a mark.
//! - A record leaves the overlay when it is applied to the state. When all are applied, nothing is left.

use super::decision::EventDraft;
use crate::ledger::disk::row_codec::{AggregateHead, IdempotencyRow};
use crate::ledger::disk::table::KeyMap;
use crate::ledger::state::registry::Registry;
use crate::ledger::state::tables::TableOverlays;
use bytes::{BufMut, Bytes, BytesMut};
use contract::{Position, Sequence, Timestamp};
use log::{Record, RecordHeader, TopicNumber};
use std::collections::HashMap;
use std::sync::Arc;

/// Everything decided but not yet durable.
#[derive(Default)]
pub struct Overlay {
    /// The last position decided; 0 while the overlay is empty.
    position: Position,
    time: i64,
    pub(super) registry: Option<Arc<Registry>>,
    pub(super) tails: HashMap<TopicNumber, Sequence>,
    pub(super) heads: KeyMap<AggregateHead>,
    pub(super) keys: KeyMap<IdempotencyRow>,
    pub(in crate::ledger) tables: TableOverlays,
    /// Records that are decided and not passed to the appender yet.
    records: Vec<Record>,
    undo: Vec<UndoStep>,
    /// Bodies are split off one buffer, so that an event needs no allocation of its own.
    buffer: BytesMut,
    stamp: TimestampText,
}

/// A point that a decision can be undone to; see `Overlay::undo`.
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

impl Overlay {
    /// The time of the last record decided, in milliseconds.
    pub(super) const fn time(&self) -> i64 {
        self.time
    }

    /// Forgets how to undo what was decided so far: the next decision begins.
    pub(super) fn commit(&mut self) {
        self.undo.clear();
    }

    /// The current point, for [`Overlay::undo`].
    pub(super) fn mark(&self) -> UndoMark {
        UndoMark { undo: self.undo.len(), records: self.records.len(), position: self.position }
    }

    /// Undoes everything since `mark`.
    pub(super) fn undo(&mut self, mark: UndoMark) {
        for step in self.undo.drain(mark.undo..).rev() {
            match step {
                UndoStep::Tail(topic, before) => restore(&mut self.tails, topic, before),
                UndoStep::Head(key, before) => restore(&mut self.heads, key, before),
                UndoStep::Key(key, before) => restore(&mut self.keys, key, before),
                UndoStep::Registry(before) => self.registry = before,
            }
        }
        self.tables.undo(mark.position);
        self.records.truncate(mark.records);
        self.position = mark.position;
    }

    /// Makes a record visible to the decisions that follow.
    pub(super) fn add(&mut self, record: &Record) {
        let RecordHeader { position, topic, sequence, time, facets, .. } = record.header;
        debug_assert!(
            self.position == Position::ZERO || position == self.position.next(),
            "position {position} was decided behind {}",
            self.position
        );
        debug_assert!(
            self.tails.get(&topic).is_none_or(|tail| sequence == tail.next()),
            "sequence {sequence} of topic {topic:?} was decided behind {:?}",
            self.tails.get(&topic)
        );
        self.position = position;
        self.time = time;
        self.undo.push(UndoStep::Tail(topic, self.tails.insert(topic, sequence)));
        if let Some(aggregate) = facets.and_then(|facets| facets.aggregate) {
            let head = AggregateHead { aggregate_sequence: aggregate.sequence, sequence };
            self.undo.push(UndoStep::Head(aggregate.key, self.heads.insert(aggregate.key, head)));
        }
        if let Some(mark) = facets.and_then(|facets| facets.idempotency) {
            let remembered = IdempotencyRow { position, time, digest: mark.digest };
            self.undo.push(UndoStep::Key(mark.key, self.keys.insert(mark.key, remembered)));
        }
        self.records.push(record.clone());
    }

    /// Makes a registry visible to the decisions that follow.
    pub(super) fn replace_registry(&mut self, registry: Registry) {
        let before = self.registry.replace(Arc::new(registry));
        self.undo.push(UndoStep::Registry(before));
    }

    /// How many records are decided and not passed to the appender yet.
    #[must_use]
    pub const fn records(&self) -> usize {
        self.records.len()
    }

    /// The last position decided; 0 while the overlay is empty.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.position
    }

    /// Takes the records decided since the last call.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// Drops a record from the overlay: it is applied to the state now.
    pub fn remove_durable(&mut self, record: &Record) {
        self.forget(&record.header);
        debug_assert!(
            record.header.position < self.position || self.is_settled(),
            "every record through {} is durable, and something is still pending",
            self.position
        );
    }

    fn forget(&mut self, header: &RecordHeader) {
        let RecordHeader { position, topic, sequence, facets, .. } = *header;
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

    /// Whether nothing is pending.
    fn is_settled(&self) -> bool {
        let Self { registry, tails, heads, keys, tables, .. } = self;
        registry.is_none() && tails.is_empty() && heads.is_empty() && keys.is_empty() && tables.is_empty()
    }

    /// Drops everything that is not durable.
    pub fn clear(&mut self) {
        *self = Self { buffer: std::mem::take(&mut self.buffer), ..Self::default() };
    }

    /// The event's JSON with the members that are assigned at commit.
    pub(super) fn assigned_text(&mut self, draft: &EventDraft, header: &RecordHeader) -> Bytes {
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

/// The last time formatted, and its text: the events of a batch mostly share it.
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
