//! Records for tests: numbered by hand, or by [`RecordNumbering`], which keeps all three numberings dense.

use crate::{AggregateMark, EventFacets, IdempotencyMark, Record, RecordHeader, TopicNumber};
use bytes::Bytes;
use contract::{AggregateSequence, Position, Sequence};
use std::collections::BTreeMap;

/// The time of position 0 in tests; each position is a millisecond later by default.
const EPOCH: i64 = 1_764_763_200_000;

/// An entry with these numbers, a time that increases with its position, and a body with its numbers.
#[must_use]
pub fn record(position: u64, topic: u32, sequence: u64) -> Record {
    let header = RecordHeader {
        position: Position(position),
        topic: TopicNumber(topic),
        sequence: Sequence(sequence),
        time: EPOCH.saturating_add_unsigned(position),
        id: 0,
        facets: None,
    };
    Record { header, body: Bytes::from(format!("{topic}/{sequence} at {position}")) }
}

/// Changes to a record, one after the other: `record(1, 7, 1).id(42).aggregate(9, 1).body("{}")`.
pub trait RecordSetters: Sized {
    /// Stored at this time.
    #[must_use]
    fn time(self, time: i64) -> Self;
    /// With this id.
    #[must_use]
    fn id(self, id: u128) -> Self;
    /// With this body.
    #[must_use]
    fn body(self, body: impl Into<Bytes>) -> Self;
    /// With these facets, or none.
    #[must_use]
    fn facets(self, facets: Option<EventFacets>) -> Self;
    /// With the facets it has (all empty where it has none), changed.
    #[must_use]
    fn facet(self, change: impl FnOnce(&mut EventFacets)) -> Self;
    /// In this aggregate, under this number.
    #[must_use]
    fn aggregate(self, key: u128, sequence: u64) -> Self {
        let mark = AggregateMark { key, sequence: AggregateSequence(sequence) };
        self.facet(|facets| facets.aggregate = Some(mark))
    }
    /// With this idempotency key and digest.
    #[must_use]
    fn idempotency(self, key: u128, digest: u64) -> Self {
        self.facet(|facets| facets.idempotency = Some(IdempotencyMark { key, digest }))
    }
}

impl RecordSetters for Record {
    fn time(mut self, time: i64) -> Self {
        self.header.time = time;
        self
    }

    fn id(mut self, id: u128) -> Self {
        self.header.id = id;
        self
    }

    fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    fn facets(mut self, facets: Option<EventFacets>) -> Self {
        self.header.facets = facets;
        self
    }

    fn facet(mut self, change: impl FnOnce(&mut EventFacets)) -> Self {
        let none = EventFacets { type_tag: 0, subject_type_tag: 0, tenant: 0, aggregate: None, idempotency: None };
        change(self.header.facets.get_or_insert(none));
        self
    }
}

/// The three numberings of a log, as its caller keeps them. Clone it to number a batch that will be refused.
#[derive(Debug, Clone, Default)]
pub struct RecordNumbering {
    tail: Position,
    sequences: BTreeMap<TopicNumber, Sequence>,
    aggregates: BTreeMap<u128, AggregateSequence>,
}

impl RecordNumbering {
    /// The numbers after `records`, which must be all there ever were.
    #[must_use]
    pub fn behind(records: &[Record]) -> Self {
        let mut numbering = Self::default();
        for record in records {
            let _ = numbering.number(record.clone());
        }
        numbering
    }

    /// The last position given: what the next batch is appended after.
    #[must_use]
    pub fn tail(&self) -> Position {
        self.tail
    }

    /// The last sequence given in `topic`.
    #[must_use]
    pub fn sequence(&self, topic: u32) -> Sequence {
        self.sequences.get(&TopicNumber(topic)).copied().unwrap_or_default()
    }

    /// The last number given in the aggregate `key`.
    #[must_use]
    pub fn aggregate_sequence(&self, key: u128) -> AggregateSequence {
        self.aggregates.get(&key).copied().unwrap_or_default()
    }

    /// The next entry of `topic`.
    pub fn entry(&mut self, topic: u32) -> Record {
        self.number(record(self.tail.next().get(), topic, 0)).body(format!("entry of {topic}"))
    }

    /// The next event of `topic`, about the aggregate `key`; its position is its id.
    pub fn event(&mut self, topic: u32, key: u128) -> Record {
        let position = self.tail.next().get();
        self.number(record(position, topic, 0).id(u128::from(position)).aggregate(key, 0))
    }

    /// One entry for each of `topics`.
    pub fn entries(&mut self, topics: &[u32]) -> Vec<Record> {
        topics.iter().map(|topic| self.entry(*topic)).collect()
    }

    /// One event for each topic of `about`, about the aggregate named with it.
    pub fn events(&mut self, about: &[(u32, u128)]) -> Vec<Record> {
        about.iter().map(|(topic, key)| self.event(*topic, *key)).collect()
    }

    /// `record` with the next numbers of its topic, and of its aggregate if it has one. All else stays.
    pub fn number(&mut self, mut record: Record) -> Record {
        self.tail = self.tail.next();
        record.header.position = self.tail;
        record.header.sequence = advance(self.sequences.entry(record.header.topic).or_default(), Sequence::next);
        if let Some(mark) = record.header.facets.as_mut().and_then(|facets| facets.aggregate.as_mut()) {
            mark.sequence = advance(self.aggregates.entry(mark.key).or_default(), AggregateSequence::next);
        }
        record
    }
}

fn advance<N: Copy>(last: &mut N, next: impl Fn(N) -> N) -> N {
    *last = next(*last);
    *last
}

/// The positions of `records`.
#[must_use]
pub fn positions(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.header.position.get()).collect()
}

/// The sequences of `records`.
#[must_use]
pub fn sequences(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.header.sequence.get()).collect()
}

/// Fails unless `records`, a whole log from which nothing was removed, is dense in all three numberings and its times
/// never decrease.
pub fn assert_dense(records: &[Record]) {
    let mut numbering = RecordNumbering::default();
    let mut time = i64::MIN;
    for record in records {
        let numbered = numbering.number(record.clone());
        assert_eq!(
            record.header, numbered.header,
            "the numbers of position {} are not dense",
            numbered.header.position
        );
        assert!(record.header.time >= time, "time falls at position {}", record.header.position);
        time = record.header.time;
    }
}
