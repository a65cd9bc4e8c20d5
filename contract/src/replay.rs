//! Replays of a subscription, and blocked message groups.

use crate::object::object;
use crate::{Offset, Sequence, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A request to deliver a past range of the topic again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct NewReplay {
    /// The first event.
    pub from: ReplayBound,
    /// The last event; the tail when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<ReplayBound>,
    /// Only count the events.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

object!(NewReplay);

/// The first or last event of a replay, inclusive: a sequence or a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "must be a sequence (a whole number) or a time (RFC 3339, as 2026-11-16T00:00:00Z)")]
pub enum ReplayBound {
    /// The event with this sequence.
    Sequence(Sequence),
    /// Events that were stored at this time.
    Time(Timestamp),
}

/// A blocked message group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockedGroup {
    /// `{subscription code}:{group}`.
    pub message_group: String,
    /// The job that blocks it.
    pub blocked_by: String,
    /// Since when.
    pub since: Timestamp,
    /// How many jobs wait behind it.
    pub waiting: u64,
    /// Whether more jobs may wait: the topic is too long to be counted in one request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waiting_is_lower_bound: bool,
    /// What an operator can do now.
    pub verbs: GroupActions,
}

/// What each action on the blocking job would do; an absent action would be refused now.
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

/// The result of a request to replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayOutcome {
    /// How many events are delivered again, or would be.
    pub count: u64,
    /// Whether there may be more: the topic is too long to be counted in one request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub count_is_lower_bound: bool,
    /// The id of the replay, unless events were only counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<Uuid>,
    /// Events of the range that are damaged on disk; of very many, the first ones. They are not counted: their deliveries fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<Sequence>,
}

/// A running replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replay {
    /// Its id, assigned by the broker.
    pub id: Uuid,
    /// The first sequence.
    pub from: Sequence,
    /// The last sequence.
    pub to: Sequence,
    /// The offset up to which all jobs are finished, except open ones.
    pub settled_through: Offset,
    /// The number of open jobs: those that failed and wait, or were given up.
    pub open_jobs: u64,
    /// Those of them that were given up.
    #[serde(default)]
    pub dead_jobs: u64,
    /// When it was requested.
    pub ordered_at: Timestamp,
}
