//! Properties of one JSON Schema that the comparison of two needs.

use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashSet};

/// Whether every reference of a schema is a pointer from its root, the only kind that is followed here.
pub(super) fn refers_plainly(schema: &Value) -> bool {
    let mut rest = vec![(schema, true)];
    while let Some((part, is_root)) = rest.pop() {
        match part {
            Value::Object(members) => {
                let strays = ["$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"];
                let stray = strays.iter().any(|keyword| members.get(*keyword).is_some_and(Value::is_string));
                let moved = !is_root && members.get("$id").is_some_and(Value::is_string);
                let elsewhere =
                    members.get("$ref").and_then(Value::as_str).is_some_and(|to| target(schema, to).is_none());
                if stray || moved || elsewhere {
                    return false;
                }
                rest.extend(members.values().map(|member| (member, false)));
            }
            Value::Array(items) => rest.extend(items.iter().map(|item| (item, false))),
            _ => (),
        }
    }
    true
}

pub(super) fn target<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    // A pointer with a percent sign would have to be decoded first.
    root.pointer(reference.strip_prefix('#').filter(|pointer| !pointer.contains('%'))?)
}

pub(super) fn requires(schema: &Map<String, Value>, name: &str) -> bool {
    schema.get("required").and_then(Value::as_array).is_some_and(|names| names.iter().any(|known| known == name))
}

/// The schema of an object's unnamed members, unless it accepts anything.
pub(super) fn closing(schema: &Map<String, Value>) -> Option<&Value> {
    schema.get("additionalProperties").filter(|rest| !is_anything(rest))
}

pub(super) fn is_anything(schema: &Value) -> bool {
    matches!(schema, Value::Bool(true)) || schema.as_object().is_some_and(Map::is_empty)
}

/// Whether `items` applies to every item alike.
pub(super) fn is_plain_list(schema: &Map<String, Value>) -> bool {
    !schema.contains_key("prefixItems") && !schema.get("items").is_some_and(Value::is_array)
}

/// Every member that the schemas name.
pub(super) fn names<'s>(schemas: &[&'s Map<String, Value>]) -> BTreeSet<&'s str> {
    let named = schemas.iter().filter_map(|schema| schema.get("properties")?.as_object());
    let required = schemas.iter().filter_map(|schema| schema.get("required")?.as_array()).flatten();
    named.flat_map(Map::keys).map(String::as_str).chain(required.filter_map(Value::as_str)).collect()
}

pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Whether an alternative or a condition of a schema names a member; references are followed.
pub(super) fn may_name(root: &Value, schema: &Map<String, Value>, name: &str) -> bool {
    let keywords = ["anyOf", "oneOf", "if", "then", "else", "not", "dependentSchemas", "dependencies"];
    let mut rest: Vec<&Value> = keywords.iter().filter_map(|keyword| schema.get(*keyword)).collect();
    let mut seen = HashSet::new();
    while let Some(part) = rest.pop() {
        match part {
            Value::Object(members) => {
                let named = members.get("properties").is_some_and(|members| members.get(name).is_some());
                let closed = ["patternProperties", "additionalProperties", "unevaluatedProperties"];
                if named || requires(members, name) || closed.iter().any(|keyword| members.contains_key(*keyword)) {
                    return true;
                }
                rest.extend(members.values());
                let target = members.get("$ref").and_then(|to| target(root, to.as_str()?));
                rest.extend(target.filter(|target| seen.insert(std::ptr::from_ref(*target))));
            }
            Value::Array(items) => rest.extend(items),
            _ => (),
        }
    }
    false
}
