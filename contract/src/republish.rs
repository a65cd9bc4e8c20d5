//! Requests about the events of a topic: republishing, trimming and compacting.

use crate::object::object;
use crate::{Sequence, Timestamp};
use serde::{Deserialize, Serialize};

/// A request to republish events of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct RepublishRequest {
    /// The first sequence.
    pub from: Sequence,
    /// The last sequence.
    pub to: Sequence,
    /// The readers for which they are republished.
    pub target: RepublishTarget,
    /// The group or the subscription; absent: all subscriptions of the topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Only count the events.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

object!(RepublishRequest TrimRequest CompactRequest);

impl RepublishRequest {
    /// Appends the events from one sequence to another, inclusive, to their topic again.
    #[must_use]
    pub const fn to_topic(from: Sequence, to: Sequence) -> Self {
        Self { from, to, target: RepublishTarget::Topic, name: None, dry_run: false }
    }

    /// The same for one shared group only: the events that it has finished are assigned again.
    #[must_use]
    pub fn to_group(name: impl Into<String>, from: Sequence, to: Sequence) -> Self {
        Self { from, to, target: RepublishTarget::Group, name: Some(name.into()), dry_run: false }
    }

    /// The same for all subscriptions of the topic: each receives the events that match it again.
    #[must_use]
    pub const fn to_subscriptions(from: Sequence, to: Sequence) -> Self {
        Self { from, to, target: RepublishTarget::Subscriptions, name: None, dry_run: false }
    }
}

/// The readers for which events are republished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RepublishTarget {
    /// All readers of the topic.
    Topic,
    /// A shared group.
    Group,
    /// Subscriptions.
    Subscriptions,
}

/// A request to remove a topic's oldest events: up to a sequence, or before a time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct TrimRequest {
    /// The last sequence to remove.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<Sequence>,
    /// Alternatively: events that were stored before this time are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Timestamp>,
    /// Whether the bytes of the removed events are erased from storage before the response. Otherwise the broker erases them
    /// later, within a configured time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub erase: bool,
}

/// A request to compact a topic now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct CompactRequest {
    /// Whether the bytes of the removed events are erased from storage before the response.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub erase: bool,
}

/// The result of a request to republish.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RepublishOutcome {
    /// How many events were published again, or would be.
    pub count: u64,
    /// Events of the range that are damaged on disk; of very many, the first ones. They are not counted: a copy cannot be made
    /// of them, and their deliveries fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<Sequence>,
}

/// A number of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCount {
    /// The number.
    pub count: u64,
}
