//! Reports: what came of deliveries, written down. Many completions share one entry, and all of a report one append.
//!
//! - A job that is over stays over: what a person decided while it was under way counts.
//! - Said twice, by two brokers even, a report changes nothing twice.

use super::retry::Next;
use crate::ledger::{Command, Decision, DispatchFact, DoneJob, Entry, JobKey, JobSlot, Letter, SubscriptionRow};
use crate::subscriptions::{News, tell};
use contract::{
    Attempt, AttemptError, ClaimError, JobAttempt, LetterSource, Result, Sequence, Timestamp, Token, TopicId,
};
use log::TopicNumber;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Who pauses a subscription whose receiver is gone.
pub(crate) const BROKER: &str = "broker";

/// What came of deliveries.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    pub(super) lanes: BTreeMap<Uuid, LaneReport>,
    pub(super) failed: Vec<Failed>,
}

/// Of one lane.
#[derive(Debug, Clone, Default)]
pub(super) struct LaneReport {
    pub(super) through: Sequence,
    pub(super) done: Vec<DoneJob>,
    pub(super) expired: Vec<Sequence>,
}

/// An attempt that did not deliver.
#[derive(Debug, Clone)]
pub(super) struct Failed {
    pub(super) job: JobKey,
    /// The subscription; tasks have none.
    pub(super) subscription: Option<Uuid>,
    pub(super) event: Uuid,
    pub(super) attempt: JobAttempt,
    pub(super) next: Next,
}

impl Report {
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty() && self.failed.is_empty()
    }
}

impl Command for Report {
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
        let jobs: usize = self.lanes.values().map(|lane| lane.done.len() * 40 + lane.expired.len() * 8 + 64).sum();
        jobs + self.failed.iter().map(|it| 256 + it.attempt.response.as_ref().map_or(0, String::len)).sum::<usize>()
    }
}

fn end_jobs(lane: Uuid, report: &LaneReport, decision: &mut Decision<'_>) -> Result<()> {
    let dispatch = decision.dispatch();
    if !dispatch.has_lane(lane) {
        return Ok(());
    }
    let is_open = |sequence: Sequence| !matches!(dispatch.slot(JobKey { lane, sequence }), Some(JobSlot::Ended(_)));
    let done = report.done.iter().filter(|job| is_open(job.0)).copied().collect();
    let expired = report.expired.iter().filter(|sequence| is_open(**sequence)).copied().collect();
    drop(dispatch);
    let what = DispatchFact::JobsEnded { lane, through: report.through, done, expired };
    decision.add_entry(Entry::Dispatch { what })?;
    Ok(())
}

fn fail(failed: &Failed, decision: &mut Decision<'_>) -> Result<()> {
    let Failed { job, subscription, event, attempt, next } = failed;
    let row = {
        let dispatch = decision.dispatch();
        if !dispatch.has_lane(job.lane) || matches!(dispatch.slot(*job), Some(JobSlot::Ended(_))) {
            return Ok(());
        }
        subscription.and_then(|id| dispatch.known(id).ok())
    };
    let (retry_at, counts) = match next {
        Next::Done => return Ok(()),
        Next::Later(until) => {
            let reason = Some(deferral_reason(attempt));
            let what = DispatchFact::JobDeferred { job: *job, event: *event, until: *until, reason };
            decision.add_entry(Entry::Dispatch { what })?;
            return Ok(());
        }
        Next::Again(at) => (Some(*at), true),
        Next::Gone => (Some(decision.now()), false),
        Next::Dead => (None, true),
    };
    let (job, event, attempt) = (*job, *event, attempt.clone());
    let error = attempt.error.clone().unwrap_or_else(unknown);
    let what = DispatchFact::JobAttempted { job, event, attempt, retry_at, counts };
    decision.add_entry(Entry::Dispatch { what })?;
    match (next, row) {
        (Next::Gone, Some(row)) if row.paused.is_none() => pause(&row, decision),
        (Next::Dead, row) => give_up(job, row.as_ref(), event, error, decision),
        _ => Ok(()),
    }
}

fn pause(row: &SubscriptionRow, decision: &mut Decision<'_>) -> Result<()> {
    let reason = "The receiver answered 410 Gone.";
    let what = DispatchFact::SubscriptionPaused { id: row.id, by: BROKER.to_owned(), reason: Some(reason.to_owned()) };
    decision.add_entry(Entry::Dispatch { what })?;
    tell(&News::Paused { row, by: BROKER, reason: Some(reason) }, decision)
}

/// Gives a job up: one of a subscription becomes a dead letter, and somebody is told.
fn give_up(
    job: JobKey,
    row: Option<&SubscriptionRow>,
    event: Uuid,
    error: AttemptError,
    decision: &mut Decision<'_>,
) -> Result<()> {
    let letter = row.map(|row| bury(job, row, event, decision)).transpose()?.flatten();
    tell(&News::JobDead { row, job, event, letter, error }, decision)
}

/// Makes a dead letter of a job, with all that was tried.
fn bury(job: JobKey, row: &SubscriptionRow, event: Uuid, decision: &mut Decision<'_>) -> Result<Option<Uuid>> {
    let Some(JobSlot::Open(open)) = decision.dispatch().slot(job) else { return Ok(None) };
    let topic = topic_of(row, decision);
    let code = &row.definition.code;
    let attempts: Vec<_> = open.attempts.iter().map(|attempt| tried(attempt, code)).collect();
    let error = attempts.last().map_or_else(|| ClaimError::new("unknown", ""), |last| last.error.clone());
    let position = decision.position().next().get();
    let letter = Letter {
        id: letter_id(job, position),
        source: LetterSource::Subscription,
        name: code.clone(),
        topic,
        number: row.number,
        sequence: job.sequence,
        event,
        error,
        attempts,
        superseded: false,
        job: Some(job),
    };
    let id = letter.id;
    decision.add_entry(Entry::DeadLettered { letter: Box::new(letter) })?;
    Ok(Some(id))
}

fn topic_of(row: &SubscriptionRow, decision: &Decision<'_>) -> TopicId {
    let known = decision.registry().topic_numbered(TopicNumber(row.number));
    known.map_or_else(|| row.definition.topic.clone(), |topic| topic.topic.definition.id.clone())
}

/// What a receiver said that put a delivery off.
fn deferral_reason(attempt: &JobAttempt) -> String {
    match (&attempt.error, attempt.status) {
        (Some(error), _) => error.message.clone(),
        (None, Some(200..300)) => "The receiver answered `ack: false`.".to_owned(),
        (None, Some(status)) => format!("The receiver answered {status} with Retry-After."),
        (None, None) => String::new(),
    }
}

fn unknown() -> AttemptError {
    AttemptError { class: "unknown".to_owned(), message: String::new() }
}

/// An attempt as dead letters show it.
fn tried(attempt: &JobAttempt, code: &str) -> Attempt {
    let error = attempt.error.clone().unwrap_or_else(unknown);
    let lasted = i64::try_from(attempt.duration_ms).unwrap_or(i64::MAX);
    Attempt {
        number: attempt.number,
        token: attempt.token,
        owner: code.to_owned(),
        started_at: attempt.at,
        failed_at: Timestamp::from_millis(attempt.at.millis().saturating_add(lasted)),
        error: ClaimError { class: error.class, message: error.message },
    }
}

/// Made of what the letter is about, so that deciding the same again names it the same; no two letters share one.
fn letter_id(job: JobKey, position: u64) -> Uuid {
    let hash = blake3::hash(format!("dead letter\n{}\n{}\n{position}", job.lane, job.sequence).as_bytes());
    let half = hash.as_bytes().as_chunks::<16>().0.first().copied().unwrap_or_default();
    uuid::Builder::from_custom_bytes(half).into_uuid()
}

/// An attempt as the log keeps it.
pub(super) fn recorded(attempt: &crate::delivery::Attempt, number: u32, at: i64, token: u64) -> JobAttempt {
    const RESPONSE_BYTES_KEPT: usize = 1024;
    let response = attempt.response.get(..attempt.response.floor_char_boundary(RESPONSE_BYTES_KEPT));
    let error = attempt.error.as_ref();
    JobAttempt {
        number,
        at: Timestamp::from_millis(at),
        duration_ms: u64::try_from(attempt.duration.as_millis()).unwrap_or(u64::MAX),
        status: attempt.status,
        error: error.map(|(class, message)| AttemptError { class: class.to_string(), message: message.clone() }),
        response: response.filter(|text| !text.is_empty()).map(str::to_owned),
        token: Token(token),
    }
}
