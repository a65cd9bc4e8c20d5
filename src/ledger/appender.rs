//! The appender: a thread of its own that makes decided records durable.
//!
//! - It takes whatever has been decided while it was busy, as one batch: the slower the disk, the larger the batches.
//! - It never waits for the writer: the disk goes from one batch to the next while the first one is applied and answered.
//! - After a failed append it takes nothing more until the writer has dealt with it: what was decided since rests on it.

use contract::Position;
use log::{Log, LogError, Record};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::mpsc;

/// A batch whose append is over.
pub(super) struct Appended {
    pub(super) records: Vec<Record>,
    pub(super) outcome: Result<(), LogError>,
}

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
    records: Vec<Record>,
    bytes: usize,
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
            while let Some(batch) = taking.take() {
                let after = Position(batch.first().map_or(0, |record| record.header.position.0 - 1));
                let records = batch.clone();
                let outcome = runtime.block_on(log.append(after, batch));
                if outcome.is_err() {
                    taking.stop();
                }
                if report.send(Appended { records, outcome }).is_err() {
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

    /// Bytes that wait to be taken.
    pub(super) fn bytes(&self) -> usize {
        self.gathering.lock().bytes
    }

    /// The writer has dealt with a failure; what comes now is decided anew.
    pub(super) fn start_over(&self) {
        *self.gathering.lock() = Inner::default();
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
    fn take(&self) -> Option<Vec<Record>> {
        let nothing = |inner: &mut Inner| inner.records.is_empty() && !inner.closed;
        let mut inner = self.changed.wait_while(self.lock(), nothing).unwrap_or_else(PoisonError::into_inner);
        inner.bytes = 0;
        Some(std::mem::take(&mut inner.records)).filter(|records| !records.is_empty())
    }

    fn stop(&self) {
        let mut inner = self.lock();
        *inner = Inner { stopped: true, closed: inner.closed, ..Inner::default() };
    }
}
