//! Subscriptions.

use crate::client::Client;
use crate::query;
use crate::requests::{NO_PARAMS, custom_method};
use crate::response;
use contract::api::{BoxFuture, SubscriptionApi};
use contract::{
    Cursor, JobAttempt, NewReplay, NewSecret, NewSubscription, Page, ProducerId, Replay, ReplayOutcome, Result,
    SecretRotation, Subscription, SubscriptionChange, SubscriptionWithSecret,
};
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

impl Client {
    async fn act_on_subscription<T: DeserializeOwned>(
        &self,
        id: &str,
        action: &str,
        body: &(impl Serialize + Sync),
        by: Option<&ProducerId>,
    ) -> Result<T> {
        let path = custom_method(id, action);
        let request = self.request(Method::POST, &["subscriptions", &path], NO_PARAMS).json(body).by(by);
        self.send_json(request.keyed()).await
    }
}

impl SubscriptionApi for Client {
    fn create_subscription(&self, subscription: NewSubscription) -> BoxFuture<'_, Result<SubscriptionWithSecret>> {
        Box::pin(async move {
            let request = self.request(Method::POST, &["subscriptions"], NO_PARAMS).json(&subscription).keyed();
            response::created_subscription(&self.send(request).await?.body)
        })
    }

    fn subscription<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Subscription>> {
        Box::pin(async move { self.get(&["subscriptions", id], NO_PARAMS).await })
    }

    fn subscriptions<'a>(
        &'a self,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Subscription>>> {
        let query = query::page(cursor, limit);
        Box::pin(async move { self.list(&["subscriptions"], &query).await })
    }

    fn change_subscription<'a>(
        &'a self,
        id: &'a str,
        change: SubscriptionChange,
    ) -> BoxFuture<'a, Result<Subscription>> {
        Box::pin(async move {
            self.send_json(self.request(Method::PATCH, &["subscriptions", id], NO_PARAMS).json(&change).keyed()).await
        })
    }

    fn delete_subscription<'a>(&'a self, id: &'a str, by: Option<&'a ProducerId>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let request = self.request(Method::DELETE, &["subscriptions", id], NO_PARAMS).by(by);
            self.send(request.keyed()).await.map(drop)
        })
    }

    fn pause_subscription<'a>(
        &'a self,
        id: &'a str,
        reason: Option<String>,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Subscription>> {
        Box::pin(async move { self.act_on_subscription(id, "pause", &json!({"reason": reason}), by).await })
    }

    fn resume_subscription<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Subscription>> {
        Box::pin(async move { self.act_on_subscription(id, "resume", &json!({}), None).await })
    }

    fn close_breaker<'a>(&'a self, id: &'a str, by: Option<&'a ProducerId>) -> BoxFuture<'a, Result<Subscription>> {
        Box::pin(async move { self.act_on_subscription(id, "close-breaker", &json!({}), by).await })
    }

    fn rotate_secret<'a>(&'a self, id: &'a str, rotation: SecretRotation) -> BoxFuture<'a, Result<NewSecret>> {
        Box::pin(async move { self.act_on_subscription(id, "rotate-secret", &rotation, None).await })
    }

    fn test_subscription<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<JobAttempt>> {
        Box::pin(async move {
            let path = custom_method(id, "test");
            // The reply is not stored under a key, and a repetition would deliver a second time.
            self.send_json(self.request(Method::POST, &["subscriptions", &path], NO_PARAMS).once()).await
        })
    }

    fn replay_subscription<'a>(&'a self, id: &'a str, replay: NewReplay) -> BoxFuture<'a, Result<ReplayOutcome>> {
        Box::pin(async move { self.act_on_subscription(id, "replay", &replay, None).await })
    }

    fn replays<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Vec<Replay>>> {
        Box::pin(async move {
            let path = ["subscriptions", id, "replays"];
            response::items(&self.bytes(&path, NO_PARAMS, std::time::Duration::ZERO).await?)
        })
    }
}
