//! Having events again, and letting go of them: what a person orders about a topic.

use crate::object::object;
use crate::{Sequence, Timestamp};
use serde::{Deserialize, Serialize};

/// The order to have events of a topic once more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct RepublishRequest {
    /// The first of them.
    pub from: Sequence,
    /// The last of them.
    pub to: Sequence,
    /// For whom.
    pub target: RepublishTarget,
    /// Which group, or which subscription; absent: all subscriptions of the topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Only count them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

object!(RepublishRequest TrimRequest CompactRequest);

impl RepublishRequest {
    /// Events from one sequence to another, both included, appended to their topic once more.
    #[must_use]
    pub const fn to_topic(from: Sequence, to: Sequence) -> Self {
        Self { from, to, target: RepublishTarget::Topic, name: None, dry_run: false }
    }

    /// The same for one shared group alone: it is handed again what it has finished of them.
    #[must_use]
    pub fn to_group(name: impl Into<String>, from: Sequence, to: Sequence) -> Self {
        Self { from, to, target: RepublishTarget::Group, name: Some(name.into()), dry_run: false }
    }

    /// The same for all subscriptions of the topic: each is delivered again what it wants of them.
    #[must_use]
    pub const fn to_subscriptions(from: Sequence, to: Sequence) -> Self {
        Self { from, to, target: RepublishTarget::Subscriptions, name: None, dry_run: false }
    }
}

/// For whom events are published again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RepublishTarget {
    /// Everybody who reads the topic.
    Topic,
    /// A shared group.
    Group,
    /// Those who are pushed to.
    Subscriptions,
}

/// The order to let go of a topic's beginning: through a sequence, or before a time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct TrimRequest {
    /// The last sequence to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<Sequence>,
    /// Or: what was stored before this goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Timestamp>,
    /// Whether the bytes of what was removed are erased from storage before this is answered. Else the broker erases them
    /// later, within a configured time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub erase: bool,
}

/// The order to compact a topic now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct CompactRequest {
    /// Whether the bytes of what was removed are erased from storage before this is answered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub erase: bool,
}

/// How many events it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCount {
    /// That many.
    pub count: u64,
}
