//! Questions about stored events, and their answers.

use crate::{
    AggregateSequence, GtsPattern, Offset, Position, Sequence, StoredEvent, SubjectTypeId, Timestamp, TopicId,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Which events a reader wants. Values of one member widen, different members narrow; empty takes all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Filter {
    /// Event types.
    pub types: Vec<GtsPattern>,
    /// Subject types.
    pub subject_types: Vec<GtsPattern>,
    /// Subjects, exactly.
    pub subjects: Vec<String>,
    /// Tenants.
    pub tenants: Vec<Uuid>,
    /// Sources, exactly.
    pub sources: Vec<String>,
    /// Correlation ids, exactly.
    pub correlation_ids: Vec<String>,
    /// Labels: key and value; several values of one key widen.
    pub context: Vec<(String, String)>,
    /// `occurredAt` at or after this.
    pub occurred_from: Option<Timestamp>,
    /// `occurredAt` before this.
    pub occurred_to: Option<Timestamp>,
    /// A CEL expression over the event's members.
    pub cel: Option<String>,
}

/// Read a topic in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The topic.
    pub topic: TopicId,
    /// What the reader has seen; the answer starts behind it.
    pub offset: Offset,
    /// Most events in the answer.
    pub limit: usize,
    /// Which events.
    pub filter: Filter,
}

impl Read {
    /// Everything of a topic from its beginning.
    #[must_use]
    pub fn all(topic: TopicId) -> Self {
        Self { topic, offset: Offset::ZERO, limit: crate::limits::READ_EVENTS_MAX, filter: Filter::default() }
    }

    /// The same read behind another offset.
    #[must_use]
    pub fn after(mut self, offset: impl Into<Offset>) -> Self {
        self.offset = offset.into();
        self
    }
}

/// Events of one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPage {
    /// The events, in topic order.
    pub items: Vec<StoredEvent>,
    /// How far the read came, matching or not: continue here.
    pub next_offset: Offset,
    /// The topic's last sequence.
    pub tail: Offset,
}

/// Read the whole log in global order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRead {
    /// Last position seen.
    pub after: Position,
    /// Most events in the answer.
    pub limit: usize,
    /// Which events.
    pub filter: Filter,
}

/// Events of all topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPage {
    /// The events, in global order.
    pub items: Vec<StoredEvent>,
    /// How far the read came: continue here.
    pub next_position: Position,
    /// The log's last position.
    pub tail: Position,
}

/// Read one aggregate in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregateRead {
    /// The topic: aggregates count per topic.
    pub topic: TopicId,
    /// What kind of thing.
    pub subject_type: SubjectTypeId,
    /// Which one.
    pub subject: String,
    /// Last aggregateSequence seen.
    pub after: AggregateSequence,
    /// Most events in the answer.
    pub limit: usize,
}

/// Events of one aggregate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregateEvents {
    /// The events, in aggregate order.
    pub items: Vec<StoredEvent>,
    /// How far the read came: continue here.
    pub next_after: AggregateSequence,
    /// The aggregate's last number.
    pub aggregate_sequence: AggregateSequence,
}

/// Where an aggregate stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregate {
    /// Its last number.
    pub aggregate_sequence: AggregateSequence,
    /// That event's number in the topic.
    pub sequence: Sequence,
    /// That event; absent once retention has removed it.
    pub last_event: Option<StoredEvent>,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Where the next page begins; absent on the last one.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// The first `limit` rows; the last one's `cursor` is where the next page begins, if there is more.
    pub fn of(rows: impl Iterator<Item = T>, limit: usize, cursor: impl Fn(&T) -> String) -> Self {
        let mut items: Vec<_> = rows.take(limit.saturating_add(1)).collect();
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(cursor);
        Self { items, next }
    }
}

/// A run of a topic's records in one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Segment {
    /// Where it lies.
    pub location: String,
    /// First sequence of the topic in it.
    pub start_sequence: Sequence,
    /// When that was stored.
    pub start_time: Timestamp,
    /// Last sequence of the topic in it.
    pub end_sequence: Sequence,
    /// When that was stored.
    pub end_time: Timestamp,
    /// How many of the topic's events it holds.
    pub amount: u64,
    /// When it was begun.
    pub created_at: Timestamp,
}

/// A topic's segments, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Segments {
    /// The topic.
    pub topic: TopicId,
    /// The segments.
    pub segments: Vec<Segment>,
}
