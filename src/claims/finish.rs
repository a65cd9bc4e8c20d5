//! Ending a claim, or keeping it: heartbeat, done and fail, each by whoever holds the token.
//!
//! - A token holds as long as nobody has claimed the event since, also when the lease is over.
//! - Done, what the work has produced, and the group's offset are one append. Where one of them is refused, none is.
//! - Said again by whoever said it first, done and fail change nothing and are no error.

use super::giving_up::give_up;
use super::terms::{Defaults, Terms};
use crate::events::{Bundle, Bundled};
use crate::ledger::{ClaimKey, ClaimRow, Command, Decision, Entry, Finish, GroupKey, Slot, Standing};
use contract::{ClaimError, Error, Kind, NewHandler, Offset, Result, Sequence, Token, TopicId};
use log::TopicNumber;
use std::sync::Arc;

/// What is known of a claim by whoever says to hold it.
pub(super) enum Hold {
    /// The last claim was his.
    Last(ClaimRow),
    /// The event is finished, by somebody.
    Over(Finish),
}

/// What somebody holds; refused where somebody else has claimed the event since.
pub(super) fn hold(key: &ClaimKey, token: Token, decision: &Decision<'_>) -> Result<Hold> {
    match decision.claims().slot(key) {
        None => Err(Error::not_found("claim")),
        Some(Slot::Open(row)) if row.token == token => Ok(Hold::Last(row)),
        Some(Slot::Open(_)) => Err(lost()),
        Some(Slot::Finished(finish)) => Ok(Hold::Over(finish)),
    }
}

/// What somebody is told whose token no longer holds.
pub(super) fn lost() -> Error {
    let detail =
        "This token no longer holds the claim: it was ended, or somebody else has taken it since. Do not go on.";
    Error::new(Kind::ClaimLost, detail)
}

/// Begins a lease anew.
pub(super) struct Extend {
    pub(super) key: ClaimKey,
    pub(super) token: Token,
}

impl Command for Extend {
    type Answer = ClaimRow;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<ClaimRow> {
        match hold(&self.key, self.token, decision)? {
            Hold::Last(ClaimRow { standing: Standing::Live { .. }, .. }) => (),
            _ => return Err(lost()),
        }
        decision.add_entry(Entry::ClaimExtended { claim: self.key.clone() })?;
        open_row(&self.key, decision)
    }

    fn bytes(&self) -> usize {
        self.key.handler.len()
    }
}

/// Ends several claims, each by itself.
pub(super) struct Complete {
    pub(super) items: Vec<Finishing>,
    /// Nothing is decided while something must be read or prepared for one of them: the answer to all is kept with them.
    pub(super) whole: bool,
}

/// A claim to be ended, with what comes of it.
pub(super) struct Finishing {
    pub(super) key: ClaimKey,
    pub(super) topic: TopicId,
    pub(super) token: Token,
    pub(super) produced: Bundle,
    pub(super) offset: Option<Offset>,
    /// Whether the log was asked who had it done before.
    pub(super) is_looked_up: bool,
}

/// What became of it.
pub(super) enum Completed {
    /// Done now; the claim as it was, and what became of the offset that came with it.
    Now(ClaimRow, Option<Committed>),
    /// It was done before, by whoever the log says had the token, if that is so.
    Before,
    /// What it produced must be prepared again.
    Stale,
}

/// What became of an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Committed {
    /// How far the group has come.
    pub(super) offset: Offset,
    /// The event that kept the offset back: somebody has begun it, and nobody has finished it.
    pub(super) open: Option<Sequence>,
}

impl Command for Complete {
    type Answer = Vec<Result<Completed>>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        let before = decision.mark();
        let completed = self.items.iter().map(|item| {
            let mark = decision.mark();
            let completed = item.decide(decision);
            if matches!(completed, Err(_) | Ok(Completed::Stale)) {
                decision.undo(mark);
            }
            completed
        });
        let completed: Vec<_> = completed.collect();
        let is_open = |(item, completed): (&Finishing, &Result<Completed>)| match completed {
            Ok(Completed::Before) => !item.is_looked_up,
            Ok(Completed::Stale) => true,
            Ok(Completed::Now(..)) | Err(_) => false,
        };
        if self.whole && self.items.iter().zip(&completed).any(is_open) {
            decision.undo(before);
        }
        Ok(completed)
    }

    fn bytes(&self) -> usize {
        self.items.iter().map(|item| size_of::<Finishing>() + item.key.handler.len() + item.produced.bytes()).sum()
    }
}

impl Finishing {
    fn decide(&self, decision: &mut Decision<'_>) -> Result<Completed> {
        let row = match hold(&self.key, self.token, decision)? {
            Hold::Last(row) if matches!(row.standing, Standing::Live { .. }) => row,
            Hold::Over(Finish::First) => return Ok(Completed::Before),
            Hold::Over(Finish::By(token)) if token == self.token => return Ok(Completed::Before),
            Hold::Last(_) | Hold::Over(_) => return Err(lost()),
        };
        if self.produced.decide(decision)? == Bundled::Stale {
            return Ok(Completed::Stale);
        }
        let committed = self.commit(decision)?;
        decision.add_entry(Entry::ClaimDone { claim: self.key.clone(), token: self.token })?;
        Ok(Completed::Now(row, committed))
    }

    /// Moves the offset of the group named like the handler; never backwards, and never over an event that was begun and
    /// is neither finished nor a dead letter: whoever reads on behind the offset would not meet it again. Where the
    /// group's members divide the topic it moves by itself.
    fn commit(&self, decision: &mut Decision<'_>) -> Result<Option<Committed>> {
        let Some(offset) = self.offset else { return Ok(None) };
        if offset > Offset::from(decision.tail(TopicNumber(self.key.topic))) {
            return Err(Error::invalid("/offset", "lies beyond the topic's tail"));
        }
        let ClaimKey { handler, topic, sequence } = &self.key;
        if decision.claims().generation(handler, *topic).is_some() {
            return Ok(None);
        }
        let open = decision.claims().first_begun(handler, *topic, offset.into(), *sequence);
        let offset = open.map_or(offset, |first| Offset(first.get().saturating_sub(1)));
        let (group, topic) = (self.key.handler.clone(), self.topic.clone());
        let key = GroupKey { group, topic };
        let known = decision.readers().offset(&key);
        if let Some(known) = known.filter(|known| *known >= offset) {
            return Ok(Some(Committed { offset: known, open }));
        }
        if known.is_none() {
            decision.readers().check_room_for_offset()?;
        }
        let GroupKey { group, topic } = key;
        decision.add_entry(Entry::OffsetCommitted { group, topic, offset })?;
        Ok(Some(Committed { offset, open }))
    }
}

/// Says that an attempt failed.
pub(super) struct Fail {
    pub(super) key: ClaimKey,
    pub(super) topic: TopicId,
    pub(super) token: Token,
    pub(super) error: ClaimError,
    pub(super) retryable: bool,
    /// What the default log says of the handler, where the claim is decided in another.
    pub(super) policy: Option<NewHandler>,
    pub(super) defaults: Defaults,
}

impl Command for Fail {
    type Answer = ClaimRow;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<ClaimRow> {
        let row = match hold(&self.key, self.token, decision)? {
            Hold::Last(row) => row,
            Hold::Over(_) => return Err(lost()),
        };
        match row.standing {
            Standing::Live { .. } => (),
            Standing::Failed { .. } | Standing::Dead { .. } => return Ok(row),
            Standing::Redriven | Standing::Released => return Err(lost()),
        }
        let terms = Terms::of(decision.claims().policy(&self.key.handler).or(self.policy.as_ref()), self.defaults);
        let retry_at = terms.retry_at(row.attempt, decision.now()).filter(|_| self.retryable);
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

/// An open claim as it stands now.
pub(super) fn open_row(key: &ClaimKey, decision: &Decision<'_>) -> Result<ClaimRow> {
    match decision.claims().slot(key) {
        Some(Slot::Open(row)) => Ok(row),
        _ => Err(Error::not_found("claim")),
    }
}

/// Says how a handler's work is to be tried.
pub(super) struct PutHandler {
    pub(super) name: String,
    pub(super) definition: Arc<NewHandler>,
}

impl Command for PutHandler {
    /// Whether nobody had said so before.
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
