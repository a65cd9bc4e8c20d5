//! JSON Schemas of event types, compiled once and asked for every published event.
//!
//! - Draft 2020-12 (the default) and draft-07, by `$schema`; any other is refused. A `$ref` stays inside the schema:
//!   nothing is fetched, from the network or from a file.
//! - Formats are asserted under both drafts, ours among them (`uuid`, `gts-identifier`, `iso8601duration`);
//!   docs/schemas.md lists them.
//! - Patterns are matched in linear time; look-around and back-references are refused.
//! - Bounded: by length, by nesting, and by how often one place of an event is looked at through `$ref`, `allOf` and
//!   their kin. Where an event and a schema are both large, only the first failure is told.
//! - A failure is told by pointer and in our words; it quotes the schema at most, never the event.
//!
//! This module alone knows the validator's crate. What a minor version may change is [`compat`]'s business.

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
    /// How often one place of an event is looked at.
    reach: usize,
    /// The states of the automata of all patterns that one place is matched with.
    pattern_states: usize,
}

impl JsonSchema {
    /// Compiles a schema that a request carries `at`; without `target` its shape tells what it describes.
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
            // The validator follows what we do not, so what that takes is not known.
            return Err(refused(at, "", "a reference in it cannot be followed; write it as `#/$defs/name`"));
        }
        let target = target.unwrap_or_else(|| target_of(&schema));
        Ok(Self { validator, target, reach: reach.looks, pattern_states: reach.pattern_states })
    }

    /// What checking an event takes at most, whose `data` is a text of so many bytes.
    pub(super) fn work(&self, data: &Value, bytes: usize) -> CheckWork {
        let work = |values: usize, text_bytes: usize| CheckWork {
            looks: values.saturating_mul(self.reach),
            pattern_steps: text_bytes.saturating_mul(self.pattern_states),
        };
        // The text has more bytes than values: most events need not be counted.
        let most = work(bytes + 3, bytes);
        if most.is_small() {
            return most;
        }
        let (values, text_bytes) = cost::size_of_instance(data);
        work(values + 3, text_bytes)
    }

    /// Holds an event against the schema; tells every failure, up to [`limits::VIOLATIONS_MAX`], with its pointer from
    /// the event. `data` is lent: moved into the event for the time of the check, and back.
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
        if let Some(lent) = event.get_mut("data") {
            *data = lent.take();
        }
        outcome
    }

    fn check_instance(&self, instance: &Value) -> Result<(), Vec<Violation>> {
        if self.validator.is_valid(instance) { Ok(()) } else { Err(self.failures(instance)) }
    }

    /// The validator collects every failure before it gives the first, so it is asked for all only where they are few.
    fn failures(&self, instance: &Value) -> Vec<Violation> {
        let at = if self.target == SchemaTarget::Data { "/data" } else { "" };
        let told = |error: ValidationError<'_>| messages::violations(at, &error);
        if cost::has_at_most(instance, LOOKS_MAX / self.reach) {
            self.validator.iter_errors(instance).flat_map(told).take(limits::VIOLATIONS_MAX).collect()
        } else {
            let first = self.validator.validate(instance).err().map(told).unwrap_or_default();
            first.into_iter().take(limits::VIOLATIONS_MAX).collect()
        }
    }
}

/// What the patterns of a schema take once they are compiled, in bytes; else why that is too much.
pub(super) fn pattern_bytes(schema: &Value, origin: SchemaOrigin) -> Result<usize, String> {
    let mut budget = PatternBudget::of(origin);
    for pattern in patterns(schema) {
        budget.spend(pattern, in_rust_syntax)?;
    }
    Ok(budget.compiled_bytes())
}

/// What the validator makes of a pattern before it is compiled.
fn in_rust_syntax(pattern: &str) -> Cow<'_, str> {
    jsonschema_regex::to_rust_regex(pattern).unwrap_or(Cow::Borrowed(pattern))
}

/// Every regular expression of a schema, and of the data in it: a schema may be anywhere, under any name.
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

/// Reads the text of a schema that a request carries `at`.
pub(super) fn parse(at: &str, text: &str) -> Result<Value> {
    parse_strict(text, limits::DATA_DEPTH_MAX).map_err(|error| match error.violations() {
        [first, ..] => refused(at, &first.pointer, &first.detail),
        [] => refused(at, "", "is not JSON"),
    })
}

/// Encodes the colons of codes in addresses (`gts://shop:orders:order:created`), where they would begin a port.
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

/// Most places of an event times looks at each, up to which all failures are told.
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

/// Where a part of a schema with its own `$id` names a draft we do not know; the validator would read it as the default one.
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
