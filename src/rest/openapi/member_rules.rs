//! Rules between an object's members: which are used together, and which exclude each other.
//!
//! They are written as `if` and `then`: unless one of the first rules holds, the last one must. Client generators ignore these
//! keywords, while `anyOf` together with properties makes them lose the properties. A member that is null counts as absent.

use super::schema_spec::SchemaSpec;
use serde_json::{Map, Value, json};

/// One valid combination of members.
#[derive(Default)]
pub(super) struct MemberRule {
    required: Vec<Value>,
    members: Map<String, Value>,
}

/// A rule without conditions.
pub(super) fn rule() -> MemberRule {
    MemberRule::default()
}

/// The keywords of a schema by which one of these rules must hold.
pub(super) fn any_of(rules: impl IntoIterator<Item = MemberRule>) -> Vec<(&'static str, Value)> {
    let mut schemas: Vec<Value> = rules.into_iter().map(MemberRule::schema).collect();
    let (Some(last), first) = (schemas.pop(), schemas.pop()) else { return Vec::new() };
    let mut unless = (first.map_or(json!(true), |first| json!({"not": first})), last);
    while let Some(first) = schemas.pop() {
        unless = (json!({"not": first}), json!({"if": unless.0, "then": unless.1}));
    }
    vec![("if", unless.0), ("then", unless.1)]
}

impl MemberRule {
    /// The member is present.
    pub(super) fn with(self, name: &str) -> Self {
        self.needs(name, json!({"not": {"enum": [null]}}))
    }

    /// The member is present and has one of these values.
    pub(super) fn with_word(self, name: &str, words: &[&str]) -> Self {
        self.needs(name, json!({"enum": words}))
    }

    /// The flag is `true`; or it is `false` or absent.
    pub(super) fn with_flag(self, name: &str, is_up: bool) -> Self {
        match is_up {
            true => self.needs(name, json!({"enum": [true]})),
            false => self.holds(name, json!({"enum": [false]})),
        }
    }

    /// The member is absent.
    pub(super) fn without(self, name: &str) -> Self {
        self.holds(name, json!({"enum": [null]}))
    }

    /// The list is empty or absent.
    pub(super) fn with_empty(self, name: &str) -> Self {
        self.holds(name, json!({"maxItems": 0}))
    }

    /// The member matches this schema, or is absent.
    pub(super) fn shaped(self, name: &str, shape: SchemaSpec) -> Self {
        self.holds(name, json!(utoipa::openapi::Schema::from(shape)))
    }

    fn needs(mut self, name: &str, schema: Value) -> Self {
        self.required.push(name.into());
        self.holds(name, schema)
    }

    fn holds(mut self, name: &str, schema: Value) -> Self {
        self.members.insert(name.to_owned(), schema);
        self
    }

    /// The rule as a schema. It allows other members explicitly, for tools that close schemas by default.
    pub(super) fn schema(self) -> Value {
        json!({"properties": self.members, "required": self.required, "additionalProperties": true})
    }
}
