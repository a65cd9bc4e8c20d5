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

use super::giving_up::give_up;
use super::order::{Known, Need, Turn, turn};
use super::terms::{Defaults, Terms};
use crate::ledger::{ClaimKey, ClaimRow, Command, Decision, Entry, Slot, Standing, TopicEntry, lease_expired};
use contract::{ClaimError, ClaimOrder, Error, Kind, NewHandler, Result, Sequence};
use log::AggregateMark;
use std::sync::Arc;
use uuid::Uuid;

/// An event somebody wants to claim.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) key: ClaimKey,
    pub(super) topic: Arc<TopicEntry>,
    pub(super) event: Uuid,
    pub(super) aggregate: Option<AggregateMark>,
    pub(super) owner: String,
    pub(super) lease_millis: Option<i64>,
    pub(super) by: By,
    /// What the default log says of the handler, where the claim is decided in another.
    pub(super) policy: Option<NewHandler>,
    pub(super) known: Known,
}

/// Whose business the order of events is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// The claim's: this one, else the handler's.
    Order(Option<ClaimOrder>),
    /// A group's, that hands out one event of an aggregate after the other.
    Group,
}

impl Wanted {
    /// Another event of the same topic, for the same handler.
    pub(super) fn sibling(&self, sequence: Sequence) -> ClaimKey {
        ClaimKey { sequence, ..self.key.clone() }
    }
}

/// What became of the wish.
pub(super) enum Taken {
    Claimed(ClaimRow),
    Done,
    Stale,
    Held(Option<i64>),
    /// Something must be read first.
    Unsure(Need),
}

/// Takes several events, each by itself.
pub(super) struct Take {
    pub(super) items: Arc<Vec<Wanted>>,
    pub(super) defaults: Defaults,
    /// Nothing is decided while something must be read for one of them: the answer to all is kept with them.
    pub(super) whole: bool,
}

impl Command for Take {
    type Answer = Vec<Result<Taken>>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        let before = decision.mark();
        let taken = self.items.iter().map(|wanted| {
            let mark = decision.mark();
            let taken = take(wanted, self.defaults, decision);
            if taken.is_err() {
                decision.undo(mark);
            }
            taken
        });
        let taken: Vec<_> = taken.collect();
        if self.whole && taken.iter().any(|taken| matches!(taken, Ok(Taken::Unsure(_)))) {
            decision.undo(before);
        }
        Ok(taken)
    }

    fn bytes(&self) -> usize {
        self.items.iter().map(|wanted| size_of::<Wanted>() + wanted.key.handler.len() + wanted.owner.len()).sum()
    }
}

pub(super) fn take(wanted: &Wanted, defaults: Defaults, decision: &mut Decision<'_>) -> Result<Taken> {
    let now = decision.now();
    let (slot, terms) = {
        let claims = decision.claims();
        let said = claims.policy(&wanted.key.handler).or(wanted.policy.as_ref());
        (claims.slot(&wanted.key), Terms::of(said, defaults))
    };
    let row = match slot {
        Some(Slot::Finished(_)) => return Ok(Taken::Done),
        Some(Slot::Open(row)) => Some(row),
        None => None,
    };
    let order = match wanted.by {
        By::Order(order) => Some(order.unwrap_or(terms.order)),
        By::Group => None,
    };
    let is_latest = order == Some(ClaimOrder::Latest);
    match row.as_ref().map(|row| row.standing) {
        Some(Standing::Live { until }) if until > now => return Ok(Taken::Held(Some(until))),
        Some(Standing::Dead { superseded: true, .. }) if is_latest => return Ok(Taken::Stale),
        Some(Standing::Dead { .. }) => return Ok(Taken::Held(None)),
        _ => (),
    }
    let back_off = match row.as_ref().map(|row| row.standing) {
        Some(Standing::Failed { retry_at }) if retry_at > now => Some(retry_at),
        _ => None,
    };
    let is_redriven = row.as_ref().is_some_and(|row| row.redriven);
    let turn = match order {
        None => Turn::Free,
        Some(ClaimOrder::Latest) if is_redriven => Turn::Free,
        Some(order) => turn(wanted, order, decision)?,
    };
    match turn {
        Turn::Unsure(need) => return Ok(Taken::Unsure(need)),
        Turn::Passed => {
            row.map(|row| supersede(wanted, &row, decision)).transpose()?;
            return Ok(Taken::Stale);
        }
        Turn::Waits(at) => return Ok(Taken::Held(at.max(back_off))),
        Turn::Free if back_off.is_some() => return Ok(Taken::Held(back_off)),
        Turn::Free => (),
    }
    if let Some(row) = row.as_ref().filter(|row| is_silent(row) && row.attempt >= terms.max_attempts) {
        give_up_silent(wanted, row, decision)?;
        return Ok(Taken::Held(None));
    }
    give(wanted, row.as_ref().map_or(1, |row| row.attempt.saturating_add(1)), terms, decision)
}

/// Gives the claim.
fn give(wanted: &Wanted, attempt: u32, terms: Terms, decision: &mut Decision<'_>) -> Result<Taken> {
    let Wanted { key, event, owner, lease_millis, .. } = wanted;
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
        Some(Slot::Open(row)) => Ok(Taken::Claimed(row)),
        _ => Err(Error::new(Kind::Unavailable, "The claim was lost on its way; try again.").with_retry_after(1)),
    }
}

/// Whoever had it fell silent: the lease is over, or the event would be held.
const fn is_silent(row: &ClaimRow) -> bool {
    matches!(row.standing, Standing::Live { .. })
}

fn give_up_silent(wanted: &Wanted, row: &ClaimRow, decision: &mut Decision<'_>) -> Result<()> {
    let (claim, error) = (wanted.key.clone(), lease_expired());
    decision.add_entry(Entry::ClaimFailed { claim, error: error.clone(), retry_at: None })?;
    give_up(&wanted.key, &wanted.topic.topic.definition.id, row.event, error, false, decision)
}

/// An event that was tried without success is passed by a later one: somebody should know.
fn supersede(wanted: &Wanted, row: &ClaimRow, decision: &mut Decision<'_>) -> Result<()> {
    if is_silent(row) {
        decision.add_entry(Entry::ClaimFailed { claim: wanted.key.clone(), error: lease_expired(), retry_at: None })?;
    }
    let message = "A later event of its aggregate was finished before this one, which was begun and not finished.";
    let error = ClaimError::new("Superseded", message);
    give_up(&wanted.key, &wanted.topic.topic.definition.id, row.event, error, true, decision)
}
