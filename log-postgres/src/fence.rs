//! What makes a new connection the one that appends: from then on no earlier one of this process can.
//!
//! ```text
//!  session 1 ── append ── no answer, given up ·········· append comes in late ──▶ refused: epoch 1 is not 2
//!  session 2                    └─▶ begin_session(instance, 2) ──▶ reads where the log ends, appends
//! ```
//!
//! - The beginning of a session takes the lock that orders appends, so an append of the one before it that is under way has
//!   ended then; and it is a commit that synchronous standbys have to confirm, so whatever the one before it has committed
//!   is on them when it is answered. Until then nobody gets the connection.
//! - The session before it is ended where this role may and sees it, which frees its locks sooner; nothing rests on that.
//!   With synchronous standbys it is left alone: a session that is ended while it waits for them shows what they have not.

use crate::append::STATEMENTS;
use crate::failure;
use crate::reconnect::PrepareSession;
use crate::row::{PgTimestamp, number};
use crate::session::Session;
use crate::tail::KnownTail;
use crate::tail_poller::poll_tail;
use crate::visible_tail::VisibleTail;
use contract::Position;
use log::LogError;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

const BACKEND: &str = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()";
const END_BACKEND: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
    WHERE pid = $1 AND backend_start = $2 AND current_setting('synchronous_standby_names') = ''";
const BEGIN: &str = "SELECT begin_session($1, $2, $3)";

/// The sessions of one process, of which the last may append.
pub(crate) struct SessionFence {
    /// A random number of this process.
    instance: i64,
    /// Sessions begun, or tried to.
    epochs: AtomicI64,
    /// The backend of the last one, where it can be seen.
    backend: Mutex<Option<(i32, PgTimestamp)>>,
}

impl SessionFence {
    pub(crate) fn new() -> Self {
        let instance = number(Uuid::new_v4().as_u64_pair().0 >> 1);
        Self { instance, epochs: AtomicI64::new(0), backend: Mutex::default() }
    }

    pub(crate) const fn instance(&self) -> i64 {
        self.instance
    }

    /// What is done on each new connection before anybody gets it.
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
                // A large batch is unfolded in memory. One plan serves batches of any size: to make one for each costs
                // more than a small batch itself.
                session.run("SET work_mem = '64MB'; SET plan_cache_mode = force_generic_plan").await?;
                fence.end_last(&session).await;
                fence.begin(&session, &shown).await?;
                for text in STATEMENTS {
                    session.prepare(text).await?;
                }
                // It listens before it looks, so that nothing falls between.
                session.run(&listen).await?;
                poll_tail(&session, &tail).await
            })
        })
    }

    /// Ends the backend of the session before, where that is possible and does no harm; and notes that of this one.
    async fn end_last(&self, session: &Session) {
        let last = *self.backend();
        if let Some((pid, started)) = last
            && let Err(error) = session.row(END_BACKEND, &[&pid, &started]).await
        {
            tracing::debug!(%error, "the session before this one could not be ended; it cannot append any more");
        }
        // The time is hidden from a session that goes by another role than it logged in as.
        let seen = session.row(BACKEND, &[]).await.ok().flatten();
        *self.backend() = seen.and_then(|row| Some((row.get(0), row.try_get(1).ok()?)));
    }

    /// Makes this session the one that appends.
    async fn begin(&self, session: &Session, shown: &VisibleTail) -> Result<(), LogError> {
        let epoch = self.epochs.fetch_add(1, Ordering::AcqRel).saturating_add(1);
        let patience = i32::try_from(session.answer_timeout().as_millis()).unwrap_or(i32::MAX);
        let before = shown.get();
        let row = session.row(BEGIN, &[&self.instance, &epoch, &patience]).await.map_err(failure::while_confirming)?;
        if session.is_unreplicated() {
            return Err(failure::unconfirmed());
        }
        let row = row.ok_or_else(|| failure::refused("begin_session gave no answer"))?;
        session.set_epoch(epoch);
        shown.found(Position(row.get::<_, i64>(0).unsigned_abs()), before);
        Ok(())
    }

    fn backend(&self) -> std::sync::MutexGuard<'_, Option<(i32, PgTimestamp)>> {
        self.backend.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
