//! The writer: the one task that owns the order of the log.
//!
//! ```text
//!   commands ──▶ decide ──▶ gathering ──▶ append ──▶ apply ──▶ answer
//!                  ▲        (overlay)    (appender)    │
//!                  └────────── state ◀─────────────────┘
//! ```
//!
//! - While one batch is being made durable the next one is decided; the appender takes it the moment the first is done.
//! - Every answer waits for the durability of all that was decided before it, refusals included: they may rest on it.
//! - When another process was faster, the overlay is dropped, the log is read, and the same commands are decided anew.
//! - After a failed append nothing is promised any more; every command is refused until the broker is opened again.

use super::appender::{Appended, Appender};
use super::checkpoint::Checkpoints;
use super::command::Job;
use super::decision::{Decision, Overlay};
use super::state::State;
use super::{Message, Shared, fold};
use crate::clock::Clock;
use contract::{Error, Kind, Position};
use log::{Log, LogError, Record, TopicNumber};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};

/// Bytes of bodies that may gather behind the batch on its way to disk; what comes later waits.
const GATHERED_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Most commands taken from the queue at once.
const TAKE_MAX: usize = 128;
/// This many decided records are handed over, so that an idle disk need not wait for the rest.
const HAND_OVER_RECORDS: usize = 64;

pub(super) struct Writer {
    pub(super) log: Arc<dyn Log>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) state: State,
    pub(super) overlay: Overlay,
    pub(super) appender: Appender,
    pub(super) shared: Arc<Shared>,
    pub(super) checkpoints: Checkpoints,
    /// Decided jobs, each with the position that must be durable before its answer is true.
    pub(super) waiting: VecDeque<(Position, Box<dyn Job>)>,
    /// Why nothing is promised any more.
    pub(super) failed: Option<Error>,
}

impl Writer {
    /// Works until every handle to the ledger is gone, or until it is closed.
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<Message>) {
        let mut tail = self.log.tail();
        let mut taken = Vec::with_capacity(TAKE_MAX);
        let closing = loop {
            let has_room = self.appender.bytes() < GATHERED_BYTES_MAX;
            let is_idle = self.waiting.is_empty() && self.failed.is_none();
            tokio::select! {
                biased;
                appended = self.appender.appended.recv(), if self.failed.is_none() => self.settle(appended).await,
                count = inbox.recv_many(&mut taken, TAKE_MAX), if has_room => {
                    if count == 0 {
                        break None;
                    }
                    if let Some(closing) = self.take(&mut taken) {
                        break Some(closing);
                    }
                }
                moved = tail.changed(), if is_idle => self.follow(moved.is_ok(), &tail).await,
            }
        };
        self.finish(closing).await;
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
            if self.overlay.records() >= HAND_OVER_RECORDS {
                self.hand_over();
            }
        }
        self.hand_over();
        closing
    }

    fn decide(&mut self, mut job: Box<dyn Job>, now: i64) {
        if let Some(error) = &self.failed {
            return job.answer(Err(error.clone()));
        }
        let mut decision = Decision::new(&self.state, &mut self.overlay, now);
        job.decide(&mut decision);
        let rests_on = decision.position();
        self.waiting.push_back((rests_on, job));
        match self.state.table_failure.get().cloned() {
            Some(error) => self.give_up_tables(error),
            None => self.answer_durable(),
        }
    }

    /// Nothing can be decided on half a memory: the tables are left to be rebuilt by the next opening.
    fn give_up_tables(&mut self, error: Error) {
        self.checkpoints.collect(&mut self.state);
        // If even that fails, the next opening meets the same damage and says the same.
        let _ = self.state.tables.condemn();
        self.fail(error);
    }

    fn hand_over(&mut self) {
        self.appender.add(self.overlay.take_records());
    }

    /// A batch's append is over; nothing is appended any more where there is none.
    async fn settle(&mut self, appended: Option<Appended>) {
        let Some(Appended { records, outcome }) = appended else {
            return self.fail(unavailable(stopped()));
        };
        match outcome {
            Ok(()) => {
                self.apply(&records);
                self.answer_durable();
                self.checkpoints.consider(&mut self.state, self.clock.now());
            }
            Err(LogError::TailMoved(_)) => self.decide_anew().await,
            Err(error) => self.fail(unavailable(error)),
        }
    }

    /// Puts durable records into the state and shows them to readers.
    fn apply(&mut self, records: &[Record]) {
        for record in records {
            self.state.apply(record);
            self.overlay.settled(record);
        }
        let topics = records.chunk_by(|one, next| one.header.topic == next.header.topic);
        self.shared.show(&self.state, topics.filter_map(|run| run.first()).map(|record| record.header.topic));
    }

    fn answer_durable(&mut self) {
        let durable = self.state.position();
        while let Some((_, job)) = self.waiting.pop_front_if(|(rests_on, _)| *rests_on <= durable) {
            job.answer(Ok(()));
        }
    }

    /// Another process was faster: read what it wrote, and decide the same commands on that.
    async fn decide_anew(&mut self) {
        self.overlay.clear();
        self.appender.start_over();
        if let Err(error) = self.catch_up().await {
            return self.fail(unavailable(error));
        }
        let now = self.clock.now();
        for (_, job) in std::mem::take(&mut self.waiting) {
            self.decide(job, now);
        }
        self.hand_over();
    }

    /// The tail moved while nothing of this process was on its way: somebody else wrote.
    async fn follow(&mut self, log_is_open: bool, tail: &watch::Receiver<Position>) {
        let moved = *tail.borrow() > self.state.position();
        match log_is_open {
            false => self.fail(unavailable(stopped())),
            true if moved => self.decide_anew().await,
            true => (),
        }
    }

    async fn catch_up(&mut self) -> Result<(), LogError> {
        let mut topics: Vec<TopicNumber> = Vec::new();
        let before = self.state.position();
        fold::catch_up(self.log.as_ref(), &mut self.state, |_, page| {
            topics.extend(page.iter().map(|record| record.header.topic));
            topics.sort_unstable();
            topics.dedup();
        })
        .await?;
        if self.state.position() > before {
            self.shared.show(&self.state, topics.into_iter());
        }
        Ok(())
    }

    /// Refuses everything that waits, and all that will come.
    fn fail(&mut self, error: Error) {
        self.overlay.clear();
        self.shared.report_failure(&error);
        for (_, job) in std::mem::take(&mut self.waiting) {
            job.answer(Err(error.clone()));
        }
        self.failed = Some(error);
    }

    /// Completes what was accepted, leaves a checkpoint, and tells who asked for the end.
    async fn finish(mut self, closing: Option<oneshot::Sender<()>>) {
        while !self.waiting.is_empty() {
            let appended = self.appender.appended.recv().await;
            self.settle(appended).await;
        }
        self.appender.close();
        if self.failed.is_none() {
            self.checkpoints.last(&mut self.state, self.clock.now());
        }
        drop(self);
        if let Some(reply) = closing {
            let _ = reply.send(());
        }
    }
}

fn stopped() -> LogError {
    LogError::Io(Arc::new(std::io::Error::other("the engine has stopped")))
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
