//! Giving claims back: the events may be claimed again at once.
//!
//! - A worker that gives a claim back has spent no attempt, and its token holds no longer.
//! - What a member of a shared group holds goes back with the member. Where it was deleted, no attempt is spent. Where its
//!   session ended, the leases are over: the attempts count, so that work that kills its worker ends as a dead letter, and
//!   a late `done` is still accepted while nobody else has claimed the event.

use super::complete_decision::{TokenHold, check_token, open_row, token_lost};
use crate::ledger::{ClaimKey, ClaimRow, ClaimState, Command, Decision, Entry};
use contract::{FencingToken, Result};

/// Gives one claim back.
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

/// Why a member of a shared group holds nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberDeparture {
    /// It was deleted.
    Deleted,
    /// Its session ended.
    Expired,
}

/// Releases what a member of a shared group holds in a topic.
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
    decision.add_entry(Entry::ClaimsReleased { handler, topic, sequences, spent })?;
    Ok(())
}
