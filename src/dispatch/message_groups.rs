//! Message groups: which job of a group may be sent.
//!
//! - A group belongs to a subscription: its live jobs and those of its replays are one group.
//! - One job of a group is in flight at a time, in every ordered mode, at a first attempt and at a retry.
//! - BLOCK_ON_ERROR: the lowest job that is not done is sent, waits, or blocks the group; no job overtakes it. The
//!   blocking job is found by position, never by membership, so a job cannot block itself.
//! - NEXT_ON_ERROR: the lowest job that has not failed yet is sent; failed jobs are retried on their own.
//! - Of several lanes, one with a failed or deferred job goes first, so that no replay overtakes a blocked group;
//!   otherwise the one with the lowest sequence, and of the same event the live job.

use super::lane::{EventArrival, LaneKey, PlannedJob};
use contract::Sequence;
use std::collections::BTreeMap;

/// A job in a group: its lane and its number.
pub(super) type GroupPlace = (LaneKey, Sequence);

/// A job with a row that waits in its group.
pub(super) enum WaitingMember {
    Row(Box<PlannedJob>),
    /// It was given up, and blocks the group.
    Dead,
    /// It is in its lane, ready to be sent, or being given up.
    Out,
}

/// A job that is given up because of its age while it waits in its group.
pub(super) enum ExpiredMember {
    Fresh(EventArrival),
    Row(Box<PlannedJob>),
}

/// The jobs of one lane in a group that are not done.
struct GroupQueue {
    lane: LaneKey,
    is_replay: bool,
    /// Jobs without a row.
    fresh: BTreeMap<Sequence, EventArrival>,
    rows: BTreeMap<Sequence, WaitingMember>,
}

impl GroupQueue {
    fn first(&self) -> Option<Sequence> {
        let (fresh, row) = (self.fresh.keys().next(), self.rows.keys().next());
        fresh.into_iter().chain(row).min().copied()
    }

    fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.rows.is_empty()
    }

    fn remove(&mut self, sequence: Sequence) {
        self.fresh.remove(&sequence);
        self.rows.remove(&sequence);
    }
}

/// The jobs of one group that are not done.
#[derive(Default)]
pub(super) struct MessageGroup {
    queues: Vec<GroupQueue>,
    /// The one in flight.
    busy: Option<GroupPlace>,
    /// The head of the group, ready in its lane.
    out: Option<GroupPlace>,
    /// Jobs that became due while another one was in flight.
    held: Vec<(LaneKey, PlannedJob)>,
}

/// What to do after a group changed.
pub(super) enum GroupPromotion {
    Nothing,
    /// This job without a row moves to its lane.
    Fresh(GroupPlace, EventArrival),
    Row(LaneKey, Box<PlannedJob>),
    /// This job must return from its lane: another one is the head now.
    Recall(GroupPlace),
}

impl MessageGroup {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.busy.is_none() && self.held.is_empty()
    }

    fn queue(&mut self, lane: LaneKey, is_replay: bool) -> Option<&mut GroupQueue> {
        if !self.queues.iter().any(|queue| queue.lane == lane) {
            self.queues.push(GroupQueue { lane, is_replay, fresh: BTreeMap::new(), rows: BTreeMap::new() });
        }
        self.existing_queue(lane)
    }

    fn existing_queue(&mut self, lane: LaneKey) -> Option<&mut GroupQueue> {
        self.queues.iter_mut().find(|queue| queue.lane == lane)
    }

    /// Adds a job without a row.
    pub(super) fn add_fresh(&mut self, (lane, sequence): GroupPlace, is_replay: bool, event: EventArrival) {
        if let Some(queue) = self.queue(lane, is_replay) {
            queue.fresh.insert(sequence, event);
        }
    }

    pub(super) fn add(&mut self, (lane, sequence): GroupPlace, is_replay: bool, member: WaitingMember) {
        if let Some(queue) = self.queue(lane, is_replay) {
            queue.fresh.remove(&sequence);
            queue.rows.insert(sequence, member);
        }
    }

    /// Removes the jobs of a lane; the one in flight stays.
    pub(super) fn remove_lane(&mut self, lane: LaneKey) {
        self.queues.retain(|queue| queue.lane != lane);
        self.held.retain(|(of, _)| *of != lane);
        self.out = self.out.filter(|(of, _)| *of != lane);
    }

    /// The job whose turn it is.
    fn head(&self) -> Option<GroupPlace> {
        let places = self.queues.iter().filter_map(|queue| {
            let first = queue.first()?;
            let row = queue.rows.keys().next();
            let key = (row.is_none(), row.copied().unwrap_or(first), queue.is_replay);
            Some((key, (queue.lane, first)))
        });
        places.min().map(|(_, place)| place)
    }

    /// Which job moves to its lane now.
    pub(super) fn promote(&mut self) -> GroupPromotion {
        if self.busy.is_some() {
            return GroupPromotion::Nothing;
        }
        let Some(head) = self.head() else { return GroupPromotion::Nothing };
        match self.out {
            Some(out) if out == head => return GroupPromotion::Nothing,
            Some(out) => return GroupPromotion::Recall(out),
            None => (),
        }
        let (lane, sequence) = head;
        let Some(queue) = self.existing_queue(lane) else { return GroupPromotion::Nothing };
        if let Some(event) = queue.fresh.get(&sequence).copied() {
            self.out = Some(head);
            return GroupPromotion::Fresh(head, event);
        }
        let Some(member) = queue.rows.get_mut(&sequence) else { return GroupPromotion::Nothing };
        match std::mem::replace(member, WaitingMember::Out) {
            WaitingMember::Row(job) => {
                self.out = Some(head);
                GroupPromotion::Row(lane, job)
            }
            kept => {
                *member = kept;
                GroupPromotion::Nothing
            }
        }
    }

    /// A job returns from its lane.
    pub(super) fn recall(&mut self, lane: LaneKey, job: PlannedJob) {
        self.out = None;
        if let Some(queue) = self.existing_queue(lane)
            && !queue.fresh.contains_key(&job.sequence)
        {
            queue.rows.insert(job.sequence, WaitingMember::Row(Box::new(job)));
        }
    }

    /// Starts a due job, or holds it until the one in flight has ended.
    pub(super) fn begin(&mut self, lane: LaneKey, job: PlannedJob) -> Option<PlannedJob> {
        if self.busy.is_some() {
            self.held.push((lane, job));
            return None;
        }
        let place = (lane, job.sequence);
        self.busy = Some(place);
        self.out = self.out.filter(|out| *out != place);
        Some(job)
    }

    /// Takes out a job that still waits here, because it is given up for its age.
    pub(super) fn expire(&mut self, place: GroupPlace) -> Option<ExpiredMember> {
        let (lane, sequence) = place;
        if self.busy == Some(place) || self.out == Some(place) {
            return None;
        }
        let queue = self.existing_queue(lane)?;
        let known = match queue.rows.remove(&sequence) {
            Some(WaitingMember::Row(job)) => ExpiredMember::Row(job),
            Some(kept) => {
                queue.rows.insert(sequence, kept);
                return None;
            }
            None => ExpiredMember::Fresh(queue.fresh.remove(&sequence)?),
        };
        queue.rows.insert(sequence, WaitingMember::Out);
        Some(known)
    }

    /// Whether a job waits here, blocks the group, or is held.
    pub(super) fn contains(&self, (lane, sequence): GroupPlace) -> bool {
        let queue = self.queues.iter().find(|queue| queue.lane == lane);
        queue.is_some_and(|queue| queue.fresh.contains_key(&sequence) || queue.rows.contains_key(&sequence))
            || self.held.iter().any(|(of, job)| *of == lane && job.sequence == sequence)
    }

    /// Removes a job that is not in flight. Returns the jobs that were held.
    pub(super) fn remove(&mut self, place: GroupPlace) -> Vec<(LaneKey, PlannedJob)> {
        self.held.retain(|(lane, job)| (*lane, job.sequence) != place);
        self.end(place)
    }

    /// The job in flight, or ready, has ended. Returns the jobs that were held.
    pub(super) fn end(&mut self, place: GroupPlace) -> Vec<(LaneKey, PlannedJob)> {
        self.busy = self.busy.filter(|busy| *busy != place);
        self.out = self.out.filter(|out| *out != place);
        if let Some(queue) = self.existing_queue(place.0) {
            queue.remove(place.1);
        }
        self.queues.retain(|queue| !queue.is_empty());
        match self.busy {
            None => std::mem::take(&mut self.held),
            Some(_) => Vec::new(),
        }
    }
}
