//! The broker in process: one door to topics, types and events, over its logs.

mod open_error;

pub use open_error::OpenError;

use crate::clock::{Clock, SystemClock};
use crate::config::{Config, Engine, Storage};
use crate::consumers::{self, Consumers, Sessions};
use crate::events::{Intake, Policy, Reader};
use crate::ledger::Ledger;
use crate::logs::{LogFailure, Logs, Roots, Settings};
use crate::projections::Projections;
use crate::types::Schemas;
use crate::{topics, types};
use contract::{
    Aggregate, AggregateEvents, AggregateRead, Atomicity, BatchOutcome, BoxFuture, Consumer, ConsumerGroup, Cursor,
    Error, EventBroker, EventPage, EventType, EventTypeId, GroupReset, GroupTopic, GtsPattern, LogPage, LogRead,
    NewCheckpoint, NewConsumer, NewEvent, NewEventType, NewProjection, NewTopic, NewVersion, Offset, Page, ProducerId,
    Projection, Published, Read, Registered, Result, SchemaVersion, Segments, Sequence, StoredEvent, Topic,
    TopicChange, TopicId, Unread, Version,
};
use log::file::{FileLog, Options};
use log::{Log, MemoryLog};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use uuid::Uuid;

/// A running broker. Cheap to share behind an `Arc`; [`Broker::close`] ends it in good order.
pub struct Broker {
    /// Shared with the retention chore, which ends when this is gone.
    logs: Arc<Logs>,
    policy: Policy,
    clock: Arc<dyn Clock>,
    /// Shared with the chore that clears away expired consumers.
    sessions: Arc<Sessions>,
    filter_failures: AtomicU64,
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
        let rows = config.maintenance.checkpoint_rows;
        let ledger = Ledger::open(log, Arc::clone(&clock), state, rows).await?;
        let logs = Arc::new(Logs::new(ledger, Arc::clone(&clock), log_settings(&config)));
        let policy = Policy { config, schemas: Schemas::default() };
        // Memory and files belong to one process, so it knows of every poll.
        let sessions = Arc::new(Sessions::new(true));
        let broker = Self { logs, policy, clock, sessions, filter_failures: AtomicU64::new(0) };
        if let Err(error) = broker.start().await {
            broker.close().await;
            return Err(error);
        }
        broker.start_chores();
        let registry = broker.logs.default_ledger().registry();
        tracing::info!(
            position = broker.logs.default_ledger().position().borrow().get(),
            topics = registry.definitions().count(),
            event_types = registry.event_type_count(),
            "the log is open"
        );
        Ok(broker)
    }

    /// Starts what is done now and then; it ends when the logs close.
    fn start_chores(&self) {
        let config = &self.policy.config;
        let every = Duration::from_secs(config.maintenance.retention_check_secs);
        let age = config.storage.retention_millis();
        tokio::spawn(topics::keep_expiring(Arc::downgrade(&self.logs), Arc::clone(&self.clock), every, age));
        let (logs, sessions) = (Arc::downgrade(&self.logs), Arc::clone(&self.sessions));
        tokio::spawn(consumers::keep_expiring(logs, sessions, Arc::clone(&self.clock), every));
    }

    async fn start(&self) -> Result<(), OpenError> {
        topics::find_again(&self.logs).await.map_err(OpenError::SideLog)?;
        self.declare().await
    }

    /// Answers what was accepted, ends what waits, and leaves checkpoints. The logs are let go with the last handle.
    pub async fn close(&self) {
        self.logs.close().await;
    }

    /// Why nothing is promised any more, if so: the default log failed and must be opened again.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.logs.default_ledger().failure()
    }

    /// Every log that failed, the default one first. A side log's failure stops its own topics alone.
    #[must_use]
    pub fn failures(&self) -> Vec<LogFailure> {
        self.logs.failures()
    }

    /// How often a CEL filter had no answer for an event since the broker was opened.
    #[must_use]
    pub fn filter_failures(&self) -> u64 {
        self.filter_failures.load(Ordering::Relaxed)
    }

    /// Removes what is past its topic's retention now; answers how many sequences went.
    pub async fn expire(&self) -> Result<u64> {
        let age = self.policy.config.storage.retention_millis();
        let mut removed = Ok(0);
        for ledger in self.logs.ledgers() {
            // One log's failure keeps no other from letting go.
            let here = topics::expire(&ledger, self.clock.now(), age).await;
            removed = removed.and_then(|before| Ok(before + here?));
        }
        removed
    }

    /// Removes a topic's events up to and including `through`; answers how many sequences went.
    pub async fn trim(&self, topic: &TopicId, through: Sequence) -> Result<u64> {
        let found = self.logs.find(topic)?;
        topics::trim(self.logs.ledger(&found.place), &found.topic, through).await
    }

    /// Publishes a batch some of whose events could not even be read; those are refused in their places, and count as
    /// refused events of their topics.
    pub async fn publish_submitted(
        &self,
        events: Vec<Result<NewEvent, Unread>>,
        atomicity: Atomicity,
        producer: Option<&ProducerId>,
    ) -> Result<BatchOutcome> {
        self.intake(producer).publish_batch(events, atomicity).await
    }

    /// Most events and rows in one answer.
    #[must_use]
    pub const fn limit_max(&self) -> usize {
        self.policy.config.consumer.max_limit
    }

    /// What is in force.
    pub(crate) const fn config(&self) -> &Config {
        &self.policy.config
    }

    /// Registers what the configuration declares. A declared topic that exists is changed to what is declared, where
    /// that may change.
    async fn declare(&self) -> Result<(), OpenError> {
        let config = &self.policy.config;
        for (index, topic) in config.topics.iter().enumerate() {
            self.declare_topic(topic).await.map_err(|error| OpenError::declared(format!("topics[{index}]"), error))?;
        }
        if let Some(id) = &config.default_topic
            && self.logs.default_ledger().registry().definition(id).is_none()
        {
            let registered = topics::register(&self.logs, NewTopic::new(id.clone())).await;
            registered.map_err(|error| OpenError::declared("default_topic".to_owned(), error))?;
        }
        for (index, event_type) in config.event_types.iter().enumerate() {
            let declared = types::declare(self.logs.default_ledger(), event_type.clone()).await;
            declared.map_err(|error| OpenError::declared(format!("event_types[{index}]"), error))?;
        }
        Ok(())
    }

    async fn declare_topic(&self, declared: &NewTopic) -> Result<()> {
        if self.logs.default_ledger().registry().definition(&declared.id).is_some() {
            let NewTopic { description, retention, idempotent_retention, on_payload_mismatch, .. } = declared.clone();
            let change = TopicChange { description, retention, idempotent_retention, on_payload_mismatch };
            topics::change(&self.logs, &declared.id, change).await?;
        }
        topics::register(&self.logs, declared.clone()).await?;
        Ok(())
    }

    fn reader(&self) -> Reader<'_> {
        let config = &self.policy.config;
        Reader {
            logs: &self.logs,
            limit_max: config.consumer.max_limit,
            wait_max: Duration::from_secs(config.polling.max_timeout_secs),
            filter_failures: &self.filter_failures,
        }
    }

    fn consumers(&self) -> Consumers<'_> {
        let (clock, default_session) = (self.clock.as_ref(), self.policy.config.consumer.session_timeout_secs);
        Consumers { logs: &self.logs, reader: self.reader(), sessions: &self.sessions, clock, default_session }
    }

    /// Projections, and waiting for them.
    pub(crate) fn projections(&self) -> Projections<'_> {
        let (logs, policy, clock) = (&self.logs, &self.policy, self.clock.as_ref());
        Projections { logs, policy, reader: self.reader(), clock }
    }

    fn intake<'a>(&'a self, producer: Option<&'a ProducerId>) -> Intake<'a> {
        Intake { logs: &self.logs, policy: &self.policy, clock: self.clock.as_ref(), producer }
    }
}

fn log_settings(config: &Config) -> Settings {
    let Storage { engine, path, segment_bytes, locations, .. } = &config.storage;
    let default_log = (*engine == Engine::File).then(|| path.clone());
    // A broker in memory has a folder for its topics' files too, if it was given one.
    let data = (!path.as_os_str().is_empty()).then(|| path.clone());
    let roots = Roots { default_log, data, locations: locations.clone() };
    let checkpoint_rows = config.maintenance.checkpoint_rows;
    Settings { default_type: engine.name(), roots, segment_bytes: *segment_bytes, checkpoint_rows }
}

impl EventBroker for Broker {
    fn register_topic(&self, topic: NewTopic) -> BoxFuture<'_, Result<Registered<Topic>>> {
        Box::pin(topics::register(&self.logs, topic))
    }

    fn change_topic<'a>(&'a self, topic: &'a TopicId, change: TopicChange) -> BoxFuture<'a, Result<Topic>> {
        Box::pin(topics::change(&self.logs, topic, change))
    }

    fn topic<'a>(&'a self, id: &'a TopicId) -> BoxFuture<'a, Result<Topic>> {
        Box::pin(async { topics::get(&self.logs.default_ledger().registry(), id) })
    }

    fn topics<'a>(
        &'a self,
        pattern: Option<&'a GtsPattern>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Topic>>> {
        Box::pin(async move {
            self.reader().check_limit(limit)?;
            Ok(topics::list(&self.logs.default_ledger().registry(), pattern, cursor, limit))
        })
    }

    fn segments<'a>(&'a self, topic: &'a TopicId) -> BoxFuture<'a, Result<Segments>> {
        Box::pin(topics::segments(&self.logs, topic))
    }

    fn register_event_type(&self, event_type: NewEventType) -> BoxFuture<'_, Result<Registered<EventType>>> {
        Box::pin(types::register(self.logs.default_ledger(), event_type))
    }

    fn event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<EventType>> {
        Box::pin(async { types::get(&self.logs.default_ledger().registry(), id) })
    }

    fn event_types<'a>(
        &'a self,
        pattern: Option<&'a GtsPattern>,
        topic: Option<&'a TopicId>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<EventType>>> {
        Box::pin(async move {
            self.reader().check_limit(limit)?;
            let goes_there = |event_type: &NewEventType| {
                let goes_to = self.policy.topic_of(&event_type.id, event_type.topic.as_ref());
                topic.is_none() || topic == goes_to
            };
            Ok(types::list(&self.logs.default_ledger().registry(), pattern, goes_there, cursor, limit))
        })
    }

    fn add_version<'a>(
        &'a self,
        id: &'a EventTypeId,
        version: NewVersion,
    ) -> BoxFuture<'a, Result<Registered<Version>>> {
        Box::pin(types::versions::add(self.logs.default_ledger(), id, version))
    }

    fn finalise_version<'a>(&'a self, id: &'a EventTypeId, version: SchemaVersion) -> BoxFuture<'a, Result<Version>> {
        Box::pin(types::versions::finalise(self.logs.default_ledger(), id, version))
    }

    fn deprecate_version<'a>(&'a self, id: &'a EventTypeId, version: SchemaVersion) -> BoxFuture<'a, Result<Version>> {
        Box::pin(types::versions::deprecate(self.logs.default_ledger(), id, version))
    }

    fn archive_event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<EventType>> {
        Box::pin(types::versions::archive(self.logs.default_ledger(), id))
    }

    fn publish<'a>(&'a self, event: NewEvent, producer: Option<&'a ProducerId>) -> BoxFuture<'a, Result<Published>> {
        Box::pin(self.intake(producer).publish(event))
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
        Box::pin(async move { self.consumers().create(consumer).await })
    }

    fn consumer(&self, id: Uuid) -> BoxFuture<'_, Result<Consumer>> {
        Box::pin(async move { self.consumers().get(id) })
    }

    fn consumers<'a>(
        &'a self,
        group: Option<&'a str>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Consumer>>> {
        Box::pin(async move { self.consumers().list(group, cursor, limit) })
    }

    fn delete_consumer(&self, id: Uuid) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.consumers().delete(id).await })
    }

    fn read_as(&self, consumer: Uuid, offset: Offset, limit: usize) -> BoxFuture<'_, Result<EventPage>> {
        Box::pin(async move { self.consumers().read(consumer, offset, limit).await })
    }

    fn wait_as(
        &self,
        consumer: Uuid,
        offset: Offset,
        limit: usize,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<EventPage>> {
        Box::pin(async move { self.consumers().wait(consumer, offset, limit, timeout).await })
    }

    fn commit_offset(&self, consumer: Uuid, offset: Offset) -> BoxFuture<'_, Result<GroupTopic>> {
        Box::pin(async move { self.consumers().commit(consumer, offset).await })
    }

    fn consumer_groups<'a>(
        &'a self,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<ConsumerGroup>>> {
        Box::pin(async move { self.consumers().groups(cursor, limit) })
    }

    fn consumer_group<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ConsumerGroup>> {
        Box::pin(async move { self.consumers().group(name) })
    }

    fn reset_group<'a>(&'a self, name: &'a str, reset: GroupReset) -> BoxFuture<'a, Result<ConsumerGroup>> {
        Box::pin(async move { self.consumers().reset(name, reset).await })
    }

    fn put_projection<'a>(
        &'a self,
        name: &'a str,
        projection: NewProjection,
    ) -> BoxFuture<'a, Result<Registered<Projection>>> {
        Box::pin(async move { self.projections().put(name, projection).await })
    }

    fn projection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(async move { self.projections().get(name).await })
    }

    fn projections<'a>(&'a self, cursor: Option<&'a Cursor>, limit: usize) -> BoxFuture<'a, Result<Page<Projection>>> {
        Box::pin(async move { self.projections().list(cursor, limit).await })
    }

    fn delete_projection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.projections().delete(name).await })
    }

    fn move_checkpoint<'a>(&'a self, name: &'a str, to: NewCheckpoint) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(async move { self.projections().checkpoint(name, to).await })
    }

    fn reset_projection<'a>(&'a self, name: &'a str, offset: Offset) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(async move { self.projections().reset(name, offset).await })
    }

    fn wait_for_projection<'a>(
        &'a self,
        name: &'a str,
        offset: Offset,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(async move { self.projections().wait(name, offset, timeout).await })
    }
}
