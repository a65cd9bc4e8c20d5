//! Subscriptions.

use super::BrokerWrites;
use crate::broker::Broker;
use crate::ledger::{ReplyRecorder, SubscriptionRow};
use crate::secrets;
use contract::api::{BoxFuture, SubscriptionApi};
use contract::{
    Cursor, JobAttempt, NewReplay, NewSecret, NewSubscription, Page, ProducerId, Replay, ReplayOutcome, Result,
    SecretPolicy, SecretRotation, Subscription, SubscriptionChange, SubscriptionWithSecret, TopicId,
};
use std::collections::BTreeMap;

impl BrokerWrites<'_> {
    /// The pointers to headers of a subscription that seem to contain a secret, if its topic flags them.
    pub(crate) fn suspected_headers(self, topic: &TopicId, headers: &BTreeMap<String, String>) -> Vec<String> {
        let policy =
            self.unrefreshed().logs.find(topic).map(|found| found.topic.topic.definition.secrets.unwrap_or_default());
        match policy {
            Ok(SecretPolicy::Off) | Err(_) => Vec::new(),
            Ok(SecretPolicy::Flag | SecretPolicy::Reject) => secrets::suspected_headers(headers.iter()),
        }
    }

    /// Creates a subscription. What is stored as the reply is the row, which holds no secret.
    pub(crate) async fn create_subscription(
        self,
        subscription: NewSubscription,
        recorder: ReplyRecorder<SubscriptionRow>,
    ) -> Result<(SubscriptionRow, SubscriptionWithSecret)> {
        self.refreshed().await?.subscriptions(None).create_keeping(subscription, recorder).await
    }

    pub(crate) async fn change_subscription(
        self,
        id: &str,
        change: SubscriptionChange,
        recorder: ReplyRecorder<Subscription>,
    ) -> Result<Subscription> {
        self.refreshed().await?.subscriptions(None).change(id, change, recorder).await
    }

    pub(crate) async fn delete_subscription(
        self,
        id: &str,
        by: Option<&ProducerId>,
        recorder: ReplyRecorder<()>,
    ) -> Result<()> {
        self.refreshed().await?.subscriptions(by).delete(id, recorder).await
    }

    pub(crate) async fn pause_subscription(
        self,
        id: &str,
        reason: Option<String>,
        by: Option<&ProducerId>,
        recorder: ReplyRecorder<Subscription>,
    ) -> Result<Subscription> {
        self.refreshed().await?.subscriptions(by).pause(id, reason, recorder).await
    }

    pub(crate) async fn resume_subscription(
        self,
        id: &str,
        recorder: ReplyRecorder<Subscription>,
    ) -> Result<Subscription> {
        self.refreshed().await?.subscriptions(None).resume(id, recorder).await
    }

    pub(crate) async fn close_breaker(
        self,
        id: &str,
        by: Option<&ProducerId>,
        recorder: ReplyRecorder<Subscription>,
    ) -> Result<Subscription> {
        self.refreshed().await?.subscriptions(by).close_breaker(id, recorder).await
    }

    pub(crate) async fn rotate_secret(
        self,
        id: &str,
        rotation: SecretRotation,
        recorder: ReplyRecorder<NewSecret>,
    ) -> Result<NewSecret> {
        self.refreshed().await?.subscriptions(None).rotate(id, rotation, recorder).await
    }

    pub(crate) async fn replay_subscription(
        self,
        id: &str,
        replay: NewReplay,
        recorder: ReplyRecorder<ReplayOutcome>,
    ) -> Result<ReplayOutcome> {
        self.refreshed().await?.subscriptions(None).replay(id, replay, recorder).await
    }
}

impl SubscriptionApi for Broker {
    fn create_subscription(&self, subscription: NewSubscription) -> BoxFuture<'_, Result<SubscriptionWithSecret>> {
        Box::pin(async move {
            let created = self.writes().create_subscription(subscription, ReplyRecorder::disabled()).await;
            created.map(|(_, shown)| shown)
        })
    }

    fn subscription<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Subscription>> {
        Box::pin(async move {
            self.refresh().await?;
            self.subscriptions(None).get(id)
        })
    }

    fn subscriptions<'a>(
        &'a self,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Subscription>>> {
        Box::pin(async move {
            self.refresh().await?;
            self.subscriptions(None).list(cursor, limit)
        })
    }

    fn change_subscription<'a>(
        &'a self,
        id: &'a str,
        change: SubscriptionChange,
    ) -> BoxFuture<'a, Result<Subscription>> {
        Box::pin(self.writes().change_subscription(id, change, ReplyRecorder::disabled()))
    }

    fn delete_subscription<'a>(&'a self, id: &'a str, by: Option<&'a ProducerId>) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.writes().delete_subscription(id, by, ReplyRecorder::disabled()))
    }

    fn pause_subscription<'a>(
        &'a self,
        id: &'a str,
        reason: Option<String>,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Subscription>> {
        Box::pin(self.writes().pause_subscription(id, reason, by, ReplyRecorder::disabled()))
    }

    fn resume_subscription<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Subscription>> {
        Box::pin(self.writes().resume_subscription(id, ReplyRecorder::disabled()))
    }

    fn close_breaker<'a>(&'a self, id: &'a str, by: Option<&'a ProducerId>) -> BoxFuture<'a, Result<Subscription>> {
        Box::pin(self.writes().close_breaker(id, by, ReplyRecorder::disabled()))
    }

    fn rotate_secret<'a>(&'a self, id: &'a str, rotation: SecretRotation) -> BoxFuture<'a, Result<NewSecret>> {
        Box::pin(self.writes().rotate_secret(id, rotation, ReplyRecorder::disabled()))
    }

    fn test_subscription<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<JobAttempt>> {
        Box::pin(async move {
            self.refresh().await?;
            let (_, row) = self.subscriptions(None).find(id)?;
            self.jobs(None).test(&row).await
        })
    }

    fn replay_subscription<'a>(&'a self, id: &'a str, replay: NewReplay) -> BoxFuture<'a, Result<ReplayOutcome>> {
        Box::pin(self.writes().replay_subscription(id, replay, ReplyRecorder::disabled()))
    }

    fn replays<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Vec<Replay>>> {
        Box::pin(async move {
            self.refresh().await?;
            self.subscriptions(None).replays(id)
        })
    }
}
