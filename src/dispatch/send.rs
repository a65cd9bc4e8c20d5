//! Sending: one job becomes one delivery, on a task of its own.

use super::DispatchContext;
use super::job_event::group_by_aggregate;
use super::lane::{CachedEvent, LaneKey, PlannedJob};
use crate::delivery::{AttemptOutcome, AttemptReport, DeliveryPayload, DeliveryRequest, ErrorClass};
use crate::events::{EventLookup, damage_detail, find_event};
use crate::ledger::{EventDigest, JobSlot, Ledger, TASKS, TaskRow};
use crate::subscriptions::{CompiledSubscription, DeliverySettings, EventSummary};
use contract::{Result, Sequence, Timestamp};
use futures_util::FutureExt;
use log::TopicNumber;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// What a lane delivers.
#[derive(Clone)]
pub(crate) enum LaneSource {
    Events {
        subscription: Arc<CompiledSubscription>,
        topic: TopicNumber,
        /// The replay, if the lane is one.
        replay: Option<Uuid>,
    },
    Tasks,
}

impl LaneSource {
    /// The code of the subscription; `None` for tasks.
    pub(super) fn code(&self) -> Option<&str> {
        match self {
            Self::Events { subscription, .. } => Some(&subscription.code),
            Self::Tasks => None,
        }
    }
}

/// A delivery that ended.
pub(crate) struct DeliveryResult {
    pub(super) key: LaneKey,
    pub(super) job: PlannedJob,
    pub(super) event: Uuid,
    /// What the row of a job that was not delivered is to keep of its event.
    pub(super) digest: Option<EventDigest>,
    pub(super) began_at: i64,
    pub(super) token: u64,
    pub(super) source: LaneSource,
    pub(super) target: Arc<str>,
    pub(super) result: JobResult,
}

/// The result of a job that was sent or expired.
pub(super) enum JobResult {
    Attempted(AttemptReport),
    /// Its event was removed.
    Gone,
    /// It reached its maximum age, and was not sent.
    Expired,
}

/// The result of a job whose task panics. The next attempt would panic again, so the job is given up and becomes a dead
/// letter.
pub(super) struct PanicFallback(DeliveryResult);

impl PanicFallback {
    pub(super) fn of(key: LaneKey, job: &PlannedJob, source: &LaneSource, now: i64, token: u64) -> Self {
        let target: Arc<str> = match source {
            LaneSource::Events { subscription, .. } => subscription.delivery.target.as_str().into(),
            LaneSource::Tasks => "".into(),
        };
        let event = job.stored.as_ref().map_or(Uuid::nil(), |stored| stored.id);
        // The event is not kept twice in memory while it is sent.
        let job = PlannedJob { stored: None, target: job.target.clone(), ..*job };
        let result = JobResult::Attempted(internal_failure());
        let source = source.clone();
        Self(DeliveryResult { key, job, event, digest: None, began_at: now, token, source, target, result })
    }

    /// The result of `flight`, or the fallback if it panics.
    pub(super) async fn or_panicked(self, flight: impl Future<Output = DeliveryResult>) -> DeliveryResult {
        AssertUnwindSafe(flight).catch_unwind().await.unwrap_or(self.0)
    }
}

pub(super) async fn send_event(
    ledger: Arc<Ledger>,
    context: Arc<DispatchContext>,
    key: LaneKey,
    mut job: PlannedJob,
    (subscription, topic, replay): (Arc<CompiledSubscription>, TopicNumber, Option<Uuid>),
    now: i64,
    token: u64,
) -> DeliveryResult {
    let target: Arc<str> = subscription.delivery.target.as_str().into();
    let found = match job.stored.take() {
        Some(stored) => Ok(Some(JobSource::Intact(stored))),
        None => read_source(&ledger, topic, job.sequence).await,
    };
    drop(ledger);
    let source = LaneSource::Events { subscription: Arc::clone(&subscription), topic, replay };
    let ended = |event, digest, result| DeliveryResult {
        key,
        job: job.clone(),
        event,
        digest,
        began_at: now,
        token,
        source,
        target,
        result,
    };
    let stored = match found {
        Ok(Some(JobSource::Intact(stored))) => stored,
        Ok(Some(JobSource::Damaged { event, group })) => {
            let digest = digest_of(&job, group);
            return ended(event, Some(digest), JobResult::Attempted(event_damaged(job.sequence)));
        }
        Ok(None) => return ended(Uuid::nil(), None, JobResult::Gone),
        Err(_) => return ended(Uuid::nil(), None, JobResult::Attempted(event_unreadable())),
    };
    let summary = EventSummary::at(&stored.text);
    let (id, signing) = (stored.id.to_string(), subscription.signing(now));
    let payload = DeliveryPayload::Event { text: stored.text.clone(), format: subscription.delivery.format };
    let delivery = DeliveryRequest {
        signing: &signing,
        attempt: job.tried.saturating_add(1),
        subscription: Some(&subscription.code),
        topic: Some(&subscription.topic),
        sequence: Some(job.sequence),
        replay,
        token: Some(token),
        trace_parent: summary.as_ref().and_then(|summary| summary.trace_parent.as_deref()),
        ..unsigned_delivery(&subscription.delivery, payload, &id, context.clock.now())
    };
    let attempt = attempt(&context, delivery).await;
    let is_row = attempt.outcome != AttemptOutcome::Done;
    let digest = is_row.then(|| digest_of(&job, summary.as_ref().and_then(EventSummary::group)));
    ended(stored.id, digest, JobResult::Attempted(attempt))
}

pub(super) async fn send_task(
    ledger: Arc<Ledger>,
    context: Arc<DispatchContext>,
    key: LaneKey,
    job: PlannedJob,
    now: i64,
    token: u64,
) -> DeliveryResult {
    let row: Option<TaskRow> = ledger.dispatch().task_numbered(job.sequence).cloned();
    drop(ledger);
    let target: Arc<str> = row.as_ref().map_or("", |row| row.task.target.as_str()).into();
    let settings = row.as_ref().and_then(|row| DeliverySettings::to(&row.task.target).ok());
    let result = match (&row, settings) {
        (Some(row), Some(settings)) => {
            let id = row.id.to_string();
            let payload = DeliveryPayload::Task(row.task.payload.clone().into_bytes().into());
            let delivery = DeliveryRequest {
                attempt: job.tried.saturating_add(1),
                token: Some(token),
                ..unsigned_delivery(&settings, payload, &id, context.clock.now())
            };
            JobResult::Attempted(attempt(&context, delivery).await)
        }
        _ => JobResult::Gone,
    };
    let event = row.map_or(Uuid::nil(), |row| row.id);
    let source = LaneSource::Tasks;
    DeliveryResult { key, job, event, digest: None, began_at: now, token, source, target, result }
}

/// Lets a job expire that reached its maximum age: nothing is sent, but the id of its event must be known.
pub(super) async fn expire(
    ledger: Arc<Ledger>,
    key: LaneKey,
    job: PlannedJob,
    source: LaneSource,
    now: i64,
    token: u64,
) -> DeliveryResult {
    let group_at = |text: &[u8]| EventSummary::at(text).and_then(|event| event.group());
    let found = match (&source, known_event(&ledger, key, &job), &job.stored) {
        (LaneSource::Events { .. }, _, Some(cached)) => Ok(Some((cached.id, Some(group_at(&cached.text))))),
        (_, Some(event), _) => Ok(Some((event, None))),
        (LaneSource::Tasks, None, _) => Ok(None),
        (LaneSource::Events { topic, .. }, None, None) => {
            let found = read_source(&ledger, *topic, job.sequence).await;
            found.map(|found| {
                found.map(|found| match found {
                    JobSource::Intact(stored) => (stored.id, Some(group_at(&stored.text))),
                    JobSource::Damaged { event, group } => (event, Some(group)),
                })
            })
        }
    };
    let (event, digest, result) = match found {
        Ok(Some((event, group))) => (event, group.map(|group| digest_of(&job, group)), JobResult::Expired),
        Ok(None) => (Uuid::nil(), None, JobResult::Gone),
        Err(_) => (Uuid::nil(), None, JobResult::Attempted(event_unreadable())),
    };
    DeliveryResult { key, job, event, digest, began_at: now, token, source, target: "".into(), result }
}

/// The event of a job that is not in memory.
enum JobSource {
    Intact(CachedEvent),
    /// Its body cannot be read; its group is that of its aggregate, if there is one.
    Damaged {
        event: Uuid,
        group: Option<String>,
    },
}

async fn read_source(ledger: &Ledger, topic: TopicNumber, sequence: Sequence) -> Result<Option<JobSource>> {
    Ok(match find_event(ledger, topic, sequence).await? {
        Some(EventLookup::Intact(record)) => {
            Some(JobSource::Intact(CachedEvent { id: Uuid::from_u128(record.header.id), text: record.body }))
        }
        Some(EventLookup::Damaged(header)) => {
            let group = group_by_aggregate(ledger, &header).await;
            Some(JobSource::Damaged { event: Uuid::from_u128(header.id), group })
        }
        None => None,
    })
}

/// What the row of a job keeps of its event.
const fn digest_of(job: &PlannedJob, group: Option<String>) -> EventDigest {
    EventDigest { arrived: job.event.time, bytes: job.event.bytes, group }
}

/// The id of the event or the task of a job, if it is known without reading the log.
fn known_event(ledger: &Ledger, key: LaneKey, job: &PlannedJob) -> Option<Uuid> {
    let rows = ledger.dispatch();
    if key.lane == TASKS {
        return rows.task_numbered(job.sequence).map(|row| row.id);
    }
    match rows.lane(key.lane)?.slot(job.sequence)? {
        JobSlot::Open(row) => Some(row.event).filter(|event| !event.is_nil()),
        JobSlot::Ended(_) => None,
    }
}

/// An unsigned first attempt with these settings, of no subscription. Receivers compare its timestamp with their own
/// clocks, so it is the wall clock's.
pub(super) fn unsigned_delivery<'a>(
    settings: &'a DeliverySettings,
    payload: DeliveryPayload,
    id: &'a str,
    wall: i64,
) -> DeliveryRequest<'a> {
    DeliveryRequest {
        target: &settings.target,
        payload,
        signing: &[],
        auth: &settings.auth,
        identity: settings.identity.as_ref(),
        headers: &settings.headers,
        timeout: settings.timeout,
        id,
        at: Timestamp::from_millis(wall),
        attempt: 1,
        subscription: None,
        topic: None,
        sequence: None,
        replay: None,
        token: None,
        trace_parent: None,
    }
}

/// Makes the attempt. A delivery that panics would panic again, so the job is given up.
async fn attempt(context: &DispatchContext, delivery: DeliveryRequest<'_>) -> AttemptReport {
    let made = AssertUnwindSafe(context.deliver.deliver(delivery)).catch_unwind().await;
    made.unwrap_or_else(|_| internal_failure())
}

/// The broker failed, not the receiver.
fn internal_failure() -> AttemptReport {
    let detail = "The broker failed to make this delivery; see its log output.";
    failed_attempt(AttemptOutcome::Failed { retryable: false }, ErrorClass::Payload, detail)
}

/// The event could not be read: not the receiver's fault, so the attempt does not count.
fn event_unreadable() -> AttemptReport {
    let later = AttemptOutcome::Deferred { after: Duration::from_secs(5) };
    failed_attempt(later, ErrorClass::Connect, "The event could not be read from the log.")
}

/// The event is damaged: no other attempt would read it, so the job is given up.
fn event_damaged(sequence: Sequence) -> AttemptReport {
    failed_attempt(AttemptOutcome::Failed { retryable: false }, ErrorClass::Damaged, &damage_detail(sequence))
}

/// An attempt that was not made, for a reason inside the broker.
fn failed_attempt(outcome: AttemptOutcome, class: ErrorClass, detail: &str) -> AttemptReport {
    let error = Some((class, detail.to_owned()));
    AttemptReport { outcome, status: None, duration: Duration::ZERO, error, response: String::new() }
}
