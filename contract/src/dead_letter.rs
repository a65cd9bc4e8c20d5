//! Dead letters: work given up, kept for a person to redrive or discard.

use crate::object::object;
use crate::{ClaimAttempt, Sequence, Timestamp, TopicId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

/// Whose work was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeadLetterSource {
    /// A handler's.
    Handler,
    /// A subscription's.
    Subscription,
}

/// Whether somebody has dealt with a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeadLetterStatus {
    /// Not yet.
    Open,
    /// The event may be worked on again, or a corrected one was published in its place.
    Redriven,
    /// The event is not to be worked on.
    Discarded,
}

/// Work given up.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// Made by the broker.
    pub id: Uuid,
    /// Whose work it was.
    pub source: DeadLetterSource,
    /// The handler, or the subscription.
    pub name: String,
/// The same as `name`, under the member name that dead-letter headers use.
    pub service: String,
    /// How it stands.
    pub status: DeadLetterStatus,
    /// The class of the last failure.
    #[serde(rename = "exc_class")]
    pub exc_class: String,
    /// What it said.
    #[serde(rename = "exc_msg")]
    pub exc_msg: String,
    /// The event's topic.
    #[serde(rename = "original_topic")]
    pub original_topic: TopicId,
    /// The event's number there.
    pub sequence: Sequence,
    /// The event.
    #[serde(rename = "event_id")]
    pub event_id: Uuid,
    /// The event's `correlationId`.
    #[serde(rename = "correlation_id", default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// Every try, the last ones where there were very many.
    pub attempts: Vec<ClaimAttempt>,
    /// When it was given up.
    pub created_at: Timestamp,
    /// Who dealt with it, when and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<DeadLetterResolution>,
    /// The event itself; absent once retention has removed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Box<RawValue>>,
}

/// How somebody dealt with a dead letter.
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
    /// The event that was published in the place of the old one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_event_id: Option<Uuid>,
}

/// Which dead letters are meant. What is absent does not narrow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    /// Whose work.
    pub source: Option<DeadLetterSource>,
    /// Of which handler or subscription.
    pub name: Option<String>,
    /// Of which topic's events.
    pub topic: Option<TopicId>,
    /// Those that were dealt with too.
    pub resolved_too: bool,
}

/// The order to try again.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RedriveRequest {
    /// What is to be different.
    #[serde(rename = "override", default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<RedriveOverride>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only look whether it could be done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// What is to be different when a dead letter is tried again: a new event takes the place of the old one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct RedriveOverride {
    /// The new event's payload; the old one's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
    /// A new event even where the payload stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub new_event_id: bool,
}

object!(RedriveOverride);

/// The order to redrive or discard many dead letters at once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BulkResolveRequest {
    /// Whose work; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<DeadLetterSource>,
    /// Of which handler or subscription; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Of which topic's events; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<TopicId>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// What an order about many dead letters came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BulkResolveOutcome {
    /// How many were redriven or discarded, or would be.
    pub count: u64,
    /// How many of those that are meant cannot be redriven and stay open: their events are not stored any more or are
    /// damaged, or their subscription was deleted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// How many dead letters are open, and whose they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterSummary {
    /// All of them.
    pub count: u64,
    /// By source, name and topic.
    pub items: Vec<DeadLetterCount>,
}

/// How many dead letters one handler or subscription has in one topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterCount {
    /// Whose work.
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
