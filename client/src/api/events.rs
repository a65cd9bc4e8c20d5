//! Publishing and reading events.

use crate::client::Client;
use crate::query;
use crate::requests::NO_PARAMS;
use crate::response;
use contract::api::{BoxFuture, EventApi};
use contract::{
    Aggregate, AggregateEvents, AggregateRead, Atomicity, BatchOutcome, EventPage, LogPage, LogRead, NewEvent,
    ProducerId, PublishedEvent, Result, StoredEvent, TopicRead,
};
use std::time::Duration;
use uuid::Uuid;

impl EventApi for Client {
    fn publish<'a>(
        &'a self,
        event: NewEvent,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<PublishedEvent>> {
        Box::pin(self.publish_with(event, producer, NO_PARAMS, Duration::ZERO))
    }

    fn publish_batch<'a>(
        &'a self,
        events: Vec<NewEvent>,
        atomicity: Atomicity,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BatchOutcome>> {
        Box::pin(self.publish_several(events, atomicity, producer))
    }

    fn read(&self, read: TopicRead) -> BoxFuture<'_, Result<EventPage>> {
        let query = query::of_read(&read, None);
        Box::pin(async move { response::event_page(&self.bytes(&["events"], &query, Duration::ZERO).await?) })
    }

    fn wait(&self, read: TopicRead, timeout: Duration) -> BoxFuture<'_, Result<EventPage>> {
        let query = query::of_read(&read, Some(timeout));
        Box::pin(async move { response::event_page(&self.bytes(&["events:poll"], &query, timeout).await?) })
    }

    fn read_log(&self, read: LogRead) -> BoxFuture<'_, Result<LogPage>> {
        self.wait_log(read, Duration::ZERO)
    }

    fn wait_log(&self, read: LogRead, timeout: Duration) -> BoxFuture<'_, Result<LogPage>> {
        let query = query::of_log_read(&read, timeout);
        Box::pin(async move { response::log_page(&self.bytes(&["log"], &query, timeout).await?) })
    }

    fn event(&self, id: Uuid) -> BoxFuture<'_, Result<StoredEvent>> {
        Box::pin(async move {
            response::stored_event(self.bytes(&["events", &id.to_string()], NO_PARAMS, Duration::ZERO).await?)
        })
    }

    fn aggregate(&self, read: AggregateRead) -> BoxFuture<'_, Result<Aggregate>> {
        Box::pin(async move {
            let path = ["aggregates", query::subject_type(&read), &read.subject];
            let query = query::one("topic", &read.topic);
            response::aggregate(&self.bytes(&path, &query, Duration::ZERO).await?)
        })
    }

    fn read_aggregate(&self, read: AggregateRead) -> BoxFuture<'_, Result<AggregateEvents>> {
        Box::pin(async move {
            let path = ["aggregates", query::subject_type(&read), &read.subject, "events"];
            let query = query::of_aggregate(&read);
            response::aggregate_events(&self.bytes(&path, &query, Duration::ZERO).await?)
        })
    }
}
