//! What a person does about a job: retry, cancel, complete; and asking for a task.
//!
//! - A verb that does not fit how the job stands is refused, and changes nothing.
//! - With the job its dead letter is closed, in the same append.

use super::jobs::{Jobs, Named, record_at};
use crate::ledger::{
    Command, Decision, DispatchFact, Entry, JobEnd, JobKey, JobRow, JobSlot, JobStanding, StoredTask, TASKS, TaskRow,
};
use crate::subscriptions::{Terms, check_task};
use contract::{DispatchJob, Error, GroupVerbs, JobStatus, Kind, NewTask, Result};
use uuid::Uuid;

/// Who acts where nobody says.
const NOBODY: &str = "unknown";

/// What a person does about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobVerb {
    /// Try again now, with all attempts.
    Retry,
    /// Call it off.
    Cancel,
    /// It need not be delivered any more.
    Complete,
}

impl Jobs<'_> {
    /// Does something about a job; answers it as it is then.
    pub(crate) async fn act(&self, id: &str, verb: JobVerb) -> Result<DispatchJob> {
        let named = self.named(id)?;
        let (ledger, key, event, shown) = match &named {
            Named::Task(ledger, task) => {
                let key = JobKey { lane: TASKS, sequence: task.number };
                (ledger, key, task.id, self.view_task(ledger, task))
            }
            Named::Event(lane, sequence) => {
                let record = record_at(lane, *sequence).await?.ok_or_else(|| Error::not_found("job"))?;
                self.check_is_job(lane, &Terms::of(&lane.row, self.vault)?, &record)?;
                let key = JobKey { lane: lane.lane, sequence: *sequence };
                (&lane.ledger, key, Uuid::from_u128(record.header.id), self.view(lane, &record))
            }
        };
        check(verb, shown.status)?;
        let by = self.by.map_or_else(|| NOBODY.to_owned(), |by| by.0.clone());
        ledger.submit(Act { key, event, verb, by }).await?;
        self.get(id).await
    }

    /// Asks for a task.
    pub(crate) async fn create_task(&self, new: NewTask) -> Result<DispatchJob> {
        check_task(&new, self.context.config.allow_private_targets)?;
        let ledger = self.logs.default_ledger();
        if let Some(pool) = &new.pool
            && pool != crate::subscriptions::DEFAULT_POOL
            && ledger.dispatch().pool(pool).is_none()
        {
            return Err(Error::invalid("/pool", "is no pool of this broker"));
        }
        let task = StoredTask {
            code: new.code,
            target: new.target,
            payload: new.payload.get().to_owned(),
            message_group: new.message_group,
            mode: new.mode,
            pool: new.pool,
            scheduled_for: new.scheduled_for.map(|at| at.millis()),
        };
        let row = ledger.submit(CreateTask { id: Uuid::new_v4(), task }).await?;
        Ok(self.view_task(ledger, &row))
    }
}

/// What each verb would do about a job that stands so and holds its group, with so many waiting behind it.
pub(super) fn would_do(status: JobStatus, waiting: u64) -> GroupVerbs {
    let behind = match waiting {
        0 => "nothing waits behind it".to_owned(),
        1 => "the one behind it".to_owned(),
        many => format!("the {many} behind it"),
    };
    let say = |verb, what: &str, then: &str| {
        let then = if waiting == 0 { behind.clone() } else { format!("{behind} {then}") };
        fits(verb, status).then(|| format!("{what}; {then}."))
    };
    GroupVerbs {
        retry: say(
            JobVerb::Retry,
            "It is tried again now, with all its attempts before it",
            "wait until it is delivered",
        ),
        cancel: say(JobVerb::Cancel, "It is called off and never delivered", "go on in order"),
        complete: say(JobVerb::Complete, "It counts as delivered without being sent again", "go on in order"),
    }
}

fn check(verb: JobVerb, status: JobStatus) -> Result<()> {
    match fits(verb, status) {
        true => Ok(()),
        false => Err(does_not_fit()),
    }
}

/// Which verbs fit which status.
const fn fits(verb: JobVerb, status: JobStatus) -> bool {
    match verb {
        JobVerb::Retry => {
            matches!(status, JobStatus::Error | JobStatus::Cancelled | JobStatus::Expired | JobStatus::Pending)
        }
        JobVerb::Cancel => matches!(status, JobStatus::Error | JobStatus::Pending | JobStatus::Queued),
        JobVerb::Complete => matches!(status, JobStatus::Error | JobStatus::Pending),
    }
}

fn does_not_fit() -> Error {
    Error::new(Kind::InvalidState, "The job's status does not allow this; look at the job again.")
}

struct Act {
    key: JobKey,
    event: Uuid,
    verb: JobVerb,
    by: String,
}

impl Command for Act {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        let slot = decision.dispatch().slot(self.key);
        match (self.verb, &slot) {
            (JobVerb::Retry, Some(JobSlot::Ended(JobEnd::Completed)))
            | (JobVerb::Cancel | JobVerb::Complete, Some(JobSlot::Ended(_))) => return Err(does_not_fit()),
            _ => (),
        }
        let (job, event, by) = (self.key, self.event, self.by.clone());
        let what = match self.verb {
            JobVerb::Retry => DispatchFact::JobRetried { job, event, by },
            JobVerb::Cancel => DispatchFact::JobCancelled { job, by },
            JobVerb::Complete => DispatchFact::JobCompleted { job, by },
        };
        decision.add_entry(Entry::Dispatch { what })?;
        match slot {
            Some(JobSlot::Open(JobRow { standing: JobStanding::Dead { letter: Some(letter) }, .. })) => {
                self.close(letter, decision)
            }
            _ => Ok(()),
        }
    }

    fn bytes(&self) -> usize {
        self.by.len()
    }
}

impl Act {
    /// What was given up is dealt with.
    fn close(&self, letter: Uuid, decision: &mut Decision<'_>) -> Result<()> {
        let by = self.by.clone();
        decision.add_entry(match self.verb {
            JobVerb::Retry => Entry::Redriven { letter, claim: None, by, reason: None, new_event: None, job: None },
            JobVerb::Cancel => {
                let reason = "The job was cancelled.".to_owned();
                Entry::Discarded { letter, claim: None, by, reason, job: None }
            }
            JobVerb::Complete => {
                let reason = "The job was completed by a person.".to_owned();
                Entry::Discarded { letter, claim: None, by, reason, job: None }
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
        if !decision.dispatch().has_room_for_tasks() {
            let detail = "As many tasks wait as may; come back when some are over.";
            return Err(Error::new(Kind::Overloaded, detail).with_retry_after(60));
        }
        let what = DispatchFact::TaskCreated { id: self.id, task: Box::new(self.task.clone()) };
        decision.add_entry(Entry::Dispatch { what })?;
        decision.dispatch().task(self.id).ok_or_else(|| Error::not_found("job"))
    }

    fn bytes(&self) -> usize {
        self.task.payload.len() + self.task.target.len()
    }
}
