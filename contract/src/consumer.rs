//! Consumers and their groups: who reads a topic through which filter, and how far a group has come.

use crate::{IdPattern, IsoDuration, Offset, Timestamp, TopicId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A consumer as one asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewConsumer {
    /// The name its instances share; offsets are the group's.
    pub consumer_group: String,
    /// What it reads.
    pub topic: TopicId,
    /// Event types it wants; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<IdPattern>,
    /// Subject types it wants; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subject_types: Vec<IdPattern>,
    /// A CEL expression over the event's members.
    #[serde(rename = "CEL", default, skip_serializing_if = "Option::is_none")]
    pub cel: Option<String>,
    /// How long it lives without polling; half a minute when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_timeout: Option<IsoDuration>,
    /// How a group's members divide the events; broadcast when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    /// Most events it has in hand at a time, where the group divides them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
}

impl NewConsumer {
    /// A consumer of a whole topic, with the usual session.
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

    /// The same, of a group whose members divide the events.
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
    /// Each member sees them all.
    #[default]
    Broadcast,
    /// Each event goes to one live member, as a claim by the handler named like the group.
    Shared,
}

/// One reading instance with a filter and a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Consumer {
    /// Made by the broker.
    pub id: Uuid,
    /// The name its instances share.
    pub consumer_group: String,
    /// What it reads.
    pub topic: TopicId,
    /// Event types it wants, spelt as they were sent; empty: any.
    #[serde(default)]
    pub types: Vec<IdPattern>,
    /// Subject types it wants, spelt as they were sent; empty: any.
    #[serde(default)]
    pub subject_types: Vec<IdPattern>,
    /// A CEL expression over the event's members.
    #[serde(rename = "CEL", default, skip_serializing_if = "Option::is_none")]
    pub cel: Option<String>,
    /// How long it lives without polling.
    pub session_timeout: IsoDuration,
    /// How the group's members divide the events.
    pub distribution: Distribution,
    /// Most events it has in hand at a time, where the group divides them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last polled or committed; now, while a poll of it waits.
    pub last_seen_at: Timestamp,
    /// `lastSeenAt` plus the session: it lives at least until then.
    pub expires_at: Timestamp,
}

/// A group as it stands, topic by topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsumerGroup {
    /// Its name.
    pub consumer_group: String,
    /// The topics it has members or an offset in, in order of their ids.
    pub topics: Vec<GroupTopic>,
}

/// How far a group has come in one topic, and who reads there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupTopic {
    /// The topic.
    pub topic: TopicId,
    /// What the group has said it has seen; 0 while it has said nothing. Where members divide the events, everything up
    /// to it is finished or none of their business.
    pub committed_offset: Offset,
    /// The topic's last sequence.
    pub tail: Offset,
    /// Events that are still to be done, of those the group wants: dead letters that are open count, events that are stale
    /// or discarded do not. The same number as the lag of the handler of its name.
    pub lag: u64,
    /// Its live consumers there, in order of their ids.
    pub members: Vec<GroupMember>,
}

/// A live consumer as its group sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupMember {
    /// Which one.
    pub consumer_id: Uuid,
    /// When it last polled or committed.
    pub last_seen_at: Timestamp,
    /// Events handed to it and not done; none in a broadcast.
    pub in_flight: u64,
}

/// The order to move a group's offset, back or forth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupReset {
    /// In which topic.
    pub topic: TopicId,
    /// Where to.
    pub to: ResetTo,
}

/// Where a group's offset is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetTo {
    /// Behind this sequence.
    Offset(Offset),
    /// Before the first event that is still there.
    Earliest,
    /// Behind the last event.
    Latest,
    /// Before the first event created at this time or later.
    Time(Timestamp),
}
