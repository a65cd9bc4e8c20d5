//! Appending: one statement, one round trip, one commit.
//!
//! - Records are inserted by a statement that compares first (`claim` in the migrations). An empty batch, and a batch whose
//!   comparison failed, go through `compare`.
//! - All appends use one connection, in the order in which they were begun. An append is sent without waiting for the
//!   response to the one before it, and the server refuses it if that one failed.
//! - The loser of a comparison gets the next turn (see `compare` in the migrations), and releases it if it does not use it.
//! - The same connection listens for notifications: those of its own appends arrive with the response, and no other session
//!   has to wake up for them.
//! - After a reconnect nothing is appended before the log was read: the connection may lead to another server, which has not
//!   received everything.
//! - If the connection is lost during an append, that append may still be running on the server. So before anything is said
//!   about the end of the log, a new session begins, after which the old one cannot append any more (`fence`).
//! - What other processes have appended is shown only after synchronous standbys have it, if there are any
//!   (`await_replication`).

use crate::columns::{BatchColumns, SqlParam};
use crate::failure::{self, StatementFailure};
use crate::fence::{SessionFence, SessionId};
use crate::reconnect::PersistentConnection;
use crate::row::number;
use crate::session::{ConnectTarget, Session};
use crate::statements::{self, COMPARE, CONFIRM, RELEASE_TURN};
use crate::tail::KnownTail;
use crate::visible_tail::VisibleTail;
use contract::Position;
use log::{LogError, Record};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;

/// No log ends here.
const UNREACHABLE_POSITION: Position = Position(u64::MAX);

/// How long a caller waits for synchronous standbys before it gets an error. The wait itself goes on.
const REPLICATION_TIMEOUT: Duration = Duration::from_secs(2);

/// The server ends the turn of a process that has stopped after this many times the turn of one that runs.
const STOPPED_TURNS: u32 = 5;

/// Appends, over one connection.
pub(crate) struct PostgresWriter {
    inner: Arc<WriterState>,
}

struct WriterState {
    connection: Arc<PersistentConnection>,
    /// Held until an append is sent.
    in_order: tokio::sync::Mutex<()>,
    /// How many appends were begun: shows whether a turn was used.
    begun: AtomicU64,
    /// How many appends have not ended.
    under_way: AtomicUsize,
    /// The session that was lost during an append, which may still be running on the server.
    in_doubt: Mutex<Option<Arc<Session>>>,
    /// Held while standbys confirm a commit.
    confirming: Arc<tokio::sync::Mutex<()>>,
    tail: Arc<KnownTail>,
    shown: Arc<VisibleTail>,
    /// The caller reads the log after each reconnect ([`log::Log::follow`]), so an append before that is refused.
    is_followed: AtomicBool,
    turn: Duration,
    runtime: Handle,
}

/// Where a batch goes.
#[derive(Clone, Copy)]
struct AppendPoint {
    after: Position,
    /// Only if the append before it, which has not ended yet, succeeds.
    chained: bool,
}

/// Counts an append until it is dropped.
struct PendingAppend<'a> {
    count: &'a AtomicUsize,
    /// How many there were before it.
    before: usize,
}

impl<'a> PendingAppend<'a> {
    fn one_more(count: &'a AtomicUsize) -> Self {
        Self { count, before: count.fetch_add(1, Ordering::AcqRel) }
    }
}

impl Drop for PendingAppend<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The outcome of a claim or a comparison.
enum AppendOutcome {
    Appended,
    TailMoved(Position),
    TimeFell,
}

impl PostgresWriter {
    pub(crate) fn start(
        target: ConnectTarget,
        tail: Arc<KnownTail>,
        shown: Arc<VisibleTail>,
        channel: &str,
        turn: Duration,
    ) -> Self {
        let runtime = target.runtime.clone();
        let fence = Arc::new(SessionFence::new());
        let connection =
            PersistentConnection::start(target, Some(Arc::clone(&tail)), fence.prepare(channel, &tail, &shown));
        Self {
            inner: Arc::new(WriterState {
                connection: Arc::new(connection),
                in_order: tokio::sync::Mutex::default(),
                begun: AtomicU64::new(0),
                under_way: AtomicUsize::new(0),
                in_doubt: Mutex::default(),
                confirming: Arc::default(),
                tail,
                shown,
                is_followed: AtomicBool::new(false),
                turn,
                runtime,
            }),
        }
    }

    /// The caller has read the log since `session` was made; `None`: over other connections.
    pub(crate) fn set_followed(&self, session: Option<&Session>) {
        self.inner.is_followed.store(true, Ordering::Release);
        session.iter().for_each(|session| session.set_followed());
    }

    pub(crate) fn connection(&self) -> &Arc<PersistentConnection> {
        &self.inner.connection
    }

    /// Waits until no append of this process can still become visible unnoticed: until a later session has begun.
    pub(crate) async fn resolve_doubt(&self) -> Result<(), LogError> {
        let Some(lost) = self.inner.in_doubt().clone() else { return Ok(()) };
        self.inner.connection.session().await?;
        let mut in_doubt = self.inner.in_doubt();
        if in_doubt.as_ref().is_some_and(|now| Arc::ptr_eq(now, &lost)) {
            *in_doubt = None;
        }
        Ok(())
    }

    /// Appends `batch` after `after`.
    pub(crate) async fn append(&self, after: Position, batch: &[Record]) -> Result<(), LogError> {
        let inner = &self.inner;
        // Counted before anything is awaited: the appends that are in flight now must succeed.
        let under_way = PendingAppend::one_more(&inner.under_way);
        let columns = check(after, batch).and_then(|()| BatchColumns::of(batch, true));
        // A batch with wrong numbers is still compared first.
        let (columns, wrong) = columns.map_or_else(|wrong| (BatchColumns::default(), Some(wrong)), |it| (it, None));
        debug_assert!(
            wrong.is_some() || usize::try_from(columns.amount()) == Ok(batch.len()),
            "every record has its columns"
        );
        let sending = inner.in_order.lock().await;
        inner.begun.fetch_add(1, Ordering::AcqRel);
        let session = inner.connection.session().await?;
        if inner.is_followed.load(Ordering::Acquire) && !session.is_followed() {
            return Err(failure::not_followed());
        }
        let place = AppendPoint { after, chained: under_way.before > 0 };
        let outcome = once_begun(inner.append_columns(&session, place, &columns), || drop(sending)).await;
        let outcome = match outcome {
            Err(StatementFailure::Refused(error)) if failure::is_about_a_value(&error) => {
                tracing::warn!(%error, "PostgreSQL refuses a payload; the batch is stored without its payload columns");
                inner.append_columns(&session, place, &BatchColumns::of(batch, false)?).await
            }
            outcome => outcome,
        };
        let outcome = outcome.map_err(refusal)?;
        match (outcome, wrong) {
            (AppendOutcome::TailMoved(tail), _) => {
                inner.tail.show(tail);
                if !batch.is_empty() {
                    self.release_unused_turn();
                }
                Err(LogError::TailMoved(tail))
            }
            (AppendOutcome::TimeFell, _) => Err(LogError::Misnumbered("times must not fall")),
            (AppendOutcome::Appended, Some(wrong)) => Err(wrong),
            (AppendOutcome::Appended, None) => {
                let tail = Position(after.get().saturating_add(batch.len() as u64));
                if !batch.is_empty() {
                    inner.shown.raise(tail);
                }
                inner.tail.show(tail);
                Ok(())
            }
        }
    }

    /// Waits until synchronous standbys have everything up to `position`, which was read: until they have confirmed a commit
    /// that is later than what was read.
    pub(crate) async fn await_replication(&self, position: Position) -> Result<(), LogError> {
        let inner = &self.inner;
        if inner.shown.get() >= position {
            return Ok(());
        }
        let late = {
            let _timers = inner.runtime.enter();
            tokio::time::sleep(REPLICATION_TIMEOUT)
        };
        let confirmed = async {
            let only_one = Arc::clone(&inner.confirming).lock_owned().await;
            let confirming = inner.runtime.spawn(confirm(Arc::clone(inner), position, only_one));
            // The task is aborted only when the runtime ends.
            confirming.await.unwrap_or_else(|_| Err(failure::no_response()))
        };
        tokio::select! {
            biased;
            confirmed = confirmed => confirmed,
            () = late => Err(failure::unconfirmed()),
        }
    }

    /// Releases a turn that is not used, so that a process without further appends does not hold up the others.
    fn release_unused_turn(&self) {
        let inner = Arc::downgrade(&self.inner);
        let begun = self.inner.begun.load(Ordering::Acquire);
        let turn = self.inner.turn;
        self.inner.runtime.spawn(async move {
            tokio::time::sleep(turn).await;
            let Some(inner) = inner.upgrade() else { return };
            let _turn = inner.in_order.lock().await;
            if inner.begun.load(Ordering::Acquire) == begun
                && let Ok(session) = inner.connection.session().await
                && let Err(error) = session.row(RELEASE_TURN, &[]).await
            {
                tracing::debug!(%error, "a turn could not be released; it ends with its session");
            }
        });
    }
}

impl WriterState {
    fn in_doubt(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.in_doubt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the session up. Its last append may still be committed.
    fn mark_in_doubt(&self, session: &Arc<Session>) {
        session.close();
        *self.in_doubt() = Some(Arc::clone(session));
    }

    /// Appends `columns`: in one round trip, unless another process appended first.
    async fn append_columns(
        &self,
        session: &Arc<Session>,
        mut place: AppendPoint,
        columns: &BatchColumns<'_>,
    ) -> Result<AppendOutcome, StatementFailure> {
        let after = number(place.after.get());
        let (amount, first_stored_at) = (columns.amount(), columns.first_stored_at());
        let SessionId { instance, epoch } = session.id();
        if let Some(insert) = statements::insert_into(columns.tables()) {
            let claim: [SqlParam<'_>; 6] = [&after, &place.chained, &amount, &first_stored_at, &instance, &epoch];
            let params: Vec<SqlParam<'_>> = claim.into_iter().chain(columns.params()).collect();
            match self.check_response(session, session.try_execute(insert, &params).await)? {
                0 => {}
                _ => return Ok(AppendOutcome::Appended),
            }
            // `compare` says why it was refused, and keeps the turn for this session.
            if place.chained {
                // The append before this one has failed. Whatever was appended since, this one must not follow it.
                place.after = UNREACHABLE_POSITION;
            }
        }
        let after = number(place.after.get());
        let turn = i32::try_from((self.turn * STOPPED_TURNS).as_millis()).unwrap_or(i32::MAX);
        let params: [SqlParam<'_>; 7] = [&after, &place.chained, &amount, &first_stored_at, &instance, &epoch, &turn];
        let rows = self.check_response(session, session.try_rows(COMPARE, &params).await)?;
        let row = rows.first().ok_or_else(|| failure::refused("compare returned no row"))?;
        let tail = Position(row.get::<_, i64>(1).unsigned_abs());
        Ok(match row.get::<_, i32>(0) {
            0 if amount == 0 => AppendOutcome::Appended,
            // 0: the log went back to where `claim` expected its end, after `claim` had found another one.
            0 | 1 => AppendOutcome::TailMoved(tail),
            _ => AppendOutcome::TimeFell,
        })
    }

    /// Passes a response on. If it ends the session, or is missing, the append is in doubt; so it is if the response came
    /// before synchronous standbys had the commit.
    fn check_response<T>(
        &self,
        session: &Arc<Session>,
        response: Result<T, StatementFailure>,
    ) -> Result<T, StatementFailure> {
        if response.as_ref().is_err_and(StatementFailure::ends_session) {
            self.mark_in_doubt(session);
        }
        if session.is_unreplicated() {
            self.mark_in_doubt(session);
            return Err(failure::unconfirmed().into());
        }
        response
    }
}

/// Waits until synchronous standbys have confirmed everything up to `position`. It runs to its end even if no caller waits.
async fn confirm(inner: Arc<WriterState>, position: Position, _only_one: OwnedMutexGuard<()>) -> Result<(), LogError> {
    let session = inner.connection.session().await?;
    // Another confirmation, or the beginning of the session, may have done so in the meantime.
    if inner.shown.get() < position {
        inner.check_response(&session, session.try_rows(CONFIRM, &[]).await)?;
        inner.shown.raise(position);
    }
    Ok(())
}

/// Runs `work`; calls `then` after it was polled once.
async fn once_begun<T>(work: impl Future<Output = T>, then: impl FnOnce()) -> T {
    let mut work = pin!(work);
    let first = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
    then();
    match first {
        Poll::Ready(done) => done,
        Poll::Pending => work.await,
    }
}

fn refusal(failure: StatementFailure) -> LogError {
    match failure {
        StatementFailure::Refused(error) if failure::is_duplicate(&error) => {
            LogError::Misnumbered("a number is already taken")
        }
        other => other.into(),
    }
}

/// Checks a batch's numbers, as far as that is possible without the log.
fn check(after: Position, batch: &[Record]) -> Result<(), LogError> {
    let mut expected = after;
    let mut time = i64::MIN;
    for Record { header, .. } in batch {
        expected = Position(expected.get().saturating_add(1));
        if header.position != expected {
            return Err(LogError::Misnumbered("positions must be dense from the tail"));
        }
        if header.time < time {
            return Err(LogError::Misnumbered("times must not fall"));
        }
        time = header.time;
    }
    Ok(())
}
