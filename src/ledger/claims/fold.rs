//! The fold of facts about claims, the same for durable rows and for those that are not durable yet.

use super::{ClaimKey, ClaimRow, ClaimRows, Finish, HandlerRows, Slot, Standing, lease_expired};
use crate::ledger::entry::Entry;
use contract::{NewHandler, Sequence, Token};
use log::Header;
use uuid::Uuid;

/// Where facts about claims are folded.
pub(in crate::ledger) trait Rows {
    fn known(&self, key: &ClaimKey) -> Option<Slot>;
    fn put(&mut self, key: &ClaimKey, slot: Slot);
    fn put_policy(&mut self, handler: &str, policy: NewHandler);
    fn trim(&mut self, topic: u32, through: Sequence, time: i64);

    /// Takes in one fact. Total: a fact about an unknown claim, or something else, changes nothing.
    fn apply(&mut self, entry: &Entry, header: &Header) {
        let time = header.time;
        match entry {
            Entry::HandlerPut { name, definition } => self.put_policy(name, definition.clone()),
            Entry::ClaimTaken { claim, event, owner, lease_millis, attempt } => {
                let given = Given { event: *event, owner, lease_millis: *lease_millis, attempt: *attempt };
                self.take(claim, given, header);
            }
            Entry::ClaimExtended { claim } => self.change(claim, |row| {
                row.standing = Standing::Live { until: time.saturating_add(row.lease_millis) };
            }),
            Entry::ClaimDone { claim, token } => {
                if let Some(Slot::Open(row)) = self.known(claim) {
                    let finish = if row.claims == 1 { Finish::First } else { Finish::By(*token) };
                    self.put(claim, Slot::Finished(finish));
                }
            }
            Entry::ClaimFailed { claim, error, retry_at } => self.change(claim, |row| {
                row.failed(error.clone(), time);
                row.standing = Standing::Failed { retry_at: retry_at.unwrap_or(time) };
            }),
            Entry::DeadLettered { letter } if letter.job.is_none() => self.change(&letter.key(), |row| {
                row.standing = Standing::Dead { letter: letter.id, superseded: letter.superseded };
            }),
            Entry::Redriven { claim: Some(claim), new_event: None, .. } => self.change(claim, |row| {
                (row.standing, row.redriven, row.attempt) = (Standing::Redriven, true, 0);
                row.attempts.clear();
            }),
            Entry::Redriven { claim: Some(claim), .. } | Entry::Discarded { claim: Some(claim), .. } => {
                if let Some(Slot::Open(_)) = self.known(claim) {
                    self.put(claim, Slot::Finished(Finish::Nobody));
                }
            }
            Entry::TopicTrimmed { number, through } => self.trim(*number, *through, time),
            _ => (),
        }
    }

    /// A claim is given: the event's first, or one after another.
    fn take(&mut self, key: &ClaimKey, given: Given<'_>, header: &Header) {
        let (time, token) = (header.time, Token(header.position.get()));
        let Given { event, owner, lease_millis, attempt } = given;
        let mut row = match self.known(key) {
            Some(Slot::Open(row)) => row,
            Some(Slot::Finished(_)) => return,
            None => ClaimRow::new(event, time),
        };
        // Taken over from somebody who fell silent.
        if matches!(row.standing, Standing::Live { .. }) && row.claims > 0 {
            row.failed(lease_expired(), time);
        }
        row.claims = row.claims.saturating_add(1);
        owner.clone_into(&mut row.owner);
        (row.token, row.attempt, row.lease_millis, row.taken_at) = (token, attempt, lease_millis, time);
        row.standing = Standing::Live { until: time.saturating_add(lease_millis) };
        self.put(key, Slot::Open(row));
    }

    fn change(&mut self, key: &ClaimKey, change: impl FnOnce(&mut ClaimRow)) {
        if let Some(Slot::Open(mut row)) = self.known(key) {
            change(&mut row);
            self.put(key, Slot::Open(row));
        }
    }
}

/// What a claim was given with.
pub(in crate::ledger) struct Given<'a> {
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
            token: Token::ZERO,
            attempt: 0,
            claims: 0,
            owner: String::new(),
            lease_millis: 0,
            taken_at: time,
            standing: Standing::Redriven,
            redriven: false,
            attempts: Vec::new(),
        }
    }
}

impl Rows for ClaimRows {
    fn known(&self, key: &ClaimKey) -> Option<Slot> {
        self.slot(key)
    }

    fn put(&mut self, key: &ClaimKey, slot: Slot) {
        if !self.handlers.contains_key(&key.handler) {
            self.handlers.insert(key.handler.clone(), HandlerRows::default());
        }
        let Some(known) = self.handlers.get_mut(&key.handler) else { return };
        let claims = known.topics.entry(key.topic).or_default();
        let before = claims.open.len();
        match slot {
            Slot::Open(row) => drop(claims.open.insert(key.sequence, row)),
            Slot::Finished(finish) => {
                claims.open.remove(&key.sequence);
                claims.finished.insert(key.sequence, finish);
            }
        }
        self.open = (self.open + claims.open.len()).saturating_sub(before);
    }

    fn put_policy(&mut self, handler: &str, policy: NewHandler) {
        self.handlers.entry(handler.to_owned()).or_default().policy = Some(policy);
    }

    fn trim(&mut self, topic: u32, through: Sequence, time: i64) {
        Self::trim(self, topic, through, time);
    }
}
