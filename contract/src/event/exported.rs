//! An event as another broker exported it: what the producer said, and the numbers that broker had assigned.
//!
//! - The two are read separately: the numbers by [`ExportedNumbers`], everything else by [`ExportedEvent`], which is as
//!   strict as a published event. So a member that nobody knows is refused here, too.
//! - A line is an exported event if it has a `position`; no other JSON of an event has one.

use super::NewEvent;
use super::context_data::WithContextData;
use crate::object::ObjectOnly;
use crate::{Position, Sequence, Timestamp};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, IntoDeserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;
use std::fmt;

/// The members that a broker has assigned, or adds when it serves an event.
const ASSIGNED: [&str; 8] = [
    "position",
    "sequence",
    "aggregateSequence",
    "createdAt",
    "republishOf",
    "cloudEventId",
    "dataContentType",
    // Shared groups hand out events with the claim they are held by.
    "claim",
];

/// What made an exported event unique where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedNumbers {
    /// Its number in the topic.
    pub sequence: Sequence,
    /// When it was stored.
    pub created_at: Timestamp,
    /// If it is a republished copy: the sequence at which the event was first stored.
    pub republish_of: Option<Sequence>,
}

/// The assigned members of a line; it is an exported event if there is a `position`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportedMembers {
    /// Its number in the log.
    pub position: Option<Position>,
    /// Its number in the topic.
    pub sequence: Option<Sequence>,
    /// When it was stored.
    pub created_at: Option<Timestamp>,
    /// The sequence of the event it is a copy of.
    pub republish_of: Option<Sequence>,
    /// The id of the CloudEvent it came as.
    pub cloud_event_id: Option<String>,
    /// The media type of its `data`.
    pub data_content_type: Option<String>,
}

/// The members of an exported event that its producer had sent.
#[derive(Debug)]
pub struct ExportedEvent(pub NewEvent);

impl<'de> Deserialize<'de> for ExportedEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        NewEvent::deserialize(ObjectOnly(WithContextData(WithoutAssigned(deserializer)))).map(Self)
    }
}

/// A source that hides the assigned members.
struct WithoutAssigned<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for WithoutAssigned<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(SubmittedVisitor(visitor))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct SubmittedVisitor<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for SubmittedVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(SubmittedMembers(members))
    }
}

struct SubmittedMembers<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for SubmittedMembers<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(name) = self.0.next_key::<String>()? {
            if ASSIGNED.contains(&name.as_str()) {
                self.0.next_value::<IgnoredAny>()?;
            } else {
                return seed.deserialize(name.into_deserializer()).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(members: &str) -> Result<NewEvent, serde_json::Error> {
        let text = format!(
            r#"{{"id":"550e8400-e29b-41d4-a716-446655440000","type":"order.created","topic":"a.b","sequence":3,
                "aggregateSequence":1,"position":9,"createdAt":"2025-12-03T12:00:00Z","occurredAt":"2025-12-03T12:00:00Z",
                "source":"s",{members}"data":{{}}}}"#
        );
        serde_json::from_str::<ExportedEvent>(&text).map(|event| event.0)
    }

    #[test]
    fn what_the_producer_said_is_read_as_strictly_as_a_published_event() {
        let event = read(r#""republishOf":1,"claim":{"id":"c"},"contextData":[{"key":"a","value":"b"}],"#).unwrap();
        assert_eq!((event.context["a"].as_str(), event.sequence), ("b", None));
        for (members, expected) in [
            (r#""unknown":1,"#, "unknown field `unknown`"),
            (r#""source":"t","#, "duplicate field `source`"),
            (r#""contextData":{},"#, "expected a list"),
        ] {
            let error = read(members).expect_err(members).to_string();
            assert!(error.contains(expected), "{members}: {error}");
        }
    }
}
