//! The appender: makes decided records durable, batch by batch.
//!
//! - It is a task beside the writer; over a log that blocks its thread, the appender has a thread of its own.
//! - It takes everything that was decided while it was busy, as one batch: the slower the disk, the larger the batches.
//! - A log that does not block its thread receives the next batch while the previous append is in flight, once the
//!   callers that were just answered have submitted again: fewer, larger batches give a higher throughput.
//! - It never waits for the writer: the disk goes on with the next batch while the first one is applied and answered.
//! - What was decided without a record depends on the log, too. If other processes write to the log, an append that
//!   begins after the decision must succeed before the caller is answered: one with records, or an empty one that only
//!   compares.
//! - After a failed append it takes nothing more until the writer has handled the failure: what was decided since
//!   depends on the failed batch.

use super::batch_size::AdaptiveBatch;
use contract::{BoxFuture, Position};
use futures_util::stream::{FuturesOrdered, StreamExt};
use log::{Log, LogError, Record};
use std::future::{poll_fn, ready};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use tokio::sync::{Notify, mpsc};

/// Appends in flight at once, over a log that does not block its thread.
const IN_FLIGHT_MAX: usize = 2;

/// The records of one append.
#[derive(Debug)]
pub(in crate::ledger) struct AppendBatch {
    pub(in crate::ledger) number: AppendNumber,
    pub(in crate::ledger) records: Vec<Record>,
}

/// An append that failed.
pub(in crate::ledger) struct FailedAppend {
    pub(in crate::ledger) error: LogError,
    /// Its batch, and the batches of the appends that began after it.
    pub(in crate::ledger) unsure: Vec<AppendBatch>,
}

/// The number of an append, counted from 1 in the order they begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(in crate::ledger) struct AppendNumber(u64);

/// The writer's handle: it passes decided records on, and receives the results of appends.
pub(in crate::ledger) struct Appender {
    pending: Arc<PendingRecords>,
    pub(in crate::ledger) appended: mpsc::UnboundedReceiver<Result<AppendBatch, FailedAppend>>,
}

/// Records that are decided and not taken by an append yet.
#[derive(Default)]
struct PendingRecords {
    inner: Mutex<PendingState>,
    changed: Notify,
}

#[derive(Default)]
struct PendingState {
    /// The last append that began.
    last_append: AppendNumber,
    records: Vec<Record>,
    /// Records received since the start, or since the last failure.
    arrived: usize,
    bytes: usize,
    /// Set if an append is needed even without records: it compares the tail with this position.
    compare: Option<Position>,
    /// An append failed: no records are taken or added until the writer resumes.
    stopped: bool,
    closed: bool,
}

impl Appender {
    /// Starts the appender.
    pub(in crate::ledger) fn start(log: Arc<dyn Log>) -> io::Result<Self> {
        let pending = Arc::new(PendingRecords::default());
        let (report, appended) = mpsc::unbounded_channel();
        match log.blocks() {
            true => {
                let runtime = tokio::runtime::Builder::new_current_thread().build()?;
                let work = work(Arc::clone(&pending), log, report);
                let thread = std::thread::Builder::new().name("event-broker-append".to_owned());
                thread.spawn(move || runtime.block_on(work))?;
            }
            false => drop(tokio::spawn(work(Arc::clone(&pending), log, report))),
        }
        Ok(Self { pending, appended })
    }

    /// Passes decided records to the next append, in order.
    pub(in crate::ledger) fn add(&self, mut records: Vec<Record>) {
        let mut inner = self.pending.lock();
        if records.is_empty() || inner.stopped {
            return;
        }
        debug_assert!(
            inner.records.last().into_iter().chain(&records).is_sorted_by(|one, next| follows(next, one)),
            "decided records are not consecutive"
        );
        inner.arrived += records.len();
        inner.bytes += records.iter().map(|record| record.body.len()).sum::<usize>();
        match inner.records.is_empty() {
            true => inner.records = records,
            false => inner.records.append(&mut records),
        }
        self.pending.changed.notify_one();
    }

    /// Requests that the next append compares the tail with `position`, if there are no records to append.
    pub(in crate::ledger) fn compare(&self, position: Position) {
        let mut inner = self.pending.lock();
        if !inner.stopped {
            inner.compare = Some(position);
            self.pending.changed.notify_one();
        }
    }

    /// The number of the next append that begins.
    pub(in crate::ledger) fn next_append(&self) -> AppendNumber {
        AppendNumber(self.pending.lock().last_append.0 + 1)
    }

    /// Bytes of records that no append has taken yet.
    pub(in crate::ledger) fn bytes(&self) -> usize {
        self.pending.lock().bytes
    }

    /// Resumes after the writer has handled a failure. Records that follow were decided again.
    pub(in crate::ledger) fn resume(&self) {
        let mut inner = self.pending.lock();
        *inner = PendingState { last_append: inner.last_append, ..PendingState::default() };
    }

    /// Stops the appender after it has appended what it received. Returns when it has released the log.
    pub(in crate::ledger) async fn close(&mut self) {
        self.pending.close();
        while self.appended.recv().await.is_some() {}
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        self.pending.close();
    }
}

/// Appends pending records until the handle is closed. The channel of reports closes when the log is released.
async fn work(
    pending: Arc<PendingRecords>,
    log: Arc<dyn Log>,
    report: mpsc::UnboundedSender<Result<AppendBatch, FailedAppend>>,
) {
    let in_flight_max = if log.blocks() { 1 } else { IN_FLIGHT_MAX };
    let mut in_flight = FuturesOrdered::new();
    let (mut batch_size, mut open) = (AdaptiveBatch::default(), true);
    while open || !in_flight.is_empty() {
        let least = if in_flight.is_empty() { 1 } else { batch_size.min_records() };
        let ended = tokio::select! {
            biased;
            Some(ended) = in_flight.next() => ended,
            taken = pending.take(least), if open && in_flight.len() < in_flight_max => {
                match taken {
                    Some(taken) => {
                        batch_size.note_taken(taken.batch.records.len());
                        in_flight.push_back(begin(log.as_ref(), taken).await);
                    }
                    None => open = false,
                }
                continue;
            }
        };
        let ended = match ended {
            Ok(batch) => {
                pending.note_answered(&mut batch_size, batch.records.len());
                Ok(batch)
            }
            Err(mut failed) => {
                batch_size = AdaptiveBatch::default();
                pending.stop();
                while let Some(behind) = in_flight.next().await {
                    failed.unsure.extend(behind.map_or_else(|failed| failed.unsure, |batch| vec![batch]));
                }
                Err(failed)
            }
        };
        if report.send(ended).is_err() {
            break;
        }
    }
    drop(in_flight);
    drop(log);
}

/// Polls an append once, so that it begins before the result of the previous append is read: if that one failed, this
/// one fails, too.
async fn begin(
    log: &dyn Log,
    NextAppend { after, batch }: NextAppend,
) -> BoxFuture<'_, Result<AppendBatch, FailedAppend>> {
    let mut appending: BoxFuture<'_, _> = Box::pin(async move {
        match log.append(after, batch.records.clone()).await {
            Ok(()) => Ok(batch),
            Err(error) => Err(FailedAppend { error, unsure: vec![batch] }),
        }
    });
    match poll_fn(|context| Poll::Ready(appending.as_mut().poll(context))).await {
        Poll::Ready(ended) => Box::pin(ready(ended)),
        Poll::Pending => appending,
    }
}

impl PendingRecords {
    fn lock(&self) -> MutexGuard<'_, PendingState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the batch size after an append.
    fn note_answered(&self, batch_size: &mut AdaptiveBatch, answered: usize) {
        let inner = self.lock();
        batch_size.note_answered(answered, inner.records.len(), inner.arrived);
    }

    /// Takes all pending records once there are at least `least`; if one is sufficient, a requested comparison is, too.
    /// `None` at the end.
    async fn take(&self, least: usize) -> Option<NextAppend> {
        loop {
            {
                let mut inner = self.lock();
                let is_enough = inner.closed || inner.records.len() >= least || least == 1 && inner.compare.is_some();
                if is_enough && let Some(taken) = inner.take() {
                    return Some(taken);
                }
                if inner.closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    fn stop(&self) {
        let mut inner = self.lock();
        *inner = PendingState {
            last_append: inner.last_append,
            stopped: true,
            closed: inner.closed,
            ..PendingState::default()
        };
    }
}

impl PendingState {
    fn take(&mut self) -> Option<NextAppend> {
        let (records, compare) = (std::mem::take(&mut self.records), self.compare.take());
        let before = |record: &Record| Position(record.header.position.0 - 1);
        let after = records.first().map(before).or(compare)?;
        self.bytes = 0;
        self.last_append.0 += 1;
        Some(NextAppend { after, batch: AppendBatch { number: self.last_append, records } })
    }
}

/// Whether the position of a record is the next one after that of another.
fn follows(record: &Record, before: &Record) -> bool {
    record.header.position == before.header.position.next()
}

/// The next append.
struct NextAppend {
    after: Position,
    batch: AppendBatch,
}
