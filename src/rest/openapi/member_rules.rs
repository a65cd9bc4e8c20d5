//! Rules between an object's members that its properties alone cannot say: which go together, and which exclude each other.
//!
//! They stand as `if` and `then` beside the properties: unless the first rules hold, the last one does. Generators of clients
//! pass those words over; `anyOf` beside properties makes them lose the properties. To a rule, a member that is null is absent.

use super::schema_spec::SchemaSpec;
use serde_json::{Map, Value, json};

/// One way in which the members of an object may go together.
#[derive(Default)]
pub(super) struct MemberRule {
    required: Vec<Value>,
    members: Map<String, Value>,
}

/// A rule that says nothing yet.
pub(super) fn rule() -> MemberRule {
    MemberRule::default()
}

/// The words of a schema that say that one of these rules holds.
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
    /// This member is there.
    pub(super) fn with(self, name: &str) -> Self {
        self.needs(name, json!({"not": {"enum": [null]}}))
    }

    /// This member is there, and one of these words.
    pub(super) fn with_word(self, name: &str, words: &[&str]) -> Self {
        self.needs(name, json!({"enum": words}))
    }

    /// This flag is up, or it is down or not there.
    pub(super) fn with_flag(self, name: &str, is_up: bool) -> Self {
        match is_up {
            true => self.needs(name, json!({"enum": [true]})),
            false => self.holds(name, json!({"enum": [false]})),
        }
    }

    /// This member is not there.
    pub(super) fn without(self, name: &str) -> Self {
        self.holds(name, json!({"enum": [null]}))
    }

    /// This list has nothing in it, or is not there.
    pub(super) fn with_empty(self, name: &str) -> Self {
        self.holds(name, json!({"maxItems": 0}))
    }

    /// This member is of this shape, or not there.
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

    /// It, as a schema. Other members are none of its business, which is said for tools that close what is not open.
    pub(super) fn schema(self) -> Value {
        json!({"properties": self.members, "required": self.required, "additionalProperties": true})
    }
}
