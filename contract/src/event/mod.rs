//! The event: as a producer submits it, and as the broker stores it.
//!
//! `data` is JSON text from the request to the disk and to the response; it is never printed again.

use crate::object::{ObjectOnly, object};
use crate::{
    AggregateSequence, Error, EventTypeId, Kind, Position, Result, Sequence, SubjectTypeId, Timestamp, TopicId,
};
use bytes::Bytes;
use context_data::WithContextData;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use uuid::Uuid;

mod context_data;
mod exported;

pub use exported::{ExportedEvent, ExportedMembers, ExportedNumbers};

/// An event as a producer submits it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct NewEvent {
    /// The event's id; generated (version 4) when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// The original id of a CloudEvent, if it differs from `id` in its canonical spelling. Not a member of the JSON form.
    #[serde(skip)]
    pub cloud_event_id: Option<String>,
    /// The media type of a CloudEvent's `data`, if it is not `application/json`. Not a member of the JSON
    /// form.
    #[serde(skip)]
    pub data_content_type: Option<String>,
    /// The numbers of an event that another broker exported. Not members of the JSON form.
    #[serde(skip)]
    pub exported: Option<Box<ExportedNumbers>>,
    /// Its event type.
    #[serde(rename = "type")]
    pub event_type: EventTypeId,
    /// Its topic. Optional, because the type names it; another topic is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<TopicId>,
    /// When it happened; the time of arrival when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurred_at: Option<Timestamp>,
    /// The program that publishes it.
    pub source: String,
    /// What the event is about; required unless the type allows events without a subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The type of the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_type: Option<SubjectTypeId>,
    /// Its tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Uuid>,
    /// Version of the type's schema, `MAJOR.MINOR`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_version: Option<String>,
    /// The sequence that the event must be assigned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<i64>,
    /// The aggregate's last sequence as the caller knows it; 0: the aggregate must be new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_aggregate_sequence: Option<AggregateSequence>,
    /// W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_parent: Option<String>,
    /// The id of the business transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The id of the event that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    /// Jobs of one message group are delivered in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_group: Option<String>,
    /// Replaces the idempotency key, within topic and tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deduplication_id: Option<String>,
    /// The id of the request that led to this event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// Labels that readers can filter by. `contextData`, a list of `{key, value}`, is accepted as well.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, String>,
    /// The payload: a JSON object, kept as it is spelt.
    pub data: Box<RawValue>,
}

object!(Actor);

impl Serialize for NewEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for NewEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(ObjectOnly(WithContextData(deserializer)))
    }
}

impl NewEvent {
    /// An event with only the required members.
    #[must_use]
    pub fn new(event_type: EventTypeId, source: impl Into<String>, data: Box<RawValue>) -> Self {
        Self {
            id: None,
            cloud_event_id: None,
            data_content_type: None,
            exported: None,
            event_type,
            topic: None,
            occurred_at: None,
            source: source.into(),
            subject: None,
            subject_type: None,
            tenant: None,
            data_version: None,
            sequence: None,
            expected_aggregate_sequence: None,
            trace_parent: None,
            correlation_id: None,
            causation_id: None,
            message_group: None,
            deduplication_id: None,
            request_id: None,
            actor: None,
            context: BTreeMap::new(),
            data,
        }
    }

    /// The same event, about this aggregate.
    #[must_use]
    pub fn about(mut self, subject_type: SubjectTypeId, subject: impl Into<String>) -> Self {
        self.subject_type = Some(subject_type);
        self.subject = Some(subject.into());
        self
    }
}

/// The actor that caused an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Actor {
    /// Its kind.
    #[serde(rename = "type")]
    pub actor_type: ActorType,
    /// Its id in its own system.
    pub id: String,
}

/// The kind of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorType {
    /// A person.
    User,
    /// A program with its own credentials.
    ServicePrincipal,
    /// The platform itself.
    System,
}

impl ActorType {
    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::ServicePrincipal => "service_principal",
            Self::System => "system",
        }
    }
}

/// A stored event, parsed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Its id.
    pub id: Uuid,
    /// The original id of a CloudEvent, if it differs from `id` in its canonical spelling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_event_id: Option<String>,
    /// The media type of a CloudEvent's `data`, if it is not `application/json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_content_type: Option<String>,
    /// Its type, as the producer spelt it.
    #[serde(rename = "type")]
    pub event_type: EventTypeId,
    /// The topic it was stored in.
    pub topic: TopicId,
    /// Its sequence in the topic.
    pub sequence: Sequence,
    /// Its aggregate sequence; absent without an aggregate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate_sequence: Option<AggregateSequence>,
    /// Its position in the log.
    pub position: Position,
    /// When it happened.
    pub occurred_at: Timestamp,
    /// When the broker stored it.
    pub created_at: Timestamp,
    /// The program that published it.
    pub source: String,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The type of the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_type: Option<SubjectTypeId>,
    /// Its tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Uuid>,
    /// Version of the type's schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_version: Option<String>,
    /// W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_parent: Option<String>,
    /// The id of the business transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The id of the event that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    /// Jobs of one message group are delivered in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_group: Option<String>,
    /// The idempotency key of its producer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deduplication_id: Option<String>,
    /// The id of the request that led to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// For a republished event: the sequence of the original, whose id it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub republish_of: Option<Sequence>,
    /// Labels that readers can filter by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, String>,
    /// The payload, as the producer spelt it.
    pub data: Box<RawValue>,
}

impl From<Event> for NewEvent {
    /// The event for a new submission, without the numbers that the log assigned.
    fn from(event: Event) -> Self {
        Self {
            id: Some(event.id),
            cloud_event_id: event.cloud_event_id,
            data_content_type: event.data_content_type,
            exported: None,
            event_type: event.event_type,
            topic: Some(event.topic),
            occurred_at: Some(event.occurred_at),
            source: event.source,
            subject: event.subject,
            subject_type: event.subject_type,
            tenant: event.tenant,
            data_version: event.data_version,
            sequence: None,
            expected_aggregate_sequence: None,
            trace_parent: event.trace_parent,
            correlation_id: event.correlation_id,
            causation_id: event.causation_id,
            message_group: event.message_group,
            deduplication_id: event.deduplication_id,
            request_id: event.request_id,
            actor: event.actor,
            context: event.context,
            data: event.data,
        }
    }
}

/// A stored event: its numbers, and the JSON text that is returned to readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its position in the log.
    pub position: Position,
    /// Its sequence in the topic.
    pub sequence: Sequence,
    /// Its aggregate sequence; 0 without an aggregate.
    pub aggregate_sequence: AggregateSequence,
    /// Its id.
    pub id: Uuid,
    /// When the broker stored it.
    pub created_at: Timestamp,
    /// The event's JSON, byte for byte as on disk.
    pub text: Bytes,
}

impl StoredEvent {
    /// The event, parsed.
    pub fn event(&self) -> Result<Event> {
        serde_json::from_slice(&self.text).map_err(|error| {
            Error::new(Kind::Unavailable, "A stored event could not be parsed; see the server's log.")
                .with_source(error)
        })
    }
}

/// A program instance that publishes; it scopes the idempotency keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProducerId(pub String);

/// The result for an event that was not refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedEvent {
    /// The stored event: the new one, or the original of a duplicate.
    pub event: StoredEvent,
    /// Whether it is new.
    pub outcome: PublishOutcome,
    /// Whether the schema version it was submitted under is DEPRECATED.
    pub deprecated: bool,
    /// JSON pointers to what looks like a secret in the submission, in a topic that flags this.
    pub secret_suspected: Vec<String>,
}

/// Whether a published event is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishOutcome {
    /// Stored now.
    Created,
    /// Stored before under the same idempotency key.
    Duplicate {
        /// Whether the original has other `data`, in a topic with `onPayloadMismatch: flag`.
        payload_mismatch: bool,
    },
}

/// Which events of a batch are atomic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Atomicity {
    /// The events of one topic; other topics are unaffected.
    #[default]
    PerTopic,
    /// The whole request.
    All,
    /// Each event separately; the order is kept.
    Each,
}

/// A submitted event that could not be parsed, with what is needed to find its topic.
#[derive(Debug, Clone)]
pub struct UnreadableEvent {
    /// The error.
    pub error: Error,
    /// Its type, if it has one.
    pub event_type: Option<EventTypeId>,
}

/// The results of a batch: one per event, in the order of submission.
pub type BatchOutcome = Vec<Result<PublishedEvent>>;
