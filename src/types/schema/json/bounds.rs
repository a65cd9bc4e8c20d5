//! Keywords that limit a value by itself: whether the limits of the old schema imply those of the new one.
//!
//! - The old schema is a list of parts that all apply; it is enough if one of them is as strict.
//! - A new limit on a kind of value that the old schema never accepts has no effect.

use serde_json::{Map, Number, Value};
use std::cmp::Ordering;

/// What a new keyword newly refuses; `None` if the old parts refuse it already, or if the keyword does not limit a
/// value by itself.
pub(super) fn taken(keyword: &str, new: &Value, olds: &[&Map<String, Value>]) -> Option<&'static str> {
    let held = match keyword {
        "minimum" => {
            holds(new, olds, "minimum", Ordering::is_ge) || holds(new, olds, "exclusiveMinimum", Ordering::is_ge)
        }
        "exclusiveMinimum" => {
            holds(new, olds, "exclusiveMinimum", Ordering::is_ge) || holds(new, olds, "minimum", Ordering::is_gt)
        }
        "maximum" => {
            holds(new, olds, "maximum", Ordering::is_le) || holds(new, olds, "exclusiveMaximum", Ordering::is_le)
        }
        "exclusiveMaximum" => {
            holds(new, olds, "exclusiveMaximum", Ordering::is_le) || holds(new, olds, "maximum", Ordering::is_lt)
        }
        "minLength" | "minItems" | "minProperties" => {
            new.as_f64() == Some(0.0) || holds(new, olds, keyword, Ordering::is_ge)
        }
        "maxLength" | "maxItems" | "maxProperties" => holds(new, olds, keyword, Ordering::is_le),
        "multipleOf" => olds.iter().filter_map(|old| old.get(keyword)).any(|old| is_multiple(old, new)),
        "uniqueItems" => new != &Value::Bool(true) || is_same(new, olds, keyword),
        "pattern" | "format" | "contentEncoding" | "contentMediaType" => is_same(new, olds, keyword),
        _ => return None,
    };
    let applies = kinds(olds) & domain(keyword) != 0;
    (applies && !held).then(|| words(keyword))
}

/// The kinds of value that a list of parts accepts, one bit each.
pub(super) fn kinds(olds: &[&Map<String, Value>]) -> u8 {
    let of_types = olds.iter().filter_map(|old| old.get("type")).map(kinds_of_type);
    let of_values = olds
        .iter()
        .filter_map(|old| listed(old))
        .map(|values| values.iter().map(|value| kind_of(value)).fold(0, |all, one| all | one));
    of_types.chain(of_values).fold(ALL, |left, one| left & one)
}

/// The kinds that a `type` names.
pub(super) fn kinds_of_type(named: &Value) -> u8 {
    match named {
        Value::String(name) => kind_named(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).map(kind_named).fold(0, |all, one| all | one),
        _ => ALL,
    }
}

/// The names of these kinds, for people.
pub(super) fn names(kinds: u8) -> String {
    let all = ["null", "boolean", "integer", "number", "string", "array", "object"];
    let there: Vec<_> =
        all.into_iter().enumerate().filter(|(bit, _)| kinds & (1 << bit) != 0).map(|(_, n)| n).collect();
    there.join(", ")
}

/// The values that a part lists, if it does.
pub(super) fn listed(part: &Map<String, Value>) -> Option<Vec<&Value>> {
    match (part.get("const"), part.get("enum")) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(Value::Array(values))) => Some(values.iter().collect()),
        _ => None,
    }
}

const ALL: u8 = 0b111_1111;
const NUMBERS: u8 = 0b000_1100;
const TEXT: u8 = 0b001_0000;
pub(super) const ARRAY: u8 = 0b010_0000;
pub(super) const OBJECT: u8 = 0b100_0000;

fn kind_named(name: &str) -> u8 {
    match name {
        "null" => 0b1,
        "boolean" => 0b10,
        "integer" => 0b100,
        "number" => NUMBERS,
        "string" => TEXT,
        "array" => ARRAY,
        "object" => OBJECT,
        _ => 0,
    }
}

fn kind_of(value: &Value) -> u8 {
    match value {
        Value::Null => 0b1,
        Value::Bool(_) => 0b10,
        Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() == 0.0) => 0b100,
        Value::Number(_) => 0b1000,
        Value::String(_) => TEXT,
        Value::Array(_) => ARRAY,
        Value::Object(_) => OBJECT,
    }
}

/// The kinds of value that a keyword applies to.
fn domain(keyword: &str) -> u8 {
    match keyword {
        "minItems" | "maxItems" | "uniqueItems" => ARRAY,
        "minProperties" | "maxProperties" => OBJECT,
        "minLength" | "maxLength" | "pattern" | "contentEncoding" | "contentMediaType" => TEXT,
        // All known formats apply to texts only, but nothing guarantees that.
        "format" => ALL,
        _ => NUMBERS,
    }
}

fn words(keyword: &str) -> &'static str {
    match keyword {
        "minimum" | "exclusiveMinimum" => "allows fewer small numbers than before",
        "maximum" | "exclusiveMaximum" => "allows fewer large numbers than before",
        "minLength" => "no longer allows some short texts",
        "maxLength" => "no longer allows some long texts",
        "minItems" => "no longer allows some short lists",
        "maxItems" => "no longer allows some long lists",
        "minProperties" => "no longer allows objects with few members",
        "maxProperties" => "no longer allows objects with many members",
        "multipleOf" => "no longer allows some numbers",
        "uniqueItems" => "no longer allows an item twice",
        "format" => "newly asks for a format",
        _ => "changed in a way that cannot be shown compatible",
    }
}

fn holds(new: &Value, olds: &[&Map<String, Value>], keyword: &str, fits: fn(Ordering) -> bool) -> bool {
    let Value::Number(new) = new else { return false };
    let olds = olds.iter().filter_map(|old| old.get(keyword)?.as_number());
    olds.into_iter().filter_map(|old| compare(old, new)).any(fits)
}

fn compare(left: &Number, right: &Number) -> Option<Ordering> {
    match (whole(left), whole(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

fn whole(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn is_multiple(old: &Value, new: &Value) -> bool {
    let whole = |value: &Value| value.as_number().and_then(whole).filter(|number| *number > 0);
    old == new || matches!((whole(old), whole(new)), (Some(old), Some(new)) if old % new == 0)
}

fn is_same(new: &Value, olds: &[&Map<String, Value>], keyword: &str) -> bool {
    olds.iter().any(|old| old.get(keyword) == Some(new))
}
