//! The topic and the handler that a fact is about.

use super::Entry;
use crate::ledger::facts::dispatch::DispatchFact;

impl Entry {
    /// The number of the topic whose events this fact is about: it cannot be decided once that topic is deleted.
    pub(in crate::ledger) fn topic_number(&self) -> Option<u32> {
        match self {
            Self::ClaimTaken { claim, .. }
            | Self::ClaimExtended { claim }
            | Self::ClaimDone { claim, .. }
            | Self::ClaimFailed { claim, .. } => Some(claim.topic),
            Self::ClaimsReleased { topic, .. }
            | Self::GroupBegan { topic, .. }
            | Self::EventsPassed { topic, .. }
            | Self::EventsRepeated { topic, .. }
            | Self::GroupMoved { topic, .. } => Some(*topic),
            Self::DeadLettered { letter } => Some(letter.number),
            Self::Dispatch { what: DispatchFact::SubscriptionPut { number, .. } } => Some(*number),
            _ => None,
        }
    }

    /// The handler that this fact shows to be in use.
    pub(in crate::ledger) fn handler(&self) -> Option<&str> {
        match self {
            Self::HandlerPut { name, .. } => Some(name),
            Self::ClaimTaken { claim, .. }
            | Self::ClaimExtended { claim }
            | Self::ClaimDone { claim, .. }
            | Self::ClaimFailed { claim, .. } => Some(&claim.handler),
            Self::ClaimsReleased { handler, .. } => Some(handler),
            Self::GroupBegan { group, .. }
            | Self::EventsPassed { group, .. }
            | Self::EventsRepeated { group, .. }
            | Self::GroupMoved { group, .. } => Some(group),
            _ => None,
        }
    }
}
