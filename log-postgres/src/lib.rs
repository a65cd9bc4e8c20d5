//! The log in PostgreSQL: one table of events, one of entries, and any number of brokers on one database.
//!
//! - One advisory lock orders all appends, from before the compare until after the commit. So positions are dense, and
//!   no reader ever sees a number whose predecessor commits later.
//! - An append is one statement: lock, compare, insert, notify. Whoever loses a compare has the next turn.
//! - The role that runs it needs INSERT and SELECT alone. No record is ever updated; only retention deletes, as another
//!   role.
//! - One session appends for each process; one that was given up cannot append any more (`fence`).
//! - Where the server has synchronous standbys, nothing is acknowledged or given to a reader that they do not have
//!   (`shown`), whoever ended the wait for them.
//! - A server that goes away is [`LogError::Unavailable`] until it is back. Nothing is poisoned, nothing is opened again.
//! - An event's bytes are stored as they are served; the columns beside them are for people and SQL.
//!
//! ```text
//!  append ──▶ Writer ── one connection ─────▶ claim()   ─┐
//!  tail   ◀──    ┴────── the same ◀────────── NOTIFY   ◀─┤
//!  tail   ◀── Follower ─ one that looks ◀──── indexes    ├─ events, entries, removals
//!  read   ──▶ pages  ── a few connections ──▶ indexes   ─┘
//!  remove ──▶ Remover ── as maintenance ────▶ remove_some()
//! ```
//!
//! What the records mean is the broker's `ledger`'s business.

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
use log::{Log, LogError, ReadLimit, ReadRange, Record, RecordHeader, RecordQuery, TopicNumber};
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
    /// Whose turn it is among the readers.
    next_reader: AtomicUsize,
    remover: RecordRemover,
    /// What segments say of where they lie.
    location: String,
    identity: String,
    warnings: Vec<String>,
    _follower: TailPoller,
}

/// When the log was made, in microseconds, as hexadecimal digits: no two logs share a moment, and a copy keeps it.
const IDENTITY: &str =
    "SELECT to_hex((extract(epoch FROM applied_at) * 1000000)::bigint) FROM migrations WHERE version = 1";

const HAS_STANDBYS: &str = "SELECT current_setting('synchronous_standby_names') <> ''";

impl PostgresLog {
    /// Opens the log at `url`, brings its schema up to date, and keeps its connections on the runtime this is called on.
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
        match writer.link().session().await {
            // Nothing was read yet that could be gone.
            Ok(first) => first.set_followed(),
            // With synchronous standbys nothing can be shown before they have confirmed the beginning of a session.
            Err(error) if session.row(HAS_STANDBYS, &[]).await?.is_some_and(|row| row.get(0)) => return Err(error),
            // The log can be read all the same.
            Err(_) => (),
        }
        Ok(Self {
            writer,
            shown,
            readers: (0..options.read_connections.max(1)).map(reader).collect(),
            next_reader: AtomicUsize::new(0),
            remover: RecordRemover::new(maintenance),
            location: format!("postgres:{}", options.schema),
            identity: session.row(IDENTITY, &[]).await?.map_or_else(String::new, |row| row.get(0)),
            warnings: unproven.into_iter().chain(privileges::warnings(&session).await?).collect(),
            _follower: TailPoller::start(target.clone(), &tail),
            tail,
        })
    }

    /// What the role has beyond its need, and what weakens the server's promises, as it was when the log was opened:
    /// sentences for an operator.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    /// Tells this log from others, wherever it is moved: letters and digits.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Why nothing can be appended just now; `None` while something can.
    #[must_use]
    pub fn trouble(&self) -> Option<Arc<io::Error>> {
        self.writer.link().trouble()
    }

    /// What `ask` comes to on a connection for reading. One that was lost meanwhile costs a second try, not an answer.
    async fn run_on_reader<T, F>(&self, ask: impl Fn(Arc<Session>) -> F) -> Result<T, LogError>
    where
        F: Future<Output = Result<T, LogError>>,
    {
        let session = self.reader().await?;
        match ask(Arc::clone(&session)).await {
            Err(LogError::Unavailable(cause)) if session.is_closed() && cause.kind() != io::ErrorKind::TimedOut => {
                ask(self.reader().await?).await
            }
            answer => answer,
        }
    }

    /// What was read, once synchronous standbys have it.
    async fn await_replicated(&self, found: read::RecordsRead) -> Result<Vec<Record>, LogError> {
        if let Some(last) = found.records.last().map(|last| last.header.position) {
            match found.has_standbys {
                true => self.writer.await_replication(last).await?,
                false => self.shown.raise(last),
            }
        }
        Ok(found.visible_through(self.shown.get()))
    }

    async fn reader(&self) -> Result<Arc<Session>, LogError> {
        let next = self.next_reader.fetch_add(1, Ordering::Relaxed) % self.readers.len();
        match self.readers.get(next) {
            Some(connection) => connection.session().await,
            None => Err(failure::no_answer()),
        }
    }
}

impl Log for PostgresLog {
    fn append(&self, after: Position, batch: Vec<Record>) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move { self.writer.append(after, &batch).await })
    }

    fn read(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<Record>, LogError>> {
        Box::pin(async move {
            // The end of the log is not known while an append of ours may still come in.
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
            // Positions are dense and given by a compare: whatever is visible has nothing missing before it, whether or not
            // an append of ours is still under way behind it.
            let found = self.run_on_reader(|session| async move { read::read(&session, range, limit).await }).await?;
            Ok(found.visible_through(self.shown.get()))
        })
    }

    fn follow(&self, after: Position, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<Record>, LogError>> {
        Box::pin(async move {
            // Where an append was cut off, its session has ended by then, and there is another one.
            self.writer.resolve_doubt().await?;
            // Over the connection that appends: others may still lead to a server that this one has been replaced by.
            let Some(session) = self.writer.link().current() else {
                let page = self.read(ReadRange::All(after), limit).await?;
                self.writer.set_followed(None);
                return Ok(page);
            };
            let found = read::read(&session, ReadRange::All(after), limit).await?;
            if !session.is_followed() {
                self.readers.iter().for_each(PersistentConnection::renew);
            }
            self.writer.set_followed(Some(&session));
            self.await_replicated(found).await
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

    fn may_remove(&self) -> BoxFuture<'_, Result<Option<i64>, LogError>> {
        Box::pin(async move { self.remover.may_remove().await.map(Some) })
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn blocks(&self) -> bool {
        false
    }
}

/// What there is to say about hosts that do not prove who they are; refused where they must.
fn unverified_host_warning(url: &str, options: &PostgresOptions) -> Result<Option<String>, LogError> {
    let urls = [Some(url), options.owner_url.as_deref(), options.maintenance_url.as_deref()];
    let Some(host) = urls.into_iter().flatten().find_map(address::unverified_host) else { return Ok(None) };
    let detail = format!(
        "the database host {host} does not prove its name: whoever is on the way can read and change everything; set \
         `sslmode=verify-full` in the URL"
    );
    match options.require_tls {
        true => Err(failure::refused(format!("{detail} (`storage.require_tls` is true)"))),
        false => Ok(Some(detail)),
    }
}
