//! Strict parsing of JSON, and the byte form by which it is compared.
//!
//! - No member name twice in an object, no NUL in any text, no nesting beyond a limit, no number beyond the largest double:
//!   each is a validation error with a pointer. Everything else that `serde_json` refuses is malformed, with line and column.
//! - The limit is checked while parsing, so a deeply nested text costs no more than the allowed levels.
//! - The submitted text is never quoted; a pointer contains only member names.
//! - Two texts that are equal as JSON have the same digest form; unequal texts never share it. (Numbers are what
//!   `serde_json` makes of them: beyond 64 bits, or with a fraction, the nearest double.)

use crate::{Error, Kind, Violation};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};
use std::cell::Cell;
use std::fmt;

/// Reads a whole JSON text with at most `depth_max` levels of objects and arrays (and at most 127).
pub fn parse_strict(text: &str, depth_max: usize) -> Result<Value, Error> {
    let fault = Cell::new(None);
    let mut source = serde_json::Deserializer::from_str(text);
    let read = StrictVisitor::new(depth_max, &fault).deserialize(&mut source);
    read.and_then(|value| source.end().map(|()| value)).map_err(|error| match fault.take() {
        Some(Violation { pointer, detail }) => Error::invalid(pointer, detail),
        None if is_out_of_range(&error) => Error::invalid("", NUMBER_TOO_LARGE),
        None => malformed(&error),
    })
}

/// Reads one JSON value as strictly as [`parse_strict`], from within another deserializer.
#[derive(Debug, Clone, Copy)]
pub struct StrictJson {
    depth_max: usize,
}

impl StrictJson {
    /// At most this many levels of objects and arrays.
    #[must_use]
    pub const fn new(depth_max: usize) -> Self {
        Self { depth_max }
    }
}

impl<'de> DeserializeSeed<'de> for StrictJson {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        StrictVisitor::new(self.depth_max, &Cell::new(None)).deserialize(source)
    }
}

/// Appends the canonical bytes of a value: members sorted by name, numbers by value, lengths before texts.
///
/// Recurses as deep as the value, which [`parse_strict`] has bounded.
pub fn digest_form(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(b'0'),
        Value::Bool(false) => out.push(b'F'),
        Value::Bool(true) => out.push(b'T'),
        Value::Number(number) => digest_number(number, out),
        Value::String(text) => digest_text(text, out),
        Value::Array(items) => {
            out.push(b'[');
            items.iter().for_each(|item| digest_form(item, out));
            out.push(b']');
        }
        Value::Object(members) => {
            out.push(b'{');
            digest_members(members, out);
            out.push(b'}');
        }
    }
}

/// `serde_json` stops at 128 levels by itself; this limit must come first to be reported as such.
const DEPTH_MAX: usize = 127;
/// The detail for a number that no double can represent.
pub const NUMBER_TOO_LARGE: &str =
    "The number is too large: at most about 1.8e308, the largest double. Send it as text.";
/// The longest pointer in a response, in bytes.
const POINTER_BYTES_MAX: usize = 256;

/// The place in the document: a list up the call stack, turned into text only for an error.
enum JsonPath<'a> {
    Root,
    Member(&'a JsonPath<'a>, &'a str),
    Item(&'a JsonPath<'a>, usize),
}

impl JsonPath<'_> {
    /// The RFC 6901 pointer; if it is too long, the pointer of the nearest enclosing place that fits.
    fn pointer(&self) -> String {
        let mut pointer = String::new();
        self.write(&mut pointer);
        pointer
    }

    /// Appends the pointer; returns whether all of it fitted.
    fn write(&self, pointer: &mut String) -> bool {
        let (around, step) = match self {
            JsonPath::Root => return true,
            JsonPath::Member(around, name) => (around, name.replace('~', "~0").replace('/', "~1")),
            JsonPath::Item(around, index) => (around, index.to_string()),
        };
        if !around.write(pointer) || pointer.len() + 1 + step.len() > POINTER_BYTES_MAX {
            return false;
        }
        pointer.push('/');
        pointer.push_str(&step);
        true
    }
}

/// Reads the value at one place.
struct StrictVisitor<'a> {
    place: &'a JsonPath<'a>,
    levels_left: usize,
    /// The violation, since an error of `serde` carries only a message.
    fault: &'a Cell<Option<Violation>>,
}

impl<'a> StrictVisitor<'a> {
    fn new(depth_max: usize, fault: &'a Cell<Option<Violation>>) -> Self {
        Self { place: &JsonPath::Root, levels_left: depth_max.min(DEPTH_MAX), fault }
    }

    /// The same walk one level further down.
    fn at<'b>(&'b self, place: &'b JsonPath<'b>) -> StrictVisitor<'b> {
        StrictVisitor { place, levels_left: self.levels_left.saturating_sub(1), fault: self.fault }
    }

    fn descend<E: serde::de::Error>(&self) -> Result<(), E> {
        if self.levels_left == 0 { Err(self.refuse(self.place, "Nested too deeply.")) } else { Ok(()) }
    }

    fn no_nul<E: serde::de::Error>(&self, text: &str) -> Result<(), E> {
        if text.as_bytes().contains(&0) { Err(self.refuse(self.place, "Text must not contain NUL.")) } else { Ok(()) }
    }

    /// The same error, with its place if it is about a number that `serde_json` cannot represent: that error has only line and
    /// column.
    fn located<E: serde::de::Error>(&self, place: &JsonPath<'_>, error: E) -> E {
        let fault = self.fault.take();
        let is_new = fault.is_none() && is_out_of_range(&error);
        self.fault.set(if is_new { Some(Violation::new(place.pointer(), NUMBER_TOO_LARGE)) } else { fault });
        error
    }

    fn refuse<E: serde::de::Error>(&self, place: &JsonPath<'_>, detail: &'static str) -> E {
        let violation = Violation::new(place.pointer(), detail);
        let error = E::custom(format_args!("{detail} Place: \"{}\"", violation.pointer));
        self.fault.set(Some(violation));
        error
    }
}

impl<'de> DeserializeSeed<'de> for StrictVisitor<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictVisitor<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        self.no_nul(text).map(|()| text.into())
    }

    fn visit_string<E: serde::de::Error>(self, text: String) -> Result<Value, E> {
        self.no_nul(&text).map(|()| text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        self.descend()?;
        let mut items = Vec::new();
        loop {
            let place = JsonPath::Item(self.place, items.len());
            match source.next_element_seed(self.at(&place)) {
                Ok(Some(item)) => items.push(item),
                Ok(None) => return Ok(Value::Array(items)),
                Err(error) => return Err(self.located(&place, error)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        self.descend()?;
        let mut members = Map::new();
        while let Some(name) = source.next_key::<String>()? {
            // A name with NUL is reported at its object, so that no pointer contains NUL.
            self.no_nul(&name)?;
            match members.entry(name) {
                Entry::Vacant(slot) => {
                    let place = JsonPath::Member(self.place, slot.key());
                    let value = source.next_value_seed(self.at(&place));
                    let value = value.map_err(|error| self.located(&place, error))?;
                    slot.insert(value);
                }
                Entry::Occupied(slot) => {
                    let place = JsonPath::Member(self.place, slot.key());
                    return Err(self.refuse(&place, "A member name stands twice in one object."));
                }
            }
        }
        Ok(Value::Object(members))
    }
}

/// Whether `serde_json` found a number that no double can represent. Its errors can be distinguished only by their text.
fn is_out_of_range(error: &impl fmt::Display) -> bool {
    error.to_string().starts_with("number out of range")
}

/// `serde_json` describes a syntax error without quoting the text; of other errors only the place is reported.
fn malformed(error: &serde_json::Error) -> Error {
    let (line, column) = (error.line(), error.column());
    let detail = if error.is_data() {
        format!("The text is not valid JSON: see line {line} column {column}.")
    } else {
        format!("The text is not valid JSON: {error}.")
    };
    Error::new(Kind::Malformed, detail)
}

fn digest_members(members: &Map<String, Value>, out: &mut Vec<u8>) {
    let mut sorted: Vec<_> = members.iter().collect();
    sorted.sort_unstable_by_key(|(name, _)| *name);
    for (name, value) in sorted {
        digest_text(name, out);
        digest_form(value, out);
    }
}

fn digest_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(&(text.len() as u64).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// A sign and 64 bits for what is integral and fits, the bits of the double for the rest.
fn digest_number(number: &Number, out: &mut Vec<u8>) {
    let (tag, bits) = match (integral(number), number.as_f64()) {
        (Some(value), _) if value < 0 => (b'-', value.unsigned_abs()),
        (Some(value), _) => (b'+', value.unsigned_abs()),
        (None, double) => (b'.', u128::from(double.unwrap_or_default().to_bits())),
    };
    out.push(tag);
    out.extend_from_slice(&(bits as u64).to_be_bytes());
}

/// The integer value of a number, if it is an integer between -2^63 and 2^64.
fn integral(number: &Number) -> Option<i128> {
    let written = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    written.or_else(|| {
        let double = number.as_f64().filter(|double| double.fract() == 0.0)?;
        // The cast saturates, so what is out of range stays out of range.
        Some(double as i128).filter(|value| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(value))
    })
}

#[cfg(test)]
mod tests;
