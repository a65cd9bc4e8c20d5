//! The broker in process: one door to topics, types and events, over one log.

use crate::clock::{Clock, SystemClock};
use crate::config::{Config, Engine};
use crate::consumers::{self, Consumers, Sessions};
use crate::events::{self, Policy, Reader};
use crate::ledger::Ledger;
use crate::types::Schemas;
use crate::{topics, types};
use contract::{
    Aggregate, AggregateEvents, AggregateRead, Atomicity, BatchOutcome, BoxFuture, Consumer, ConsumerGroup, Cursor,
    Error, EventBroker, EventPage, EventType, EventTypeId, GroupReset, GroupTopic, GtsPattern, Kind, LogPage, LogRead,
    NewConsumer, NewEvent, NewEventType, NewTopic, Offset, Page, ProducerId, Published, Read, Registered, Result,
    Segments, Sequence, StoredEvent, Topic, TopicChange, TopicId, Unread,
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
    /// Shared with the chore that clears away expired consumers.
    sessions: Arc<Sessions>,
    filter_failures: AtomicU64,
}

/// Why a broker did not open.
#[derive(Debug)]
pub enum OpenError {
    /// The log could not be opened or read.
    Log(LogError),
    /// What the configuration declares was refused.
    Declared {
        /// Where it stands in the configuration: `topics[2]`.
        path: String,
        /// Why.
        error: Error,
    },
}

impl Broker {
    /// Opens the log the configuration names, folds it, and registers what the configuration declares.
    pub async fn open(config: Config) -> Result<Self, OpenError> {
        Self::open_at(config, Arc::new(SystemClock)).await
    }

    /// The same with a clock of the caller's.
    pub async fn open_at(config: Config, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        match config.storage.engine {
            Engine::Memory => Self::on_log(config, Arc::new(MemoryLog::new()), None, clock).await,
            Engine::File => {
                let options = Options { segment_bytes: config.storage.segment_bytes, ..Options::default() };
                let log = FileLog::open_folder(&config.storage.path, options)?;
                let state = config.storage.path.join("state");
                Self::on_log(config, Arc::new(log), Some(state), clock).await
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
        let log_kind = config.storage.engine.name();
        let rows = config.maintenance.checkpoint_rows;
        let ledger = Arc::new(Ledger::open(log, Arc::clone(&clock), state, rows).await?);
        let every = Duration::from_secs(config.maintenance.retention_check_secs);
        let age = config.storage.retention_millis();
        tokio::spawn(topics::keep_expiring(Arc::downgrade(&ledger), Arc::clone(&clock), every, age));
        // Memory and files belong to one process, so it knows of every poll.
        let sessions = Arc::new(Sessions::new(true));
        let (weak, shared) = (Arc::downgrade(&ledger), Arc::clone(&sessions));
        tokio::spawn(consumers::keep_expiring(weak, shared, Arc::clone(&clock), every));
        let policy = Policy { config, schemas: Schemas::default() };
        let broker = Self { ledger, policy, clock, log_kind, sessions, filter_failures: AtomicU64::new(0) };
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
        topics::expire(&self.ledger, self.clock.now(), self.policy.config.storage.retention_millis()).await
    }

    /// Removes a topic's events up to and including `through`; answers how many sequences went.
    pub async fn trim(&self, topic: &TopicId, through: Sequence) -> Result<u64> {
        let registry = self.ledger.registry();
        let topic = registry.topic(topic).ok_or_else(|| Error::not_found("topic"))?;
        topics::trim(&self.ledger, topic, through).await
    }

    /// Publishes a batch some of whose events could not even be read; those are refused in their places, and count as
    /// refused events of their topics.
    pub async fn publish_submitted(
        &self,
        events: Vec<Result<NewEvent, Unread>>,
        atomicity: Atomicity,
        producer: Option<&ProducerId>,
    ) -> Result<BatchOutcome> {
        events::publish_batch(&self.ledger, &self.policy, self.clock.as_ref(), events, atomicity, producer).await
    }

    /// Most events and rows in one answer.
    #[must_use]
    pub const fn limit_max(&self) -> usize {
        self.policy.config.consumer.max_limit
    }

    /// Registers what the configuration declares. A declared topic that exists is changed to what is declared, where
    /// that may change.
    async fn declare(&self) -> Result<(), OpenError> {
        let config = &self.policy.config;
        for (index, topic) in config.topics.iter().enumerate() {
            self.declare_topic(topic).await.map_err(|error| OpenError::declared(format!("topics[{index}]"), error))?;
        }
        if let Some(id) = &config.default_topic
            && self.ledger.registry().topic(id).is_none()
        {
            let registered = topics::register(&self.ledger, self.log_kind, NewTopic::new(id.clone())).await;
            registered.map_err(|error| OpenError::declared("default_topic".to_owned(), error))?;
        }
        for (index, event_type) in config.event_types.iter().enumerate() {
            let registered = types::register(&self.ledger, event_type.clone()).await;
            registered.map_err(|error| OpenError::declared(format!("event_types[{index}]"), error))?;
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
        let config = &self.policy.config;
        Reader {
            ledger: &self.ledger,
            limit_max: config.consumer.max_limit,
            wait_max: Duration::from_secs(config.polling.max_timeout_secs),
            filter_failures: &self.filter_failures,
        }
    }

    fn readers(&self) -> Consumers<'_> {
        let (ledger, clock) = (self.ledger.as_ref(), self.clock.as_ref());
        Consumers { ledger, reader: self.reader(), sessions: &self.sessions, clock }
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
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Topic>>> {
        Box::pin(async move {
            self.reader().check_limit(limit)?;
            Ok(topics::list(&self.ledger.registry(), pattern, cursor, limit))
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
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<EventType>>> {
        Box::pin(async move {
            self.reader().check_limit(limit)?;
            Ok(types::list(&self.ledger.registry(), pattern, cursor, limit))
        })
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
        Box::pin(self.publish_submitted(events.into_iter().map(Ok).collect(), atomicity, producer))
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

    fn wait_log(&self, read: LogRead, timeout: Duration) -> BoxFuture<'_, Result<LogPage>> {
        Box::pin(async move { self.reader().wait_log(&read, timeout).await })
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

    fn create_consumer(&self, consumer: NewConsumer) -> BoxFuture<'_, Result<Consumer>> {
        Box::pin(async move { self.readers().create(consumer).await })
    }

    fn consumer(&self, id: Uuid) -> BoxFuture<'_, Result<Consumer>> {
        Box::pin(async move { self.readers().get(id) })
    }

    fn consumers<'a>(
        &'a self,
        group: Option<&'a str>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Consumer>>> {
        Box::pin(async move { self.readers().list(group, cursor, limit) })
    }

    fn delete_consumer(&self, id: Uuid) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.readers().delete(id).await })
    }

    fn read_as(&self, consumer: Uuid, offset: Offset, limit: usize) -> BoxFuture<'_, Result<EventPage>> {
        Box::pin(async move { self.readers().read(consumer, offset, limit).await })
    }

    fn wait_as(
        &self,
        consumer: Uuid,
        offset: Offset,
        limit: usize,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<EventPage>> {
        Box::pin(async move { self.readers().wait(consumer, offset, limit, timeout).await })
    }

    fn commit_offset(&self, consumer: Uuid, offset: Offset) -> BoxFuture<'_, Result<GroupTopic>> {
        Box::pin(async move { self.readers().commit(consumer, offset).await })
    }

    fn consumer_groups<'a>(
        &'a self,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<ConsumerGroup>>> {
        Box::pin(async move { self.readers().groups(cursor, limit) })
    }

    fn consumer_group<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ConsumerGroup>> {
        Box::pin(async move { self.readers().group(name) })
    }

    fn reset_group<'a>(&'a self, name: &'a str, reset: GroupReset) -> BoxFuture<'a, Result<ConsumerGroup>> {
        Box::pin(async move { self.readers().reset(name, reset).await })
    }
}

impl From<LogError> for OpenError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl OpenError {
    const fn declared(path: String, error: Error) -> Self {
        Self::Declared { path, error }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(error) => error.fmt(f),
            Self::Declared { error, .. } if error.kind() == Kind::Unavailable => error.fmt(f),
            Self::Declared { path, error } => write!(f, "`{path}` of the configuration was refused: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Log(error) => Some(error),
            Self::Declared { error, .. } => Some(error),
        }
    }
}
