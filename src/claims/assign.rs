//! Assignments: events that a shared group hands to one of its members, claimed for the handler named like the group.
//!
//! - The same decision as for any claim, except for the order, which the group keeps itself.

use super::claim_decision::{ClaimRequest, ClaimVerdict, OrderedBy, decide_claim};
use super::dead_letter::give_up;
use super::order::AggregateReads;
use super::policy::ClaimDefaults;
use crate::ledger::{ClaimKey, ClaimRow, Decision, Entry, RegisteredTopic};
use contract::{ClaimError, NewHandler, Result, Sequence};
use std::sync::Arc;
use uuid::Uuid;

/// An event for a member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfferedEvent {
    /// Where it is stored.
    pub(crate) sequence: Sequence,
    /// The sequence that identifies it: its original's, if it is a copy.
    pub(crate) key: Sequence,
    pub(crate) event: Uuid,
}

/// Whose events are offered, to which member, and with which policy.
pub(crate) struct MemberOffer {
    pub(crate) handler: String,
    pub(crate) topic: Arc<RegisteredTopic>,
    pub(crate) owner: String,
    /// The handler's policy in the default log, if another log decides.
    pub(crate) policy: Option<NewHandler>,
    pub(crate) defaults: ClaimDefaults,
}

impl MemberOffer {
    /// The claim's key; the sequence is the one that identifies the event.
    pub(crate) fn key(&self, sequence: Sequence) -> ClaimKey {
        ClaimKey { handler: self.handler.clone(), topic: self.topic.number.0, sequence }
    }

    /// Claims the event for the member, if it can be worked on.
    pub(crate) fn claim_for_member(
        &self,
        offer: OfferedEvent,
        decision: &mut Decision<'_>,
    ) -> Result<Option<ClaimRow>> {
        let request = ClaimRequest {
            key: self.key(offer.key),
            topic: Arc::clone(&self.topic),
            found_at: offer.sequence,
            is_original_removed: false,
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

    /// Gives up an event that cannot be handed out, if it could be worked on: it becomes a dead letter of the handler.
    pub(crate) fn give_up(&self, offer: OfferedEvent, error: ClaimError, decision: &mut Decision<'_>) -> Result<()> {
        if self.claim_for_member(offer, decision)?.is_none() {
            return Ok(());
        }
        let (key, topic) = (self.key(offer.key), &self.topic.topic.definition.id);
        decision.add_entry(Entry::ClaimFailed { claim: key.clone(), error: error.clone(), retry_at: None })?;
        give_up(&key, topic, offer.event, error, false, decision)
    }
}
