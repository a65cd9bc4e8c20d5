//! Schemas of event types, in any language: compiled once, and checked for every published event.
//!
//! - Schemas are untrusted input: compiling one, checking an event and comparing two are bounded in time, memory and
//!   stack. Nothing is fetched, neither from the network nor from files.
//! - A failure is reported by pointer, in the broker's own words; it may quote the schema, never the event.
//! - [`incompatibilities`] is conservative: what it does not list is proven compatible; what it lists may be.
//!
//! Each language has a module, and only that module uses its crate. [`super::versions`] chooses the version that an
//! event is checked against.

mod check_work;
mod json;
mod patterns;
mod proto;
mod xsd;

pub(crate) use check_work::{CheckLimiter, CheckWork};
use contract::{Error, NewVersion, Result, SchemaTarget, SchemaType, Violation, limits};
use json::JsonSchema;
pub(crate) use patterns::SchemaOrigin;
use proto::ProtoSchema;
use serde_json::Value;
use xsd::XsdSchema;

/// A compiled schema.
#[derive(Debug)]
pub(crate) enum CompiledSchema {
    Json(Box<JsonSchema>),
    Proto(Box<ProtoSchema>),
    Xsd(Box<XsdSchema>),
}

/// The text of a schema, with everything that decides what it compiles to.
pub(crate) struct SchemaSource<'a> {
    /// The pointer to the schema in the request.
    at: String,
    schema_type: SchemaType,
    schema: &'a Value,
    /// The message of a proto file.
    message: Option<&'a str>,
    /// What it describes; if absent, the shape of a JSON Schema decides.
    target: Option<SchemaTarget>,
}

impl<'a> SchemaSource<'a> {
    /// The schema of a version, which is at the pointer `at` of a request.
    pub(crate) fn of_version(at: &str, definition: &'a NewVersion, target: Option<SchemaTarget>) -> Self {
        Self {
            at: format!("{at}{SCHEMA}"),
            schema_type: definition.schema_type,
            schema: &definition.schema,
            message: definition.message.as_deref(),
            target,
        }
    }

    /// A JSON Schema, which is at the pointer `at` of a request.
    pub(crate) fn json(at: &str, schema: &'a Value, target: Option<SchemaTarget>) -> Self {
        Self { at: at.to_owned(), schema_type: SchemaType::JsonSchema, schema, message: None, target }
    }

    /// Identifies the schema.
    pub(crate) fn fingerprint(&self) -> u128 {
        let mut hasher = blake3::Hasher::new();
        for part in [format!("{:?} {:?}", self.schema_type, self.target), self.message.unwrap_or_default().to_owned()] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        hasher.update(self.schema.to_string().as_bytes());
        let mut low = [0; 16];
        hasher.finalize_xof().fill(&mut low);
        u128::from_le_bytes(low)
    }

    /// The approximate size of the compiled schema, in bytes; refused if that is too much. By measurement, a JSON
    /// Schema without patterns takes six times its text.
    pub(crate) fn measure(&self, origin: SchemaOrigin) -> Result<usize> {
        let text_bytes = || self.schema.to_string().len().saturating_mul(8);
        let bytes = match (self.schema_type, self.schema.as_str()) {
            (SchemaType::JsonSchema, _) => {
                json::pattern_bytes(self.schema, origin).map(|patterns| text_bytes().saturating_add(patterns))
            }
            (SchemaType::Xsd, Some(text)) if text.len() <= limits::SCHEMA_BYTES_MAX => {
                xsd::pattern_bytes(text, origin).map(|patterns| xsd::compiled_bytes(text, patterns))
            }
            _ => Ok(text_bytes()),
        };
        bytes.map_err(|detail| refused(&self.at, &detail))
    }

    /// The pointer to the version with this schema.
    fn version_at(&self) -> &str {
        self.at.strip_suffix(SCHEMA).unwrap_or_default()
    }
}

/// The member of a version that holds its schema.
const SCHEMA: &str = "/schema";

impl CompiledSchema {
    /// Compiles a schema.
    pub(crate) fn compile(source: &SchemaSource<'_>) -> Result<Self> {
        let at = &source.at;
        if source.schema_type == SchemaType::JsonSchema {
            let schema = JsonSchema::compile(at, &source.schema.to_string(), source.target)?;
            return Ok(Self::Json(Box::new(schema)));
        }
        let text = text_of(at, source.schema)?;
        Ok(match source.schema_type {
            SchemaType::Xsd => Self::Xsd(Box::new(XsdSchema::compile(at, text)?)),
            _ => Self::Proto(Box::new(ProtoSchema::compile(source.version_at(), text, source.message)?)),
        })
    }

    /// Creates everything that checking events needs, so that nothing is compiled there.
    pub(crate) fn complete(&self, source: &SchemaSource<'_>) {
        if let (Self::Xsd(schema), Some(text)) = (self, source.schema.as_str()) {
            schema.complete(text);
        }
    }

    /// The most work that checking an event can take; its `data` is a text of so many bytes.
    pub(crate) fn work(&self, data: &Value, bytes: usize) -> CheckWork {
        match self {
            Self::Json(schema) => schema.work(data, bytes),
            Self::Proto(_) => CheckWork::default(),
            Self::Xsd(schema) => schema.work(bytes),
        }
    }

    /// Checks an event against the schema; returns every failure, up to [`limits::VIOLATIONS_MAX`], with its pointer
    /// from the event. `data` is borrowed mutably, but is unchanged afterwards.
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

/// The definition as it is stored: a JSON Schema that was sent as text is parsed, so that a schema has one form.
pub(crate) fn normalised(at: &str, mut definition: NewVersion) -> Result<NewVersion> {
    if let (SchemaType::JsonSchema, Value::String(text)) = (definition.schema_type, &definition.schema) {
        if text.len() > limits::SCHEMA_BYTES_MAX {
            return Err(too_long(&format!("{at}/schema")));
        }
        definition.schema = json::parse(&format!("{at}/schema"), text)?;
    }
    Ok(definition)
}

/// The places where `new` might refuse an event that `old` accepts; both compile. Pointers start at the new version in
/// the request, `at`.
pub(crate) fn incompatibilities(
    at: &str,
    old: &NewVersion,
    new: &NewVersion,
    target: Option<SchemaTarget>,
) -> Vec<Violation> {
    if old.schema_type != new.schema_type {
        let detail = "must stay the same within a major version; make this a new major version";
        return vec![Violation::new(format!("{at}/schemaType"), detail)];
    }
    if old.schema == new.schema && old.message == new.message {
        return Vec::new();
    }
    let schema_at = format!("{at}/schema");
    let mut found = match (old.schema_type, old.schema.as_str(), new.schema.as_str()) {
        (SchemaType::Proto, Some(_), Some(_)) => proto::compat::incompatibilities(at, old, new),
        (SchemaType::Xsd, Some(old), Some(new)) => xsd::compat::incompatibilities(&schema_at, old, new),
        _ => json::compat::incompatibilities(&schema_at, &old.schema, &new.schema, target),
    };
    found.truncate(limits::VIOLATIONS_MAX);
    found
}

/// The text of a schema whose language is not JSON.
fn text_of<'a>(schema_at: &str, schema: &'a Value) -> Result<&'a str> {
    let Some(text) = schema.as_str() else {
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

/// One incompatibility with the version before.
fn changed(pointer: impl Into<String>, detail: impl Into<String>) -> Violation {
    Violation::new(pointer, detail)
}
