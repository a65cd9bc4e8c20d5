//! The fold of facts about claims, the same for durable rows and for those that are not durable yet.

use super::{
    ClaimKey, ClaimRow, ClaimRows, ClaimSlot, ClaimState, FinishedBy, HandlerRows, TopicClaims, lease_expired,
};
use crate::ledger::facts::entry::Entry;
use crate::ledger::state::claims::group_progress::GroupProgress;
use contract::{FencingToken, NewHandler, Offset, Position, Sequence};
use log::RecordHeader;
use uuid::Uuid;

/// Where facts about claims are folded.
pub(in crate::ledger) trait ClaimsFold {
    fn known(&self, key: &ClaimKey) -> Option<ClaimSlot>;
    fn put(&mut self, key: &ClaimKey, slot: ClaimSlot);
    fn put_policy(&mut self, handler: &str, policy: NewHandler);
    fn trim(&mut self, topic: u32, through: Sequence, time: i64);
    fn apply_group_progress(&mut self, group: &str, topic: u32, change: &GroupProgressChange<'_>, at: Position);
    /// Nothing is known any more of a handler: in one topic, or at all.
    fn forget(&mut self, handler: &str, topic: Option<u32>);
    /// Nothing is known any more of a topic. Only durable rows do: what is decided about a deleted topic is refused.
    fn forget_topic(&mut self, _topic: u32) {}
    /// The log says something of a handler at `time`.
    fn touch(&mut self, handler: &str, time: i64);

    /// Takes in one fact. Total: a fact about an unknown claim, or something else, changes nothing.
    fn apply(&mut self, entry: &Entry, header: &RecordHeader) {
        let time = header.time;
        match entry {
            Entry::HandlerPut { name, definition } => self.put_policy(name, definition.clone()),
            Entry::ClaimTaken { claim, event, owner, lease_millis, attempt } => {
                let given = ClaimGrant { event: *event, owner, lease_millis: *lease_millis, attempt: *attempt };
                self.take(claim, given, header);
            }
            Entry::ClaimExtended { claim } => self.change(claim, |row| {
                row.standing = ClaimState::Live { until: time.saturating_add(row.lease_millis) };
            }),
            Entry::ClaimsReleased { handler, topic, sequences, spent } => {
                for sequence in sequences {
                    let key = ClaimKey { handler: handler.clone(), topic: *topic, sequence: *sequence };
                    self.change(&key, |row| row.release(time, *spent));
                }
            }
            Entry::ClaimDone { claim, token } => {
                if let Some(ClaimSlot::Open(row)) = self.known(claim) {
                    let finish = if row.claims == 1 { FinishedBy::First } else { FinishedBy::By(*token) };
                    self.put(claim, ClaimSlot::Finished(finish));
                }
            }
            Entry::ClaimFailed { claim, error, retry_at } => self.change(claim, |row| {
                row.failed(error.clone(), time);
                row.standing = ClaimState::Failed { retry_at: retry_at.unwrap_or(time) };
            }),
            Entry::DeadLettered { letter } if letter.job.is_none() => self.change(&letter.key(), |row| {
                row.standing = ClaimState::Dead { letter: letter.id, superseded: letter.superseded };
            }),
            Entry::Redriven { claim: Some(claim), new_event: None, .. } => self.change(claim, |row| {
                (row.standing, row.redriven, row.attempt) = (ClaimState::Redriven, true, 0);
                row.attempts.clear();
            }),
            Entry::Redriven { claim: Some(claim), .. } => self.resolve(claim, FinishedBy::Replaced),
            Entry::Discarded { claim: Some(claim), .. } => self.resolve(claim, FinishedBy::Nobody),
            Entry::HandlerDeleted { name, .. } => self.forget(name, None),
            Entry::GroupDeleted { group, topics } => topics.iter().for_each(|topic| self.forget(group, Some(*topic))),
            Entry::TopicDeleted { number, .. } => self.forget_topic(*number),
            Entry::TopicTrimmed { number, through } => self.trim(*number, *through, time),
            Entry::GroupBegan { group, topic, offset } => {
                self.apply_group_progress(group, *topic, &GroupProgressChange::Began(*offset), header.position);
            }
            Entry::EventsPassed { group, topic, runs } => {
                self.apply_group_progress(group, *topic, &GroupProgressChange::Passed(runs), header.position);
            }
            Entry::EventsRepeated { group, topic, from, to } => {
                self.apply_group_progress(group, *topic, &GroupProgressChange::Repeated(*from, *to), header.position);
            }
            Entry::GroupMoved { group, topic, offset } => {
                self.apply_group_progress(group, *topic, &GroupProgressChange::Moved(*offset), header.position);
            }
            _ => (),
        }
        if let Some(handler) = entry.handler() {
            self.touch(handler, time);
        }
    }

    /// A person has decided about a claim that was given up.
    fn resolve(&mut self, key: &ClaimKey, finish: FinishedBy) {
        if let Some(ClaimSlot::Open(_)) = self.known(key) {
            self.put(key, ClaimSlot::Finished(finish));
        }
    }

    /// A claim is given: the event's first, or one after another.
    fn take(&mut self, key: &ClaimKey, given: ClaimGrant<'_>, header: &RecordHeader) {
        let (time, token) = (header.time, FencingToken(header.position.get()));
        let ClaimGrant { event, owner, lease_millis, attempt } = given;
        let mut row = match self.known(key) {
            Some(ClaimSlot::Open(row)) => row,
            Some(ClaimSlot::Finished(_)) => return,
            None => ClaimRow::new(event, time),
        };
        // Taken over from somebody who fell silent.
        if matches!(row.standing, ClaimState::Live { .. }) && row.claims > 0 {
            row.failed(lease_expired(), time);
        }
        row.claims = row.claims.saturating_add(1);
        owner.clone_into(&mut row.owner);
        (row.token, row.attempt, row.lease_millis, row.taken_at) = (token, attempt, lease_millis, time);
        row.standing = ClaimState::Live { until: time.saturating_add(lease_millis) };
        self.put(key, ClaimSlot::Open(row));
    }

    fn change(&mut self, key: &ClaimKey, change: impl FnOnce(&mut ClaimRow)) {
        if let Some(ClaimSlot::Open(mut row)) = self.known(key) {
            change(&mut row);
            self.put(key, ClaimSlot::Open(row));
        }
    }
}

/// What changes about how a group divides a topic.
pub(in crate::ledger) enum GroupProgressChange<'a> {
    Began(Offset),
    Passed(&'a [(Sequence, Sequence)]),
    Repeated(Sequence, Sequence),
    Moved(Offset),
}

/// What a claim was given with.
pub(in crate::ledger) struct ClaimGrant<'a> {
    event: Uuid,
    owner: &'a str,
    lease_millis: i64,
    attempt: u32,
}

impl ClaimRow {
    /// Of an event nobody has claimed yet.
    const fn new(event: Uuid, time: i64) -> Self {
        Self {
            event,
            token: FencingToken::ZERO,
            attempt: 0,
            claims: 0,
            owner: String::new(),
            lease_millis: 0,
            taken_at: time,
            standing: ClaimState::Redriven,
            redriven: false,
            attempts: Vec::new(),
        }
    }
}

impl ClaimRows {
    fn topic_mut(&mut self, handler: &str, topic: u32) -> Option<&mut TopicClaims> {
        if !self.handlers.contains_key(handler) {
            self.handlers.insert(handler.to_owned(), HandlerRows::default());
        }
        Some(self.handlers.get_mut(handler)?.topics.entry(topic).or_default())
    }
}

impl TopicClaims {
    /// A group that does not divide the topic is begun by the first word about it only.
    fn divide(&mut self, change: &GroupProgressChange<'_>, at: Position) {
        match (&mut self.division, change) {
            (None, GroupProgressChange::Began(offset)) => self.division = Some(GroupProgress::starting_at(*offset, at)),
            (Some(division), GroupProgressChange::Passed(runs)) => division.pass(runs),
            (Some(division), GroupProgressChange::Repeated(from, to)) => {
                let again: Vec<_> = self.finished.run(*from, *to).collect();
                self.finished.clear(*from, *to);
                division.repeat(&again, at);
            }
            (Some(division), GroupProgressChange::Moved(offset)) => {
                if Sequence::from(*offset) < division.watermark() {
                    self.finished.clear(Sequence::from(*offset).next(), Sequence(u64::MAX));
                }
                division.move_to(*offset, at);
            }
            _ => (),
        }
        self.advance();
    }
}

impl ClaimsFold for ClaimRows {
    fn known(&self, key: &ClaimKey) -> Option<ClaimSlot> {
        self.slot(key)
    }

    fn put(&mut self, key: &ClaimKey, slot: ClaimSlot) {
        let Some(claims) = self.topic_mut(&key.handler, key.topic) else { return };
        let before = claims.open.len();
        match slot {
            ClaimSlot::Open(row) => {
                if claims.first_token == FencingToken::ZERO {
                    claims.first_token = row.token;
                }
                claims.open.insert(key.sequence, row);
            }
            ClaimSlot::Finished(finish) => {
                claims.open.remove(key.sequence);
                claims.finished.insert(key.sequence, finish);
                claims.advance();
            }
        }
        let after = claims.open.len();
        self.open = (self.open + after).saturating_sub(before);
        self.feeds.note(&key.handler, key.topic, Some(key.sequence));
    }

    fn put_policy(&mut self, handler: &str, policy: NewHandler) {
        self.handlers.entry(handler.to_owned()).or_default().policy = Some(policy);
    }

    fn trim(&mut self, topic: u32, through: Sequence, time: i64) {
        Self::trim(self, topic, through, time);
    }

    fn forget(&mut self, handler: &str, topic: Option<u32>) {
        let Some(known) = self.handlers.get_mut(handler) else { return };
        let gone = match topic {
            Some(topic) => known.topics.remove(&topic).map(|claims| (topic, claims)).into_iter().collect(),
            None => std::mem::take(&mut known.topics),
        };
        if topic.is_none() || (known.topics.is_empty() && known.policy.is_none()) {
            self.handlers.remove(handler);
        }
        self.deletions += 1;
        for (topic, claims) in gone {
            self.open = self.open.saturating_sub(claims.open.len());
            self.feeds.note(handler, topic, None);
        }
    }

    fn forget_topic(&mut self, topic: u32) {
        let knows = |rows: &HandlerRows| rows.topics.contains_key(&topic);
        let handlers = self.handlers.iter().filter(|(_, rows)| knows(rows)).map(|(name, _)| name.clone());
        for handler in handlers.collect::<Vec<_>>() {
            self.forget(&handler, Some(topic));
        }
    }

    fn touch(&mut self, handler: &str, time: i64) {
        if let Some(known) = self.handlers.get_mut(handler) {
            known.active_at = known.active_at.max(time);
        }
    }

    fn apply_group_progress(&mut self, group: &str, topic: u32, change: &GroupProgressChange<'_>, at: Position) {
        let Some(claims) = self.topic_mut(group, topic) else { return };
        claims.divide(change, at);
        if !matches!(change, GroupProgressChange::Passed(_)) {
            self.feeds.note(group, topic, None);
        }
    }
}
