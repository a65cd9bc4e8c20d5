//! Subscriptions: standing orders to deliver matching events to a webhook URL.

use super::BoxFuture;
use crate::{
    Cursor, JobAttempt, NewReplay, NewSecret, NewSubscription, Page, ProducerId, Replay, ReplayOutcome, Result,
    SecretRotation, Subscription, SubscriptionChange, SubscriptionWithSecret,
};

/// Subscriptions. `id` is a subscription's id or its code.
pub trait SubscriptionApi: Send + Sync {
    /// Creates a subscription. If the broker made a secret for it, the secret is returned here and never again.
    fn create_subscription(&self, subscription: NewSubscription) -> BoxFuture<'_, Result<SubscriptionWithSecret>>;
    /// One subscription.
    fn subscription<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Subscription>>;
    /// Subscriptions in the order of their codes.
    fn subscriptions<'a>(
        &'a self,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Subscription>>>;
    /// Changes a subscription. Events that dispatch has not reached yet follow the new definition.
    fn change_subscription<'a>(
        &'a self,
        id: &'a str,
        change: SubscriptionChange,
    ) -> BoxFuture<'a, Result<Subscription>>;
    /// Deletes a subscription with its jobs; its open dead letters are discarded.
    fn delete_subscription<'a>(&'a self, id: &'a str, by: Option<&'a ProducerId>) -> BoxFuture<'a, Result<()>>;
    /// Pauses a subscription: its jobs wait.
    fn pause_subscription<'a>(
        &'a self,
        id: &'a str,
        reason: Option<String>,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Subscription>>;
    /// Resumes a paused subscription.
    fn resume_subscription<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Subscription>>;
    /// Closes the circuit breaker of a subscription's target: its jobs are sent again at once.
    fn close_breaker<'a>(&'a self, id: &'a str, by: Option<&'a ProducerId>) -> BoxFuture<'a, Result<Subscription>>;
    /// Gives a subscription a new secret, which is returned here and never again. The previous secrets sign as well until
    /// the grace period ends.
    fn rotate_secret<'a>(&'a self, id: &'a str, rotation: SecretRotation) -> BoxFuture<'a, Result<NewSecret>>;
    /// Sends an invented event to a subscription's target, and returns what became of it. Nothing is stored.
    fn test_subscription<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<JobAttempt>>;
    /// Delivers a past range of the topic again, or only counts it.
    fn replay_subscription<'a>(&'a self, id: &'a str, replay: NewReplay) -> BoxFuture<'a, Result<ReplayOutcome>>;
    /// The replays of a subscription that are still running.
    fn replays<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Vec<Replay>>>;
}
