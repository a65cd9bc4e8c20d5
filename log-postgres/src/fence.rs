//! Fencing: a new connection becomes the one that appends, and after that no earlier one of this process can append.
//!
//! ```text
//!  session 1 ── append ── no response, given up ········ append arrives late ───▶ refused: epoch 1 is not 2
//!  session 2                    └─▶ begin_session(instance, 2) ──▶ reads where the log ends, appends
//! ```
//!
//! - The beginning of a session takes the lock that orders appends, so an append of the session before it has ended by then. It
//!   is also a commit that synchronous standbys must confirm, so they have everything that the session before it has
//!   committed. The connection is not used before that.
//! - The session before it is terminated if this role may and can see it, which frees its locks sooner; correctness does not
//!   depend on that. With synchronous standbys it is not terminated: a session that is terminated while it waits for them
//!   makes visible what they do not have.
//! - If a later session is entered that this process did not begin, somebody else has entered it. The process takes a new
//!   number then; with the old one no session of it can append any more.

use crate::failure::{self, StatementFailure};
use crate::reconnect::PrepareSession;
use crate::row::{PgTimestamp, number};
use crate::session::Session;
use crate::statements;
use crate::tail::KnownTail;
use crate::tail_poller::poll_tail;
use crate::visible_tail::VisibleTail;
use contract::Position;
use log::LogError;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

const BACKEND: &str =
    "SELECT pg_backend_pid(), (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())";
const END_BACKEND: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
    WHERE pid = $1 AND backend_start = $2 AND current_setting('synchronous_standby_names') = ''";
const BEGIN: &str = "SELECT begin_session($1, $2, $3)";

/// Which session of which process this is, as every append states it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SessionId {
    pub(crate) instance: i64,
    pub(crate) epoch: i64,
}

/// The sessions of one process, of which the last may append.
pub(crate) struct SessionFence {
    /// A random number of this process.
    instance: AtomicI64,
    /// How many sessions were begun, or attempted.
    epochs: AtomicI64,
    /// The backend of the last one, if it can be seen.
    backend: Mutex<Option<(i32, PgTimestamp)>>,
}

impl SessionFence {
    pub(crate) fn new() -> Self {
        Self { instance: AtomicI64::new(random_instance()), epochs: AtomicI64::new(0), backend: Mutex::default() }
    }

    /// Prepares a new connection before it is used.
    pub(crate) fn prepare(
        self: &Arc<Self>,
        channel: &str,
        tail: &Arc<KnownTail>,
        shown: &Arc<VisibleTail>,
    ) -> PrepareSession {
        let (fence, listen) = (Arc::clone(self), format!("LISTEN \"{channel}\""));
        let (tail, shown) = (Arc::clone(tail), Arc::clone(shown));
        Box::new(move |session| {
            let (fence, listen) = (Arc::clone(&fence), listen.clone());
            let (tail, shown) = (Arc::clone(&tail), Arc::clone(&shown));
            Box::pin(async move {
                // A large batch is unnested in memory. One plan serves batches of any size: planning each of them costs
                // more than a small batch itself.
                session.run("SET work_mem = '64MB'; SET plan_cache_mode = force_generic_plan").await?;
                fence.end_last(&session).await;
                fence.begin(&session, &shown).await?;
                for text in statements::prepared() {
                    session.prepare(text).await?;
                }
                // LISTEN comes before the query for the tail, so that no append is missed between them.
                session.run(&listen).await?;
                poll_tail(&session, &tail).await
            })
        })
    }

    /// Terminates the backend of the session before, if that is possible and does no harm; and notes that of this one.
    async fn end_last(&self, session: &Session) {
        let last = *self.backend();
        if let Some((pid, started)) = last
            && let Err(error) = session.row(END_BACKEND, &[&pid, &started]).await
        {
            tracing::debug!(%error, "the session before this one could not be terminated; it cannot append any more");
        }
        let backend = session.row(BACKEND, &[]).await.inspect_err(|error| {
            tracing::debug!(%error, "the backend of this session is not known; every notification makes the broker query the tail");
        });
        let backend = backend.ok().flatten();
        backend.iter().for_each(|row| session.set_backend(row.get(0)));
        // The time is hidden from a session whose role is not the one that it logged in as.
        *self.backend() = backend.and_then(|row| Some((row.get(0), row.try_get(1).ok()?)));
    }

    /// Makes this session the one that appends.
    async fn begin(&self, session: &Session, shown: &VisibleTail) -> Result<(), LogError> {
        let epoch = self.epochs.fetch_add(1, Ordering::AcqRel).saturating_add(1);
        let patience = i32::try_from(session.answer_timeout().as_millis()).unwrap_or(i32::MAX);
        let before = shown.get();
        let instance = self.instance.load(Ordering::Acquire);
        let rows = session.try_rows(BEGIN, &[&instance, &epoch, &patience]).await;
        if rows.as_ref().is_err_and(StatementFailure::is_replaced) {
            self.take_new_instance(instance, epoch);
        }
        let rows = rows.map_err(|error| failure::while_confirming(error.into()))?;
        if session.is_unreplicated() {
            return Err(failure::unconfirmed());
        }
        let row = rows.first().ok_or_else(|| failure::refused("begin_session returned no row"))?;
        session.set_id(SessionId { instance, epoch });
        shown.found(Position(row.get::<_, i64>(0).unsigned_abs()), before);
        Ok(())
    }

    /// Takes a new number where the database has a later session of this process than the process has begun.
    fn take_new_instance(&self, instance: i64, epoch: i64) {
        if self.epochs.load(Ordering::Acquire) != epoch {
            // The later one is our own: this connection was given up in the meantime.
            return;
        }
        let taken =
            self.instance.compare_exchange(instance, random_instance(), Ordering::AcqRel, Ordering::Acquire).is_ok();
        if taken {
            tracing::warn!(
                "table `sessions` has a session of this broker that it did not begin; the broker goes on under a new number"
            );
        }
    }

    fn backend(&self) -> std::sync::MutexGuard<'_, Option<(i32, PgTimestamp)>> {
        self.backend.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn random_instance() -> i64 {
    number(Uuid::new_v4().as_u64_pair().0 >> 1)
}
