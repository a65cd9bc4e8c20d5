//! Message groups: which job of a group may go.
//!
//! - A group belongs to a subscription: its live jobs and those of its replays are one group.
//! - One job of a group is under way at a time, whatever the mode, and whether it is tried for the first time or again.
//! - BLOCK_ON_ERROR: the lowest job that is not over goes, or waits, or holds the group; nothing passes it. What holds is
//!   found by position, never by membership, so a job cannot hold itself.
//! - NEXT_ON_ERROR: the lowest job that has not failed yet goes; those that failed go again on their own.
//! - Of several lanes, one with a job that failed or was put off goes first, so that no replay passes a blocked group; else
//!   the one with the lowest sequence, and of one event the live job.

use super::lane::{Arrival, Job, LaneKey};
use contract::Sequence;
use std::collections::BTreeMap;

/// A job in a group.
pub(super) type Place = (LaneKey, Sequence);

/// A job with a story that waits in its group.
pub(super) enum Member {
    Row(Box<Job>),
    /// Given up.
    Dead,
    /// It is out: waiting for its turn in the lane, or on its way to being given up.
    Out,
}

/// The jobs of one lane in a group that are not over.
struct Queue {
    lane: LaneKey,
    is_replay: bool,
    /// Those not tried yet, with what is known of their events.
    fresh: BTreeMap<Sequence, Arrival>,
    rows: BTreeMap<Sequence, Member>,
}

impl Queue {
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
pub(super) struct Group {
    queues: Vec<Queue>,
    /// The one under way.
    busy: Option<Place>,
    /// The one that is next, out in its lane.
    out: Option<Place>,
    /// Those whose time came while another was under way.
    held: Vec<(LaneKey, Job)>,
}

/// What to do about a group after it changed.
pub(super) enum Promotion {
    Nothing,
    /// This one, not tried yet, goes out.
    Fresh(Place, Arrival),
    Row(LaneKey, Box<Job>),
    /// This one is out, and must come back: another goes before it.
    Recall(Place),
}

impl Group {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.busy.is_none() && self.held.is_empty()
    }

    fn queue(&mut self, lane: LaneKey, is_replay: bool) -> Option<&mut Queue> {
        if !self.queues.iter().any(|queue| queue.lane == lane) {
            self.queues.push(Queue { lane, is_replay, fresh: BTreeMap::new(), rows: BTreeMap::new() });
        }
        self.known(lane)
    }

    fn known(&mut self, lane: LaneKey) -> Option<&mut Queue> {
        self.queues.iter_mut().find(|queue| queue.lane == lane)
    }

    /// A job not tried yet.
    pub(super) fn add_fresh(&mut self, (lane, sequence): Place, is_replay: bool, event: Arrival) {
        if let Some(queue) = self.queue(lane, is_replay) {
            queue.fresh.insert(sequence, event);
        }
    }

    pub(super) fn add(&mut self, (lane, sequence): Place, is_replay: bool, member: Member) {
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
    fn head(&self) -> Option<Place> {
        let places = self.queues.iter().filter_map(|queue| {
            let first = queue.first()?;
            let row = queue.rows.keys().next();
            let key = (row.is_none(), row.copied().unwrap_or(first), queue.is_replay);
            Some((key, (queue.lane, first)))
        });
        places.min().map(|(_, place)| place)
    }

    /// Which one goes out now.
    pub(super) fn promote(&mut self) -> Promotion {
        if self.busy.is_some() {
            return Promotion::Nothing;
        }
        let Some(head) = self.head() else { return Promotion::Nothing };
        match self.out {
            Some(out) if out == head => return Promotion::Nothing,
            Some(out) => return Promotion::Recall(out),
            None => (),
        }
        let (lane, sequence) = head;
        let Some(queue) = self.known(lane) else { return Promotion::Nothing };
        if let Some(event) = queue.fresh.get(&sequence).copied() {
            self.out = Some(head);
            return Promotion::Fresh(head, event);
        }
        let Some(member) = queue.rows.get_mut(&sequence) else { return Promotion::Nothing };
        match std::mem::replace(member, Member::Out) {
            Member::Row(job) => {
                self.out = Some(head);
                Promotion::Row(lane, job)
            }
            kept => {
                *member = kept;
                Promotion::Nothing
            }
        }
    }

    /// A job that was out comes back.
    pub(super) fn recalled(&mut self, lane: LaneKey, job: Job) {
        self.out = None;
        if let Some(queue) = self.known(lane)
            && !queue.fresh.contains_key(&job.sequence)
        {
            queue.rows.insert(job.sequence, Member::Row(Box::new(job)));
        }
    }

    /// Whether a job whose time has come may begin; else it is held until the one under way is over.
    pub(super) fn begin(&mut self, lane: LaneKey, job: Job) -> Option<Job> {
        if self.busy.is_some() {
            self.held.push((lane, job));
            return None;
        }
        let place = (lane, job.sequence);
        self.busy = Some(place);
        self.out = self.out.filter(|out| *out != place);
        Some(job)
    }

    /// A job that waits here, if it still does, is being given up because of its age. Answers it where it has a story.
    pub(super) fn expire(&mut self, place: Place) -> Option<Option<Job>> {
        let (lane, sequence) = place;
        if self.busy == Some(place) || self.out == Some(place) {
            return None;
        }
        let queue = self.known(lane)?;
        let known = match queue.rows.remove(&sequence) {
            Some(Member::Row(job)) => Some(*job),
            Some(kept) => {
                queue.rows.insert(sequence, kept);
                return None;
            }
            None => queue.fresh.remove(&sequence).map(|_| None)?,
        };
        queue.rows.insert(sequence, Member::Out);
        Some(known)
    }

    /// The one under way, or out, is not any more. Answers those that were held.
    pub(super) fn end(&mut self, place: Place) -> Vec<(LaneKey, Job)> {
        self.busy = self.busy.filter(|busy| *busy != place);
        self.out = self.out.filter(|out| *out != place);
        if let Some(queue) = self.known(place.0) {
            queue.remove(place.1);
        }
        self.queues.retain(|queue| !queue.is_empty());
        match self.busy {
            None => std::mem::take(&mut self.held),
            Some(_) => Vec::new(),
        }
    }
}
