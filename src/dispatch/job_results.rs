//! Reports: results of deliveries, recorded in the log. Many completions share one entry, and a report is one append.
//!
//! - A job that is done stays done: a decision of a person while it was in flight has priority.
//! - Reports are idempotent, also if two brokers submit the same.

use super::retry::NextStep;
use crate::ledger::{
    Command, DeadLetterRow, Decision, DeliveredJob, DispatchFact, Entry, EventDigest, JobKey, JobRow, JobSlot,
    JobState, Ledger, StoredDeadLetter, SubscriptionRow, uuid_from_hash,
};
use crate::subscriptions::{OperationalEvent, announce};
use contract::{
    AttemptError, ClaimAttempt, ClaimError, DeadLetterSource, FencingToken, JobAttempt, Result, Sequence, Timestamp,
    TopicId, limits,
};
use log::TopicNumber;
use std::collections::BTreeMap;
use uuid::Uuid;

/// The error class of a job that reached its maximum age.
const EXPIRED: &str = "Expired";
/// The actor named when the broker itself pauses a subscription.
pub(crate) const BROKER: &str = "broker";

/// Results of deliveries.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordDeliveries {
    pub(super) lanes: BTreeMap<Uuid, LaneReport>,
    pub(super) failed: Vec<FailedJob>,
}

/// Results of one lane.
#[derive(Debug, Clone, Default)]
pub(super) struct LaneReport {
    pub(super) settled: Sequence,
    pub(super) done: Vec<DeliveredJob>,
    /// Not delivered, because their events were removed.
    pub(super) gone: Vec<Sequence>,
}

/// A job that was not delivered: an attempt failed, or it expired.
#[derive(Debug, Clone)]
pub(super) struct FailedJob {
    pub(super) job: JobKey,
    /// The subscription; `None` for a task.
    pub(super) subscription: Option<Uuid>,
    pub(super) event: Uuid,
    pub(super) digest: Option<EventDigest>,
    /// The attempt; `None` if it expired.
    pub(super) attempt: Option<JobAttempt>,
    pub(super) next: NextStep,
}

impl RecordDeliveries {
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty() && self.failed.is_empty()
    }
}

impl FailedJob {
    fn bytes(&self) -> usize {
        let response = self.attempt.as_ref().and_then(|attempt| attempt.response.as_ref());
        let group = self.digest.as_ref().and_then(|digest| digest.group.as_ref());
        256 + response.map_or(0, String::len) + group.map_or(0, String::len)
    }
}

impl Command for RecordDeliveries {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        for (lane, report) in &self.lanes {
            end_jobs(*lane, report, decision)?;
        }
        for failed in &self.failed {
            fail(failed, decision)?;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        let jobs: usize = self.lanes.values().map(|lane| lane.done.len() * 40 + lane.gone.len() * 8 + 64).sum();
        jobs + self.failed.iter().map(FailedJob::bytes).sum::<usize>()
    }
}

fn end_jobs(lane: Uuid, report: &LaneReport, decision: &mut Decision<'_>) -> Result<()> {
    let dispatch = decision.dispatch();
    if !dispatch.has_lane(lane) {
        return Ok(());
    }
    let is_open = |sequence: Sequence| !matches!(dispatch.slot(JobKey { lane, sequence }), Some(JobSlot::Ended(_)));
    let done = report.done.iter().filter(|job| is_open(job.0)).copied().collect();
    let expired = report.gone.iter().filter(|sequence| is_open(**sequence)).copied().collect();
    drop(dispatch);
    let what = DispatchFact::JobsEnded { lane, through: report.settled, done, expired };
    decision.add_entry(Entry::Dispatch { what })?;
    Ok(())
}

fn fail(failed: &FailedJob, decision: &mut Decision<'_>) -> Result<()> {
    let FailedJob { job, subscription, event, digest, attempt, next } = failed;
    let (slot, row) = {
        let dispatch = decision.dispatch();
        let slot = dispatch.slot(*job);
        if !dispatch.has_lane(job.lane) || matches!(slot, Some(JobSlot::Ended(_))) {
            return Ok(());
        }
        (slot, subscription.and_then(|id| dispatch.subscription_row(id).ok()))
    };
    let has_digest = matches!(&slot, Some(JobSlot::Open(row)) if row.digest.is_some());
    let digest = digest.clone().filter(|_| !has_digest);
    let (retry_at, counts) = match next {
        NextStep::Done => return Ok(()),
        NextStep::Later(until) => {
            let reason = attempt.as_ref().map(deferral_reason);
            let what = DispatchFact::JobDeferred { job: *job, event: *event, until: *until, reason, digest };
            decision.add_entry(Entry::Dispatch { what })?;
            return Ok(());
        }
        NextStep::Again(at) => (Some(*at), true),
        NextStep::Gone => (Some(decision.now()), false),
        NextStep::Dead => (None, true),
        NextStep::Expired => return expire((*job, slot), row.as_ref(), (*event, digest), decision),
    };
    let Some(attempt) = attempt.clone() else { return Ok(()) };
    let (job, event) = (*job, *event);
    let error = attempt.error.clone().unwrap_or_else(unknown);
    let what = DispatchFact::JobAttempted { job, event, attempt, retry_at, counts, digest };
    decision.add_entry(Entry::Dispatch { what })?;
    match (next, row) {
        (NextStep::Gone, Some(row)) if row.paused.is_none() => pause(&row, decision),
        (NextStep::Dead, row) => give_up(job, row.as_ref(), event, error, decision),
        _ => Ok(()),
    }
}

/// Gives up a job that reached its maximum age, unless a person retried it meanwhile.
fn expire(
    (job, slot): (JobKey, Option<JobSlot>),
    row: Option<&SubscriptionRow>,
    (event, digest): (Uuid, Option<EventDigest>),
    decision: &mut Decision<'_>,
) -> Result<()> {
    let seconds = row.map_or(limits::JOB_AGE_SECONDS_DEFAULT, |row| row.definition.max_age_seconds);
    let known = match slot {
        Some(JobSlot::Open(known)) => Some(known),
        _ => None,
    };
    let is_renewed = |from: i64| from.saturating_add(i64::from(seconds) * 1000) > decision.now();
    let is_dead = |known: &JobRow| matches!(known.standing, JobState::Dead { .. });
    if known.as_ref().is_some_and(|known| is_dead(known) || known.aged_from.is_some_and(is_renewed)) {
        return Ok(());
    }
    let last = known.as_ref().and_then(|known| known.attempts.last()).and_then(|attempt| attempt.error.as_ref());
    let tried = last.map_or_else(String::new, |last| format!(" The last attempt: {}: {}", last.class, last.message));
    let message = format!("The job was not delivered within its maximum age of {seconds} seconds.{tried}");
    decision.add_entry(Entry::Dispatch { what: DispatchFact::JobExpired { job, event, digest } })?;
    give_up(job, row, event, AttemptError { class: EXPIRED.to_owned(), message }, decision)
}

fn pause(row: &SubscriptionRow, decision: &mut Decision<'_>) -> Result<()> {
    let reason = "The receiver responded with 410 Gone.";
    let what = DispatchFact::SubscriptionPaused { id: row.id, by: BROKER.to_owned(), reason: Some(reason.to_owned()) };
    decision.add_entry(Entry::Dispatch { what })?;
    announce(&OperationalEvent::Paused { row, by: BROKER, reason: Some(reason) }, decision)
}

/// Gives up a job: a job of a subscription becomes a dead letter, and an operations event is published.
fn give_up(
    job: JobKey,
    row: Option<&SubscriptionRow>,
    event: Uuid,
    error: AttemptError,
    decision: &mut Decision<'_>,
) -> Result<()> {
    let dead_letter = row.map(|row| add_dead_letter(job, row, event, &error, decision)).transpose()?.flatten();
    announce(&OperationalEvent::JobDead { row, job, event, dead_letter, error }, decision)
}

/// Adds a dead letter for a job.
fn add_dead_letter(
    job: JobKey,
    row: &SubscriptionRow,
    event: Uuid,
    error: &AttemptError,
    decision: &mut Decision<'_>,
) -> Result<Option<Uuid>> {
    if !matches!(decision.dispatch().slot(job), Some(JobSlot::Open(_))) {
        return Ok(None);
    }
    let topic = topic_of(row, decision);
    let code = &row.definition.code;
    let error = ClaimError { class: error.class.clone(), message: error.message.clone() };
    let position = decision.position().next().get();
    let dead_letter = StoredDeadLetter {
        id: letter_id(job, position),
        source: DeadLetterSource::Subscription,
        name: code.clone(),
        topic,
        number: row.number,
        sequence: job.sequence,
        event,
        error,
        // They stay with the job.
        attempts: Vec::new(),
        superseded: false,
        job: Some(job),
    };
    let id = dead_letter.id;
    decision.add_entry(Entry::DeadLettered { letter: Box::new(dead_letter) })?;
    Ok(Some(id))
}

fn topic_of(row: &SubscriptionRow, decision: &Decision<'_>) -> TopicId {
    let known = decision.registry().topic_numbered(TopicNumber(row.number));
    known.map_or_else(|| row.definition.topic.clone(), |topic| topic.topic.definition.id.clone())
}

/// Why the receiver deferred a delivery.
fn deferral_reason(attempt: &JobAttempt) -> String {
    match (&attempt.error, attempt.status) {
        (Some(error), _) => error.message.clone(),
        (None, Some(200..300)) => "The receiver responded with `ack: false`.".to_owned(),
        (None, Some(status)) => format!("The receiver responded with {status} and Retry-After."),
        (None, None) => String::new(),
    }
}

fn unknown() -> AttemptError {
    AttemptError { class: "unknown".to_owned(), message: String::new() }
}

/// The attempts of a job before it became a dead letter, as far as they are stored; older logs have them in the dead
/// letter.
pub(crate) fn attempts_of(ledger: &Ledger, row: &DeadLetterRow) -> Vec<ClaimAttempt> {
    let Some(job) = row.letter.job.filter(|_| row.letter.attempts.is_empty()) else {
        return row.letter.attempts.clone();
    };
    let rows = ledger.dispatch();
    let Some(lane) = rows.lane(job.lane) else { return Vec::new() };
    let known = match lane.slot(job.sequence) {
        Some(JobSlot::Open(open)) => open.attempts,
        _ => lane.recent(job.sequence),
    };
    let before = known.iter().filter(|attempt| attempt.error.is_some() && attempt.at.millis() <= row.at);
    before.map(|attempt| letter_attempt(attempt, &row.letter.name)).collect()
}

/// An attempt in the form of dead letters.
fn letter_attempt(attempt: &JobAttempt, code: &str) -> ClaimAttempt {
    let error = attempt.error.clone().unwrap_or_else(unknown);
    let lasted = i64::try_from(attempt.duration_ms).unwrap_or(i64::MAX);
    ClaimAttempt {
        number: attempt.number,
        token: attempt.token,
        owner: code.to_owned(),
        started_at: attempt.at,
        failed_at: Timestamp::from_millis(attempt.at.millis().saturating_add(lasted)),
        error: ClaimError { class: error.class, message: error.message },
    }
}

/// Derived from the job and the position, so that deciding again gives the same id, and ids are unique.
fn letter_id(job: JobKey, position: u64) -> Uuid {
    uuid_from_hash(&format!("dead letter\n{}\n{}\n{position}", job.lane, job.sequence))
}

/// An attempt in the form that is stored.
pub(super) fn job_attempt(attempt: &crate::delivery::AttemptReport, number: u32, at: i64, token: u64) -> JobAttempt {
    let response = attempt.response.get(..attempt.response.floor_char_boundary(limits::RESPONSE_BYTES_KEPT));
    let error = attempt.error.as_ref();
    JobAttempt {
        number,
        at: Timestamp::from_millis(at),
        duration_ms: u64::try_from(attempt.duration.as_millis()).unwrap_or(u64::MAX),
        status: attempt.status,
        error: error.map(|(class, message)| AttemptError { class: class.to_string(), message: message.clone() }),
        response: response.filter(|text| !text.is_empty()).map(str::to_owned),
        token: FencingToken(token),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_jobs_dead_letter_never_changes() {
        let job = JobKey { lane: Uuid::from_u128(7), sequence: Sequence(9) };
        assert_eq!(letter_id(job, 41).to_string(), "0c3c96de-cc16-8c8c-bd0d-d4eb6025d333");
    }
}
