//! A record: a small fixed header that the engine indexes, and a body that it only stores.

use bytes::Bytes;
use contract::{AggregateSequence, Position, Sequence};

/// A topic's number in its log; the names are the ledger's. 0 is the ledger's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicNumber(pub u32);

impl TopicNumber {
    /// The broker's own entries.
    pub const LEDGER: Self = Self(0);
}

/// One record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What the engine indexes.
    pub header: RecordHeader,
    /// The bytes that are served: an event's JSON, or an entry.
    pub body: Bytes,
}

/// The part of a record that an engine indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// Its number in the log.
    pub position: Position,
    /// Its topic.
    pub topic: TopicNumber,
    /// Its number in the topic.
    pub sequence: Sequence,
    /// When it was stored, in milliseconds since 1970 began; it never decreases along the log.
    pub time: i64,
    /// The event's id, or 0 for an entry.
    pub id: u128,
    /// What filters and the fold need of an event without reading its body; absent for an entry.
    pub facets: Option<EventFacets>,
}

/// What filters and the fold need of an event without reading its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventFacets {
    /// Fingerprint of the event type.
    pub type_tag: u64,
    /// Fingerprint of the subject type; 0 where there is none.
    pub subject_type_tag: u64,
    /// The tenant; 0 where there is none.
    pub tenant: u128,
    /// The aggregate it belongs to; absent for an event without a subject.
    pub aggregate: Option<AggregateMark>,
    /// The idempotency key; absent if the event is not deduplicated.
    pub idempotency: Option<IdempotencyMark>,
}

/// A record's number in its aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AggregateMark {
    /// Fingerprint of (topic, subject type, subject).
    pub key: u128,
    /// Its number there.
    pub sequence: AggregateSequence,
}

/// A record's idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdempotencyMark {
    /// Fingerprint of the key.
    pub key: u128,
    /// Fingerprint of `data`, to distinguish a repeated event from a reused key.
    pub digest: u64,
}
