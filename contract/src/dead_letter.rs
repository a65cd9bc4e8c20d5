//! Dead letters: work that was given up, kept until an operator redrives or discards it.

use crate::object::object;
use crate::{ClaimAttempt, Sequence, Timestamp, TopicId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

/// The source of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeadLetterSource {
    /// The work of a handler.
    Handler,
    /// A delivery of a subscription.
    Subscription,
}

/// The status of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeadLetterStatus {
    /// Not resolved.
    Open,
    /// The event is available again, or a corrected event was published in its place.
    Redriven,
    /// The event will not be worked on.
    Discarded,
}

/// A dead letter.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// Its id, assigned by the broker.
    pub id: Uuid,
    /// Its source.
    pub source: DeadLetterSource,
    /// The handler, or the subscription.
    pub name: String,
    /// The same as `name`, under the member name that dead-letter headers use.
    pub service: String,
    /// Its status.
    pub status: DeadLetterStatus,
    /// The class of the last failure.
    #[serde(rename = "exc_class")]
    pub exc_class: String,
    /// The message of the last failure.
    #[serde(rename = "exc_msg")]
    pub exc_msg: String,
    /// The event's topic.
    #[serde(rename = "original_topic")]
    pub original_topic: TopicId,
    /// The event's sequence there.
    pub sequence: Sequence,
    /// The event's id.
    #[serde(rename = "event_id")]
    pub event_id: Uuid,
    /// The event's `correlationId`.
    #[serde(rename = "correlation_id", default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// All attempts; only the last ones if there were very many.
    pub attempts: Vec<ClaimAttempt>,
    /// When it was given up.
    pub created_at: Timestamp,
    /// Who resolved it, when and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<DeadLetterResolution>,
    /// The event itself; absent if it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Box<RawValue>>,
    /// Why the event cannot be read: it is damaged on disk, or was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_error: Option<String>,
}

/// How a dead letter was resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterResolution {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The event that was published in place of the old one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_event_id: Option<Uuid>,
}

/// A filter of dead letters. An absent member selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    /// The source.
    pub source: Option<DeadLetterSource>,
    /// The handler or subscription.
    pub name: Option<String>,
    /// The topic of the events.
    pub topic: Option<TopicId>,
    /// Also those that are resolved.
    pub resolved_too: bool,
}

/// A request to redrive a dead letter.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RedriveRequest {
    /// The changes to the event.
    #[serde(rename = "override", default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<RedriveOverride>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only check whether it is possible.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// The changes of a redrive: a new event replaces the old one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct RedriveOverride {
    /// The new event's payload; that of the old event when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
    /// Publish a new event even if the payload is the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub new_event_id: bool,
}

object!(RedriveOverride);

/// A request to redrive or discard several dead letters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BulkResolveRequest {
    /// The source; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<DeadLetterSource>,
    /// The handler or subscription; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The topic of the events; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<TopicId>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// The result of a request about several dead letters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BulkResolveOutcome {
    /// How many were redriven or discarded, or would be.
    pub count: u64,
    /// How many of the selected ones cannot be redriven and stay open: their events are no longer stored or are
    /// damaged, or their subscription was deleted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The number of open dead letters, in total and by source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterSummary {
    /// The total.
    pub count: u64,
    /// By source, name and topic.
    pub items: Vec<DeadLetterCount>,
}

/// The number of open dead letters of one handler or subscription in one topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterCount {
    /// The source.
    pub source: DeadLetterSource,
    /// The handler or the subscription.
    pub name: String,
    /// The topic.
    #[serde(rename = "original_topic")]
    pub original_topic: TopicId,
    /// How many.
    pub count: u64,
    /// When the oldest was given up.
    pub oldest: Timestamp,
    /// When the newest was given up.
    pub newest: Timestamp,
}
