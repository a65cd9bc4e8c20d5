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
    /// Events were lost. Only the durable rows change: a repair decides nothing about claims.
    fn lose(&mut self, _topic: u32, _runs: &[(Sequence, Sequence)]) {}
    fn apply_group_progress(&mut self, group: &str, topic: u32, change: &GroupProgressChange<'_>, at: Position);
    /// Whether more than one claim of an event may be in the log: it is handed out again after it was finished.
    fn is_contended(&self, key: &ClaimKey) -> bool;
    /// Removes everything about a handler: in one topic, or in all.
    fn forget(&mut self, handler: &str, topic: Option<u32>);
    /// Removes everything about a topic. Only the durable rows do so: decisions about a deleted topic are refused.
    fn forget_topic(&mut self, _topic: u32) {}
    /// The log has an entry about a handler, with this time.
    fn touch(&mut self, handler: &str, time: i64);

    /// Applies one entry. Total: an entry about an unknown claim, or about something else, changes nothing.
    fn apply(&mut self, entry: &Entry, header: &RecordHeader) {
        let time = header.time;
        match entry {
            Entry::HandlerPut { name, definition } => self.put_policy(name, definition.clone()),
            Entry::ClaimTaken { claim, event, owner, lease_millis, attempt } => {
                let grant = ClaimGrant { event: *event, owner, lease_millis: *lease_millis, attempt: *attempt };
                self.take(claim, grant, header);
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
                    let is_only_claim = row.claims == 1 && !self.is_contended(claim);
                    let finish = if is_only_claim { FinishedBy::First } else { FinishedBy::By(*token) };
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
            Entry::EventsLost { number, runs } => self.lose(*number, runs),
            Entry::GroupBegan { group, topic, offset } => {
                self.apply_group_progress(group, *topic, &GroupProgressChange::Began(*offset), header.position);
            }
            Entry::EventsPassed { group, topic, runs } => {
                self.apply_group_progress(group, *topic, &GroupProgressChange::Passed(runs), header.position);
            }
            Entry::EventsRepeated { group, topic, from, to, copies } => {
                let change = GroupProgressChange::Repeated { from: *from, to: *to, copies };
                self.apply_group_progress(group, *topic, &change, header.position);
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

    /// An operator has resolved the dead letter of a claim.
    fn resolve(&mut self, key: &ClaimKey, finish: FinishedBy) {
        if let Some(ClaimSlot::Open(_)) = self.known(key) {
            self.put(key, ClaimSlot::Finished(finish));
        }
    }

    /// A claim is granted: the event's first, or a later one.
    fn take(&mut self, key: &ClaimKey, grant: ClaimGrant<'_>, header: &RecordHeader) {
        let (time, token) = (header.time, FencingToken(header.position.get()));
        let ClaimGrant { event, owner, lease_millis, attempt } = grant;
        let mut row = match self.known(key) {
            Some(ClaimSlot::Open(row)) => row,
            Some(ClaimSlot::Finished(_)) => return,
            None => ClaimRow::new(event, time),
        };
        // Taken over from a worker whose lease has expired.
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

/// A change to a shared group's progress in a topic.
pub(in crate::ledger) enum GroupProgressChange<'a> {
    Began(Offset),
    Passed(&'a [(Sequence, Sequence)]),
    /// A range, and copies in it whose originals are not: the sequence that identifies each, and its own.
    Repeated {
        from: Sequence,
        to: Sequence,
        copies: &'a [(Sequence, Sequence)],
    },
    Moved(Offset),
}

/// What an entry says about the claim that it grants.
pub(in crate::ledger) struct ClaimGrant<'a> {
    event: Uuid,
    owner: &'a str,
    lease_millis: i64,
    attempt: u32,
}

impl ClaimRow {
    /// The row of an event that was not claimed before.
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
    /// Lets every lease end so much later: no time has passed for them.
    pub(in crate::ledger) fn extend_leases(&mut self, millis: i64) {
        let topics = self.handlers.values_mut().flat_map(|handler| handler.topics.values_mut());
        topics.for_each(|claims| claims.open.extend_leases(millis));
    }

    fn topic_mut(&mut self, handler: &str, topic: u32) -> Option<&mut TopicClaims> {
        if !self.handlers.contains_key(handler) {
            self.handlers.insert(handler.to_owned(), HandlerRows::default());
        }
        Some(self.handlers.get_mut(handler)?.topics.entry(topic).or_default())
    }
}

impl TopicClaims {
    /// A group that does not distribute the topic yet starts with `Began`; until then nothing else changes it.
    fn change_progress(&mut self, change: &GroupProgressChange<'_>, at: Position) {
        match (&mut self.division, change) {
            (None, GroupProgressChange::Began(offset)) => self.division = Some(GroupProgress::starting_at(*offset, at)),
            (Some(division), GroupProgressChange::Passed(runs)) => division.pass(runs),
            (Some(division), GroupProgressChange::Repeated { from, to, copies }) => {
                let mut again: Vec<_> = self.finished.run(*from, *to).collect();
                let is_repeatable = |key| self.finished.get(key).is_some() && !self.finished.is_replaced(key);
                let copies: Vec<_> = copies.iter().filter(|(key, _)| is_repeatable(*key)).collect();
                self.finished.clear(*from, *to);
                for (key, place) in copies {
                    self.finished.clear(*key, *key);
                    again.push(*place);
                }
                again.sort_unstable();
                division.repeat(&again, at);
            }
            (Some(division), GroupProgressChange::Moved(offset)) => {
                let offset = Sequence::from(*offset);
                if offset < division.watermark() {
                    self.finished.clear(self.finished.start_of_repeat(offset.next()), Sequence(u64::MAX));
                }
                division.move_to(offset.into(), at);
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

    fn is_contended(&self, key: &ClaimKey) -> bool {
        self.claims(&key.handler, key.topic).is_some_and(|claims| claims.finished.is_contended(key.sequence))
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
                debug_assert!(claims.is_finished(key.sequence), "a claim that was put as finished is finished");
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

    fn lose(&mut self, topic: u32, runs: &[(Sequence, Sequence)]) {
        Self::lose(self, topic, runs);
    }

    fn forget(&mut self, handler: &str, topic: Option<u32>) {
        let Some(known) = self.handlers.get_mut(handler) else { return };
        let removed = match topic {
            Some(topic) => known.topics.remove(&topic).map(|claims| (topic, claims)).into_iter().collect(),
            None => std::mem::take(&mut known.topics),
        };
        if topic.is_none() || (known.topics.is_empty() && known.policy.is_none()) {
            self.handlers.remove(handler);
        }
        self.deletions += 1;
        for (topic, claims) in removed {
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
        claims.change_progress(change, at);
        if !matches!(change, GroupProgressChange::Passed(_)) {
            self.feeds.note(group, topic, None);
        }
    }
}
