//! Taking: whether an event may be worked on now, by whom, for how long.
//!
//! ```text
//!   finished? ──▶ done        somebody at it, or given up? ──▶ held        a later one finished? ──▶ stale
//!   its turn? back-off over? else ──▶ held        worker fell silent once too often? ──▶ dead letter, held
//!   else ──▶ claimed
//! ```
//!
//! - Every claim is an attempt, take-overs too: work that kills its worker ends as a dead letter.
//! - An event that failed and is passed by a later one is not passed over in silence: it becomes a dead letter, and a
//!   person decides whether it still matters.

use super::dead_letter::give_up;
use super::order::{AggregateReads, NeededRead, OrderVerdict, order_verdict};
use super::policy::{ClaimDefaults, ClaimPolicy};
use crate::ledger::{
    ClaimKey, ClaimRow, ClaimSlot, ClaimState, Command, Decision, Entry, RegisteredTopic, lease_expired,
};
use contract::{ClaimError, ClaimOrder, Error, Kind, NewHandler, Result, Sequence};
use log::AggregateMark;
use std::sync::Arc;
use uuid::Uuid;

/// An event somebody wants to claim.
#[derive(Clone)]
pub(super) struct ClaimRequest {
    pub(super) key: ClaimKey,
    pub(super) topic: Arc<RegisteredTopic>,
    pub(super) event: Uuid,
    pub(super) aggregate: Option<AggregateMark>,
    pub(super) owner: String,
    pub(super) lease_millis: Option<i64>,
    pub(super) ordered_by: OrderedBy,
    /// What the default log says of the handler, where the claim is decided in another.
    pub(super) policy: Option<NewHandler>,
    pub(super) reads: AggregateReads,
}

/// Whose business the order of events is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OrderedBy {
    /// The claim's: this one, else the handler's.
    Order(Option<ClaimOrder>),
    /// A group's, that hands out one event of an aggregate after the other.
    Group,
}

impl ClaimRequest {
    /// Another event of the same topic, for the same handler.
    pub(super) fn sibling(&self, sequence: Sequence) -> ClaimKey {
        ClaimKey { sequence, ..self.key.clone() }
    }
}

/// What became of the wish.
pub(super) enum ClaimVerdict {
    Claimed(ClaimRow),
    Done,
    Stale,
    Held(Option<i64>),
    /// Something must be read first.
    NeedsRead(NeededRead),
}

/// Takes several events, each by itself.
pub(super) struct ClaimEvents {
    pub(super) items: Arc<Vec<ClaimRequest>>,
    pub(super) defaults: ClaimDefaults,
    /// Nothing is decided while something must be read for one of them: the answer to all is kept with them.
    pub(super) all_or_none: bool,
}

impl Command for ClaimEvents {
    type Answer = Vec<Result<ClaimVerdict>>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        let before = decision.mark();
        let taken = self.items.iter().map(|request| {
            let mark = decision.mark();
            let taken = decide_claim(request, self.defaults, decision);
            if taken.is_err() {
                decision.undo(mark);
            }
            taken
        });
        let taken: Vec<_> = taken.collect();
        if self.all_or_none && taken.iter().any(|taken| matches!(taken, Ok(ClaimVerdict::NeedsRead(_)))) {
            decision.undo(before);
        }
        Ok(taken)
    }

    fn bytes(&self) -> usize {
        self.items.iter().map(|request| size_of::<ClaimRequest>() + request.key.handler.len() + request.owner.len()).sum()
    }
}

pub(super) fn decide_claim(
    request: &ClaimRequest,
    defaults: ClaimDefaults,
    decision: &mut Decision<'_>,
) -> Result<ClaimVerdict> {
    let now = decision.now();
    let (slot, terms) = {
        let claims = decision.claims();
        let said = claims.policy(&request.key.handler).or(request.policy.as_ref());
        (claims.slot(&request.key), ClaimPolicy::of(said, defaults))
    };
    let row = match slot {
        Some(ClaimSlot::Finished(_)) => return Ok(ClaimVerdict::Done),
        Some(ClaimSlot::Open(row)) => Some(row),
        None => None,
    };
    let order = match request.ordered_by {
        OrderedBy::Order(order) => Some(order.unwrap_or(terms.order)),
        OrderedBy::Group => None,
    };
    let is_latest = order == Some(ClaimOrder::Latest);
    match row.as_ref().map(|row| row.standing) {
        Some(ClaimState::Live { until }) if until > now => return Ok(ClaimVerdict::Held(Some(until))),
        Some(ClaimState::Dead { superseded: true, .. }) if is_latest => return Ok(ClaimVerdict::Stale),
        Some(ClaimState::Dead { .. }) => return Ok(ClaimVerdict::Held(None)),
        _ => (),
    }
    let back_off = match row.as_ref().map(|row| row.standing) {
        Some(ClaimState::Failed { retry_at }) if retry_at > now => Some(retry_at),
        _ => None,
    };
    let is_redriven = row.as_ref().is_some_and(|row| row.redriven);
    let turn = match order {
        None => OrderVerdict::Free,
        Some(ClaimOrder::Latest) if is_redriven => OrderVerdict::Free,
        Some(order) => order_verdict(request, order, decision)?,
    };
    match turn {
        OrderVerdict::NeedsRead(need) => return Ok(ClaimVerdict::NeedsRead(need)),
        OrderVerdict::Passed => {
            row.map(|row| supersede(request, &row, decision)).transpose()?;
            return Ok(ClaimVerdict::Stale);
        }
        OrderVerdict::Waits(at) => return Ok(ClaimVerdict::Held(at.max(back_off))),
        OrderVerdict::Free if back_off.is_some() => return Ok(ClaimVerdict::Held(back_off)),
        OrderVerdict::Free => (),
    }
    if let Some(row) = row.as_ref().filter(|row| has_lapsed(row) && row.attempt >= terms.max_attempts) {
        give_up_lapsed(request, row, decision)?;
        return Ok(ClaimVerdict::Held(None));
    }
    grant(request, row.as_ref().map_or(1, |row| row.attempt.saturating_add(1)), terms, decision)
}

/// Gives the claim.
fn grant(request: &ClaimRequest, attempt: u32, terms: ClaimPolicy, decision: &mut Decision<'_>) -> Result<ClaimVerdict> {
    let ClaimRequest { key, event, owner, lease_millis, .. } = request;
    decision.claims().check_room(&key.handler)?;
    decision.add_entry(Entry::ClaimTaken {
        claim: key.clone(),
        event: *event,
        owner: owner.clone(),
        lease_millis: lease_millis.unwrap_or(terms.lease_millis),
        attempt,
    })?;
    let slot = decision.claims().slot(key);
    match slot {
        Some(ClaimSlot::Open(row)) => Ok(ClaimVerdict::Claimed(row)),
        _ => Err(Error::new(Kind::Unavailable, "The claim was lost on its way; try again.").with_retry_after(1)),
    }
}

/// Whoever had it fell silent: the lease is over, or the event would be held.
const fn has_lapsed(row: &ClaimRow) -> bool {
    matches!(row.standing, ClaimState::Live { .. })
}

fn give_up_lapsed(request: &ClaimRequest, row: &ClaimRow, decision: &mut Decision<'_>) -> Result<()> {
    let (claim, error) = (request.key.clone(), lease_expired());
    decision.add_entry(Entry::ClaimFailed { claim, error: error.clone(), retry_at: None })?;
    give_up(&request.key, &request.topic.topic.definition.id, row.event, error, false, decision)
}

/// An event that was tried without success is passed by a later one: somebody should know.
fn supersede(request: &ClaimRequest, row: &ClaimRow, decision: &mut Decision<'_>) -> Result<()> {
    if has_lapsed(row) {
        decision.add_entry(Entry::ClaimFailed { claim: request.key.clone(), error: lease_expired(), retry_at: None })?;
    }
    let message = "A later event of its aggregate was finished before this one, which was begun and not finished.";
    let error = ClaimError::new("Superseded", message);
    give_up(&request.key, &request.topic.topic.definition.id, row.event, error, true, decision)
}
