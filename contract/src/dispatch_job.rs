//! Dispatch jobs: the duty to deliver one event to one subscription, or one task to a URL; and the pools they share.

use crate::object::object;
use crate::patch::{nullable, required};
use crate::{DispatchMode, FencingToken, IsoDuration, Sequence, Timestamp, TopicId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

/// What a job delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum JobKind {
    /// An event of a subscription.
    Event,
    /// A task: a payload that a caller provided.
    Task,
}

/// The status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobStatus {
    /// It waits for a time, for its next attempt, or until its subscription is resumed.
    Pending,
    /// It is sent as soon as its message group and its pool permit.
    Queued,
    /// The broker that responds is delivering it.
    InProgress,
    /// It was delivered, or an operator has marked it as completed.
    Completed,
    /// It was given up.
    Error,
    /// An operator has cancelled it.
    Cancelled,
    /// It reached its maximum age before it was delivered, and became a dead letter.
    Expired,
}

impl JobStatus {
    /// All statuses.
    pub const ALL: [Self; 7] =
        [Self::Pending, Self::Queued, Self::InProgress, Self::Completed, Self::Error, Self::Cancelled, Self::Expired];

    /// Its name in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Queued => "QUEUED",
            Self::InProgress => "IN_PROGRESS",
            Self::Completed => "COMPLETED",
            Self::Error => "ERROR",
            Self::Cancelled => "CANCELLED",
            Self::Expired => "EXPIRED",
        }
    }
}

/// A dispatch job and its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DispatchJob {
    /// Identifies the subscription (or the replay, or the task) and the event.
    pub id: String,
    /// What it delivers.
    pub kind: JobKind,
    /// The event's type, or the task's code.
    pub code: String,
    /// The subscription's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription: Option<String>,
    /// The replay it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<Uuid>,
    /// The event's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<Uuid>,
    /// The event's topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<TopicId>,
    /// The event's sequence there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Sequence>,
    /// The event's subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The URL.
    pub target: String,
    /// Its status.
    pub status: JobStatus,
    /// `{subscription code}:{group}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_group: Option<String>,
    /// Its attempts; only the last ones if there were many, and none of jobs that were completed long ago.
    pub attempts: Vec<JobAttempt>,
    /// When it is sent next, while it waits for a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<Timestamp>,
    /// When it reaches its maximum age.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The deferral by its receiver, while it waits because of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deferred: Option<JobDeferral>,
    /// The id of its dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<Uuid>,
    /// Why the event cannot be delivered: it is damaged on disk, or was removed. Then only its header is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_error: Option<String>,
    /// When its event was stored, or the task was created.
    pub created_at: Timestamp,
}

/// A deferral of a job by its receiver, which does not count as an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobDeferral {
    /// How often in a row, since the last attempt.
    pub count: u32,
    /// The receiver's reason.
    pub reason: String,
    /// When it was deferred last.
    pub at: Timestamp,
    /// When the job is sent again.
    pub until: Timestamp,
}

/// One attempt of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobAttempt {
    /// Its number, from 1.
    pub number: u32,
    /// When it began.
    pub at: Timestamp,
    /// How long it took.
    pub duration_ms: u64,
    /// The status of the receiver's response, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<AttemptError>,
    /// The beginning of the receiver's response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// Its fencing token.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub token: FencingToken,
}

fn is_zero(token: &FencingToken) -> bool {
    *token == FencingToken::ZERO
}

/// The error of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptError {
    /// The class: `timeout`, `http_5xx`, …
    pub class: String,
    /// The message.
    pub message: String,
}

/// A filter of jobs. An absent member selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// The status.
    pub status: Option<JobStatus>,
    /// The subscription, by id or code.
    pub subscription: Option<String>,
    /// The event.
    pub event: Option<Uuid>,
    /// The message group, as in a job.
    pub group: Option<String>,
}

/// A task: a payload to be posted to a URL.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct NewTask {
    /// A name of its kind, for people and programs.
    pub code: String,
    /// The URL.
    pub target: String,
    /// The payload: any JSON.
    pub payload: Box<RawValue>,
    /// Tasks of one group are delivered in order, according to `mode`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_group: Option<String>,
    /// The order.
    #[serde(default)]
    pub mode: DispatchMode,
    /// The pool; `default` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The earliest time of the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<Timestamp>,
}

/// A pool: concurrency and rate that subscriptions and tasks share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct Pool {
    /// Its name.
    pub code: String,
    /// The maximum number of deliveries at the same time.
    pub concurrency: u32,
    /// The maximum number of deliveries started per minute; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_minute: Option<u32>,
}

object!(NewTask Pool);

/// A change of a pool. Absent members stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PoolChange {
    /// The maximum number of deliveries at the same time.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// The maximum number of deliveries started per minute; null: no limit.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub rate_per_minute: Option<Option<u32>>,
}

/// The default waits between attempts.
#[must_use]
pub fn default_retry_schedule() -> Vec<IsoDuration> {
    [5, 30, 120, 600, 3600, 21_600, 43_200].map(IsoDuration::seconds).to_vec()
}
