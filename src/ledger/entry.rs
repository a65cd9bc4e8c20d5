//! The data dictionary: every bookkeeping fact of the broker's own, one doc comment each.
//!
//! Facts are past tense and carry the whole thing as it is from then on, so that applying one needs nothing else.
//! They are JSON on disk: a member may be added with a default, none may change its meaning.

use super::carried::Carried;
use super::home::Placed;
use contract::{EventType, Sequence, Topic};
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
    use super::super::home::Home;
    use super::*;
    use contract::{NewEventType, NewTopic, Timestamp};

    #[test]
    fn entries_survive_the_trip_to_disk() {
        let created_at = Timestamp::from_millis(1_764_763_200_000);
        let mut topic = NewTopic::new("gts.hx.core.events.topic.v1~vendor.users.v1".parse().unwrap());
        topic.retention = Some("PT30D".parse().unwrap());
        let mut event_type =
            NewEventType::new("gts.hyperspot.core.events.type.v1~vendor.users.user_registered.v1".parse().unwrap());
        event_type.data_schema = Some(serde_json::json!({"type": "object", "required": ["userId"]}));
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
            Entry::EventTypeRegistered { event_type: EventType { definition: event_type, created_at } },
        ] {
            let text = serde_json::to_vec(&entry).unwrap();
            assert_eq!(serde_json::from_slice::<Entry>(&text).unwrap(), entry);
        }
    }
}
