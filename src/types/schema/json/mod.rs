//! JSON Schemas of event types, compiled once and checked for every published event.
//!
//! - Draft 2020-12 (the default) and draft-07, by `$schema`; any other is refused. A `$ref` stays inside the schema:
//!   nothing is fetched, from the network or from a file.
//! - Formats are asserted under both drafts, including the broker's own (`uuid`, `gts-identifier`, `iso8601duration`);
//!   docs/schemas.md lists them.
//! - Patterns are matched in linear time; look-around and back-references are refused.
//! - A schema is bounded by length, by nesting, and by how often one value of an event is evaluated through `$ref`,
//!   `allOf` and similar keywords. If an event and a schema are both large, only the first failure is reported.
//! - A failure is reported by pointer, in the broker's own words; it may quote the schema, never the event.
//!
//! Only this module uses the validator's crate. [`compat`] decides what a minor version may change.

mod bounds;
pub(super) mod compat;
mod cost;
mod keywords;
mod messages;
mod positions;
mod references;
mod scopes;
#[cfg(test)]
mod tests;

use super::check_work::CheckWork;
use super::patterns::{PatternBudget, SchemaOrigin};
use contract::{CloudEvent, Error, Identifier, IsoDuration, Result, SchemaTarget, Violation, limits, parse_strict};
use jsonschema::{Draft, PatternOptions, ValidationError, ValidationOptions, Validator};
use positions::PartPosition;
use serde_json::{Map, Value};
use std::borrow::Cow;
use uuid::Uuid;

/// A compiled schema.
#[derive(Debug)]
pub(crate) struct JsonSchema {
    validator: Validator,
    /// What it describes.
    target: SchemaTarget,
    /// How often one value of an event is evaluated.
    reach: usize,
    /// The states of the automata of all patterns that one value is matched with.
    pattern_states: usize,
}

impl JsonSchema {
    /// Compiles a schema at the pointer `at` of a request; without `target` its shape decides what it describes.
    pub(super) fn compile(at: &str, text: &str, target: Option<SchemaTarget>) -> Result<Self> {
        if text.len() > limits::SCHEMA_BYTES_MAX {
            return Err(refused(at, "", &format!("a schema has at most {} bytes", limits::SCHEMA_BYTES_MAX)));
        }
        let mut schema = parse(at, text)?;
        encode_codes(&mut schema, PartPosition::Schema);
        let draft = draft_of(&schema).ok_or_else(|| refused(at, "/$schema", DRAFTS))?;
        if let Some(pointer) = unknown_draft_within(&schema) {
            return Err(refused(at, &pointer, DRAFTS));
        }
        let reach = cost::evaluations_per_value(&schema).map_err(|detail| refused(at, "", detail))?;
        let validator = options(draft)
            .build(&schema)
            .map_err(|error| refused(at, error.instance_path().as_str(), messages::schema_fault(error.kind())))?;
        if reach.is_partial {
            // The validator follows references that the analysis does not, so the cost is unknown.
            return Err(refused(at, "", "a reference in it cannot be followed; write it as `#/$defs/name`"));
        }
        let target = target.unwrap_or_else(|| target_of(&schema));
        Ok(Self { validator, target, reach: reach.looks, pattern_states: reach.pattern_states })
    }

    /// The most work that checking an event can take; its `data` is a text of so many bytes.
    pub(super) fn work(&self, data: &Value, bytes: usize) -> CheckWork {
        let work = |values: usize, text_bytes: usize| CheckWork {
            looks: values.saturating_mul(self.reach),
            pattern_steps: text_bytes.saturating_mul(self.pattern_states),
        };
        // A text has at least as many bytes as values, so most events need not be counted.
        let most = work(bytes + 3, bytes);
        if most.is_small() {
            return most;
        }
        let (values, text_bytes) = cost::size_of_instance(data);
        work(values + 3, text_bytes)
    }

    /// Checks an event against the schema; returns every failure, up to [`limits::VIOLATIONS_MAX`], with its pointer
    /// from the event. `data` is moved into the event for the check, and back.
    pub(super) fn check(
        &self,
        subject: Option<&str>,
        subject_type: Option<&str>,
        data: &mut Value,
    ) -> Result<(), Vec<Violation>> {
        if self.target == SchemaTarget::Data {
            return self.check_instance(data);
        }
        let mut event = Map::new();
        event.extend(subject.map(|subject| ("subject".to_owned(), subject.into())));
        event.extend(subject_type.map(|subject_type| ("subjectType".to_owned(), subject_type.into())));
        event.insert("data".to_owned(), data.take());
        let mut event = Value::Object(event);
        let outcome = self.check_instance(&event);
        if let Some(moved) = event.get_mut("data") {
            *data = moved.take();
        }
        outcome
    }

    fn check_instance(&self, instance: &Value) -> Result<(), Vec<Violation>> {
        if self.validator.is_valid(instance) { Ok(()) } else { Err(self.failures(instance)) }
    }

    /// The validator collects all failures before it returns the first, so all are requested only if they are few.
    fn failures(&self, instance: &Value) -> Vec<Violation> {
        let at = if self.target == SchemaTarget::Data { "/data" } else { "" };
        let to_violations = |error: ValidationError<'_>| messages::violations(at, &error);
        if cost::has_at_most(instance, LOOKS_MAX / self.reach) {
            self.validator.iter_errors(instance).flat_map(to_violations).take(limits::VIOLATIONS_MAX).collect()
        } else {
            let first = self.validator.validate(instance).err().map(to_violations).unwrap_or_default();
            first.into_iter().take(limits::VIOLATIONS_MAX).collect()
        }
    }
}

/// The size of the compiled patterns of a schema, in bytes; or why that is too much.
pub(super) fn pattern_bytes(schema: &Value, origin: SchemaOrigin) -> Result<usize, String> {
    let mut budget = PatternBudget::of(origin);
    for pattern in patterns(schema) {
        budget.spend(pattern, in_rust_syntax)?;
    }
    Ok(budget.compiled_bytes())
}

/// Converts a pattern as the validator does before it compiles it.
fn in_rust_syntax(pattern: &str) -> Cow<'_, str> {
    jsonschema_regex::to_rust_regex(pattern).unwrap_or(Cow::Borrowed(pattern))
}

/// Every regular expression of a schema, and of the data in it: a subschema may be anywhere, under any name.
fn patterns(schema: &Value) -> Vec<&str> {
    let (mut found, mut rest) = (Vec::new(), vec![schema]);
    while let Some(part) = rest.pop() {
        match part {
            Value::Object(members) => {
                found.extend(members.get("pattern").and_then(Value::as_str));
                let named = members.get("patternProperties").and_then(Value::as_object);
                found.extend(named.into_iter().flat_map(Map::keys).map(String::as_str));
                rest.extend(members.values());
            }
            Value::Array(items) => rest.extend(items),
            _ => (),
        }
    }
    found
}

/// Parses the text of a schema at the pointer `at` of a request.
pub(super) fn parse(at: &str, text: &str) -> Result<Value> {
    parse_strict(text, limits::DATA_DEPTH_MAX).map_err(|error| match error.violations() {
        [first, ..] => refused(at, &first.pointer, &first.detail),
        [] => refused(at, "", "is not JSON"),
    })
}

/// Encodes the colons of codes in addresses (`gts://shop:orders:order:created`), where they would start a port.
fn encode_codes(schema: &mut Value, position: PartPosition) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(|item| encode_codes(item, position)),
        Value::Object(members) => {
            for (name, value) in members {
                match (name.as_str(), value, position.of_member(name)) {
                    ("$id" | "$ref", Value::String(address), _) => *address = with_encoded_code(address),
                    (_, value, Some(position)) => encode_codes(value, position),
                    _ => (),
                }
            }
        }
        _ => (),
    }
}

fn with_encoded_code(address: &str) -> String {
    let Some(rest) = address.strip_prefix(CloudEvent::SCHEMA_SCHEME) else { return address.to_owned() };
    let (id, fragment) = rest.split_at(rest.find('#').unwrap_or(rest.len()));
    match Identifier::parse(id) {
        Ok(_) => format!("{}{}{fragment}", CloudEvent::SCHEMA_SCHEME, id.replace(':', "%3A")),
        Err(_) => address.to_owned(),
    }
}

/// Most values of an event times evaluations of each, up to which all failures are reported.
const LOOKS_MAX: usize = 100_000;
/// Largest compiled pattern, in bytes.
const PATTERN_SIZE_MAX: usize = 1024 * 1024;

fn options(draft: Draft) -> ValidationOptions<'static> {
    let patterns = PatternOptions::regex().size_limit(PATTERN_SIZE_MAX).dfa_size_limit(PATTERN_SIZE_MAX);
    let options = jsonschema::options()
        .with_draft(draft)
        .offline()
        .should_validate_formats(true)
        .with_pattern_options(patterns)
        .with_format("uuid", |text| text.len() == 36 && Uuid::try_parse(text).is_ok())
        .with_format("gts-identifier", |text| Identifier::parse(text).is_ok_and(|id| id.is_gts()))
        .with_format("iso8601duration", is_duration);
    if draft == Draft::Draft7 { options.with_format("duration", is_duration) } else { options }
}

fn is_duration(text: &str) -> bool {
    text.parse::<IsoDuration>().is_ok()
}

const DRAFTS: &str = "must be draft-07 or draft 2020-12";

/// The place of a subschema with its own `$id` that names an unknown draft; the validator would read it as the default
/// one.
fn unknown_draft_within(schema: &Value) -> Option<String> {
    let mut rest = vec![(String::new(), schema, PartPosition::Schema)];
    while let Some((at, part, position)) = rest.pop() {
        match part {
            Value::Object(members) => {
                let is_resource = members.get("$id").is_some_and(Value::is_string);
                if is_resource && members.get("$schema").is_some_and(Value::is_string) && draft_of(part).is_none() {
                    return Some(format!("{at}/$schema"));
                }
                for (name, member) in members {
                    let position = position.of_member(name);
                    rest.extend(position.map(|it| (format!("{at}/{}", keywords::escaped(name)), member, it)));
                }
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                rest.extend(items.map(|(index, item)| (format!("{at}/{index}"), item, position)));
            }
            _ => {}
        }
    }
    None
}

fn draft_of(schema: &Value) -> Option<Draft> {
    let Some(named) = schema.get("$schema") else { return Some(Draft::Draft202012) };
    match named.as_str()?.trim_end_matches('#') {
        "http://json-schema.org/draft-07/schema" | "https://json-schema.org/draft-07/schema" => Some(Draft::Draft7),
        "https://json-schema.org/draft/2020-12/schema" => Some(Draft::Draft202012),
        _ => None,
    }
}

/// A schema whose root declares `data` describes the event.
fn target_of(schema: &Value) -> SchemaTarget {
    let declares_data = schema.pointer("/properties/data").is_some();
    if declares_data { SchemaTarget::Event } else { SchemaTarget::Data }
}

fn refused(at: &str, pointer: &str, detail: &str) -> Error {
    super::refused(&messages::pointer(at, pointer), detail)
}
