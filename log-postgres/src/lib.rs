//! The log in PostgreSQL: one table of events, one of entries, and any number of brokers on one database.
//!
//! - One advisory lock orders all appends, from before the comparison until after the commit. So positions are dense, and no
//!   reader sees a position whose predecessor commits later.
//! - An append is one statement: lock, compare, insert, notify. The loser of a comparison gets the next turn.
//! - The role needs only INSERT and SELECT. No record is ever updated; only retention deletes, as another role.
//! - One session of each process appends. After a new one has begun, the old one cannot append any more (`fence`).
//! - If the server has synchronous standbys, nothing is acknowledged or returned to a reader that they do not have
//!   (`visible_tail`), even if the wait for them was cancelled.
//! - While the server cannot be reached, calls fail with [`LogError::Unavailable`]. Nothing is poisoned, nothing is reopened.
//! - An event's bytes are stored as they are served; the columns beside them are for SQL queries.
//!
//! ```text
//!  append ──▶ PostgresWriter ── one connection ─────▶ claim()   ─┐
//!  tail   ◀──       ┴──────────── the same ◀───────── NOTIFY   ◀─┤
//!  tail   ◀── TailPoller ────── one that polls ◀───── indexes    ├─ events, entries, removals
//!  read   ──▶ read ──────────── several ────────────▶ indexes   ─┘
//!  remove ──▶ RecordRemover ─── as maintenance ─────▶ remove_some()
//! ```
//!
//! What the records mean is decided in the broker's `ledger`.

mod address;
mod append;
mod columns;
mod failure;
mod fence;
mod migrate;
mod options;
mod payload;
mod privileges;
mod read;
mod reconnect;
mod remove;
mod row;
mod session;
mod statements;
mod tail;
mod tail_poller;
#[cfg(feature = "testing")]
pub mod testing;
mod tls;
mod visible_tail;

pub use address::{has_password, redacted_url};
pub use options::PostgresOptions;

use append::PostgresWriter;
use contract::{BoxFuture, Position, Segment, Sequence};
use log::{FollowedPage, Log, LogError, ReadLimit, ReadRange, Record, RecordHeader, RecordQuery, TopicNumber};
use reconnect::PersistentConnection;
use remove::RecordRemover;
use session::{ConnectTarget, Session};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tail::KnownTail;
use tail_poller::TailPoller;
use tokio::runtime::Handle;
use tokio::sync::watch;
use visible_tail::VisibleTail;

/// A log in PostgreSQL.
pub struct PostgresLog {
    tail: Arc<KnownTail>,
    shown: Arc<VisibleTail>,
    writer: PostgresWriter,
    readers: Vec<PersistentConnection>,
    /// The reader that is tried first for the next read.
    next_reader: AtomicUsize,
    remover: RecordRemover,
    /// The location that segments report.
    location: String,
    identity: String,
    warnings: Vec<String>,
    poller: TailPoller,
}

/// When the log was created, in microseconds, as hexadecimal digits: it differs between logs, and a copy keeps it.
const IDENTITY: &str =
    "SELECT to_hex((extract(epoch FROM applied_at) * 1000000)::bigint) FROM migrations WHERE version = 1";

/// The server's clock, in milliseconds since 1970 began.
const SERVER_TIME: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
const HAS_STANDBYS: &str = "SELECT current_setting('synchronous_standby_names') <> ''";

impl PostgresLog {
    /// Opens the log at `url`, brings its schema up to date, and keeps its connections on the current runtime.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self, LogError> {
        let schema = options.quoted_schema()?;
        let unproven = unverified_host_warning(url, &options)?;
        let runtime =
            Handle::try_current().map_err(|_| failure::refused("the log must be opened on a tokio runtime"))?;
        let at = |url: &str| ConnectTarget::parse(url, &schema, &runtime, options.answer_timeout);
        let target = at(url)?;
        let owner = options.owner_url.as_deref().map_or_else(|| Ok(target.clone()), at)?;
        let maintenance = options.maintenance_url.as_deref().map_or_else(|| Ok(target.clone()), at)?;
        migrate::migrate(&target, owner).await?;
        let tail = Arc::new(KnownTail::default());
        let session = target.connect(None).await?;
        tail_poller::poll_tail(&session, &tail).await?;
        let reader = |_| PersistentConnection::start_unprepared(target.clone());
        let channel = format!("event_broker.{}", options.schema);
        let shown = Arc::new(VisibleTail::default());
        let writer =
            PostgresWriter::start(target.clone(), Arc::clone(&tail), Arc::clone(&shown), &channel, options.turn);
        match writer.connection().session().await {
            // Nothing was read yet that could be lost.
            Ok(first) => first.set_followed(),
            // With synchronous standbys nothing can be returned before they have confirmed the beginning of a session.
            Err(error) if session.row(HAS_STANDBYS, &[]).await?.is_some_and(|row| row.get(0)) => return Err(error),
            Err(error) => tracing::warn!(%error, "the log cannot be appended to yet; it can be read"),
        }
        Ok(Self {
            shown,
            readers: (0..options.read_connections.max(1)).map(reader).collect(),
            next_reader: AtomicUsize::new(0),
            remover: RecordRemover::new(maintenance),
            location: format!("postgres:{}", options.schema),
            identity: session.row(IDENTITY, &[]).await?.map_or_else(String::new, |row| row.get(0)),
            warnings: unproven.into_iter().chain(privileges::warnings(&session).await?).collect(),
            poller: TailPoller::start(target.clone(), &tail, writer.connection()),
            writer,
            tail,
        })
    }

    /// Privileges that the role does not need, and settings that weaken the server's guarantees, as they were when the log
    /// was opened: sentences for an operator.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    /// Identifies this log, even after it was moved: letters and digits.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Why nothing can be appended at the moment, if so.
    #[must_use]
    pub fn trouble(&self) -> Option<Arc<io::Error>> {
        self.writer.connection().trouble()
    }

    /// Runs `read` on a connection for reading; once more on another one if the connection was lost.
    async fn run_on_reader<T, F>(&self, read: impl Fn(Arc<Session>) -> F) -> Result<T, LogError>
    where
        F: Future<Output = Result<T, LogError>>,
    {
        let session = self.reader().await?;
        match read(Arc::clone(&session)).await {
            Err(LogError::Unavailable(cause)) if session.is_closed() && cause.kind() != io::ErrorKind::TimedOut => {
                read(self.reader().await?).await
            }
            outcome => outcome,
        }
    }

    /// The records that were read, after synchronous standbys have them.
    async fn await_replicated(&self, found: read::RecordsRead) -> Result<Vec<Record>, LogError> {
        if let Some(last) = found.records.last().map(|last| last.header.position) {
            match found.has_standbys {
                true => self.writer.await_replication(last).await?,
                false => self.shown.raise(last),
            }
        }
        Ok(found.visible_through(self.shown.get()))
    }

    /// A connection for reading: the next one that is up. If none is, the outcome of the next one's attempt.
    async fn reader(&self) -> Result<Arc<Session>, LogError> {
        let next = self.next_reader.fetch_add(1, Ordering::Relaxed) % self.readers.len();
        let in_turn = || self.readers.iter().cycle().skip(next).take(self.readers.len());
        match (in_turn().find_map(PersistentConnection::current), in_turn().next()) {
            (Some(session), _) => Ok(session),
            (None, Some(connection)) => connection.session().await,
            (None, None) => Err(failure::no_response()),
        }
    }

    /// Closes every connection but the one that appends. That one was made again, and may lead to a new server; the others may
    /// still lead to the old one.
    fn renew_connections(&self) {
        self.readers.iter().for_each(PersistentConnection::renew);
        self.poller.connection().renew();
        self.remover.renew();
    }
}

impl Log for PostgresLog {
    fn append(&self, after: Position, batch: Vec<Record>) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move { self.writer.append(after, &batch).await })
    }

    fn read(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<Record>, LogError>> {
        Box::pin(async move {
            // The end of the log is not known while an append of this process may still be committed.
            if let ReadRange::All(_) = range {
                self.writer.resolve_doubt().await?;
            }
            let found = self.run_on_reader(|session| async move { read::read(&session, range, limit).await }).await?;
            match range {
                ReadRange::All(_) => self.await_replicated(found).await,
                _ => Ok(found.visible_through(self.shown.get())),
            }
        })
    }

    fn read_committed(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<Record>, LogError>> {
        Box::pin(async move {
            // Positions are dense and assigned by a comparison: no record is missing before a visible one, even if an append of
            // this process is still in flight behind it.
            let found = self.run_on_reader(|session| async move { read::read(&session, range, limit).await }).await?;
            Ok(found.visible_through(self.shown.get()))
        })
    }

    fn follow(&self, after: Position, limit: ReadLimit) -> BoxFuture<'_, Result<FollowedPage, LogError>> {
        Box::pin(async move {
            // If an append lost its connection, another session has begun after this.
            self.writer.resolve_doubt().await?;
            // Over the connection that appends: the others may still lead to a server that was replaced.
            let Some(session) = self.writer.connection().current() else {
                let records = self.read(ReadRange::All(after), limit).await?;
                self.writer.set_followed(None);
                return Ok(FollowedPage { records, connection: None });
            };
            let found = read::read(&session, ReadRange::All(after), limit).await?;
            if !session.is_followed() {
                self.renew_connections();
            }
            self.writer.set_followed(Some(&session));
            let connection = u64::try_from(session.id().epoch).ok();
            Ok(FollowedPage { records: self.await_replicated(found).await?, connection })
        })
    }

    fn tail(&self) -> watch::Receiver<Position> {
        self.tail.watch()
    }

    fn find(&self, what: RecordQuery) -> BoxFuture<'_, Result<Option<RecordHeader>, LogError>> {
        let shown = self.shown.get();
        Box::pin(self.run_on_reader(move |session| async move { read::find(&session, what, shown).await }))
    }

    fn segments(&self, topic: TopicNumber) -> BoxFuture<'_, Result<Vec<Segment>, LogError>> {
        Box::pin(async move {
            let location = self.location.as_str();
            let shown = self.shown.get();
            let segment = self
                .run_on_reader(|session| async move { read::segment(&session, topic, location, shown).await })
                .await?;
            Ok(segment.into_iter().collect())
        })
    }

    fn remove(&self, topic: TopicNumber, through: Sequence) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move { self.remover.remove(topic, through).await })
    }

    fn erase(&self) -> BoxFuture<'_, Result<(), LogError>> {
        let why = "the database frees the space of deleted rows by itself (vacuum)";
        Box::pin(async move { Err(LogError::Forbidden(why.to_owned())) })
    }

    fn erases(&self) -> bool {
        false
    }

    fn storage_warning(&self) -> Option<String> {
        let missing = self.readers.iter().filter(|reader| reader.trouble().is_some()).count();
        let poller =
            self.poller.connection().trouble().map(|_| "the connection that looks for appends of other brokers");
        let readers = (missing > 0).then(|| format!("{missing} of {} connections for reading", self.readers.len()));
        let missing: Vec<_> = readers.into_iter().chain(poller.map(str::to_owned)).collect();
        (!missing.is_empty()).then(|| {
            format!(
                "PostgreSQL does not accept all connections of this broker. Missing: {}. The others serve all requests, more \
                 slowly. Check the connection limits of the role, the database and the server; the broker retries by itself.",
                missing.join("; ")
            )
        })
    }

    fn may_remove(&self) -> BoxFuture<'_, Result<Option<i64>, LogError>> {
        Box::pin(async move { self.remover.may_remove().await.map(Some) })
    }

    fn server_time(&self) -> BoxFuture<'_, Result<Option<i64>, LogError>> {
        Box::pin(self.run_on_reader(|session| async move {
            Ok(session.row(SERVER_TIME, &[]).await?.map(|row| row.get::<_, i64>(0)))
        }))
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn blocks(&self) -> bool {
        false
    }
}

/// A warning about a host whose certificate is not verified; an error if `require_tls` is set.
fn unverified_host_warning(url: &str, options: &PostgresOptions) -> Result<Option<String>, LogError> {
    let urls = [Some(url), options.owner_url.as_deref(), options.maintenance_url.as_deref()];
    let Some(host) = urls.into_iter().flatten().find_map(address::unverified_host) else { return Ok(None) };
    let detail = format!(
        "the connection to the database host {host} does not verify its certificate: an attacker on the network can read and \
         change everything; set `sslmode=verify-full` in the URL"
    );
    match options.require_tls {
        true => Err(failure::refused(format!("{detail} (`storage.require_tls` is true)"))),
        false => Ok(Some(detail)),
    }
}
