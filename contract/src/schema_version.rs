//! Schema versions of an event type, and their statuses.
//!
//! - A version is FINALISING (it may be replaced), then CURRENT, then DEPRECATED (accepted, with a notice in the response).
//! - When it is CURRENT, its definition no longer changes.

use crate::{Error, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

/// `MAJOR.MINOR` of a schema. Minor versions of one major are backward compatible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SchemaVersion {
    /// The major version. Different majors need not be compatible.
    pub major: u32,
    /// The minor version. A higher one accepts every event that a lower one accepts.
    pub minor: u32,
}

impl SchemaVersion {
    /// The version of `dataSchema`, and of events whose type has no schema.
    pub const FIRST: Self = Self { major: 1, minor: 0 };
}

impl FromStr for SchemaVersion {
    type Err = Error;

    /// Two decimal numbers with a point between, without signs and leading zeros: each version has one spelling.
    fn from_str(text: &str) -> Result<Self, Error> {
        let parts = text.split_once('.').and_then(|(major, minor)| Some((number(major)?, number(minor)?)));
        let detail = "must be a version: two numbers with a point between, such as 1.0";
        parts.map(|(major, minor)| Self { major, minor }).ok_or_else(|| Error::invalid("/version", detail))
    }
}

fn number(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

impl fmt::Display for SchemaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Serialize for SchemaVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SchemaVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(VersionVisitor)
    }
}

struct VersionVisitor;

impl de::Visitor<'_> for VersionVisitor {
    type Value = SchemaVersion;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a version as text, such as \"1.0\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<SchemaVersion, E> {
        text.parse().map_err(|error: Error| E::custom(error.detail()))
    }
}

/// The language of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SchemaType {
    /// JSON Schema, draft-07 or 2020-12.
    JsonSchema,
    /// Protocol Buffers; `data` is the JSON form of one message.
    Proto,
    /// XML Schema 1.0; `data` is `{"xml": "<…/>"}`.
    Xsd,
}

/// The status of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum VersionStatus {
    /// Under development: it may be replaced, and accepts no events while the type has a finalised version.
    Finalising,
    /// The version for new events; at most one per major.
    Current,
    /// Still accepted, with a notice in the response.
    Deprecated,
}

/// A definition of a schema version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewVersion {
    /// The version.
    pub version: SchemaVersion,
    /// The language of the schema.
    pub schema_type: SchemaType,
    /// The schema: for `JSON_SCHEMA` an object or a boolean (or its JSON text, stored parsed), otherwise its text.
    pub schema: Value,
    /// The media type of what the schema describes, for people and programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// For `PROTO`: the message type of `data`. Absent: the only top-level message that no other message of the file uses, or
    /// the last one if that is ambiguous.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl NewVersion {
    /// A version with a JSON Schema.
    #[must_use]
    pub const fn json_schema(version: SchemaVersion, schema: Value) -> Self {
        Self { version, schema_type: SchemaType::JsonSchema, schema, mime_type: None, message: None }
    }
}

/// A registered schema version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegisteredVersion {
    /// Its definition.
    #[serde(flatten)]
    pub definition: NewVersion,
    /// Its status.
    pub status: VersionStatus,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When it became CURRENT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalised_at: Option<Timestamp>,
    /// When it became DEPRECATED.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_one_spelling() {
        for text in ["0.0", "1.0", "1.10", "4294967295.4294967295"] {
            assert_eq!(text.parse::<SchemaVersion>().unwrap().to_string(), text);
        }
        for text in
            ["", "1", "1.", ".0", "1.0.0", "01.0", "1.00", "+1.0", "-1.0", " 1.0", "1.0 ", "v1.0", "1.4294967296"]
        {
            let error = text.parse::<SchemaVersion>().unwrap_err();
            assert_eq!(error.violations()[0].pointer, "/version", "{text}");
        }
    }

    #[test]
    fn versions_are_ordered_by_number() {
        let version = |text: &str| text.parse::<SchemaVersion>().unwrap();
        assert!(version("1.9") < version("1.10") && version("1.10") < version("2.0"));
    }

    #[test]
    fn a_version_reads_and_writes_as_the_api_spells_it() {
        let text = r#"{"version":"1.1","schemaType":"JSON_SCHEMA","schema":{},"status":"CURRENT","createdAt":"2026-01-01T00:00:00.000Z"}"#;
        let version: RegisteredVersion = serde_json::from_str(text).unwrap();
        assert_eq!(version.definition.version, SchemaVersion { major: 1, minor: 1 });
        assert_eq!(serde_json::to_string(&version).unwrap(), text);
        let unknown = r#"{"version":"1.1","schemaType":"JSON_SCHEMA","schema":{},"status":"CURRENT"}"#;
        assert!(serde_json::from_str::<NewVersion>(unknown).unwrap_err().to_string().contains("status"));
    }
}
