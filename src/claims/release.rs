//! Releasing claims: the events can be claimed again at once.
//!
//! - A release by the worker does not count as an attempt, and invalidates the token.
//! - The claims of a member of a shared group are released with the member. If it was deleted, the attempts do not count. If its
//!   session expired, the leases expire, too: the attempts count, so that work that kills its worker ends as a dead letter,
//!   and a late `done` is still accepted until the event is claimed again.

use super::complete_decision::{TokenHold, check_token, open_row, token_lost};
use crate::ledger::{ClaimKey, ClaimRow, ClaimState, Command, Decision, Entry};
use contract::{FencingToken, Result};

/// Releases one claim.
pub(super) struct ReleaseClaim {
    pub(super) key: ClaimKey,
    pub(super) token: FencingToken,
}

impl Command for ReleaseClaim {
    type Answer = ClaimRow;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<ClaimRow> {
        match check_token(&self.key, self.token, decision)? {
            TokenHold::Last(ClaimRow { standing: ClaimState::Live { .. }, .. }) => (),
            _ => return Err(token_lost()),
        }
        let ClaimKey { handler, topic, sequence } = self.key.clone();
        decision.add_entry(Entry::ClaimsReleased { handler, topic, sequences: vec![sequence], spent: false })?;
        open_row(&self.key, decision)
    }

    fn bytes(&self) -> usize {
        self.key.handler.len()
    }
}

/// Why a member left a shared group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberDeparture {
    /// It was deleted.
    Deleted,
    /// Its session expired.
    Expired,
}

/// Releases all claims of a member of a shared group in a topic.
pub(crate) fn release_all(
    group: &str,
    topic: u32,
    member: &str,
    why: MemberDeparture,
    decision: &mut Decision<'_>,
) -> Result<()> {
    let sequences = decision.claims().held_by(group, topic, member, decision.now());
    if sequences.is_empty() {
        return Ok(());
    }
    let (handler, spent) = (group.to_owned(), why == MemberDeparture::Expired);
    // Due whatever room there is: it ends with its member, which may be about to be deleted.
    decision.add_due_entry(Entry::ClaimsReleased { handler, topic, sequences, spent })?;
    Ok(())
}
