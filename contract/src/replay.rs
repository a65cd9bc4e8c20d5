//! Replays of a subscription, and the message groups that do not move.

use crate::object::object;
use crate::{Offset, Sequence, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The order to deliver a part of the topic once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct NewReplay {
    /// The first one.
    pub from: ReplayBound,
    /// The last one; the tail when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<ReplayBound>,
    /// Only count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

object!(NewReplay);

/// Where a replay begins or ends, inclusive: a sequence or a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "must be a sequence (a whole number) or a time (RFC 3339, as 2026-11-16T00:00:00Z)")]
pub enum ReplayBound {
    /// This event.
    Sequence(Sequence),
    /// What was stored at this time.
    Time(Timestamp),
}

/// A message group that does not move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockedGroup {
    /// `{subscription code}:{group}`.
    pub message_group: String,
    /// The job that everything waits for.
    pub blocked_by: String,
    /// Since when.
    pub since: Timestamp,
    /// How many wait behind it.
    pub waiting: u64,
    /// Whether more may wait than were counted: the topic is too long to look through in one request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waiting_is_lower_bound: bool,
    /// What a person can do about it now.
    pub verbs: GroupActions,
}

/// What each verb would do, said of the job that blocks; what is absent would be refused now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupActions {
    /// `:retry`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<String>,
    /// `:cancel`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel: Option<String>,
    /// `:complete`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<String>,
}

/// What an order to replay came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayOutcome {
    /// How many events are delivered once more, or would be.
    pub count: u64,
    /// Whether it may be more than were counted: the topic is too long to look through in one request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub count_is_lower_bound: bool,
    /// The replay, if one was ordered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<Uuid>,
}

/// A replay that is not over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replay {
    /// Made by the broker.
    pub id: Uuid,
    /// The first sequence.
    pub from: Sequence,
    /// The last one.
    pub to: Sequence,
    /// Everything up to here is settled, but for open jobs.
    pub settled_through: Offset,
    /// Jobs that failed and wait, or were given up.
    pub open_jobs: u64,
    /// Those of them that were given up.
    #[serde(default)]
    pub dead_jobs: u64,
    /// When it was ordered.
    pub ordered_at: Timestamp,
}
