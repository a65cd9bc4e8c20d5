//! The status of a job, and a page of jobs being built.

use crate::ledger::{JobEnd, JobRow, JobSlot, JobState};
use contract::{Cursor, DispatchJob, JobFilter, JobStatus, Page, Sequence};
use uuid::Uuid;

/// What determines the status of a job, besides its slot.
pub(super) struct StatusFacts {
    pub(super) expires: i64,
    pub(super) due: i64,
    pub(super) now: i64,
    pub(super) is_in_flight: bool,
    pub(super) is_paused: bool,
}

impl StatusFacts {
    /// The status of a job, the time of its next attempt, and its dead letter.
    pub(super) fn status(&self, slot: Option<&JobSlot>) -> (JobStatus, Option<i64>, Option<Uuid>) {
        let due = match slot {
            Some(JobSlot::Ended(JobEnd::Completed)) => return (JobStatus::Completed, None, None),
            Some(JobSlot::Ended(JobEnd::Cancelled)) => return (JobStatus::Cancelled, None, None),
            Some(JobSlot::Ended(JobEnd::Expired)) => return (JobStatus::Expired, None, None),
            Some(JobSlot::Open(JobRow { standing: JobState::Dead { letter, expired }, .. })) => {
                return (if *expired { JobStatus::Expired } else { JobStatus::Error }, None, *letter);
            }
            Some(JobSlot::Open(JobRow { standing: JobState::Waiting { until }, .. })) => *until,
            None => self.due,
        };
        match () {
            () if self.is_in_flight => (JobStatus::InProgress, None, None),
            () if self.now >= self.expires => (JobStatus::Expired, None, None),
            () if due > self.now => (JobStatus::Pending, Some(due), None),
            () if self.is_paused => (JobStatus::Pending, None, None),
            () => (JobStatus::Queued, None, None),
        }
    }
}

/// A page being built.
pub(super) struct JobListBuilder<'a> {
    pub(super) filter: &'a JobFilter,
    pub(super) after: String,
    pub(super) limit: usize,
    pub(super) items: Vec<(String, DispatchJob)>,
    pub(super) left: usize,
    /// Where reading stopped before the page was full.
    pub(super) stopped_at: Option<String>,
}

impl JobListBuilder<'_> {
    pub(super) fn is_full(&self) -> bool {
        self.items.len() > self.limit || self.left == 0
    }

    /// Where to resume in a lane.
    pub(super) fn behind(&self, lane: Uuid) -> Sequence {
        let here = self.after.strip_prefix(&format!("{} ", lane.simple())).and_then(|it| it.parse().ok());
        match here {
            Some(sequence) => Sequence(sequence),
            None if *self.after > *place(lane, Sequence(u64::MAX)) => Sequence(u64::MAX),
            None => Sequence::ZERO,
        }
    }

    /// Whether the cursor is after all jobs of a lane.
    pub(super) fn is_past(&self, lane: Uuid) -> bool {
        self.behind(lane) == Sequence(u64::MAX)
    }

    /// Where to resume among the tasks.
    pub(super) fn task_behind(&self) -> Sequence {
        self.after.strip_prefix(TASKS).and_then(|it| it.parse().ok()).map_or(Sequence::ZERO, Sequence)
    }

    pub(super) fn note_scanned(&mut self, place: String) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.stopped_at = Some(place);
        }
    }

    pub(super) fn add(&mut self, place: String, job: DispatchJob) {
        let JobFilter { status, group, .. } = self.filter;
        let fits = status.is_none_or(|status| status == job.status)
            && group.as_ref().is_none_or(|group| job.message_group.as_ref() == Some(group));
        if fits && place > self.after && self.items.len() <= self.limit {
            self.items.push((place, job));
        }
    }

    pub(super) fn page(mut self) -> Page<DispatchJob> {
        let more = self.items.len() > self.limit;
        self.items.truncate(self.limit);
        let last = self.items.last().map(|(place, _)| place.clone());
        let next = if more { last } else { self.stopped_at };
        let items = self.items.into_iter().map(|(_, job)| job).collect();
        Page { items, next: next.map(Cursor::After), prev: None }
    }
}

/// The prefix of places of tasks: they sort after all lanes, as no UUID begins like this.
const TASKS: &str = "tasks ";

/// The place of a task in the list of all jobs.
pub(super) fn task_place(number: Sequence) -> String {
    format!("{TASKS}{:020}", number.get())
}

/// The place of a job in the list of all jobs.
pub(super) fn place(lane: Uuid, sequence: Sequence) -> String {
    format!("{} {:020}", lane.simple(), sequence.get())
}
