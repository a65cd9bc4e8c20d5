//! Segments: the files that hold the records of a topic.

use crate::{Sequence, Timestamp, TopicId};
use serde::{Deserialize, Serialize};

/// A run of a topic's records in one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Segment {
    /// Its location.
    pub location: String,
    /// The first sequence of the topic in it.
    pub start_sequence: Sequence,
    /// When that event was stored.
    pub start_time: Timestamp,
    /// The last sequence of the topic in it.
    pub end_sequence: Sequence,
    /// When that event was stored.
    pub end_time: Timestamp,
    /// How many events of the topic it contains.
    pub amount: u64,
    /// When it was created.
    pub created_at: Timestamp,
}

/// A topic's segments, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopicSegments {
    /// The topic.
    pub topic: TopicId,
    /// The segments.
    pub segments: Vec<Segment>,
}
