//! Consumers and groups.

use crate::client::Client;
use crate::query;
use crate::requests::{NO_PARAMS, custom_method};
use crate::response::{self, DataBody};
use contract::api::{BoxFuture, ConsumerApi};
use contract::{
    Consumer, ConsumerGroup, Cursor, EventPage, GroupReset, GroupTopic, NewConsumer, Offset, Page, ReadOffset, Result,
};
use serde_json::json;
use std::time::Duration;
use uuid::Uuid;

impl ConsumerApi for Client {
    fn create_consumer(&self, consumer: NewConsumer) -> BoxFuture<'_, Result<Consumer>> {
        Box::pin(async move { Ok(self.post_keyed::<DataBody<_>>(&["consumers"], &consumer).await?.data) })
    }

    fn consumer(&self, id: Uuid) -> BoxFuture<'_, Result<Consumer>> {
        Box::pin(async move { Ok(self.get::<DataBody<_>>(&["consumers", &id.to_string()], NO_PARAMS).await?.data) })
    }

    fn consumers<'a>(
        &'a self,
        group: Option<&'a str>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Consumer>>> {
        let mut query = query::page(cursor, limit);
        query::add(&mut query, "consumerGroup", group);
        Box::pin(async move { self.list(&["consumers"], &query).await })
    }

    fn delete_consumer(&self, id: Uuid) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.remove(&["consumers", &id.to_string()]).await })
    }

    fn read_as(&self, consumer: Uuid, offset: ReadOffset, limit: usize) -> BoxFuture<'_, Result<EventPage>> {
        let query = query::of_consumer(consumer, offset, limit, None);
        Box::pin(async move { response::event_page(&self.bytes(&["events"], &query, Duration::ZERO).await?) })
    }

    fn wait_as(
        &self,
        consumer: Uuid,
        offset: ReadOffset,
        limit: usize,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<EventPage>> {
        let query = query::of_consumer(consumer, offset, limit, Some(timeout));
        Box::pin(async move { response::event_page(&self.bytes(&["events:poll"], &query, timeout).await?) })
    }

    fn commit_offset(&self, consumer: Uuid, offset: Offset) -> BoxFuture<'_, Result<GroupTopic>> {
        Box::pin(async move {
            self.post_repeatable(&["consumers", &custom_method(consumer, "commit")], &json!({"offset": offset})).await
        })
    }

    fn consumer_groups<'a>(
        &'a self,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<ConsumerGroup>>> {
        let query = query::page(cursor, limit);
        Box::pin(async move { self.list(&["consumer-groups"], &query).await })
    }

    fn consumer_group<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ConsumerGroup>> {
        Box::pin(async move { self.get(&["consumer-groups", name], NO_PARAMS).await })
    }

    fn delete_group<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.remove(&["consumer-groups", name]).await })
    }

    fn reset_group<'a>(&'a self, name: &'a str, reset: GroupReset) -> BoxFuture<'a, Result<ConsumerGroup>> {
        Box::pin(async move {
            self.post_keyed(&["consumer-groups", &custom_method(name, "reset")], &query::reset(&reset)).await
        })
    }
}
