//! Events: publishing them, and reading them by topic, log, id or aggregate.

use super::BoxFuture;
use crate::{
    Aggregate, AggregateEvents, AggregateRead, Atomicity, BatchOutcome, EventPage, LogPage, LogRead, NewEvent,
    ProducerId, PublishedEvent, Result, StoredEvent, TopicRead,
};
use std::time::Duration;
use uuid::Uuid;

/// Publishing and reading events.
pub trait EventApi: Send + Sync {
    /// Publishes one event. If its idempotency key is remembered, the stored event is returned and nothing is stored.
    fn publish<'a>(
        &'a self,
        event: NewEvent,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<PublishedEvent>>;
    /// Publishes several events, as one atomic unit per topic or altogether. `Err` means that no event was looked at.
    fn publish_batch<'a>(
        &'a self,
        events: Vec<NewEvent>,
        atomicity: Atomicity,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BatchOutcome>>;
    /// A page of a topic, without waiting.
    fn read(&self, read: TopicRead) -> BoxFuture<'_, Result<EventPage>>;
    /// A page of a topic. If there is no event yet, waits for one until the time-out.
    fn wait(&self, read: TopicRead, timeout: Duration) -> BoxFuture<'_, Result<EventPage>>;
    /// A page of all topics of the default log in the order of their positions, without waiting.
    fn read_log(&self, read: LogRead) -> BoxFuture<'_, Result<LogPage>>;
    /// A page of the default log. If there is no event yet, waits for one until the time-out.
    fn wait_log(&self, read: LogRead, timeout: Duration) -> BoxFuture<'_, Result<LogPage>>;
    /// The event that was stored first under this id.
    fn event(&self, id: Uuid) -> BoxFuture<'_, Result<StoredEvent>>;
    /// The last event of an aggregate and its aggregate sequence. `after` and `limit` are ignored.
    fn aggregate(&self, read: AggregateRead) -> BoxFuture<'_, Result<Aggregate>>;
    /// A page of an aggregate's events.
    fn read_aggregate(&self, read: AggregateRead) -> BoxFuture<'_, Result<AggregateEvents>>;
}
