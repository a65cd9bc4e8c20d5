//! The methods of the contract on a broker in this process, a file per noun.
//!
//! - Each file has the writing methods twice: on [`BrokerWrites`], where a [`ReplyRecorder`] stores the reply with the
//!   effect, and in the trait, which calls them without one.
//! - When several brokers write to the log, something that is missing here may have been created by another broker a moment
//!   ago. Before a method answers *not found*, the broker reads the new records and tries once more.
//!
//! [`ReplyRecorder`]: crate::ledger::ReplyRecorder

mod claims;
mod consumers;
mod dead_letters;
mod dispatch_jobs;
mod event_types;
mod events;
mod handlers;
mod pools;
mod projections;
mod subscriptions;
mod topics;

use super::Broker;
use crate::idempotency::StoredReplies;
use contract::{Kind, Result};

/// A broker's writing methods, for callers that send a request again under the same `Idempotency-Key`.
#[derive(Clone, Copy)]
pub(crate) struct BrokerWrites<'a>(&'a Broker);

impl Broker {
    /// The writing methods, with replies to store.
    pub(crate) const fn writes(&self) -> BrokerWrites<'_> {
        BrokerWrites(self)
    }

    /// The stored replies.
    pub(crate) fn stored_replies(&self) -> StoredReplies<'_> {
        let lives_millis = self.policy.config.idempotency.key_retention_millis();
        StoredReplies { logs: &self.logs, lives_millis }
    }

    /// Runs `ask`. If it misses something on a shared log, reads the new records and runs it once more.
    async fn with_refresh<T, F: Future<Output = Result<T>>>(&self, ask: impl Fn() -> F) -> Result<T> {
        let answer = ask().await;
        let default = self.logs.default_ledger();
        match &answer {
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Validation) && default.log().is_shared() => {
                default.refresh().await?;
                ask().await
            }
            _ => answer,
        }
    }
}
