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
    /// An event, because of a subscription.
    Event,
    /// A payload somebody asked to have delivered.
    Task,
}

/// How a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobStatus {
    /// It waits: for a time, for its next try, or for its subscription to be resumed.
    Pending,
    /// It goes as soon as its group and its pool let it.
    Queued,
    /// It is being delivered by the broker that was asked.
    InProgress,
    /// It was delivered, or a person said that it need not be.
    Completed,
    /// It was given up.
    Error,
    /// A person called it off.
    Cancelled,
    /// It reached its maximum age before it was delivered, and is a dead letter.
    Expired,
}

impl JobStatus {
    /// Every one of them.
    pub const ALL: [Self; 7] =
        [Self::Pending, Self::Queued, Self::InProgress, Self::Completed, Self::Error, Self::Cancelled, Self::Expired];

    /// Its name on the wire.
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

/// A job as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DispatchJob {
    /// Stands for the subscription (or the replay, or the task) and the event.
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
    /// The event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<Uuid>,
    /// The event's topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<TopicId>,
    /// The event's number there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Sequence>,
    /// What the event speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Where it goes.
    pub target: String,
    /// How it stands.
    pub status: JobStatus,
    /// `{subscription code}:{group}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_group: Option<String>,
    /// What was tried, the last ones where there were many; of jobs long completed nothing is kept.
    pub attempts: Vec<JobAttempt>,
    /// When it goes next, while it waits for a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<Timestamp>,
    /// When it grows too old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// That the receiver put it off, and why, while it waits for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deferred: Option<JobDeferral>,
    /// The dead letter it became.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<Uuid>,
    /// When its event arrived, or it was asked for.
    pub created_at: Timestamp,
}

/// A job that its receiver put off, which costs no attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobDeferral {
    /// How often in a row, since the last attempt that counts.
    pub count: u32,
    /// What the receiver said.
    pub reason: String,
    /// When it said so, the last time.
    pub at: Timestamp,
    /// When the job is sent again.
    pub until: Timestamp,
}

/// One try of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobAttempt {
    /// Which one, from 1.
    pub number: u32,
    /// When it began.
    pub at: Timestamp,
    /// How long it took.
    pub duration_ms: u64,
    /// The receiver's status, if it came to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<AttemptError>,
    /// The beginning of the receiver's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// What fenced it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub token: FencingToken,
}

fn is_zero(token: &FencingToken) -> bool {
    *token == FencingToken::ZERO
}

/// What went wrong with a try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptError {
    /// What kind: `timeout`, `http_5xx`, …
    pub class: String,
    /// What there is to say.
    pub message: String,
}

/// Which jobs are meant. What is absent does not narrow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// How they stand.
    pub status: Option<JobStatus>,
    /// Of this subscription, by id or code.
    pub subscription: Option<String>,
    /// Of this event.
    pub event: Option<Uuid>,
    /// Of this message group, as jobs show it.
    pub group: Option<String>,
}

/// A task: a payload to be posted to a URL.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct NewTask {
    /// What it is about, for people and programs.
    pub code: String,
    /// The URL.
    pub target: String,
    /// Any JSON.
    pub payload: Box<RawValue>,
    /// Tasks of one group keep their order, as `mode` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_group: Option<String>,
    /// What order.
    #[serde(default)]
    pub mode: DispatchMode,
    /// Which pool; `default` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Not before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<Timestamp>,
}

/// Concurrency and rate shared by subscriptions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct Pool {
    /// Its name.
    pub code: String,
    /// Most deliveries at a time.
    pub concurrency: u32,
    /// Most deliveries begun in a minute; absent: as many as it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_minute: Option<u32>,
}

object!(NewTask Pool);

/// What is to be different about a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PoolChange {
    /// Most deliveries at a time.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Most deliveries begun in a minute; null: as many as it takes.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub rate_per_minute: Option<Option<u32>>,
}

/// The schedule of tries where nobody says otherwise.
#[must_use]
pub fn default_retry_schedule() -> Vec<IsoDuration> {
    [5, 30, 120, 600, 3600, 21_600, 43_200].map(IsoDuration::seconds).to_vec()
}
