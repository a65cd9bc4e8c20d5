//! A connection that is made again whenever it is lost, without limit.
//!
//! ```text
//!            ┌── made ──▶ Up ── lost ──┐
//!  Connecting│                         ▼        while Connecting, callers wait for the outcome;
//!     ▲      └─ failed ─▶ Down ◀─ failed, later  while Down, they get an error at once
//!     └────────────────────┴── after a pause: 50 ms, then twice as long each time, at most 2 s
//! ```

use crate::failure;
use crate::session::{ConnectTarget, Session};
use crate::tail::KnownTail;
use contract::BoxFuture;
use log::LogError;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Prepares a new connection before it is used.
pub(crate) type PrepareSession = Box<dyn Fn(Arc<Session>) -> BoxFuture<'static, Result<(), LogError>> + Send + Sync>;

#[derive(Clone)]
enum ConnectionState {
    Connecting,
    Up(Arc<Session>),
    Down(Arc<io::Error>),
}

/// A connection that is kept until this is dropped.
pub(crate) struct PersistentConnection {
    state: watch::Receiver<ConnectionState>,
    keeping: JoinHandle<()>,
}

impl PersistentConnection {
    /// Keeps a connection that needs no preparation.
    pub(crate) fn start_unprepared(target: ConnectTarget) -> Self {
        Self::start(target, None, Box::new(|_| Box::pin(async { Ok(()) })))
    }

    /// Keeps a connection to `target`.
    pub(crate) fn start(target: ConnectTarget, tail: Option<Arc<KnownTail>>, prepare: PrepareSession) -> Self {
        let (state, watched) = watch::channel(ConnectionState::Connecting);
        let runtime = target.runtime.clone();
        let keeping = runtime.spawn(async move {
            let mut pause = PAUSE_MIN;
            loop {
                match connect(&target, tail.clone(), &prepare).await {
                    Ok(session) => {
                        pause = PAUSE_MIN;
                        state.send_replace(ConnectionState::Up(Arc::clone(&session)));
                        session.ended().await;
                        state.send_replace(ConnectionState::Connecting);
                    }
                    Err(error) => {
                        if !matches!(*state.borrow(), ConnectionState::Down(_)) {
                            tracing::warn!(%error, "PostgreSQL cannot be reached; the broker retries until it can");
                        }
                        state.send_replace(ConnectionState::Down(cause(error)));
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(PAUSE_MAX);
                    }
                }
            }
        });
        Self { state: watched, keeping }
    }

    /// The connection, once it is there; [`LogError::Unavailable`] while it cannot be made.
    pub(crate) async fn session(&self) -> Result<Arc<Session>, LogError> {
        let mut state = self.state.clone();
        loop {
            match &*state.borrow_and_update() {
                ConnectionState::Up(session) if !session.is_closed() => return Ok(Arc::clone(session)),
                ConnectionState::Down(error) => return Err(LogError::Unavailable(Arc::clone(error))),
                ConnectionState::Up(_) | ConnectionState::Connecting => {}
            }
            if state.changed().await.is_err() {
                return Err(failure::no_response());
            }
        }
    }

    /// The connection, if there is one now.
    pub(crate) fn current(&self) -> Option<Arc<Session>> {
        match &*self.state.borrow() {
            ConnectionState::Up(session) if !session.is_closed() => Some(Arc::clone(session)),
            _ => None,
        }
    }

    /// Closes the connection, so that a new one is made.
    pub(crate) fn renew(&self) {
        if let Some(session) = self.current() {
            session.close();
        }
    }

    /// Why there is no connection, after an attempt has failed.
    pub(crate) fn trouble(&self) -> Option<Arc<io::Error>> {
        match &*self.state.borrow() {
            ConnectionState::Down(error) => Some(Arc::clone(error)),
            _ => None,
        }
    }
}

impl Drop for PersistentConnection {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}

async fn connect(
    target: &ConnectTarget,
    tail: Option<Arc<KnownTail>>,
    prepare: &PrepareSession,
) -> Result<Arc<Session>, LogError> {
    let session = target.connect(tail).await?;
    prepare(Arc::clone(&session)).await?;
    Ok(session)
}

fn cause(error: LogError) -> Arc<io::Error> {
    match error {
        LogError::Unavailable(cause) | LogError::Io(cause) => cause,
        other => Arc::new(io::Error::other(other)),
    }
}
