//! Offers: events that a group hands to one of its members, claimed by the handler named like the group.
//!
//! - The same decision as any claim, but for the order: the group sees to that itself.

use super::claim_decision::{ClaimRequest, ClaimVerdict, OrderedBy, decide_claim};
use super::order::AggregateReads;
use super::policy::ClaimDefaults;
use crate::ledger::{ClaimKey, ClaimRow, Decision, RegisteredTopic};
use contract::{NewHandler, Result, Sequence};
use std::sync::Arc;
use uuid::Uuid;

/// An event for a member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfferedEvent {
    pub(crate) sequence: Sequence,
    pub(crate) event: Uuid,
}

/// Who offers to whom, and on what terms.
pub(crate) struct MemberOffer {
    pub(crate) handler: String,
    pub(crate) topic: Arc<RegisteredTopic>,
    pub(crate) owner: String,
    /// What the default log says of the handler, where it is decided in another.
    pub(crate) policy: Option<NewHandler>,
    pub(crate) defaults: ClaimDefaults,
}

impl MemberOffer {
    /// The claim's key.
    pub(crate) fn key(&self, sequence: Sequence) -> ClaimKey {
        ClaimKey { handler: self.handler.clone(), topic: self.topic.number.0, sequence }
    }

    /// Gives the event to the member, if it may be worked on.
    pub(crate) fn claim_for_member(
        &self,
        offer: OfferedEvent,
        decision: &mut Decision<'_>,
    ) -> Result<Option<ClaimRow>> {
        let request = ClaimRequest {
            key: self.key(offer.sequence),
            topic: Arc::clone(&self.topic),
            event: offer.event,
            aggregate: None,
            owner: self.owner.clone(),
            lease_millis: None,
            ordered_by: OrderedBy::Group,
            policy: self.policy.clone(),
            reads: AggregateReads::default(),
        };
        Ok(match decide_claim(&request, self.defaults, decision)? {
            ClaimVerdict::Claimed(row) => Some(row),
            ClaimVerdict::Done | ClaimVerdict::Stale | ClaimVerdict::Held(_) | ClaimVerdict::NeedsRead(_) => None,
        })
    }
}
