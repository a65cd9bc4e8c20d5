//! The data dictionary: every bookkeeping fact of the broker's own, one doc comment each.
//!
//! Facts are past tense and carry the whole thing as it is from then on, so that applying one needs nothing else.
//! They are JSON on disk: a member may be added with a default, none may change its meaning.

use super::carried::Carried;
use super::home::Placed;
use contract::{
    Consumer, EventType, EventTypeId, Generation, NewProjection, Offset, Sequence, Topic, TopicId, Version,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// One fact, as the body of a record of topic 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "camelCase")]
pub enum Entry {
    /// A topic exists from here on, under this number in the log.
    TopicRegistered {
        /// Its number in this log, dense from 1.
        number: u32,
        /// The topic.
        topic: Topic,
    },
    /// A topic's definition is this from here on.
    TopicChanged {
        /// The topic as it is now; its id says which.
        topic: Topic,
    },
    /// A topic lives in another log from here on, defined so. Its number, its events and all that belongs to them are
    /// facts of that log; that it exists, and where, is one of the default log.
    TopicPlaced {
        /// The topic and its log.
        placed: Placed,
    },
    /// Memory logs are empty from here on: the topics that live in them go on behind this sequence.
    MemoryEmptied {
        /// Every sequence such a topic may have given is at or below it.
        floor: Sequence,
    },
    /// An event type exists from here on.
    EventTypeRegistered {
        /// The event type.
        event_type: EventType,
    },
    /// Schema versions of an event type are these from here on; its others stay as they are.
    VersionsChanged {
        /// The event type.
        event_type: EventTypeId,
        /// The versions that are new or changed, whole.
        versions: Vec<Version>,
    },
    /// An event type takes no more events from here on.
    EventTypeArchived {
        /// The event type.
        event_type: EventTypeId,
    },
    /// Events are about to go; these rows of theirs stay true.
    HistoryCarried {
        /// The rows.
        carried: Carried,
    },
    /// A topic's beginning is gone from here on.
    TopicTrimmed {
        /// The topic's number.
        number: u32,
        /// The last sequence that went.
        through: Sequence,
    },
    /// A consumer exists from here on; its session begins.
    ConsumerCreated {
        /// The consumer.
        consumer: Consumer,
    },
    /// A consumer's session began anew at the time of this record.
    ConsumerSeen {
        /// Which one.
        id: Uuid,
    },
    /// A consumer is gone because somebody said so.
    ConsumerDeleted {
        /// Which one.
        id: Uuid,
    },
    /// Consumers are gone because their sessions ran out.
    ConsumersExpired {
        /// Which ones.
        ids: Vec<Uuid>,
    },
    /// A group says how far it has come in a topic.
    OffsetCommitted {
        /// The group.
        group: String,
        /// The topic.
        topic: TopicId,
        /// What it has seen.
        offset: Offset,
    },
    /// Somebody moved a group's offset in a topic, back or forth.
    OffsetReset {
        /// The group.
        group: String,
        /// The topic.
        topic: TopicId,
        /// Where it stands from here on.
        offset: Offset,
    },
    /// A projection is defined so from here on. One that is new stands at 0, in its first generation.
    ProjectionPut {
        /// Its name.
        name: String,
        /// What it reads.
        definition: NewProjection,
    },
    /// A projection is gone.
    ProjectionDeleted {
        /// Its name.
        name: String,
    },
    /// A projection's view has come this far.
    CheckpointMoved {
        /// Its name.
        name: String,
        /// What is applied.
        offset: Offset,
    },
    /// A projection's view is to be rebuilt.
    ProjectionReset {
        /// Its name.
        name: String,
        /// Where it begins anew.
        offset: Offset,
        /// The generation that begins.
        generation: Generation,
    },
}

/// Which part of the state a fact changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Concern {
    /// Topics and event types.
    Registry,
    /// What is left of removed events.
    History,
    /// What changes row by row ([`super::parts`]).
    Parts,
}

impl Entry {
    /// Which part of the state it changes.
    pub(super) const fn concern(&self) -> Concern {
        match self {
            Self::TopicRegistered { .. }
            | Self::TopicChanged { .. }
            | Self::TopicPlaced { .. }
            | Self::MemoryEmptied { .. }
            | Self::EventTypeRegistered { .. }
            | Self::VersionsChanged { .. }
            | Self::EventTypeArchived { .. } => Concern::Registry,
            Self::HistoryCarried { .. } | Self::TopicTrimmed { .. } => Concern::History,
            Self::ConsumerCreated { .. }
            | Self::ConsumerSeen { .. }
            | Self::ConsumerDeleted { .. }
            | Self::ConsumersExpired { .. }
            | Self::OffsetCommitted { .. }
            | Self::OffsetReset { .. }
            | Self::ProjectionPut { .. }
            | Self::ProjectionDeleted { .. }
            | Self::CheckpointMoved { .. }
            | Self::ProjectionReset { .. } => Concern::Parts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::home::Home;
    use super::*;
    use contract::{Distribution, NewEventType, NewTopic, NewVersion, SchemaVersion, Timestamp, VersionStatus};

    #[test]
    fn entries_survive_the_trip_to_disk() {
        let created_at = Timestamp::from_millis(1_764_763_200_000);
        let mut topic = NewTopic::new("gts.hx.core.events.topic.v1~vendor.users.v1".parse().unwrap());
        topic.retention = Some("PT30D".parse().unwrap());
        let mut event_type =
            NewEventType::new("gts.hyperspot.core.events.type.v1~vendor.users.user_registered.v1".parse().unwrap());
        event_type.data_schema = Some(serde_json::json!({"type": "object", "required": ["userId"]}));
        let type_id = event_type.id.clone();
        let version = Version {
            definition: NewVersion::json_schema(SchemaVersion::FIRST, serde_json::json!({"type": "object"})),
            status: VersionStatus::Deprecated,
            created_at,
            finalised_at: Some(created_at),
            deprecated_at: Some(created_at),
        };
        let versions = vec![version];
        let event_type = EventType { definition: event_type, created_at, versions: versions.clone(), archived: true };
        let (id, group, topic_id, offset) = (Uuid::from_u128(7), "billing".to_owned(), topic.id.clone(), Offset(9));
        let consumer = Consumer {
            id,
            consumer_group: group.clone(),
            topic: topic_id.clone(),
            types: vec!["gts.vendor.*".parse().unwrap()],
            subject_types: Vec::new(),
            cel: Some("has(data)".to_owned()),
            session_timeout: "PT30S".parse().unwrap(),
            distribution: Distribution::Broadcast,
            created_at,
            last_seen_at: created_at,
            expires_at: Timestamp::from_millis(created_at.millis() + 30_000),
        };
        let name = || "orders-table".to_owned();
        for entry in [
            Entry::TopicRegistered { number: 1, topic: Topic { definition: topic.clone(), created_at } },
            Entry::TopicChanged { topic: Topic { definition: topic.clone(), created_at } },
            Entry::TopicPlaced {
                placed: Placed {
                    topic: Topic { definition: topic, created_at },
                    home: Home::DataFolder("var/lib/events".to_owned()),
                    floor: Sequence(1 << 40),
                    numbered: true,
                },
            },
            Entry::EventTypeRegistered { event_type },
            Entry::VersionsChanged { event_type: type_id.clone(), versions },
            Entry::EventTypeArchived { event_type: type_id },
            Entry::ConsumerCreated { consumer },
            Entry::ConsumerSeen { id },
            Entry::ConsumerDeleted { id },
            Entry::ConsumersExpired { ids: vec![id, Uuid::from_u128(8)] },
            Entry::OffsetCommitted { group: group.clone(), topic: topic_id.clone(), offset },
            Entry::OffsetReset { group, topic: topic_id.clone(), offset },
            Entry::ProjectionPut { name: name(), definition: NewProjection::of_topic(topic_id).filtered("has(data)") },
            Entry::ProjectionPut { name: name(), definition: NewProjection::of_log() },
            Entry::ProjectionDeleted { name: name() },
            Entry::CheckpointMoved { name: name(), offset },
            Entry::ProjectionReset { name: name(), offset, generation: Generation(2) },
        ] {
            let text = serde_json::to_vec(&entry).unwrap();
            assert_eq!(serde_json::from_slice::<Entry>(&text).unwrap(), entry);
        }
    }
}
