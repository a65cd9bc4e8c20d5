//! The view of a job: what it is about, and its state at a moment.
//!
//! - Pure, so that a decision can show the job as it changes it.

use super::job_event::JobEvent;
use super::job_list_builder::StatusFacts;
use super::jobs::{EventLane, job_id};
use super::reconcile::task_expires;
use crate::ledger::{EventDigest, JobKey, JobRow, JobSlot, JobState, Ledger, TASKS, TaskRow};
use crate::subscriptions::EventSummary;
use contract::{DispatchJob, JobAttempt, JobDeferral, JobKind, Timestamp};
use std::sync::Arc;
use uuid::Uuid;

/// What a job is about.
#[derive(Clone)]
pub(super) enum JobSubject {
    /// An event in a lane.
    Event(Box<(EventLane, JobEvent)>),
    Task(Arc<Ledger>, TaskRow),
}

/// The state of a job at a moment.
#[derive(Clone)]
pub(super) struct JobSnapshot {
    pub(super) slot: Option<JobSlot>,
    /// Its stored attempts after it is done.
    pub(super) recent: Vec<JobAttempt>,
    pub(super) now: i64,
    pub(super) is_in_flight: bool,
}

impl JobSnapshot {
    /// A job that has not begun.
    pub(super) const fn not_begun(now: i64) -> Self {
        Self { slot: None, recent: Vec::new(), now, is_in_flight: false }
    }

    /// The deferral that the job waits for.
    fn deferred(&self) -> Option<JobDeferral> {
        match &self.slot {
            Some(JobSlot::Open(JobRow { standing: JobState::Waiting { .. }, deferred, .. })) => deferred.clone(),
            _ => None,
        }
    }

    /// When a person last retried it: its age counts from then.
    const fn renewed(&self) -> Option<i64> {
        match &self.slot {
            Some(JobSlot::Open(row)) => row.aged_from,
            _ => None,
        }
    }

    fn attempts(self) -> Vec<JobAttempt> {
        match self.slot {
            Some(JobSlot::Open(row)) => row.attempts,
            _ => self.recent,
        }
    }
}

impl JobSubject {
    pub(super) const fn ledger(&self) -> &Arc<Ledger> {
        match self {
            Self::Event(it) => &it.0.ledger,
            Self::Task(ledger, _) => ledger,
        }
    }

    pub(super) const fn key(&self) -> JobKey {
        match self {
            Self::Event(it) => JobKey { lane: it.0.lane, sequence: it.1.record.header.sequence },
            Self::Task(_, task) => JobKey { lane: TASKS, sequence: task.number },
        }
    }

    /// The id of the event or the task.
    pub(super) const fn event(&self) -> Uuid {
        match self {
            Self::Event(it) => Uuid::from_u128(it.1.record.header.id),
            Self::Task(_, task) => task.id,
        }
    }

    /// What the job's row is to keep of its event; a task has none.
    pub(super) fn digest(&self) -> Option<EventDigest> {
        match self {
            Self::Event(it) => {
                let record = it.1.readable()?;
                let bytes = u32::try_from(record.body.len()).unwrap_or(u32::MAX);
                let group = EventSummary::at(&record.body).and_then(|event| event.group());
                Some(EventDigest { arrived: record.header.time, bytes, group })
            }
            Self::Task(..) => None,
        }
    }

    /// The job as it is shown.
    pub(super) fn view(&self, snapshot: JobSnapshot) -> DispatchJob {
        match self {
            Self::Event(it) => event_view(&it.0, &it.1, snapshot),
            Self::Task(_, task) => self::task_view(task, snapshot),
        }
    }
}

fn event_view(lane: &EventLane, event: &JobEvent, snapshot: JobSnapshot) -> DispatchJob {
    let record = &event.record;
    let (sequence, time) = (record.header.sequence, record.header.time);
    let definition = &lane.row.definition;
    let ages_from = lane.replay.map_or(lane.row.created_at, |replay| replay.at).max(time);
    let aged_from = snapshot.renewed().unwrap_or(ages_from);
    let expires = aged_from.saturating_add(i64::from(definition.max_age_seconds) * 1000);
    let delay = if lane.replay.is_some() { 0 } else { i64::from(definition.delay_seconds) * 1000 };
    let (due, is_paused) = (time.saturating_add(delay), lane.row.paused.is_some());
    let facts = StatusFacts { expires, due, now: snapshot.now, is_in_flight: snapshot.is_in_flight, is_paused };
    let (status, scheduled, dead_letter) = facts.status(snapshot.slot.as_ref());
    let deferred = snapshot.deferred();
    let summary = EventSummary::at(&record.body);
    let group = summary.as_ref().and_then(EventSummary::group);
    DispatchJob {
        id: job_id(JobKey { lane: lane.lane, sequence }),
        kind: JobKind::Event,
        code: summary.as_ref().map(|summary| summary.event_type.clone()).unwrap_or_default(),
        subscription: Some(definition.code.clone()),
        replay: lane.replay.map(|_| lane.lane),
        event: Some(Uuid::from_u128(record.header.id)),
        topic: Some(definition.topic.clone()),
        sequence: Some(sequence),
        subject: summary.and_then(|summary| summary.subject),
        target: definition.target.clone(),
        status,
        message_group: group.map(|group| format!("{}:{group}", definition.code)),
        attempts: snapshot.attempts(),
        scheduled_for: scheduled.map(Timestamp::from_millis),
        expires_at: Some(Timestamp::from_millis(expires)),
        deferred,
        dead_letter,
        event_error: event.error(),
        created_at: Timestamp::from_millis(time),
    }
}

fn task_view(row: &TaskRow, snapshot: JobSnapshot) -> DispatchJob {
    let due = row.task.scheduled_for.unwrap_or(row.at);
    let open = match &snapshot.slot {
        Some(JobSlot::Open(open)) => Some(open),
        _ => None,
    };
    let expires = task_expires(row, open);
    let facts = StatusFacts { expires, due, now: snapshot.now, is_in_flight: snapshot.is_in_flight, is_paused: false };
    let (status, scheduled, dead_letter) = facts.status(snapshot.slot.as_ref());
    let deferred = snapshot.deferred();
    DispatchJob {
        id: row.id.to_string(),
        kind: JobKind::Task,
        code: row.task.code.clone(),
        subscription: None,
        replay: None,
        event: None,
        topic: None,
        sequence: None,
        subject: None,
        target: row.task.target.clone(),
        status,
        message_group: row.task.message_group.clone(),
        attempts: snapshot.attempts(),
        scheduled_for: scheduled.map(Timestamp::from_millis),
        expires_at: Some(Timestamp::from_millis(expires)),
        deferred,
        dead_letter,
        event_error: None,
        created_at: Timestamp::from_millis(row.at),
    }
}
