//! Schemas of event types, compiled once and asked for every published event; whatever language they are in.
//!
//! - A schema comes from strangers: compiling one, holding an event against it and comparing two are bounded in time,
//!   memory and stack. Nothing is fetched, from the network or from a file.
//! - A failure is told by pointer and in our words; it quotes the schema at most, never the event.
//! - [`broken`] is careful: what it does not list is shown to be compatible, what it lists may be.
//!
//! Each language has a file here, which alone knows its crate. Which version an event is held against is
//! [`super::versions`]' business.

mod json;
mod proto;
mod xsd;

use contract::{Error, NewVersion, Result, SchemaTarget, SchemaType, Violation, limits};
use json::JsonSchema;
use proto::ProtoSchema;
use serde_json::Value;
use xsd::XsdSchema;

/// A compiled schema.
#[derive(Debug)]
pub(crate) enum Schema {
    Json(Box<JsonSchema>),
    Proto(Box<ProtoSchema>),
    Xsd(Box<XsdSchema>),
}

impl Schema {
    /// Compiles the schema of a version that a request carries `at`; without `target` its shape tells what it describes.
    pub(crate) fn compile(at: &str, definition: &NewVersion, target: Option<SchemaTarget>) -> Result<Self> {
        let schema_at = format!("{at}/schema");
        if definition.schema_type == SchemaType::JsonSchema {
            let schema = JsonSchema::compile(&schema_at, &definition.schema.to_string(), target)?;
            return Ok(Self::Json(Box::new(schema)));
        }
        let text = text_of(&schema_at, definition)?;
        Ok(match definition.schema_type {
            SchemaType::Xsd => Self::Xsd(Box::new(XsdSchema::compile(&schema_at, text)?)),
            _ => Self::Proto(Box::new(ProtoSchema::compile(at, text, definition.message.as_deref())?)),
        })
    }

    /// Holds an event against the schema; tells every failure, up to [`limits::VIOLATIONS_MAX`], with its pointer from
    /// the event. `data` is lent: it comes back as it was.
    pub(crate) fn check(
        &self,
        subject: Option<&str>,
        subject_type: Option<&str>,
        data: &mut Value,
    ) -> Result<(), Vec<Violation>> {
        match self {
            Self::Json(schema) => schema.check(subject, subject_type, data),
            Self::Proto(schema) => schema.check(data),
            Self::Xsd(schema) => schema.check(data),
        }
    }
}

/// Whether a JSON Schema that a request carries `at` can be used.
pub(crate) fn check_json(at: &str, schema: &Value, target: Option<SchemaTarget>) -> Result<()> {
    JsonSchema::compile(at, &schema.to_string(), target).map(|_| ())
}

/// The definition as it is kept: a JSON Schema that came as text is parsed, so that one schema has one form.
pub(crate) fn settled(at: &str, mut definition: NewVersion) -> Result<NewVersion> {
    if let (SchemaType::JsonSchema, Value::String(text)) = (definition.schema_type, &definition.schema) {
        if text.len() > limits::SCHEMA_BYTES_MAX {
            return Err(too_long(&format!("{at}/schema")));
        }
        definition.schema = json::parse(&format!("{at}/schema"), text)?;
    }
    Ok(definition)
}

/// Where `new` might refuse an event that `old` takes; both compile. Pointers start at the new version's request, `at`.
pub(crate) fn broken(at: &str, old: &NewVersion, new: &NewVersion, target: Option<SchemaTarget>) -> Vec<Violation> {
    if old.schema_type != new.schema_type {
        let detail = "must stay the same within a major version; make this a new major version";
        return vec![Violation::new(format!("{at}/schemaType"), detail)];
    }
    if old.schema == new.schema && old.message == new.message {
        return Vec::new();
    }
    let schema_at = format!("{at}/schema");
    let mut found = match (old.schema_type, old.schema.as_str(), new.schema.as_str()) {
        (SchemaType::Proto, Some(_), Some(_)) => proto::compat::broken(at, old, new),
        (SchemaType::Xsd, Some(old), Some(new)) => xsd::compat::broken(&schema_at, old, new),
        _ => json::compat::broken(&schema_at, &old.schema, &new.schema, target),
    };
    found.truncate(limits::VIOLATIONS_MAX);
    found
}

/// What both languages that are not JSON come as.
fn text_of<'a>(schema_at: &str, definition: &'a NewVersion) -> Result<&'a str> {
    let Some(text) = definition.schema.as_str() else {
        return Err(refused(schema_at, "a schema of this type is a string"));
    };
    if text.len() > limits::SCHEMA_BYTES_MAX { Err(too_long(schema_at)) } else { Ok(text) }
}

fn too_long(schema_at: &str) -> Error {
    refused(schema_at, &format!("a schema has at most {} bytes", limits::SCHEMA_BYTES_MAX))
}

fn refused(pointer: &str, detail: &str) -> Error {
    Error::invalid(pointer, format!("The schema cannot be used: {detail}."))
}

/// What is told of a schema that broke with its predecessor.
fn changed(pointer: impl Into<String>, detail: impl Into<String>) -> Violation {
    Violation::new(pointer, detail)
}
