//! Following what other processes append: the connection that appends is told of it, and here is a look of our own once a
//! second, in case it is busy or was lost.

use crate::reconnect::PersistentConnection;
use crate::session::{ConnectTarget, Session};
use crate::tail::KnownTail;
use contract::Position;
use log::LogError;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How often the tail is looked at though nothing was heard.
const LOOK_EVERY: Duration = Duration::from_secs(1);

const TAIL: &str = "SELECT position FROM log_end";

/// Keeps the tail up to date as long as this lives.
pub(crate) struct TailPoller(JoinHandle<()>);

impl TailPoller {
    pub(crate) fn start(target: ConnectTarget, tail: &Arc<KnownTail>) -> Self {
        let runtime = target.runtime.clone();
        let connection = PersistentConnection::start_unprepared(target);
        let tail = Arc::clone(tail);
        Self(runtime.spawn(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                if let Ok(session) = connection.session().await
                    && let Err(error) = poll_tail(&session, &tail).await
                {
                    tracing::debug!(%error, "the tail could not be looked at");
                }
            }
        }))
    }
}

impl Drop for TailPoller {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Shows where the log ends now.
pub(crate) async fn poll_tail(session: &Session, tail: &KnownTail) -> Result<(), LogError> {
    let shown = tail.shown();
    if let Some(row) = session.row(TAIL, &[]).await? {
        tail.found(Position(row.get::<_, i64>(0).unsigned_abs()), shown);
    }
    Ok(())
}
