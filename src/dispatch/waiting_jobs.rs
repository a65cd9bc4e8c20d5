//! Waiting jobs: in message groups (how they enter, move to their lanes and return), and for room for their rows.

use super::lane::{AfterAttempt, EventArrival, LaneKey, PlannedJob, PlannerPick};
use super::message_groups::{ExpiredMember, GroupPromotion, MessageGroup, WaitingMember};
use super::planner::Planner;
use contract::Sequence;
use std::collections::{HashSet, VecDeque};
use uuid::Uuid;

/// The wait of an expired job before it checks for room for its row again, in milliseconds.
const ROW_RETRY_MILLIS: i64 = 1000;

impl Planner {
    /// Sets how many more jobs may get a row, and which lanes have their share.
    pub(crate) fn set_rows_left(&mut self, rows_left: usize, full: HashSet<Uuid>, now: i64) {
        (self.rows_left, self.full) = (rows_left, full);
        self.unpark(now);
    }

    /// Whether one more job without a row may be in flight.
    pub(super) fn has_row_left(&self, key: LaneKey) -> bool {
        self.rows_left > self.rowless_in_flight && !self.full.contains(&key.lane)
    }

    /// Releases jobs that waited for room for their rows, one of each lane in turn.
    pub(super) fn unpark(&mut self, now: i64) {
        if self.parked.is_empty() {
            return;
        }
        let mut room = self.rows_left.saturating_sub(self.rowless_in_flight);
        let parked = std::mem::take(&mut self.parked).into_iter();
        let (full, mut waiting): (VecDeque<_>, VecDeque<_>) = parked.partition(|key| self.full.contains(&key.lane));
        while room > 0 {
            let Some(key) = waiting.pop_front() else { break };
            // Its job may have returned to its group since; then it needs no room.
            let Some(lane) = self.lanes.get_mut(&key) else { continue };
            let Some((_, job)) = lane.parked.pop_first() else { continue };
            room -= 1;
            if !lane.parked.is_empty() {
                waiting.push_back(key);
            }
            lane.put_due(job);
            self.queue(key, now);
        }
        waiting.extend(full);
        self.parked = waiting;
    }

    /// Lets a due job wait for room for its row.
    pub(super) fn park(&mut self, key: LaneKey, job: PlannedJob, now: i64) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        if lane.parked.is_empty() {
            self.parked.push_back(key);
        }
        lane.parked.insert(job.sequence, job);
        self.queue(key, now);
    }

    /// Keeps the timer for the first expiry of a lane up to date.
    pub(super) fn note_expiry(&mut self, key: LaneKey) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let (known, expiry) = (lane.expiry, lane.first_expiry());
        if known == expiry {
            return;
        }
        lane.expiry = expiry;
        known.map(|at| self.expiries.remove(&(at, key)));
        expiry.map(|at| self.expiries.insert((at, key)));
    }

    /// The next job that reached its maximum age, wherever it waits.
    pub(super) fn next_expired(&mut self, now: i64) -> Option<PlannerPick> {
        while let Some((_, key)) = self.expiries.first().copied().filter(|(at, _)| *at <= now) {
            let expired = self.expire_first(key, now);
            self.note_expiry(key);
            if expired.is_some() {
                return expired;
            }
        }
        None
    }

    fn expire_first(&mut self, key: LaneKey, now: i64) -> Option<PlannerPick> {
        let lane = self.lanes.get_mut(&key)?;
        let due = lane.due.values().next().map(|job| (job.expires_at(), job.sequence));
        let age = lane.ages.keys().next().filter(|(expires, _)| *expires <= now);
        if age.is_some_and(|age| due.is_none_or(|due| *age < due)) {
            return self.expire_waiting(key, now);
        }
        let job = lane.due.first_entry().filter(|first| first.get().expires_at() <= now)?.remove();
        if job.has_row || self.has_row_left(key) {
            return Some(self.expire(key, job, now));
        }
        self.park(key, job, now);
        None
    }

    /// Lets a job expire while it waits in its group behind another one.
    fn expire_waiting(&mut self, key: LaneKey, now: i64) -> Option<PlannerPick> {
        let may_open = self.has_row_left(key);
        let lane = self.lanes.get_mut(&key)?;
        let ((expires, sequence), group) = lane.ages.pop_first()?;
        let is_fresh = lane.fresh.contains(sequence.get());
        if is_fresh && !may_open {
            lane.ages.insert((now.saturating_add(ROW_RETRY_MILLIS), sequence), group);
            self.queue(key, now);
            return None;
        }
        let scope = lane.rules.scope;
        let waited = self.group_of(scope, group).and_then(|group| group.expire((key, sequence)));
        match waited {
            Some(ExpiredMember::Row(job)) => Some(self.expire(key, *job, now)),
            Some(ExpiredMember::Fresh(event)) => {
                let rules = &self.lanes.get(&key)?.rules;
                let job = PlannedJob { due: expires, expires, ..rules.fresh(sequence, Some(group), event) };
                Some(self.expire(key, job, now))
            }
            None => {
                self.queue(key, now);
                None
            }
        }
    }

    pub(super) fn group_of(&mut self, scope: Uuid, group: u64) -> Option<&mut MessageGroup> {
        self.groups.get_mut(&scope)?.get_mut(&group)
    }

    fn group_or_insert(&mut self, scope: Uuid, group: u64) -> &mut MessageGroup {
        self.groups.entry(scope).or_default().entry(group).or_default()
    }

    /// Removes the jobs of a lane from their groups, and lets the next ones go.
    pub(super) fn leave_groups(&mut self, key: LaneKey, scope: Uuid, now: i64) {
        let Some(groups) = self.groups.get_mut(&scope) else { return };
        groups.values_mut().for_each(|group| group.remove_lane(key));
        let all: Vec<_> = groups.keys().copied().collect();
        all.into_iter().for_each(|group| self.promote(scope, group, now));
    }

    /// A job without a row waits in its group.
    pub(super) fn wait_fresh(
        &mut self,
        key: LaneKey,
        group: u64,
        (sequence, event): (Sequence, EventArrival),
        now: i64,
    ) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        lane.ages.insert((lane.rules.expires(None, event.time), sequence), group);
        let (scope, is_replay) = (lane.rules.scope, lane.rules.is_replay);
        self.group_or_insert(scope, group).add_fresh((key, sequence), is_replay, event);
        self.promote(scope, group, now);
    }

    /// A job with a row waits in its group.
    pub(super) fn wait_row(&mut self, key: LaneKey, group: u64, job: PlannedJob, now: i64) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let sequence = job.sequence;
        lane.ages.insert((job.expires_at(), sequence), group);
        let (scope, is_replay) = (lane.rules.scope, lane.rules.is_replay);
        self.group_or_insert(scope, group).add((key, sequence), is_replay, WaitingMember::Row(Box::new(job)));
        self.promote(scope, group, now);
    }

    /// A job that was given up blocks its group.
    pub(super) fn wait_dead(&mut self, key: LaneKey, group: u64, sequence: Sequence, now: i64) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let (scope, is_replay) = (lane.rules.scope, lane.rules.is_replay);
        self.group_or_insert(scope, group).add((key, sequence), is_replay, WaitingMember::Dead);
        self.promote(scope, group, now);
    }

    /// A job that is being given up blocks its group too.
    pub(super) fn hold_group(&mut self, key: LaneKey, group: u64, sequence: Sequence) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let (scope, is_replay) = (lane.rules.scope, lane.rules.is_replay);
        self.group_or_insert(scope, group).add((key, sequence), is_replay, WaitingMember::Out);
    }

    /// Returns a job that was in flight, or about to be sent, to where it waits.
    pub(super) fn return_job(
        &mut self,
        (key, scope): (LaneKey, Uuid),
        mut job: PlannedJob,
        back: AfterAttempt,
        now: i64,
    ) {
        let (group_key, sequence) = (job.in_group(), job.sequence);
        debug_assert!(!self.in_flight.contains_key(&(key, sequence)), "a job waits and is in flight");
        let group = group_key.and_then(|group| self.group_of(scope, group));
        let held = group.map(|group| group.end((key, sequence))).unwrap_or_default();
        self.put_held(held, now);
        if let Some(lane) = self.lanes.get_mut(&key) {
            match back {
                AfterAttempt::Over => self.fresh_jobs -= u64::from(lane.fresh.remove(sequence.get())),
                AfterAttempt::Dead => {
                    self.fresh_jobs -= u64::from(lane.fresh.remove(sequence.get()));
                    if let Some(group) = group_key.filter(|_| job.keeps_place(true)) {
                        self.wait_dead(key, group, sequence, now);
                    }
                }
                AfterAttempt::Waits { until, tried, counts } => {
                    // An expired job waits too if its event could not be read.
                    job.due = if now < job.expires { until.min(job.expires) } else { until };
                    if tried {
                        job.has_row = true;
                        self.fresh_jobs -= u64::from(lane.fresh.remove(sequence.get()));
                    }
                    job.tried += u32::from(tried);
                    job.spent += u32::from(counts);
                    match group_key.filter(|_| job.keeps_place(false)) {
                        Some(group) => self.wait_row(key, group, job, now),
                        None => lane.put_due(job),
                    }
                }
            }
        }
        if let Some(group) = group_key {
            self.promote(scope, group, now);
        }
        self.queue(key, now);
    }

    /// Returns jobs that were held by another one of their group to their lanes.
    pub(super) fn put_held(&mut self, held: Vec<(LaneKey, PlannedJob)>, now: i64) {
        for (key, job) in held {
            if let Some(lane) = self.lanes.get_mut(&key) {
                lane.put_due(job);
            }
            self.queue(key, now);
        }
    }

    /// Moves the head of a group to its lane.
    pub(super) fn promote(&mut self, scope: Uuid, group_key: u64, now: i64) {
        while let Some(groups) = self.groups.get_mut(&scope) {
            let Some(group) = groups.get_mut(&group_key) else { return };
            match group.promote() {
                GroupPromotion::Nothing => {
                    if group.is_empty() {
                        groups.remove(&group_key);
                    }
                    if groups.is_empty() {
                        self.groups.remove(&scope);
                    }
                    return;
                }
                GroupPromotion::Fresh((key, sequence), event) => {
                    let Some(lane) = self.lanes.get_mut(&key) else { return };
                    let job = lane.rules.fresh(sequence, Some(group_key), event);
                    lane.ages.remove(&(job.expires, sequence));
                    lane.put_due(job);
                    self.queue(key, now);
                }
                GroupPromotion::Row(key, job) => {
                    let Some(lane) = self.lanes.get_mut(&key) else { return };
                    lane.ages.remove(&(job.expires_at(), job.sequence));
                    lane.put_due(*job);
                    self.queue(key, now);
                }
                GroupPromotion::Recall((key, sequence)) => {
                    let Some(lane) = self.lanes.get_mut(&key) else { return };
                    let place = lane.due.iter().find(|(_, job)| job.sequence == sequence).map(|(place, _)| *place);
                    let parked = lane.parked.remove(&sequence);
                    let Some(job) = place.and_then(|place| lane.due.remove(&place)).or(parked) else { return };
                    lane.ages.insert((job.expires_at(), sequence), group_key);
                    group.recall(key, job);
                    self.queue(key, now);
                }
            }
        }
    }
}
