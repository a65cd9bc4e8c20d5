//! Following what other processes append: the connection that appends is told of it, and here is a look of our own once a
//! second, in case it is busy or was lost.

use crate::link::Link;
use crate::session::{Session, Target};
use crate::tail::Tail;
use contract::Position;
use log::LogError;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How often the tail is looked at though nothing was heard.
const LOOK_EVERY: Duration = Duration::from_secs(1);

const TAIL: &str = "SELECT position FROM log_end";

/// Keeps the tail up to date as long as this lives.
pub(crate) struct Follower(JoinHandle<()>);

impl Follower {
    pub(crate) fn start(target: Target, tail: &Arc<Tail>) -> Self {
        let runtime = target.runtime.clone();
        let link = Link::plain(target);
        let tail = Arc::clone(tail);
        Self(runtime.spawn(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                if let Ok(session) = link.session().await
                    && let Err(error) = look(&session, &tail).await
                {
                    tracing::debug!(%error, "the tail could not be looked at");
                }
            }
        }))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Shows where the log ends now.
pub(crate) async fn look(session: &Session, tail: &Tail) -> Result<(), LogError> {
    let shown = tail.shown();
    if let Some(row) = session.row(TAIL, &[]).await? {
        tail.found(Position(row.get::<_, i64>(0).unsigned_abs()), shown);
    }
    Ok(())
}
