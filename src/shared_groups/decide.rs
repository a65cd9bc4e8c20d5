//! What is decided about groups that divide a topic: that they begin, and who is handed what.

use crate::claims::{MemberOffer, OfferedEvent};
use crate::ledger::{ClaimRow, Command, Decision, Entry, GroupKey};
use contract::{Offset, Position, Result, Sequence, TopicId};
use log::TopicNumber;
use uuid::Uuid;

/// Has a group divide a topic, if it does not yet: behind what it has committed, else behind `offset`.
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
            // A group is known by its offsets, also when nobody is there.
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

/// Hands events to a member, and says what is none of its group's business.
pub(super) struct AssignEvents {
    pub(super) member: Uuid,
    /// The generation in which they were found to be the next ones.
    pub(super) generation: Position,
    pub(super) offering: MemberOffer,
    pub(super) offers: Vec<OfferedEvent>,
    pub(super) passed: Vec<(Sequence, Sequence)>,
}

/// What became of it.
pub(super) enum AssignOutcome {
    /// The group was moved: look again for what is next.
    Stale,
    /// These are the member's now.
    Given(Vec<(Sequence, ClaimRow)>),
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
        let mut given = Vec::new();
        for offer in &self.offers {
            let mark = decision.mark();
            match self.offering.claim_for_member(*offer, decision) {
                Ok(Some(row)) => given.push((offer.sequence, row)),
                Ok(None) => (),
                Err(error) if given.is_empty() => return Err(error),
                Err(_) => {
                    decision.undo(mark);
                    break;
                }
            }
        }
        Ok(AssignOutcome::Given(given))
    }

    fn bytes(&self) -> usize {
        self.offers.len() * (size_of::<OfferedEvent>() + self.offering.handler.len()) + self.passed.len() * 16
    }
}
