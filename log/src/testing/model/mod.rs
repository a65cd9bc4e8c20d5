//! A naive log, and random commands for which an engine must return the same.
//!
//! The model keeps every record there ever was in one `Vec` and scans all of them for each call: slow, and short enough to be
//! right. The script makes the commands only from a seed and the model, so that a seed gives the same commands whatever the
//! engine returns.

mod script;

pub use script::{LogCommand, LogScript};

use super::{Engine, LogProbe, LogRefusal, NO_LIMIT, assert_covers};
use crate::{ReadLimit, ReadRange, Record, RecordHeader, RecordQuery, TopicNumber};
use contract::{AggregateSequence, Position, Sequence};
use std::collections::{BTreeMap, BTreeSet};

/// A log as in the contract.
#[derive(Debug, Clone, Default)]
pub struct ModelLog {
    /// Everything ever appended, removed or not.
    records: Vec<Record>,
    /// The last sequence removed of each topic.
    removed: BTreeMap<TopicNumber, Sequence>,
}

impl ModelLog {
    /// Everything ever appended, removed or not.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// What is left, in order.
    pub fn left(&self) -> impl DoubleEndedIterator<Item = &Record> {
        self.records.iter().filter(|record| record.header.sequence > self.removed_through(record.header.topic))
    }

    /// What is left of `topic`, in order.
    #[must_use]
    pub fn left_of(&self, topic: TopicNumber) -> Vec<Record> {
        self.left().filter(|record| record.header.topic == topic).cloned().collect()
    }

    /// The last position.
    #[must_use]
    pub fn tail(&self) -> Position {
        Position(self.records.len() as u64)
    }

    /// The last sequence of `topic`, removed or not.
    #[must_use]
    pub fn last(&self, topic: TopicNumber) -> Sequence {
        let ours = self.records.iter().filter(|record| record.header.topic == topic);
        ours.map(|record| record.header.sequence).max().unwrap_or_default()
    }

    /// What [`Log::append`](crate::Log::append) returns; if a batch is wrong in two ways, the comparison comes first.
    pub fn append(&mut self, after: Position, batch: &[Record]) -> Result<(), LogRefusal> {
        if after != self.tail() {
            return Err(LogRefusal::TailMoved(self.tail()));
        }
        let last_time = self.records.last().map(|last| last.header.time);
        let dense = batch.iter().zip(after.get() + 1..).all(|(record, at)| record.header.position == Position(at));
        if !dense || !last_time.into_iter().chain(batch.iter().map(|record| record.header.time)).is_sorted() {
            return Err(LogRefusal::Misnumbered);
        }
        self.records.extend_from_slice(batch);
        Ok(())
    }

    /// What [`Log::read`](crate::Log::read) returns.
    pub fn read(&self, range: ReadRange, limit: ReadLimit) -> Result<Vec<Record>, LogRefusal> {
        if let ReadRange::Topic(topic, after) = range
            && after < self.removed_through(topic)
        {
            return Err(LogRefusal::Trimmed(self.removed_through(topic).next()));
        }
        let mut read: Vec<Record> = Vec::new();
        for record in self.left().filter(|record| is_in(range, record)) {
            let bytes = read.iter().chain([record]).map(|record| record.body.len()).sum::<usize>();
            if !read.is_empty() && (read.len() >= limit.records || bytes > limit.bytes) {
                break;
            }
            read.push(record.clone());
        }
        Ok(read)
    }

    /// What [`Log::find`](crate::Log::find) returns.
    #[must_use]
    pub fn find(&self, what: RecordQuery) -> Option<RecordHeader> {
        let found = match what {
            RecordQuery::Id(id) => self.left().find(|record| id != 0 && record.header.id == id),
            RecordQuery::Time(topic, time) => {
                let is_ours = |record: &Record| topic.is_none_or(|topic| record.header.topic == topic);
                self.left().find(|record| is_ours(record) && record.header.time >= time)
            }
            RecordQuery::Aggregate(key) => {
                self.left().rfind(|record| aggregate_of(record).is_some_and(|mark| mark.0 == key))
            }
        };
        Some(found?.header)
    }

    /// Does what [`Log::remove`](crate::Log::remove) does.
    pub fn remove(&mut self, topic: TopicNumber, through: Sequence) {
        let through = through.min(self.last(topic)).max(self.removed_through(topic));
        self.removed.insert(topic, through);
    }

    fn removed_through(&self, topic: TopicNumber) -> Sequence {
        self.removed.get(&topic).copied().unwrap_or_default()
    }
}

fn is_in(range: ReadRange, Record { header, .. }: &Record) -> bool {
    match range {
        ReadRange::All(after) => header.position > after,
        ReadRange::Topic(topic, after) => header.topic == topic && header.sequence > after,
        ReadRange::Aggregate(key, after) => {
            let mark = header.facets.and_then(|facets| facets.aggregate);
            mark.is_some_and(|mark| mark.key == key && mark.sequence > after)
        }
    }
}

fn aggregate_of(record: &Record) -> Option<(u128, AggregateSequence)> {
    let mark = record.header.facets?.aggregate?;
    Some((mark.key, mark.sequence))
}

/// Runs `steps` random commands of `seed` on an empty engine; fails if a result differs from the model's. At the end
/// everything is compared once more, before and after reopening.
pub async fn agree(engine: &dyn Engine, seed: u64, steps: usize) {
    let mut script = LogScript::new(seed);
    let mut probe = LogProbe::open(engine).await;
    for step in 0..steps {
        let command = script.command();
        let context = ScriptContext { seed, step, command: &command };
        probe = assert_same_answer(probe, script.model_mut(), &context).await;
        assert_eq!(probe.tail(), script.model().tail(), "the tail after {context:?}");
    }
    for context in ["at the end", "at the end, reopened"] {
        assert_same_contents(&probe, script.model(), &format!("seed {seed}, {context}")).await;
        probe = probe.reopen().await;
    }
}

/// The position in a script; printed only if an engine differs, because a command can be long.
#[derive(Debug)]
#[expect(dead_code, reason = "read by Debug")]
struct ScriptContext<'a> {
    seed: u64,
    step: usize,
    command: &'a LogCommand,
}

async fn assert_same_answer<'a>(
    probe: LogProbe<'a>,
    model: &mut ModelLog,
    context: &ScriptContext<'_>,
) -> LogProbe<'a> {
    match *context.command {
        LogCommand::Append(after, ref batch) => {
            assert_eq!(probe.append(after, batch.clone()).await, model.append(after, batch), "{context:?}");
        }
        LogCommand::Read(range, limit) => {
            assert_eq!(probe.read(range, limit).await, model.read(range, limit), "{context:?}");
        }
        LogCommand::Find(what) => assert_eq!(probe.find(what).await, model.find(what), "{context:?}"),
        LogCommand::Segments(topic) => assert_covers(&probe.segments(topic.0).await, &model.left_of(topic)),
        LogCommand::Remove(topic, through) => {
            model.remove(topic, through);
            probe.remove(topic.0, through.get()).await;
        }
        LogCommand::Reopen => return probe.reopen().await,
    }
    probe
}

async fn assert_same_contents(probe: &LogProbe<'_>, model: &ModelLog, context: &str) {
    let topics: BTreeSet<_> = model.records().iter().map(|record| record.header.topic).collect();
    let aggregates: BTreeSet<_> = model.records().iter().filter_map(aggregate_of).map(|(key, _)| key).collect();
    assert_eq!(probe.tail(), model.tail(), "{context}");
    let mut ranges = vec![ReadRange::All(Position::ZERO)];
    for topic in topics {
        ranges.extend([Sequence::ZERO, model.removed_through(topic)].map(|after| ReadRange::Topic(topic, after)));
        assert_covers(&probe.segments(topic.0).await, &model.left_of(topic));
    }
    ranges.extend(aggregates.iter().map(|key| ReadRange::Aggregate(*key, AggregateSequence::ZERO)));
    for range in ranges {
        assert_eq!(probe.read(range, NO_LIMIT).await, model.read(range, NO_LIMIT), "{range:?}, {context}");
    }
    // Each answer of the model is a walk along the log: some fifty records are asked for, wherever they lie.
    let some = || model.records().iter().step_by(1 + model.records().len() / 50).map(|record| record.header);
    let ids = some().map(|header| RecordQuery::Id(header.id));
    let times = some().map(|header| RecordQuery::Time(Some(header.topic), header.time));
    for what in ids.chain(times).chain(aggregates.iter().map(|key| RecordQuery::Aggregate(*key))) {
        assert_eq!(probe.find(what).await, model.find(what), "{what:?}, {context}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_commands_twice() {
        let run = |seed| {
            let mut script = LogScript::new(seed);
            let mut trace = Vec::new();
            for _ in 0..200 {
                let command = script.command();
                match &command {
                    LogCommand::Append(after, batch) => _ = script.model_mut().append(*after, batch),
                    LogCommand::Remove(topic, through) => script.model_mut().remove(*topic, *through),
                    _ => {}
                }
                trace.push(command);
            }
            trace
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }
}
