//! The members of a shared group, for its polls.

use super::expiry::expire;
use super::{ConsumerRow, Consumers};
use crate::ledger::Ledger;
use crate::shared_groups::PeerSource;
use contract::{BoxFuture, Consumer};
use std::sync::Arc;
use uuid::Uuid;

/// The group of a consumer.
pub(super) struct GroupPeers<'a> {
    pub(super) consumers: &'a Consumers<'a>,
    pub(super) ledger: &'a Arc<Ledger>,
    pub(super) consumer: &'a Consumer,
}

impl PeerSource for GroupPeers<'_> {
    fn count(&self) -> usize {
        self.ledger.consumers().group(&self.consumer.consumer_group).map_or(0, |group| group.members.len())
    }

    /// Those that polled within two thirds of their sessions: a member that died takes a share no longer than that.
    fn present(&self) -> Vec<Uuid> {
        let sessions = self.consumers.sessions;
        let (now, readers) = (self.ledger.now(), self.ledger.consumers());
        let Consumer { consumer_group, topic, .. } = self.consumer;
        let members = readers.members(consumer_group).filter(|entry| entry.consumer.topic == *topic);
        let is_present = |entry: &&ConsumerRow| {
            now.saturating_sub(sessions.seen_at(entry, now)) <= entry.unrecorded_millis().saturating_mul(2)
        };
        members.filter(is_present).map(|entry| entry.consumer.id).collect()
    }

    fn next_deadline(&self) -> Option<i64> {
        self.ledger.consumers().next_deadline()
    }

    fn expire(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Err(error) = expire(self.ledger, self.consumers.sessions).await {
                tracing::debug!(%error, "removing expired consumers failed; the background task tries again");
            }
        })
    }
}
