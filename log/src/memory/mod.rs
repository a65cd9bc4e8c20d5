//! The memory engine: a log in RAM, for tests and temporary topics.
//!
//! - Durable means until the process ends; everything else is as in the contract of [`Log`].
//! - One lock. A batch is added while it is held once; it is held only for short steps, and never across an await.
//! - Bodies are shared, not copied: appending moves their handles, reading clones them.
//! - A removed record is dropped, with its body and index entries. Only the capacity of tables remains.
//!
//! ```text
//!  topics      7 ─▶ removed 2 │ (3 → p4) (4 → p6) …      sequence → position
//!  aggregates  k ─▶             (1 → p4) (2 → p9) …      aggregate sequence → position
//!  ids         i ─▶             p4                       id → first position
//!                                │
//!  records    [p1 p2 · p4 … p256] [p257 …] …             chunks in order, without holes
//! ```

mod index;
mod records;

use crate::{AggregateMark, Log, LogError, ReadLimit, ReadRange, Record, RecordHeader, RecordQuery, TopicNumber};
use contract::{AggregateSequence, BoxFuture, Position, Segment, Sequence, Timestamp};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use index::{IdIndex, NumberIndex};
use records::RecordChunks;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch;

/// Records removed while the lock is held once; between these steps of a long removal readers and writers run.
const REMOVAL_STEP_RECORDS: usize = 1024;

/// A log in memory.
#[derive(Default)]
pub struct MemoryLog {
    state: RwLock<MemoryState>,
    tail: watch::Sender<Position>,
    shared: bool,
}

impl MemoryLog {
    /// An empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty log that several brokers of this process may open.
    #[must_use]
    pub fn shared() -> Self {
        Self { shared: true, ..Self::default() }
    }

    /// An empty log in which these sequences, and all before them, were assigned once and are gone: a topic that lost its
    /// events continues after them, and a read from before them is [`LogError::Trimmed`].
    #[must_use]
    pub fn behind(removed: impl IntoIterator<Item = (TopicNumber, Sequence)>) -> Self {
        let log = Self::new();
        let topics =
            removed.into_iter().map(|(topic, removed)| (topic, TopicRecords { removed, ..TopicRecords::default() }));
        log.state_mut().topics = topics.collect();
        log
    }

    /// A state is never left half changed, so a panic elsewhere leaves it valid.
    fn state(&self) -> RwLockReadGuard<'_, MemoryState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, MemoryState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the tail after its records can be read. Outside the lock, because a reader may hold the watch while it waits for
    /// the lock; so a later append may be first, and the tail must not decrease.
    fn show(&self, tail: Position) {
        self.tail.send_if_modified(|shown| {
            let later = tail > *shown;
            *shown = tail.max(*shown);
            later
        });
    }
}

impl Log for MemoryLog {
    fn append(&self, after: Position, batch: Vec<Record>) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            let tail = self.state_mut().append(after, batch)?;
            self.show(tail);
            Ok(())
        })
    }

    fn read(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<Record>, LogError>> {
        Box::pin(async move { self.state().read(range, limit) })
    }

    fn tail(&self) -> watch::Receiver<Position> {
        self.tail.subscribe()
    }

    fn find(&self, what: RecordQuery) -> BoxFuture<'_, Result<Option<RecordHeader>, LogError>> {
        Box::pin(async move { Ok(self.state().find(what).map(|record| record.header)) })
    }

    fn segments(&self, topic: TopicNumber) -> BoxFuture<'_, Result<Vec<Segment>, LogError>> {
        Box::pin(async move { Ok(self.state().segment(topic).into_iter().collect()) })
    }

    fn remove(&self, topic: TopicNumber, through: Sequence) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            // Records that are appended between two steps are not removed.
            let through = self.state().last(topic).min(through);
            loop {
                let removed = self.state_mut().remove_step(topic, through);
                if removed.is_empty() {
                    return Ok(());
                }
                drop(removed);
                tokio::task::yield_now().await;
            }
        })
    }

    fn is_shared(&self) -> bool {
        self.shared
    }

    fn blocks(&self) -> bool {
        false
    }
}

/// Everything behind the lock.
struct MemoryState {
    /// The last position assigned; it stays when its record is removed.
    tail: Position,
    /// The time of that record.
    time: i64,
    /// The time of the first record ever appended.
    begun: Option<i64>,
    records: RecordChunks,
    topics: HashMap<TopicNumber, TopicRecords>,
    aggregates: HashMap<u128, NumberIndex<AggregateSequence>>,
    ids: IdIndex,
}

impl Default for MemoryState {
    fn default() -> Self {
        Self {
            tail: Position::ZERO,
            time: i64::MIN,
            begun: None,
            records: RecordChunks::default(),
            topics: HashMap::new(),
            aggregates: HashMap::new(),
            ids: IdIndex::default(),
        }
    }
}

impl MemoryState {
    fn append(&mut self, after: Position, batch: Vec<Record>) -> Result<Position, LogError> {
        if after != self.tail {
            return Err(LogError::TailMoved(self.tail));
        }
        self.check(&batch)?;
        for record in batch {
            self.put(record);
        }
        Ok(self.tail)
    }

    fn check(&self, batch: &[Record]) -> Result<(), LogError> {
        let (mut tail, mut time) = (self.tail, self.time);
        for Record { header, .. } in batch {
            if header.position != tail.next() {
                return Err(LogError::Misnumbered("positions must be dense from the tail"));
            }
            if header.time < time {
                return Err(LogError::Misnumbered("times must not fall"));
            }
            (tail, time) = (header.position, header.time);
        }
        Ok(())
    }

    fn put(&mut self, record: Record) {
        let RecordHeader { position, topic, sequence, time, id, .. } = record.header;
        self.topics.entry(topic).or_default().index.push(sequence, position);
        if let Some(mark) = aggregate_of(&record) {
            self.aggregates.entry(mark.key).or_default().push(mark.sequence, position);
        }
        self.ids.put(id, position);
        self.records.push(record);
        self.begun.get_or_insert(time);
        (self.tail, self.time) = (position, time);
    }

    fn read(&self, range: ReadRange, limit: ReadLimit) -> Result<Vec<Record>, LogError> {
        Ok(match range {
            ReadRange::All(after) => up_to(limit, self.records.behind(after)),
            ReadRange::Topic(number, after) => match self.topics.get(&number) {
                Some(topic) if after < topic.removed => return Err(LogError::Trimmed(topic.earliest())),
                Some(topic) => up_to(limit, self.each(topic.index.behind(after))),
                None => Vec::new(),
            },
            ReadRange::Aggregate(key, after) => match self.aggregates.get(&key) {
                Some(index) => up_to(limit, self.each(index.behind(after))),
                None => Vec::new(),
            },
        })
    }

    fn each(&self, positions: impl Iterator<Item = Position>) -> impl Iterator<Item = &Record> {
        positions.filter_map(|position| self.records.get(position))
    }

    fn find(&self, what: RecordQuery) -> Option<&Record> {
        match what {
            RecordQuery::Id(id) => self.records.get(self.ids.first(id)?),
            RecordQuery::Time(None, time) => self.records.since(time),
            RecordQuery::Time(Some(topic), time) => {
                let earlier = |at| self.records.get(at).is_some_and(|record| record.header.time < time);
                self.records.get(self.topics.get(&topic)?.index.first_not(earlier)?)
            }
            RecordQuery::Aggregate(key) => self.records.get(self.aggregates.get(&key)?.last()?.1),
        }
    }

    /// The whole log is one segment.
    fn segment(&self, topic: TopicNumber) -> Option<Segment> {
        let index = &self.topics.get(&topic)?.index;
        let ((start_sequence, start), (end_sequence, end)) = (index.first()?, index.last()?);
        let stored_at = |at| Some(Timestamp::from_millis(self.records.get(at)?.header.time));
        Some(Segment {
            location: "memory://".to_owned(),
            start_sequence,
            start_time: stored_at(start)?,
            end_sequence,
            end_time: stored_at(end)?,
            amount: index.len() as u64,
            created_at: Timestamp::from_millis(self.begun?),
        })
    }

    /// The last sequence of `topic` that was ever assigned.
    fn last(&self, topic: TopicNumber) -> Sequence {
        self.topics.get(&topic).map_or(Sequence::ZERO, |topic| topic.index.last().map_or(topic.removed, |last| last.0))
    }

    /// Removes the first records of `topic` up to `through`, and returns them; none when none are left.
    fn remove_step(&mut self, topic: TopicNumber, through: Sequence) -> Vec<Record> {
        let Some(topic) = self.topics.get_mut(&topic) else { return Vec::new() };
        let positions = topic.remove(through, REMOVAL_STEP_RECORDS);
        let removed = self.records.take(&positions);
        for record in &removed {
            self.forget(record);
        }
        removed
    }

    /// Removes a record that was removed from its topic from the other indexes.
    fn forget(&mut self, record: &Record) {
        self.ids.remove(record.header.id, record.header.position);
        if let Some(mark) = aggregate_of(record)
            && let Entry::Occupied(mut index) = self.aggregates.entry(mark.key)
        {
            index.get_mut().remove(mark.sequence);
            if index.get().len() == 0 {
                index.remove();
            }
        }
    }
}

fn aggregate_of(record: &Record) -> Option<AggregateMark> {
    record.header.facets?.aggregate
}

fn up_to<'a>(limit: ReadLimit, records: impl Iterator<Item = &'a Record>) -> Vec<Record> {
    let mut bytes = 0_usize;
    let fits = |&(taken, record): &(usize, &Record)| {
        bytes = bytes.saturating_add(record.body.len());
        taken == 0 || (taken < limit.records && bytes <= limit.bytes)
    };
    records.enumerate().take_while(fits).map(|(_, record)| record.clone()).collect()
}

/// What is left of a topic.
#[derive(Default)]
struct TopicRecords {
    index: NumberIndex<Sequence>,
    /// The last sequence removed.
    removed: Sequence,
}

impl TopicRecords {
    fn earliest(&self) -> Sequence {
        self.index.first().map_or(self.removed.next(), |first| first.0)
    }

    /// Removes at most `most` sequences up to `through`, and returns their positions.
    fn remove(&mut self, through: Sequence, most: usize) -> Vec<Position> {
        let count = self.index.count_through(through).min(most);
        let gone = self.index.0.drain(..count);
        gone.map(|(sequence, position)| {
            self.removed = sequence;
            position
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventFacets;
    use bytes::Bytes;

    #[tokio::test]
    async fn a_log_that_begins_behind_lost_sequences_says_so() {
        let (topic, limit) = (TopicNumber(1), ReadLimit { records: 1, bytes: 0 });
        let log = MemoryLog::behind([(topic, Sequence(9))]);
        for after in [0, 8] {
            let refused = log.read(ReadRange::Topic(topic, Sequence(after)), limit).await.unwrap_err();
            assert!(matches!(refused, LogError::Trimmed(Sequence(10))), "{refused}");
        }
        assert!(log.read(ReadRange::Topic(topic, Sequence(9)), limit).await.unwrap().is_empty());
        assert!(log.segments(topic).await.unwrap().is_empty() && *log.tail().borrow() == Position::ZERO);
    }

    #[tokio::test]
    async fn removal_leaves_nothing_behind_in_the_indexes() {
        let log = MemoryLog::new();
        let aggregate = |number| AggregateMark { key: number % 3, sequence: AggregateSequence(number as u64 / 3 + 1) };
        let batch = (1..=3000_u64).map(|number| Record {
            header: RecordHeader {
                position: Position(number),
                topic: TopicNumber(1),
                sequence: Sequence(number),
                time: 0,
                id: u128::from(number) / 2,
                facets: Some(EventFacets {
                    type_tag: 0,
                    subject_type_tag: 0,
                    tenant: 0,
                    aggregate: Some(aggregate(u128::from(number) - 1)),
                    idempotency: None,
                }),
            },
            body: Bytes::new(),
        });
        log.append(Position::ZERO, batch.collect()).await.unwrap();
        log.remove(TopicNumber(1), Sequence(2999)).await.unwrap();
        {
            let state = log.state();
            let chunks = &state.records.chunks;
            assert_eq!(
                chunks.iter().map(|chunk| (chunk.records.len(), chunk.records.capacity())).collect::<Vec<_>>(),
                [(1, 1)]
            );
            assert_eq!(state.aggregates.values().map(NumberIndex::len).sum::<usize>(), 1);
            assert_eq!(state.ids.first.len(), 1);
        }
        log.remove(TopicNumber(1), Sequence(3000)).await.unwrap();
        let state = log.state();
        assert!(state.records.chunks.is_empty() && state.aggregates.is_empty());
        assert!(state.ids.first.is_empty() && state.ids.again.is_empty());
        assert_eq!(state.topics.values().map(|topic| topic.index.len()).sum::<usize>(), 0);
    }
}
