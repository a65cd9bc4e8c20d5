//! Removal of old records, as the maintenance role.
//!
//! - Records are removed in steps, each in its own transaction: no lock is held for long, and a removal that is interrupted
//!   resumes where it stopped.
//! - Several processes may remove the same records at once. A removal is complete when none of them is left, whoever has
//!   removed them.
//! - With a maintenance URL the broker connects there. Otherwise it sets the role `event_broker_maintenance` if it may; if that
//!   role does not exist, it deletes with its own rights.

use crate::failure::{self, StatementFailure};
use crate::row::number;
use crate::session::{ConnectTarget, Session};
use contract::Sequence;
use log::{LogError, TopicNumber};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Records removed in one transaction.
const STEP_RECORDS: i32 = 5000;

const LAST_EVENT: &str = "SELECT max(topic_seq) FROM events WHERE topic_number = $1";
const LAST_ENTRY: &str = "SELECT max(sequence) FROM entries WHERE $1 = 0::bigint";
const FIRST_EVENT: &str = "SELECT min(topic_seq) FROM events WHERE topic_number = $1";
const FIRST_ENTRY: &str = "SELECT min(sequence) FROM entries WHERE $1 = 0::bigint";
const REMOVE: &str = "SELECT remove_some($1, $2, $3)";
/// The server's time, the role, and whether this role may delete with its own rights.
const RIGHTS: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, current_user::text, \
    has_table_privilege('events', 'DELETE') AND has_table_privilege('entries', 'DELETE') \
    AND has_table_privilege('removals', 'INSERT') AND has_table_privilege('removals', 'UPDATE')";
/// Whether there is a maintenance role with its rights, and whether this role may set it.
const MAINTENANCE: &str = "SELECT rolname, pg_has_role(oid, 'MEMBER') FROM pg_roles \
    WHERE rolname = 'event_broker_maintenance' AND has_table_privilege(oid, 'events', 'DELETE')";

/// Another process removes the same records: this many steps may find none to remove, with a pause after each, before the
/// removal is given up until the next attempt.
const EMPTY_STEPS_MAX: u32 = 100;
const EMPTY_STEP_PAUSE: Duration = Duration::from_millis(50);

/// Removes records; it connects for the first removal.
pub(crate) struct RecordRemover {
    target: ConnectTarget,
    session: tokio::sync::Mutex<Option<Arc<Session>>>,
    /// Counts the calls of [`Self::renew`].
    generation: AtomicU64,
    /// The generation of `session`.
    connected_in: AtomicU64,
}

impl RecordRemover {
    pub(crate) fn new(target: ConnectTarget) -> Self {
        let (generation, connected_in) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { target, session: tokio::sync::Mutex::default(), generation, connected_in }
    }

    /// Makes the next removal connect again: the connection may lead to a server that was replaced. A removal that is under
    /// way fails.
    pub(crate) fn renew(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes `topic`'s records up to `through`.
    pub(crate) async fn remove(&self, topic: TopicNumber, through: Sequence) -> Result<(), LogError> {
        self.with_session(async |session| remove(session, topic, through).await).await
    }

    /// The server's time, in milliseconds; an error that names the missing privilege if nothing may be removed.
    pub(crate) async fn may_remove(&self) -> Result<i64, LogError> {
        self.with_session(async |session| may_remove(session).await).await
    }

    async fn with_session<T>(&self, work: impl AsyncFnOnce(&Session) -> Result<T, LogError>) -> Result<T, LogError> {
        let mut kept = self.session.lock().await;
        let generation = self.generation.load(Ordering::Acquire);
        let is_current = self.connected_in.swap(generation, Ordering::AcqRel) == generation;
        let session = match kept.take().filter(|session| is_current && !session.is_closed()) {
            Some(session) => session,
            None => self.target.connect(None).await?,
        };
        let result = work(&session).await?;
        if self.generation.load(Ordering::Acquire) != generation {
            return Err(failure::replaced());
        }
        // Kept after a success only: after a failure the session may be inside a transaction.
        *kept = Some(session);
        Ok(result)
    }
}

async fn may_remove(session: &Session) -> Result<i64, LogError> {
    let Some(rights) = session.row(RIGHTS, &[]).await? else { return Err(forbidden(None, "may not delete")) };
    let role: String = rights.get(1);
    let membership = session.row(MAINTENANCE, &[]).await?;
    match membership.map(|row| row.get::<_, bool>(1)) {
        Some(true) => Ok(rights.get(0)),
        Some(false) => Err(forbidden(Some(&role), "is not a member of event_broker_maintenance")),
        None if rights.get(2) => Ok(rights.get(0)),
        None => Err(forbidden(Some(&role), "may not delete from the log's tables")),
    }
}

async fn remove(session: &Session, topic: TopicNumber, through: Sequence) -> Result<(), LogError> {
    let (first, last) = match topic {
        TopicNumber::LEDGER => (FIRST_ENTRY, LAST_ENTRY),
        _ => (FIRST_EVENT, LAST_EVENT),
    };
    let topic = i64::from(topic.0);
    // Records that are appended between two steps are not removed.
    let Some(last) = sequence(session, last, topic).await? else { return Ok(()) };
    let through = number(through.get()).min(last);
    let begin = begin(session).await?;
    let mut empty_steps = 0;
    while sequence(session, first, topic).await?.is_some_and(|first| first <= through) {
        session.run(begin).await?;
        let rows = session.try_rows(REMOVE, &[&topic, &through, &STEP_RECORDS]).await.map_err(refusal)?;
        session.run("COMMIT").await?;
        if rows.first().is_some_and(|row| row.get::<_, i64>(0) > 0) {
            continue;
        }
        // Another process has removed what this step was to remove, and may be stopped before it has removed the rest.
        empty_steps += 1;
        if empty_steps > EMPTY_STEPS_MAX {
            return Err(failure::not_removable());
        }
        session.pause(EMPTY_STEP_PAUSE).await;
    }
    Ok(())
}

/// The result of a query for a topic's first or last sequence.
async fn sequence(session: &Session, query: &'static str, topic: i64) -> Result<Option<i64>, LogError> {
    Ok(session.row(query, &[&topic]).await?.and_then(|row| row.get(0)))
}

/// The statements that begin a transaction that removes.
async fn begin(session: &Session) -> Result<&'static str, LogError> {
    let role = session.row(MAINTENANCE, &[]).await?;
    match role.map(|row| row.get::<_, bool>(1)) {
        Some(true) => Ok("BEGIN; SET LOCAL ROLE event_broker_maintenance"),
        Some(false) => Err(forbidden(None, "is not a member of event_broker_maintenance")),
        None => Ok("BEGIN; SET LOCAL event_broker.removing = 'on'"),
    }
}

fn refusal(failure: StatementFailure) -> LogError {
    match failure {
        StatementFailure::Refused(error) if failure::is_forbidden(&error) => {
            forbidden(None, "may not delete from the log's tables")
        }
        other => other.into(),
    }
}

fn forbidden(role: Option<&str>, why: &str) -> LogError {
    let role = role.map_or_else(|| "the broker's role".to_owned(), |role| format!("the role {role}"));
    LogError::Forbidden(format!(
        "{role} {why}. Set `storage.maintenance_url` to a role that may, or grant event_broker_maintenance to this one \
         (roles.sql)."
    ))
}
