//! Random commands, in proportions that find faults: mostly valid appends, and sometimes every edge case.

use super::ModelLog;
use crate::testing::{NO_LIMIT, RecordNumbering, RecordSetters, SeededRandom, record};
use crate::{EventFacets, ReadLimit, ReadRange, Record, RecordQuery, TopicNumber};
use contract::{AggregateSequence, Position, Sequence};

/// The topics of a script. The last is never written to.
const TOPICS: [u32; 5] = [0, 1, 2, 4_000_000_000, 77];

/// One call of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogCommand {
    /// [`Log::append`](crate::Log::append).
    Append(Position, Vec<Record>),
    /// [`Log::read`](crate::Log::read).
    Read(ReadRange, ReadLimit),
    /// [`Log::find`](crate::Log::find).
    Find(RecordQuery),
    /// [`Log::segments`](crate::Log::segments).
    Segments(TopicNumber),
    /// [`Log::remove`](crate::Log::remove).
    Remove(TopicNumber, Sequence),
    /// Drop the log and open it again.
    Reopen,
}

/// The commands of one seed, made as the model that follows them grows.
#[derive(Debug, Clone)]
pub struct LogScript {
    random: SeededRandom,
    model: ModelLog,
    /// The numbers after the model, as far as it was followed.
    numbering: RecordNumbering,
}

impl LogScript {
    /// The script of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { random: SeededRandom::new(seed), model: ModelLog::default(), numbering: RecordNumbering::default() }
    }

    /// What the log should hold now.
    #[must_use]
    pub fn model(&self) -> &ModelLog {
        &self.model
    }

    /// The model, for the runner of the commands.
    pub fn model_mut(&mut self) -> &mut ModelLog {
        &mut self.model
    }

    /// The next command.
    pub fn command(&mut self) -> LogCommand {
        match self.random.through(99) {
            0..40 => self.good_append(),
            40..44 => self.stale_append(),
            44..50 => self.misnumbered_append(),
            50..72 => LogCommand::Read(self.range(), self.limit()),
            72..84 => LogCommand::Find(self.what()),
            84..88 => LogCommand::Segments(self.topic()),
            88..96 => self.removal(),
            _ => LogCommand::Reopen,
        }
    }

    fn good_append(&mut self) -> LogCommand {
        let size = if self.random.once_in(10) { self.random.through(60) } else { self.random.through(6) };
        LogCommand::Append(self.model.tail(), self.batch(size))
    }

    /// A batch that would be right after another tail.
    fn stale_append(&mut self) -> LogCommand {
        let tail = self.model.tail().get();
        let after = *self.random.pick(&[0, tail.saturating_sub(1), tail + 1, tail + 100]);
        let size = self.random.through(3);
        let mut batch = self.batch(size);
        for (record, position) in batch.iter_mut().zip(after + 1..) {
            record.header.position = Position(position);
        }
        LogCommand::Append(Position(after), batch)
    }

    /// A batch with one wrong position or time.
    fn misnumbered_append(&mut self) -> LogCommand {
        let size = self.random.through(4) + 1;
        let mut batch = self.batch(size);
        let wrong = &mut batch[usize::try_from(self.random.through(size - 1)).unwrap()].header;
        if self.random.once_in(3) {
            wrong.time -= 1_000_000;
        } else {
            wrong.position = Position(*self.random.pick(&[0, wrong.position.get() - 1, wrong.position.get() + 1]));
        }
        LogCommand::Append(self.model.tail(), batch)
    }

    fn batch(&mut self, size: u64) -> Vec<Record> {
        for record in &self.model.records()[usize::try_from(self.numbering.tail().get()).unwrap()..] {
            let _ = self.numbering.number(record.clone());
        }
        let mut numbering = self.numbering.clone();
        let mut time = self.model.records().last().map_or(1_764_763_200_000, |last| last.header.time);
        let mut batch = Vec::new();
        for _ in 0..size {
            time += 10 * i64::from(self.random.once_in(3));
            batch.push(numbering.number(self.draft().time(time)));
        }
        batch
    }

    fn draft(&mut self) -> Record {
        let length = *self.random.pick(&[0, 1, 10, 100, 100, 1000, 5000]);
        let body = self.random.bytes(length);
        let draft = record(0, TOPICS[usize::try_from(self.random.through(3)).unwrap()], 0).body(body);
        if self.random.once_in(4) {
            return draft;
        }
        let (id, facets) = (self.id(), self.facets());
        let draft = draft.id(id).facets(Some(facets));
        let draft = if self.random.once_in(3) { draft } else { self.in_aggregate(draft) };
        if self.random.once_in(2) { draft } else { draft.idempotency(self.random.wide(), self.random.number()) }
    }

    fn facets(&mut self) -> EventFacets {
        EventFacets {
            type_tag: self.random.number(),
            subject_type_tag: self.random.number(),
            tenant: self.random.wide(),
            aggregate: None,
            idempotency: None,
        }
    }

    fn in_aggregate(&mut self, draft: Record) -> Record {
        let key = self.aggregate_of(draft.header.topic);
        draft.aggregate(key, 0)
    }

    /// One of three aggregates of `topic`: an aggregate lies in one topic.
    fn aggregate_of(&mut self, topic: TopicNumber) -> u128 {
        (u128::from(topic.0) << 96) | u128::from(self.random.through(2) + 1)
    }

    /// A new id, or sometimes one that was stored before.
    fn id(&mut self) -> u128 {
        if self.random.once_in(6) && !self.model.records().is_empty() {
            return self.random.pick(self.model.records()).header.id;
        }
        self.random.wide()
    }

    fn topic(&mut self) -> TopicNumber {
        TopicNumber(*self.random.pick(&TOPICS))
    }

    fn range(&mut self) -> ReadRange {
        let topic = self.topic();
        match self.random.through(2) {
            0 => ReadRange::All(Position(self.around(self.model.tail().get()))),
            1 => ReadRange::Topic(topic, Sequence(self.around(self.model.last(topic).get()))),
            _ => ReadRange::Aggregate(self.aggregate_of(topic), AggregateSequence(self.around(8))),
        }
    }

    fn limit(&mut self) -> ReadLimit {
        let some = ReadLimit {
            records: usize::try_from(self.random.through(12)).unwrap(),
            bytes: usize::try_from(self.random.through(8000)).unwrap(),
        };
        *self.random.pick(&[
            NO_LIMIT,
            some,
            ReadLimit { bytes: usize::MAX, ..some },
            ReadLimit { records: usize::MAX, ..some },
        ])
    }

    fn what(&mut self) -> RecordQuery {
        let topic = self.topic();
        match self.random.through(3) {
            0 => RecordQuery::Id(self.id()),
            1 => RecordQuery::Time(None, self.time()),
            2 => RecordQuery::Time(Some(topic), self.time()),
            _ => RecordQuery::Aggregate(self.aggregate_of(topic)),
        }
    }

    /// A time at, just before or just after that of some record, or far from all.
    fn time(&mut self) -> i64 {
        if self.random.once_in(8) || self.model.records().is_empty() {
            return *self.random.pick(&[i64::MIN, 0, i64::MAX]);
        }
        self.random.pick(self.model.records()).header.time + *self.random.pick(&[-1, 0, 0, 1])
    }

    fn removal(&mut self) -> LogCommand {
        let topic = self.topic();
        let last = self.model.last(topic).get();
        let through = if self.random.once_in(4) { self.around(last) } else { self.random.through(last) / 2 };
        LogCommand::Remove(topic, Sequence(through))
    }

    /// A number from 0 to `last`, or an edge.
    fn around(&mut self, last: u64) -> u64 {
        let inside = self.random.through(last);
        *self.random.pick(&[0, inside, inside, inside, inside, last.saturating_sub(1), last, last + 1, u64::MAX])
    }
}
