//! Claims and the policies of handlers, folded from the log.
//!
//! - One fold ([`fold`]) for both the durable rows and the overlay of what is not durable yet.
//! - An event is identified by the sequence at which it was first stored; a republished copy has the original's key.
//! - A claim that is not finished is a row; a finished one is a bit ([`finished_claims`]).
//! - A claim's token is the position of the entry that granted it, so it grows with every claim.
//! - Leases are measured by the log's time, which never goes back.
//! - A shared group is the handler of its name, with a [`GroupProgress`] for each topic.
//!
//! Dead letters are in [`super::dead_letters`].

pub(in crate::ledger) mod claim_feed;
mod finished_claims;
mod fold;
pub(in crate::ledger) mod group_progress;
mod open_claims;
mod overlay;

pub use finished_claims::FinishedBy;
use fold::ClaimsFold;
pub(in crate::ledger) use overlay::ClaimsOverlay;
pub use overlay::DecidedClaims;

use crate::ledger::facts::entry::Entry;
use crate::ledger::state::table::{OverlayWriter, StateTable};
use claim_feed::{ClaimFeed, ClaimFeeds};
use contract::{ClaimAttempt, ClaimError, FencingToken, NewHandler, Sequence, Timestamp, limits};
use finished_claims::{FinishedClaims, FinishedSnapshot};
use group_progress::{GroupProgress, GroupProgressSnapshot};
use log::RecordHeader;
use open_claims::OpenClaims;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// Which event, for which handler.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimKey {
    /// The handler.
    pub handler: String,
    /// The topic's number in its log.
    pub topic: u32,
    /// The sequence at which the event was first stored there.
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
    /// The number of the last attempt since the event was last redriven.
    pub attempt: u32,
    /// How often the event was claimed in total.
    pub claims: u32,
    /// The last claim's owner.
    pub owner: String,
    /// The lease, in milliseconds.
    pub lease_millis: i64,
    /// When it was last claimed, in milliseconds.
    pub taken_at: i64,
    /// Its state.
    pub standing: ClaimState,
    /// Whether it was redriven: then it is never stale.
    pub redriven: bool,
    /// The failed attempts since it was last redriven.
    pub attempts: Vec<ClaimAttempt>,
}

/// The state of a claim that is not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClaimState {
    /// A worker has it. Its token stays valid after the lease until the event is claimed again.
    Live {
        /// In milliseconds.
        until: i64,
    },
    /// The last attempt failed; it can be claimed again from this time on.
    Failed {
        /// In milliseconds.
        retry_at: i64,
    },
    /// It is a dead letter.
    Dead {
        /// The dead letter.
        letter: Uuid,
        /// It was overtaken by a later event of its aggregate.
        superseded: bool,
    },
    /// It was a dead letter, and can be claimed now.
    Redriven,
    /// Its worker released it; it can be claimed now.
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
    /// How often a handler or a group was deleted: cached views of finished events are then invalid.
    deletions: u64,
    /// Where changes are noted.
    feeds: ClaimFeeds,
}

#[derive(Default)]
struct HandlerRows {
    policy: Option<NewHandler>,
    /// The time of the last entry about it, in milliseconds.
    active_at: i64,
    /// By the topic's number.
    topics: BTreeMap<u32, TopicClaims>,
}

#[derive(Default)]
struct TopicClaims {
    open: OpenClaims,
    finished: FinishedClaims,
    /// Set if a shared group of the handler's name distributes the topic.
    division: Option<GroupProgress>,
    /// The first claim's. Older tokens belong to a handler of the same name that was deleted.
    first_token: FencingToken,
}

impl TopicClaims {
    /// Whether an event is finished.
    fn is_finished(&self, sequence: Sequence) -> bool {
        !self.open.contains(sequence) && self.finished.get(sequence).is_some()
    }

    /// Moves the group's watermark as far as it can.
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

    /// The events of a range that a handler has finished and that are still stored.
    pub fn finished(&self, handler: &str, topic: u32, from: Sequence, to: Sequence) -> impl Iterator<Item = Sequence> {
        self.claims(handler, topic).into_iter().flat_map(move |claims| claims.finished.run(from, to))
    }

    /// The state of an event's claim, if it has one that is not finished.
    #[must_use]
    pub fn state_of(&self, handler: &str, topic: u32, sequence: Sequence) -> Option<ClaimState> {
        self.claims(handler, topic)?.open.get(sequence).map(|row| row.standing)
    }

    /// How many of a handler's claims in a topic an owner holds.
    #[must_use]
    pub fn held_by(&self, handler: &str, topic: u32, owner: &str, now: i64) -> usize {
        self.claims(handler, topic).map_or(0, |claims| claims.open.held_by(owner, now))
    }

    /// Events of a topic whose claims an owner has, expired leases included.
    pub(in crate::ledger) fn held(&self, handler: &str, topic: u32, owner: &str) -> impl Iterator<Item = Sequence> {
        self.claims(handler, topic).into_iter().flat_map(move |claims| claims.open.held(owner))
    }

    /// Events of a topic whose claims are open and no dead letters, in order.
    pub(in crate::ledger) fn unfinished(&self, handler: &str, topic: u32) -> impl Iterator<Item = Sequence> {
        self.claims(handler, topic).into_iter().flat_map(|claims| claims.open.unfinished())
    }

    /// How many events of a topic after `after`, up to `through`, are finished or passed.
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

    /// Whether a handler has no open claim in a topic, and no event that is still stored is finished.
    #[must_use]
    pub fn is_blank(&self, handler: &str, topic: u32) -> bool {
        self.claims(handler, topic).is_none_or(|claims| claims.open.len() == 0 && claims.finished.is_empty())
    }

    /// The time of the last entry about an unused handler: one without a policy, an open claim or a shared topic, none of
    /// whose finished events is still stored.
    #[must_use]
    pub fn unused_since(&self, handler: &str) -> Option<i64> {
        let known = self.handlers.get(handler).filter(|known| known.policy.is_none())?;
        let is_blank = |it: &TopicClaims| it.open.len() == 0 && it.finished.is_empty() && it.division.is_none();
        known.topics.values().all(is_blank).then_some(known.active_at)
    }

    /// A shared group's progress in a topic.
    #[must_use]
    pub fn group_progress(&self, group: &str, topic: u32) -> Option<&GroupProgress> {
        self.claims(group, topic)?.division.as_ref()
    }

    /// The feed of changes to a handler's claims in a topic, from now on.
    #[must_use]
    pub fn feed(&self, handler: &str, topic: u32) -> Arc<ClaimFeed> {
        self.feeds.open(handler, topic)
    }

    fn claims(&self, handler: &str, topic: u32) -> Option<&TopicClaims> {
        self.handlers.get(handler)?.topics.get(&topic)
    }

    /// The first token that a handler was granted in a topic, since it was last deleted.
    #[must_use]
    pub fn first_token(&self, handler: &str, topic: u32) -> FencingToken {
        self.claims(handler, topic).map_or(FencingToken::ZERO, |claims| claims.first_token)
    }

    /// The highest sequence of a topic that a handler has finished.
    #[must_use]
    pub fn highest(&self, handler: &str, topic: u32) -> Sequence {
        self.claims(handler, topic).map_or(Sequence::ZERO, |claims| claims.finished.highest())
    }

    /// A handler's policy, if it has one.
    #[must_use]
    pub fn policy(&self, handler: &str) -> Option<&NewHandler> {
        self.handlers.get(handler)?.policy.as_ref()
    }

    /// Where the events begin that a group is to work on again from `from` on.
    pub(super) fn start_of_repeat(&self, group: &str, topic: u32, from: Sequence) -> Sequence {
        self.claims(group, topic).map_or(from, |claims| claims.finished.start_of_repeat(from))
    }

    /// Whether there is such a handler: it has a policy, or has claimed an event.
    #[must_use]
    pub fn has_handler(&self, name: &str) -> bool {
        self.handlers.contains_key(name)
    }

    /// Handlers in order of their names.
    pub fn handlers(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.handlers.keys().map(String::as_str)
    }

    /// The topics of which a handler has claimed events.
    pub fn topics(&self, handler: &str) -> impl Iterator<Item = u32> {
        self.handlers.get(handler).into_iter().flat_map(|known| known.topics.keys().copied())
    }

    /// A handler's open claims in a topic, in order.
    pub fn open(&self, handler: &str, topic: u32) -> impl DoubleEndedIterator<Item = (Sequence, &ClaimRow)> {
        self.claims(handler, topic).into_iter().flat_map(|claims| claims.open.iter())
    }

    /// Retention has removed a topic's events up to here. Claims of them that nobody works on are removed; if a copy of such
    /// an event is stored further on, it is claimed as if for the first time.
    fn trim(&mut self, topic: u32, through: Sequence, time: i64) {
        for (name, known) in &mut self.handlers {
            let Some(claims) = known.topics.get_mut(&topic) else { continue };
            let before = claims.open.len();
            claims.finished.trim(through);
            claims.open.remove_range(Sequence::ZERO..=through, |row| row.outlives_its_event(time));
            claims.division.iter_mut().for_each(|division| division.trim(through));
            claims.advance();
            self.open = (self.open + claims.open.len()).saturating_sub(before);
            self.feeds.note(name, topic, None);
        }
    }

    /// A repair has cut these events of a topic out. Their claims are removed, also those that a worker had: the broker was
    /// stopped for the repair.
    fn lose(&mut self, topic: u32, runs: &[(Sequence, Sequence)]) {
        for (name, known) in &mut self.handlers {
            let Some(claims) = known.topics.get_mut(&topic) else { continue };
            let before = claims.open.len();
            for (first, last) in runs {
                claims.open.remove_range(*first..=*last, |row| matches!(row.standing, ClaimState::Dead { .. }));
            }
            self.open = (self.open + claims.open.len()).saturating_sub(before);
            self.feeds.note(name, topic, None);
        }
    }
}

impl ClaimRow {
    /// Whether it stays when its event is removed: a worker has it, or it is a dead letter.
    const fn outlives_its_event(&self, now: i64) -> bool {
        match self.standing {
            ClaimState::Live { until } => until > now,
            ClaimState::Dead { .. } => true,
            ClaimState::Failed { .. } | ClaimState::Redriven | ClaimState::Released => false,
        }
    }

    /// Releases a live claim at `time`. If the attempt counts, only its lease expires.
    fn release(&mut self, time: i64, spent: bool) {
        let ClaimState::Live { until } = self.standing else { return };
        if spent {
            self.standing = ClaimState::Live { until: until.min(time) };
            return;
        }
        (self.standing, self.attempt) = (ClaimState::Released, self.attempt.saturating_sub(1));
    }

    /// Records the failure of the last attempt.
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

/// The error of an attempt whose lease has expired.
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

/// The claims and the policy of one handler in a checkpoint.
#[derive(Serialize, Deserialize)]
pub struct HandlerSnapshot {
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

impl StateTable for ClaimRows {
    type Overlay = ClaimsOverlay;
    type Snapshot = Vec<HandlerSnapshot>;

    fn apply(&mut self, entry: &Entry, header: &RecordHeader) {
        ClaimsFold::apply(self, entry, header);
    }

    fn decide(&self, overlay: &mut ClaimsOverlay, entry: &Entry, header: &RecordHeader) {
        OverlayWriter { durable: self, overlay, at: header.position }.apply(entry, header);
    }

    fn snapshot(&self) -> Self::Snapshot {
        let handler = |(name, known): (&String, &HandlerRows)| HandlerSnapshot {
            name: name.clone(),
            policy: known.policy.clone(),
            active_at: known.active_at,
            topics: known.topics.iter().map(|(number, claims)| (*number, claims.snapshot())).collect(),
        };
        self.handlers.iter().map(handler).collect()
    }

    fn restore(snapshot: Self::Snapshot) -> Self {
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
