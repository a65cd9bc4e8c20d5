//! The broker as a Rust program sees it, in process or over HTTP.

use crate::{
    Aggregate, AggregateEvents, AggregateRead, Atomicity, BatchOutcome, BulkResolveOutcome, BulkResolveRequest, Claim,
    ClaimCompletion, ClaimFailure, ClaimOutcome, CompactRequest, Completion, Consumer, ConsumerGroup, Cursor,
    DeadLetter, DeadLetterFilter, DeadLetterSummary, DryRunReport, EventCount, EventPage, EventType, EventTypeId,
    FencingToken, GroupReset, GroupTopic, Handler, IdPattern, LogPage, LogRead, NewCheckpoint, NewClaim, NewConsumer,
    NewEvent, NewEventType, NewHandler, NewProjection, NewTopic, NewVersion, Offset, Page, ProducerId, Projection,
    PublishedEvent, ReadOffset, RedriveRequest, RegisterOutcome, RegisteredVersion, RepublishRequest, Result,
    SchemaVersion, StoredEvent, Topic, TopicChange, TopicId, TopicRead, TopicSegments, TrimRequest,
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
    fn register_topic(&self, topic: NewTopic) -> BoxFuture<'_, Result<RegisterOutcome<Topic>>>;
    /// Changes what may change about a topic.
    fn change_topic<'a>(&'a self, topic: &'a TopicId, change: TopicChange) -> BoxFuture<'a, Result<Topic>>;
    /// One topic.
    fn topic<'a>(&'a self, id: &'a TopicId) -> BoxFuture<'a, Result<Topic>>;
    /// Topics in order of their ids, those matching `pattern` if there is one, at `cursor`. Internal ones are left out.
    fn topics<'a>(
        &'a self,
        pattern: Option<&'a IdPattern>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Topic>>>;
    /// Has events of a topic once more, for everybody who reads it or for one shared group; answers how many. With the same
    /// ids, so whoever has done the work before can tell; in a topic that keeps the latest event per aggregate, under new
    /// ones.
    fn republish<'a>(&'a self, topic: &'a TopicId, order: RepublishRequest) -> BoxFuture<'a, Result<EventCount>>;
    /// Lets go of a topic's beginning now; answers how many sequences went.
    fn trim_topic<'a>(&'a self, topic: &'a TopicId, trim: TrimRequest) -> BoxFuture<'a, Result<EventCount>>;
    /// Deletes a topic with its events and what handlers and groups have done there. Refused while subscriptions, consumers or
    /// projections use it, unless `force` has them deleted too.
    fn delete_topic<'a>(&'a self, topic: &'a TopicId, force: bool) -> BoxFuture<'a, Result<()>>;
    /// What deleting a topic by force would do.
    fn plan_topic_deletion<'a>(&'a self, topic: &'a TopicId) -> BoxFuture<'a, Result<DryRunReport>>;
    /// Compacts a topic now that keeps the latest event per aggregate; answers how many sequences went.
    fn compact_topic<'a>(&'a self, topic: &'a TopicId, order: CompactRequest) -> BoxFuture<'a, Result<EventCount>>;
    /// The segments that hold a topic's events, oldest first.
    fn segments<'a>(&'a self, topic: &'a TopicId) -> BoxFuture<'a, Result<TopicSegments>>;

    /// Registers an event type. The same definition again is [`Registered::Unchanged`], another one is refused.
    fn register_event_type(&self, event_type: NewEventType) -> BoxFuture<'_, Result<RegisterOutcome<EventType>>>;
    /// One event type.
    fn event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<EventType>>;
    /// Event types in order of their ids, those matching `pattern` if there is one, and those whose events go to
    /// `topic` if there is one, at `cursor`.
    fn event_types<'a>(
        &'a self,
        pattern: Option<&'a IdPattern>,
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
    ) -> BoxFuture<'a, Result<RegisterOutcome<RegisteredVersion>>>;
    /// Makes a FINALISING version CURRENT, and the one that was CURRENT in its major DEPRECATED.
    fn finalise_version<'a>(
        &'a self,
        id: &'a EventTypeId,
        version: SchemaVersion,
    ) -> BoxFuture<'a, Result<RegisteredVersion>>;
    /// Makes a CURRENT version DEPRECATED.
    fn deprecate_version<'a>(
        &'a self,
        id: &'a EventTypeId,
        version: SchemaVersion,
    ) -> BoxFuture<'a, Result<RegisteredVersion>>;
    /// Ends an event type: it takes no more events. What is stored stays readable.
    fn archive_event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<EventType>>;
    /// Deletes an archived event type of which no event is stored; its name may be registered again.
    /// [`crate::Kind::InvalidState`] where it is not archived, or while there are events of it.
    fn delete_event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<()>>;

    /// Publishes one event; a repeated idempotency key gets the stored one back.
    fn publish<'a>(
        &'a self,
        event: NewEvent,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<PublishedEvent>>;
    /// Publishes several events in one atomic unit per topic, or in one altogether. `Err` means none was looked at.
    fn publish_batch<'a>(
        &'a self,
        events: Vec<NewEvent>,
        atomicity: Atomicity,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BatchOutcome>>;

    /// What is there now.
    fn read(&self, read: TopicRead) -> BoxFuture<'_, Result<EventPage>>;
    /// What is there now, or as soon as there is something, or nothing when the time is up.
    fn wait(&self, read: TopicRead, timeout: Duration) -> BoxFuture<'_, Result<EventPage>>;
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
    /// Ends a consumer; a poll of it that waits ends with it, not found. The group's offsets stay. What a member of a
    /// shared group holds is released.
    fn delete_consumer(&self, id: Uuid) -> BoxFuture<'_, Result<()>>;
    /// What is there now for a consumer.
    fn read_as(&self, consumer: Uuid, offset: ReadOffset, limit: usize) -> BoxFuture<'_, Result<EventPage>>;
    /// The same, or as soon as there is something, or nothing when the time is up. Its session lasts while it waits.
    fn wait_as(
        &self,
        consumer: Uuid,
        offset: ReadOffset,
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
    /// Deletes a group: its offsets, and in topics that it divides what was done there. Refused while its consumers live.
    fn delete_group<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>>;
    /// Moves a group's offset, back or forth; makes the group if there was none.
    fn reset_group<'a>(&'a self, name: &'a str, reset: GroupReset) -> BoxFuture<'a, Result<ConsumerGroup>>;

    /// Registers a projection. Another filter takes the place of the one before; another topic is refused.
    fn put_projection<'a>(
        &'a self,
        name: &'a str,
        projection: NewProjection,
    ) -> BoxFuture<'a, Result<RegisterOutcome<Projection>>>;
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

    /// Claims an event for a handler, or says why not. `producer` owns the claim where it names no owner.
    fn claim<'a>(&'a self, claim: NewClaim, producer: Option<&'a ProducerId>) -> BoxFuture<'a, Result<ClaimOutcome>>;
    /// The same for several, in one decision per log; one answer each. `Err` means that none was looked at.
    fn claim_batch<'a>(
        &'a self,
        claims: Vec<NewClaim>,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Vec<Result<ClaimOutcome>>>>;
    /// Begins a claim's lease anew.
    fn heartbeat<'a>(&'a self, claim: &'a str, token: FencingToken) -> BoxFuture<'a, Result<Claim>>;
    /// Ends a claim: done. What the work has produced and the group's offset are stored with it, or nothing is. Said
    /// again with the same token it does nothing twice.
    fn complete_claim<'a>(
        &'a self,
        claim: &'a str,
        completion: Completion,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Claim>>;
    /// The same for several, in one decision per log; one answer each, each by itself whole or not at all.
    fn complete_claims<'a>(
        &'a self,
        completions: Vec<ClaimCompletion>,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Vec<Result<Claim>>>>;
    /// Ends a claim: failed. The event may be claimed again after a while, or is a dead letter.
    fn fail_claim<'a>(&'a self, claim: &'a str, failure: ClaimFailure) -> BoxFuture<'a, Result<Claim>>;
    /// Gives a claim back, unfinished: the event may be claimed at once, and no attempt is spent.
    fn release_claim<'a>(&'a self, claim: &'a str, token: FencingToken) -> BoxFuture<'a, Result<Claim>>;
    /// One claim that is not finished.
    fn open_claim<'a>(&'a self, claim: &'a str) -> BoxFuture<'a, Result<Claim>>;
    /// Claims of a handler that are not finished, by topic and sequence, the page at `cursor`.
    fn open_claims<'a>(
        &'a self,
        handler: &'a str,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Claim>>>;

    /// Says how a handler's work is to be tried. It takes the place of what was said before.
    fn put_handler<'a>(&'a self, name: &'a str, handler: NewHandler)
    -> BoxFuture<'a, Result<RegisterOutcome<Handler>>>;
    /// Deletes a handler: its policy, its open claims, and what it has finished; its open dead letters are closed. Refused
    /// while members of a shared group of its name live.
    fn delete_handler<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>>;
    /// One handler: it was put, or has claimed something.
    fn handler<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Handler>>;
    /// Handlers in order of their names, the page at `cursor`.
    fn handlers<'a>(&'a self, cursor: Option<&'a Cursor>, limit: usize) -> BoxFuture<'a, Result<Page<Handler>>>;

    /// Dead letters in the order they were given up, the page at `cursor`.
    fn dead_letters<'a>(
        &'a self,
        filter: &'a DeadLetterFilter,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<DeadLetter>>>;
    /// How many are open, and whose they are.
    fn dead_letter_summary(&self) -> BoxFuture<'_, Result<DeadLetterSummary>>;
    /// One dead letter.
    fn dead_letter(&self, id: Uuid) -> BoxFuture<'_, Result<DeadLetter>>;
    /// Lets a dead letter's event be worked on again, or publishes a corrected one in its place.
    fn redrive<'a>(
        &'a self,
        id: Uuid,
        redrive: RedriveRequest,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<DeadLetter>>;
    /// Decides that a dead letter's event need not be worked on.
    fn discard<'a>(&'a self, id: Uuid, reason: String, by: Option<&'a ProducerId>)
    -> BoxFuture<'a, Result<DeadLetter>>;
    /// Redrives every open dead letter that is meant; answers how many.
    fn redrive_all<'a>(
        &'a self,
        order: BulkResolveRequest,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BulkResolveOutcome>>;
    /// Discards every open dead letter that is meant; answers how many.
    fn discard_all<'a>(
        &'a self,
        order: BulkResolveRequest,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BulkResolveOutcome>>;
}
