//! The members of an event that an expression uses, parsed from its JSON text.
//!
//! - Texts without escapes are borrowed from the event; nothing is copied twice.
//! - Other members are skipped without parsing.

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// A JSON value whose texts borrow from the event if possible.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum JsonValue<'b> {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer too large for `Int`.
    UInt(u64),
    Double(f64),
    Text(Cow<'b, str>),
    List(Vec<JsonValue<'b>>),
    Map(JsonMembers<'b>),
}

/// An object's members in their order.
pub(super) type JsonMembers<'b> = Vec<(Cow<'b, str>, JsonValue<'b>)>;

/// Parses the `wanted` members of the event in `body` (`None`: all of them).
pub(super) fn members<'b>(body: &'b [u8], wanted: Option<&[&str]>) -> Option<JsonMembers<'b>> {
    // UTF-8 is checked once for the whole text, which is cheaper than string by string.
    let mut source = serde_json::Deserializer::from_str(str::from_utf8(body).ok()?);
    source.deserialize_map(EventVisitor { wanted }).ok()
}

struct EventVisitor<'w> {
    wanted: Option<&'w [&'w str]>,
}

impl<'b> Visitor<'b> for EventVisitor<'_> {
    type Value = JsonMembers<'b>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_map<A: MapAccess<'b>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = JsonMembers::with_capacity(self.wanted.map_or(24, <[&str]>::len));
        while let Some(MemberName(name)) = map.next_key()? {
            if self.wanted.is_none_or(|wanted| wanted.contains(&&*name)) {
                members.push((name, map.next_value_seed(JsonSeed)?));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(members)
    }
}

/// A member's name; a bare `Cow` inside other types would always be copied.
#[derive(Deserialize)]
struct MemberName<'b>(#[serde(borrow)] Cow<'b, str>);

struct JsonSeed;

impl<'b> DeserializeSeed<'b> for JsonSeed {
    type Value = JsonValue<'b>;

    fn deserialize<D: Deserializer<'b>>(self, source: D) -> Result<JsonValue<'b>, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'b> Visitor<'b> for JsonSeed {
    type Value = JsonValue<'b>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<JsonValue<'b>, E> {
        Ok(JsonValue::Null)
    }

    fn visit_bool<E>(self, bool: bool) -> Result<JsonValue<'b>, E> {
        Ok(JsonValue::Bool(bool))
    }

    fn visit_i64<E>(self, int: i64) -> Result<JsonValue<'b>, E> {
        Ok(JsonValue::Int(int))
    }

    fn visit_u64<E>(self, uint: u64) -> Result<JsonValue<'b>, E> {
        Ok(i64::try_from(uint).map_or(JsonValue::UInt(uint), JsonValue::Int))
    }

    fn visit_f64<E: serde::de::Error>(self, double: f64) -> Result<JsonValue<'b>, E> {
        if double.is_finite() { Ok(JsonValue::Double(double)) } else { Err(E::custom("not a number JSON can hold")) }
    }

    fn visit_borrowed_str<E>(self, text: &'b str) -> Result<JsonValue<'b>, E> {
        Ok(JsonValue::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<JsonValue<'b>, E> {
        Ok(JsonValue::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'b>>(self, mut items: A) -> Result<JsonValue<'b>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(JsonSeed)? {
            list.push(item);
        }
        Ok(JsonValue::List(list))
    }

    fn visit_map<A: MapAccess<'b>>(self, mut map: A) -> Result<JsonValue<'b>, A::Error> {
        let mut members = JsonMembers::new();
        while let Some(MemberName(name)) = map.next_key()? {
            members.push((name, map.next_value_seed(JsonSeed)?));
        }
        Ok(JsonValue::Map(members))
    }
}
