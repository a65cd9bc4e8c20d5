//! The event type: the registered name, schema versions and subject types an event claims.

use crate::{EventTypeId, NewVersion, RegisteredVersion, SubjectTypeId, Timestamp, TopicId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An event type as one asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewEventType {
    /// Its name.
    pub id: EventTypeId,
    /// The topic its events go to; absent: the configuration's routes decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<TopicId>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What its events may speak of; empty: anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_subject_types: Vec<SubjectTypeId>,
    /// How a subject is written as a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_ref_template: Option<String>,
    /// JSON Schema (draft-07 or 2020-12) of the payload, as version 1.0; absent, and no `versions`: any object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_schema: Option<Value>,
    /// Instead of `dataSchema`: versions that are CURRENT at once, or DEPRECATED where there is a higher minor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<NewVersion>,
    /// What the schema describes; absent: told by its shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_target: Option<SchemaTarget>,
    /// Whether its events may have no subject.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub subject_optional: bool,
    /// Whether its events end what they speak of: in a topic that keeps the latest event per aggregate, the aggregate goes
    /// with it once the topic's retention is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tombstone: bool,
}

impl NewEventType {
    /// An event type that takes any object about anything.
    #[must_use]
    pub fn new(id: EventTypeId) -> Self {
        Self {
            id,
            topic: None,
            description: None,
            allowed_subject_types: Vec::new(),
            subject_ref_template: None,
            data_schema: None,
            versions: Vec::new(),
            schema_target: None,
            subject_optional: false,
            tombstone: false,
        }
    }
}

/// A registered event type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventType {
    /// What was asked for. Its `versions` are empty: those below are they, and what became of them.
    #[serde(flatten)]
    pub definition: NewEventType,
    /// When it was registered.
    pub created_at: Timestamp,
    /// Its schema versions, lowest first; none: any object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<RegisteredVersion>,
    /// Whether it accepts no more events.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archived: bool,
}

/// What a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchemaTarget {
    /// The event's `subject`, `subjectType` and `data`.
    Event,
    /// `data` alone.
    Data,
}
