//! Which members of a JSON Schema hold schemas.
//!
//! A keyword is one only where a schema is expected: `default` contains a value, but under `properties` it is the name
//! of a member, whose value is a schema.

/// What is expected at a place of a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PartPosition {
    /// A schema, or a list of schemas: member names are keywords.
    Schema,
    /// An object whose members are schemas with names that the author chose.
    NamedSchemas,
    /// The value of an unknown keyword. A reference may use any part of it as a schema.
    Unknown,
}

impl PartPosition {
    /// The position of a member's value; `None` if the value is data, which is never read as a schema.
    pub(super) fn of_member(self, name: &str) -> Option<Self> {
        match self {
            Self::NamedSchemas => Some(Self::Schema),
            Self::Unknown => Some(Self::Unknown),
            Self::Schema => of_keyword(name),
        }
    }
}

fn of_keyword(keyword: &str) -> Option<PartPosition> {
    match keyword {
        "const" | "enum" | "default" | "examples" => None,
        "$defs" | "definitions" | "dependencies" | "dependentSchemas" | "patternProperties" | "properties" => {
            Some(PartPosition::NamedSchemas)
        }
        "additionalItems"
        | "additionalProperties"
        | "allOf"
        | "anyOf"
        | "contains"
        | "contentSchema"
        | "else"
        | "if"
        | "items"
        | "not"
        | "oneOf"
        | "prefixItems"
        | "propertyNames"
        | "then"
        | "unevaluatedItems"
        | "unevaluatedProperties" => Some(PartPosition::Schema),
        _ => Some(PartPosition::Unknown),
    }
}
