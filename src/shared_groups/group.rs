//! One shared group in one topic, as this process knows it: its backlog, kept in step with the log, and who waits.
//!
//! - Locks are taken in one order, the backlog's and then that of the claims; and neither is held while anything is waited
//!   for.

use super::PeerSource;
use super::backlog::{EventAvailability, GroupBacklog};
use super::poll_queue::WaitRole;
use crate::ledger::{ClaimFeed, ClaimRows, ClaimState, ConsumerFilter, Ledger};
use contract::{Consumer, Position, Sequence};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use uuid::Uuid;

/// A group's work in a topic.
pub(super) struct SharedGroup {
    name: String,
    number: u32,
    /// What the group's members want, as they spell it.
    filter: ConsumerFilter,
    backlog: Mutex<GroupBacklog>,
    /// What changes of its claims, and who is woken by it.
    pub(super) feed: Arc<ClaimFeed>,
    /// Whose turn it is to look further. Held while the log is read, so that it is read once for all who wait for it.
    pub(super) turn: tokio::sync::Mutex<()>,
    presence: Mutex<PresentMembers>,
}

/// Which members share the work, as they were last counted.
#[derive(Default)]
struct PresentMembers {
    /// In milliseconds.
    counted_at: i64,
    /// How many consumers the group had in the log then.
    count: usize,
    members: HashSet<Uuid>,
}

/// A count of members is believed for so long, in milliseconds: counting costs what the group is large.
const RECOUNT_MILLIS: i64 = 1000;

/// What a member may take.
pub(super) struct MemberDemand {
    pub(super) member: Uuid,
    pub(super) owner: String,
    /// Most events for one poll.
    pub(super) limit: usize,
    /// Most events in hand.
    pub(super) in_flight_max: usize,
    /// How many members there are.
    pub(super) members: usize,
}

impl SharedGroup {
    pub(super) fn new(consumer: &Consumer, ledger: &Ledger, number: u32) -> Self {
        let name = consumer.consumer_group.clone();
        let feed = ledger.claims().feed(&name, number);
        let (turn, presence) = (tokio::sync::Mutex::default(), Mutex::default());
        Self { name, number, filter: ConsumerFilter::of(consumer), backlog: Mutex::default(), feed, turn, presence }
    }

    /// Whether a member of this group, with its filter, is meant.
    pub(super) fn is_of(&self, consumer: &Consumer) -> bool {
        self.filter == ConsumerFilter::of(consumer)
    }

    /// Its backlog as it is.
    pub(super) fn lock(&self) -> MutexGuard<'_, GroupBacklog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its backlog, in step with what is durable; `None` while the group does not divide the topic.
    pub(super) fn refreshed_backlog(&self, ledger: &Ledger, now: i64) -> Option<MutexGuard<'_, GroupBacklog>> {
        let mut backlog = self.lock();
        // Taken before the rows are looked at: what changes in between is told again.
        let changes = self.feed.take();
        let claims = ledger.claims();
        let division = claims.group_progress(&self.name, self.number)?;
        if changes.everything || backlog.generation() != Some(division.generation()) {
            backlog.begin(division.generation(), division.watermark());
        }
        let look = self.availability(&claims, now);
        changes.sequences.into_iter().for_each(|sequence| backlog.settle(sequence, &look));
        backlog.recheck_due(now, &look);
        Some(backlog)
    }

    /// How many members share the work, this one among them.
    pub(super) fn members(&self, peers: &dyn PeerSource, member: Uuid, now: i64) -> usize {
        let mut presence = self.presence.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, age) = (peers.count(), now.saturating_sub(presence.counted_at));
        let is_new = !presence.members.contains(&member);
        if is_new || count != presence.count || !(0..RECOUNT_MILLIS).contains(&age) {
            *presence = PresentMembers { counted_at: now, count, members: peers.present().into_iter().collect() };
        }
        presence.members.insert(member);
        presence.members.len()
    }

    /// How many more events a member may have.
    fn room(&self, backlog: &GroupBacklog, claims: &ClaimRows, now: i64, wants: &MemberDemand) -> usize {
        let held = claims.held_by(&self.name, self.number, &wants.owner, now);
        wants.in_flight_max.saturating_sub(held + backlog.offered_to(wants.member))
    }

    /// How the claims of the group's events stand at a time.
    pub(super) fn availability<'a>(
        &'a self,
        claims: &'a ClaimRows,
        now: i64,
    ) -> impl Fn(Sequence) -> EventAvailability + 'a {
        move |sequence| match claims.state_of(&self.name, self.number, sequence) {
            Some(ClaimState::Live { until: at } | ClaimState::Failed { retry_at: at }) if at > now => {
                EventAvailability::Until(at)
            }
            Some(ClaimState::Dead { .. }) => EventAvailability::Stuck,
            Some(_) => EventAvailability::Again,
            None if claims.is_finished(&self.name, self.number, sequence) => EventAvailability::Finished,
            None => EventAvailability::Free,
        }
    }

    /// Offers a member its share of what is ready. Whoever waits longer is left as much as he can take.
    pub(super) fn offer(
        self: &Arc<Self>,
        ledger: &Arc<Ledger>,
        now: i64,
        wants: &MemberDemand,
        request: Option<u64>,
    ) -> OfferedEvents {
        let mut offered = OfferedEvents::empty(self, ledger, now);
        let Some(mut backlog) = self.refreshed_backlog(ledger, now) else { return offered };
        let room = self.room(&backlog, &ledger.claims(), now, wants);
        let ready = backlog.ready();
        let share = ready.div_ceil(wants.members.max(1));
        let free = ready.saturating_sub(backlog.line.ahead_of(request, ready));
        offered.sequences = backlog.offer(wants.member, wants.limit.min(room).min(share).min(free));
        offered.generation = backlog.generation();
        if let Some(request) = request.filter(|_| room == 0 || !offered.sequences.is_empty()) {
            // Who can take nothing, or has got something, keeps nobody waiting.
            backlog.line.leave(request);
        }
        backlog.line.wake(backlog.ready());
        offered
    }

    /// A place in the line of those who wait, to be taken.
    pub(super) fn take_ticket(self: &Arc<Self>) -> QueueTicket {
        QueueTicket { ticket: self.lock().line.ticket(), call: Arc::default(), group: Arc::clone(self) }
    }
}

/// A place in the line.
pub(super) struct QueueTicket {
    pub(super) ticket: u64,
    /// Tells the poll to look again.
    pub(super) call: Arc<Notify>,
    group: Arc<SharedGroup>,
}

impl QueueTicket {
    /// Waits in the line, unless the member can take nothing.
    pub(super) fn wait_in_queue(&self, ledger: &Ledger, now: i64, wants: &MemberDemand) -> WaitRole {
        let mut backlog = self.group.lock();
        if self.group.room(&backlog, &ledger.claims(), now, wants) > 0 {
            return backlog.line.join(self.ticket, &self.call);
        }
        backlog.line.leave(self.ticket);
        WaitRole::Aside
    }
}

impl Drop for QueueTicket {
    /// Whoever stands behind may take what was left for this one.
    fn drop(&mut self) {
        let mut backlog = self.group.lock();
        if backlog.line.leave(self.ticket) {
            backlog.line.wake(backlog.ready());
        }
    }
}

/// Events that stand aside for a member until that is decided, and what is to be told with them.
pub(super) struct OfferedEvents {
    group: Arc<SharedGroup>,
    ledger: Arc<Ledger>,
    now: i64,
    pub(super) generation: Option<Position>,
    pub(super) sequences: Vec<Sequence>,
    /// What is told to be passed.
    pub(super) passed: Vec<(Sequence, Sequence)>,
}

impl OfferedEvents {
    fn empty(group: &Arc<SharedGroup>, ledger: &Arc<Ledger>, now: i64) -> Self {
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
    pub(super) fn mark_decided(&mut self) {
        self.passed.clear();
    }
}

impl Drop for OfferedEvents {
    /// What the member has not got may go to others. What was passed and not told must be found again.
    fn drop(&mut self) {
        if self.sequences.is_empty() && self.passed.is_empty() {
            return;
        }
        let mut backlog = self.group.lock();
        let claims = self.ledger.claims();
        backlog.end_offer(&self.sequences, &self.group.availability(&claims, self.now));
        drop(claims);
        if !self.passed.is_empty() {
            backlog.invalidate();
        }
        let is_news = backlog.ready() > 0 || backlog.generation().is_none();
        backlog.line.wake(if is_news { backlog.ready().max(1) } else { 0 });
    }
}
