//! Following the appends of other processes. The connection that appends is notified of them; a connection of its own queries
//! the tail then, and once a second in case a notification was missed.

use crate::reconnect::PersistentConnection;
use crate::session::{ConnectTarget, Session};
use crate::tail::KnownTail;
use contract::Position;
use log::LogError;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How often the tail is queried without a notification.
const POLL_EVERY: Duration = Duration::from_secs(1);

const TAIL: &str = "SELECT position FROM log_end";

/// Keeps the known tail up to date until it is dropped.
pub(crate) struct TailPoller {
    connection: Arc<PersistentConnection>,
    polling: JoinHandle<()>,
}

impl TailPoller {
    /// Starts polling, over a connection of its own, or over `writer` while it has none.
    pub(crate) fn start(target: ConnectTarget, tail: &Arc<KnownTail>, writer: &Arc<PersistentConnection>) -> Self {
        let runtime = target.runtime.clone();
        let connection = Arc::new(PersistentConnection::start_unprepared(target));
        let (tail, own, writer) = (Arc::clone(tail), Arc::clone(&connection), Arc::clone(writer));
        let polling = runtime.spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(POLL_EVERY) => (),
                    () = tail.hinted() => (),
                }
                if let Some(session) = own.current().or_else(|| writer.current())
                    && let Err(error) = poll_tail(&session, &tail).await
                {
                    tracing::debug!(%error, "the tail could not be queried");
                }
            }
        });
        Self { connection, polling }
    }

    /// The connection that polls.
    pub(crate) fn connection(&self) -> &PersistentConnection {
        &self.connection
    }
}

impl Drop for TailPoller {
    fn drop(&mut self) {
        self.polling.abort();
    }
}

/// Queries where the log ends now, and shows it.
pub(crate) async fn poll_tail(session: &Session, tail: &KnownTail) -> Result<(), LogError> {
    let shown = tail.shown();
    if let Some(row) = session.row(TAIL, &[]).await? {
        tail.found(Position(row.get::<_, i64>(0).unsigned_abs()), shown);
    }
    Ok(())
}
