//! Claims and the policies of handlers, as the log tells them.
//!
//! - One fold ([`fold`]) for both the durable rows and the layer of what is not durable yet.
//! - A claim that is not finished is a row; a finished one is a bit ([`crate::ledger::finished`]).
//! - A claim's token is the position of the entry that gave it, so it grows with every claim.
//! - Leases are judged by the log's time, which never goes back.
//! - A group that divides a topic among its members is the handler of its name, with a [`Division`].
//!
//! Why an event was given up, and what a person made of it, is [`crate::ledger::letters`]' business.

pub(in crate::ledger) mod claim_feed;
mod finished_claims;
mod fold;
pub(in crate::ledger) mod group_progress;
mod open_claims;
mod overlay;

pub use finished_claims::FinishedBy;
pub(in crate::ledger) use fold::ClaimsFold;
pub use overlay::DecidedClaims;
pub(in crate::ledger) use overlay::{ClaimsOverlay, ClaimsOverlayWriter};

use claim_feed::{ClaimFeed, ClaimFeeds};
use contract::{ClaimAttempt, ClaimError, FencingToken, NewHandler, Sequence, Timestamp, limits};
use finished_claims::{FinishedClaims, FinishedSnapshot};
use group_progress::{GroupProgress, GroupProgressSnapshot};
use open_claims::OpenClaims;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// Of which event, by whom.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimKey {
    /// The handler.
    pub handler: String,
    /// The topic's number in its log.
    pub topic: u32,
    /// The event's number there.
    pub sequence: Sequence,
}

/// A claim that is not finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRow {
    /// The event's id.
    pub event: Uuid,
    /// The last claim's.
    pub token: FencingToken,
    /// Which attempt that was, since the event was last redriven.
    pub attempt: u32,
    /// How often the event was claimed altogether.
    pub claims: u32,
    /// Whoever had it last.
    pub owner: String,
    /// How long a claim holds, in milliseconds.
    pub lease_millis: i64,
    /// When it was last claimed, in milliseconds.
    pub taken_at: i64,
    /// How it stands.
    pub standing: ClaimState,
    /// Whether a person wanted it tried again: then it is never stale.
    pub redriven: bool,
    /// What failed so far, since it was last redriven.
    pub attempts: Vec<ClaimAttempt>,
}

/// How a claim that is not finished stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClaimState {
    /// Somebody has it until then, and as long after as nobody else takes it.
    Live {
        /// In milliseconds.
        until: i64,
    },
    /// It failed, and may be claimed from then on.
    Failed {
        /// In milliseconds.
        retry_at: i64,
    },
    /// It was given up.
    Dead {
        /// The dead letter.
        letter: Uuid,
        /// Because a later event of its aggregate was finished before it.
        superseded: bool,
    },
    /// It was given up, and may be claimed now.
    Redriven,
    /// Its worker gave it back; it may be claimed now.
    Released,
}

/// What is known of an event that was claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimSlot {
    /// It is not finished.
    Open(ClaimRow),
    /// It is.
    Finished(FinishedBy),
}

/// Claims and policies by handler.
#[derive(Default)]
pub struct ClaimRows {
    handlers: BTreeMap<String, HandlerRows>,
    /// How many rows there are altogether.
    open: usize,
    /// How often something was deleted: whoever keeps a view of what is finished has to look again.
    deletions: u64,
    /// Who wants to be told of changes.
    feeds: ClaimFeeds,
}

#[derive(Default)]
struct HandlerRows {
    policy: Option<NewHandler>,
    /// When the log last said something of it, in milliseconds.
    active_at: i64,
    /// By the topic's number.
    topics: BTreeMap<u32, TopicClaims>,
}

#[derive(Default)]
struct TopicClaims {
    open: OpenClaims,
    finished: FinishedClaims,
    /// Where a group of the handler's name divides the topic.
    division: Option<GroupProgress>,
    /// The first claim's: older tokens are of a handler of that name that was deleted.
    first_token: FencingToken,
}

impl TopicClaims {
    /// Whether an event is finished.
    fn is_finished(&self, sequence: Sequence) -> bool {
        !self.open.contains(sequence) && self.finished.get(sequence).is_some()
    }

    /// Lets the group's watermark move on.
    fn advance(&mut self) {
        if let Some(mut division) = self.division.take() {
            division.advance(|sequence| self.is_finished(sequence));
            self.division = Some(division);
        }
    }
}

impl ClaimRows {
    /// What is known of an event.
    #[must_use]
    pub fn slot(&self, key: &ClaimKey) -> Option<ClaimSlot> {
        let claims = self.claims(&key.handler, key.topic)?;
        match claims.open.get(key.sequence) {
            Some(row) => Some(ClaimSlot::Open(row.clone())),
            None => claims.finished.get(key.sequence).map(ClaimSlot::Finished),
        }
    }

    /// Whether an event is finished.
    #[must_use]
    pub fn is_finished(&self, handler: &str, topic: u32, sequence: Sequence) -> bool {
        self.claims(handler, topic).is_some_and(|claims| claims.is_finished(sequence))
    }

    /// The events of a run that a handler has finished, and that are still there.
    pub fn finished(&self, handler: &str, topic: u32, from: Sequence, to: Sequence) -> impl Iterator<Item = Sequence> {
        self.claims(handler, topic).into_iter().flat_map(move |claims| claims.finished.run(from, to))
    }

    /// How an event's claim stands, where it is not finished.
    #[must_use]
    pub fn state_of(&self, handler: &str, topic: u32, sequence: Sequence) -> Option<ClaimState> {
        self.claims(handler, topic)?.open.get(sequence).map(|row| row.standing)
    }

    /// How many of a handler's claims in a topic an owner has in hand.
    #[must_use]
    pub fn held_by(&self, handler: &str, topic: u32, owner: &str, now: i64) -> usize {
        self.claims(handler, topic).map_or(0, |claims| claims.open.held_by(owner, now))
    }

    /// Events of a topic whose claims an owner has, also where the leases are over.
    pub(in crate::ledger) fn held(&self, handler: &str, topic: u32, owner: &str) -> impl Iterator<Item = Sequence> {
        self.claims(handler, topic).into_iter().flat_map(move |claims| claims.open.held(owner))
    }

    /// Events of a topic that a handler has begun and neither finished nor given up, in order.
    pub(in crate::ledger) fn unfinished(&self, handler: &str, topic: u32) -> impl Iterator<Item = Sequence> {
        self.claims(handler, topic).into_iter().flat_map(|claims| claims.open.unfinished())
    }

    /// How many events of a topic behind `after`, up to `through`, a handler has finished.
    #[must_use]
    pub fn finished_between(&self, handler: &str, topic: u32, after: Sequence, through: Sequence) -> u64 {
        self.claims(handler, topic).map_or(0, |claims| claims.finished.count(after, through))
    }

    /// How many events of a topic behind `after`, up to `through`, are finished, or none of the group's business.
    #[must_use]
    pub fn settled_between(&self, handler: &str, topic: u32, after: Sequence, through: Sequence) -> u64 {
        let Some(TopicClaims { finished, division, .. }) = self.claims(handler, topic) else { return 0 };
        match division {
            Some(division) => finished.count_with(division.passed(), after, through),
            None => finished.count(after, through),
        }
    }

    /// Whether a corrected event has replaced this one, for a handler.
    #[must_use]
    pub fn is_replaced(&self, handler: &str, topic: u32, sequence: Sequence) -> bool {
        self.claims(handler, topic).is_some_and(|claims| claims.finished.is_replaced(sequence))
    }

    /// How often a handler or a group was deleted since this state was opened.
    #[must_use]
    pub const fn deletions(&self) -> u64 {
        self.deletions
    }

    /// Whether a handler has no open claim in a topic, and all it has finished there is gone from the log.
    #[must_use]
    pub fn is_blank(&self, handler: &str, topic: u32) -> bool {
        self.claims(handler, topic).is_none_or(|claims| claims.open.len() == 0 && claims.finished.is_empty())
    }

    /// When the log last said something of a handler that nobody would miss: it has no policy, no open claim, divides
    /// nothing, and all it has finished is gone from the log.
    #[must_use]
    pub fn unused_since(&self, handler: &str) -> Option<i64> {
        let known = self.handlers.get(handler).filter(|known| known.policy.is_none())?;
        let is_blank = |it: &TopicClaims| it.open.len() == 0 && it.finished.is_empty() && it.division.is_none();
        known.topics.values().all(is_blank).then_some(known.active_at)
    }

    /// How a group stands in a topic that it divides.
    #[must_use]
    pub fn group_progress(&self, group: &str, topic: u32) -> Option<&GroupProgress> {
        self.claims(group, topic)?.division.as_ref()
    }

    /// What changes from now on of a handler's claims in a topic.
    #[must_use]
    pub fn feed(&self, handler: &str, topic: u32) -> Arc<ClaimFeed> {
        self.feeds.open(handler, topic)
    }

    fn claims(&self, handler: &str, topic: u32) -> Option<&TopicClaims> {
        self.handlers.get(handler)?.topics.get(&topic)
    }

    /// The first token a handler was given in a topic, since it was last deleted.
    #[must_use]
    pub fn first_token(&self, handler: &str, topic: u32) -> FencingToken {
        self.claims(handler, topic).map_or(FencingToken::ZERO, |claims| claims.first_token)
    }

    /// The highest sequence of a topic that a handler has finished.
    #[must_use]
    pub fn highest(&self, handler: &str, topic: u32) -> Sequence {
        self.claims(handler, topic).map_or(Sequence::ZERO, |claims| claims.finished.highest())
    }

    /// How a handler's work is to be tried, if somebody said so.
    #[must_use]
    pub fn policy(&self, handler: &str) -> Option<&NewHandler> {
        self.handlers.get(handler)?.policy.as_ref()
    }

    /// The last sequence of a topic that is gone, as far as a handler knows.
    #[must_use]
    pub fn trimmed(&self, handler: &str, topic: u32) -> Sequence {
        self.claims(handler, topic).map_or(Sequence::ZERO, |claims| claims.finished.trimmed())
    }

    /// Whether there is such a handler: it was put, or has claimed something.
    #[must_use]
    pub fn has_handler(&self, name: &str) -> bool {
        self.handlers.contains_key(name)
    }

    /// Handlers in order of their names.
    pub fn handlers(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.handlers.keys().map(String::as_str)
    }

    /// The topics a handler has claimed events of.
    pub fn topics(&self, handler: &str) -> impl Iterator<Item = u32> {
        self.handlers.get(handler).into_iter().flat_map(|known| known.topics.keys().copied())
    }

    /// What a handler has not finished in a topic, in order.
    pub fn open(&self, handler: &str, topic: u32) -> impl DoubleEndedIterator<Item = (Sequence, &ClaimRow)> {
        self.claims(handler, topic).into_iter().flat_map(|claims| claims.open.iter())
    }

    /// Events of a topic up to here are gone: what was finished of them, and what would be tried again, goes too.
    fn trim(&mut self, topic: u32, through: Sequence, time: i64) {
        for (name, known) in &mut self.handlers {
            let Some(claims) = known.topics.get_mut(&topic) else { continue };
            let before = claims.open.len();
            claims.finished.trim(through);
            claims.open.trim(through, |row| row.outlives_its_event(time));
            claims.division.iter_mut().for_each(|division| division.trim(through));
            claims.advance();
            self.open = (self.open + claims.open.len()).saturating_sub(before);
            self.feeds.note(name, topic, None);
        }
    }

    pub(in crate::ledger) fn snapshot(&self) -> ClaimsSnapshot {
        let handler = |(name, known): (&String, &HandlerRows)| HandlerSnapshot {
            name: name.clone(),
            policy: known.policy.clone(),
            active_at: known.active_at,
            topics: known.topics.iter().map(|(number, claims)| (*number, claims.snapshot())).collect(),
        };
        self.handlers.iter().map(handler).collect()
    }
}

impl ClaimRow {
    /// Whether it means something when its event is gone: somebody is at it, or somebody should look at it.
    const fn outlives_its_event(&self, now: i64) -> bool {
        match self.standing {
            ClaimState::Live { until } => until > now,
            ClaimState::Dead { .. } => true,
            ClaimState::Failed { .. } | ClaimState::Redriven | ClaimState::Released => false,
        }
    }

    /// Gives a live claim back at `time`. Where the attempt counts, only the lease is over.
    fn release(&mut self, time: i64, spent: bool) {
        let ClaimState::Live { until } = self.standing else { return };
        if spent {
            self.standing = ClaimState::Live { until: until.min(time) };
            return;
        }
        (self.standing, self.attempt) = (ClaimState::Released, self.attempt.saturating_sub(1));
    }

    /// What became of the last attempt.
    fn failed(&mut self, error: ClaimError, time: i64) {
        let attempt = ClaimAttempt {
            number: self.attempt,
            token: self.token,
            owner: self.owner.clone(),
            started_at: Timestamp::from_millis(self.taken_at),
            failed_at: Timestamp::from_millis(time),
            error,
        };
        if self.attempts.len() >= limits::ATTEMPTS_KEPT {
            self.attempts.remove(0);
        }
        self.attempts.push(attempt);
    }
}

/// What an attempt died of whose worker fell silent.
#[must_use]
pub fn lease_expired() -> ClaimError {
    ClaimError::new("LeaseExpired", "The lease ran out without a heartbeat; the worker fell silent.")
}

impl TopicClaims {
    fn snapshot(&self) -> TopicClaimsSnapshot {
        let open = self.open.iter().map(|(sequence, row)| (sequence, row.clone())).collect();
        let division = self.division.as_ref().map(GroupProgress::snapshot);
        TopicClaimsSnapshot { open, finished: self.finished.snapshot(), division, first_token: self.first_token }
    }
}

/// Claims in a checkpoint.
pub(in crate::ledger) type ClaimsSnapshot = Vec<HandlerSnapshot>;

#[derive(Serialize, Deserialize)]
pub(in crate::ledger) struct HandlerSnapshot {
    name: String,
    policy: Option<NewHandler>,
    active_at: i64,
    topics: Vec<(u32, TopicClaimsSnapshot)>,
}

#[derive(Serialize, Deserialize)]
struct TopicClaimsSnapshot {
    open: Vec<(Sequence, ClaimRow)>,
    finished: FinishedSnapshot,
    division: Option<GroupProgressSnapshot>,
    first_token: FencingToken,
}

impl From<ClaimsSnapshot> for ClaimRows {
    fn from(snapshot: ClaimsSnapshot) -> Self {
        let mut rows = Self::default();
        for HandlerSnapshot { name, policy, active_at, topics } in snapshot {
            let topics = topics.into_iter().map(|(number, snapshot)| {
                let TopicClaimsSnapshot { open, finished, division, first_token } = snapshot;
                rows.open += open.len();
                let (open, division) = (open.into_iter().collect(), division.map(Into::into));
                (number, TopicClaims { open, finished: finished.into(), division, first_token })
            });
            let topics = topics.collect();
            rows.handlers.insert(name, HandlerRows { policy, active_at, topics });
        }
        rows
    }
}
