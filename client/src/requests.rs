//! The forms of requests that several methods share.
//!
//! - A write that must not be repeated as it is carries an `Idempotency-Key`, one per call.
//! - A list that the contract returns whole is read page by page.

use crate::client::{Client, as_created, give_id};
use crate::query::{self, QueryParams};
use crate::response::{self, ListBody};
use contract::api::*;
use contract::{Atomicity, BatchOutcome, NewEvent, Page, ProducerId, RegisterOutcome, Result, TopicId, TopicSegments};
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// No parameters.
pub(crate) const NO_PARAMS: &QueryParams = &QueryParams::new();

/// `{id}:{verb}`, one piece of a path.
pub(crate) fn custom_method(id: impl std::fmt::Display, verb: &str) -> String {
    format!("{id}:{verb}")
}

impl Client {
    /// Posts under an `Idempotency-Key`.
    pub(crate) async fn post_keyed<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &(impl Serialize + Sync),
    ) -> Result<T> {
        self.send_json(self.request(Method::POST, path, NO_PARAMS).json(body).keyed()).await
    }

    /// Posts a request that has no second effect when it is repeated.
    pub(crate) async fn post_repeatable<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &(impl Serialize + Sync),
    ) -> Result<T> {
        self.send_json(self.request(Method::POST, path, NO_PARAMS).json(body)).await
    }

    /// Posts without a body.
    pub(crate) async fn post_empty<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T> {
        self.send_json(self.request(Method::POST, path, NO_PARAMS).keyed()).await
    }

    pub(crate) async fn register<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        definition: &(impl Serialize + Sync),
    ) -> Result<RegisterOutcome<T>> {
        response::registered(&self.send(self.request(method, path, NO_PARAMS).json(definition).keyed()).await?)
    }

    pub(crate) async fn remove(&self, path: &[&str]) -> Result<()> {
        self.send(self.request(Method::DELETE, path, NO_PARAMS).keyed()).await.map(drop)
    }

    pub(crate) async fn remove_with(&self, path: &[&str], query: &QueryParams) -> Result<()> {
        self.send(self.request(Method::DELETE, path, query).keyed()).await.map(drop)
    }

    /// Requests what a removal would do.
    pub(crate) async fn preview_removal<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T> {
        self.send_json(self.request(Method::DELETE, path, &query::one("dryRun", true))).await
    }

    pub(crate) async fn list<T: DeserializeOwned>(&self, path: &[&str], query: &QueryParams) -> Result<Page<T>> {
        self.get::<ListBody<T>>(path, query).await?.page()
    }

    pub(crate) async fn segments_of(&self, topic: &TopicId) -> Result<TopicSegments> {
        let (mut segments, mut cursor) = (Vec::new(), None);
        loop {
            let mut query = query::page(cursor.as_ref(), contract::limits::READ_EVENTS_MAX);
            query::add(&mut query, "topic", Some(topic));
            let page: Page<_> = self.list(&["topics", "segments"], &query).await?;
            segments.extend(page.items);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(TopicSegments { topic: topic.clone(), segments });
            }
        }
    }

    pub(crate) async fn publish_several(
        &self,
        mut events: Vec<NewEvent>,
        atomicity: Atomicity,
        producer: Option<&ProducerId>,
    ) -> Result<BatchOutcome> {
        let mut query = QueryParams::new();
        match atomicity {
            Atomicity::PerTopic => (),
            Atomicity::All => query::add(&mut query, "atomic", Some("all")),
            // A batch request is atomic at least per topic.
            Atomicity::Each => return Ok(self.publish_in_order(events, producer).await),
        }
        let given_ids: Vec<_> = events.iter_mut().map(give_id).collect();
        let request =
            self.request(Method::POST, &["events:batch"], &query).json(&json!({"events": events})).by(producer);
        let outcome = response::check_count(response::batch(&self.send(request).await?.body)?, given_ids.len())?;
        Ok(outcome.into_iter().zip(given_ids).map(|(result, given_id)| Ok(as_created(result?, given_id))).collect())
    }

    async fn publish_in_order(&self, events: Vec<NewEvent>, producer: Option<&ProducerId>) -> BatchOutcome {
        let mut outcome = Vec::with_capacity(events.len());
        for event in events {
            outcome.push(self.publish(event, producer).await);
        }
        outcome
    }

    /// Resolves dead letters on behalf of a caller.
    pub(crate) async fn post_resolution<T: DeserializeOwned>(
        &self,
        path: &[&str],
        order: &(impl Serialize + Sync),
        by: Option<&ProducerId>,
    ) -> Result<T> {
        self.send_json(self.request(Method::POST, path, NO_PARAMS).json(order).by(by).keyed()).await
    }
}
