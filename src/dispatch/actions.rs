//! Actions of a person on a job (retry, cancel, complete), and the creation of tasks.
//!
//! - An action that does not fit the job's status is refused and changes nothing.
//! - The dead letter of the job is resolved in the same append.

use super::job_event::{EventCondition, JobEvent};
use super::job_view::{JobSnapshot, JobSubject};
use super::jobs::{DispatchJobs, JobRef};
use crate::ledger::{
    Command, Decision, DispatchFact, Entry, EventDigest, JobEnd, JobKey, JobRow, JobSlot, JobState, ReplyRecorder,
    StoredTask, TaskRow,
};
use crate::subscriptions::{check_host, check_pool, check_task};
use contract::{DispatchJob, Error, GroupActions, JobAttempt, JobStatus, Kind, NewTask, Result};
use std::sync::Arc;
use uuid::Uuid;

/// The actor if the request names none.
const UNKNOWN_CALLER: &str = "unknown";

/// What a person does with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobAction {
    /// Retry it now, with all its attempts.
    Retry,
    /// Cancel it.
    Cancel,
    /// Count it as delivered.
    Complete,
}

impl DispatchJobs<'_> {
    /// Performs an action on a job; returns the job after it.
    pub(crate) async fn act(
        &self,
        id: &str,
        verb: JobAction,
        recorder: ReplyRecorder<DispatchJob>,
    ) -> Result<DispatchJob> {
        let subject = match self.job_ref(id)? {
            JobRef::Task(ledger, task) => JobSubject::Task(ledger, task),
            JobRef::Event(lane, sequence) => {
                let event = self.job_event(&lane, sequence).await?.ok_or_else(|| Error::not_found("job"))?;
                if verb == JobAction::Retry {
                    check_deliverable(&event)?;
                }
                self.check_is_job(&lane, &event)?;
                JobSubject::Event(Box::new((lane, event)))
            }
        };
        let now = self.job_snapshot(&subject);
        check(verb, subject.view(now.clone()).status)?;
        let by = self.by.map_or_else(|| UNKNOWN_CALLER.to_owned(), |by| by.0.clone());
        let act = ActOnJob { key: subject.key(), event: subject.event(), digest: subject.digest(), action: verb, by };
        let ledger = Arc::clone(subject.ledger());
        let shown = move |acted: &ActionOutcome| subject.view(acted.job_snapshot(&now));
        let seen = shown.clone();
        let recorder = recorder.map_answer(move |acted| Some(Ok(seen(acted))));
        Ok(shown(&ledger.submit_recording(act, recorder).await?))
    }

    /// Creates a task.
    pub(crate) async fn create_task(&self, new: NewTask, recorder: ReplyRecorder<DispatchJob>) -> Result<DispatchJob> {
        check_task(&new, self.context.config.allow_private_targets)?;
        check_host("/target", &new.target, &self.context.config)?;
        self.secrets.inspect_payload(new.payload.get())?;
        let ledger = self.logs.default_ledger();
        let task = StoredTask {
            code: new.code,
            target: new.target,
            payload: new.payload.get().to_owned(),
            message_group: new.message_group,
            mode: new.mode,
            pool: new.pool,
            scheduled_for: new.scheduled_for.map(|at| at.millis()),
        };
        // It has no history yet, so its row alone is shown.
        let (now, task_ledger) = (ledger.now(), Arc::clone(ledger));
        let shown = move |row: &TaskRow| {
            JobSubject::Task(Arc::clone(&task_ledger), row.clone()).view(JobSnapshot::not_begun(now.max(row.at)))
        };
        let seen = shown.clone();
        let recorder = recorder.map_answer(move |row| Some(Ok(seen(row))));
        Ok(shown(&ledger.submit_recording(CreateTask { id: Uuid::new_v4(), task }, recorder).await?))
    }
}

/// What each action would do to a job with this status that blocks its group, with so many jobs waiting behind it.
pub(super) fn available_actions(
    (status, condition): (JobStatus, EventCondition),
    waiting: u64,
    is_lower_bound: bool,
) -> GroupActions {
    let then = |one: &str, many: &str| match waiting {
        count if is_lower_bound => format!("those behind it, {count} or more, {many}"),
        0 => "nothing waits behind it".to_owned(),
        1 => format!("the one behind it {one}"),
        count => format!("the {count} behind it {many}"),
    };
    let is_deliverable = condition == EventCondition::Intact;
    let is_possible = |verb| fits(verb, status) && (is_deliverable || verb != JobAction::Retry);
    let say = |verb, what: &str, then: String| is_possible(verb).then(|| format!("{what}; {then}."));
    let (waits, goes) =
        (then("waits until it is delivered", "wait until it is delivered"), then("goes on in order", "go on in order"));
    GroupActions {
        retry: say(JobAction::Retry, "It is tried again now, with all its attempts before it", waits),
        cancel: say(JobAction::Cancel, "It is cancelled and never delivered", goes.clone()),
        complete: say(JobAction::Complete, "It counts as delivered without being sent again", goes),
    }
}

fn check(verb: JobAction, status: JobStatus) -> Result<()> {
    match fits(verb, status) {
        true => Ok(()),
        false => Err(wrong_status()),
    }
}

/// Which actions fit which status.
const fn fits(verb: JobAction, status: JobStatus) -> bool {
    match verb {
        JobAction::Retry => {
            matches!(status, JobStatus::Error | JobStatus::Cancelled | JobStatus::Expired | JobStatus::Pending)
        }
        JobAction::Cancel => {
            matches!(status, JobStatus::Error | JobStatus::Expired | JobStatus::Pending | JobStatus::Queued)
        }
        JobAction::Complete => matches!(status, JobStatus::Error | JobStatus::Expired | JobStatus::Pending),
    }
}

fn wrong_status() -> Error {
    Error::new(Kind::InvalidState, "The job's status does not allow this; look at the job again.")
}

/// Refuses to retry a job whose event cannot be delivered.
fn check_deliverable(event: &JobEvent) -> Result<()> {
    match event.error() {
        None => Ok(()),
        Some(why) => {
            let detail = format!("{why} It cannot be delivered; cancel or complete the job.");
            Err(Error::new(Kind::InvalidState, detail))
        }
    }
}

struct ActOnJob {
    key: JobKey,
    event: Uuid,
    digest: Option<EventDigest>,
    action: JobAction,
    by: String,
}

/// The job after an action.
struct ActionOutcome {
    slot: Option<JobSlot>,
    /// The attempts of a job that had a row and is done now.
    attempts: Vec<JobAttempt>,
    at: i64,
}

impl ActionOutcome {
    /// The state of the job after the action.
    fn job_snapshot(&self, before: &JobSnapshot) -> JobSnapshot {
        let recent = before.recent.iter().chain(&self.attempts).cloned().collect();
        JobSnapshot { slot: self.slot.clone(), recent, now: before.now.max(self.at), is_in_flight: before.is_in_flight }
    }
}

impl Command for ActOnJob {
    type Answer = ActionOutcome;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<ActionOutcome> {
        let slot = decision.dispatch().slot(self.key);
        let has_digest = matches!(&slot, Some(JobSlot::Open(row)) if row.digest.is_some());
        let digest = self.digest.clone().filter(|_| !has_digest);
        match (self.action, &slot) {
            (JobAction::Retry, Some(JobSlot::Ended(JobEnd::Completed)))
            | (JobAction::Cancel | JobAction::Complete, Some(JobSlot::Ended(_))) => return Err(wrong_status()),
            _ => (),
        }
        let (job, event, by) = (self.key, self.event, self.by.clone());
        let what = match self.action {
            JobAction::Retry => DispatchFact::JobRetried { job, event, by, digest },
            JobAction::Cancel => DispatchFact::JobCancelled { job, by },
            JobAction::Complete => DispatchFact::JobCompleted { job, by },
        };
        decision.add_entry(Entry::Dispatch { what })?;
        let row = match slot {
            Some(JobSlot::Open(row)) => Some(row),
            _ => None,
        };
        if let Some(JobRow { standing: JobState::Dead { letter: Some(dead_letter), .. }, .. }) = &row {
            self.close(*dead_letter, decision)?;
        }
        let attempts = row.map(|row| row.attempts).unwrap_or_default();
        Ok(ActionOutcome { slot: decision.dispatch().slot(self.key), attempts, at: decision.now() })
    }

    fn bytes(&self) -> usize {
        self.by.len()
    }
}

impl ActOnJob {
    /// Resolves the dead letter of the job.
    fn close(&self, dead_letter: Uuid, decision: &mut Decision<'_>) -> Result<()> {
        let by = self.by.clone();
        decision.add_entry(match self.action {
            JobAction::Retry => {
                let (reason, new_event) = (None, None);
                Entry::Redriven { letter: dead_letter, claim: None, by, reason, new_event, original: None, job: None }
            }
            JobAction::Cancel => {
                let reason = "The job was cancelled.".to_owned();
                Entry::Discarded { letter: dead_letter, claim: None, by, reason, job: None }
            }
            JobAction::Complete => {
                let reason = "The job was completed by a person.".to_owned();
                Entry::Discarded { letter: dead_letter, claim: None, by, reason, job: None }
            }
        })?;
        Ok(())
    }
}

struct CreateTask {
    id: Uuid,
    task: StoredTask,
}

impl Command for CreateTask {
    type Answer = TaskRow;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<TaskRow> {
        check_pool(decision, self.task.pool.as_deref())?;
        if !decision.dispatch().has_room_for_task(self.task.bytes()) {
            let detail = "The log holds its maximum of tasks, in number or in bytes; retry when some are over.";
            return Err(Error::new(Kind::Overloaded, detail).with_retry_after(60));
        }
        let what = DispatchFact::TaskCreated { id: self.id, task: Box::new(self.task.clone()) };
        decision.add_entry(Entry::Dispatch { what })?;
        decision.dispatch().task(self.id).ok_or_else(|| Error::not_found("job"))
    }

    fn bytes(&self) -> usize {
        self.task.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_verb_would_do_is_said_of_none_one_and_many() {
        let cancel =
            |waiting| available_actions((JobStatus::Error, EventCondition::Intact), waiting, false).cancel.unwrap();
        for (waiting, end) in [
            (0, "; nothing waits behind it."),
            (1, "; the one behind it goes on in order."),
            (2, "; the 2 behind it go on in order."),
        ] {
            assert!(cancel(waiting).ends_with(end), "{}", cancel(waiting));
        }
        let many = available_actions((JobStatus::Error, EventCondition::Intact), 5, true).cancel.unwrap();
        assert!(many.ends_with("; those behind it, 5 or more, go on in order."), "{many}");
        assert!(available_actions((JobStatus::Completed, EventCondition::Intact), 1, false).retry.is_none());
        for condition in [EventCondition::Removed, EventCondition::Damaged] {
            let gone = available_actions((JobStatus::Error, condition), 1, false);
            assert!(gone.retry.is_none() && gone.cancel.is_some());
        }
    }
}
