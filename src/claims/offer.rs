//! Offers: events that a group hands to one of its members, claimed by the handler named like the group.
//!
//! - The same decision as any claim, but for the order: the group sees to that itself.

use super::order::Known;
use super::take::{By, Taken, Wanted, take};
use super::terms::Defaults;
use crate::ledger::{ClaimKey, ClaimRow, Decision, TopicEntry};
use contract::{NewHandler, Result, Sequence};
use std::sync::Arc;
use uuid::Uuid;

/// An event for a member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer {
    pub(crate) sequence: Sequence,
    pub(crate) event: Uuid,
}

/// Who offers to whom, and on what terms.
pub(crate) struct Offering {
    pub(crate) handler: String,
    pub(crate) topic: Arc<TopicEntry>,
    pub(crate) owner: String,
    /// What the default log says of the handler, where it is decided in another.
    pub(crate) policy: Option<NewHandler>,
    pub(crate) defaults: Defaults,
}

impl Offering {
    /// The claim's key.
    pub(crate) fn key(&self, sequence: Sequence) -> ClaimKey {
        ClaimKey { handler: self.handler.clone(), topic: self.topic.number.0, sequence }
    }

    /// Gives the event to the member, if it may be worked on.
    pub(crate) fn give(&self, offer: Offer, decision: &mut Decision<'_>) -> Result<Option<ClaimRow>> {
        let wanted = Wanted {
            key: self.key(offer.sequence),
            topic: Arc::clone(&self.topic),
            event: offer.event,
            aggregate: None,
            owner: self.owner.clone(),
            lease_millis: None,
            by: By::Group,
            policy: self.policy.clone(),
            known: Known::default(),
        };
        Ok(match take(&wanted, self.defaults, decision)? {
            Taken::Claimed(row) => Some(row),
            Taken::Done | Taken::Stale | Taken::Held(_) | Taken::Unsure(_) => None,
        })
    }
}
