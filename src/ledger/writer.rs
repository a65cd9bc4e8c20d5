//! The writer: the one task that owns the order of the log.
//!
//! ```text
//!   commands ──▶ decide ──▶ group being formed ──▶ append ──▶ apply ──▶ answer
//!                  ▲             (overlay)        (1 in flight)  │
//!                  └──────────── state ◀─────────────────────────┘
//! ```
//!
//! - While one group is being made durable the next one is decided; it is appended the moment the first is done.
//! - Every answer of a group, refusals included, is given after its append: a refusal may rest on what the group wrote.
//! - When another process was faster, the overlay is dropped, the log is read, and the same commands are decided anew.
//! - After a failed append nothing is promised any more; every command is refused until the broker is opened again.

use super::checkpoint::Checkpoints;
use super::command::Job;
use super::decision::{Decision, Overlay};
use super::state::State;
use super::{Message, Shared, fold};
use crate::clock::Clock;
use contract::{BoxFuture, Error, Kind, Position};
use log::{Log, LogError, Record, TopicNumber};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::{mpsc, oneshot, watch};

/// Largest group, in bytes of bodies; what comes later waits for the next one.
const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most commands taken from the queue at once.
const TAKE_MAX: usize = 1024;

pub(super) struct Writer {
    pub(super) log: Arc<dyn Log>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) state: State,
    pub(super) overlay: Overlay,
    pub(super) shared: Arc<Shared>,
    pub(super) checkpoints: Checkpoints,
    /// Jobs decided into the group being formed, in order.
    pub(super) forming: Vec<Box<dyn Job>>,
    /// Why nothing is promised any more.
    pub(super) failed: Option<Error>,
}

/// A group on its way to the disk.
struct InFlight {
    jobs: Vec<Box<dyn Job>>,
    records: Vec<Record>,
    append: BoxFuture<'static, Result<(), LogError>>,
}

impl Writer {
    /// Works until every handle to the ledger is gone, or until it is closed.
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<Message>) {
        let mut tail = self.log.tail();
        let mut in_flight: Option<InFlight> = None;
        let mut taken = Vec::with_capacity(TAKE_MAX);
        let closing = loop {
            if in_flight.is_none() {
                in_flight = self.start_append().await;
            }
            let has_room = self.overlay.bytes() < GROUP_BYTES_MAX;
            tokio::select! {
                biased;
                durable = finished(&mut in_flight), if in_flight.is_some() => {
                    in_flight = self.complete(in_flight.take(), durable).await;
                }
                count = inbox.recv_many(&mut taken, TAKE_MAX), if has_room => {
                    if count == 0 {
                        break None;
                    }
                    if let Some(closing) = self.take(&mut taken) {
                        break Some(closing);
                    }
                }
                moved = tail.changed(), if in_flight.is_none() => self.follow(moved.is_ok(), &tail).await,
            }
        };
        self.finish(in_flight, closing).await;
    }

    /// Handles what was waiting; answers whom to tell if one of them was the order to close.
    fn take(&mut self, taken: &mut Vec<Message>) -> Option<oneshot::Sender<()>> {
        let now = self.clock.now();
        let mut closing = None;
        for message in taken.drain(..) {
            match message {
                Message::Job(job) => self.decide(job, now),
                Message::Ask(ask) => ask(&self.state),
                Message::Checkpointed => self.checkpoints.collect(&mut self.state),
                Message::Close(reply) => closing = Some(reply),
            }
        }
        closing
    }

    fn decide(&mut self, mut job: Box<dyn Job>, now: i64) {
        if let Some(error) = &self.failed {
            return job.answer(Err(error.clone()));
        }
        job.decide(&mut Decision::new(&self.state, &mut self.overlay, now));
        self.forming.push(job);
        if let Some(error) = self.state.table_failure.get().cloned() {
            self.checkpoints.collect(&mut self.state);
            // If even that fails, the next opening meets the same damage and says the same.
            let _ = self.state.tables.condemn();
            self.fail(error, Vec::new());
        }
    }

    /// Sends the group being formed on its way. A group that wrote nothing is answered at once: nothing it could rest
    /// on is in flight.
    async fn start_append(&mut self) -> Option<InFlight> {
        if self.forming.is_empty() {
            return None;
        }
        let jobs = std::mem::take(&mut self.forming);
        let records = self.overlay.take_records();
        let Some(first) = records.first() else {
            jobs.into_iter().for_each(|job| job.answer(Ok(())));
            return None;
        };
        let after = Position(first.header.position.0 - 1);
        let log = Arc::clone(&self.log);
        let batch = records.clone();
        let mut append: BoxFuture<'static, _> = Box::pin(async move { log.append(after, batch).await });
        // The first poll hands the batch to the engine, before anybody is answered.
        let mut early = None;
        std::future::poll_fn(|context| {
            if let Poll::Ready(result) = append.as_mut().poll(context) {
                early = Some(result);
            }
            Poll::Ready(())
        })
        .await;
        if let Some(result) = early {
            append = Box::pin(std::future::ready(result));
        }
        Some(InFlight { jobs, records, append })
    }

    /// The group's append is over: apply it, send the next one, then answer.
    async fn complete(&mut self, group: Option<InFlight>, durable: Result<(), LogError>) -> Option<InFlight> {
        let InFlight { jobs, records, .. } = group?;
        match durable {
            Ok(()) => {
                self.apply(&records);
                let next = self.start_append().await;
                jobs.into_iter().for_each(|job| job.answer(Ok(())));
                if self.failed.is_none() {
                    self.checkpoints.consider(&mut self.state, self.clock.now());
                }
                next
            }
            Err(LogError::TailMoved(_)) => {
                self.decide_anew(jobs).await;
                None
            }
            Err(error) => {
                self.fail(unavailable(error), jobs);
                None
            }
        }
    }

    /// Puts durable records into the state and shows them to readers.
    fn apply(&mut self, records: &[Record]) {
        for record in records {
            self.state.apply(record);
            self.overlay.settled(record);
        }
        self.shared.show(&self.state, records.iter().map(|record| record.header.topic));
    }

    /// Another process was faster: read what it wrote, and decide the same commands on that.
    async fn decide_anew(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        self.overlay.clear();
        jobs.append(&mut self.forming);
        match self.catch_up().await {
            Ok(()) => {
                let now = self.clock.now();
                jobs.into_iter().for_each(|job| self.decide(job, now));
            }
            Err(error) => self.fail(unavailable(error), jobs),
        }
    }

    /// The tail moved while this process wrote nothing: somebody else did.
    async fn follow(&mut self, log_is_open: bool, tail: &watch::Receiver<Position>) {
        let moved = *tail.borrow() > self.state.position();
        if self.failed.is_some() || !moved {
            return;
        }
        if !log_is_open {
            let stopped = LogError::Io(Arc::new(std::io::Error::other("the engine has stopped")));
            return self.fail(unavailable(stopped), Vec::new());
        }
        let jobs = std::mem::take(&mut self.forming);
        self.decide_anew(jobs).await;
    }

    async fn catch_up(&mut self) -> Result<(), LogError> {
        let mut topics: Vec<TopicNumber> = Vec::new();
        let before = self.state.position();
        fold::catch_up(self.log.as_ref(), &mut self.state, |record| {
            if !topics.contains(&record.header.topic) {
                topics.push(record.header.topic);
            }
        })
        .await?;
        if self.state.position() > before {
            self.shared.show(&self.state, topics.into_iter());
        }
        Ok(())
    }

    /// Refuses these commands, those of the group being formed, and all that will come.
    fn fail(&mut self, error: Error, jobs: Vec<Box<dyn Job>>) {
        self.overlay.clear();
        self.shared.report_failure(&error);
        for job in jobs.into_iter().chain(std::mem::take(&mut self.forming)) {
            job.answer(Err(error.clone()));
        }
        self.failed = Some(error);
    }

    /// Completes what was accepted, leaves a checkpoint, and tells who asked for the end.
    async fn finish(mut self, mut in_flight: Option<InFlight>, closing: Option<oneshot::Sender<()>>) {
        loop {
            if in_flight.is_none() {
                in_flight = self.start_append().await;
            }
            if in_flight.is_none() {
                break;
            }
            let durable = finished(&mut in_flight).await;
            in_flight = self.complete(in_flight.take(), durable).await;
        }
        if self.failed.is_none() {
            self.checkpoints.last(&mut self.state, self.clock.now());
        }
        drop(self);
        if let Some(reply) = closing {
            let _ = reply.send(());
        }
    }
}

async fn finished(in_flight: &mut Option<InFlight>) -> Result<(), LogError> {
    match in_flight {
        Some(group) => Pin::new(&mut group.append).await,
        None => std::future::pending().await,
    }
}

/// What a caller is told of an engine's failure; the failure itself is for the log.
pub(super) fn unavailable(error: LogError) -> Error {
    let detail = match &error {
        LogError::Poisoned(_) => "A write to the log failed, so nothing is promised until the broker is opened again.",
        LogError::Damaged(_) => "A stored record is damaged; run `event-broker verify` on the data folder.",
        _ => "The log cannot be reached at the moment.",
    };
    Error::new(Kind::Unavailable, detail).with_source(error).with_retry_after(5)
}
