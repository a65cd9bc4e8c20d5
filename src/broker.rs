//! The broker in process: one door to topics, types and events, over one log.

use crate::clock::{Clock, SystemClock};
use crate::config::{Config, Storage};
use crate::events::{self, Policy, Reader};
use crate::ledger::Ledger;
use crate::types::Schemas;
use crate::{topics, types};
use contract::{
    Aggregate, AggregateEvents, AggregateRead, Atomicity, BatchOutcome, BoxFuture, Error, EventBroker, EventPage,
    EventType, EventTypeId, GtsPattern, Kind, LogPage, LogRead, NewEvent, NewEventType, NewTopic, NewVersion, Page,
    ProducerId, Published, Read, Registered, Result, SchemaVersion, Segments, Sequence, StoredEvent, Topic,
    TopicChange, TopicId, Version,
};
use log::file::{FileLog, Options};
use log::{Log, LogError, MemoryLog};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use uuid::Uuid;

/// A running broker. Cheap to share behind an `Arc`; [`Broker::close`] ends it in good order.
pub struct Broker {
    /// Shared with the retention chore, which ends when this is gone.
    ledger: Arc<Ledger>,
    policy: Policy,
    clock: Arc<dyn Clock>,
    log_kind: &'static str,
    filter_failures: AtomicU64,
}

/// Why a broker did not open.
#[derive(Debug)]
pub enum OpenError {
    /// The log could not be opened or read.
    Log(LogError),
    /// What the configuration declares was refused.
    Declared(Error),
}

impl Broker {
    /// Opens the log the configuration names, folds it, and registers what the configuration declares.
    pub async fn open(config: Config) -> Result<Self, OpenError> {
        Self::open_at(config, Arc::new(SystemClock)).await
    }

    /// The same with a clock of the caller's.
    pub async fn open_at(config: Config, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        match config.storage.clone() {
            Storage::Memory => Self::on_log(config, Arc::new(MemoryLog::new()), None, clock).await,
            Storage::File { path, segment_bytes } => {
                let options = Options { segment_bytes, ..Options::default() };
                let log = FileLog::open_folder(&path, options)?;
                Self::on_log(config, Arc::new(log), Some(path.join("state")), clock).await
            }
        }
    }

    /// A broker on a log that is open already; its tables go to `state`, or stay in memory.
    pub async fn on_log(
        config: Config,
        log: Arc<dyn Log>,
        state: Option<PathBuf>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        let log_kind = match config.storage {
            Storage::Memory => "memory",
            Storage::File { .. } => "file",
        };
        let ledger = Arc::new(Ledger::open(log, Arc::clone(&clock), state, config.checkpoint_rows).await?);
        let every = Duration::from_secs(config.retention_check_seconds);
        tokio::spawn(topics::keep_expiring(Arc::downgrade(&ledger), Arc::clone(&clock), every));
        let policy = Policy { config, schemas: Schemas::default() };
        let broker = Self { ledger, policy, clock, log_kind, filter_failures: AtomicU64::new(0) };
        broker.declare().await?;
        Ok(broker)
    }

    /// Answers what was accepted, ends what waits, and leaves a checkpoint. The log is let go with the last handle.
    pub async fn close(&self) {
        self.ledger.close().await;
    }

    /// Why nothing is promised any more, if so: the log failed and must be opened again.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.ledger.failure()
    }

    /// How often a CEL filter had no answer for an event since the broker was opened.
    #[must_use]
    pub fn filter_failures(&self) -> u64 {
        self.filter_failures.load(Ordering::Relaxed)
    }

    /// Removes what is past its topic's retention now; answers how many sequences went.
    pub async fn expire(&self) -> Result<u64> {
        topics::expire(&self.ledger, self.clock.now()).await
    }

    /// Removes a topic's events up to and including `through`; answers how many sequences went.
    pub async fn trim(&self, topic: &TopicId, through: Sequence) -> Result<u64> {
        let registry = self.ledger.registry();
        let topic = registry.topic(topic).ok_or_else(|| Error::not_found("topic"))?;
        topics::trim(&self.ledger, topic, through).await
    }

    /// Registers what the configuration declares. A declared topic that exists is changed to what is declared, where
    /// that may change.
    async fn declare(&self) -> Result<(), OpenError> {
        let config = &self.policy.config;
        for topic in &config.topics {
            self.declare_topic(topic).await?;
        }
        if let Some(id) = &config.default_topic
            && self.ledger.registry().topic(id).is_none()
        {
            topics::register(&self.ledger, self.log_kind, NewTopic::new(id.clone())).await?;
        }
        for event_type in &config.event_types {
            types::register(&self.ledger, event_type.clone()).await?;
        }
        Ok(())
    }

    async fn declare_topic(&self, declared: &NewTopic) -> Result<()> {
        if self.ledger.registry().topic(&declared.id).is_some() {
            let NewTopic { description, retention, idempotent_retention, on_payload_mismatch, .. } = declared.clone();
            let change = TopicChange { description, retention, idempotent_retention, on_payload_mismatch };
            topics::change(&self.ledger, &declared.id, change).await?;
        }
        topics::register(&self.ledger, self.log_kind, declared.clone()).await?;
        Ok(())
    }

    fn reader(&self) -> Reader<'_> {
        let limit_max = self.policy.config.read_events_max;
        Reader { ledger: &self.ledger, limit_max, filter_failures: &self.filter_failures }
    }
}

impl EventBroker for Broker {
    fn register_topic(&self, topic: NewTopic) -> BoxFuture<'_, Result<Registered<Topic>>> {
        Box::pin(topics::register(&self.ledger, self.log_kind, topic))
    }

    fn change_topic<'a>(&'a self, topic: &'a TopicId, change: TopicChange) -> BoxFuture<'a, Result<Topic>> {
        Box::pin(topics::change(&self.ledger, topic, change))
    }

    fn topic<'a>(&'a self, id: &'a TopicId) -> BoxFuture<'a, Result<Topic>> {
        Box::pin(async { topics::get(&self.ledger.registry(), id) })
    }

    fn topics<'a>(
        &'a self,
        pattern: Option<&'a GtsPattern>,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Topic>>> {
        Box::pin(async move {
            self.reader().check_limit(limit)?;
            Ok(topics::list(&self.ledger.registry(), pattern, after, limit))
        })
    }

    fn segments<'a>(&'a self, topic: &'a TopicId) -> BoxFuture<'a, Result<Segments>> {
        Box::pin(topics::segments(&self.ledger, topic))
    }

    fn register_event_type(&self, event_type: NewEventType) -> BoxFuture<'_, Result<Registered<EventType>>> {
        Box::pin(types::register(&self.ledger, event_type))
    }

    fn event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<EventType>> {
        Box::pin(async { types::get(&self.ledger.registry(), id) })
    }

    fn event_types<'a>(
        &'a self,
        pattern: Option<&'a GtsPattern>,
        topic: Option<&'a TopicId>,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<EventType>>> {
        Box::pin(async move {
            self.reader().check_limit(limit)?;
            let goes_there = |event_type: &NewEventType| {
                let goes_to = self.policy.topic_of(&event_type.id, event_type.topic.as_ref());
                topic.is_none() || topic == goes_to
            };
            Ok(types::list(&self.ledger.registry(), pattern, goes_there, after, limit))
        })
    }

    fn add_version<'a>(
        &'a self,
        id: &'a EventTypeId,
        version: NewVersion,
    ) -> BoxFuture<'a, Result<Registered<Version>>> {
        Box::pin(types::versions::add(&self.ledger, id, version))
    }

    fn finalise_version<'a>(&'a self, id: &'a EventTypeId, version: SchemaVersion) -> BoxFuture<'a, Result<Version>> {
        Box::pin(types::versions::finalise(&self.ledger, id, version))
    }

    fn deprecate_version<'a>(&'a self, id: &'a EventTypeId, version: SchemaVersion) -> BoxFuture<'a, Result<Version>> {
        Box::pin(types::versions::deprecate(&self.ledger, id, version))
    }

    fn archive_event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<EventType>> {
        Box::pin(types::versions::archive(&self.ledger, id))
    }

    fn publish<'a>(&'a self, event: NewEvent, producer: Option<&'a ProducerId>) -> BoxFuture<'a, Result<Published>> {
        Box::pin(events::publish(&self.ledger, &self.policy, self.clock.as_ref(), event, producer))
    }

    fn publish_batch<'a>(
        &'a self,
        events: Vec<NewEvent>,
        atomicity: Atomicity,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BatchOutcome>> {
        let (ledger, policy, clock) = (&self.ledger, &self.policy, self.clock.as_ref());
        Box::pin(events::publish_batch(ledger, policy, clock, events, atomicity, producer))
    }

    fn read(&self, read: Read) -> BoxFuture<'_, Result<EventPage>> {
        Box::pin(async move { self.reader().read(&read).await })
    }

    fn wait(&self, read: Read, timeout: Duration) -> BoxFuture<'_, Result<EventPage>> {
        Box::pin(async move { self.reader().wait(&read, timeout).await })
    }

    fn read_log(&self, read: LogRead) -> BoxFuture<'_, Result<LogPage>> {
        Box::pin(async move { self.reader().read_log(&read).await })
    }

    fn event(&self, id: Uuid) -> BoxFuture<'_, Result<StoredEvent>> {
        Box::pin(async move { self.reader().event(id).await })
    }

    fn aggregate(&self, read: AggregateRead) -> BoxFuture<'_, Result<Aggregate>> {
        Box::pin(async move { self.reader().aggregate(&read).await })
    }

    fn read_aggregate(&self, read: AggregateRead) -> BoxFuture<'_, Result<AggregateEvents>> {
        Box::pin(async move { self.reader().read_aggregate(&read).await })
    }
}

impl From<LogError> for OpenError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl From<Error> for OpenError {
    fn from(error: Error) -> Self {
        Self::Declared(error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(error) => error.fmt(f),
            Self::Declared(error) if error.kind() == Kind::Unavailable => error.fmt(f),
            Self::Declared(error) => write!(f, "what the configuration declares was refused: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Log(error) => Some(error),
            Self::Declared(error) => Some(error),
        }
    }
}
