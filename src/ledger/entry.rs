//! The data dictionary: every bookkeeping fact of the broker's own, one doc comment each.
//!
//! Facts are past tense and carry the whole thing as it is from then on, so that applying one needs nothing else.
//! They are JSON on disk: a member may be added with a default, none may change its meaning.

use super::carried::Carried;
use contract::{EventType, EventTypeId, Sequence, Topic, Version};
use serde::{Deserialize, Serialize};

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
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{NewEventType, NewTopic, NewVersion, SchemaVersion, Timestamp, VersionStatus};

    #[test]
    fn entries_survive_the_trip_to_disk() {
        let created_at = Timestamp::from_millis(1_764_763_200_000);
        let mut topic = NewTopic::new("gts.hx.core.events.topic.v1~vendor.users.v1".parse().unwrap());
        topic.retention = Some("PT30D".parse().unwrap());
        let mut event_type =
            NewEventType::new("gts.hyperspot.core.events.type.v1~vendor.users.user_registered.v1".parse().unwrap());
        event_type.data_schema = Some(serde_json::json!({"type": "object", "required": ["userId"]}));
        let id = event_type.id.clone();
        let version = Version {
            definition: NewVersion::json_schema(SchemaVersion::FIRST, serde_json::json!({"type": "object"})),
            status: VersionStatus::Deprecated,
            created_at,
            finalised_at: Some(created_at),
            deprecated_at: Some(created_at),
        };
        let versions = vec![version];
        let event_type = EventType { definition: event_type, created_at, versions: versions.clone(), archived: true };
        for entry in [
            Entry::TopicRegistered { number: 1, topic: Topic { definition: topic.clone(), created_at } },
            Entry::TopicChanged { topic: Topic { definition: topic, created_at } },
            Entry::EventTypeRegistered { event_type },
            Entry::VersionsChanged { event_type: id.clone(), versions },
            Entry::EventTypeArchived { event_type: id },
        ] {
            let text = serde_json::to_vec(&entry).unwrap();
            assert_eq!(serde_json::from_slice::<Entry>(&text).unwrap(), entry);
        }
    }
}
