//! The decision about a claim: whether an event can be worked on now, by whom, and for how long.
//!
//! ```text
//!   finished? ──▶ done        live claim, or dead letter? ──▶ held        a later event finished? ──▶ stale
//!   predecessor open, or back-off running? ──▶ held        lease expired after the last attempt? ──▶ dead letter, held
//!   else ──▶ claimed
//! ```
//!
//! - Every claim is an attempt, take-overs too: work that kills its worker ends as a dead letter.
//! - An event that failed and is overtaken by a later one of its aggregate becomes a dead letter, and an operator decides
//!   whether it still matters.

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

/// A request to claim an event.
#[derive(Clone)]
pub(super) struct ClaimRequest {
    pub(super) key: ClaimKey,
    pub(super) topic: Arc<RegisteredTopic>,
    /// Where the event was found: at its key's sequence, or where a copy of it is stored.
    pub(super) found_at: Sequence,
    pub(super) event: Uuid,
    /// Its place in its aggregate: the original's, as long as that is stored.
    pub(super) aggregate: Option<AggregateMark>,
    /// Whether it is a copy of an event that is not stored any more.
    pub(super) is_original_removed: bool,
    pub(super) owner: String,
    pub(super) lease_millis: Option<i64>,
    pub(super) ordered_by: OrderedBy,
    /// The handler's policy in the default log, if another log decides the claim.
    pub(super) policy: Option<NewHandler>,
    pub(super) reads: AggregateReads,
}

/// Who keeps the order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OrderedBy {
    /// The decision, by this order, or by the handler's if there is none.
    Order(Option<ClaimOrder>),
    /// A shared group, which hands out the events of an aggregate one after the other.
    Group,
}

impl ClaimRequest {
    /// The key of another event of the topic, for the same handler.
    pub(super) fn sibling(&self, sequence: Sequence) -> ClaimKey {
        ClaimKey { sequence, ..self.key.clone() }
    }
}

/// The decision about a request.
pub(super) enum ClaimVerdict {
    Claimed(ClaimRow),
    Done,
    Stale,
    Held(Option<i64>),
    /// The log must be read first.
    NeedsRead(NeededRead),
}

/// Claims several events, each by itself.
pub(super) struct ClaimEvents {
    pub(super) items: Arc<Vec<ClaimRequest>>,
    pub(super) defaults: ClaimDefaults,
    /// Nothing is decided while one of them needs a read: the reply to all of them is stored with them.
    pub(super) all_or_none: bool,
}

impl Command for ClaimEvents {
    type Answer = Vec<Result<ClaimVerdict>>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        let before = decision.mark();
        let verdicts = self.items.iter().map(|request| {
            let mark = decision.mark();
            let verdict = decide_claim(request, self.defaults, decision);
            if verdict.is_err() {
                decision.undo(mark);
            }
            verdict
        });
        let verdicts: Vec<_> = verdicts.collect();
        if self.all_or_none && verdicts.iter().any(|verdict| matches!(verdict, Ok(ClaimVerdict::NeedsRead(_)))) {
            decision.undo(before);
        }
        debug_assert_eq!(verdicts.len(), self.items.len(), "every item has a verdict");
        Ok(verdicts)
    }

    fn bytes(&self) -> usize {
        self.items
            .iter()
            .map(|request| size_of::<ClaimRequest>() + request.key.handler.len() + request.owner.len())
            .sum()
    }
}

pub(super) fn decide_claim(
    request: &ClaimRequest,
    defaults: ClaimDefaults,
    decision: &mut Decision<'_>,
) -> Result<ClaimVerdict> {
    let now = decision.now();
    let (slot, policy) = {
        let claims = decision.claims();
        let put = claims.policy(&request.key.handler).or(request.policy.as_ref());
        (claims.slot(&request.key), ClaimPolicy::of(put, defaults))
    };
    if slot.is_none() && request.found_at <= decision.durable().trimmed(request.topic.number) {
        // Retention has removed it since it was read.
        return Ok(ClaimVerdict::Done);
    }
    let row = match slot {
        Some(ClaimSlot::Finished(_)) => return Ok(ClaimVerdict::Done),
        Some(ClaimSlot::Open(row)) => Some(row),
        None => None,
    };
    let order = match request.ordered_by {
        OrderedBy::Order(order) => Some(order.unwrap_or(policy.order)),
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
    let verdict = match order {
        None => OrderVerdict::Free,
        Some(ClaimOrder::Latest) if is_redriven => OrderVerdict::Free,
        Some(order) => order_verdict(request, order, decision)?,
    };
    match verdict {
        OrderVerdict::NeedsRead(need) => return Ok(ClaimVerdict::NeedsRead(need)),
        OrderVerdict::Overtaken => {
            row.map(|row| supersede(request, &row, decision)).transpose()?;
            return Ok(ClaimVerdict::Stale);
        }
        OrderVerdict::Waits(at) => return Ok(ClaimVerdict::Held(at.max(back_off))),
        OrderVerdict::Free if back_off.is_some() => return Ok(ClaimVerdict::Held(back_off)),
        OrderVerdict::Free => (),
    }
    if let Some(row) = row.as_ref().filter(|row| has_lapsed(row) && row.attempt >= policy.max_attempts) {
        give_up_lapsed(request, row, decision)?;
        return Ok(ClaimVerdict::Held(None));
    }
    grant(request, row.as_ref().map_or(1, |row| row.attempt.saturating_add(1)), policy, decision)
}

/// Grants the claim.
fn grant(
    request: &ClaimRequest,
    attempt: u32,
    policy: ClaimPolicy,
    decision: &mut Decision<'_>,
) -> Result<ClaimVerdict> {
    let ClaimRequest { key, event, owner, lease_millis, .. } = request;
    decision.claims().check_room(&key.handler)?;
    decision.add_entry(Entry::ClaimTaken {
        claim: key.clone(),
        event: *event,
        owner: owner.clone(),
        lease_millis: lease_millis.unwrap_or(policy.lease_millis),
        attempt,
    })?;
    let slot = decision.claims().slot(key);
    match slot {
        Some(ClaimSlot::Open(row)) => Ok(ClaimVerdict::Claimed(row)),
        _ => Err(Error::new(Kind::Unavailable, "The claim was not recorded; try again.").with_retry_after(1)),
    }
}

/// Whether its lease has expired; if it had not, the event would be held.
const fn has_lapsed(row: &ClaimRow) -> bool {
    matches!(row.standing, ClaimState::Live { .. })
}

fn give_up_lapsed(request: &ClaimRequest, row: &ClaimRow, decision: &mut Decision<'_>) -> Result<()> {
    let (claim, error) = (request.key.clone(), lease_expired());
    decision.add_entry(Entry::ClaimFailed { claim, error: error.clone(), retry_at: None })?;
    give_up(&request.key, &request.topic.topic.definition.id, row.event, error, false, decision)
}

/// An event that was tried without success is overtaken by a later one: it becomes a dead letter.
fn supersede(request: &ClaimRequest, row: &ClaimRow, decision: &mut Decision<'_>) -> Result<()> {
    if has_lapsed(row) {
        decision.add_entry(Entry::ClaimFailed {
            claim: request.key.clone(),
            error: lease_expired(),
            retry_at: None,
        })?;
    }
    let message = "A later event of its aggregate was finished before this one, which was begun and not finished.";
    let error = ClaimError::new("Superseded", message);
    give_up(&request.key, &request.topic.topic.definition.id, row.event, error, true, decision)
}
