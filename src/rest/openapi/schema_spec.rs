//! Builders of JSON Schemas.
//!
//! - Every schema has a description and an example; tests check this.
//! - `text` and similar builders exclude NUL, as everything that is stored.
//! - An optional member of a request may be null (`optional_nullable`); in a response it is present or absent (`optional`).

use super::member_rules::{self, MemberRule};
use serde_json::Value;
use utoipa::openapi::schema::{AdditionalProperties, AnyOf, Array, ArrayItems, SchemaType};
use utoipa::openapi::{KnownFormat, Object, Ref, RefOr, Schema, SchemaFormat, Type};

/// Any text without NUL.
const NO_NUL: &str = r"^[^\x00]*$";

/// A schema under construction.
#[derive(Clone)]
pub(super) struct SchemaSpec(Schema);

/// Any text.
pub(super) fn any_text(description: &str) -> SchemaSpec {
    SchemaSpec(Schema::Object(scalar(Type::String, description)))
}

/// A text of any length.
pub(super) fn text(description: &str) -> SchemaSpec {
    patterned(NO_NUL, description)
}

/// A text with a maximum of bytes.
pub(super) fn text_up_to(bytes_max: usize, description: &str) -> SchemaSpec {
    let description = format!("{description} At most {bytes_max} bytes as UTF-8.");
    text(&description).edit(|object| object.max_length = Some(bytes_max))
}

/// A text that matches a pattern.
pub(super) fn patterned(pattern: &str, description: &str) -> SchemaSpec {
    any_text(description).edit(|object| object.pattern = Some(pattern.to_owned()))
}

/// One of several words.
pub(super) fn enumeration(words: &[&str], description: &str) -> SchemaSpec {
    let mut word = scalar(Type::String, description);
    word.enum_values = Some(words.iter().map(|word| Value::from(*word)).collect());
    SchemaSpec(Schema::Object(word))
}

/// A text of a known format.
pub(super) fn formatted(format: KnownFormat, description: &str) -> SchemaSpec {
    let mut text = scalar(Type::String, description);
    text.format = Some(SchemaFormat::KnownFormat(format));
    SchemaSpec(Schema::Object(text))
}

/// A UUID.
pub(super) fn uuid(description: &str) -> SchemaSpec {
    formatted(KnownFormat::Uuid, description)
}

/// An instant.
pub(super) fn time(description: &str) -> SchemaSpec {
    formatted(KnownFormat::DateTime, description)
}

/// A whole number within bounds.
pub(super) fn number(bounds: std::ops::RangeInclusive<u64>, description: &str) -> SchemaSpec {
    let mut number = scalar(Type::Integer, description);
    let bound = |bound: &u64| utoipa::Number::UInt(usize::try_from(*bound).unwrap_or(usize::MAX));
    // Numbers without a format are of 32 bits to generators of clients, however large their maximum is.
    number.format = Some(SchemaFormat::KnownFormat(KnownFormat::Int64));
    number.minimum = Some(bound(bounds.start()));
    number.maximum = Some(bound(bounds.end()));
    SchemaSpec(Schema::Object(number))
}

/// `true` or `false`.
pub(super) fn boolean(description: &str) -> SchemaSpec {
    SchemaSpec(Schema::Object(scalar(Type::Boolean, description)))
}

/// An object, so far without members. Whether other members are allowed is not defined.
pub(super) fn object(description: &str) -> SchemaSpec {
    SchemaSpec(Schema::Object(scalar(Type::Object, description)))
}

/// Only null. It has no `type`, because some client generators have none for it.
pub(super) fn only_null(description: &str) -> SchemaSpec {
    any_value(description).allowed_values([Value::Null]).example(Value::Null)
}

/// Any JSON value, or one of several types, which the description names. Client generators fail on a list of types that is not
/// one type and null.
pub(super) fn any_value(description: &str) -> SchemaSpec {
    let mut any = scalar(Type::Object, description);
    any.schema_type = SchemaType::AnyValue;
    SchemaSpec(Schema::Object(any))
}

/// A list.
pub(super) fn list(items: impl Into<RefOr<Schema>>, description: &str) -> SchemaSpec {
    let mut list = Array::new(items);
    list.description = Some(description.to_owned());
    SchemaSpec(Schema::Array(list))
}

/// One of several schemas.
pub(super) fn any_of<T: Into<RefOr<Schema>>>(shapes: impl IntoIterator<Item = T>, description: &str) -> SchemaSpec {
    let mut either = AnyOf::new();
    either.items = shapes.into_iter().map(Into::into).collect();
    either.description = Some(description.to_owned());
    SchemaSpec(Schema::AnyOf(either))
}

/// The schema of this name.
pub(super) fn schema_ref(name: &str) -> Ref {
    Ref::from_schema_name(name)
}

/// The schema of this name, with a description.
pub(super) fn described_ref(name: &str, description: &str) -> Ref {
    let mut reference = schema_ref(name);
    reference.description = description.to_owned();
    reference
}

/// The schema of this name, or null.
pub(super) fn nullable_ref(name: &str, description: &str) -> SchemaSpec {
    any_of([RefOr::Ref(schema_ref(name)), RefOr::T(Schema::Object(null_object()))], description)
}

fn examples_of(schema: &mut Schema) -> Option<&mut Vec<Value>> {
    match schema {
        Schema::Object(object) => Some(&mut object.examples),
        Schema::Array(array) => Some(&mut array.examples),
        Schema::AnyOf(any) => Some(&mut any.examples),
        _ => None,
    }
}

fn null_object() -> Object {
    let mut null = scalar(Type::Null, "Null.");
    null.examples = vec![Value::Null];
    null
}

fn scalar(schema_type: Type, description: &str) -> Object {
    let mut object = Object::with_type(schema_type);
    object.description = Some(description.to_owned());
    object
}

impl SchemaSpec {
    fn edit(mut self, change: impl FnOnce(&mut Object)) -> Self {
        if let Schema::Object(object) = &mut self.0 {
            change(object);
        }
        self
    }

    /// An example. A member without an example of its own gets its part of this one.
    pub(super) fn example(mut self, example: impl Into<Value>) -> Self {
        let example = example.into();
        if let Schema::Object(object) = &mut self.0 {
            for (name, member) in &mut object.properties {
                if let (RefOr::T(member), Some(part)) = (member, example.get(name))
                    && let Some(examples) = examples_of(member).filter(|examples| examples.is_empty())
                {
                    examples.push(part.clone());
                }
            }
        }
        if let Some(examples) = examples_of(&mut self.0) {
            *examples = vec![example];
        }
        self
    }

    /// The default.
    pub(super) fn default_value(mut self, default: impl Into<Value>) -> Self {
        let default = Some(default.into());
        match &mut self.0 {
            Schema::Object(object) => object.default = default,
            Schema::Array(array) => array.default = default,
            Schema::AnyOf(any) => any.default = default,
            _ => (),
        }
        self
    }

    /// Only these values.
    pub(super) fn allowed_values(self, values: impl IntoIterator<Item = Value>) -> Self {
        self.edit(|object| object.enum_values = Some(values.into_iter().collect()))
    }

    /// Not the empty text.
    pub(super) fn not_empty(self) -> Self {
        self.edit(|object| object.min_length = Some(1))
    }

    /// At most so many characters.
    pub(super) fn max_length(self, length_max: usize) -> Self {
        self.edit(|object| object.max_length = Some(length_max))
    }

    /// At least and at most so many items.
    pub(super) fn items(mut self, least: usize, most: usize) -> Self {
        if let Schema::Array(array) = &mut self.0 {
            array.min_items = (least > 0).then_some(least);
            array.max_items = Some(most);
        }
        self
    }

    /// Without duplicate items.
    pub(super) fn unique_items(mut self) -> Self {
        if let Schema::Array(array) = &mut self.0 {
            array.unique_items = true;
        }
        self
    }

    /// The same, or null.
    fn nullable(mut self) -> Self {
        let null = |schema_type: &mut SchemaType| {
            if let SchemaType::Type(only) = schema_type.clone() {
                *schema_type = SchemaType::Array(vec![only, Type::Null]);
            }
        };
        match &mut self.0 {
            Schema::Object(object) => {
                null(&mut object.schema_type);
                if let Some(words) = &mut object.enum_values {
                    words.push(Value::Null);
                }
            }
            Schema::Array(array) => null(&mut array.schema_type),
            Schema::AnyOf(either) => either.items.push(RefOr::T(Schema::Object(null_object()))),
            _ => (),
        }
        self
    }

    /// With a required member.
    pub(super) fn required(self, name: &str, shape: impl Into<RefOr<Schema>>) -> Self {
        self.optional(name, shape).edit(|object| object.required.push(name.to_owned()))
    }

    /// With an optional member.
    pub(super) fn optional(self, name: &str, shape: impl Into<RefOr<Schema>>) -> Self {
        let shape = shape.into();
        self.edit(|object| {
            object.properties.insert(name.to_owned(), shape);
        })
    }

    /// With an optional member that may be null, which is the same as absent.
    pub(super) fn optional_nullable(self, name: &str, shape: SchemaSpec) -> Self {
        self.optional(name, shape.nullable())
    }

    /// With a required member that may be null.
    pub(super) fn required_nullable(self, name: &str, shape: SchemaSpec) -> Self {
        self.required(name, shape.nullable())
    }

    /// Without other members.
    pub(super) fn closed(self) -> Self {
        self.edit(|object| object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false))))
    }

    /// With any other members.
    pub(super) fn open(self) -> Self {
        self.edit(|object| object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(true))))
    }

    /// With other members of this schema.
    pub(super) fn additional(self, shape: impl Into<RefOr<Schema>>) -> Self {
        let shape = shape.into();
        self.edit(|object| object.additional_properties = Some(Box::new(AdditionalProperties::RefOr(shape))))
    }

    /// With rules between its members, one of which must hold.
    pub(super) fn with_rules(self, rules: impl IntoIterator<Item = MemberRule>) -> Self {
        self.edit(|object| object.extensions = Some(member_rules::any_of(rules).into_iter().collect()))
    }

    /// Integers of 32 bits.
    pub(super) fn of_32_bits(self) -> Self {
        self.edit(|object| {
            object.minimum = Some(utoipa::Number::Int(i32::MIN as isize));
            object.maximum = Some(utoipa::Number::Int(i32::MAX as isize));
        })
    }

    /// With member names of this schema.
    pub(super) fn property_names(self, names: SchemaSpec) -> Self {
        self.edit(|object| object.property_names = Some(Box::new(names.0)))
    }

    /// At most so many members, with names of this schema.
    pub(super) fn members(self, most: usize, names: SchemaSpec) -> Self {
        self.edit(|object| {
            object.max_properties = Some(most);
            object.property_names = Some(Box::new(names.0));
        })
    }
}

impl From<SchemaSpec> for Schema {
    fn from(shape: SchemaSpec) -> Self {
        shape.0
    }
}

impl From<SchemaSpec> for RefOr<Schema> {
    fn from(shape: SchemaSpec) -> Self {
        Self::T(shape.0)
    }
}

impl From<SchemaSpec> for ArrayItems {
    fn from(shape: SchemaSpec) -> Self {
        Self::RefOrSchema(Box::new(RefOr::T(shape.0)))
    }
}
