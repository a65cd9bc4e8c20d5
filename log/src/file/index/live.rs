//! The index of a segment while it grows, or after it was scanned: vectors and maps in RAM.
//!
//! - Positions ascend; so do each topic's sequences. Who pushes checks that.
//! - Records are numbered from 0 in the order of their frames; the maps hold these numbers.

use super::run::Run;
use super::{Order, Place, Plan, Summary, TopicSummary};
use crate::{Header, Limit, Range, TopicNumber};
use contract::{Position, Sequence};
use std::collections::HashMap;

/// An index in RAM, growing.
#[derive(Debug)]
pub(crate) struct LiveIndex {
    base: Position,
    /// Where the next frame will begin.
    bytes: u64,
    first_time: i64,
    last_time: i64,
    records: Vec<Entry>,
    topics: HashMap<TopicNumber, LiveTopic>,
    /// The first record of each id; ids are rarely stored twice.
    ids: HashMap<u128, u32>,
    repeated_ids: Vec<(u128, u32)>,
    aggregates: HashMap<u128, Run>,
}

#[derive(Debug)]
struct Entry {
    /// Position behind the base.
    delta: u32,
    offset: u32,
}

#[derive(Debug)]
struct LiveTopic {
    summary: TopicSummary,
    /// Sequence behind the first, and record.
    entries: Vec<(u32, u32)>,
}

impl LiveIndex {
    /// An empty index of a segment whose first frame will stand at `start`.
    pub(crate) fn new(base: Position, start: u64) -> Self {
        Self {
            base,
            bytes: start,
            first_time: 0,
            last_time: 0,
            records: Vec::new(),
            topics: HashMap::new(),
            ids: HashMap::new(),
            repeated_ids: Vec::new(),
            aggregates: HashMap::new(),
        }
    }

    /// The same with as much room as `other` took: growing a map of a hundred thousand ids takes milliseconds, and
    /// appends would wait for it.
    pub(crate) fn with_room_of(mut self, other: &Self) -> Self {
        self.records.reserve(other.records.len());
        self.ids.reserve(other.ids.len());
        self.aggregates.reserve(other.aggregates.len());
        self
    }

    /// Adds the record whose frame of `frame_bytes` stands behind the last one.
    pub(crate) fn push(&mut self, header: &Header, frame_bytes: usize) {
        let record = self.records.len() as u32;
        if record == 0 {
            self.first_time = header.time;
        }
        self.last_time = header.time;
        let delta = header.position.get().saturating_sub(self.base.get()) as u32;
        self.records.push(Entry { delta, offset: self.bytes as u32 });
        self.bytes += frame_bytes as u64;
        self.topics.entry(header.topic).or_insert_with(|| LiveTopic::new(header)).push(header, record, frame_bytes);
        if header.id != 0 && *self.ids.entry(header.id).or_insert(record) != record {
            self.repeated_ids.push((header.id, record));
        }
        if let Some(mark) = header.facets.as_ref().and_then(|facets| facets.aggregate.as_ref()) {
            let entry = (mark.sequence.get(), record);
            self.aggregates.entry(mark.key).and_modify(|run| run.push(entry)).or_insert(Run::One(entry));
        }
    }

    /// Where the next frame begins.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Records in it.
    pub(crate) fn count(&self) -> usize {
        self.records.len()
    }

    /// The last position in it.
    pub(crate) fn last(&self) -> Option<Position> {
        self.records.last().map(|entry| self.position(entry))
    }

    /// The last record's time.
    pub(crate) fn last_time(&self) -> Option<i64> {
        (!self.records.is_empty()).then_some(self.last_time)
    }

    /// A topic's part of it.
    pub(crate) fn topic(&self, topic: TopicNumber) -> Option<&TopicSummary> {
        self.topics.get(&topic).map(|live| &live.summary)
    }

    /// All of it in a few numbers; `None` while it is empty.
    pub(crate) fn summary(&self) -> Option<Summary> {
        let first = self.records.first()?;
        let mut topics: Vec<_> = self.topics.values().map(|topic| topic.summary).collect();
        topics.sort_unstable_by_key(|topic| topic.topic);
        Some(Summary {
            first: self.position(first),
            last: self.last()?,
            first_time: self.first_time,
            last_time: self.last_time,
            count: self.records.len() as u32,
            bytes: self.bytes,
            topics,
        })
    }

    pub(crate) fn places(&self, range: Range, limit: Limit) -> Vec<Place> {
        let mut plan = Plan::new(limit);
        let wanted = Plan::places_max(limit);
        match range {
            Range::All(after) => {
                let start = self.rank_after(after);
                let entries = self.records.iter().enumerate().skip(start).take(wanted);
                fill(&mut plan, entries.map(|(record, entry)| self.place(record as u32, self.position(entry).get())));
            }
            Range::Topic(topic, after) => {
                let Some(live) = self.topics.get(&topic) else { return Vec::new() };
                let entries = live.entries.iter().skip(live.rank_after(after)).take(wanted);
                fill(&mut plan, entries.map(|(delta, record)| self.place(*record, live.sequence(*delta))));
            }
            Range::Aggregate(key, after) => {
                let run = self.run(key);
                let start = run.partition_point(|(sequence, _)| *sequence <= after.get());
                let entries = run.iter().skip(start).take(wanted);
                fill(&mut plan, entries.map(|(sequence, record)| self.place(*record, *sequence)));
            }
        }
        plan.places
    }

    pub(crate) fn nth(&self, order: Order, rank: u32) -> Option<Place> {
        match order {
            Order::Log => self.place(rank, self.position(self.records.get(rank as usize)?).get()),
            Order::Topic(topic) => {
                let live = self.topics.get(&topic)?;
                let (delta, record) = live.entries.get(rank as usize)?;
                self.place(*record, live.sequence(*delta))
            }
        }
    }

    pub(crate) fn ids(&self, id: u128) -> Vec<u64> {
        let first = self.ids.get(&id).map(|record| (id, *record));
        let repeated = self.repeated_ids.iter().copied().filter(|(repeated, _)| *repeated == id);
        first.into_iter().chain(repeated).filter_map(|(_, record)| self.offset(record)).collect()
    }

    /// The first position of an id.
    pub(crate) fn first_of_id(&self, id: u128) -> Option<Position> {
        self.records.get(*self.ids.get(&id)? as usize).map(|entry| self.position(entry))
    }

    /// The last position of an aggregate.
    pub(crate) fn last_of_aggregate(&self, key: u128) -> Option<Position> {
        let (_, record) = self.run(key).last()?;
        self.records.get(*record as usize).map(|entry| self.position(entry))
    }

    pub(crate) fn holds_id(&self, id: u128) -> bool {
        self.ids.contains_key(&id)
    }

    pub(crate) fn aggregate(&self, key: u128, most: usize) -> Vec<u64> {
        self.run(key).iter().rev().take(most).filter_map(|(_, record)| self.offset(*record)).collect()
    }

    pub(crate) fn holds_aggregate(&self, key: u128) -> bool {
        self.aggregates.contains_key(&key)
    }

    /// Position and offset of every record.
    pub(super) fn records(&self) -> impl Iterator<Item = (u32, u32)> {
        self.records.iter().map(|entry| (entry.delta, entry.offset))
    }

    /// Sequence delta and place of a topic's records.
    pub(super) fn topic_entries(&self, topic: TopicNumber) -> impl Iterator<Item = (u32, Place)> {
        let entries = self.topics.get(&topic).map(|live| live.entries.as_slice()).unwrap_or_default();
        entries.iter().filter_map(|(delta, record)| Some((*delta, self.place(*record, 0)?)))
    }

    /// Every id and its offset, sorted.
    pub(super) fn sorted_ids(&self) -> Vec<(u128, u32)> {
        let all = self.ids.iter().map(|(id, record)| (*id, *record)).chain(self.repeated_ids.iter().copied());
        let mut ids: Vec<_> = all.filter_map(|(id, record)| Some((id, self.offset(record)? as u32))).collect();
        ids.sort_unstable();
        ids
    }

    /// Every aggregate's key and place, sorted by key and aggregate sequence.
    pub(super) fn sorted_aggregates(&self) -> Vec<(u128, Place)> {
        let all = self.aggregates.iter().flat_map(|(key, run)| run.entries().iter().map(|entry| (*key, *entry)));
        let mut entries: Vec<_> =
            all.filter_map(|(key, (sequence, record))| Some((key, self.place(record, sequence)?))).collect();
        entries.sort_unstable_by_key(|(key, place)| (*key, place.number, place.offset));
        entries
    }

    /// How many different aggregates it holds.
    pub(super) fn aggregate_count(&self) -> usize {
        self.aggregates.len()
    }

    /// The different aggregates it holds.
    pub(super) fn aggregate_keys(&self) -> impl Iterator<Item = u128> {
        self.aggregates.keys().copied()
    }

    fn run(&self, key: u128) -> &[(u64, u32)] {
        self.aggregates.get(&key).map(Run::entries).unwrap_or_default()
    }

    fn position(&self, entry: &Entry) -> Position {
        Position(self.base.get() + u64::from(entry.delta))
    }

    fn offset(&self, record: u32) -> Option<u64> {
        self.records.get(record as usize).map(|entry| u64::from(entry.offset))
    }

    fn place(&self, record: u32, number: u64) -> Option<Place> {
        let offset = self.offset(record)?;
        let end = self.offset(record + 1).unwrap_or(self.bytes);
        Some(Place { offset, bytes: (end - offset) as usize, number })
    }

    /// How many records are at or before `after`.
    fn rank_after(&self, after: Position) -> usize {
        let Some(delta) = after.get().saturating_add(1).checked_sub(self.base.get()) else { return 0 };
        let dense = self.records.last().is_none_or(|last| last.delta as usize + 1 == self.records.len());
        if dense {
            return delta.min(self.records.len() as u64) as usize;
        }
        self.records.partition_point(|entry| u64::from(entry.delta) < delta)
    }
}

impl LiveTopic {
    fn new(header: &Header) -> Self {
        let summary = TopicSummary {
            topic: header.topic,
            count: 0,
            first: header.sequence,
            last: header.sequence,
            first_time: header.time,
            last_time: header.time,
            bytes: 0,
        };
        Self { summary, entries: Vec::new() }
    }

    fn push(&mut self, header: &Header, record: u32, frame_bytes: usize) {
        self.summary.count += 1;
        self.summary.last = header.sequence;
        self.summary.last_time = header.time;
        self.summary.bytes += frame_bytes as u64;
        let delta = header.sequence.get().saturating_sub(self.summary.first.get());
        self.entries.push((delta as u32, record));
    }

    fn sequence(&self, delta: u32) -> u64 {
        self.summary.first.get() + u64::from(delta)
    }

    fn rank_after(&self, after: Sequence) -> usize {
        self.entries.partition_point(|(delta, _)| self.sequence(*delta) <= after.get())
    }
}

fn fill(plan: &mut Plan, mut places: impl Iterator<Item = Option<Place>>) {
    while let Some(Some(place)) = places.next()
        && plan.take(place)
    {}
}
