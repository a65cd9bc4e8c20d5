//! Appending: one statement, one round trip, one commit.
//!
//! - Records that all go to one table are inserted by a statement that compares first (`claim` in the migrations). Other
//!   batches go through `append`, and so does one whose compare failed.
//! - All over one connection, in the order in which they were begun. One is sent without waiting for the answer to the one
//!   before it, and is refused over there if that one failed.
//! - Whoever loses a compare has the turn (see `append` in the migrations). Where it does not use it, it is given back.
//! - It listens over the same connection: what it said itself comes back with the answer, and no other session is woken
//!   for it.
//! - Over a connection that was made again nothing is appended before the log was read: behind it may be another server,
//!   which has not received everything.
//! - When the connection is lost half way, what was sent may still be running over there. So before anything else is
//!   said about the end of the log, a new session is begun, which the old one cannot append beside (`fence`).
//! - What others have appended is shown only once synchronous standbys have it, where there are any (`prove`).

use crate::columns::{BatchColumns, SingleTableColumns, SqlParam, TargetTable};
use crate::failure;
use crate::fence::SessionFence;
use crate::reconnect::PersistentConnection;
use crate::row::number;
use crate::session::{ConnectTarget, Session};
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

const APPEND: &str = "SELECT outcome, tail FROM append(\
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, \
    $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40)";
/// Events alone; nothing is added where the claim fails.
const ADD_EVENTS: &str = "INSERT INTO events (\
    event_id, id, topic_number, topic, topic_seq, stored_at, occurred_at, aggregate_type, aggregate_id, aggregate_seq, \
    event_type, event_version, data_version, actor_type, actor_id, org_id, request_id, idempotency_key, correlation_id, \
    causation_id, app_id, env_id, payload, aggregate_key, facets, body) \
    SELECT unnest($7::bigint[]), unnest($8::uuid[]), unnest($9::bigint[]), unnest($10::text[]), unnest($11::bigint[]), \
    unnest($12::timestamptz[]), unnest($13::timestamptz[]), unnest($14::text[]), unnest($15::text[]), \
    unnest($16::bigint[]), unnest($17::text[]), unnest($18::int[]), unnest($19::text[]), unnest($20::text[]), \
    unnest($21::text[]), unnest($22::text[]), unnest($23::text[]), unnest($24::text[]), unnest($25::text[]), \
    unnest($26::text[]), unnest($27::text[]), unnest($28::text[]), unnest($29::text[])::jsonb, unnest($30::uuid[]), \
    unnest($31::bytea[]), unnest($32::bytea[]) FROM claim($1, $2, $3, $4, $5, $6) AS claimed WHERE claimed";
/// Entries alone, likewise.
const ADD_ENTRIES: &str = "INSERT INTO entries (\
    position, sequence, stored_at, fact, id, aggregate_key, aggregate_seq, facets, body) \
    SELECT unnest($7::bigint[]), unnest($8::bigint[]), unnest($9::timestamptz[]), unnest($10::text[]), \
    unnest($11::uuid[]), unnest($12::uuid[]), unnest($13::bigint[]), unnest($14::bytea[]), unnest($15::bytea[]) \
    FROM claim($1, $2, $3, $4, $5, $6) AS claimed WHERE claimed";
/// What is prepared on a session that appends.
pub(crate) const STATEMENTS: [&str; 3] = [ADD_EVENTS, ADD_ENTRIES, APPEND];
/// A commit that synchronous standbys have to confirm, and changes nothing. They confirm commits in their order.
const CONFIRM: &str = "SELECT set_config('synchronous_commit', \
    CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true), \
    pg_logical_emit_message(true, 'event_broker'::text, ''::text)";
const RELEASE_TURN: &str = "SELECT pg_advisory_unlock_all(), set_config('idle_session_timeout', '0', false)";

/// No log ends here.
const UNREACHABLE_POSITION: Position = Position(u64::MAX);

/// How long somebody waits for synchronous standbys before it is told that they are away. They are waited for on.
const REPLICATION_TIMEOUT: Duration = Duration::from_secs(2);

/// A process that stopped holds its turn this many times longer than one that runs.
const STOPPED_TURNS: u32 = 5;

/// The one that appends.
pub(crate) struct PostgresWriter {
    inner: Arc<WriterState>,
}

struct WriterState {
    link: PersistentConnection,
    /// Held until an append is sent.
    in_order: tokio::sync::Mutex<()>,
    /// Appends begun: tells whether a turn was used.
    begun: AtomicU64,
    /// Appends not ended.
    under_way: AtomicUsize,
    /// The session that was lost during an append, which may still be running over there.
    in_doubt: Mutex<Option<Arc<Session>>>,
    /// Held while standbys are asked to confirm.
    confirming: Arc<tokio::sync::Mutex<()>>,
    tail: Arc<KnownTail>,
    shown: Arc<VisibleTail>,
    /// Whoever appends reads the log when a connection was made again, and is made to.
    is_followed: AtomicBool,
    fence: Arc<SessionFence>,
    turn: Duration,
    runtime: Handle,
}

/// Where a batch goes.
#[derive(Clone, Copy)]
struct AppendPoint {
    after: Position,
    /// Only if the append before it, which is not answered yet, succeeds.
    chained: bool,
}

/// Counts an append as long as it lives.
struct PendingAppend<'a> {
    count: &'a AtomicUsize,
    /// How many there were already.
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

/// What PostgreSQL said. The outer error: no answer came in time.
type StatementResult<T> = Result<Result<T, tokio_postgres::Error>, LogError>;

/// What `append` answered.
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
        let connection = PersistentConnection::start(target, Some(Arc::clone(&tail)), fence.prepare(channel, &tail, &shown));
        Self {
            inner: Arc::new(WriterState {
                link: connection,
                in_order: tokio::sync::Mutex::default(),
                begun: AtomicU64::new(0),
                under_way: AtomicUsize::new(0),
                in_doubt: Mutex::default(),
                confirming: Arc::default(),
                tail,
                shown,
                is_followed: AtomicBool::new(false),
                fence,
                turn,
                runtime,
            }),
        }
    }

    /// The log was read by whoever appends, over other connections, since `session` was made.
    pub(crate) fn set_followed(&self, session: Option<&Session>) {
        self.inner.is_followed.store(true, Ordering::Release);
        session.iter().for_each(|session| session.set_followed());
    }

    pub(crate) fn link(&self) -> &PersistentConnection {
        &self.inner.link
    }

    /// Waits until no append of ours can still come in unseen: until a later session has begun.
    pub(crate) async fn resolve_doubt(&self) -> Result<(), LogError> {
        let Some(lost) = self.inner.in_doubt().clone() else { return Ok(()) };
        self.inner.link.session().await?;
        let mut in_doubt = self.inner.in_doubt();
        if in_doubt.as_ref().is_some_and(|now| Arc::ptr_eq(now, &lost)) {
            *in_doubt = None;
        }
        Ok(())
    }

    /// Puts `batch` behind `after`.
    pub(crate) async fn append(&self, after: Position, batch: &[Record]) -> Result<(), LogError> {
        let inner = &self.inner;
        // Told before anything is waited for: what is under way now must succeed.
        let under_way = PendingAppend::one_more(&inner.under_way);
        let columns = check(after, batch).and_then(|()| BatchColumns::of(batch, true));
        // A batch that cannot be right is still compared first.
        let (columns, wrong) = columns.map_or_else(|wrong| (BatchColumns::default(), Some(wrong)), |it| (it, None));
        let sending = inner.in_order.lock().await;
        inner.begun.fetch_add(1, Ordering::AcqRel);
        let session = inner.link.session().await?;
        if inner.is_followed.load(Ordering::Acquire) && !session.is_followed() {
            return Err(failure::not_followed());
        }
        let place = AppendPoint { after, chained: under_way.before > 0 };
        let answered = once_begun(inner.append_columns(&session, place, &columns), || drop(sending)).await?;
        let outcome = match answered {
            Err(error) if failure::is_about_a_value(&error) => {
                tracing::warn!(%error, "PostgreSQL refuses a payload; the batch is stored without payload columns");
                inner.append_columns(&session, place, &BatchColumns::of(batch, false)?).await?
            }
            answered => answered,
        };
        let outcome = outcome.map_err(|error| refusal(&error))?;
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

    /// Waits until synchronous standbys have everything up to `position`, which was read: until a commit that is later than
    /// what was read has been answered.
    pub(crate) async fn await_replication(&self, position: Position) -> Result<(), LogError> {
        let inner = &self.inner;
        if inner.shown.get() >= position {
            return Ok(());
        }
        let late = {
            let _timers = inner.runtime.enter();
            tokio::time::sleep(REPLICATION_TIMEOUT)
        };
        let proving = async {
            let only_one = Arc::clone(&inner.confirming).lock_owned().await;
            let confirming = inner.runtime.spawn(confirm(Arc::clone(inner), position, only_one));
            // It is aborted only when the runtime ends.
            confirming.await.unwrap_or_else(|_| Err(failure::no_answer()))
        };
        tokio::select! {
            biased;
            proven = proving => proven,
            () = late => Err(failure::unconfirmed()),
        }
    }

    /// A turn that is not used is given back: whoever has nothing more to append must not hold up the others.
    fn release_unused_turn(&self) {
        let inner = Arc::downgrade(&self.inner);
        let begun = self.inner.begun.load(Ordering::Acquire);
        let turn = self.inner.turn;
        self.inner.runtime.spawn(async move {
            tokio::time::sleep(turn).await;
            let Some(inner) = inner.upgrade() else { return };
            let _turn = inner.in_order.lock().await;
            if inner.begun.load(Ordering::Acquire) == begun
                && let Ok(session) = inner.link.session().await
                && let Err(error) = session.row(RELEASE_TURN, &[]).await
            {
                tracing::debug!(%error, "a turn could not be given back; it ends with its session");
            }
        });
    }
}

impl WriterState {
    fn in_doubt(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.in_doubt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session is lost, and what it was doing may still be done.
    fn mark_in_doubt(&self, session: &Arc<Session>) {
        session.close();
        *self.in_doubt() = Some(Arc::clone(session));
    }

    /// Has `columns` appended: in one round trip, unless somebody else was faster.
    async fn append_columns(
        &self,
        session: &Arc<Session>,
        mut place: AppendPoint,
        columns: &BatchColumns<'_>,
    ) -> StatementResult<AppendOutcome> {
        if let Some(columns) = columns.of_one_table() {
            match self.insert_single_table(session, place, columns).await? {
                // `append` says why, and gives the turn. The append in front has failed: whatever has come in since, this
                // one must not come in behind it.
                Ok(false) if place.chained => place.after = UNREACHABLE_POSITION,
                Ok(false) => {}
                Ok(true) => return Ok(Ok(AppendOutcome::Appended)),
                Err(error) => return Ok(Err(error)),
            }
        }
        self.append_mixed(session, place, columns).await
    }

    /// Whether records were added to their table.
    async fn insert_single_table(
        &self,
        session: &Arc<Session>,
        place: AppendPoint,
        columns: SingleTableColumns<'_>,
    ) -> StatementResult<bool> {
        let after = number(place.after.get());
        let (instance, epoch) = (self.fence.instance(), session.epoch());
        let head: [SqlParam<'_>; 6] =
            [&after, &place.chained, &columns.amount, columns.first_stored_at, &instance, &epoch];
        let params: Vec<SqlParam<'_>> = head.into_iter().chain(columns.params).collect();
        let text = match columns.table {
            TargetTable::Events => ADD_EVENTS,
            TargetTable::Entries => ADD_ENTRIES,
        };
        let added = self.check_answer(session, session.try_add(text, &params).await)?;
        Ok(added.map(|rows| rows > 0))
    }

    async fn append_mixed(
        &self,
        session: &Arc<Session>,
        place: AppendPoint,
        columns: &BatchColumns<'_>,
    ) -> StatementResult<AppendOutcome> {
        let after = number(place.after.get());
        let turn = i32::try_from((self.turn * STOPPED_TURNS).as_millis()).unwrap_or(i32::MAX);
        let (instance, epoch) = (self.fence.instance(), session.epoch());
        let head: [SqlParam<'_>; 5] = [&after, &place.chained, &turn, &instance, &epoch];
        let params: Vec<SqlParam<'_>> = head.into_iter().chain(columns.params()).collect();
        let rows = match self.check_answer(session, session.try_rows(APPEND, &params).await)? {
            Ok(rows) => rows,
            Err(error) => return Ok(Err(error)),
        };
        let row = rows.first().ok_or_else(|| failure::refused("append gave no answer"))?;
        let tail = Position(row.get::<_, i64>(1).unsigned_abs());
        Ok(Ok(match row.get::<_, i32>(0) {
            0 => AppendOutcome::Appended,
            1 => AppendOutcome::TailMoved(tail),
            _ => AppendOutcome::TimeFell,
        }))
    }

    /// An answer as it came; one that ends the session, or none, leaves it in doubt. So does one that came before
    /// synchronous standbys had what it speaks of.
    fn check_answer<T>(&self, session: &Arc<Session>, answer: StatementResult<T>) -> StatementResult<T> {
        if answer.as_ref().map_or(true, |said| said.as_ref().is_err_and(failure::ends_session)) {
            self.mark_in_doubt(session);
        }
        if session.is_unreplicated() {
            self.mark_in_doubt(session);
            return Err(failure::unconfirmed());
        }
        answer
    }
}

/// Has synchronous standbys confirm everything up to `position`. Nobody has to wait for it: it goes on by itself.
async fn confirm(inner: Arc<WriterState>, position: Position, _only_one: OwnedMutexGuard<()>) -> Result<(), LogError> {
    let session = inner.link.session().await?;
    // Another one, or the beginning of the session, may have done so meanwhile.
    if inner.shown.get() < position {
        let answer = inner.check_answer(&session, session.try_rows(CONFIRM, &[]).await)?;
        answer.map_err(|error| failure::of_statement(&error))?;
        inner.shown.raise(position);
    }
    Ok(())
}

/// What `work` comes to; `then` is called once it has begun.
async fn once_begun<T>(work: impl Future<Output = T>, then: impl FnOnce()) -> T {
    let mut work = pin!(work);
    let begun = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
    then();
    match begun {
        Poll::Ready(done) => done,
        Poll::Pending => work.await,
    }
}

fn refusal(error: &tokio_postgres::Error) -> LogError {
    match failure::is_duplicate(error) {
        true => LogError::Misnumbered("a number is already taken"),
        false => failure::of_statement(error),
    }
}

/// What can be told of a batch's numbers without the log.
fn check(after: Position, batch: &[Record]) -> Result<(), LogError> {
    let mut expected = after;
    let mut time = i64::MIN;
    for Record { header, .. } in batch {
        expected = Position(expected.get().saturating_add(1));
        if header.position != expected {
            return Err(LogError::Misnumbered("positions must run densely from the tail"));
        }
        if header.time < time {
            return Err(LogError::Misnumbered("times must not fall"));
        }
        time = header.time;
    }
    Ok(())
}
