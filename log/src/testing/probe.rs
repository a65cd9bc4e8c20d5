//! An opened engine, with its calls in short forms for tests.

use super::{Engine, RecordNumbering, RecordSetters};
use crate::{Log, LogError, ReadLimit, ReadRange, Record, RecordHeader, RecordQuery, TopicNumber};
use contract::{AggregateSequence, Position, Segment, Sequence, Timestamp};
use std::sync::Arc;

/// No limit.
pub const NO_LIMIT: ReadLimit = ReadLimit { records: usize::MAX, bytes: usize::MAX };

/// An error that a test may expect. Any other error fails the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogRefusal {
    /// [`LogError::TailMoved`].
    TailMoved(Position),
    /// [`LogError::Trimmed`].
    Trimmed(Sequence),
    /// [`LogError::Misnumbered`], whatever the words.
    Misnumbered,
}

impl From<LogError> for LogRefusal {
    fn from(error: LogError) -> Self {
        match error {
            LogError::TailMoved(tail) => Self::TailMoved(tail),
            LogError::Trimmed(earliest) => Self::Trimmed(earliest),
            LogError::Misnumbered(_) => Self::Misnumbered,
            other => panic!("an engine in good health answered: {other} ({other:?})"),
        }
    }
}

/// An opened log of an engine, with the numbers its caller keeps.
pub struct LogProbe<'a> {
    engine: &'a dyn Engine,
    log: Arc<dyn Log>,
    /// The numbers after everything [`LogProbe::put`] appended.
    pub numbering: RecordNumbering,
}

impl<'a> LogProbe<'a> {
    /// Opens the engine, which must hold nothing yet.
    pub async fn open(engine: &'a dyn Engine) -> Self {
        let probe = Self { engine, log: engine.open().await, numbering: RecordNumbering::default() };
        assert_eq!(probe.tail(), Position::ZERO, "a test begins with an empty log");
        probe
    }

    /// Drops the log and opens it again.
    pub async fn reopen(self) -> Self {
        let Self { engine, log, numbering } = self;
        drop(log);
        Self { engine, log: engine.open().await, numbering }
    }

    /// The log itself, for another task.
    #[must_use]
    pub fn log(&self) -> Arc<dyn Log> {
        Arc::clone(&self.log)
    }

    /// Appends one entry for each of `topics`, and gives them back.
    pub async fn put_entries(&mut self, topics: &[u32]) -> Vec<Record> {
        let batch = self.numbering.entries(topics);
        self.put(batch).await
    }

    /// Appends one event for each topic of `about`, about the aggregate named with it, and gives them back.
    pub async fn put_events(&mut self, about: &[(u32, u128)]) -> Vec<Record> {
        let batch = self.numbering.events(about);
        self.put(batch).await
    }

    /// Appends one entry of `topic` for each of `times`, and gives them back.
    pub async fn put_at(&mut self, topic: u32, times: &[i64]) -> Vec<Record> {
        let batch = times.iter().map(|time| self.numbering.entry(topic).time(*time)).collect();
        self.put(batch).await
    }

    /// Appends `batch`, which [`LogProbe::numbering`] has numbered, and gives it back.
    pub async fn put(&mut self, batch: Vec<Record>) -> Vec<Record> {
        let after = Position(self.numbering.tail().get() - batch.len() as u64);
        assert_eq!(self.append(after, batch.clone()).await, Ok(()), "appending after {after}");
        batch
    }

    /// [`Log::append`].
    pub async fn append(&self, after: Position, batch: Vec<Record>) -> Result<(), LogRefusal> {
        Ok(self.log.append(after, batch).await?)
    }

    /// [`Log::read`].
    pub async fn read(&self, range: ReadRange, limit: ReadLimit) -> Result<Vec<Record>, LogRefusal> {
        Ok(self.log.read(range, limit).await?)
    }

    /// Every record after `after`.
    pub async fn all(&self, after: u64) -> Vec<Record> {
        self.read(ReadRange::All(Position(after)), NO_LIMIT).await.unwrap()
    }

    /// Every record of `topic` after `after`.
    pub async fn topic(&self, topic: u32, after: u64) -> Result<Vec<Record>, LogRefusal> {
        self.read(ReadRange::Topic(TopicNumber(topic), Sequence(after)), NO_LIMIT).await
    }

    /// Every record of the aggregate `key` after `after`.
    pub async fn aggregate(&self, key: u128, after: u64) -> Vec<Record> {
        self.read(ReadRange::Aggregate(key, AggregateSequence(after)), NO_LIMIT).await.unwrap()
    }

    /// The last position, as the watch shows it.
    #[must_use]
    pub fn tail(&self) -> Position {
        *self.log.tail().borrow()
    }

    /// [`Log::find`].
    pub async fn find(&self, what: RecordQuery) -> Option<RecordHeader> {
        self.log.find(what).await.unwrap_or_else(|error| panic!("{what:?}: {error}"))
    }

    /// The position of what [`Log::find`] finds.
    pub async fn position_of(&self, what: RecordQuery) -> Option<u64> {
        Some(self.find(what).await?.position.get())
    }

    /// [`Log::segments`].
    pub async fn segments(&self, topic: u32) -> Vec<Segment> {
        self.log.segments(TopicNumber(topic)).await.unwrap()
    }

    /// [`Log::remove`].
    pub async fn remove(&self, topic: u32, through: u64) {
        self.log.remove(TopicNumber(topic), Sequence(through)).await.unwrap();
    }
}

/// Fails unless `segments` hold exactly `records` (what is left of one topic), in order, with their times.
pub fn assert_covers(segments: &[Segment], records: &[Record]) {
    let mut rest = records;
    for segment in segments {
        let amount = usize::try_from(segment.amount).unwrap();
        assert!(amount > 0, "an empty segment: {segment:?}");
        assert!(amount <= rest.len(), "more than there is to read: {segment:?}");
        let (held, behind) = rest.split_at(amount);
        let (first, last) = (held[0].header, held[amount - 1].header);
        assert_eq!((segment.start_sequence, segment.end_sequence), (first.sequence, last.sequence), "{segment:?}");
        let times = (Timestamp::from_millis(first.time), Timestamp::from_millis(last.time));
        assert_eq!((segment.start_time, segment.end_time), times, "{segment:?}");
        assert!(!segment.location.is_empty(), "{segment:?}");
        rest = behind;
    }
    assert!(rest.is_empty(), "in no segment: {:?}", super::sequences(rest));
}
