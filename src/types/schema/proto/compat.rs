//! Whether a proto file accepts every event that its predecessor accepts, and follows the rules of the wire format.
//!
//! - Messages are compared starting with the message of events, member by member, by number.
//! - A member keeps its number, its name and its type; it may change from 32 to 64 bits, or from required to optional.
//!   New members are permitted unless they are required: events with unknown members were refused before.
//! - An enum keeps its values. A member is not added to a `oneof`.
//! - Extensions cannot be compared, so they are refused unless the files are equal.

use super::messages::field_of;
use super::{ProtoSchema, reachable};
use crate::types::schema::changed;
use contract::{NewVersion, Violation, limits};
use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use std::collections::{BTreeMap, BTreeSet};

/// The places where `new`, at the pointer `at` of a request, might refuse an event that `old` accepts.
pub(in crate::types::schema) fn incompatibilities(at: &str, old: &NewVersion, new: &NewVersion) -> Vec<Violation> {
    let compile = |version: &NewVersion| {
        ProtoSchema::compile(at, version.schema.as_str().unwrap_or_default(), version.message.as_deref())
    };
    let schema_at = format!("{at}/schema");
    let (Ok(old), Ok(new)) = (compile(old), compile(new)) else {
        return vec![changed(schema_at, "cannot be compared with the version before it")];
    };
    let extended = |schema: &ProtoSchema| reachable(&schema.message).iter().any(|known| known.extensions().len() > 0);
    if extended(&old) || extended(&new) {
        return vec![changed(schema_at, "has extensions, which cannot be shown compatible")];
    }
    let mut walk = ProtoComparison { at: schema_at, seen: BTreeSet::new(), rest: Vec::new(), found: Vec::new() };
    walk.pair(&old.message, &new.message);
    while let Some((old, new)) = walk.rest.pop() {
        walk.message(&old, &new);
    }
    walk.found
}

struct ProtoComparison {
    at: String,
    seen: BTreeSet<(String, String)>,
    rest: Vec<(MessageDescriptor, MessageDescriptor)>,
    found: Vec<Violation>,
}

impl ProtoComparison {
    fn pair(&mut self, old: &MessageDescriptor, new: &MessageDescriptor) {
        if self.seen.insert((old.full_name().to_owned(), new.full_name().to_owned())) {
            self.rest.push((old.clone(), new.clone()));
        }
    }

    fn message(&mut self, old: &MessageDescriptor, new: &MessageDescriptor) {
        for field in old.fields() {
            self.field(new, &field);
        }
        for field in new.fields().filter(FieldDescriptor::is_required) {
            if !old.get_field(field.number()).is_some_and(|known| known.is_required()) {
                self.report(&field, "is newly required");
            }
        }
        self.oneofs(old, new);
    }

    fn field(&mut self, new: &MessageDescriptor, old: &FieldDescriptor) {
        let Some(field) = new.get_field(old.number()) else {
            let elsewhere = new.get_field_by_name(old.name()).is_some();
            return self.report(old, if elsewhere { "has another number" } else { "was removed" });
        };
        let found = |name: &str| field_of(new, name).is_some_and(|known| known.number() == old.number());
        if !(found(old.name()) && found(old.json_name())) {
            return self.report(old, "was renamed, or its number is used for another member");
        }
        if field.is_list() != old.is_list() || field.is_map() != old.is_map() {
            return self.report(old, "changed its cardinality (one, a list or a map)");
        }
        self.kind(old, &old.kind(), &field.kind());
    }

    fn kind(&mut self, field: &FieldDescriptor, old: &Kind, new: &Kind) {
        match (old, new) {
            (Kind::Message(old), Kind::Message(new)) if old.is_map_entry() && new.is_map_entry() => {
                self.kind(field, &old.map_entry_key_field().kind(), &new.map_entry_key_field().kind());
                self.kind(field, &old.map_entry_value_field().kind(), &new.map_entry_value_field().kind());
            }
            (Kind::Message(old), Kind::Message(new)) => {
                let well_known = |known: &MessageDescriptor| known.full_name().starts_with("google.protobuf.");
                if !well_known(old) && !well_known(new) {
                    self.pair(old, new);
                } else if old.full_name() != new.full_name() {
                    self.report(field, "has another type");
                }
            }
            (Kind::Enum(old), Kind::Enum(new)) => self.values(field, old, new),
            (Kind::Int32, Kind::Int64) | (Kind::Uint32, Kind::Uint64) => (),
            _ if old == new => (),
            _ => self.report(field, "has another type"),
        }
    }

    fn values(&mut self, field: &FieldDescriptor, old: &EnumDescriptor, new: &EnumDescriptor) {
        for value in old.values() {
            if new.get_value_by_name(value.name()).is_none_or(|known| known.number() != value.number()) {
                self.report(field, &format!("no longer has the enum value '{}'", value.name()));
            }
        }
    }

    /// Members that were independent of each other must stay so.
    fn oneofs(&mut self, old: &MessageDescriptor, new: &MessageDescriptor) {
        let real = |field: &FieldDescriptor| field.containing_oneof().filter(|oneof| !oneof.is_synthetic());
        let mut before: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for field in old.fields() {
            let Some(oneof) = new.get_field(field.number()).as_ref().and_then(real) else { continue };
            let was_in = before.entry(oneof.full_name().to_owned()).or_default();
            // Each member that was in no `oneof` was independent.
            let was = real(&field).map_or_else(|| format!("={}", field.number()), |oneof| oneof.full_name().to_owned());
            if was_in.insert(was) && was_in.len() > 1 {
                self.report(&field, "may no longer be there together with others: it joined a `oneof`");
            }
        }
    }

    fn report(&mut self, field: &FieldDescriptor, detail: &str) {
        if self.found.len() < limits::VIOLATIONS_MAX {
            let message = field.parent_message().full_name().to_owned();
            self.found.push(changed(self.at.clone(), format!("the member '{}' of {message} {detail}", field.name())));
        }
    }
}
