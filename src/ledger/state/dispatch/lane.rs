//! A lane: the progress of one subscription, one replay, or the tasks of a log.
//!
//! - A job is a number in a lane. Progress is the settled offset, with a bit per finished job above it; only jobs that
//!   deviate have rows.
//! - Rows may be below the settled offset: a failed job blocks its message group, never the lane.

use crate::ledger::state::bitmap::StoredBitmap;
use contract::{FencingToken, JobAttempt, JobDeferral, Sequence, Timestamp, limits};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use uuid::Uuid;

use super::history::PastFilter;
use crate::ledger::facts::dispatch::{DeliveredJob, EventDigest};

/// The row of an open job: it failed, was deferred, or was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobRow {
    /// The event's id, or the task's.
    pub event: Uuid,
    /// Its state.
    pub standing: JobState,
    /// Attempts that count, since a person last retried it.
    pub spent: u32,
    /// All attempts.
    pub tried: u32,
    /// The last attempts.
    pub attempts: Vec<JobAttempt>,
    /// When it got the row, in milliseconds.
    pub since: i64,
    /// Deferrals since the last attempt that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deferred: Option<JobDeferral>,
    /// When a person last retried it, in milliseconds: its age counts from then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aged_from: Option<i64>,
    /// What is kept of the event; rows of older versions, and of tasks, have nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<EventDigest>,
}

/// The state of an open job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JobState {
    /// It waits for another attempt: the last one failed, or the receiver deferred it.
    Waiting {
        /// When it is due, in milliseconds.
        until: i64,
    },
    /// It was given up.
    Dead {
        /// The dead letter, if it became one.
        letter: Option<Uuid>,
        /// Because it reached its maximum age.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        expired: bool,
    },
}

/// How a job came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEnd {
    /// It was delivered, or counts as delivered.
    Completed,
    /// It was cancelled.
    Cancelled,
    /// Its event was removed before it was delivered. Older logs: it reached its maximum age.
    Expired,
}

/// What is known of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobSlot {
    /// It has a row.
    Open(JobRow),
    /// It ended.
    Ended(JobEnd),
}

impl JobRow {
    pub(super) const fn new(event: Uuid, since: i64) -> Self {
        let standing = JobState::Waiting { until: since };
        Self {
            event,
            standing,
            spent: 0,
            tried: 0,
            attempts: Vec::new(),
            since,
            deferred: None,
            aged_from: None,
            digest: None,
        }
    }

    pub(super) fn keep_digest(&mut self, digest: &Option<EventDigest>) {
        if self.digest.is_none() {
            self.digest.clone_from(digest);
        }
    }

    /// A person retried it: it has all its attempts again, and a new age.
    pub(super) fn restart(&mut self, now: i64) {
        self.standing = JobState::Waiting { until: now };
        self.spent = 0;
        self.deferred = None;
        self.aged_from = Some(now);
    }

    /// The receiver deferred it.
    pub(super) fn defer(&mut self, at: i64, until: i64, reason: Option<&str>) {
        let count = self.deferred.as_ref().map_or(0, |deferred| deferred.count).saturating_add(1);
        self.standing = JobState::Waiting { until };
        self.deferred = Some(JobDeferral {
            count,
            reason: reason.unwrap_or_default().to_owned(),
            at: Timestamp::from_millis(at),
            until: Timestamp::from_millis(until),
        });
    }

    /// Drops the responses of the receiver: the event was removed.
    fn forget_responses(&mut self) {
        forget_responses(&mut self.attempts);
        if let Some(deferred) = &mut self.deferred {
            deferred.reason = String::new();
        }
    }

    pub(super) fn tried(&mut self, attempt: JobAttempt, counts: bool) {
        self.tried = attempt.number;
        self.deferred = None;
        self.spent = self.spent.saturating_add(u32::from(counts));
        if self.attempts.len() >= limits::ATTEMPTS_KEPT {
            self.attempts.remove(0);
        }
        if let Some(response) = self.attempts.last_mut().and_then(|last| last.response.as_mut()) {
            response.truncate(response.floor_char_boundary(limits::EARLIER_RESPONSE_BYTES_KEPT));
            response.shrink_to_fit();
        }
        // There may be many such jobs, and few with many attempts.
        self.attempts.reserve_exact(1);
        self.attempts.push(attempt);
    }
}

fn forget_responses(attempts: &mut [JobAttempt]) {
    attempts.iter_mut().for_each(|attempt| attempt.response = None);
}

impl DeliveredJob {
    /// The attempt that delivered it.
    #[must_use]
    pub fn attempt(&self) -> JobAttempt {
        let Self(_, number, at, duration, status) = *self;
        JobAttempt {
            number,
            at: Timestamp::from_millis(at),
            duration_ms: duration.into(),
            status: Some(status),
            error: None,
            response: None,
            token: FencingToken::ZERO,
        }
    }
}

/// Progress and deviations.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaneProgress {
    /// The first job is after this.
    pub start: Sequence,
    through: Sequence,
    pub(super) done: StoredBitmap,
    pub(super) cancelled: StoredBitmap,
    pub(super) expired: StoredBitmap,
    /// Shared with checkpoints that are being written.
    pub(super) open: BTreeMap<Sequence, Arc<JobRow>>,
    /// Jobs that had begun when the filter changed, above the settled offset of that time.
    #[serde(default)]
    pub(super) kept: StoredBitmap,
    #[serde(default)]
    pub(super) past: Vec<PastFilter>,
    recent: VecDeque<(Sequence, Vec<JobAttempt>)>,
}

impl LaneProgress {
    pub(super) fn behind(start: Sequence) -> Self {
        Self { start, through: start, ..Self::default() }
    }

    /// The state of a job; `None` if it has not begun.
    #[must_use]
    pub fn slot(&self, sequence: Sequence) -> Option<JobSlot> {
        if let Some(row) = self.open.get(&sequence) {
            return Some(JobSlot::Open(JobRow::clone(row)));
        }
        self.end(sequence).map(JobSlot::Ended)
    }

    /// How a job came to its end, if it has no row.
    #[must_use]
    pub fn end(&self, sequence: Sequence) -> Option<JobEnd> {
        let n = sequence.get();
        if self.cancelled.0.contains(n) {
            Some(JobEnd::Cancelled)
        } else if self.expired.0.contains(n) {
            Some(JobEnd::Expired)
        } else {
            (sequence <= self.through || self.done.0.contains(n)).then_some(JobEnd::Completed)
        }
    }

    /// Whether a job has ended.
    #[must_use]
    pub fn is_ended(&self, sequence: Sequence) -> bool {
        !self.open.contains_key(&sequence) && self.end(sequence).is_some()
    }

    /// The recorded settled offset: up to here every job has ended or has a row.
    #[must_use]
    pub const fn recorded_through(&self) -> Sequence {
        self.through
    }

    /// Jobs with a row, in order.
    pub fn open(&self) -> impl Iterator<Item = (Sequence, &JobRow)> {
        self.open.iter().map(|(sequence, row)| (*sequence, &**row))
    }

    /// The same after a sequence, shared.
    pub fn rows_after(&self, after: Sequence) -> impl Iterator<Item = (Sequence, Arc<JobRow>)> {
        let behind = self.open.range((Bound::Excluded(after), Bound::Unbounded));
        behind.map(|(sequence, row)| (*sequence, Arc::clone(row)))
    }

    /// How many of them there are.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    /// How many of them were given up.
    #[must_use]
    pub fn dead_count(&self) -> usize {
        self.open.values().filter(|row| matches!(row.standing, JobState::Dead { .. })).count()
    }

    /// The stored attempts of a completed job.
    #[must_use]
    pub fn recent(&self, sequence: Sequence) -> Vec<JobAttempt> {
        let found = self.recent.iter().rev().find(|(known, _)| *known == sequence);
        found.map(|(_, attempts)| attempts.clone()).unwrap_or_default()
    }

    pub(super) fn put(&mut self, sequence: Sequence, slot: JobSlot) {
        let n = sequence.get();
        self.cancelled.0.remove(n);
        self.expired.0.remove(n);
        match slot {
            JobSlot::Open(row) => {
                self.done.0.remove(n);
                self.open.insert(sequence, Arc::new(row));
            }
            JobSlot::Ended(end) => {
                if let Some(row) = self.open.remove(&sequence) {
                    self.remember(sequence, Arc::unwrap_or_clone(row).attempts);
                }
                match end {
                    JobEnd::Completed => self.keep_delivered(sequence),
                    JobEnd::Cancelled => drop(self.cancelled.0.insert(n)),
                    JobEnd::Expired => drop(self.expired.0.insert(n)),
                }
                if sequence > self.through {
                    self.done.0.insert(n);
                }
            }
        }
    }

    /// Stores the attempt that delivered a job, with those before it.
    pub(super) fn remember(&mut self, sequence: Sequence, attempts: Vec<JobAttempt>) {
        match self.recent.iter_mut().find(|(known, _)| *known == sequence) {
            Some((_, known)) => known.extend(attempts),
            None => self.recent.push_back((sequence, attempts)),
        }
        if self.recent.len() > limits::COMPLETED_JOBS_KEPT {
            self.recent.pop_front();
        }
    }

    pub(super) fn settle(&mut self, through: Sequence) {
        if through > self.through {
            self.through = through;
            self.done.0.remove_range(..=through.get());
        }
    }

    /// Events up to here were removed. Their jobs are removed too, except for dead ones, which a person must resolve.
    /// The responses of receivers are removed with the events, which they often repeat.
    pub(super) fn trim(&mut self, through: Sequence) {
        self.settle(through);
        self.forget_history(through);
        let is_dead = |row: &JobRow| matches!(row.standing, JobState::Dead { .. });
        self.open.retain(|sequence, row| *sequence > through || is_dead(row));
        self.open.range_mut(..=through).for_each(|(_, row)| Arc::make_mut(row).forget_responses());
        let removed = self.recent.iter_mut().filter(|(sequence, _)| *sequence <= through);
        removed.for_each(|(_, attempts)| forget_responses(attempts));
        self.cancelled.0.remove_range(..=through.get());
        self.expired.0.remove_range(..=through.get());
    }
}
