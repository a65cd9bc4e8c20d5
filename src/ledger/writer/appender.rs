//! The appender: makes decided records durable, batch by batch.
//!
//! - It is a task beside the writer; over a log that holds up its thread, it has one of its own.
//! - It takes whatever has been decided while it was busy, as one batch: the slower the disk, the larger the batches.
//! - A log that does not hold up its thread is given the next batch while it is still busy with the one before, once
//!   everybody who was just answered is back: with fewer, larger batches it does more.
//! - It never waits for the writer: the disk goes from one batch to the next while the first one is applied and answered.
//! - What was decided without a record rests on the log too. Where others may write to it, an append that begins after the
//!   decision must succeed before that is told: one with records, or an empty one that only compares.
//! - After a failed append it takes nothing more until the writer has dealt with it: what was decided since rests on it.

use super::batch_size::AdaptiveBatch;
use contract::{BoxFuture, Position};
use futures_util::stream::{FuturesOrdered, StreamExt};
use log::{Log, LogError, Record};
use std::future::{poll_fn, ready};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use tokio::sync::{Notify, mpsc};

/// Appends begun and not ended, where the log lets them follow each other.
const UNDER_WAY_MAX: usize = 2;

/// What one append puts into the log.
#[derive(Debug)]
pub(in crate::ledger) struct AppendBatch {
    pub(in crate::ledger) turn: AppendNumber,
    pub(in crate::ledger) records: Vec<Record>,
}

/// An append that failed.
pub(in crate::ledger) struct FailedAppend {
    pub(in crate::ledger) error: LogError,
    /// Its batch, and those begun behind it.
    pub(in crate::ledger) unsure: Vec<AppendBatch>,
}

/// The number of an append, counted from 1 in the order they begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(in crate::ledger) struct AppendNumber(u64);

/// The writer's end: where decided records gather, and what has become of those that were taken.
pub(in crate::ledger) struct Appender {
    gathering: Arc<PendingRecords>,
    pub(in crate::ledger) appended: mpsc::UnboundedReceiver<Result<AppendBatch, FailedAppend>>,
}

/// Records decided but not taken yet.
#[derive(Default)]
struct PendingRecords {
    inner: Mutex<PendingState>,
    changed: Notify,
}

#[derive(Default)]
struct PendingState {
    /// The last append begun.
    turn: AppendNumber,
    records: Vec<Record>,
    /// Records that have come since it was started, or started over.
    arrived: usize,
    bytes: usize,
    /// An append is wanted even without records: is the tail here?
    compare: Option<Position>,
    /// An append failed: nothing is taken, and nothing gathers, until the writer starts over.
    stopped: bool,
    closed: bool,
}

impl Appender {
    /// Starts it.
    pub(in crate::ledger) fn start(log: Arc<dyn Log>) -> io::Result<Self> {
        let gathering = Arc::new(PendingRecords::default());
        let (report, appended) = mpsc::unbounded_channel();
        match log.blocks() {
            true => {
                let runtime = tokio::runtime::Builder::new_current_thread().build()?;
                let work = work(Arc::clone(&gathering), log, report);
                let thread = std::thread::Builder::new().name("event-broker-append".to_owned());
                thread.spawn(move || runtime.block_on(work))?;
            }
            false => drop(tokio::spawn(work(Arc::clone(&gathering), log, report))),
        }
        Ok(Self { gathering, appended })
    }

    /// Hands over decided records, in order.
    pub(in crate::ledger) fn add(&self, mut records: Vec<Record>) {
        let mut inner = self.gathering.lock();
        if records.is_empty() || inner.stopped {
            return;
        }
        inner.arrived += records.len();
        inner.bytes += records.iter().map(|record| record.body.len()).sum::<usize>();
        match inner.records.is_empty() {
            true => inner.records = records,
            false => inner.records.append(&mut records),
        }
        self.gathering.changed.notify_one();
    }

    /// Has the tail compared with `position` by the next append, if there is nothing to append.
    pub(in crate::ledger) fn compare(&self, position: Position) {
        let mut inner = self.gathering.lock();
        if !inner.stopped {
            inner.compare = Some(position);
            self.gathering.changed.notify_one();
        }
    }

    /// The first append that begins after now.
    pub(in crate::ledger) fn next_append(&self) -> AppendNumber {
        AppendNumber(self.gathering.lock().turn.0 + 1)
    }

    /// Bytes that wait to be taken.
    pub(in crate::ledger) fn bytes(&self) -> usize {
        self.gathering.lock().bytes
    }

    /// The writer has dealt with a failure; what comes now is decided anew.
    pub(in crate::ledger) fn resume(&self) {
        let mut inner = self.gathering.lock();
        *inner = PendingState { turn: inner.turn, ..PendingState::default() };
    }

    /// Ends it, once it has appended what it was given and let go of the log.
    pub(in crate::ledger) async fn close(&mut self) {
        self.gathering.close();
        while self.appended.recv().await.is_some() {}
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        self.gathering.close();
    }
}

/// Appends whatever gathers, until it is closed. The end of its reports says that it has let go of the log.
async fn work(
    gathering: Arc<PendingRecords>,
    log: Arc<dyn Log>,
    report: mpsc::UnboundedSender<Result<AppendBatch, FailedAppend>>,
) {
    let most = if log.blocks() { 1 } else { UNDER_WAY_MAX };
    let mut under_way = FuturesOrdered::new();
    let (mut batch_size, mut open) = (AdaptiveBatch::default(), true);
    while open || !under_way.is_empty() {
        let least = if under_way.is_empty() { 1 } else { batch_size.min_records() };
        let ended = tokio::select! {
            biased;
            Some(ended) = under_way.next() => ended,
            taken = gathering.take(least), if open && under_way.len() < most => {
                match taken {
                    Some(taken) => {
                        batch_size.note_taken(taken.batch.records.len());
                        under_way.push_back(begin(log.as_ref(), taken).await);
                    }
                    None => open = false,
                }
                continue;
            }
        };
        let ended = match ended {
            Ok(batch) => {
                gathering.note_answered(&mut batch_size, batch.records.len());
                Ok(batch)
            }
            Err(mut failed) => {
                batch_size = AdaptiveBatch::default();
                gathering.stop();
                while let Some(behind) = under_way.next().await {
                    failed.unsure.extend(behind.map_or_else(|failed| failed.unsure, |batch| vec![batch]));
                }
                Err(failed)
            }
        };
        if report.send(ended).is_err() {
            break;
        }
    }
    drop(under_way);
    drop(log);
}

/// Begins an append here and now: before anybody looks whether the one in front of it has failed, so that it fails too.
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

    /// Tells `crowd` of an answer.
    fn note_answered(&self, batch_size: &mut AdaptiveBatch, answered: usize) {
        let inner = self.lock();
        batch_size.note_answered(answered, inner.records.len(), inner.arrived);
    }

    /// Everything gathered, as soon as there are `least` records; where one is enough, so is a tail to compare. `None` at
    /// the end.
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
        *inner = PendingState { turn: inner.turn, stopped: true, closed: inner.closed, ..PendingState::default() };
    }
}

impl PendingState {
    fn take(&mut self) -> Option<NextAppend> {
        let (records, compare) = (std::mem::take(&mut self.records), self.compare.take());
        let before = |record: &Record| Position(record.header.position.0 - 1);
        let after = records.first().map(before).or(compare)?;
        self.bytes = 0;
        self.turn.0 += 1;
        Some(NextAppend { after, batch: AppendBatch { turn: self.turn, records } })
    }
}

/// What the next append is to do.
struct NextAppend {
    after: Position,
    batch: AppendBatch,
}
