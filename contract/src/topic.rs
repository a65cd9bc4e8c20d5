//! The topic: a named append-only stream with its own order, types and retention.

use crate::object::object;
use crate::patch::nullable;
use crate::{IsoDuration, Timestamp, TopicId};
use serde::{Deserialize, Serialize};

/// A definition of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewTopic {
    /// Its name.
    pub id: TopicId,
    /// A description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// How it is stored.
    pub streaming: StreamingSetting,
    /// How long events are kept; absent: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<IsoDuration>,
    /// How long idempotency keys are remembered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent_retention: Option<IsoDuration>,
    /// What happens when a key is repeated with other `data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_payload_mismatch: Option<PayloadMismatch>,
    /// Which submissions are duplicates; fixed when the topic is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deduplicate_by: Option<DeduplicateBy>,
    /// What happens to events that seem to contain a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<SecretPolicy>,
    /// What retention removes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<CleanupPolicy>,
    /// How subjects are normalised before they are compared; empty: their bytes are compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aggregate_normalisation: Vec<SubjectNormalisation>,
    /// Not listed for ordinary callers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub internal: bool,
}

impl NewTopic {
    /// A topic in the default log that keeps its events for ever.
    #[must_use]
    pub fn new(id: TopicId) -> Self {
        Self {
            id,
            description: None,
            streaming: StreamingSetting::Enabled(true),
            retention: None,
            idempotent_retention: None,
            on_payload_mismatch: None,
            deduplicate_by: None,
            secrets: None,
            cleanup: None,
            aggregate_normalisation: Vec::new(),
            internal: false,
        }
    }
}

/// A registered topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Topic {
    /// Its definition.
    #[serde(flatten)]
    pub definition: NewTopic,
    /// When it was registered.
    pub created_at: Timestamp,
}

/// What may change about a topic after it was registered. Absent members stay as they are; null removes a member, so that
/// its default applies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TopicChange {
    /// A description for people.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub description: Option<Option<String>>,
    /// How long events are kept.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub retention: Option<Option<IsoDuration>>,
    /// How long idempotency keys are remembered.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub idempotent_retention: Option<Option<IsoDuration>>,
    /// What happens when a key is repeated with other `data`.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub on_payload_mismatch: Option<Option<PayloadMismatch>>,
    /// What happens to events that seem to contain a secret.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Option<SecretPolicy>>,
}

impl TopicChange {
    /// Sets every member that may change to its value in a definition, and removes those that the definition does not have.
    #[must_use]
    pub fn into_definition(definition: &NewTopic) -> Self {
        let NewTopic { description, retention, idempotent_retention, on_payload_mismatch, secrets, .. } =
            definition.clone();
        Self {
            description: Some(description),
            retention: Some(retention),
            idempotent_retention: Some(idempotent_retention),
            on_payload_mismatch: Some(on_payload_mismatch),
            secrets: Some(secrets),
        }
    }

    /// The definition with this change applied.
    #[must_use]
    pub fn applied_to(self, topic: NewTopic) -> NewTopic {
        NewTopic {
            description: self.description.unwrap_or(topic.description),
            retention: self.retention.unwrap_or(topic.retention),
            idempotent_retention: self.idempotent_retention.unwrap_or(topic.idempotent_retention),
            on_payload_mismatch: self.on_payload_mismatch.unwrap_or(topic.on_payload_mismatch),
            secrets: self.secrets.unwrap_or(topic.secrets),
            ..topic
        }
    }
}

/// How a topic is stored: `true`, or an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "must be `true`, or an object of `type`, `location` and `retention`")]
pub enum StreamingSetting {
    /// In the default log.
    Enabled(bool),
    /// With options.
    Options(StreamingOptions),
}

/// The object form of `streaming`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct StreamingOptions {
    /// `memory`, `file` or `database`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub streaming_type: Option<String>,
    /// The location of another log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Retention; `retention` of the topic itself takes precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<IsoDuration>,
}

object!(StreamingOptions);

/// What happens when an idempotency key is repeated with other `data`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PayloadMismatch {
    /// It is an ordinary duplicate.
    #[default]
    Duplicate,
    /// It is a duplicate, and the response says that the data differs.
    Flag,
    /// Refused.
    Reject,
}

/// Which submissions are duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeduplicateBy {
    /// Those with the same `id`, topic, type, tenant, subject, `occurredAt` and producer, or else with the same
    /// `deduplicationId`, topic and tenant.
    #[default]
    Submission,
    /// Those with the same `id`, topic and tenant, whatever their other members are.
    Id,
}

/// What happens to submitted events that seem to contain a secret, such as a password or a private key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretPolicy {
    /// They are not inspected.
    Off,
    /// They are stored, and the response says where the secret seems to be.
    #[default]
    Flag,
    /// They are refused, if the secret has the form of a known kind; otherwise they are flagged.
    Reject,
}

/// What retention removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CleanupPolicy {
    /// Events past their age.
    #[default]
    Delete,
    /// Events past their age, but never the latest of an aggregate.
    Compact,
}

/// A normalisation of subjects before they are compared. An event keeps its own spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SubjectNormalisation {
    /// White space at either end.
    Trim,
    /// Upper and lower case.
    CaseFold,
    /// How Unicode composes a character (normalisation form C).
    Nfc,
}

/// What a deletion would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRunReport {
    /// How many events would be removed.
    pub count: u64,
    /// What else would happen, one sentence each.
    pub effects: Vec<String>,
}

/// The outcome of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegisterOutcome<T> {
    /// Registered now.
    Created(T),
    /// The same definition was registered already.
    Unchanged(T),
}

impl<T> RegisterOutcome<T> {
    /// What is registered, new or not.
    pub fn into_inner(self) -> T {
        match self {
            Self::Created(thing) | Self::Unchanged(thing) => thing,
        }
    }
}
