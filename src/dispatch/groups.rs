//! Message groups: which job of a group may go.
//!
//! - One job of a group is under way at a time.
//! - BLOCK_ON_ERROR: the lowest job that is not over goes, or waits, or holds the group; nothing passes it. What holds is
//!   found by position, never by membership, so a job cannot hold itself.
//! - NEXT_ON_ERROR: the lowest job not tried yet goes; those that failed go again on their own.

use super::lane::Job;
use contract::{DispatchMode, Sequence};
use std::collections::BTreeMap;

/// A job that waits in its group.
pub(super) enum Member {
    /// Not tried yet; when its event arrived.
    Fresh(i64),
    /// With a story.
    Row(Box<Job>),
    /// Given up.
    Dead,
    /// It is out: waiting for its turn in the lane, or under way.
    Out,
}

/// The jobs of one group that are not over.
pub(super) struct Group {
    mode: DispatchMode,
    members: BTreeMap<Sequence, Member>,
    /// The one under way.
    busy: Option<Sequence>,
    /// The one that is next, out in the lane.
    out: Option<Sequence>,
    /// Those whose time came while another was under way.
    held: Vec<Job>,
}

/// What to do about a group after it changed.
pub(super) enum Promotion {
    Nothing,
    /// This one, not tried yet, goes out; its event arrived then.
    Fresh(Sequence, i64),
    Row(Box<Job>),
    /// This one is out, and must come back: another goes before it.
    Recall(Sequence),
}

impl Group {
    pub(super) const fn new(mode: DispatchMode) -> Self {
        Self { mode, members: BTreeMap::new(), busy: None, out: None, held: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.busy.is_none() && self.held.is_empty()
    }

    pub(super) fn add(&mut self, sequence: Sequence, member: Member) {
        self.members.insert(sequence, member);
    }

    /// A row of a group that lets others pass needs no place in it.
    pub(super) fn keeps_rows(&self) -> bool {
        self.mode == DispatchMode::BlockOnError
    }

    /// Which one goes out now.
    pub(super) fn promote(&mut self) -> Promotion {
        if self.busy.is_some() {
            return Promotion::Nothing;
        }
        let Some((head, member)) = self.members.iter_mut().next() else { return Promotion::Nothing };
        match self.out {
            Some(out) if out == *head => return Promotion::Nothing,
            Some(out) => return Promotion::Recall(out),
            None => (),
        }
        match std::mem::replace(member, Member::Out) {
            Member::Fresh(time) => {
                self.out = Some(*head);
                Promotion::Fresh(*head, time)
            }
            Member::Row(job) => {
                self.out = Some(*head);
                Promotion::Row(job)
            }
            kept => {
                *member = kept;
                Promotion::Nothing
            }
        }
    }

    /// A job that was out comes back.
    pub(super) fn recalled(&mut self, job: Job) {
        self.out = None;
        self.members.insert(job.sequence, Member::Row(Box::new(job)));
    }

    /// Whether a job whose time has come may begin; else it is held until the one under way is over.
    pub(super) fn begin(&mut self, job: Job) -> Option<Job> {
        if self.busy.is_some() {
            self.held.push(job);
            return None;
        }
        self.set_busy(job.sequence);
        Some(job)
    }

    /// This one is under way.
    pub(super) fn set_busy(&mut self, sequence: Sequence) {
        self.busy = Some(sequence);
        if self.out == Some(sequence) {
            self.out = None;
        }
    }

    /// The one under way, or out, is not any more. Answers those that were held.
    pub(super) fn end(&mut self, sequence: Sequence) -> Vec<Job> {
        if self.busy == Some(sequence) {
            self.busy = None;
        }
        if self.out == Some(sequence) {
            self.out = None;
        }
        self.members.remove(&sequence);
        std::mem::take(&mut self.held)
    }
}
