//! Rules between an object's members that its properties alone cannot say: which go together, and which exclude each other.
//!
//! They stand as `anyOf` beside the properties. To a rule, a member that is null is absent.

use super::shape::Shape;
use serde_json::{Map, Value, json};

/// One way in which the members of an object may go together.
#[derive(Default)]
pub(super) struct Rule {
    required: Vec<Value>,
    members: Map<String, Value>,
}

/// A rule that says nothing yet.
pub(super) fn rule() -> Rule {
    Rule::default()
}

impl Rule {
    /// This member is there.
    pub(super) fn with(self, name: &str) -> Self {
        self.needs(name, json!({"not": {"enum": [null]}}))
    }

    /// This member is there, and one of these words.
    pub(super) fn with_word(self, name: &str, words: &[&str]) -> Self {
        self.needs(name, json!({"enum": words}))
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
    pub(super) fn shaped(self, name: &str, shape: Shape) -> Self {
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
