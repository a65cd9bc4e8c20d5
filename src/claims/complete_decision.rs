//! The decisions about a claim that is held: heartbeat, done and fail, each with the claim's token.
//!
//! - A token is valid until the event is claimed again, also after the lease has expired.
//! - Done, the produced events and the group's offset are one append. If one of them is refused, nothing is appended.
//! - Repeated with the same token, done and fail change nothing and are no error.

use super::dead_letter::give_up;
use super::policy::{ClaimDefaults, ClaimPolicy};
use crate::events::{ProducedEvents, ProducedOutcome};
use crate::ledger::{ClaimKey, ClaimRow, ClaimSlot, ClaimState, Command, Decision, Entry, FinishedBy, GroupKey};
use contract::{ClaimError, Error, FencingToken, Kind, NewHandler, Offset, Result, Sequence, TopicId};
use log::TopicNumber;
use std::sync::Arc;

/// What a token holds.
pub(super) enum TokenHold {
    /// The last claim of the event.
    Last(ClaimRow),
    /// Nothing: the event is finished, perhaps by this token.
    Over(FinishedBy),
}

/// What a token holds; refused if the event was claimed again since.
pub(super) fn check_token(key: &ClaimKey, token: FencingToken, decision: &Decision<'_>) -> Result<TokenHold> {
    match decision.claims().slot(key) {
        // The claim was removed with its event.
        None if key.sequence <= decision.durable().trimmed(TopicNumber(key.topic)) => Err(token_lost()),
        None => Err(Error::not_found("claim")),
        Some(ClaimSlot::Open(row)) if row.token == token => Ok(TokenHold::Last(row)),
        Some(ClaimSlot::Open(_)) => Err(token_lost()),
        Some(ClaimSlot::Finished(finish)) => Ok(TokenHold::Over(finish)),
    }
}

/// The refusal of a token that is no longer valid.
pub(super) fn token_lost() -> Error {
    let detail = "This token no longer holds the claim: the claim was ended, or another worker has claimed the event since. \
                  Stop working on the event.";
    Error::new(Kind::ClaimLost, detail)
}

/// Restarts a lease.
pub(super) struct ExtendLease {
    pub(super) key: ClaimKey,
    pub(super) token: FencingToken,
}

impl Command for ExtendLease {
    type Answer = ClaimRow;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<ClaimRow> {
        match check_token(&self.key, self.token, decision)? {
            TokenHold::Last(ClaimRow { standing: ClaimState::Live { .. }, .. }) => (),
            _ => return Err(token_lost()),
        }
        decision.add_entry(Entry::ClaimExtended { claim: self.key.clone() })?;
        open_row(&self.key, decision)
    }

    fn bytes(&self) -> usize {
        self.key.handler.len()
    }
}

/// Completes several claims, each by itself.
pub(super) struct CompleteClaims {
    pub(super) items: Vec<PreparedCompletion>,
    /// Nothing is decided while one of them needs a read or must be prepared again: the reply to all of them is stored with
    /// them.
    pub(super) all_or_none: bool,
}

/// A claim to be completed, with the events that it produced.
pub(super) struct PreparedCompletion {
    pub(super) key: ClaimKey,
    pub(super) topic: TopicId,
    pub(super) token: FencingToken,
    pub(super) produced: ProducedEvents,
    pub(super) offset: Option<Offset>,
    /// Whether the log was read for an earlier `done` with this token.
    pub(super) is_looked_up: bool,
}

/// The decision about a completion.
pub(super) enum CompletionOutcome {
    /// Done now; the claim as it was, and the offset that was committed with it.
    Now(ClaimRow, Option<CommitOutcome>),
    /// It was finished before; by this token, if the log has the entry.
    Before,
    /// The produced events must be prepared again.
    Stale,
}

/// The result of committing an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CommitOutcome {
    /// The group's committed offset.
    pub(super) offset: Offset,
    /// The event with an open claim that kept the offset back.
    pub(super) open: Option<Sequence>,
}

impl Command for CompleteClaims {
    type Answer = Vec<Result<CompletionOutcome>>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        let before = decision.mark();
        let completed = self.items.iter().map(|item| {
            let mark = decision.mark();
            let completed = item.decide(decision);
            if matches!(completed, Err(_) | Ok(CompletionOutcome::Stale)) {
                decision.undo(mark);
            }
            completed
        });
        let completed: Vec<_> = completed.collect();
        let is_open = |(item, completed): (&PreparedCompletion, &Result<CompletionOutcome>)| match completed {
            Ok(CompletionOutcome::Before) => !item.is_looked_up,
            Ok(CompletionOutcome::Stale) => true,
            Ok(CompletionOutcome::Now(..)) | Err(_) => false,
        };
        if self.all_or_none && self.items.iter().zip(&completed).any(is_open) {
            decision.undo(before);
        }
        Ok(completed)
    }

    fn bytes(&self) -> usize {
        self.items
            .iter()
            .map(|item| size_of::<PreparedCompletion>() + item.key.handler.len() + item.produced.bytes())
            .sum()
    }
}

impl PreparedCompletion {
    fn decide(&self, decision: &mut Decision<'_>) -> Result<CompletionOutcome> {
        let row = match check_token(&self.key, self.token, decision)? {
            TokenHold::Last(row) if matches!(row.standing, ClaimState::Live { .. }) => row,
            TokenHold::Over(FinishedBy::First) => return Ok(CompletionOutcome::Before),
            TokenHold::Over(FinishedBy::By(token)) if token == self.token => return Ok(CompletionOutcome::Before),
            TokenHold::Last(_) | TokenHold::Over(_) => return Err(token_lost()),
        };
        if self.produced.decide(decision)? == ProducedOutcome::Stale {
            return Ok(CompletionOutcome::Stale);
        }
        let committed = self.commit(decision)?;
        decision.add_entry(Entry::ClaimDone { claim: self.key.clone(), token: self.token })?;
        Ok(CompletionOutcome::Now(row, committed))
    }

    /// Moves the offset of the group named like the handler; never back, and never past an event with an open claim that is
    /// no dead letter: a worker that continues after the offset would not find it again. Retention may have removed such an
    /// event: then it counts only while a worker has it. A shared group's offset moves by itself.
    fn commit(&self, decision: &mut Decision<'_>) -> Result<Option<CommitOutcome>> {
        let Some(offset) = self.offset else { return Ok(None) };
        if offset > Offset::from(decision.tail(TopicNumber(self.key.topic))) {
            return Err(Error::invalid("/offset", "is greater than the topic's tail"));
        }
        let ClaimKey { handler, topic, .. } = &self.key;
        if decision.claims().generation(handler, *topic).is_some() {
            return Ok(None);
        }
        let removed = decision.durable().trimmed(TopicNumber(*topic));
        let open = decision.claims().first_unfinished(&self.key, offset.into(), removed, decision.now());
        let offset = open.map_or(offset, |first| Offset(first.get().saturating_sub(1)));
        let (group, topic) = (self.key.handler.clone(), self.topic.clone());
        let key = GroupKey { group, topic };
        let known = decision.consumers().offset(&key);
        if let Some(known) = known.filter(|known| *known >= offset) {
            return Ok(Some(CommitOutcome { offset: known, open }));
        }
        if known.is_none() {
            decision.consumers().check_room_for_offset()?;
        }
        let GroupKey { group, topic } = key;
        decision.add_entry(Entry::OffsetCommitted { group, topic, offset })?;
        Ok(Some(CommitOutcome { offset, open }))
    }
}

/// Records that an attempt failed.
pub(super) struct FailClaim {
    pub(super) key: ClaimKey,
    pub(super) topic: TopicId,
    pub(super) token: FencingToken,
    pub(super) error: ClaimError,
    pub(super) retryable: bool,
    /// The handler's policy in the default log, if another log decides.
    pub(super) policy: Option<NewHandler>,
    pub(super) defaults: ClaimDefaults,
}

impl Command for FailClaim {
    type Answer = ClaimRow;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<ClaimRow> {
        let row = match check_token(&self.key, self.token, decision)? {
            TokenHold::Last(row) => row,
            TokenHold::Over(_) => return Err(token_lost()),
        };
        match row.standing {
            ClaimState::Live { .. } => (),
            ClaimState::Failed { .. } | ClaimState::Dead { .. } => return Ok(row),
            ClaimState::Redriven | ClaimState::Released => return Err(token_lost()),
        }
        let policy =
            ClaimPolicy::of(decision.claims().policy(&self.key.handler).or(self.policy.as_ref()), self.defaults);
        let retry_at = policy.retry_at(row.attempt, decision.now()).filter(|_| self.retryable);
        let (claim, error) = (self.key.clone(), self.error.clone());
        decision.add_entry(Entry::ClaimFailed { claim, error: error.clone(), retry_at })?;
        if retry_at.is_none() {
            give_up(&self.key, &self.topic, row.event, error, false, decision)?;
        }
        open_row(&self.key, decision)
    }

    fn bytes(&self) -> usize {
        self.key.handler.len() + self.error.class.len() + self.error.message.len()
    }
}

/// An open claim, as decided so far.
pub(super) fn open_row(key: &ClaimKey, decision: &Decision<'_>) -> Result<ClaimRow> {
    match decision.claims().slot(key) {
        Some(ClaimSlot::Open(row)) => Ok(row),
        _ => Err(Error::not_found("claim")),
    }
}

/// Sets a handler's policy.
pub(super) struct PutHandler {
    pub(super) name: String,
    pub(super) definition: Arc<NewHandler>,
}

impl Command for PutHandler {
    /// Whether the handler had no policy before.
    type Answer = bool;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<bool> {
        let known = decision.claims().policy(&self.name).cloned();
        if known.as_ref() == Some(&self.definition) {
            return Ok(false);
        }
        decision.claims().check_room(&self.name)?;
        let (name, definition) = (self.name.clone(), NewHandler::clone(&self.definition));
        decision.add_entry(Entry::HandlerPut { name, definition })?;
        Ok(known.is_none())
    }

    fn bytes(&self) -> usize {
        self.name.len()
    }
}
