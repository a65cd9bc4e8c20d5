//! The engine alone: `PostgresLog::append` in this process, one after the other, without a broker above it.

use super::cluster::Database;
use crate::events::mixed;
use crate::http::drive::Done;
use crate::{Outcome, usage};
use contract::{AggregateSequence, Position, Sequence};
use log::{Log, ReadLimit, ReadRange, Record, TopicNumber};
use log_postgres::{PostgresLog, PostgresOptions};
use std::time::{Duration, Instant};

/// Records of an append while the log is filled.
const FILL: u64 = 1000;

/// An open log, with the broker's records to append again under other numbers.
pub(super) struct Engine {
    log: PostgresLog,
    stored: Vec<Record>,
    /// Added to an aggregate's number with each pass.
    step: u64,
    tail: u64,
    /// Records of an append.
    batch: u64,
}

impl Engine {
    /// A log with the first `count` of the broker's records in it.
    pub(super) async fn filled(database: &Database, broker: &Database, count: u64, batch: u64) -> Outcome<Self> {
        let stored = stored(broker, count).await?;
        let aggregate = |record: &Record| record.header.facets.and_then(|facets| facets.aggregate);
        let step = stored.iter().filter_map(aggregate).map(|mark| mark.sequence.get()).max().unwrap_or(1);
        let log = PostgresLog::open(&database.url, PostgresOptions::default()).await?;
        let mut engine = Self { log, stored, step, tail: 0, batch };
        while engine.tail < count {
            engine.append(FILL).await?;
        }
        Ok(engine)
    }

    /// Appends for a while. The engine's processor time is the generator's: they are one process.
    pub(super) async fn run(&mut self, time: Duration) -> Outcome<Done> {
        let (cpu, begun, mut waits) = (usage::cpu_time(), Instant::now(), Vec::new());
        while begun.elapsed() < time {
            let asked = Instant::now();
            self.append(self.batch).await?;
            waits.push(u32::try_from(asked.elapsed().as_nanos()).unwrap_or(u32::MAX));
        }
        let seconds = begun.elapsed().as_secs_f64();
        waits.sort_unstable();
        Ok(Done {
            requests: waits.len() as u64,
            events: waits.len() as u64 * self.batch,
            seconds,
            generator_cpu: usage::cpu_time().saturating_sub(cpu).as_secs_f64(),
            waits,
            ..Done::default()
        })
    }

    async fn append(&mut self, count: u64) -> Outcome {
        let batch = (self.tail + 1..=self.tail + count).filter_map(|number| self.record(number)).collect();
        self.log.append(Position(self.tail), batch).await?;
        self.tail += count;
        Ok(())
    }

    fn record(&self, number: u64) -> Option<Record> {
        let (count, before) = (self.stored.len() as u64, number - 1);
        let mut record = self.stored.get(usize::try_from(before % count).ok()?)?.clone();
        record.header.position = Position(number);
        record.header.sequence = Sequence(number);
        record.header.id = u128::from(mixed(number)) << 64 | u128::from(mixed(!number));
        // Times must not fall when the records come round again.
        record.header.time = self.stored.last()?.header.time;
        if let Some(mark) = record.header.facets.as_mut().and_then(|facets| facets.aggregate.as_mut()) {
            mark.sequence = AggregateSequence(mark.sequence.get() + before / count * self.step);
        }
        Some(record)
    }
}

/// The first events that the broker stored.
async fn stored(broker: &Database, count: u64) -> Outcome<Vec<Record>> {
    let log = PostgresLog::open(&broker.url, PostgresOptions::default()).await?;
    let (mut events, mut after) = (Vec::new(), Position::ZERO);
    while (events.len() as u64) < count {
        let page = log.read(ReadRange::All(after), ReadLimit { records: 1000, bytes: usize::MAX }).await?;
        after = page.last().ok_or("the broker stored too few events")?.header.position;
        events.extend(page.into_iter().filter(|record| record.header.topic != TopicNumber::LEDGER));
    }
    events.truncate(usize::try_from(count)?);
    Ok(events)
}
