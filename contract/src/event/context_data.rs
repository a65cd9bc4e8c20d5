//! `contextData`: an event's labels as a list of `{key, value}`, for producers that have them in that form.
//!
//! The list is turned into the member `context` while the event is read, so that nothing behind the parser knows of it.
//! An event has one of the two; a list names no key twice.

use crate::object::object;
use crate::{Error, Kind};
use serde::Deserialize;
use serde::de::value::MapDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use std::collections::BTreeMap;
use std::fmt;

const LABELS: &str = "context";
const PAIRS: &str = "contextData";

/// A source whose `contextData` reads as `context`.
pub(super) struct WithContextData<D>(pub(super) D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for WithContextData<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, EventVisitor(visitor))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct EventVisitor<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for EventVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(EventMembers { members, seen: None })
    }
}

/// An event's members, and the name its labels came under.
struct EventMembers<A> {
    members: A,
    seen: Option<LabelsMember>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LabelsMember {
    Labels,
    /// The value that comes next is a list of pairs.
    Pairs,
    /// It has been read.
    PairsRead,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for EventMembers<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.members.next_key_seed(MemberName { inner: seed, seen: &mut self.seen })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        if self.seen != Some(LabelsMember::Pairs) {
            return self.members.next_value_seed(seed);
        }
        self.seen = Some(LabelsMember::PairsRead);
        let ContextData(labels) = self.members.next_value()?;
        seed.deserialize(MapDeserializer::new(labels.into_iter()))
    }

    fn size_hint(&self) -> Option<usize> {
        self.members.size_hint()
    }
}

/// Reads a member's name, `contextData` as `context`: as a seed, as a source and as a visitor.
struct MemberName<'s, T> {
    inner: T,
    seen: &'s mut Option<LabelsMember>,
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for MemberName<'_, K> {
    type Value = K::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<K::Value, D::Error> {
        self.inner.deserialize(MemberName { inner: deserializer, seen: self.seen })
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for MemberName<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_identifier(MemberName { inner: visitor, seen: self.seen })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for MemberName<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<V::Value, E> {
        match (name, *self.seen) {
            (LABELS, Some(LabelsMember::PairsRead)) | (PAIRS, Some(LabelsMember::Labels)) => {
                Err(E::custom(Error::new(Kind::Validation, "Send `context` or `contextData`, not both.")))
            }
            (LABELS, None) => {
                *self.seen = Some(LabelsMember::Labels);
                self.inner.visit_str(LABELS)
            }
            (PAIRS, _) => {
                *self.seen = Some(LabelsMember::Pairs);
                self.inner.visit_str(LABELS)
            }
            _ => self.inner.visit_str(name),
        }
    }
}

/// The labels of a list of pairs.
struct ContextData(BTreeMap<String, String>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct ContextPair {
    key: String,
    value: String,
}

object!(read ContextPair);

impl<'de> Deserialize<'de> for ContextData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;

        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = ContextData;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of objects with `key` and `value`")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut pairs: A) -> Result<ContextData, A::Error> {
                let mut labels = BTreeMap::new();
                while let Some(ContextPair { key, value }) = pairs.next_element()? {
                    if labels.insert(key, value).is_some() {
                        return Err(A::Error::custom(Error::new(
                            Kind::Validation,
                            "A key of `contextData` is there twice.",
                        )));
                    }
                }
                Ok(ContextData(labels))
            }
        }

        deserializer.deserialize_seq(PairsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use crate::NewEvent;

    fn read(labels: &str) -> Result<NewEvent, serde_json::Error> {
        serde_json::from_str(&format!(r#"{{"type":"order.created","source":"s",{labels}"data":{{}}}}"#))
    }

    #[test]
    fn a_list_of_pairs_is_read_as_labels() {
        let pairs = r#""contextData":[{"key":"region","value":"us-west"},{"value":"c-1","key":"customer"}],"#;
        let event = read(pairs).unwrap();
        assert_eq!(event.context, read(r#""context":{"customer":"c-1","region":"us-west"},"#).unwrap().context);
        assert!(serde_json::to_string(&event).unwrap().contains(r#""context":{"customer":"c-1","region":"us-west"}"#));
        assert!(read(r#""contextData":[],"#).unwrap().context.is_empty());
        // A name may be spelt with an escape.
        assert_eq!(read(r#""context\u0044ata":[{"key":"a","value":"b"}],"#).unwrap().context.len(), 1);
    }

    #[test]
    fn labels_come_once_and_in_one_form() {
        for (labels, said) in [
            (r#""context":{},"contextData":[],"#, "not both"),
            (r#""contextData":[],"context":{},"#, "not both"),
            (r#""context":{},"context":{},"#, "duplicate field `context`"),
            (r#""contextData":[],"contextData":[],"#, "duplicate field `context`"),
            (r#""contextData":[{"key":"a","value":"1"},{"key":"a","value":"1"}],"#, "twice"),
            (r#""contextData":{"a":"1"},"#, "expected a list"),
            (r#""contextData":null,"#, "expected a list"),
            (r#""contextData":[["a","1"]],"#, "expected an object"),
            (r#""contextData":[{"key":"a"}],"#, "missing field `value`"),
            (r#""contextData":[{"key":"a","value":1}],"#, "expected a string"),
            (r#""contextData":[{"key":"a","value":"1","more":1}],"#, "unknown field `more`"),
            (r#""context":[{"key":"a","value":"1"}],"#, "expected a map"),
        ] {
            let error = read(labels).expect_err(labels).to_string();
            assert!(error.contains(said), "{labels}: {error}");
        }
    }
}
