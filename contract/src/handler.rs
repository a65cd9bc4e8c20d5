//! Handlers: named pieces of work, each done once per event; how they are to be tried, and how they stand.

use crate::{ClaimOrder, IsoDuration, Timestamp, TopicId};
use serde::{Deserialize, Serialize};

/// How a handler's work is to be tried. What is absent is the broker's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewHandler {
    /// How long a claim holds without a heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<IsoDuration>,
    /// After this many failed attempts an event is a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The wait after the first failure; it doubles with every further one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<IsoDuration>,
    /// What order the events of one aggregate keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<ClaimOrder>,
}

/// A handler: what holds for it, and how it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Handler {
    /// Its name.
    pub name: String,
    /// How long a claim holds without a heartbeat.
    pub lease: IsoDuration,
    /// After this many failed attempts an event is a dead letter.
    pub max_attempts: u32,
    /// The wait after the first failure; it doubles with every further one.
    pub backoff: IsoDuration,
    /// What order the events of one aggregate keep.
    pub order: ClaimOrder,
    /// Events somebody is at.
    pub in_flight: u64,
    /// Events that failed, or whose worker fell silent, and that wait to be claimed again.
    pub failed: u64,
    /// Events given up.
    pub dead_letters: u64,
    /// When the oldest of the failed and the given up first failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_failure: Option<Timestamp>,
    /// Events it still has to do, of those that the group of its name takes: dead letters that are open count, events
    /// that are stale or discarded do not.
    pub lag: u64,
    /// Events that were answered `stale` since the broker was started, each once.
    #[serde(default)]
    pub stale: u64,
    /// The same by topic: those it has claimed events of, in order of their ids.
    pub topics: Vec<HandlerTopic>,
}

/// How a handler stands in one topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandlerTopic {
    /// The topic.
    pub topic: TopicId,
    /// The highest sequence it has finished, or the offset of the group named like it if that is higher.
    pub finished: u64,
    /// Events it still has to do there.
    pub lag: u64,
    /// Events somebody is at.
    pub in_flight: u64,
    /// Events that wait to be claimed again.
    pub failed: u64,
    /// Events given up.
    pub dead_letters: u64,
}
