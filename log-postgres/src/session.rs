//! One connection to PostgreSQL.
//!
//! - Everything that waits for the network or a timer runs on the runtime that the log was opened on; callers may be polled on
//!   any thread.
//! - A session that does not respond in time is closed, without waiting for what it was doing.
//! - Every statement uses an index. The planner's other choices are disabled, because it would take them for a table without
//!   statistics.

use crate::failure::{self, StatementFailure};
use crate::fence::SessionId;
use crate::tail::KnownTail;
use crate::tls::TlsSettings;
use log::LogError;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Error, Row, Statement};

/// How long making a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A peer that is gone without closing the connection is noticed after about this time.
const DEAD_PEER: Duration = Duration::from_secs(15);

/// Where and how to connect.
#[derive(Clone)]
pub(crate) struct ConnectTarget {
    pub(crate) config: Config,
    pub(crate) tls: TlsSettings,
    /// The schema, in quotes.
    pub(crate) schema: String,
    pub(crate) runtime: Handle,
    pub(crate) answer_timeout: Duration,
}

impl ConnectTarget {
    /// Reads a URL (or a list of `key=value`) as libpq does.
    pub(crate) fn parse(url: &str, schema: &str, runtime: &Handle, answer_timeout: Duration) -> Result<Self, LogError> {
        let (mut config, tls) = crate::tls::parse(url)?;
        if config.get_application_name().is_none() {
            config.application_name("event-broker");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(DEAD_PEER);
        }
        config.keepalives_idle(DEAD_PEER / 3).keepalives_interval(DEAD_PEER / 3).keepalives_retries(2);
        Ok(Self { config, tls, schema: schema.to_owned(), runtime: runtime.clone(), answer_timeout })
    }

    /// Connects. Notifications are passed on to `tail`, if there is one.
    pub(crate) async fn connect(&self, tail: Option<Arc<KnownTail>>) -> Result<Arc<Session>, LogError> {
        let target = self.clone();
        let connecting = self.runtime.spawn(async move {
            let connected = tokio::time::timeout(CONNECT_TIMEOUT, target.config.connect(target.tls.clone())).await;
            let (client, connection) =
                connected.map_err(|_| failure::no_response())?.map_err(|error| failure::of_statement(&error))?;
            let (open, opened) = watch::channel(());
            let signals = Arc::new(ConnectionSignals::default());
            let driver = drive(connection, tail, Arc::clone(&signals), open);
            Ok(Arc::new(Session {
                client,
                driver,
                closing: AtomicBool::new(false),
                signals,
                id: OnceLock::new(),
                followed: AtomicBool::new(false),
                opened,
                runtime: target.runtime,
                answer_timeout: target.answer_timeout,
                statements: Mutex::default(),
            }))
        });
        let session = join_task(connecting).await?;
        session.configure(&self.schema).await?;
        Ok(session)
    }
}

/// The result of a task on the log's runtime. The task is aborted only when that runtime ends.
async fn join_task<T>(task: JoinHandle<Result<T, LogError>>) -> Result<T, LogError> {
    task.await.unwrap_or_else(|_| Err(failure::no_response()))
}

/// What the connection and its driver tell each other.
#[derive(Default)]
struct ConnectionSignals {
    /// A commit was acknowledged before synchronous standbys had it. Set before the caller gets that response.
    unreplicated: AtomicBool,
    /// The process id of the server's backend; 0 until it is known.
    backend: AtomicI32,
}

/// Drives the connection until it ends; `open` is dropped then.
fn drive<S, T>(
    mut connection: tokio_postgres::Connection<S, T>,
    tail: Option<Arc<KnownTail>>,
    signals: Arc<ConnectionSignals>,
    open: watch::Sender<()>,
) -> AbortHandle
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let driving = tokio::spawn(async move {
        let _open = open;
        loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(heard))) => {
                    if let Some(tail) = &tail {
                        let is_own = heard.process_id() == signals.backend.load(Ordering::Acquire);
                        tail.on_notification(heard.payload(), is_own);
                    }
                }
                Some(Ok(AsyncMessage::Notice(notice))) if failure::is_unreplicated(&notice) => {
                    tracing::warn!(%notice, "PostgreSQL acknowledged a commit before synchronous standbys had it");
                    signals.unreplicated.store(true, Ordering::Release);
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    tracing::debug!(%error, "a connection to PostgreSQL ended");
                    return;
                }
                None => return,
            }
        }
    });
    driving.abort_handle()
}

/// One connection, with the statements prepared on it.
pub(crate) struct Session {
    client: Client,
    driver: AbortHandle,
    /// `close` was called; the connection ends a moment later.
    closing: AtomicBool,
    signals: Arc<ConnectionSignals>,
    /// Which of its process's sessions this is, if it appends.
    id: OnceLock<SessionId>,
    /// The caller that appends has read the log since the connection was made.
    followed: AtomicBool,
    /// Closed when the connection has ended.
    opened: watch::Receiver<()>,
    runtime: Handle,
    answer_timeout: Duration,
    statements: Mutex<HashMap<&'static str, Statement>>,
}

impl Session {
    /// Sets what applies to every statement of the session.
    async fn configure(&self, schema: &str) -> Result<(), LogError> {
        self.run(&format!(
            "SET search_path = {schema}, pg_temp; SET idle_session_timeout = 0; \
             SET idle_in_transaction_session_timeout = '60s'; SET client_min_messages = warning; SET jit = off; \
             SET enable_seqscan = off; SET enable_bitmapscan = off; SET default_transaction_isolation = 'read committed'"
        ))
        .await
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closing.load(Ordering::Acquire) || self.client.is_closed()
    }

    /// Whether a commit was acknowledged although synchronous standbys may not have it: its wait was cancelled.
    pub(crate) fn is_unreplicated(&self) -> bool {
        self.signals.unreplicated.load(Ordering::Acquire)
    }

    /// Which of its process's sessions this is; zeros if it does not append.
    pub(crate) fn id(&self) -> SessionId {
        self.id.get().copied().unwrap_or_default()
    }

    /// Notes which of its process's sessions this is.
    pub(crate) fn set_id(&self, id: SessionId) {
        let is_first = self.id.set(id).is_ok();
        debug_assert!(is_first, "a session begins once");
    }

    /// Notes the server's backend, so that its own notifications are told from those of others.
    pub(crate) fn set_backend(&self, pid: i32) {
        self.signals.backend.store(pid, Ordering::Release);
    }

    pub(crate) fn answer_timeout(&self) -> Duration {
        self.answer_timeout
    }

    /// Whether the caller that appends has read the log since the connection was made.
    pub(crate) fn is_followed(&self) -> bool {
        self.followed.load(Ordering::Acquire)
    }

    /// The caller that appends has read the log.
    pub(crate) fn set_followed(&self) {
        self.followed.store(true, Ordering::Release);
    }

    /// Waits until the connection has ended.
    pub(crate) async fn ended(&self) {
        // Nothing is sent on this channel: it closes.
        let _ = self.opened.clone().changed().await;
    }

    /// Closes the connection at once. A statement that runs on it fails here; on the server it may still be completed.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.driver.abort();
    }

    /// Runs statements for their effect.
    pub(crate) async fn run(&self, text: &str) -> Result<(), LogError> {
        Ok(self.in_time(self.client.batch_execute(text)).await?)
    }

    /// Prepares a statement, so that it is sent at once when it is used.
    pub(crate) async fn prepare(&self, text: &'static str) -> Result<(), LogError> {
        self.in_time(self.statement(text)).await?;
        Ok(())
    }

    /// The rows of a query.
    pub(crate) async fn rows(&self, text: &'static str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, LogError> {
        Ok(self.try_rows(text, params).await?)
    }

    /// The rows of a query; a refusal as PostgreSQL sent it.
    pub(crate) async fn try_rows(
        &self,
        text: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StatementFailure> {
        let work = async {
            let statement = self.statement(text).await?;
            self.client.query(&statement, params).await
        };
        self.in_time(work).await
    }

    /// How many rows a statement has changed; a refusal as PostgreSQL sent it.
    pub(crate) async fn try_execute(
        &self,
        text: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, StatementFailure> {
        let work = async {
            let statement = self.statement(text).await?;
            self.client.execute(&statement, params).await
        };
        self.in_time(work).await
    }

    /// The first row of a query.
    pub(crate) async fn row(
        &self,
        text: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, LogError> {
        Ok(self.rows(text, params).await?.into_iter().next())
    }

    async fn statement(&self, text: &'static str) -> Result<Statement, Error> {
        let known = self.statements.lock().unwrap_or_else(PoisonError::into_inner).get(text).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.client.prepare(text).await?;
        self.statements.lock().unwrap_or_else(PoisonError::into_inner).insert(text, statement.clone());
        Ok(statement)
    }

    /// Waits for a while.
    pub(crate) async fn pause(&self, time: Duration) {
        let pause = {
            let _timers = self.runtime.enter();
            tokio::time::sleep(time)
        };
        pause.await;
    }

    /// The result of `work`, if there is one in time; otherwise the connection is closed.
    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, StatementFailure> {
        tokio::select! {
            biased;
            done = work => done.map_err(StatementFailure::Refused),
            () = self.pause(self.answer_timeout) => {
                self.close();
                Err(failure::no_response().into())
            }
        }
    }
}
