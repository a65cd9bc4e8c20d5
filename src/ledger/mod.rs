//! The ledger: owns the order of one log and the state folded from it.
//!
//! - One writer decides, appends, applies and answers; all other tasks send it a command and wait.
//! - A command needs a permit by bytes before any work is done, and is refused at once if there is none.
//! - Readers see the registry and the tails as of the last durable record, never ahead of it.
//!
//! Left to others: what commands mean (the domain modules), and how bytes get to disk (the engine).

mod decide;
mod detachable_log;
mod disk;
mod facts;
mod failure;
mod hash;
mod incidents;
mod reclaim;
mod state;
#[cfg(test)]
pub(crate) mod testing;
mod view;
mod writer;

pub use decide::decision::{Decision, EventDraft};
pub use decide::overlay::UndoMark;
pub use decide::stored_reply::{IdempotentRequest, ReplyPiece, ReplyRecorder, StoredReply};
pub(crate) use decide::until_known::{
    answer_or_repeat, changed_concurrently, decide_until_known, decide_while_unknown,
};
pub use disk::checkpoint::{LastCheckpoint, last_checkpoint};
pub use disk::row_codec::{AggregateHead, IdempotencyRow};
pub use facts::carried_rows::{CarriedKey, CarriedRows};
pub use facts::dispatch::{DeliveredJob, DispatchFact, EventDigest};
pub use facts::entry::Entry;
pub use facts::placement::{LogLocation, TopicPlacement};
pub use failure::read_failed;
pub(crate) use hash::{u64_from_hash, u128_from_hash, uuid_from_hash};
pub use incidents::{IncidentReporter, leaves_state_intact};
pub use reclaim::ReclaimReport;
pub use reclaim::usage::{EntryUsage, ReclaimPolicy, ReclaimableEntries};
pub(crate) use reclaim::{reclaim, reclaim_before_close, reclaim_if_due, renew_snapshot};
pub use state::LedgerState;
pub use state::claims::claim_feed::{ClaimChanges, ClaimFeed};
pub use state::claims::group_progress::GroupProgress;
pub use state::claims::{
    ClaimKey, ClaimRow, ClaimRows, ClaimSlot, ClaimState, DecidedClaims, FinishedBy, lease_expired,
};
pub use state::consumers::{ConsumerFilter, ConsumerRow, ConsumerRows, DecidedConsumers, GroupKey, GroupRow};
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
use decide::overlay::Overlay;
use decide::stored_reply::{RecordReply, RecordedOutcome};
use detachable_log::DetachableLog;
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
use writer::checkpoints::CheckpointScheduler;
use writer::command::{QueuedCommand, SubmittedCommand};

/// Bytes of commands that may wait for the writer. A command beyond that is refused.
const ROOM_BYTES: usize = 64 * 1024 * 1024;
/// The least that a command counts, so that many small ones are bounded, too.
const COMMAND_BYTES_MIN: usize = 512;
/// The capacity of the writer's inbox, in messages.
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

/// A message to the writer.
enum WriterMessage {
    /// A command to decide.
    Command(Box<dyn QueuedCommand>),
    /// A lookup in the durable state.
    Query(Box<dyn FnOnce(&LedgerState) + Send>),
    /// A request for a checkpoint, answered when it is on disk.
    Checkpoint(oneshot::Sender<Result<()>>),
    /// Completes accepted commands, then stops the writer.
    Close(oneshot::Sender<()>),
}

impl Ledger {
    /// Opens the ledger of `log`: loads the last checkpoint from `folder` (or starts from nothing), folds what came
    /// after it, and starts the writer as a task of this runtime. Without a folder the state is in memory only; with
    /// one, `checkpoint_rows` rows of the tables stay in RAM between checkpoints. Idempotency keys of requests are
    /// remembered for `answers_millis`. A failure that only reopening can repair is reported to `incidents`.
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

    /// Opens the ledger for a repair, which continues without the snapshot of reclaimed entries if the log holds no
    /// complete one.
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
                let (error, message) = incidents::panicked("writer", panic.as_ref());
                watched.report_failure(&error);
                incidents::log_panic("writer", &message);
            }
        });
        let room = Arc::new(Semaphore::new(ROOM_BYTES));
        Ok(Self { log: DetachableLog::new(log), clock, inbox, room, shared, reclaim_memo: ReclaimMemo::default() })
    }

    /// Submits a command. Returns its answer once the decision is durable.
    pub async fn submit<C: Command>(&self, command: C) -> Result<C::Answer> {
        let room = self.reserve_room(command.bytes())?;
        let (reply, answer) = oneshot::channel();
        let job = SubmittedCommand { command, reply, answer: None, room };
        self.send(WriterMessage::Command(Box::new(job))).await?;
        answer.await.map_err(|_| self.closed_error())?
    }

    /// Folds everything that other processes have appended by now. A ledger whose log is not shared has folded all of
    /// it already.
    pub async fn refresh(&self) -> Result<()> {
        match self.log.is_shared() {
            true => self.submit(RefreshLedger).await,
            false => Ok(()),
        }
    }

    /// Refreshes after a refusal that may be due to something that another process has changed. Returns whether it did,
    /// and the request is to be tried again.
    pub async fn refresh_after(&self, refusal: &Error) -> Result<bool> {
        let depends_on_state =
            matches!(refusal.kind(), Kind::NotFound | Kind::Validation | Kind::InvalidState | Kind::AlreadyExists);
        if !depends_on_state || !self.log.is_shared() {
            return Ok(false);
        }
        self.refresh().await.map(|()| true)
    }

    /// Submits a command and stores its reply in the same append, if its request has an idempotency key.
    ///
    /// If a reply is stored under the key already, nothing is decided: the error is [`Kind::IdempotencyKeyInFlight`]
    /// for the same request, whose reply can be looked up by then, and [`Kind::IdempotencyKeyReuse`] for another
    /// request.
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

    /// Stores a reply to a request that was not decided here; refused like [`Ledger::submit_recording`]. A reply that
    /// depends on a version of the registry is stored only if that is still the current one.
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

    /// Looks something up in the durable state that may be unreadable.
    pub async fn query_rows<T: Send + 'static>(
        &self,
        question: impl FnOnce(&LedgerState) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.query_state(question).await.flatten()
    }

    /// Writes a checkpoint of everything that is durable by now, if there is a folder for it. Returns when it is on
    /// disk.
    pub(crate) async fn checkpoint(&self) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.send(WriterMessage::Checkpoint(reply)).await?;
        answer.await.map_err(|_| self.closed_error())?
    }

    /// Topics and event types as of the last durable record.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.shared.registry.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Consumers and the offsets of groups, as of the last durable record. The writer waits while the guard is held.
    pub fn consumers(&self) -> RwLockReadGuard<'_, ConsumerRows> {
        self.shared.tables.consumers()
    }

    /// Projections and their checkpoints, as of the last durable record. The writer waits while the guard is held.
    pub fn projections(&self) -> RwLockReadGuard<'_, ProjectionRows> {
        self.shared.tables.projections()
    }

    /// Claims and the policies of handlers, as of the last durable record. The writer waits while the guard is held.
    pub fn claims(&self) -> RwLockReadGuard<'_, ClaimRows> {
        self.shared.tables.claims()
    }

    /// Dead letters, as of the last durable record. The writer waits while the guard is held.
    pub fn dead_letters(&self) -> RwLockReadGuard<'_, DeadLetterRows> {
        self.shared.tables.dead_letters()
    }

    /// Subscriptions, jobs and pools, as of the last durable record. The writer waits while the guard is held.
    pub fn dispatch(&self) -> RwLockReadGuard<'_, DispatchRows> {
        self.shared.tables.dispatch()
    }

    /// The log's time, as in decisions. Every stored time is compared with it, and none with the wall clock.
    #[must_use]
    pub fn now(&self) -> i64 {
        self.clock.now()
    }

    /// The time that decides what has become of something stored at `stored`.
    #[must_use]
    pub fn time_for(&self, stored: i64) -> i64 {
        self.clock.hold().time_for(stored, self.now())
    }

    /// The clock of the log's time.
    #[must_use]
    pub const fn clock(&self) -> &Arc<LogClock> {
        &self.clock
    }

    /// The last position that is folded and visible to readers.
    #[must_use]
    pub fn position(&self) -> watch::Receiver<Position> {
        self.shared.position.subscribe()
    }

    /// Why commands are refused, permanently or during an outage, if so.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.shared.failure.borrow().clone()
    }

    /// Refuses what would make the log grow, unless there is free space. Decisions check the same; this is for callers
    /// that must know before.
    pub fn check_room(&self) -> Result<()> {
        decide::growth::check_room(self.log.room())
    }

    /// The log itself, for reading.
    #[must_use]
    pub fn log(&self) -> &dyn Log {
        &self.log
    }

    /// A problem that does not keep the ledger from working, if there is one.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        self.shared.warning.borrow().clone()
    }

    /// Why reclaiming entries fails, if it does.
    #[must_use]
    pub fn reclaim_warning(&self) -> Option<String> {
        self.reclaim_memo.warning()
    }

    /// Fails for a caller that waited until the ledger closed, if it closed because of a failure.
    pub fn check_open(&self) -> Result<()> {
        match self.failure() {
            Some(failure) if *self.shared.closing.borrow() => Err(failure),
            _ => Ok(()),
        }
    }

    /// Becomes true when the broker closes: callers that wait for events stop waiting.
    #[must_use]
    pub fn closing(&self) -> watch::Receiver<bool> {
        self.shared.closing.subscribe()
    }

    /// Answers accepted commands, writes a checkpoint and stops the writer.
    pub async fn close(&self) {
        self.shared.closing.send_replace(true);
        let (reply, closed) = oneshot::channel();
        if self.inbox.send(WriterMessage::Close(reply)).await.is_ok() {
            let _ = closed.await;
        }
    }

    /// Ends a ledger of a failed broker: waiting callers are refused with `cause`, and the log is released, even if the
    /// ledger is still referenced.
    pub async fn abandon(&self, cause: &Error) {
        self.shared.failure.send_if_modified(|failure| failure.replace(cause.clone()).is_none());
        self.close().await;
        self.log.detach().await;
    }

    const fn reclaim_memo(&self) -> &ReclaimMemo {
        &self.reclaim_memo
    }

    /// A permit for a command of this size in the queue: now or not at all. Waiting for it would only make the queue
    /// longer than its limit.
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

/// A command that decides nothing: its answer means that everything in the log up to then is folded here.
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
