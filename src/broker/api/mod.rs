//! The methods of the contract on a broker in this process, a file per noun.
//!
//! - Each file has the writing methods twice: on [`BrokerWrites`], where a [`ReplyRecorder`] stores the reply with the
//!   effect, and in the trait, which calls them without one.
//! - When several brokers write to the log, something that is missing here may have been created by another broker a moment
//!   ago. Before a method refuses because of that, the broker reads the new records and tries once more; a method that
//!   changes more than one named thing reads them first ([`BrokerWrites`]).
//!
//! [`ReplyRecorder`]: crate::ledger::ReplyRecorder

mod access;
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

pub(crate) use access::BrokerWrites;

use super::Broker;
use crate::idempotency::StoredReplies;
use contract::Result;

impl Broker {
    /// The stored replies.
    pub(crate) fn stored_replies(&self) -> StoredReplies<'_> {
        let lives_millis = self.policy.config.idempotency.key_retention_millis();
        StoredReplies { logs: &self.logs, lives_millis }
    }

    /// Runs `ask`. If it refuses because of what this broker knows of a shared log, reads the new records and runs it once more.
    async fn with_refresh<T, F: Future<Output = Result<T>>>(&self, ask: impl Fn() -> F) -> Result<T> {
        match ask().await {
            Err(error) if !self.logs.default_ledger().refresh_after(&error).await? => Err(error),
            Err(_) => ask().await,
            answer => answer,
        }
    }
}
