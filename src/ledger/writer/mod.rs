//! The writer: the one task that owns the order of the log.
//!
//! ```text
//!   commands ──▶ decide ──▶ gathering ──▶ append ──▶ apply ──▶ answer
//!                  ▲        (overlay)    (appender)    │
//!                  └────────── state ◀─────────────────┘
//! ```
//!
//! - It is a task on the callers' threads: submitting and answering wake no other thread. The appender does the
//!   writing; the writer itself reads only rows of the tables, mostly from RAM.
//! - While one batch is being made durable, the next one is decided; the appender takes it as soon as the first is
//!   done.
//! - Every answer waits until everything decided before it is durable, refusals included: they may depend on it.
//! - If other processes write to the log, what was decided without a record also waits until the log has confirmed that
//!   no other process appended first.
//! - If another process appended first, the overlay is dropped, the log is read, and the same commands are decided
//!   again.
//! - While the log's server cannot be reached, new commands are refused and those in flight wait for a time
//!   ([`outage`]).
//! - A log that no longer holds what was read from it ([`LogError::Diverged`]) fails the ledger: no command is answered
//!   from the old state any more.
//! - After a failed append no promise can be made; every command is refused until the broker is opened again.

pub(super) mod appender;
mod batch_size;
pub(super) mod checkpoints;
pub(super) mod command;
mod inbox;
mod outage;

use super::failure::unavailable;
use super::state::LedgerState;
use super::{LedgerView, WriterMessage};
use crate::clock::LogClock;
use crate::ledger::decide::decision::Decision;
use crate::ledger::decide::growth::disk_full;
use crate::ledger::decide::overlay::Overlay;
use crate::ledger::state::{catch_up, dead_letters};
use appender::{AppendBatch, AppendNumber, Appender, FailedAppend};
use checkpoints::CheckpointScheduler;
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

/// Bytes of bodies that may be pending behind the append in flight; later commands wait.
const GATHERED_BYTES_MAX: usize = 2 * 1024 * 1024;
/// After this many decided records the appender receives them, so that an idle disk need not wait for the rest.
const HAND_OVER_RECORDS: usize = 64;

/// The interval at which an idle ledger compares its state with a shared log.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The time limit of that comparison.
const LOOK_MAX: Duration = Duration::from_secs(5);

const BEHIND: &str = "the log reports records that cannot be read from it; they are read again";

pub(super) struct LedgerWriter {
    pub(super) log: Arc<dyn Log>,
    pub(super) clock: Arc<LogClock>,
    pub(super) state: LedgerState,
    pub(super) overlay: Overlay,
    pub(super) appender: Appender,
    pub(super) shared: Arc<LedgerView>,
    pub(super) checkpoints: CheckpointScheduler,
    /// Decided commands, each with what its answer depends on.
    pub(super) waiting: VecDeque<(AnswerDependency, Box<dyn QueuedCommand>)>,
    /// The last append that succeeded.
    pub(super) last_appended: AppendNumber,
    /// A command was decided without a record, and the log must confirm that the state was up to date.
    pub(super) must_compare: bool,
    /// While the log's server cannot be reached.
    pub(super) outage: Option<LogOutage>,
    /// The budget of the last outage, while nothing was written since.
    pub(super) retry_budget: Option<RetryBudget>,
    /// The last append found no free space.
    pub(super) was_full: bool,
    /// Why every command is refused, if so.
    pub(super) failed: Option<Error>,
}

/// What an answer depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnswerDependency {
    /// Records up to here must be durable.
    position: Position,
    /// This append, or a later one, must have succeeded.
    append: AppendNumber,
}

impl LedgerWriter {
    /// Runs until every handle to the ledger is dropped, or until it is closed.
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
                // A log that was replaced by an older copy and grew to the same length again moves no tail.
                _ = look.tick(), if is_idle && is_shared => self.check_log().await,
                () = LogOutage::next_try(self.outage.as_mut()), if self.outage.is_some() => self.retry_log().await,
            }
        };
        // Callers in the queue are refused now, not when everything has ended.
        drop(inbox);
        self.finish(closing).await;
    }

    /// Handles the waiting messages, as many as fit. Returns the channel to confirm on if one of them closes the
    /// ledger.
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
        let mut append = AppendNumber::default();
        if position == before && self.log.is_shared() {
            self.must_compare = true;
            append = self.appender.next_append();
        }
        self.waiting.push_back((AnswerDependency { position, append }, job));
        match self.state.table_failure.get().cloned() {
            Some(error) => self.give_up_tables(error),
            None => self.answer_durable(),
        }
    }

    /// Collects a checkpoint that has ended, and reports to readiness whether it failed.
    fn collect_checkpoint(&mut self) {
        let now = self.clock.now();
        self.checkpoints.collect(&mut self.state, now);
        // A caller may have requested a later one.
        self.checkpoints.start_if_due(&mut self.state, now);
        self.shared.report_warning(self.checkpoints.warning());
    }

    /// No command can be decided while table rows are unreadable: the next opening rebuilds the tables.
    fn give_up_tables(&mut self, error: Error) {
        // A checkpoint that is being written would make its tables valid again: it is awaited at the end.
        if !self.checkpoints.is_running() {
            self.condemn_tables();
        }
        self.fail(error);
    }

    fn condemn_tables(&mut self) {
        if let Err(error) = self.state.disk_tables.condemn() {
            // The next opening finds the same damage and reports it.
            tracing::warn!(%error, "the broker's tables could not be marked as unreadable");
        }
    }

    fn send_to_appender(&mut self) {
        self.appender.add(self.overlay.take_records());
        if std::mem::take(&mut self.must_compare) {
            self.appender.compare(self.overlay.position().max(self.state.position()));
        }
    }

    /// Handles the result of an append; `None` means that the appender has stopped.
    async fn settle(&mut self, appended: Option<Result<AppendBatch, FailedAppend>>) {
        match appended {
            Some(Ok(AppendBatch { number, records })) => {
                self.retry_budget = None;
                self.was_full = false;
                self.last_appended = number;
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

    /// Applies durable records to the state and shows them to readers.
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

    fn answer_through(&mut self, position: Position, append: AppendNumber) {
        let is_met = |needs: &AnswerDependency| needs.position <= position && needs.append <= append;
        while let Some((_, job)) = self.waiting.pop_front_if(|(needs, _)| is_met(needs)) {
            job.answer(Ok(()));
        }
    }

    /// Another process appended first: reads what it wrote, and decides the same commands on that.
    async fn decide_again(&mut self, tail: Position) {
        self.overlay.clear();
        self.appender.resume();
        if let Err(error) = self.catch_up().await {
            return self.on_log_error(error, Vec::new());
        }
        if self.state.position() < tail {
            // Deciding on the same state would fail again, in an endless loop.
            return self.on_log_error(LogError::Unavailable(Arc::new(io::Error::other(BEHIND))), Vec::new());
        }
        self.decide_waiting();
    }

    /// Decides the waiting commands again, on the state as it is now.
    fn decide_waiting(&mut self) {
        let now = self.clock.now();
        for (_, job) in std::mem::take(&mut self.waiting) {
            self.decide(job, now);
        }
        self.send_to_appender();
    }

    /// The tail moved while no append of this process was in flight: another process appended, or the log was replaced
    /// by an older copy.
    async fn follow(&mut self, log_is_open: bool, tail: &watch::Receiver<Position>) {
        let tail = *tail.borrow();
        match log_is_open {
            false => self.fail(unavailable(stopped())),
            true if tail != self.state.position() => self.decide_again(tail).await,
            true => (),
        }
    }

    /// Compares the state with the log while the ledger is idle. A server that does not answer begins an outage.
    async fn check_log(&mut self) {
        self.overlay.clear();
        self.appender.resume();
        match tokio::time::timeout(LOOK_MAX, self.catch_up()).await {
            Ok(Ok(())) => (),
            Ok(Err(error)) => self.on_log_error(error, Vec::new()),
            Err(_) => self.on_log_error(LogError::Unavailable(Arc::new(io::ErrorKind::TimedOut.into())), Vec::new()),
        }
    }

    /// Folds what was written since, and shows it, also if reading fails half way.
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

    /// There was no space for the decided records, and nothing of them was written. The commands are decided again: by
    /// now the log reports that it is full, and only what frees space is stored. If there is no space even for that,
    /// everything is refused.
    fn on_full_log(&mut self, cause: Arc<io::Error>) {
        self.overlay.clear();
        self.appender.resume();
        if std::mem::replace(&mut self.was_full, true) {
            return self.refuse_waiting(&disk_full().with_source(LogError::Full(cause)));
        }
        self.decide_waiting();
    }

    /// An operation on the log failed: its server cannot be reached, or the log failed permanently. `unsure` are the
    /// appends without a result.
    fn on_log_error(&mut self, error: LogError, unsure: Vec<AppendBatch>) {
        if !matches!(error, LogError::Unavailable(_)) {
            return self.fail(unavailable(error));
        }
        let error = unavailable(error);
        self.shared.report_outage(&error);
        self.outage = Some(LogOutage::new(error, unsure, self.retry_budget.take()));
        self.refuse_timed_out();
    }

    /// Retries the log; if its server can be reached, commands in flight resume.
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

    /// The log can be read again. An append without a result is stored or not: its commands are answered as they were
    /// decided, or decided again like all others.
    fn end_outage(&mut self) {
        let Some(outage) = self.outage.take() else { return };
        let stored = outage.stored();
        self.retry_budget = stored.is_none().then(|| outage.retry_budget());
        self.shared.report_recovered();
        // A retry that was cut off by its time limit may have folded records without showing them.
        self.shared.show(&self.state, self.state.registry().topics().map(|topic| topic.number));
        self.overlay.clear();
        self.appender.resume();
        if let Some((number, through)) = stored {
            self.answer_through(through, number);
        }
        self.decide_waiting();
    }

    fn refuse_waiting(&mut self, error: &Error) {
        for (_, job) in std::mem::take(&mut self.waiting) {
            job.answer(Err(error.clone()));
        }
    }

    /// Refuses all waiting and all later commands.
    fn fail(&mut self, error: Error) {
        self.overlay.clear();
        self.outage = None;
        self.shared.report_failure(&error);
        self.refuse_waiting(&error);
        self.failed = Some(error);
    }

    /// Completes accepted commands, writes a checkpoint, and confirms the end.
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
        // It writes files, which would block a shared thread. A panic has been logged by then.
        let _ = tokio::task::spawn_blocking(move || self.shut_down()).await;
        if let Some(reply) = closing {
            let _ = reply.send(());
        }
    }

    /// Writes a checkpoint and releases the log.
    fn shut_down(mut self) {
        // A checkpoint that is being written holds the folder until it ends.
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
