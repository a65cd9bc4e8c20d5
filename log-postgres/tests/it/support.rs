//! Databases for the tests, logs in them, and writers that retry.

use contract::{BoxFuture, Position};
use log::testing::{Engine, NO_LIMIT, RecordSetters, record};
use log::{Log, LogError, ReadRange, Record};
use log_postgres::testing::TestServer;
use log_postgres::{PostgresLog, PostgresOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A log in an empty database of the shared server.
pub(crate) struct TestEngine {
    pub(crate) url: String,
}

impl TestEngine {
    pub(crate) fn new() -> Self {
        Self { url: TestServer::shared().create_database() }
    }
}

impl Engine for TestEngine {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Log>> {
        Box::pin(async { Arc::new(open(&self.url).await) as Arc<dyn Log> })
    }
}

pub(crate) async fn open(url: &str) -> PostgresLog {
    open_with(url, |_| {}).await
}

pub(crate) async fn open_with(url: &str, change: impl FnOnce(&mut PostgresOptions)) -> PostgresLog {
    let mut options = PostgresOptions::default();
    change(&mut options);
    PostgresLog::open(url, options).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// `size` records after `after`, of one topic, all with this id.
pub(crate) fn batch(after: Position, id: u128, size: u64) -> Vec<Record> {
    let first = after.get() + 1;
    (first..first + size).map(|at| record(at, 1, at).id(id).body(format!("{id} at {at}"))).collect()
}

/// The deadline of a wait: a test that waits longer fails, and reports for what.
pub(crate) struct Deadline(Instant);

impl Deadline {
    /// Longer than anything here may take.
    pub(crate) fn begin() -> Self {
        Self(Instant::now() + Duration::from_secs(180))
    }

    pub(crate) fn check(&self, what: &str) {
        assert!(Instant::now() < self.0, "waited too long for {what}");
    }
}

/// Everything in the log, in order.
pub(crate) async fn everything(log: &dyn Log) -> Vec<Record> {
    log.read(ReadRange::All(Position::ZERO), NO_LIMIT).await.unwrap()
}

/// The outcomes of one writer's batches.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Acknowledged.
    pub(crate) stored: Vec<u128>,
    /// Neither acknowledged nor refused.
    pub(crate) unsure: Vec<u128>,
    /// How often a comparison failed, and how often twice in a row.
    pub(crate) lost: usize,
    pub(crate) lost_twice: usize,
}

impl Ledger {
    /// Appends a batch with this id, and retries after lost comparisons; fails if the server cannot be reached.
    pub(crate) async fn put(&mut self, log: &dyn Log, id: u128, size: u64) -> Result<(), LogError> {
        let mut after = *log.tail().borrow();
        let mut losses = 0;
        let deadline = Deadline::begin();
        loop {
            deadline.check("a turn to append");
            match log.append(after, batch(after, id, size)).await {
                Ok(()) => {
                    self.stored.push(id);
                    return Ok(());
                }
                Err(LogError::TailMoved(tail)) => {
                    after = tail;
                    losses += 1;
                    self.lost += 1;
                    self.lost_twice += usize::from(losses > 1);
                }
                Err(error @ LogError::Unavailable(_)) => {
                    self.unsure.push(id);
                    return Err(error);
                }
                Err(other) => panic!("{other} ({other:?})"),
            }
        }
    }
}

/// Fails unless `records` are dense, every stored batch of `size` is there once and complete, and every unsure one
/// complete or not at all; nothing else is there.
pub(crate) fn check(records: &[Record], ledgers: &[Ledger], size: u64) {
    log::testing::assert_dense(records);
    let mut found: BTreeMap<u128, Vec<u64>> = BTreeMap::new();
    for record in records {
        found.entry(record.header.id).or_default().push(record.header.position.get());
    }
    for (id, positions) in &found {
        let run: Vec<u64> = (positions[0]..positions[0] + size).collect();
        assert_eq!(*positions, run, "the batch {id} is not there once and whole");
    }
    for ledger in ledgers {
        for id in &ledger.stored {
            assert!(found.remove(id).is_some(), "{id} was acknowledged and is lost");
        }
        for id in &ledger.unsure {
            found.remove(id);
        }
    }
    assert!(found.is_empty(), "nobody wrote {:?}", found.keys());
}
