//! The ledger: owns the order of one log and everything the broker knows from it.
//!
//! - One writer decides, appends, applies and answers; everyone else sends it a command and waits.
//! - Room is asked for before work: a command takes a permit by bytes, and is refused at once when there is none.
//! - Readers see the registry and the tails as of the last durable record, never ahead of it.
//!
//! What commands mean is the domain modules' business; how bytes get to disk is the engine's.

mod decide;
mod detachable_log;
mod disk;
mod facts;
mod failure;
mod incidents;
mod reclaim;
mod state;
#[cfg(test)]
pub(crate) mod testing;
mod view;
mod writer;

pub use decide::decision::{Decision, EventDraft};
pub use decide::idempotency::{IdempotentRequest, ReplyPiece, ReplyRecorder, StoredReply};
pub use decide::overlay::UndoMark;
pub(crate) use decide::until_known::{
    answer_or_repeat, changed_concurrently, decide_until_known, decide_while_unknown,
};
pub use disk::checkpoint::{LastCheckpoint, last_checkpoint};
pub use disk::row_codec::{AggregateHead, IdempotencyRow};
pub use facts::carried_rows::CarriedRows;
pub use facts::dispatch::{DeliveredJob, DispatchFact, EventDigest};
pub use facts::entry::Entry;
pub use facts::placement::{LogLocation, TopicPlacement};
pub use failure::read_failed;
pub use incidents::{IncidentReporter, leaves_state_intact};
pub use reclaim::ReclaimReport;
pub use reclaim::usage::{EntryUsage, ReclaimPolicy, ReclaimableEntries};
pub(crate) use reclaim::{reclaim, reclaim_if_due, renew_snapshot};
pub use state::LedgerState;
pub use state::claims::claim_feed::{ClaimChanges, ClaimFeed};
pub use state::claims::group_progress::GroupProgress;
pub use state::claims::{
    ClaimKey, ClaimRow, ClaimRows, ClaimSlot, ClaimState, DecidedClaims, FinishedBy, lease_expired,
};
pub use state::consumers::{
    ConsumerFilter, ConsumerRow, ConsumerRows, DecidedConsumers, GroupKey, GroupRow, consumer_bytes,
};
pub use state::dead_letters::{
    DeadLetterRange, DeadLetterRow, DeadLetterRows, DeadLetterSortKey, DecidedDeadLetters, StoredDeadLetter,
};
pub use state::dispatch::{
    DecidedDispatch, DispatchLease, DispatchRows, JobEnd, JobInterest, JobKey, JobRow, JobSlot, JobState, KnownJob,
    LaneProgress, PastFilter, ReplayRow, StoredTask, SubscriptionRow, TASKS, TaskRow,
};
pub use state::projections::{DecidedProjections, ProjectionRow, ProjectionRows};
pub use state::registry::{PlacedTopic, RegisteredTopic, RegisteredType, Registry};
pub use state::tables::StateTables;
pub use state::type_tag::tag;
pub use writer::command::Command;

use crate::clock::LogClock;
use contract::{Error, Kind, Position, Result};
use decide::idempotency::{RecordReply, RecordedOutcome};
use decide::overlay::Overlay;
use detachable_log::DetachableLog;
use disk::checkpoint::CheckpointScheduler;
use futures_util::FutureExt;
use log::{Log, LogError};
use reclaim::ReclaimMemo;
use reclaim::log_snapshot::MissingSnapshot;
use state::catch_up;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLockReadGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use view::LedgerView;
use writer::LedgerWriter;
use writer::appender::{self, Appender};
use writer::command::{QueuedCommand, SubmittedCommand};

/// Bytes of commands that may wait for the writer; more wait for room, then are refused.
const ROOM_BYTES: usize = 64 * 1024 * 1024;
/// What a command takes of the room at least, so that many small ones are bounded too.
const COMMAND_BYTES_MIN: usize = 512;
/// Messages that may lie in the writer's inbox.
const INBOX_MESSAGES: usize = 16 * 1024;

/// A handle to one log's writer.
pub struct Ledger {
    log: DetachableLog,
    clock: Arc<LogClock>,
    inbox: mpsc::Sender<WriterMessage>,
    room: Arc<Semaphore>,
    shared: Arc<LedgerView>,
    reclaim_memo: ReclaimMemo,
}

/// What reaches the writer.
enum WriterMessage {
    /// Decide this.
    Command(Box<dyn QueuedCommand>),
    /// Look something up in the durable state.
    Query(Box<dyn FnOnce(&LedgerState) + Send>),
    /// Write a checkpoint, and say when it is on disk.
    Checkpoint(oneshot::Sender<Result<()>>),
    /// Finish what was accepted, then stop.
    Close(oneshot::Sender<()>),
}

impl Ledger {
    /// Opens the ledger of `log`: loads the last checkpoint from `folder` (or starts from nothing), folds what came
    /// after it, and starts the writer as a task of this runtime. Without a folder the state lives in memory only; with one,
    /// `checkpoint_rows` of the tables stay in RAM between checkpoints. Keys of kept answers are remembered for
    /// `answers_millis`. What cannot be cured but by opening it again is reported to `incidents`.
    pub async fn open(
        log: Arc<dyn Log>,
        clock: LogClock,
        folder: Option<PathBuf>,
        checkpoint_rows: usize,
        answers_millis: i64,
        incidents: Arc<IncidentReporter>,
    ) -> std::result::Result<Self, LogError> {
        let settings = (checkpoint_rows, answers_millis, MissingSnapshot::Refuse);
        Self::open_with(log, clock, folder, settings, incidents).await
    }

    /// The same for a repair, which goes on without the snapshot of reclaimed entries where the log holds no whole one.
    pub(crate) async fn open_for_repair(
        log: Arc<dyn Log>,
        clock: LogClock,
        folder: PathBuf,
        checkpoint_rows: usize,
        answers_millis: i64,
    ) -> std::result::Result<Self, LogError> {
        let settings = (checkpoint_rows, answers_millis, MissingSnapshot::DoWithout);
        Self::open_with(log, clock, Some(folder), settings, Arc::default()).await
    }

    async fn open_with(
        log: Arc<dyn Log>,
        clock: LogClock,
        folder: Option<PathBuf>,
        (checkpoint_rows, answers_millis, missing): (usize, i64, MissingSnapshot),
        incidents: Arc<IncidentReporter>,
    ) -> std::result::Result<Self, LogError> {
        let (mut state, checkpointed) =
            catch_up::fold_log(log.as_ref(), folder.as_deref(), checkpoint_rows, answers_millis, missing).await?;
        state.start_held(clock.start_after(state.time));
        clock.observe(state.time);
        let clock = Arc::new(clock);
        let (inbox, messages) = mpsc::channel(INBOX_MESSAGES);
        let shared = Arc::new(LedgerView::new(&state, incidents));
        let writer = LedgerWriter {
            log: Arc::clone(&log),
            clock: Arc::clone(&clock),
            state,
            overlay: Overlay::default(),
            appender: Appender::start(Arc::clone(&log))?,
            shared: Arc::clone(&shared),
            checkpoints: CheckpointScheduler::new(folder.is_some(), checkpoint_rows, checkpointed),
            waiting: VecDeque::new(),
            last_appended: appender::AppendNumber::default(),
            must_compare: false,
            outage: None,
            retry_budget: None,
            was_full: false,
            failed: None,
        };
        let watched = Arc::clone(&shared);
        tokio::spawn(async move {
            if let Err(panic) = AssertUnwindSafe(writer.run(messages)).catch_unwind().await {
                let (error, said) = incidents::panicked("writer", panic.as_ref());
                watched.report_failure(&error);
                incidents::log_panic("writer", &said);
            }
        });
        let room = Arc::new(Semaphore::new(ROOM_BYTES));
        Ok(Self { log: DetachableLog::new(log), clock, inbox, room, shared, reclaim_memo: ReclaimMemo::default() })
    }

    /// Has `command` decided in the log's order; answers once that is durable.
    pub async fn submit<C: Command>(&self, command: C) -> Result<C::Answer> {
        let room = self.reserve_room(command.bytes())?;
        let (reply, answer) = oneshot::channel();
        let job = SubmittedCommand { command, reply, answer: None, room };
        self.send(WriterMessage::Command(Box::new(job))).await?;
        answer.await.map_err(|_| self.closed_error())?
    }

    /// Folds everything that was in the log when this was asked, whoever wrote it. A ledger that is alone with its log
    /// knows all of it already.
    pub async fn refresh(&self) -> Result<()> {
        match self.log.is_shared() {
            true => self.submit(RefreshLedger).await,
            false => Ok(()),
        }
    }

    /// The same, and keeps the answer in the same append, if there is a key to keep it under.
    ///
    /// Where the key has its answer already, nothing is decided: that is [`Kind::IdempotencyKeyInFlight`] for the same
    /// request, whose answer can be looked up by then, and [`Kind::IdempotencyKeyReuse`] for another.
    pub async fn submit_recording<C: Command>(
        &self,
        command: C,
        recorder: ReplyRecorder<C::Answer>,
    ) -> Result<C::Answer> {
        let keyed = match recorder.wrap(command) {
            Ok(keyed) => keyed,
            Err(command) => return self.submit(command).await,
        };
        let request = Arc::clone(&keyed.ticket);
        let RecordedOutcome { answer, is_kept } = self.submit(keyed).await?;
        if is_kept {
            request.mark_recorded();
        }
        answer
    }

    /// Keeps an answer to something that was not decided here; refused as [`Ledger::submit_keeping`] is. One that rests
    /// on a version of the registry is kept only while that is in force.
    pub async fn record_reply(
        &self,
        request: Arc<IdempotentRequest>,
        answer: StoredReply,
        rests_on: Option<Position>,
    ) -> Result<()> {
        self.submit(RecordReply { ticket: request, answer, rests_on }).await
    }

    /// Looks something up in the durable state.
    pub async fn query_state<T: Send + 'static>(
        &self,
        question: impl FnOnce(&LedgerState) -> T + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let ask = Box::new(move |state: &LedgerState| {
            let _ = reply.send(question(state));
        });
        self.send(WriterMessage::Query(ask)).await?;
        answer.await.map_err(|_| self.closed_error())
    }

    /// Has a checkpoint written of everything that is durable by now, if there is a folder for it; returns when it is on disk.
    pub(crate) async fn checkpoint(&self) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.send(WriterMessage::Checkpoint(reply)).await?;
        answer.await.map_err(|_| self.closed_error())?
    }

    /// What is registered, as of the last durable record.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.shared.registry.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Consumers and the offsets of groups, as of the last durable record. Look and let go: the writer waits.
    pub fn consumers(&self) -> RwLockReadGuard<'_, ConsumerRows> {
        self.shared.tables.consumers()
    }

    /// Projections and their checkpoints, as of the last durable record. Look and let go: the writer waits.
    pub fn projections(&self) -> RwLockReadGuard<'_, ProjectionRows> {
        self.shared.tables.projections()
    }

    /// Claims and the policies of handlers, as of the last durable record. Look and let go: the writer waits.
    pub fn claims(&self) -> RwLockReadGuard<'_, ClaimRows> {
        self.shared.tables.claims()
    }

    /// Dead letters, as of the last durable record. Look and let go: the writer waits.
    pub fn dead_letters(&self) -> RwLockReadGuard<'_, DeadLetterRows> {
        self.shared.tables.dead_letters()
    }

    /// Subscriptions, jobs and pools, as of the last durable record. Look and let go: the writer waits.
    pub fn dispatch(&self) -> RwLockReadGuard<'_, DispatchRows> {
        self.shared.tables.dispatch()
    }

    /// The log's time, which decisions have too. Every stored time is compared with it, and none with the wall clock.
    #[must_use]
    pub fn now(&self) -> i64 {
        self.clock.now()
    }

    /// The time that decides what has become of something stored at `stored`.
    #[must_use]
    pub fn time_for(&self, stored: i64) -> i64 {
        self.clock.hold().time_for(stored, self.now())
    }

    /// Tells the log's time.
    #[must_use]
    pub const fn clock(&self) -> &Arc<LogClock> {
        &self.clock
    }

    /// The last position folded and shown.
    #[must_use]
    pub fn position(&self) -> watch::Receiver<Position> {
        self.shared.position.subscribe()
    }

    /// Why nothing is promised any more, or for the moment, if so.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.shared.failure.borrow().clone()
    }

    /// Refuses what would make the log grow, unless there is room. A decision says the same; this is for who must know before.
    pub fn check_room(&self) -> Result<()> {
        decide::growth::check_room(self.log.room())
    }

    /// The log itself, for reading.
    #[must_use]
    pub fn log(&self) -> &dyn Log {
        &self.log
    }

    /// What is wrong though everything goes on, if something is.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        self.shared.warning.borrow().clone()
    }

    /// What is wrong with reclaiming entries, if something is.
    #[must_use]
    pub fn reclaim_warning(&self) -> Option<String> {
        self.reclaim_memo.warning()
    }

    /// Refuses whoever waited until the ledger closed, if it closed because it had failed.
    pub fn check_open(&self) -> Result<()> {
        match self.failure() {
            Some(failure) if *self.shared.closing.borrow() => Err(failure),
            _ => Ok(()),
        }
    }

    /// Turns true when the broker closes: whoever waits for events goes home.
    #[must_use]
    pub fn closing(&self) -> watch::Receiver<bool> {
        self.shared.closing.subscribe()
    }

    /// Answers what was accepted, leaves a checkpoint and stops the writer.
    pub async fn close(&self) {
        self.shared.closing.send_replace(true);
        let (reply, closed) = oneshot::channel();
        if self.inbox.send(WriterMessage::Close(reply)).await.is_ok() {
            let _ = closed.await;
        }
    }

    /// Ends a ledger of a broker that failed: whoever waits is refused with `cause`, and the log is let go, whoever still
    /// holds the ledger.
    pub async fn abandon(&self, cause: &Error) {
        self.shared.failure.send_if_modified(|failure| failure.replace(cause.clone()).is_none());
        self.close().await;
        self.log.detach().await;
    }

    const fn reclaim_memo(&self) -> &ReclaimMemo {
        &self.reclaim_memo
    }

    /// Room in the queue for a command of this size: now or not at all. Whoever waited for it would only make the
    /// queue longer than it may be.
    fn reserve_room(&self, bytes: usize) -> Result<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes.clamp(COMMAND_BYTES_MIN, ROOM_BYTES)).unwrap_or(u32::MAX);
        Arc::clone(&self.room).try_acquire_many_owned(bytes).map_err(|_| {
            let detail = "The broker has more to write than it can; try again shortly.";
            Error::new(Kind::Overloaded, detail).with_retry_after(1)
        })
    }

    async fn send(&self, message: WriterMessage) -> Result<()> {
        self.inbox.send(message).await.map_err(|_| self.closed_error())
    }

    fn closed_error(&self) -> Error {
        self.failure().unwrap_or_else(|| Error::new(Kind::Unavailable, "The broker is closed.").with_retry_after(5))
    }
}

/// A command that decides nothing: its answer means that what it would rest on is known here.
struct RefreshLedger;

impl Command for RefreshLedger {
    type Answer = ();

    fn decide(&self, _: &mut Decision<'_>) -> Result<()> {
        Ok(())
    }

    fn bytes(&self) -> usize {
        0
    }
}
