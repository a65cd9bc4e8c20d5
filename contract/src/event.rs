//! The event: what a producer hands in, and what the broker keeps for ever.
//!
//! `data` is JSON text from request to disk to answer; nothing in between prints it anew.

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
    /// Made by the broker (version 4) when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// The id of the CloudEvent it came as, where that is not `id` in its usual spelling. Our own JSON has no member for it.
    #[serde(skip)]
    pub cloud_event_id: Option<String>,
    /// The media type of `data` as a CloudEvent said it, where that is not `application/json`. Our own JSON has no member for
    /// it.
    #[serde(skip)]
    pub data_content_type: Option<String>,
    /// The numbers of an event that another broker exported. Our own JSON has no member for them.
    #[serde(skip)]
    pub exported: Option<Box<ExportedNumbers>>,
    /// A registered event type.
    #[serde(rename = "type")]
    pub event_type: EventTypeId,
    /// Optional, because the type names it; a different one is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<TopicId>,
    /// The time of arrival when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurred_at: Option<Timestamp>,
    /// Which program speaks.
    pub source: String,
    /// What the event speaks of; required unless the type allows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What kind of thing the subject is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_type: Option<SubjectTypeId>,
    /// Whose event it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Uuid>,
    /// Version of the type's schema, `MAJOR.MINOR`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_version: Option<String>,
    /// "Must become exactly this sequence."
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<i64>,
    /// The aggregate's last sequence as the caller knows it; 0: it must be new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_aggregate_sequence: Option<AggregateSequence>,
    /// W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_parent: Option<String>,
    /// Groups what belongs to one business transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The event that caused this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    /// Jobs of one message group are delivered in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_group: Option<String>,
    /// Replaces the whole idempotency key by this, within topic and tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deduplication_id: Option<String>,
    /// The request that led to this event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Who did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// Searchable labels. They may be submitted as `contextData`, a list of `{key, value}`, too.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, String>,
    /// The payload: a JSON object, kept as it was spelt.
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
    /// An event with the two members no other can stand in for.
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

/// Who caused an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Actor {
    /// What kind of actor.
    #[serde(rename = "type")]
    pub actor_type: ActorType,
    /// Its id in its own system.
    pub id: String,
}

/// What kind of actor caused an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorType {
    /// A person.
    User,
    /// A program with credentials of its own.
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
    /// The id of the CloudEvent it came as, where that is not `id` in its usual spelling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_event_id: Option<String>,
    /// The media type of `data`, where it came as a CloudEvent with another than `application/json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_content_type: Option<String>,
    /// Its type, spelt as the producer did.
    #[serde(rename = "type")]
    pub event_type: EventTypeId,
    /// The topic it was stored in.
    pub topic: TopicId,
    /// Its number in the topic.
    pub sequence: Sequence,
    /// Its number in the aggregate; absent where it speaks of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate_sequence: Option<AggregateSequence>,
    /// Its number in the log.
    pub position: Position,
    /// When it happened.
    pub occurred_at: Timestamp,
    /// When the broker stored it.
    pub created_at: Timestamp,
    /// Which program spoke.
    pub source: String,
    /// What it speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What kind of thing that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_type: Option<SubjectTypeId>,
    /// Whose event it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Uuid>,
    /// Version of the type's schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_version: Option<String>,
    /// W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_parent: Option<String>,
    /// Groups what belongs to one business transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The event that caused this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    /// Jobs of one message group are delivered in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_group: Option<String>,
    /// What deduplicated it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deduplication_id: Option<String>,
    /// The request that led to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Who did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// Where it was published again: the sequence at which it was first stored. The id is the first one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub republish_of: Option<Sequence>,
    /// Searchable labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, String>,
    /// The payload, as it was spelt.
    pub data: Box<RawValue>,
}

impl From<Event> for NewEvent {
    /// The event to be published again: what the log assigned is left aside.
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

/// A stored event as the log keeps it: its numbers, and the JSON text that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its number in the log.
    pub position: Position,
    /// Its number in the topic.
    pub sequence: Sequence,
    /// Its number in the aggregate; 0 where it speaks of none.
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

/// A program instance that publishes; scopes the idempotency key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProducerId(pub String);

/// What became of a submitted event that was not refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedEvent {
    /// The stored event: the new one, or the one it repeats.
    pub event: StoredEvent,
    /// Whether it is new.
    pub outcome: PublishOutcome,
    /// Whether the schema version it was submitted under is DEPRECATED.
    pub deprecated: bool,
}

/// Whether a published event is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishOutcome {
    /// Stored now.
    Created,
    /// Stored before under the same idempotency key.
    Duplicate {
        /// The first submission's `data` was another, and the topic wants to be told.
        payload_mismatch: bool,
    },
}

/// How much of a batch stands or falls together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Atomicity {
    /// The events of one topic; other topics are unaffected.
    #[default]
    PerTopic,
    /// The whole request.
    All,
    /// Each event by itself; the order is kept.
    Each,
}

/// A submitted event that could not be read, and as much of it as its topic can be told from.
#[derive(Debug, Clone)]
pub struct UnreadableEvent {
    /// Why not.
    pub error: Error,
    /// Its type, where at least that was there.
    pub event_type: Option<EventTypeId>,
}

/// What became of a batch: one result per event, in the order submitted.
pub type BatchOutcome = Vec<Result<PublishedEvent>>;
