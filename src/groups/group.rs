//! One shared group in one topic, as this process knows it: its backlog, kept in step with the log, and who waits.
//!
//! - Locks are taken in one order, the backlog's and then that of the claims; and neither is held while anything is waited
//!   for.

use super::Peers;
use super::backlog::{Backlog, Look};
use super::line::Role;
use crate::ledger::{ClaimRows, Feed, Ledger, ReaderFilter, Standing};
use contract::{Consumer, Position, Sequence};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use uuid::Uuid;

/// A group's work in a topic.
pub(super) struct Group {
    name: String,
    number: u32,
    /// What the group's members want, as they spell it.
    filter: ReaderFilter,
    backlog: Mutex<Backlog>,
    /// What changes of its claims, and who is woken by it.
    pub(super) feed: Arc<Feed>,
    /// Whose turn it is to look further. Held while the log is read, so that it is read once for all who wait for it.
    pub(super) turn: tokio::sync::Mutex<()>,
    presence: Mutex<Presence>,
}

/// Which members share the work, as they were last counted.
#[derive(Default)]
struct Presence {
    /// In milliseconds.
    counted_at: i64,
    /// How many consumers the group had in the log then.
    count: usize,
    members: HashSet<Uuid>,
}

/// A count of members is believed for so long, in milliseconds: counting costs what the group is large.
const RECOUNT_MILLIS: i64 = 1000;

/// What a member may take.
pub(super) struct Wants {
    pub(super) member: Uuid,
    pub(super) owner: String,
    /// Most events for one poll.
    pub(super) limit: usize,
    /// Most events in hand.
    pub(super) in_flight_max: usize,
    /// How many members there are.
    pub(super) members: usize,
}

impl Group {
    pub(super) fn new(consumer: &Consumer, ledger: &Ledger, number: u32) -> Self {
        let name = consumer.consumer_group.clone();
        let feed = ledger.claims().feed(&name, number);
        let (turn, presence) = (tokio::sync::Mutex::default(), Mutex::default());
        Self { name, number, filter: ReaderFilter::of(consumer), backlog: Mutex::default(), feed, turn, presence }
    }

    /// Whether a member of this group, with its filter, is meant.
    pub(super) fn is_of(&self, consumer: &Consumer) -> bool {
        self.filter == ReaderFilter::of(consumer)
    }

    /// Its backlog as it is.
    pub(super) fn lock(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its backlog, in step with what is durable; `None` while the group does not divide the topic.
    pub(super) fn now(&self, ledger: &Ledger, now: i64) -> Option<MutexGuard<'_, Backlog>> {
        let mut backlog = self.lock();
        // Taken before the rows are looked at: what changes in between is told again.
        let changes = self.feed.take();
        let claims = ledger.claims();
        let division = claims.division(&self.name, self.number)?;
        if changes.everything || backlog.generation() != Some(division.generation()) {
            backlog.begin(division.generation(), division.watermark());
        }
        let look = self.look(&claims, now);
        changes.sequences.into_iter().for_each(|sequence| backlog.settle(sequence, &look));
        backlog.fire(now, &look);
        Some(backlog)
    }

    /// How many members share the work, this one among them.
    pub(super) fn members(&self, peers: &dyn Peers, member: Uuid, now: i64) -> usize {
        let mut presence = self.presence.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, age) = (peers.count(), now.saturating_sub(presence.counted_at));
        let is_new = !presence.members.contains(&member);
        if is_new || count != presence.count || !(0..RECOUNT_MILLIS).contains(&age) {
            *presence = Presence { counted_at: now, count, members: peers.present().into_iter().collect() };
        }
        presence.members.insert(member);
        presence.members.len()
    }

    /// How many more events a member may have.
    fn room(&self, backlog: &Backlog, claims: &ClaimRows, now: i64, wants: &Wants) -> usize {
        let held = claims.held_by(&self.name, self.number, &wants.owner, now);
        wants.in_flight_max.saturating_sub(held + backlog.offered_to(wants.member))
    }

    /// How the claims of the group's events stand at a time.
    pub(super) fn look<'a>(&'a self, claims: &'a ClaimRows, now: i64) -> impl Fn(Sequence) -> Look + 'a {
        move |sequence| match claims.standing(&self.name, self.number, sequence) {
            Some(Standing::Live { until: at } | Standing::Failed { retry_at: at }) if at > now => Look::Until(at),
            Some(Standing::Dead { .. }) => Look::Stuck,
            Some(_) => Look::Again,
            None if claims.is_finished(&self.name, self.number, sequence) => Look::Finished,
            None => Look::Free,
        }
    }

    /// Offers a member its share of what is ready. Whoever waits longer is left as much as he can take.
    pub(super) fn offer(
        self: &Arc<Self>,
        ledger: &Arc<Ledger>,
        now: i64,
        wants: &Wants,
        ticket: Option<u64>,
    ) -> Offered {
        let mut offered = Offered::nothing(self, ledger, now);
        let Some(mut backlog) = self.now(ledger, now) else { return offered };
        let room = self.room(&backlog, &ledger.claims(), now, wants);
        let ready = backlog.ready();
        let share = ready.div_ceil(wants.members.max(1));
        let free = ready.saturating_sub(backlog.line.ahead_of(ticket, ready));
        offered.sequences = backlog.offer(wants.member, wants.limit.min(room).min(share).min(free));
        offered.generation = backlog.generation();
        if let Some(ticket) = ticket.filter(|_| room == 0 || !offered.sequences.is_empty()) {
            // Who can take nothing, or has got something, keeps nobody waiting.
            backlog.line.leave(ticket);
        }
        backlog.line.call(backlog.ready());
        offered
    }

    /// A place in the line of those who wait, to be taken.
    pub(super) fn line_up(self: &Arc<Self>) -> Place {
        Place { ticket: self.lock().line.ticket(), call: Arc::default(), group: Arc::clone(self) }
    }
}

/// A place in the line.
pub(super) struct Place {
    pub(super) ticket: u64,
    /// Tells the poll to look again.
    pub(super) call: Arc<Notify>,
    group: Arc<Group>,
}

impl Place {
    /// Waits in the line, unless the member can take nothing.
    pub(super) fn stand(&self, ledger: &Ledger, now: i64, wants: &Wants) -> Role {
        let mut backlog = self.group.lock();
        if self.group.room(&backlog, &ledger.claims(), now, wants) > 0 {
            return backlog.line.join(self.ticket, &self.call);
        }
        backlog.line.leave(self.ticket);
        Role::Aside
    }
}

impl Drop for Place {
    /// Whoever stands behind may take what was left for this one.
    fn drop(&mut self) {
        let mut backlog = self.group.lock();
        if backlog.line.leave(self.ticket) {
            backlog.line.call(backlog.ready());
        }
    }
}

/// Events that stand aside for a member until that is decided, and what is to be told with them.
pub(super) struct Offered {
    group: Arc<Group>,
    ledger: Arc<Ledger>,
    now: i64,
    pub(super) generation: Option<Position>,
    pub(super) sequences: Vec<Sequence>,
    /// What is told to be passed.
    pub(super) passed: Vec<(Sequence, Sequence)>,
}

impl Offered {
    fn nothing(group: &Arc<Group>, ledger: &Arc<Ledger>, now: i64) -> Self {
        let (group, ledger) = (Arc::clone(group), Arc::clone(ledger));
        Self { group, ledger, now, generation: None, sequences: Vec::new(), passed: Vec::new() }
    }

    /// Tells with it what was passed.
    pub(super) fn with_passed(&mut self) {
        let mut backlog = self.group.lock();
        if backlog.generation() == self.generation {
            self.passed = backlog.take_passed();
        }
    }

    /// It is decided: what was passed is known now.
    pub(super) fn decided(&mut self) {
        self.passed.clear();
    }
}

impl Drop for Offered {
    /// What the member has not got may go to others. What was passed and not told must be found again.
    fn drop(&mut self) {
        if self.sequences.is_empty() && self.passed.is_empty() {
            return;
        }
        let mut backlog = self.group.lock();
        let claims = self.ledger.claims();
        backlog.end_offer(&self.sequences, &self.group.look(&claims, self.now));
        drop(claims);
        if !self.passed.is_empty() {
            backlog.forget();
        }
        let is_news = backlog.ready() > 0 || backlog.generation().is_none();
        backlog.line.call(if is_news { backlog.ready().max(1) } else { 0 });
    }
}
