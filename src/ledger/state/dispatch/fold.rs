//! The fold of facts about dispatch, the same for durable rows and for the overlay of decided ones.

use super::history::has_same_filter;
use super::lane::{JobEnd, JobRow, JobSlot, JobState, LaneProgress};
use super::{DispatchLease, DispatchRows, JOB_CHANGES_KEPT, JobKey, ReplayRow, SubscriptionRow, TASKS, TaskRow};
use crate::ledger::facts::dispatch::{DispatchFact, EventDigest};
use crate::ledger::facts::entry::Entry;
use contract::{FencingToken, JobAttempt, PauseDetails, Pool, Position, Sequence, Timestamp, limits};
use log::RecordHeader;
use std::sync::Arc;
use uuid::Uuid;

/// The target of the fold.
pub(in crate::ledger) trait DispatchFold {
    fn known(&self, id: Uuid) -> Option<SubscriptionRow>;
    fn put_subscription(&mut self, row: SubscriptionRow, start: Option<Sequence>);
    fn drop_subscription(&mut self, row: &SubscriptionRow);
    fn slot(&self, key: JobKey) -> Option<JobSlot>;
    fn put_slot(&mut self, key: JobKey, slot: JobSlot);
    fn put_pool(&mut self, code: &str, pool: Option<Pool>);
    fn next_task(&self) -> Sequence;
    fn put_task(&mut self, row: TaskRow);
    fn put_replay(&mut self, id: Uuid, row: ReplayRow, from: Sequence);
    fn put_lease(&mut self, lease: DispatchLease);
    fn put_pause(&mut self, pause: Option<PauseDetails>);
    /// Moves the settled offset of a lane. Only durable rows have lanes.
    fn settle(&mut self, _lane: Uuid, _through: Sequence) {}
    fn remember(&mut self, _key: JobKey, _attempt: JobAttempt) {}
    fn touch(&mut self, _lane: Uuid, _at: Position) {}
    /// A person decided something about one job.
    fn touch_job(&mut self, _job: JobKey, _at: Position) {}
    fn trim(&mut self, _topic: u32, _through: Sequence) {}
    /// A subscription's filter was changed; its topic ends at `tail`.
    fn change_filter(&mut self, _old: &SubscriptionRow, _tail: Sequence) {}

    /// Applies one fact. Total: a fact about something unknown changes nothing.
    fn apply(&mut self, entry: &Entry, header: &RecordHeader) {
        match entry {
            Entry::Dispatch { what } => self.apply_fact(what, header),
            Entry::DeadLettered { letter } => {
                if let Some(job) = letter.job {
                    self.change(job, |row| {
                        let expired = matches!(row.standing, JobState::Dead { expired: true, .. });
                        row.standing = JobState::Dead { letter: Some(letter.id), expired };
                    });
                }
            }
            Entry::Redriven { job: Some(job), new_event: None, .. } => {
                self.touch_job(*job, header.position);
                self.change(*job, |row| row.restart(header.time));
            }
            Entry::Redriven { job: Some(job), .. } => {
                // Replays of the subscription must not deliver the event that was replaced: their lanes are rebuilt.
                self.touch(job.lane, header.position);
                self.end_open(*job, JobEnd::Completed);
            }
            Entry::Discarded { job: Some(job), .. } => {
                self.touch_job(*job, header.position);
                self.end_open(*job, JobEnd::Cancelled);
            }
            Entry::TopicTrimmed { number, through } => self.trim(*number, *through),
            _ => (),
        }
    }

    fn apply_fact(&mut self, fact: &DispatchFact, header: &RecordHeader) {
        let (at, time) = (header.position, header.time);
        match fact {
            DispatchFact::SubscriptionPut { id, number, definition, sealed, auth_type, start } => {
                let known = self.known(*id);
                let row = SubscriptionRow {
                    id: *id,
                    number: *number,
                    definition: Arc::new(SubscriptionDefinition::clone(definition)),
                    sealed: sealed.clone(),
                    auth_type: auth_type.clone(),
                    paused: known.as_ref().and_then(|known| known.paused.clone()),
                    breaker_closed: known.as_ref().map_or(Position::ZERO, |known| known.breaker_closed),
                    created_at: known.as_ref().map_or(time, |known| known.created_at),
                    updated_at: time,
                    version: at,
                };
                self.touch(*id, at);
                if let Some(known) = known.as_ref().filter(|it| !has_same_filter(&it.definition, definition)) {
                    self.change_filter(known, *start);
                }
                self.put_subscription(row, known.is_none().then_some(*start));
            }
            DispatchFact::SubscriptionPaused { id, by, reason } => {
                let since = Timestamp::from_millis(time);
                let pause = PauseDetails { since, by: by.clone(), reason: reason.clone() };
                self.set_paused(*id, Some(pause), header);
            }
            DispatchFact::SubscriptionResumed { id } => self.set_paused(*id, None, header),
            DispatchFact::SubscriptionDeleted { id, .. } => {
                if let Some(known) = self.known(*id) {
                    self.touch(*id, at);
                    self.drop_subscription(&known);
                }
            }
            DispatchFact::PoolPut { pool } => {
                self.touch(Uuid::max(), at);
                self.put_pool(&pool.code, Some(pool.clone()));
            }
            DispatchFact::PoolDeleted { code } => {
                self.touch(Uuid::max(), at);
                self.put_pool(code, None);
            }
            DispatchFact::DispatchTaken { owner, until } => {
                self.put_lease(DispatchLease { owner: *owner, until: *until, token: FencingToken(at.get()) });
            }
            DispatchFact::DispatchPaused { by, reason } => {
                let since = Timestamp::from_millis(time);
                self.put_pause(Some(PauseDetails { since, by: by.clone(), reason: reason.clone() }));
            }
            DispatchFact::DispatchResumed { .. } => self.put_pause(None),
            DispatchFact::BreakerClosed { id, .. } => {
                if let Some(known) = self.known(*id) {
                    self.touch(*id, at);
                    self.put_subscription(SubscriptionRow { breaker_closed: at, ..known }, None);
                }
            }
            DispatchFact::ReplayOrdered { id, subscription, from, to } => {
                self.touch(*id, at);
                self.put_replay(*id, ReplayRow { subscription: *subscription, to: *to, at: time }, *from);
            }
            DispatchFact::TaskCreated { id, task } => {
                // No other lane is affected.
                self.touch(Uuid::max(), at);
                let number = self.next_task();
                self.put_task(TaskRow { id: *id, number, task: Arc::new(TaskDefinition::clone(task)), at: time });
            }
            _ => self.apply_job(fact, header),
        }
    }

    fn apply_job(&mut self, fact: &DispatchFact, header: &RecordHeader) {
        let (at, time) = (header.position, header.time);
        match fact {
            DispatchFact::JobsEnded { lane, through, done, expired } => {
                for job in done {
                    let key = JobKey { lane: *lane, sequence: job.0 };
                    self.put_slot(key, JobSlot::Ended(JobEnd::Completed));
                    self.remember(key, job.attempt());
                }
                for sequence in expired {
                    self.put_slot(JobKey { lane: *lane, sequence: *sequence }, JobSlot::Ended(JobEnd::Expired));
                }
                self.settle(*lane, *through);
            }
            DispatchFact::JobAttempted { job, event, attempt, retry_at, counts, digest } => {
                let standing = match retry_at {
                    Some(until) => JobState::Waiting { until: *until },
                    None => JobState::Dead { letter: None, expired: false },
                };
                self.open_or_new(*job, (*event, digest), time, |row| {
                    row.tried(attempt.clone(), *counts);
                    row.standing = standing;
                });
            }
            DispatchFact::JobDeferred { job, event, until, reason, digest } => {
                self.open_or_new(*job, (*event, digest), time, |row| row.defer(time, *until, reason.as_deref()));
            }
            DispatchFact::JobExpired { job, event, digest } => {
                let standing = JobState::Dead { letter: None, expired: true };
                self.open_or_new(*job, (*event, digest), time, |row| row.standing = standing);
            }
            DispatchFact::JobCancelled { job, .. } => {
                self.touch_job(*job, at);
                self.put_slot(*job, JobSlot::Ended(JobEnd::Cancelled));
            }
            DispatchFact::JobCompleted { job, .. } => {
                self.touch_job(*job, at);
                self.put_slot(*job, JobSlot::Ended(JobEnd::Completed));
            }
            DispatchFact::JobRetried { job, event, digest, .. } => {
                self.touch_job(*job, at);
                let mut row = match self.slot(*job) {
                    Some(JobSlot::Open(row)) => row,
                    _ => JobRow::new(*event, time),
                };
                row.restart(time);
                row.keep_digest(digest);
                self.put_slot(*job, JobSlot::Open(row));
            }
            _ => (),
        }
    }

    /// Pauses or resumes.
    fn set_paused(&mut self, id: Uuid, paused: Option<PauseDetails>, header: &RecordHeader) {
        if let Some(known) = self.known(id) {
            self.touch(id, header.position);
            let row = SubscriptionRow { paused, updated_at: header.time, version: header.position, ..known };
            self.put_subscription(row, None);
        }
    }

    /// Changes a job that has a row.
    fn change(&mut self, key: JobKey, change: impl FnOnce(&mut JobRow)) {
        if let Some(JobSlot::Open(mut row)) = self.slot(key) {
            change(&mut row);
            self.put_slot(key, JobSlot::Open(row));
        }
    }

    /// Changes a job that has a row, or creates its row.
    fn open_or_new(
        &mut self,
        key: JobKey,
        (event, digest): (Uuid, &Option<EventDigest>),
        time: i64,
        change: impl FnOnce(&mut JobRow),
    ) {
        let mut row = match self.slot(key) {
            Some(JobSlot::Open(row)) => row,
            Some(JobSlot::Ended(_)) => return,
            None => JobRow::new(event, time),
        };
        row.keep_digest(digest);
        change(&mut row);
        self.put_slot(key, JobSlot::Open(row));
    }

    fn end_open(&mut self, key: JobKey, end: JobEnd) {
        if let Some(JobSlot::Open(_)) = self.slot(key) {
            self.put_slot(key, JobSlot::Ended(end));
        }
    }
}

type SubscriptionDefinition = contract::NewSubscription;
type TaskDefinition = super::StoredTask;

impl DispatchFold for DispatchRows {
    fn known(&self, id: Uuid) -> Option<SubscriptionRow> {
        self.subscriptions.get(&id).cloned()
    }

    fn put_subscription(&mut self, row: SubscriptionRow, start: Option<Sequence>) {
        self.codes.insert(row.definition.code.clone(), row.id);
        if let Some(start) = start {
            self.lanes.insert(row.id, LaneProgress::behind(start));
        }
        self.subscriptions.insert(row.id, row);
    }

    fn drop_subscription(&mut self, row: &SubscriptionRow) {
        self.codes.remove(&row.definition.code);
        self.subscriptions.remove(&row.id);
        self.drop_lane(row.id);
        self.touched.remove(&row.id);
        let replays: Vec<_> = self.replays.iter().filter(|(_, it)| it.subscription == row.id).map(|it| *it.0).collect();
        for replay in replays {
            self.drop_replay(replay);
        }
    }

    fn slot(&self, key: JobKey) -> Option<JobSlot> {
        self.lanes.get(&key.lane)?.slot(key.sequence)
    }

    fn put_slot(&mut self, key: JobKey, slot: JobSlot) {
        let is_over = matches!(slot, JobSlot::Ended(_));
        let Some(lane) = self.lanes.get_mut(&key.lane) else { return };
        let was_over = lane.is_ended(key.sequence);
        let before = lane.open_count();
        lane.put(key.sequence, slot);
        self.open_jobs = (self.open_jobs + lane.open_count()).saturating_sub(before);
        match (key.lane == TASKS, was_over, is_over) {
            (true, false, true) => self.end_task(key.sequence),
            (true, true, false) => self.reopen_task(key.sequence),
            _ => (),
        }
        self.end_replay(key.lane);
    }

    fn put_pool(&mut self, code: &str, pool: Option<Pool>) {
        match pool {
            Some(pool) => self.pools.insert(code.to_owned(), pool),
            None => self.pools.remove(code),
        };
    }

    fn next_task(&self) -> Sequence {
        self.last_task.next()
    }

    fn put_task(&mut self, row: TaskRow) {
        self.lanes.entry(TASKS).or_default();
        self.last_task = self.last_task.max(row.number);
        self.numbers.insert(row.number, row.id);
        self.task_bytes += row.task.bytes();
        let before = self.tasks.insert(row.id, row);
        debug_assert!(before.is_none(), "a task is created once");
    }

    fn put_replay(&mut self, id: Uuid, row: ReplayRow, from: Sequence) {
        self.lanes.insert(id, LaneProgress::behind(Sequence(from.get().saturating_sub(1))));
        self.replays.insert(id, row);
    }

    fn put_lease(&mut self, lease: DispatchLease) {
        self.lease = Some(lease);
    }

    fn put_pause(&mut self, pause: Option<PauseDetails>) {
        self.paused = pause;
    }

    fn settle(&mut self, lane: Uuid, through: Sequence) {
        if let Some(known) = self.lanes.get_mut(&lane) {
            known.settle(through);
        }
        self.end_replay(lane);
    }

    fn remember(&mut self, key: JobKey, attempt: JobAttempt) {
        if let Some(lane) = self.lanes.get_mut(&key.lane) {
            lane.remember(key.sequence, vec![attempt]);
        }
    }

    fn touch(&mut self, lane: Uuid, at: Position) {
        self.touched.insert(lane, at);
        self.version = at;
    }

    fn touch_job(&mut self, job: JobKey, at: Position) {
        if job.lane == TASKS {
            return self.touch(TASKS, at);
        }
        self.version = at;
        self.job_changes.push_back((at, job));
        // A worker that has not seen a dropped change plans the whole lane again.
        if self.job_changes.len() > JOB_CHANGES_KEPT
            && let Some((at, job)) = self.job_changes.pop_front()
            && self.lanes.contains_key(&job.lane)
        {
            let touched = self.touched.entry(job.lane).or_default();
            *touched = (*touched).max(at);
        }
    }

    fn change_filter(&mut self, old: &SubscriptionRow, tail: Sequence) {
        let replays = self.replays.iter().filter(|(_, it)| it.subscription == old.id).map(|(id, _)| *id);
        for lane in replays.chain([old.id]).collect::<Vec<_>>() {
            if let Some(lane) = self.lanes.get_mut(&lane) {
                lane.change_filter(&old.definition, tail);
            }
        }
    }

    fn trim(&mut self, topic: u32, through: Sequence) {
        let subscriptions = self.subscriptions.values().filter(|row| row.number == topic).map(|row| row.id);
        let lanes: Vec<_> = subscriptions.collect();
        let replays = self.replays.iter().filter(|(_, it)| lanes.contains(&it.subscription)).map(|it| *it.0);
        let replays: Vec<_> = replays.collect();
        for id in lanes.into_iter().chain(replays) {
            if let Some(lane) = self.lanes.get_mut(&id) {
                let before = lane.open_count();
                lane.trim(through);
                let removed = before.saturating_sub(lane.open_count());
                self.open_jobs = self.open_jobs.saturating_sub(removed);
                if removed > 0 {
                    *self.removed_jobs.entry(id).or_default() += removed as u64;
                }
            }
            self.end_replay(id);
        }
    }
}

impl DispatchRows {
    /// Drops a replay that is settled and has no open jobs.
    fn end_replay(&mut self, id: Uuid) {
        let Some(replay) = self.replays.get(&id) else { return };
        if self.lanes.get(&id).is_some_and(|lane| lane.recorded_through() >= replay.to && lane.open_count() == 0) {
            self.drop_replay(id);
        }
    }

    fn drop_lane(&mut self, id: Uuid) {
        self.removed_jobs.remove(&id);
        let open = self.lanes.remove(&id).map_or(0, |lane| lane.open_count());
        self.open_jobs = self.open_jobs.saturating_sub(open);
    }

    fn drop_replay(&mut self, id: Uuid) {
        self.replays.remove(&id);
        self.drop_lane(id);
        self.touched.remove(&id);
    }

    /// A finished task is open again: it must not be dropped.
    fn reopen_task(&mut self, number: Sequence) {
        if let Some(id) = self.numbers.get(&number) {
            self.tasks_over.retain(|over| over != id);
        }
    }

    /// Keeps a finished task, and drops the oldest ones beyond the limits.
    fn end_task(&mut self, number: Sequence) {
        let Some(id) = self.numbers.get(&number).copied() else { return };
        self.tasks_over.push_back(id);
        // The last one stays in any case: the response to its end shows it.
        let is_too_many =
            |over: usize, bytes: usize| over > limits::TASKS_KEPT || (over > 1 && bytes > limits::TASKS_BYTES_MAX / 2);
        while is_too_many(self.tasks_over.len(), self.task_bytes) {
            let Some(oldest) = self.tasks_over.pop_front() else { return };
            if let Some(row) = self.tasks.remove(&oldest) {
                self.numbers.remove(&row.number);
                debug_assert!(self.task_bytes >= row.task.bytes(), "every task was counted");
                self.task_bytes = self.task_bytes.saturating_sub(row.task.bytes());
            }
        }
    }
}
