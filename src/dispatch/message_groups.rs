//! Message groups: which job of a group may go.
//!
//! - A group belongs to a subscription: its live jobs and those of its replays are one group.
//! - One job of a group is under way at a time, whatever the mode, and whether it is tried for the first time or again.
//! - BLOCK_ON_ERROR: the lowest job that is not over goes, or waits, or holds the group; nothing passes it. What holds is
//!   found by position, never by membership, so a job cannot hold itself.
//! - NEXT_ON_ERROR: the lowest job that has not failed yet goes; those that failed go again on their own.
//! - Of several lanes, one with a job that failed or was put off goes first, so that no replay passes a blocked group; else
//!   the one with the lowest sequence, and of one event the live job.

use super::lane::{EventArrival, LaneKey, PlannedJob};
use contract::Sequence;
use std::collections::BTreeMap;

/// A job in a group.
pub(super) type GroupPlace = (LaneKey, Sequence);

/// A job with a story that waits in its group.
pub(super) enum WaitingMember {
    Row(Box<PlannedJob>),
    /// Given up.
    Dead,
    /// It is out: waiting for its turn in the lane, or on its way to being given up.
    Out,
}

/// A job that is given up because of its age while it waits in its group.
pub(super) enum ExpiredMember {
    Fresh(EventArrival),
    Row(Box<PlannedJob>),
}

/// The jobs of one lane in a group that are not over.
struct GroupQueue {
    lane: LaneKey,
    is_replay: bool,
    /// Those not tried yet, with what is known of their events.
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

/// The jobs of one group that are not over.
#[derive(Default)]
pub(super) struct MessageGroup {
    queues: Vec<GroupQueue>,
    /// The one under way.
    busy: Option<GroupPlace>,
    /// The one that is next, out in its lane.
    out: Option<GroupPlace>,
    /// Those whose time came while another was under way.
    held: Vec<(LaneKey, PlannedJob)>,
}

/// What to do about a group after it changed.
pub(super) enum GroupPromotion {
    Nothing,
    /// This one, not tried yet, goes out.
    Fresh(GroupPlace, EventArrival),
    Row(LaneKey, Box<PlannedJob>),
    /// This one is out, and must come back: another goes before it.
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

    /// A job not tried yet.
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

    /// Nothing more of this lane goes; what is under way stays so.
    pub(super) fn remove_lane(&mut self, lane: LaneKey) {
        self.queues.retain(|queue| queue.lane != lane);
        self.held.retain(|(of, _)| *of != lane);
        self.out = self.out.filter(|(of, _)| *of != lane);
    }

    /// Whose turn it is.
    fn head(&self) -> Option<GroupPlace> {
        let places = self.queues.iter().filter_map(|queue| {
            let first = queue.first()?;
            let row = queue.rows.keys().next();
            let key = (row.is_none(), row.copied().unwrap_or(first), queue.is_replay);
            Some((key, (queue.lane, first)))
        });
        places.min().map(|(_, place)| place)
    }

    /// Which one goes out now.
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

    /// A job that was out comes back.
    pub(super) fn recall(&mut self, lane: LaneKey, job: PlannedJob) {
        self.out = None;
        if let Some(queue) = self.existing_queue(lane)
            && !queue.fresh.contains_key(&job.sequence)
        {
            queue.rows.insert(job.sequence, WaitingMember::Row(Box::new(job)));
        }
    }

    /// Whether a job whose time has come may begin; else it is held until the one under way is over.
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

    /// Takes out a job that waits here, if it still does, because it is given up for its age.
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

    /// Whether a job waits here, holds the group, or is about to begin.
    pub(super) fn contains(&self, (lane, sequence): GroupPlace) -> bool {
        let queue = self.queues.iter().find(|queue| queue.lane == lane);
        queue.is_some_and(|queue| queue.fresh.contains_key(&sequence) || queue.rows.contains_key(&sequence))
            || self.held.iter().any(|(of, job)| *of == lane && job.sequence == sequence)
    }

    /// Takes out a job that is not in flight. Answers those that were held.
    pub(super) fn remove(&mut self, place: GroupPlace) -> Vec<(LaneKey, PlannedJob)> {
        self.held.retain(|(lane, job)| (*lane, job.sequence) != place);
        self.end(place)
    }

    /// The one under way, or out, is not any more. Answers those that were held.
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
