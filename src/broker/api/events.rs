//! Publishing and reading events.

use super::BrokerWrites;
use crate::broker::Broker;
use crate::ledger::ReplyRecorder;
use contract::api::{BoxFuture, EventApi};
use contract::{
    Aggregate, AggregateEvents, AggregateRead, Atomicity, BatchOutcome, EventPage, LogPage, LogRead, NewEvent,
    ProducerId, PublishedEvent, Result, StoredEvent, TopicRead, UnreadableEvent,
};
use std::time::Duration;
use uuid::Uuid;

impl BrokerWrites<'_> {
    pub(crate) async fn publish(
        self,
        event: Box<NewEvent>,
        producer: Option<&ProducerId>,
        recorder: ReplyRecorder<PublishedEvent>,
    ) -> Result<PublishedEvent> {
        self.unrefreshed().context(producer).publish(event, recorder).await
    }

    pub(crate) async fn publish_batch(
        self,
        events: Vec<Result<NewEvent, UnreadableEvent>>,
        atomicity: Atomicity,
        producer: Option<&ProducerId>,
        recorder: ReplyRecorder<BatchOutcome>,
    ) -> Result<BatchOutcome> {
        self.unrefreshed().context(producer).publish_batch(events, atomicity, recorder).await
    }
}

impl EventApi for Broker {
    fn publish<'a>(
        &'a self,
        event: NewEvent,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<PublishedEvent>> {
        Box::pin(self.context(producer).publish(Box::new(event), ReplyRecorder::disabled()))
    }

    fn publish_batch<'a>(
        &'a self,
        events: Vec<NewEvent>,
        atomicity: Atomicity,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BatchOutcome>> {
        Box::pin(self.publish_submitted(events.into_iter().map(Ok).collect(), atomicity, producer))
    }

    fn read(&self, read: TopicRead) -> BoxFuture<'_, Result<EventPage>> {
        Box::pin(async move {
            let read = &read;
            self.with_refresh(|| async move { self.reader().read(read).await }).await
        })
    }

    fn wait(&self, read: TopicRead, timeout: Duration) -> BoxFuture<'_, Result<EventPage>> {
        Box::pin(async move {
            let read = &read;
            self.with_refresh(|| async move { self.reader().wait(read, timeout).await }).await
        })
    }

    fn read_log(&self, read: LogRead) -> BoxFuture<'_, Result<LogPage>> {
        Box::pin(async move { self.reader().read_log(&read).await })
    }

    fn wait_log(&self, read: LogRead, timeout: Duration) -> BoxFuture<'_, Result<LogPage>> {
        Box::pin(async move { self.reader().wait_log(&read, timeout).await })
    }

    fn event(&self, id: Uuid) -> BoxFuture<'_, Result<StoredEvent>> {
        Box::pin(self.with_refresh(move || async move { self.reader().event(id).await }))
    }

    fn aggregate(&self, read: AggregateRead) -> BoxFuture<'_, Result<Aggregate>> {
        Box::pin(async move {
            let read = &read;
            self.with_refresh(|| async move { self.reader().aggregate(read).await }).await
        })
    }

    fn read_aggregate(&self, read: AggregateRead) -> BoxFuture<'_, Result<AggregateEvents>> {
        Box::pin(async move {
            let read = &read;
            self.with_refresh(|| async move { self.reader().read_aggregate(read).await }).await
        })
    }
}
