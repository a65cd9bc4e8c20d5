//! One shared group in one topic, in this process: its backlog, kept up to date with the log, and its waiting polls.
//!
//! - Locks are taken in one order, the backlog's and then that of the claims; neither is held across an await.

use super::PeerSource;
use super::backlog::{EventAvailability, GroupBacklog};
use super::poll_queue::WaitRole;
use crate::ledger::{ClaimFeed, ClaimRows, ClaimState, ConsumerFilter, Ledger, RegisteredTopic};
use contract::{Consumer, Position, Sequence};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use uuid::Uuid;

/// A group's work in a topic.
pub(super) struct SharedGroup {
    pub(super) name: String,
    topic: Arc<RegisteredTopic>,
    /// The filter of the group's members, as they spell it.
    filter: ConsumerFilter,
    backlog: Mutex<GroupBacklog>,
    /// The changes of its claims, which wake its polls.
    pub(super) feed: Arc<ClaimFeed>,
    /// Held while the log is read, so that it is read once for all polls.
    pub(super) scan_lock: tokio::sync::Mutex<()>,
    presence: Mutex<PresentMembers>,
}

/// The members that share the work, as last counted.
#[derive(Default)]
struct PresentMembers {
    /// In milliseconds.
    counted_at: i64,
    /// How many consumers the group had in the log at that time.
    count: usize,
    members: HashSet<Uuid>,
}

/// For how long a count of members is used, in milliseconds: the cost of counting grows with the group.
const RECOUNT_MILLIS: i64 = 1000;

/// What a member can take.
pub(super) struct MemberDemand {
    pub(super) member: Uuid,
    pub(super) owner: String,
    /// Most events for one poll.
    pub(super) limit: usize,
    /// Most events in flight.
    pub(super) in_flight_max: usize,
    /// How many members there are.
    pub(super) members: usize,
}

impl SharedGroup {
    pub(super) fn new(consumer: &Consumer, ledger: &Ledger, topic: &Arc<RegisteredTopic>) -> Self {
        let name = consumer.consumer_group.clone();
        let feed = ledger.claims().feed(&name, topic.number.0);
        let (scan_lock, presence) = (tokio::sync::Mutex::default(), Mutex::default());
        Self {
            name,
            topic: Arc::clone(topic),
            filter: ConsumerFilter::of(consumer),
            backlog: Mutex::default(),
            feed,
            scan_lock,
            presence,
        }
    }

    /// Whether this is the group of a consumer of this topic, with the same filter.
    pub(super) fn is_of(&self, consumer: &Consumer, topic: &RegisteredTopic) -> bool {
        self.topic.is_same(topic) && self.filter == ConsumerFilter::of(consumer)
    }

    fn number(&self) -> u32 {
        self.topic.number.0
    }

    /// The backlog, not brought up to date.
    pub(super) fn lock(&self) -> MutexGuard<'_, GroupBacklog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The backlog, up to date with the durable state; `None` if the group does not share the topic yet.
    pub(super) fn refreshed_backlog(&self, ledger: &Ledger, now: i64) -> Option<MutexGuard<'_, GroupBacklog>> {
        let mut backlog = self.lock();
        // Taken before the rows are read: a change in between is then noted again.
        let changes = self.feed.take();
        let claims = ledger.claims();
        let division = claims.group_progress(&self.name, self.number())?;
        if changes.everything || backlog.generation() != Some(division.generation()) {
            backlog.begin(division.generation(), division.watermark());
        }
        let look = self.availability(&claims, now);
        changes.sequences.into_iter().for_each(|sequence| backlog.settle(sequence, &look));
        backlog.recheck_due(now, &look);
        Some(backlog)
    }

    /// How many members share the work, including this one.
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
    fn room(&self, backlog: &GroupBacklog, claims: &ClaimRows, now: i64, demand: &MemberDemand) -> usize {
        let held = claims.held_by(&self.name, self.number(), &demand.owner, now);
        demand.in_flight_max.saturating_sub(held + backlog.offered_to(demand.member))
    }

    /// Whether the group's events can be handed out at a time, by their keys.
    pub(super) fn availability<'a>(
        &'a self,
        claims: &'a ClaimRows,
        now: i64,
    ) -> impl Fn(Sequence) -> EventAvailability + 'a {
        move |sequence| match claims.state_of(&self.name, self.number(), sequence) {
            Some(ClaimState::Live { until: at } | ClaimState::Failed { retry_at: at }) if at > now => {
                EventAvailability::Until(at)
            }
            Some(ClaimState::Dead { .. }) => EventAvailability::Stuck,
            Some(_) => EventAvailability::Again,
            None if claims.is_finished(&self.name, self.number(), sequence) => EventAvailability::Finished,
            None => EventAvailability::Free,
        }
    }

    /// Offers a member its share of the events that are ready, minus what the polls before it in the queue can take.
    pub(super) fn offer(
        self: &Arc<Self>,
        ledger: &Arc<Ledger>,
        now: i64,
        demand: &MemberDemand,
        request: Option<u64>,
    ) -> OfferedEvents {
        let mut offered = OfferedEvents::empty(self, ledger, now);
        let Some(mut backlog) = self.refreshed_backlog(ledger, now) else { return offered };
        let room = self.room(&backlog, &ledger.claims(), now, demand);
        let ready = backlog.ready();
        let share = ready.div_ceil(demand.members.max(1));
        let free = ready.saturating_sub(backlog.poll_queue.ahead_of(request, ready));
        offered.sequences = backlog.offer(demand.member, demand.limit.min(room).min(share).min(free));
        offered.generation = backlog.generation();
        if let Some(request) = request.filter(|_| room == 0 || !offered.sequences.is_empty()) {
            // A poll that can take nothing, or that gets events, leaves the queue.
            backlog.poll_queue.leave(request);
        }
        backlog.poll_queue.wake(backlog.ready());
        offered
    }

    /// A ticket for the queue.
    pub(super) fn take_ticket(self: &Arc<Self>) -> QueueTicket {
        QueueTicket { ticket: self.lock().poll_queue.ticket(), call: Arc::default(), group: Arc::clone(self) }
    }
}

/// A poll's place in the queue.
pub(super) struct QueueTicket {
    pub(super) ticket: u64,
    /// Wakes the poll.
    pub(super) call: Arc<Notify>,
    group: Arc<SharedGroup>,
}

impl QueueTicket {
    /// Joins the queue, unless the member can take nothing.
    pub(super) fn wait_in_queue(&self, ledger: &Ledger, now: i64, demand: &MemberDemand) -> WaitRole {
        let mut backlog = self.group.lock();
        if self.group.room(&backlog, &ledger.claims(), now, demand) > 0 {
            return backlog.poll_queue.join(self.ticket, &self.call);
        }
        backlog.poll_queue.leave(self.ticket);
        WaitRole::Aside
    }
}

impl Drop for QueueTicket {
    /// The next poll can take what was left for this one.
    fn drop(&mut self) {
        let mut backlog = self.group.lock();
        if backlog.poll_queue.leave(self.ticket) {
            backlog.poll_queue.wake(backlog.ready());
        }
    }
}

/// Events that are offered to a member until that is decided, and passed events to record with them.
pub(super) struct OfferedEvents {
    group: Arc<SharedGroup>,
    ledger: Arc<Ledger>,
    now: i64,
    pub(super) generation: Option<Position>,
    pub(super) sequences: Vec<Sequence>,
    /// The passed events to record.
    pub(super) passed: Vec<(Sequence, Sequence)>,
}

impl OfferedEvents {
    fn empty(group: &Arc<SharedGroup>, ledger: &Arc<Ledger>, now: i64) -> Self {
        let (group, ledger) = (Arc::clone(group), Arc::clone(ledger));
        Self { group, ledger, now, generation: None, sequences: Vec::new(), passed: Vec::new() }
    }

    /// Records the group's passed events with it.
    pub(super) fn with_passed(&mut self) {
        let mut backlog = self.group.lock();
        if backlog.generation() == self.generation {
            self.passed = backlog.take_passed();
        }
    }

    /// It is decided: the passed events are recorded.
    pub(super) fn mark_decided(&mut self) {
        self.passed.clear();
    }
}

impl Drop for OfferedEvents {
    /// Events that the member did not get can go to others. Passed events that were not recorded must be found again.
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
        backlog.poll_queue.wake(if is_news { backlog.ready().max(1) } else { 0 });
    }
}
