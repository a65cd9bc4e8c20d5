//! The writer: the one task that owns the order of the log.
//!
//! ```text
//!   commands ──▶ decide ──▶ gathering ──▶ append ──▶ apply ──▶ answer
//!                  ▲        (overlay)    (appender)    │
//!                  └────────── state ◀─────────────────┘
//! ```
//!
//! - It shares its threads with those who ask: asking and answering wake no thread. Writing is left to the appender; what
//!   it reads itself are rows of the tables, mostly from RAM.
//! - While one batch is being made durable the next one is decided; the appender takes it the moment the first is done.
//! - Every answer waits for the durability of all that was decided before it, refusals included: they may rest on it.
//! - Where others write to the log too, what was decided without a record also waits until the log has confirmed that
//!   nobody was faster.
//! - When another process was faster, the overlay is dropped, the log is read, and the same commands are decided anew.
//! - While the log's server is away, new commands are refused and those under way wait a while ([`super::away`]).
//! - A log that does not hold any more what was read from it ([`LogError::Diverged`]) fails the ledger: nothing more is
//!   answered from what it knew.
//! - After a failed append nothing is promised any more; every command is refused until the broker is opened again.

pub(super) mod appender;
mod batch_size;
pub(super) mod command;
mod inbox;
mod outage;

use super::failure::unavailable;
use super::state::LedgerState;
use super::{LedgerView, WriterMessage};
use crate::clock::LogClock;
use crate::ledger::decide::decision::Decision;
use crate::ledger::decide::overlay::Overlay;
use crate::ledger::disk::checkpoint::CheckpointScheduler;
use crate::ledger::state::{catch_up, dead_letters};
use appender::{AppendBatch, AppendNumber, Appender, FailedAppend};
use command::QueuedCommand;
use contract::{Error, Position};
use inbox::{TAKE_MAX, fitting, gather, refill};
use log::{Log, LogError, Record, StorageRoom, TopicNumber};
use outage::{ANSWER_MAX, LogOutage, RetryBudget};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::MissedTickBehavior;

/// Bytes of bodies that may gather behind the batch on its way to disk; what comes later waits.
const GATHERED_BYTES_MAX: usize = 2 * 1024 * 1024;
/// This many decided records are handed over, so that an idle disk need not wait for the rest.
const HAND_OVER_RECORDS: usize = 64;

/// An idle ledger compares what it knows with a log that others share about this often.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The log has this long to answer then.
const LOOK_MAX: Duration = Duration::from_secs(5);

const BEHIND: &str = "what the log is said to hold cannot be read from it; it is read again";

pub(super) struct LedgerWriter {
    pub(super) log: Arc<dyn Log>,
    pub(super) clock: Arc<LogClock>,
    pub(super) state: LedgerState,
    pub(super) overlay: Overlay,
    pub(super) appender: Appender,
    pub(super) shared: Arc<LedgerView>,
    pub(super) checkpoints: CheckpointScheduler,
    /// Decided jobs, each with what must be so before its answer is true.
    pub(super) waiting: VecDeque<(AnswerDependency, Box<dyn QueuedCommand>)>,
    /// The last append that succeeded.
    pub(super) last_appended: AppendNumber,
    /// Something was decided that adds nothing, and the log must confirm that it is up to date.
    pub(super) must_compare: bool,
    /// While the log's server cannot be reached.
    pub(super) outage: Option<LogOutage>,
    /// It was away, and nothing was written since.
    pub(super) retry_budget: Option<RetryBudget>,
    /// The last append found no room.
    pub(super) was_full: bool,
    /// Why nothing is promised any more.
    pub(super) failed: Option<Error>,
}

/// What must be so before an answer is true.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnswerDependency {
    /// Durable up to here.
    position: Position,
    /// This append, or a later one, succeeded.
    turn: AppendNumber,
}

impl LedgerWriter {
    /// Works until every handle to the ledger is gone, or until it is closed.
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<WriterMessage>) {
        let mut tail = self.log.tail();
        let mut taken = Vec::with_capacity(TAKE_MAX);
        let is_shared = self.log.is_shared();
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.reset();
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let checkpointed = self.checkpoints.ended();
        let closing = loop {
            let has_room = self.appender.bytes() < GATHERED_BYTES_MAX;
            let is_idle = self.waiting.is_empty() && self.failed.is_none() && self.outage.is_none();
            tokio::select! {
                biased;
                appended = self.appender.appended.recv(), if self.failed.is_none() => self.settle(appended).await,
                () = checkpointed.notified() => self.collect_checkpoint(),
                () = refill(&mut taken, &mut inbox), if has_room => {
                    if taken.is_empty() {
                        break None;
                    }
                    gather(&mut taken, &mut inbox).await;
                    if let Some(closing) = self.take(&mut taken) {
                        break Some(closing);
                    }
                }
                moved = tail.changed(), if is_idle => self.follow(moved.is_ok(), &tail).await,
                // A log that went back and grew to the same length again moves no tail.
                _ = look.tick(), if is_idle && is_shared => self.check_log().await,
                () = LogOutage::next_try(self.outage.as_mut()), if self.outage.is_some() => self.retry_log().await,
            }
        };
        // Whoever is still waiting in it is told so now, and not when everything has ended.
        drop(inbox);
        self.finish(closing).await;
    }

    /// Handles what was waiting, as much of it as fits; answers whom to tell if one of them was the order to close.
    fn take(&mut self, taken: &mut Vec<WriterMessage>) -> Option<oneshot::Sender<()>> {
        let now = self.clock.now();
        self.state.clock_hold = self.clock.hold();
        let mut closing = None;
        for message in taken.drain(..fitting(taken)) {
            match message {
                WriterMessage::Command(job) => self.decide(job, now),
                WriterMessage::Query(ask) => ask(&self.state),
                WriterMessage::Checkpoint(reply) => self.checkpoints.request(&mut self.state, now, reply),
                WriterMessage::Close(reply) => closing = Some(reply),
            }
            if self.overlay.records() >= HAND_OVER_RECORDS {
                self.send_to_appender();
            }
        }
        self.send_to_appender();
        closing
    }

    fn decide(&mut self, mut job: Box<dyn QueuedCommand>, now: i64) {
        if let Some(error) = self.failed.as_ref().or(self.outage.as_ref().map(LogOutage::refusal)) {
            return job.answer(Err(error.clone()));
        }
        if let Some(error) = self.checkpoints.refusal(self.state.dirty_rows()) {
            self.checkpoints.start_if_due(&mut self.state, now);
            return job.answer(Err(error));
        }
        let room = self.log.room();
        self.was_full &= room == StorageRoom::Full;
        let mut decision = Decision::new(&self.state, &mut self.overlay, now);
        decision.room = room;
        let before = decision.position();
        job.decide(&mut decision);
        let position = decision.position();
        let mut turn = AppendNumber::default();
        if position == before && self.log.is_shared() {
            self.must_compare = true;
            turn = self.appender.next_append();
        }
        self.waiting.push_back((AnswerDependency { position, turn }, job));
        match self.state.table_failure.get().cloned() {
            Some(error) => self.give_up_tables(error),
            None => self.answer_durable(),
        }
    }

    /// Takes over a checkpoint that is done, and tells readiness whether it failed.
    fn collect_checkpoint(&mut self) {
        let now = self.clock.now();
        self.checkpoints.collect(&mut self.state, now);
        // Somebody may have asked for a later one.
        self.checkpoints.start_if_due(&mut self.state, now);
        self.shared.report_warning(self.checkpoints.warning());
    }

    /// Nothing can be decided on half a memory: the tables are left to be rebuilt by the next opening.
    fn give_up_tables(&mut self, error: Error) {
        // One that is being written would put its tables in force again: it is waited for at the end.
        if !self.checkpoints.is_running() {
            self.condemn_tables();
        }
        self.fail(error);
    }

    fn condemn_tables(&mut self) {
        if let Err(error) = self.state.disk_tables.condemn() {
            // The next opening meets the same damage and says the same.
            tracing::warn!(%error, "the broker's tables could not be marked as unreadable");
        }
    }

    fn send_to_appender(&mut self) {
        self.appender.add(self.overlay.take_records());
        if std::mem::take(&mut self.must_compare) {
            self.appender.compare(self.overlay.position().max(self.state.position()));
        }
    }

    /// A batch's append is over; nothing is appended any more where there is none.
    async fn settle(&mut self, appended: Option<Result<AppendBatch, FailedAppend>>) {
        match appended {
            Some(Ok(AppendBatch { turn, records })) => {
                self.retry_budget = None;
                self.was_full = false;
                self.last_appended = turn;
                if let Err(error) = self.apply(&records) {
                    return self.fail(unavailable(error));
                }
                self.answer_durable();
                self.checkpoints.start_if_due(&mut self.state, self.clock.now());
            }
            Some(Err(FailedAppend { error: LogError::TailMoved(tail), .. })) if tail < self.state.position() => {
                self.fail(unavailable(LogError::Diverged(self.state.position())));
            }
            Some(Err(FailedAppend { error: LogError::TailMoved(tail), .. })) => self.decide_again(tail).await,
            Some(Err(FailedAppend { error: LogError::Full(cause), .. })) => self.on_full_log(cause),
            Some(Err(FailedAppend { error, unsure })) => self.on_log_error(error, unsure),
            None => self.fail(unavailable(stopped())),
        }
    }

    /// Puts durable records into the state and shows them to readers.
    fn apply(&mut self, records: &[Record]) -> Result<(), LogError> {
        for record in records {
            self.state.apply(record)?;
            self.overlay.remove_durable(record);
            dead_letters::log_new_letter(record);
        }
        if records.is_empty() {
            return Ok(());
        }
        self.clock.observe(self.state.time);
        let topics = records.chunk_by(|one, next| one.header.topic == next.header.topic);
        self.shared.show(&self.state, topics.filter_map(|run| run.first()).map(|record| record.header.topic));
        Ok(())
    }

    fn answer_durable(&mut self) {
        self.answer_through(self.state.position(), self.last_appended);
    }

    fn answer_through(&mut self, position: Position, turn: AppendNumber) {
        let is_so = |rests_on: &AnswerDependency| rests_on.position <= position && rests_on.turn <= turn;
        while let Some((_, job)) = self.waiting.pop_front_if(|(rests_on, _)| is_so(rests_on)) {
            job.answer(Ok(()));
        }
    }

    /// Another process was faster: read what it wrote, and decide the same commands on that.
    async fn decide_again(&mut self, tail: Position) {
        self.overlay.clear();
        self.appender.resume();
        if let Err(error) = self.catch_up().await {
            return self.on_log_error(error, Vec::new());
        }
        if self.state.position() < tail {
            // Deciding the same again would lose again, at once and for ever.
            return self.on_log_error(LogError::Unavailable(Arc::new(io::Error::other(BEHIND))), Vec::new());
        }
        self.decide_waiting();
    }

    /// Decides what waits, on the state as it is now.
    fn decide_waiting(&mut self) {
        let now = self.clock.now();
        for (_, job) in std::mem::take(&mut self.waiting) {
            self.decide(job, now);
        }
        self.send_to_appender();
    }

    /// The tail moved while nothing of this process was on its way: somebody else wrote, or the log went back.
    async fn follow(&mut self, log_is_open: bool, tail: &watch::Receiver<Position>) {
        let tail = *tail.borrow();
        match log_is_open {
            false => self.fail(unavailable(stopped())),
            true if tail != self.state.position() => self.decide_again(tail).await,
            true => (),
        }
    }

    /// Compares what is known with the log while nothing is to be done. A server that does not answer is away.
    async fn check_log(&mut self) {
        self.overlay.clear();
        self.appender.resume();
        match tokio::time::timeout(LOOK_MAX, self.catch_up()).await {
            Ok(Ok(())) => (),
            Ok(Err(error)) => self.on_log_error(error, Vec::new()),
            Err(_) => self.on_log_error(LogError::Unavailable(Arc::new(io::ErrorKind::TimedOut.into())), Vec::new()),
        }
    }

    /// Folds what was written since, and shows it, also when reading stops half way.
    async fn catch_up(&mut self) -> Result<(), LogError> {
        let mut topics: Vec<TopicNumber> = Vec::new();
        let before = self.state.position();
        let outage = &mut self.outage;
        let outcome = catch_up::catch_up(self.log.as_ref(), &mut self.state, |_, page| {
            topics.extend(page.iter().map(|record| record.header.topic));
            topics.sort_unstable();
            topics.dedup();
            outage.iter_mut().for_each(|outage| outage.compare(page));
        })
        .await;
        if self.state.position() > before {
            self.clock.observe(self.state.time);
            self.shared.show(&self.state, topics.into_iter());
            self.checkpoints.start_if_due(&mut self.state, self.clock.now());
        }
        outcome
    }

    /// There was no room for what was decided, and nothing of it was written. It is decided again: by now the log says that
    /// it is full, and only what frees space is stored. If there is no room even for that, everything is refused.
    fn on_full_log(&mut self, cause: Arc<io::Error>) {
        self.overlay.clear();
        self.appender.resume();
        if std::mem::replace(&mut self.was_full, true) {
            return self.refuse_waiting(&unavailable(LogError::Full(cause)));
        }
        self.decide_waiting();
    }

    /// The log did not do as it was asked: its server is away, or it has failed for good. `unsure` is what was on its way.
    fn on_log_error(&mut self, error: LogError, unsure: Vec<AppendBatch>) {
        if !matches!(error, LogError::Unavailable(_)) {
            return self.fail(unavailable(error));
        }
        let error = unavailable(error);
        self.shared.report_outage(&error);
        self.outage = Some(LogOutage::new(error, unsure, self.retry_budget.take()));
        self.refuse_timed_out();
    }

    /// Looks whether the log's server is back; if so, what was under way goes on.
    async fn retry_log(&mut self) {
        let outcome = tokio::time::timeout(ANSWER_MAX, self.catch_up()).await;
        let answer = if outcome.is_ok() { Duration::ZERO } else { ANSWER_MAX };
        self.outage.iter_mut().for_each(|outage| outage.note_attempt(answer));
        match outcome {
            Ok(Ok(())) => self.end_outage(),
            Ok(Err(LogError::Unavailable(_))) | Err(_) => self.refuse_timed_out(),
            Ok(Err(error)) => self.fail(unavailable(error)),
        }
    }

    fn refuse_timed_out(&mut self) {
        if self.outage.as_ref().is_some_and(|outage| outage.retry_budget().is_exhausted()) {
            self.refuse_waiting(&LogOutage::outcome_unknown());
        }
    }

    /// The log can be read again. An append that ended half way is there or not: who waited for it is answered as it was
    /// decided, or decided anew like everybody else.
    fn end_outage(&mut self) {
        let Some(outage) = self.outage.take() else { return };
        let stored = outage.stored();
        self.retry_budget = stored.is_none().then(|| outage.retry_budget());
        self.shared.report_recovered();
        // A try that took too long may have folded what it did not show.
        self.shared.show(&self.state, self.state.registry().topics().map(|topic| topic.number));
        self.overlay.clear();
        self.appender.resume();
        if let Some((turn, through)) = stored {
            self.answer_through(through, turn);
        }
        self.decide_waiting();
    }

    fn refuse_waiting(&mut self, error: &Error) {
        for (_, job) in std::mem::take(&mut self.waiting) {
            job.answer(Err(error.clone()));
        }
    }

    /// Refuses everything that waits, and all that will come.
    fn fail(&mut self, error: Error) {
        self.overlay.clear();
        self.outage = None;
        self.shared.report_failure(&error);
        self.refuse_waiting(&error);
        self.failed = Some(error);
    }

    /// Completes what was accepted, leaves a checkpoint, and tells who asked for the end.
    async fn finish(mut self, closing: Option<oneshot::Sender<()>>) {
        while !self.waiting.is_empty() {
            if self.outage.is_some() {
                LogOutage::next_try(self.outage.as_mut()).await;
                self.retry_log().await;
            } else {
                let appended = self.appender.appended.recv().await;
                self.settle(appended).await;
            }
        }
        self.appender.close().await;
        // Writes files, which is not for a thread that others share. If it panics, it has said so.
        let _ = tokio::task::spawn_blocking(move || self.shut_down()).await;
        if let Some(reply) = closing {
            let _ = reply.send(());
        }
    }

    /// Leaves a checkpoint and lets go of the log.
    fn shut_down(mut self) {
        // One that is being written has the folder until it ends.
        self.checkpoints.collect(&mut self.state, self.clock.now());
        if self.state.table_failure.get().is_some() {
            self.condemn_tables();
        } else if self.failed.is_none() {
            self.checkpoints.write_last(&mut self.state, self.clock.now());
        }
    }
}

fn stopped() -> LogError {
    LogError::Io(Arc::new(std::io::Error::other("the engine has stopped")))
}
