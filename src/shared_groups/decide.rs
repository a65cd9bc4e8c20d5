//! The decisions about shared groups: that a group starts, and which events a member is handed.

use crate::claims::{MemberOffer, OfferedEvent};
use crate::events::damage_detail;
use crate::ledger::{ClaimRow, Command, Decision, Entry, GroupKey};
use contract::{ClaimError, Offset, Position, Result, Sequence, TopicId};
use log::TopicNumber;
use uuid::Uuid;

/// The error class of an event that is damaged on disk; the same as of a delivery.
const DAMAGED: &str = "damaged";

/// Makes a group distribute a topic, if it does not yet: after its committed offset, else after `offset`.
pub(super) struct BeginSharing {
    pub(super) group: String,
    pub(super) topic: TopicId,
    pub(super) number: TopicNumber,
    pub(super) offset: Offset,
}

impl Command for BeginSharing {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        let Self { group, topic, number, offset } = self;
        if decision.claims().generation(group, number.0).is_some() {
            return Ok(());
        }
        let key = GroupKey { group: group.clone(), topic: topic.clone() };
        let committed = decision.consumers().offset(&key);
        if committed.is_none() {
            decision.consumers().check_room_for_offset()?;
        }
        decision.claims().check_room(group)?;
        let offset = committed.unwrap_or(*offset).min(decision.tail(*number).into());
        if committed.is_none() {
            // A group exists by its offsets, also when it has no members.
            let (group, topic) = (group.clone(), topic.clone());
            decision.add_entry(Entry::OffsetCommitted { group, topic, offset })?;
        }
        decision.add_entry(Entry::GroupBegan { group: group.clone(), topic: number.0, offset })?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.group.len()
    }
}

/// Hands events to a member, and records which events the group has passed.
pub(super) struct AssignEvents {
    pub(super) member: Uuid,
    /// The generation in which they were found to be the next ones.
    pub(super) generation: Position,
    pub(super) offering: MemberOffer,
    pub(super) offers: Vec<OfferedEvent>,
    /// Events that are given up, because they cannot be read.
    pub(super) damaged: Vec<OfferedEvent>,
    pub(super) passed: Vec<(Sequence, Sequence)>,
}

/// The decision about an assignment.
pub(super) enum AssignOutcome {
    /// The group was moved since the events were found: scan again.
    Stale,
    /// The member has these claims.
    Assigned(Vec<(OfferedEvent, ClaimRow)>),
}

impl Command for AssignEvents {
    type Answer = AssignOutcome;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<AssignOutcome> {
        decision.consumers().get(self.member)?;
        let (group, topic) = (&self.offering.handler, self.offering.topic.number.0);
        if decision.claims().generation(group, topic) != Some(self.generation) {
            return Ok(AssignOutcome::Stale);
        }
        if !self.passed.is_empty() {
            let (group, runs) = (group.clone(), self.passed.clone());
            decision.add_entry(Entry::EventsPassed { group, topic, runs })?;
        }
        for offer in &self.damaged {
            let message = damage_detail(offer.sequence);
            let error = ClaimError { class: DAMAGED.to_owned(), message };
            self.offering.give_up(*offer, error, decision)?;
        }
        let mut assigned = Vec::new();
        for offer in &self.offers {
            let mark = decision.mark();
            match self.offering.claim_for_member(*offer, decision) {
                Ok(Some(row)) => assigned.push((*offer, row)),
                Ok(None) => (),
                Err(error) if assigned.is_empty() => return Err(error),
                Err(error) => {
                    // The next poll gets the refusal, if it is still one.
                    tracing::debug!(%error, group, "a member was assigned fewer events than it was offered");
                    decision.undo(mark);
                    break;
                }
            }
        }
        Ok(AssignOutcome::Assigned(assigned))
    }

    fn bytes(&self) -> usize {
        (self.offers.len() + self.damaged.len()) * (size_of::<OfferedEvent>() + self.offering.handler.len())
            + self.passed.len() * 16
    }
}
