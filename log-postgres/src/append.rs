//! Appending: one statement, one round trip, one commit.
//!
//! - All over one connection, in the order in which they were begun. One is sent without waiting for the answer to the one
//!   before it, and is refused over there if that one failed.
//! - Whoever loses a compare has the turn (see `append` in the migrations). Where it does not use it, it is given back.
//! - It listens over the same connection: what it said itself comes back with the answer, and no other session is woken
//!   for it.
//! - When the connection is lost half way, what was sent may still be running over there. So before anything else is
//!   said about the end of the log, a new connection is made and the old session's end is waited for.

use crate::columns::Columns;
use crate::failure;
use crate::follow::look;
use crate::link::{Link, Prepare};
use crate::row::{Stamp, number};
use crate::session::{Session, Target};
use crate::tail::Tail;
use contract::Position;
use log::{LogError, Record};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_postgres::types::ToSql;

const APPEND: &str = "SELECT outcome, tail FROM append(\
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, \
    $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38)";
const BACKEND: &str = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()";
/// No row: the session is gone. A row: whether it was in time.
const END_BACKEND: &str =
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2";
const GIVE_BACK: &str = "SELECT pg_advisory_unlock_all(), set_config('idle_session_timeout', '0', false)";

/// A process that stopped holds its turn this many times longer than one that runs.
const STOPPED_TURNS: u32 = 5;

/// The one that appends.
pub(crate) struct Writer {
    inner: Arc<Inner>,
}

struct Inner {
    link: Link,
    /// Held until an append is sent.
    in_order: tokio::sync::Mutex<()>,
    /// Appends begun: tells whether a turn was used.
    begun: AtomicU64,
    /// Appends not ended.
    under_way: AtomicUsize,
    /// The session that was lost during an append, which may still be running over there.
    in_doubt: Mutex<Option<Arc<Session>>>,
    tail: Arc<Tail>,
    turn: Duration,
    runtime: Handle,
}

/// Where a batch goes.
#[derive(Clone, Copy)]
struct Place {
    after: Position,
    /// Only if the append before it, which is not answered yet, succeeds.
    chained: bool,
}

/// Counts an append as long as it lives.
struct UnderWay<'a> {
    count: &'a AtomicUsize,
    /// How many there were already.
    before: usize,
}

impl<'a> UnderWay<'a> {
    fn one_more(count: &'a AtomicUsize) -> Self {
        Self { count, before: count.fetch_add(1, Ordering::AcqRel) }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What `append` answered.
enum Outcome {
    Appended,
    TailMoved(Position),
    TimeFell,
}

impl Writer {
    pub(crate) fn start(target: Target, tail: Arc<Tail>, channel: &str, turn: Duration) -> Self {
        let runtime = target.runtime.clone();
        let link = Link::keep(target, Some(Arc::clone(&tail)), settle(channel, &tail));
        Self {
            inner: Arc::new(Inner {
                link,
                in_order: tokio::sync::Mutex::default(),
                begun: AtomicU64::new(0),
                under_way: AtomicUsize::new(0),
                in_doubt: Mutex::default(),
                tail,
                turn,
                runtime,
            }),
        }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.inner.link
    }

    /// Waits until no append of ours can still come in unseen. A new session is only given out once the one before it
    /// has ended.
    pub(crate) async fn certain(&self) -> Result<(), LogError> {
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
        let under_way = UnderWay::one_more(&inner.under_way);
        let columns = check(after, batch).and_then(|()| Columns::of(batch, true));
        // A batch that cannot be right is still compared first.
        let (columns, wrong) = columns.map_or_else(|wrong| (Columns::default(), Some(wrong)), |it| (it, None));
        let sending = inner.in_order.lock().await;
        inner.begun.fetch_add(1, Ordering::AcqRel);
        let session = inner.link.session().await?;
        let place = Place { after, chained: under_way.before > 0 };
        let answered = once_begun(inner.ask(&session, place, &columns), || drop(sending)).await?;
        let outcome = match answered {
            Err(error) if failure::is_about_a_value(&error) => {
                tracing::warn!(%error, "PostgreSQL refuses a payload; the batch is stored without payload columns");
                inner.ask(&session, place, &Columns::of(batch, false)?).await?
            }
            answered => answered,
        };
        let outcome = outcome.map_err(|error| refusal(&error))?;
        match (outcome, wrong) {
            (Outcome::TailMoved(tail), _) => {
                inner.tail.show(tail);
                if !batch.is_empty() {
                    self.give_back_in_time();
                }
                Err(LogError::TailMoved(tail))
            }
            (Outcome::TimeFell, _) => Err(LogError::Misnumbered("times must not fall")),
            (Outcome::Appended, Some(wrong)) => Err(wrong),
            (Outcome::Appended, None) => {
                inner.tail.show(Position(after.get().saturating_add(batch.len() as u64)));
                Ok(())
            }
        }
    }

    /// A turn that is not used is given back: whoever has nothing more to append must not hold up the others.
    fn give_back_in_time(&self) {
        let inner = Arc::downgrade(&self.inner);
        let begun = self.inner.begun.load(Ordering::Acquire);
        let turn = self.inner.turn;
        self.inner.runtime.spawn(async move {
            tokio::time::sleep(turn).await;
            let Some(inner) = inner.upgrade() else { return };
            let _turn = inner.in_order.lock().await;
            if inner.begun.load(Ordering::Acquire) == begun
                && let Ok(session) = inner.link.session().await
                && let Err(error) = session.row(GIVE_BACK, &[]).await
            {
                tracing::debug!(%error, "a turn could not be given back; it ends with its session");
            }
        });
    }
}

impl Inner {
    fn in_doubt(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.in_doubt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session is lost, and what it was doing may still be done.
    fn doubt(&self, session: &Arc<Session>) {
        session.close();
        *self.in_doubt() = Some(Arc::clone(session));
    }

    /// One round trip. The outer error: no answer came in time.
    async fn ask(
        &self,
        session: &Arc<Session>,
        Place { after, chained }: Place,
        columns: &Columns<'_>,
    ) -> Result<Result<Outcome, tokio_postgres::Error>, LogError> {
        let after = number(after.get());
        let turn = i32::try_from((self.turn * STOPPED_TURNS).as_millis()).unwrap_or(i32::MAX);
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&after, &chained, &turn];
        params.extend(columns.params());
        let answered = session.try_rows(APPEND, &params).await.inspect_err(|_| self.doubt(session))?;
        let rows = match answered {
            Ok(rows) => rows,
            Err(error) => {
                if failure::ends_session(&error) {
                    self.doubt(session);
                }
                return Ok(Err(error));
            }
        };
        let row = rows.first().ok_or_else(|| failure::refused("append gave no answer"))?;
        let tail = Position(row.get::<_, i64>(1).unsigned_abs());
        Ok(Ok(match row.get::<_, i32>(0) {
            0 => Outcome::Appended,
            1 => Outcome::TailMoved(tail),
            _ => Outcome::TimeFell,
        }))
    }
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

/// On each new connection: the session before it is ended first, and what it was doing is over then. It listens before it
/// looks, so that nothing falls between.
fn settle(channel: &str, tail: &Arc<Tail>) -> Prepare {
    let before: Arc<Mutex<Option<(i32, Stamp)>>> = Arc::default();
    let (listen, tail) = (format!("LISTEN \"{channel}\""), Arc::clone(tail));
    Box::new(move |session| {
        let (before, listen, tail) = (Arc::clone(&before), listen.clone(), Arc::clone(&tail));
        Box::pin(async move {
            let last = *before.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((pid, started)) = last {
                let ended = session.row(END_BACKEND, &[&pid, &started]).await?;
                if ended.is_some_and(|row| !row.get::<_, bool>(0)) {
                    return Err(failure::silent());
                }
            }
            // Acknowledged means durable; and a large batch is unfolded in memory. One plan serves batches of any size:
            // to make one for each costs more than a small batch itself.
            session.run("SET work_mem = '64MB'; SET plan_cache_mode = force_generic_plan").await?;
            session
                .run(
                    "SELECT set_config('synchronous_commit', 'on', false) \
                     WHERE current_setting('synchronous_commit') = 'off'",
                )
                .await?;
            let backend = session.row(BACKEND, &[]).await?;
            // Hidden from a session that goes by another role than it logged in as; then there is nothing to end.
            let backend = backend.and_then(|row| Some((row.get(0), row.try_get(1).ok()?)));
            *before.lock().unwrap_or_else(PoisonError::into_inner) = backend;
            session.prepare(APPEND).await?;
            session.run(&listen).await?;
            look(&session, &tail).await
        })
    })
}
