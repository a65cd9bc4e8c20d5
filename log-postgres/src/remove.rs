//! Removing: what retention lets go, under the maintenance role.
//!
//! - In steps, each a transaction of its own: no long lock, and a removal that is cut short goes on where it was.
//! - With a maintenance URL it connects there. Otherwise it becomes `event_broker_maintenance` where it may, and where
//!   that role does not exist it deletes with its own rights.

use crate::failure;
use crate::row::number;
use crate::session::{ConnectTarget, Session};
use contract::Sequence;
use log::{LogError, TopicNumber};
use std::sync::Arc;

/// Records that go in one transaction.
const STEP_RECORDS: i32 = 5000;

const LAST_EVENT: &str = "SELECT max(topic_seq) FROM events WHERE topic_number = $1";
const LAST_ENTRY: &str = "SELECT max(sequence) FROM entries WHERE $1 = 0::bigint";
const REMOVE: &str = "SELECT remove_some($1, $2, $3)";
/// The server's time, who asks, and whether this role may delete as itself.
const RIGHTS: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, current_user::text, \
    has_table_privilege('events', 'DELETE') AND has_table_privilege('entries', 'DELETE') \
    AND has_table_privilege('removals', 'INSERT') AND has_table_privilege('removals', 'UPDATE')";
/// Whether there is a maintenance role with its rights, and whether this role may become it.
const MAINTENANCE: &str = "SELECT rolname, pg_has_role(oid, 'MEMBER') FROM pg_roles \
    WHERE rolname = 'event_broker_maintenance' AND has_table_privilege(oid, 'events', 'DELETE')";

/// The one that removes; it connects when it is first asked.
pub(crate) struct RecordRemover {
    target: ConnectTarget,
    session: tokio::sync::Mutex<Option<Arc<Session>>>,
}

impl RecordRemover {
    pub(crate) fn new(target: ConnectTarget) -> Self {
        Self { target, session: tokio::sync::Mutex::default() }
    }

    /// Lets go of `topic`'s records up to `through`.
    pub(crate) async fn remove(&self, topic: TopicNumber, through: Sequence) -> Result<(), LogError> {
        self.with_session(async |session| remove(session, topic, through).await).await
    }

    /// Refuses where nothing may be removed, and says what is missing; answers the server's time, in milliseconds.
    pub(crate) async fn may_remove(&self) -> Result<i64, LogError> {
        self.with_session(async |session| may_remove(session).await).await
    }

    async fn with_session<T>(&self, ask: impl AsyncFnOnce(&Session) -> Result<T, LogError>) -> Result<T, LogError> {
        let mut kept = self.session.lock().await;
        let session = match kept.take().filter(|session| !session.is_closed()) {
            Some(session) => session,
            None => self.target.connect(None).await?,
        };
        let answer = ask(&session).await;
        // After a failure the session may be inside a transaction; a new one is cheaper than finding out.
        if answer.is_ok() {
            *kept = Some(session);
        }
        answer
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
    let number_of_topic = i64::from(topic.0);
    let last = if topic == TopicNumber::LEDGER { LAST_ENTRY } else { LAST_EVENT };
    let last = session.row(last, &[&number_of_topic]).await?;
    // What is appended between two steps is not meant.
    let Some(last) = last.and_then(|row| row.get::<_, Option<i64>>(0)) else { return Ok(()) };
    let through = number(through.get()).min(last);
    let begin = begin(session).await?;
    loop {
        session.run(begin).await?;
        let removed = session.try_rows(REMOVE, &[&number_of_topic, &through, &STEP_RECORDS]).await?;
        let rows = removed.map_err(|error| refusal(&error))?;
        session.run("COMMIT").await?;
        if rows.first().is_none_or(|row| row.get::<_, i64>(0) < i64::from(STEP_RECORDS)) {
            return Ok(());
        }
    }
}

/// How a transaction that removes begins.
async fn begin(session: &Session) -> Result<&'static str, LogError> {
    let role = session.row(MAINTENANCE, &[]).await?;
    match role.map(|row| row.get::<_, bool>(1)) {
        Some(true) => Ok("BEGIN; SET LOCAL ROLE event_broker_maintenance"),
        Some(false) => Err(forbidden(None, "is not a member of event_broker_maintenance")),
        None => Ok("BEGIN; SET LOCAL event_broker.removing = 'on'"),
    }
}

fn refusal(error: &tokio_postgres::Error) -> LogError {
    match failure::is_forbidden(error) {
        true => forbidden(None, "may not delete from the log's tables"),
        false => failure::of_statement(error),
    }
}

fn forbidden(role: Option<&str>, why: &str) -> LogError {
    let role = role.map_or_else(|| "the broker's role".to_owned(), |role| format!("the role {role}"));
    LogError::Forbidden(format!(
        "{role} {why}. Set `storage.maintenance_url` to a role that may, or grant event_broker_maintenance to this one \
         (roles.sql)."
    ))
}
