//! One connection to PostgreSQL.
//!
//! - Whatever waits for the network or a timer runs on the runtime the log was opened on; callers may be polled anywhere.
//! - A session that does not answer in time is closed: what it was doing is not waited for.
//! - Every statement walks an index. The planner is told so, since the statistics of a young table would tempt it.

use crate::failure;
use crate::tail::KnownTail;
use crate::tls::TlsSettings;
use log::LogError;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Row, Statement};

/// How long making a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A peer that is gone without a word is noticed after about this time.
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

    /// Connects. What it hears goes to `tail`, where it is given one.
    pub(crate) async fn connect(&self, tail: Option<Arc<KnownTail>>) -> Result<Arc<Session>, LogError> {
        let target = self.clone();
        let connecting = self.runtime.spawn(async move {
            let connected = tokio::time::timeout(CONNECT_TIMEOUT, target.config.connect(target.tls.clone())).await;
            let (client, connection) =
                connected.map_err(|_| failure::no_answer())?.map_err(|error| failure::of_statement(&error))?;
            let (open, opened) = watch::channel(());
            let unreplicated = Arc::new(AtomicBool::new(false));
            let driver = drive(connection, tail, Arc::clone(&unreplicated), open);
            Ok(Arc::new(Session {
                client,
                driver,
                closing: AtomicBool::new(false),
                unreplicated,
                epoch: AtomicI64::new(0),
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

/// What a task on the log's runtime came to. It is aborted only when that runtime ends.
async fn join_task<T>(task: JoinHandle<Result<T, LogError>>) -> Result<T, LogError> {
    task.await.unwrap_or_else(|_| Err(failure::no_answer()))
}

/// Moves bytes until the connection ends; `open` says that it has not. `unreplicated` is set before the answer is given
/// out to which it belongs.
fn drive<S, T>(
    mut connection: tokio_postgres::Connection<S, T>,
    tail: Option<Arc<KnownTail>>,
    unreplicated: Arc<AtomicBool>,
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
                        tail.on_notification(heard.payload());
                    }
                }
                Some(Ok(AsyncMessage::Notice(notice))) if failure::is_unreplicated(&notice) => {
                    tracing::warn!(%notice, "a commit was not waited for until synchronous standbys have it");
                    unreplicated.store(true, Ordering::Release);
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
    /// Told to close; it takes a moment.
    closing: AtomicBool,
    /// A commit was answered before synchronous standbys had it.
    unreplicated: Arc<AtomicBool>,
    /// Which of its process's sessions this is, where it appends.
    epoch: AtomicI64,
    /// Whoever appends has read the log since the connection was made.
    followed: AtomicBool,
    /// Closed when the connection has ended.
    opened: watch::Receiver<()>,
    runtime: Handle,
    answer_timeout: Duration,
    statements: Mutex<HashMap<&'static str, Statement>>,
}

impl Session {
    /// What holds for every statement of the session.
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

    /// Whether a commit was answered though synchronous standbys may not have it: somebody cancelled the wait.
    pub(crate) fn is_unreplicated(&self) -> bool {
        self.unreplicated.load(Ordering::Acquire)
    }

    /// Which of its process's sessions this is; 0 where it does not append.
    pub(crate) fn epoch(&self) -> i64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn set_epoch(&self, epoch: i64) {
        self.epoch.store(epoch, Ordering::Release);
    }

    pub(crate) fn answer_timeout(&self) -> Duration {
        self.answer_timeout
    }

    /// Whether whoever appends has read the log since the connection was made.
    pub(crate) fn is_followed(&self) -> bool {
        self.followed.load(Ordering::Acquire)
    }

    /// Whoever appends has read the log.
    pub(crate) fn set_followed(&self) {
        self.followed.store(true, Ordering::Release);
    }

    /// Waits until the connection has ended.
    pub(crate) async fn ended(&self) {
        // Nothing is ever sent: the channel closes.
        let _ = self.opened.clone().changed().await;
    }

    /// Closes the connection at once. What runs on it fails here; what becomes of it there is not known.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.driver.abort();
    }

    /// Runs statements for their effect.
    pub(crate) async fn run(&self, text: &str) -> Result<(), LogError> {
        self.in_time(self.client.batch_execute(text)).await?.map_err(|error| failure::of_statement(&error))
    }

    /// Has a statement ready: it is sent as soon as it is asked then.
    pub(crate) async fn prepare(&self, text: &'static str) -> Result<(), LogError> {
        let prepared = self.in_time(self.statement(text)).await?;
        prepared.map(drop).map_err(|error| failure::of_statement(&error))
    }

    /// The rows a statement gives.
    pub(crate) async fn rows(&self, text: &'static str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, LogError> {
        self.try_rows(text, params).await?.map_err(|error| failure::of_statement(&error))
    }

    /// The rows a statement gives, or what PostgreSQL says against it.
    pub(crate) async fn try_rows(
        &self,
        text: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>, LogError> {
        let answering = async {
            let statement = self.statement(text).await?;
            self.client.query(&statement, params).await
        };
        self.in_time(answering).await
    }

    /// How many rows a statement adds, or what PostgreSQL says against it.
    pub(crate) async fn try_add(
        &self,
        text: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Result<u64, tokio_postgres::Error>, LogError> {
        let answering = async {
            let statement = self.statement(text).await?;
            self.client.execute(&statement, params).await
        };
        self.in_time(answering).await
    }

    /// The first row a statement gives.
    pub(crate) async fn row(
        &self,
        text: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, LogError> {
        Ok(self.rows(text, params).await?.into_iter().next())
    }

    async fn statement(&self, text: &'static str) -> Result<Statement, tokio_postgres::Error> {
        let known = self.statements.lock().unwrap_or_else(PoisonError::into_inner).get(text).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.client.prepare(text).await?;
        self.statements.lock().unwrap_or_else(PoisonError::into_inner).insert(text, statement.clone());
        Ok(statement)
    }

    /// What `work` comes to, if it does so in time; otherwise the connection is given up.
    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, LogError> {
        let late = {
            let _timers = self.runtime.enter();
            tokio::time::sleep(self.answer_timeout)
        };
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = late => {
                self.close();
                Err(failure::no_answer())
            }
        }
    }
}
