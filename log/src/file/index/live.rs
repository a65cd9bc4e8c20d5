//! The index of a segment while it grows, or after it was scanned: vectors and maps in RAM.
//!
//! - Positions ascend; so do each topic's sequences. The caller checks that.
//! - Records are numbered from 0 in the order of their frames; the maps hold these numbers.

use super::aggregate_run::AggregateRun;
use super::key_numbers::KeyNumbers;
use super::{FrameLocation, ReadPlan, RecordOrder, SegmentSummary, TopicSummary};
use crate::{ReadLimit, ReadRange, RecordHeader, TopicNumber};
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
    records: Vec<LiveRecord>,
    topics: HashMap<TopicNumber, LiveTopic>,
    ids: KeyNumbers,
    /// The first record of each id, by its number; ids are rarely stored twice.
    id_records: Vec<u32>,
    repeated_ids: Vec<(u128, u32)>,
    aggregates: KeyNumbers,
    /// The records of each aggregate, by its number.
    runs: Vec<AggregateRun>,
}

#[derive(Debug)]
struct LiveRecord {
    /// Position after the base.
    delta: u32,
    offset: u32,
}

#[derive(Debug)]
struct LiveTopic {
    summary: TopicSummary,
    /// Sequence after the first, and record.
    entries: Vec<(u32, u32)>,
}

impl LiveIndex {
    /// An empty index of a segment whose first frame will be at `start`.
    pub(crate) fn new(base: Position, start: u64) -> Self {
        Self {
            base,
            bytes: start,
            first_time: 0,
            last_time: 0,
            records: Vec::new(),
            topics: HashMap::new(),
            ids: KeyNumbers::default(),
            id_records: Vec::new(),
            repeated_ids: Vec::new(),
            aggregates: KeyNumbers::default(),
            runs: Vec::new(),
        }
    }

    /// The same with the capacity of `other`: growing a map of a hundred thousand ids takes milliseconds, and appends would wait
    /// for it.
    pub(crate) fn with_room_of(mut self, other: &Self) -> Self {
        self.records.reserve(other.records.len());
        self.ids.reserve(other.ids.len());
        self.id_records.reserve(other.id_records.len());
        self.aggregates.reserve(other.aggregates.len());
        self.runs.reserve(other.runs.len());
        self
    }

    /// Adds the record whose frame of `frame_bytes` follows the last one.
    pub(crate) fn push(&mut self, header: &RecordHeader, frame_bytes: usize) {
        let record = self.records.len() as u32;
        if record == 0 {
            self.first_time = header.time;
        }
        self.last_time = header.time;
        let delta = header.position.get().saturating_sub(self.base.get()) as u32;
        self.records.push(LiveRecord { delta, offset: self.bytes as u32 });
        self.bytes += frame_bytes as u64;
        self.topics.entry(header.topic).or_insert_with(|| LiveTopic::new(header)).push(header, record, frame_bytes);
        if header.id != 0 {
            match self.ids.insert(header.id) {
                None => self.id_records.push(record),
                Some(_) => self.repeated_ids.push((header.id, record)),
            }
        }
        if let Some(mark) = header.facets.as_ref().and_then(|facets| facets.aggregate.as_ref()) {
            let entry = (mark.sequence.get(), record);
            match self.aggregates.insert(mark.key) {
                None => self.runs.push(AggregateRun::One(entry)),
                Some(number) => self.runs.get_mut(number as usize).into_iter().for_each(|run| run.push(entry)),
            }
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

    /// Its summary; `None` while it is empty.
    pub(crate) fn summary(&self) -> Option<SegmentSummary> {
        let first = self.records.first()?;
        let mut topics: Vec<_> = self.topics.values().map(|topic| topic.summary).collect();
        topics.sort_unstable_by_key(|topic| topic.topic);
        Some(SegmentSummary {
            first: self.position(first),
            last: self.last()?,
            first_time: self.first_time,
            last_time: self.last_time,
            count: self.records.len() as u32,
            bytes: self.bytes,
            topics,
        })
    }

    pub(crate) fn places(&self, range: ReadRange, limit: ReadLimit) -> Vec<FrameLocation> {
        let mut plan = ReadPlan::new(limit);
        let wanted = ReadPlan::places_max(limit);
        match range {
            ReadRange::All(after) => {
                let start = self.rank_after(after);
                let entries = self.records.iter().enumerate().skip(start).take(wanted);
                fill(&mut plan, entries.map(|(record, entry)| self.place(record as u32, self.position(entry).get())));
            }
            ReadRange::Topic(topic, after) => {
                let Some(live) = self.topics.get(&topic) else { return Vec::new() };
                let entries = live.entries.iter().skip(live.rank_after(after)).take(wanted);
                fill(&mut plan, entries.map(|(delta, record)| self.place(*record, live.sequence(*delta))));
            }
            ReadRange::Aggregate(key, after) => {
                let run = self.run(key);
                let start = run.partition_point(|(sequence, _)| *sequence <= after.get());
                let entries = run.iter().skip(start).take(wanted);
                fill(&mut plan, entries.map(|(sequence, record)| self.place(*record, *sequence)));
            }
        }
        plan.places
    }

    pub(crate) fn nth(&self, order: RecordOrder, rank: u32) -> Option<FrameLocation> {
        match order {
            RecordOrder::Log => self.place(rank, self.position(self.records.get(rank as usize)?).get()),
            RecordOrder::Topic(topic) => {
                let live = self.topics.get(&topic)?;
                let (delta, record) = live.entries.get(rank as usize)?;
                self.place(*record, live.sequence(*delta))
            }
        }
    }

    pub(crate) fn ids(&self, id: u128) -> Vec<u64> {
        let first = self.id_record(id).map(|record| (id, record));
        let repeated = self.repeated_ids.iter().copied().filter(|(repeated, _)| *repeated == id);
        first.into_iter().chain(repeated).filter_map(|(_, record)| self.offset(record)).collect()
    }

    /// The first position of an id.
    pub(crate) fn first_of_id(&self, id: u128) -> Option<Position> {
        self.records.get(self.id_record(id)? as usize).map(|entry| self.position(entry))
    }

    /// The last position of an aggregate.
    pub(crate) fn last_of_aggregate(&self, key: u128) -> Option<Position> {
        let (_, record) = self.run(key).last()?;
        self.records.get(*record as usize).map(|entry| self.position(entry))
    }

    pub(crate) fn holds_id(&self, id: u128) -> bool {
        self.ids.find(id).is_some()
    }

    pub(crate) fn aggregate(&self, key: u128, most: usize) -> Vec<u64> {
        self.run(key).iter().rev().take(most).filter_map(|(_, record)| self.offset(*record)).collect()
    }

    pub(crate) fn holds_aggregate(&self, key: u128) -> bool {
        self.aggregates.find(key).is_some()
    }

    /// Position and offset of every record.
    pub(super) fn records(&self) -> impl Iterator<Item = (u32, u32)> {
        self.records.iter().map(|entry| (entry.delta, entry.offset))
    }

    /// Sequence delta and place of a topic's records.
    pub(super) fn topic_entries(&self, topic: TopicNumber) -> impl Iterator<Item = (u32, FrameLocation)> {
        let entries = self.topics.get(&topic).map(|live| live.entries.as_slice()).unwrap_or_default();
        entries.iter().filter_map(|(delta, record)| Some((*delta, self.place(*record, 0)?)))
    }

    /// Every id and its offsets, sorted.
    pub(super) fn sorted_ids(&self) -> impl Iterator<Item = (u128, u32)> {
        let mut repeated = self.repeated_ids.clone();
        repeated.sort_unstable();
        let records = move |(number, id): (u32, u128)| {
            let again = repeated.partition_point(|(other, _)| *other < id);
            let again = repeated.iter().skip(again).take_while(|(other, _)| *other == id).map(|(_, record)| *record);
            let again: Vec<_> = again.collect();
            self.id_records.get(number as usize).copied().into_iter().chain(again).map(move |record| (id, record))
        };
        let offset = |(id, record)| Some((id, self.offset(record)? as u32));
        self.ids.sorted().flat_map(records).filter_map(offset)
    }

    /// How many records have ids; an id that is stored twice counts twice.
    pub(super) fn id_count(&self) -> usize {
        self.ids.len() + self.repeated_ids.len()
    }

    /// The different ids it holds.
    pub(super) fn id_keys(&self) -> impl ExactSizeIterator<Item = u128> {
        self.ids.keys()
    }

    /// Every aggregate's key and places, sorted by key and aggregate sequence.
    pub(super) fn sorted_aggregates(&self) -> impl Iterator<Item = (u128, FrameLocation)> {
        let entries = move |(number, key): (u32, u128)| {
            let run = self.runs.get(number as usize).map(AggregateRun::entries).unwrap_or_default();
            run.iter().filter_map(move |(sequence, record)| Some((key, self.place(*record, *sequence)?)))
        };
        self.aggregates.sorted().flat_map(entries)
    }

    /// How many records of aggregates there are.
    pub(super) fn aggregate_entries(&self) -> usize {
        self.runs.iter().map(|run| run.entries().len()).sum()
    }

    /// The different aggregates it holds.
    pub(super) fn aggregate_keys(&self) -> impl ExactSizeIterator<Item = u128> {
        self.aggregates.keys()
    }

    fn run(&self, key: u128) -> &[(u64, u32)] {
        let run = self.aggregates.find(key).and_then(|number| self.runs.get(number as usize));
        run.map(AggregateRun::entries).unwrap_or_default()
    }

    /// The first record of an id.
    fn id_record(&self, id: u128) -> Option<u32> {
        self.id_records.get(self.ids.find(id)? as usize).copied()
    }

    fn position(&self, entry: &LiveRecord) -> Position {
        Position(self.base.get() + u64::from(entry.delta))
    }

    fn offset(&self, record: u32) -> Option<u64> {
        self.records.get(record as usize).map(|entry| u64::from(entry.offset))
    }

    fn place(&self, record: u32, number: u64) -> Option<FrameLocation> {
        let offset = self.offset(record)?;
        let end = self.offset(record + 1).unwrap_or(self.bytes);
        Some(FrameLocation { offset, bytes: (end - offset) as usize, number })
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
    fn new(header: &RecordHeader) -> Self {
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

    fn push(&mut self, header: &RecordHeader, record: u32, frame_bytes: usize) {
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

fn fill(plan: &mut ReadPlan, mut places: impl Iterator<Item = Option<FrameLocation>>) {
    while let Some(Some(place)) = places.next()
        && plan.take(place)
    {}
}
