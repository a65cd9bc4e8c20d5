//! Consumers and their groups: who reads a topic through which filter, and the committed offset of a group.

use crate::{IdPattern, IsoDuration, Offset, Timestamp, TopicId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A request to create a consumer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewConsumer {
    /// The name of its group, which owns the offsets.
    pub consumer_group: String,
    /// The topic that it reads.
    pub topic: TopicId,
    /// Only events of these types; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<IdPattern>,
    /// Only events about subjects of these types; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subject_types: Vec<IdPattern>,
    /// Only events for which this CEL expression is true.
    #[serde(rename = "CEL", default, skip_serializing_if = "Option::is_none")]
    pub cel: Option<String>,
    /// How long it lives without polling; 30 seconds when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_timeout: Option<IsoDuration>,
    /// How the group's members divide the events; broadcast when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    /// The maximum number of events in flight, in a shared group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
}

impl NewConsumer {
    /// A consumer of a whole topic, with the default session.
    #[must_use]
    pub fn new(consumer_group: impl Into<String>, topic: TopicId) -> Self {
        Self {
            consumer_group: consumer_group.into(),
            topic,
            types: Vec::new(),
            subject_types: Vec::new(),
            cel: None,
            session_timeout: None,
            distribution: None,
            max_in_flight: None,
        }
    }

    /// The same consumer as a member of a shared group.
    #[must_use]
    pub const fn shared(mut self) -> Self {
        self.distribution = Some(Distribution::Shared);
        self
    }
}

/// How the members of a group divide the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Each member receives all events.
    #[default]
    Broadcast,
    /// Each event is assigned to one live member, as a claim by the handler with the group's name.
    Shared,
}

/// One reading instance with a filter and a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Consumer {
    /// Its id, assigned by the broker.
    pub id: Uuid,
    /// The name of its group.
    pub consumer_group: String,
    /// The topic that it reads.
    pub topic: TopicId,
    /// Only events of these types, as they were sent; empty: all.
    #[serde(default)]
    pub types: Vec<IdPattern>,
    /// Only events about subjects of these types, as they were sent; empty: all.
    #[serde(default)]
    pub subject_types: Vec<IdPattern>,
    /// Only events for which this CEL expression is true.
    #[serde(rename = "CEL", default, skip_serializing_if = "Option::is_none")]
    pub cel: Option<String>,
    /// How long it lives without polling.
    pub session_timeout: IsoDuration,
    /// How the group's members divide the events.
    pub distribution: Distribution,
    /// The maximum number of events in flight, in a shared group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last polled or committed; now, while a poll of it waits.
    pub last_seen_at: Timestamp,
    /// `lastSeenAt` plus the session: it lives at least until then.
    pub expires_at: Timestamp,
}

/// A consumer group and its state in each topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsumerGroup {
    /// Its name.
    pub consumer_group: String,
    /// The topics in which it has members or an offset, in the order of their ids.
    pub topics: Vec<GroupTopic>,
}

/// The state of a group in one topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupTopic {
    /// The topic.
    pub topic: TopicId,
    /// The committed offset; 0 if nothing is committed. In a shared group every event up
    /// to it is finished or excluded by the filter.
    pub committed_offset: Offset,
    /// The topic's last sequence.
    pub tail: Offset,
    /// Events that the group still has to process: open dead letters count, events that are stale
    /// or discarded do not. It equals the lag of the handler with its name.
    pub lag: u64,
    /// Its live consumers there, in the order of their ids.
    pub members: Vec<GroupMember>,
}

/// A live consumer of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupMember {
    /// Its id.
    pub consumer_id: Uuid,
    /// When it last polled or committed.
    pub last_seen_at: Timestamp,
    /// Events that are assigned to it and not finished; 0 in a broadcast group.
    pub in_flight: u64,
}

/// A request to move a group's offset forwards or backwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupReset {
    /// The topic.
    pub topic: TopicId,
    /// The target.
    pub to: ResetTo,
}

/// The target of a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetTo {
    /// After this sequence.
    Offset(Offset),
    /// Before the first stored event.
    Earliest,
    /// After the last event.
    Latest,
    /// Before the first event created at this time or later.
    Time(Timestamp),
}
