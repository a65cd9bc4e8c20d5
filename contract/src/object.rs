//! Structs that are read from JSON objects and from nothing else.
//!
//! A derived `Deserialize` accepts `["a", "b"]` for a struct as well, member by member. In requests that would be a second,
//! undocumented form, so requests are read through [`ObjectOnly`].

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;
use std::fmt;

/// A deserializer that refuses a list for a struct.
pub(crate) struct ObjectOnly<D>(pub(crate) D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ObjectOnly<D> {
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
        self.0.deserialize_struct(name, fields, MapOnlyVisitor(visitor))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// A visitor that accepts only an object.
struct MapOnlyVisitor<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for MapOnlyVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(members)
    }
}

/// Implements serde for a struct with derived code (`#[serde(remote = "Self")]`).
macro_rules! object {
    (read $name:ident) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::deserialize($crate::object::ObjectOnly(deserializer))
            }
        }
    };
    ($($name:ident)*) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Self::serialize(self, serializer)
            }
        }

        $crate::object::object!(read $name);
    )*};
}
pub(crate) use object;

#[cfg(test)]
mod tests {
    use crate::{Actor, NewEvent, StreamingSetting};

    #[test]
    fn a_list_is_no_object() {
        assert!(serde_json::from_str::<Actor>(r#"{"type":"user","id":"u"}"#).is_ok());
        let error = serde_json::from_str::<Actor>(r#"["user","u"]"#).unwrap_err();
        assert!(error.to_string().starts_with("invalid type: sequence, expected an object"), "{error}");
        assert!(serde_json::from_str::<StreamingSetting>(r#"{"type":"file"}"#).is_ok());
        assert!(serde_json::from_str::<StreamingSetting>(r#"["file"]"#).is_err());
        assert!(serde_json::from_str::<NewEvent>(r#"[null,"gts.a.b.c.d.v1",null,null,"s"]"#).is_err());
    }
}
