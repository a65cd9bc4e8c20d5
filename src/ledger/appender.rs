//! The appender: a thread of its own that makes decided records durable.
//!
//! - It takes whatever has been decided while it was busy, as one batch: the slower the disk, the larger the batches.
//! - It never waits for the writer: the disk goes from one batch to the next while the first one is applied and answered.
//! - What was decided without a record rests on the log too. Where others may write to it, an append that begins after the
//!   decision must succeed before that is told: one with records, or an empty one that only compares.
//! - After a failed append it takes nothing more until the writer has dealt with it: what was decided since rests on it.

use contract::Position;
use log::{Log, LogError, Record};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::mpsc;

/// A batch whose append is over.
pub(super) struct Appended {
    pub(super) turn: Turn,
    pub(super) records: Vec<Record>,
    pub(super) outcome: Result<(), LogError>,
}

/// The number of an append, counted from 1 in the order they begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Turn(u64);

/// The writer's end: where decided records gather, and what has become of those that were taken.
pub(super) struct Appender {
    gathering: Arc<Gathering>,
    pub(super) appended: mpsc::UnboundedReceiver<Appended>,
    thread: Option<JoinHandle<()>>,
}

/// Records decided but not taken yet.
#[derive(Default)]
struct Gathering {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    /// The last append begun.
    turn: Turn,
    records: Vec<Record>,
    bytes: usize,
    /// An append is wanted even without records: is the tail here?
    compare: Option<Position>,
    /// An append failed: nothing is taken, and nothing gathers, until the writer starts over.
    stopped: bool,
    closed: bool,
}

impl Appender {
    /// Starts the thread.
    pub(super) fn start(log: Arc<dyn Log>) -> io::Result<Self> {
        let gathering = Arc::new(Gathering::default());
        let (report, appended) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let taking = Arc::clone(&gathering);
        let work = move || {
            while let Some(Taken { turn, after, batch }) = taking.take() {
                let records = batch.clone();
                let outcome = runtime.block_on(log.append(after, batch));
                if outcome.is_err() {
                    taking.stop();
                }
                if report.send(Appended { turn, records, outcome }).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("event-broker-append".to_owned()).spawn(work)?;
        Ok(Self { gathering, appended, thread: Some(thread) })
    }

    /// Hands over decided records, in order.
    pub(super) fn add(&self, mut records: Vec<Record>) {
        let mut inner = self.gathering.lock();
        if records.is_empty() || inner.stopped {
            return;
        }
        inner.bytes += records.iter().map(|record| record.body.len()).sum::<usize>();
        match inner.records.is_empty() {
            true => inner.records = records,
            false => inner.records.append(&mut records),
        }
        self.gathering.changed.notify_one();
    }

    /// Has the tail compared with `position` by the next append, if there is nothing to append.
    pub(super) fn compare(&self, position: Position) {
        let mut inner = self.gathering.lock();
        if !inner.stopped {
            inner.compare = Some(position);
            self.gathering.changed.notify_one();
        }
    }

    /// The first append that begins after now.
    pub(super) fn next_turn(&self) -> Turn {
        Turn(self.gathering.lock().turn.0 + 1)
    }

    /// Bytes that wait to be taken.
    pub(super) fn bytes(&self) -> usize {
        self.gathering.lock().bytes
    }

    /// The writer has dealt with a failure; what comes now is decided anew.
    pub(super) fn start_over(&self) {
        let mut inner = self.gathering.lock();
        *inner = Inner { turn: inner.turn, ..Inner::default() };
    }

    /// Ends the thread, once it has appended what it was given, and lets go of the log.
    pub(super) fn close(&mut self) {
        self.gathering.lock().closed = true;
        self.gathering.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Gathering {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything gathered, as soon as there is something; `None` at the end.
    fn take(&self) -> Option<Taken> {
        let nothing = |inner: &mut Inner| inner.records.is_empty() && inner.compare.is_none() && !inner.closed;
        let mut inner = self.changed.wait_while(self.lock(), nothing).unwrap_or_else(PoisonError::into_inner);
        let (batch, compare) = (std::mem::take(&mut inner.records), inner.compare.take());
        let before = |record: &Record| Position(record.header.position.0 - 1);
        let after = batch.first().map(before).or(compare)?;
        inner.bytes = 0;
        inner.turn.0 += 1;
        Some(Taken { turn: inner.turn, after, batch })
    }

    fn stop(&self) {
        let mut inner = self.lock();
        *inner = Inner { turn: inner.turn, stopped: true, closed: inner.closed, ..Inner::default() };
    }
}

/// What the next append is to do.
struct Taken {
    turn: Turn,
    after: Position,
    batch: Vec<Record>,
}
