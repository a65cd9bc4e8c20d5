//! Topics.

use crate::client::Client;
use crate::query;
use crate::requests::{NO_PARAMS, custom_method};
use contract::api::{BoxFuture, TopicApi};
use contract::{
    CompactRequest, Cursor, DryRunReport, EventCount, IdPattern, NewTopic, Page, RegisterOutcome, RepublishOutcome,
    RepublishRequest, Result, Topic, TopicChange, TopicId, TopicSegments, TrimRequest,
};
use reqwest::Method;

impl TopicApi for Client {
    fn register_topic(&self, topic: NewTopic) -> BoxFuture<'_, Result<RegisterOutcome<Topic>>> {
        Box::pin(async move { self.register(Method::POST, &["topics"], &topic).await })
    }

    fn topic<'a>(&'a self, id: &'a TopicId) -> BoxFuture<'a, Result<Topic>> {
        Box::pin(async move { self.get(&["topics", id.as_str()], NO_PARAMS).await })
    }

    fn topics<'a>(
        &'a self,
        pattern: Option<&'a IdPattern>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Topic>>> {
        let mut query = query::page(cursor, limit);
        query::add(&mut query, "topic", pattern);
        Box::pin(async move { self.list(&["topics"], &query).await })
    }

    fn change_topic<'a>(&'a self, topic: &'a TopicId, change: TopicChange) -> BoxFuture<'a, Result<Topic>> {
        Box::pin(async move {
            self.send_json(self.request(Method::PATCH, &["topics", topic.as_str()], NO_PARAMS).json(&change).keyed())
                .await
        })
    }

    fn segments<'a>(&'a self, topic: &'a TopicId) -> BoxFuture<'a, Result<TopicSegments>> {
        Box::pin(self.segments_of(topic))
    }

    fn republish<'a>(&'a self, topic: &'a TopicId, order: RepublishRequest) -> BoxFuture<'a, Result<RepublishOutcome>> {
        Box::pin(async move { self.post_keyed(&["topics", &custom_method(topic.as_str(), "republish")], &order).await })
    }

    fn trim_topic<'a>(&'a self, topic: &'a TopicId, trim: TrimRequest) -> BoxFuture<'a, Result<EventCount>> {
        Box::pin(async move { self.post_keyed(&["topics", &custom_method(topic.as_str(), "trim")], &trim).await })
    }

    fn compact_topic<'a>(&'a self, topic: &'a TopicId, order: CompactRequest) -> BoxFuture<'a, Result<EventCount>> {
        Box::pin(async move { self.post_keyed(&["topics", &custom_method(topic.as_str(), "compact")], &order).await })
    }

    fn delete_topic<'a>(&'a self, topic: &'a TopicId, force: bool) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.remove_with(&["topics", topic.as_str()], &query::one("force", force)).await })
    }

    fn plan_topic_deletion<'a>(&'a self, topic: &'a TopicId) -> BoxFuture<'a, Result<DryRunReport>> {
        Box::pin(async move { self.preview_removal(&["topics", topic.as_str()]).await })
    }
}
