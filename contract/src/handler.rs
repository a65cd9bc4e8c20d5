//! Handlers: named work that is done once per event; their policy and their state.

use crate::{ClaimOrder, IsoDuration, Timestamp, TopicId};
use serde::{Deserialize, Serialize};

/// The policy of a handler. Absent members have the broker's defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewHandler {
    /// The lease: how long a claim is valid without a heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<IsoDuration>,
    /// After this many failed attempts an event becomes a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The back-off after the first failure; it doubles with every further failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<IsoDuration>,
    /// The order of the events of one aggregate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<ClaimOrder>,
}

/// A handler: its policy in force, and its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Handler {
    /// Its name.
    pub name: String,
    /// The lease: how long a claim is valid without a heartbeat.
    pub lease: IsoDuration,
    /// After this many failed attempts an event becomes a dead letter.
    pub max_attempts: u32,
    /// The back-off after the first failure; it doubles with every further failure.
    pub backoff: IsoDuration,
    /// The order of the events of one aggregate.
    pub order: ClaimOrder,
    /// Events that workers hold.
    pub in_flight: u64,
    /// Events that failed or whose lease expired, and that wait for the next attempt.
    pub failed: u64,
    /// Events that were given up.
    pub dead_letters: u64,
    /// The time of the first failure of the oldest event that failed or was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_failure: Option<Timestamp>,
    /// Events that it still has to process, of those that the group with its name reads: open dead letters count, events
    /// that are stale or discarded do not.
    pub lag: u64,
    /// Events that were skipped as `stale` since the broker was started, each once.
    #[serde(default)]
    pub stale: u64,
    /// The same by topic, for topics of which it has claimed events, in the order of their ids.
    pub topics: Vec<HandlerTopic>,
}

/// The state of a handler in one topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandlerTopic {
    /// The topic.
    pub topic: TopicId,
    /// The highest sequence that it has finished, or the offset of the group with its name if that is higher.
    pub finished: u64,
    /// Events that it still has to process there.
    pub lag: u64,
    /// Events that workers hold.
    pub in_flight: u64,
    /// Events that wait for the next attempt.
    pub failed: u64,
    /// Events that were given up.
    pub dead_letters: u64,
}
