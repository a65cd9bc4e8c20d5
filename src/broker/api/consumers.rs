//! Consumers and groups.

use super::BrokerWrites;
use crate::broker::Broker;
use crate::ledger::ReplyRecorder;
use contract::api::{BoxFuture, ConsumerApi};
use contract::{
    Consumer, ConsumerGroup, Cursor, EventPage, GroupReset, GroupTopic, NewConsumer, Offset, Page, ReadOffset, Result,
};
use std::time::Duration;
use uuid::Uuid;

impl BrokerWrites<'_> {
    pub(crate) async fn create_consumer(
        self,
        consumer: NewConsumer,
        recorder: ReplyRecorder<Consumer>,
    ) -> Result<Consumer> {
        let (consumer, keep) = (&consumer, &recorder);
        self.with_refresh(|broker| async move { broker.consumers().create(consumer.clone(), keep.clone()).await }).await
    }

    pub(crate) async fn delete_consumer(self, id: Uuid, recorder: ReplyRecorder<()>) -> Result<()> {
        let recorder = &recorder;
        self.with_refresh(|broker| async move { broker.consumers().delete(id, recorder.clone()).await }).await
    }

    pub(crate) async fn commit_offset(
        self,
        id: Uuid,
        offset: Offset,
        recorder: ReplyRecorder<GroupTopic>,
    ) -> Result<GroupTopic> {
        let recorder = &recorder;
        self.with_refresh(|broker| async move { broker.consumers().commit(id, offset, recorder.clone()).await }).await
    }

    pub(crate) async fn delete_group(self, name: &str, recorder: ReplyRecorder<()>) -> Result<()> {
        self.refreshed().await?.consumers().delete_group(name, &recorder).await
    }

    pub(crate) async fn reset_group(
        self,
        name: &str,
        reset: GroupReset,
        recorder: ReplyRecorder<ConsumerGroup>,
    ) -> Result<ConsumerGroup> {
        self.refreshed().await?.consumers().reset(name, reset, recorder).await
    }
}

impl ConsumerApi for Broker {
    fn create_consumer(&self, consumer: NewConsumer) -> BoxFuture<'_, Result<Consumer>> {
        Box::pin(self.writes().create_consumer(consumer, ReplyRecorder::disabled()))
    }

    fn consumer(&self, id: Uuid) -> BoxFuture<'_, Result<Consumer>> {
        Box::pin(self.with_refresh(move || async move { self.consumers().get(id) }))
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
        Box::pin(self.writes().delete_consumer(id, ReplyRecorder::disabled()))
    }

    fn read_as(&self, consumer: Uuid, offset: ReadOffset, limit: usize) -> BoxFuture<'_, Result<EventPage>> {
        Box::pin(self.with_refresh(move || async move { self.consumers().read(consumer, offset, limit).await }))
    }

    fn wait_as(
        &self,
        consumer: Uuid,
        offset: ReadOffset,
        limit: usize,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<EventPage>> {
        Box::pin(
            self.with_refresh(move || async move { self.consumers().wait(consumer, offset, limit, timeout).await }),
        )
    }

    fn commit_offset(&self, consumer: Uuid, offset: Offset) -> BoxFuture<'_, Result<GroupTopic>> {
        Box::pin(self.writes().commit_offset(consumer, offset, ReplyRecorder::disabled()))
    }

    fn consumer_groups<'a>(
        &'a self,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<ConsumerGroup>>> {
        Box::pin(async move { self.consumers().groups(cursor, limit).await })
    }

    fn consumer_group<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ConsumerGroup>> {
        Box::pin(async move {
            // Another broker may have moved its offset. If the log cannot be read at the moment, the known state is returned.
            if let Err(error) = self.logs.default_ledger().refresh().await {
                tracing::debug!(%error, group = name, "the group is shown without the newest records");
            }
            self.consumers().group(name).await
        })
    }

    fn delete_group<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.writes().delete_group(name, ReplyRecorder::disabled()))
    }

    fn reset_group<'a>(&'a self, name: &'a str, reset: GroupReset) -> BoxFuture<'a, Result<ConsumerGroup>> {
        Box::pin(self.writes().reset_group(name, reset, ReplyRecorder::disabled()))
    }
}
