//! Texts for the places where `data` does not fit a message.
//!
//! The library stops at the first fault and quotes it. Here each member is checked by itself, and only members that do
//! not fit are searched further.

use contract::{Violation, limits};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};

/// Every place where `data` does not fit, up to the limit; empty if none can be named.
pub(super) fn violations(message: &MessageDescriptor, data: &Value) -> Vec<Violation> {
    let mut found = ViolationFinder { left: STEPS_MAX, violations: Vec::new() };
    found.message(message, data, "/data");
    found.violations
}

/// Most members that are checked.
const STEPS_MAX: usize = 20_000;
/// Longest pointer in a response, in bytes.
const POINTER_BYTES_MAX: usize = 256;

struct ViolationFinder {
    left: usize,
    violations: Vec<Violation>,
}

impl ViolationFinder {
    fn message(&mut self, message: &MessageDescriptor, value: &Value, place: &str) {
        let Value::Object(members) = value else { return self.report(place, "must be an object") };
        let before = self.violations.len();
        for (name, member) in members {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            let place = format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"));
            match field_of(message, name) {
                None if is_extension(message, name) => (),
                None => self.report(&place, "is not a member the schema knows"),
                Some(field) => self.member(message, &field, name, member, &place),
            }
        }
        for field in message.fields().filter(FieldDescriptor::is_required) {
            let there = members.iter().any(|(name, member)| {
                !member.is_null() && field_of(message, name).is_some_and(|known| known.number() == field.number())
            });
            if !there {
                self.report(place, &format!("is missing the required member '{}'", field.json_name()));
            }
        }
        if self.violations.len() == before && !fits(message, value.clone()) {
            self.report(place, "does not fit the message as a whole: of a `oneof`, only one member may be there");
        }
    }

    fn member(&mut self, message: &MessageDescriptor, field: &FieldDescriptor, name: &str, value: &Value, place: &str) {
        let alone = |value: Value| Value::Object(Map::from_iter([(name.to_owned(), value)]));
        match (field.kind(), value) {
            (_, Value::Null) => (),
            (kind, Value::Array(items)) if field.is_list() => {
                for (index, item) in items.iter().enumerate() {
                    let fits = fits(message, alone(Value::Array(vec![item.clone()])));
                    self.one(&kind, item, fits, &format!("{place}/{index}"));
                }
            }
            (Kind::Message(entry), Value::Object(entries)) if field.is_map() => {
                let kind = entry.map_entry_value_field().kind();
                for (key, item) in entries {
                    let one = Value::Object(Map::from_iter([(key.clone(), item.clone())]));
                    let place = format!("{place}/{}", key.replace('~', "~0").replace('/', "~1"));
                    self.one(&kind, item, fits(message, alone(one)), &place);
                }
            }
            _ if field.is_list() => self.report(place, "must be a list"),
            _ if field.is_map() => self.report(place, "must be an object"),
            (kind, _) => self.one(&kind, value, fits(message, alone(value.clone())), place),
        }
    }

    /// Checks one value; a message is searched for its members and for missing required ones.
    fn one(&mut self, kind: &Kind, value: &Value, fits: bool, place: &str) {
        match kind {
            Kind::Message(inner) if !is_well_known(inner) => self.message(inner, value, place),
            _ if !fits => self.report(place, &expected(kind)),
            _ => (),
        }
    }

    fn report(&mut self, place: &str, detail: &str) {
        if self.violations.len() >= limits::VIOLATIONS_MAX {
            return;
        }
        let mut place = place.to_owned();
        while place.len() > POINTER_BYTES_MAX {
            place.truncate(place.rfind('/').unwrap_or(0));
        }
        self.violations.push(Violation::new(place, detail));
    }
}

fn fits(message: &MessageDescriptor, value: Value) -> bool {
    DynamicMessage::deserialize(message.clone(), value).is_ok()
}

/// The field of a JSON member: by its JSON name, or by its name in the file.
pub(super) fn field_of(message: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    message.get_field_by_json_name(name).or_else(|| message.get_field_by_name(name))
}

fn is_extension(message: &MessageDescriptor, name: &str) -> bool {
    message.get_extension_by_json_name(name).is_some()
}

/// Messages whose JSON form is not an object of their members.
fn is_well_known(message: &MessageDescriptor) -> bool {
    message.full_name().starts_with("google.protobuf.")
}

fn expected(kind: &Kind) -> String {
    let detail = match kind {
        Kind::Double | Kind::Float => "must be a number within the range of its type",
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => "must be a whole number of 32 bits",
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => "must be a whole number of 64 bits",
        Kind::Uint32 | Kind::Fixed32 => "must be a whole number of 32 bits, not negative",
        Kind::Uint64 | Kind::Fixed64 => "must be a whole number of 64 bits, not negative",
        Kind::Bool => "must be a boolean",
        Kind::String => "must be a text",
        Kind::Bytes => "must be a text in base64",
        Kind::Enum(_) => "must be one of the values of its enum",
        Kind::Message(known) => return format!("must be a {} in its JSON form", known.full_name()),
    };
    detail.to_owned()
}
