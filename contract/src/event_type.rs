//! Event types: registered names with schema versions and allowed subject types.

use crate::{EventTypeId, NewVersion, RegisteredVersion, SubjectTypeId, Timestamp, TopicId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A definition of an event type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewEventType {
    /// Its name.
    pub id: EventTypeId,
    /// The topic of its events; absent: the configuration's routes decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<TopicId>,
    /// A description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The subject types that its events may have; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_subject_types: Vec<SubjectTypeId>,
    /// A template for links to subjects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_ref_template: Option<String>,
    /// The JSON Schema (draft-07 or 2020-12) of the payload, as version 1.0. Without it and without `versions`: any object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_schema: Option<Value>,
    /// Instead of `dataSchema`: versions, which are CURRENT at once, or DEPRECATED if there is a higher minor version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<NewVersion>,
    /// What the schema describes; absent: detected from its form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_target: Option<SchemaTarget>,
    /// Whether its events may have no subject.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub subject_optional: bool,
    /// Whether its events are tombstones: in a compacted topic the aggregate is removed
    /// with the tombstone when its retention ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tombstone: bool,
}

impl NewEventType {
    /// An event type that accepts any object about any subject.
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
    /// The definition. Its `versions` are empty; they are listed below with their status.
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

impl EventType {
    /// The size of all its schemas, in bytes.
    #[must_use]
    pub fn schema_bytes(&self) -> usize {
        let versions = self.versions.iter().map(|version| &version.definition.schema);
        versions.chain(&self.definition.data_schema).map(|schema| schema.to_string().len()).sum()
    }
}

/// What a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchemaTarget {
    /// The event's `subject`, `subjectType` and `data`.
    Event,
    /// Only `data`.
    Data,
}
