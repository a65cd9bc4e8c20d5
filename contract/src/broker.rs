//! The broker as a Rust program sees it, in process or over HTTP.

use crate::{
    Aggregate, AggregateEvents, AggregateRead, Atomicity, BatchOutcome, Consumer, ConsumerGroup, Cursor, EventPage,
    EventType, EventTypeId, GroupReset, GroupTopic, GtsPattern, LogPage, LogRead, NewCheckpoint, NewConsumer, NewEvent,
    NewEventType, NewProjection, NewTopic, NewVersion, Offset, Page, ProducerId, Projection, Published, Read,
    Registered, Result, SchemaVersion, Segments, StoredEvent, Topic, TopicChange, TopicId, Version,
};
use std::pin::Pin;
use std::time::Duration;
use uuid::Uuid;

/// A future that can be moved to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Everything a program can ask of the broker. Object safe: hold it as `Arc<dyn EventBroker>`.
///
/// An `Ok` of a writing call means the effect is durable. A refusal changed nothing.
pub trait EventBroker: Send + Sync {
    /// Registers a topic. The same definition again is [`Registered::Unchanged`], another one is refused.
    fn register_topic(&self, topic: NewTopic) -> BoxFuture<'_, Result<Registered<Topic>>>;
    /// Changes what may change about a topic.
    fn change_topic<'a>(&'a self, topic: &'a TopicId, change: TopicChange) -> BoxFuture<'a, Result<Topic>>;
    /// One topic.
    fn topic<'a>(&'a self, id: &'a TopicId) -> BoxFuture<'a, Result<Topic>>;
    /// Topics in order of their ids, those matching `pattern` if there is one, at `cursor`. Internal ones are left out.
    fn topics<'a>(
        &'a self,
        pattern: Option<&'a GtsPattern>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Topic>>>;
    /// The segments that hold a topic's events, oldest first.
    fn segments<'a>(&'a self, topic: &'a TopicId) -> BoxFuture<'a, Result<Segments>>;

    /// Registers an event type. The same definition again is [`Registered::Unchanged`], another one is refused.
    fn register_event_type(&self, event_type: NewEventType) -> BoxFuture<'_, Result<Registered<EventType>>>;
    /// One event type.
    fn event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<EventType>>;
    /// Event types in order of their ids, those matching `pattern` if there is one, and those whose events go to
    /// `topic` if there is one, at `cursor`.
    fn event_types<'a>(
        &'a self,
        pattern: Option<&'a GtsPattern>,
        topic: Option<&'a TopicId>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<EventType>>>;
    /// Adds a schema version, FINALISING. The same again is [`Registered::Unchanged`]; another definition replaces one
    /// that is still FINALISING and is refused otherwise. A minor version must take what its predecessor takes.
    fn add_version<'a>(
        &'a self,
        id: &'a EventTypeId,
        version: NewVersion,
    ) -> BoxFuture<'a, Result<Registered<Version>>>;
    /// Makes a FINALISING version CURRENT, and the one that was CURRENT in its major DEPRECATED.
    fn finalise_version<'a>(&'a self, id: &'a EventTypeId, version: SchemaVersion) -> BoxFuture<'a, Result<Version>>;
    /// Makes a CURRENT version DEPRECATED.
    fn deprecate_version<'a>(&'a self, id: &'a EventTypeId, version: SchemaVersion) -> BoxFuture<'a, Result<Version>>;
    /// Ends an event type: it takes no more events. What is stored stays readable.
    fn archive_event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<EventType>>;

    /// Publishes one event; a repeated idempotency key gets the stored one back.
    fn publish<'a>(&'a self, event: NewEvent, producer: Option<&'a ProducerId>) -> BoxFuture<'a, Result<Published>>;
    /// Publishes several events in one atomic unit per topic, or in one altogether. `Err` means none was looked at.
    fn publish_batch<'a>(
        &'a self,
        events: Vec<NewEvent>,
        atomicity: Atomicity,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BatchOutcome>>;

    /// What is there now.
    fn read(&self, read: Read) -> BoxFuture<'_, Result<EventPage>>;
    /// What is there now, or as soon as there is something, or nothing when the time is up.
    fn wait(&self, read: Read, timeout: Duration) -> BoxFuture<'_, Result<EventPage>>;
    /// All topics of the default log, in global order.
    fn read_log(&self, read: LogRead) -> BoxFuture<'_, Result<LogPage>>;
    /// The same, or as soon as there is something, or nothing when the time is up.
    fn wait_log(&self, read: LogRead, timeout: Duration) -> BoxFuture<'_, Result<LogPage>>;
    /// The event first stored under this id.
    fn event(&self, id: Uuid) -> BoxFuture<'_, Result<StoredEvent>>;
    /// Where an aggregate stands (`after` and `limit` do not matter).
    fn aggregate(&self, read: AggregateRead) -> BoxFuture<'_, Result<Aggregate>>;
    /// An aggregate's events.
    fn read_aggregate(&self, read: AggregateRead) -> BoxFuture<'_, Result<AggregateEvents>>;

    /// Makes a consumer; it lives for its session, which every poll and commit begins anew.
    fn create_consumer(&self, consumer: NewConsumer) -> BoxFuture<'_, Result<Consumer>>;
    /// One consumer. Deleted or expired, it is not found, here and everywhere.
    fn consumer(&self, id: Uuid) -> BoxFuture<'_, Result<Consumer>>;
    /// Consumers in order of their ids, those of one group if it is named, the page at `cursor`.
    fn consumers<'a>(
        &'a self,
        group: Option<&'a str>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Consumer>>>;
    /// Ends a consumer; a poll of it that waits ends with it, not found. The group's offsets stay.
    fn delete_consumer(&self, id: Uuid) -> BoxFuture<'_, Result<()>>;
    /// What is there now for a consumer.
    fn read_as(&self, consumer: Uuid, offset: Offset, limit: usize) -> BoxFuture<'_, Result<EventPage>>;
    /// The same, or as soon as there is something, or nothing when the time is up. Its session lasts while it waits.
    fn wait_as(
        &self,
        consumer: Uuid,
        offset: Offset,
        limit: usize,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<EventPage>>;
    /// Records how far a consumer's group has come. Never backwards: a late commit changes nothing and answers what is.
    fn commit_offset(&self, consumer: Uuid, offset: Offset) -> BoxFuture<'_, Result<GroupTopic>>;
    /// Groups in order of their names, the page at `cursor`.
    fn consumer_groups<'a>(
        &'a self,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<ConsumerGroup>>>;
    /// One group: it has a live consumer, or an offset.
    fn consumer_group<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ConsumerGroup>>;
    /// Moves a group's offset, back or forth; makes the group if there was none.
    fn reset_group<'a>(&'a self, name: &'a str, reset: GroupReset) -> BoxFuture<'a, Result<ConsumerGroup>>;

    /// Registers a projection. Another filter takes the place of the one before; another topic is refused.
    fn put_projection<'a>(
        &'a self,
        name: &'a str,
        projection: NewProjection,
    ) -> BoxFuture<'a, Result<Registered<Projection>>>;
    /// One projection.
    fn projection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Projection>>;
    /// Projections in order of their names, the page at `cursor`.
    fn projections<'a>(&'a self, cursor: Option<&'a Cursor>, limit: usize) -> BoxFuture<'a, Result<Page<Projection>>>;
    /// Ends a projection; whoever waits for it is told that it is not found.
    fn delete_projection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>>;
    /// Records how far a projection's view has come. Never backwards; where it is already changes nothing.
    fn move_checkpoint<'a>(&'a self, name: &'a str, to: NewCheckpoint) -> BoxFuture<'a, Result<Projection>>;
    /// Begins a projection's next generation behind `offset`: its view is to be rebuilt from there.
    fn reset_projection<'a>(&'a self, name: &'a str, offset: Offset) -> BoxFuture<'a, Result<Projection>>;
    /// The projection once its checkpoint has reached `offset`; [`Kind::ProjectionTimeout`](crate::Kind) otherwise.
    fn wait_for_projection<'a>(
        &'a self,
        name: &'a str,
        offset: Offset,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Projection>>;
}
