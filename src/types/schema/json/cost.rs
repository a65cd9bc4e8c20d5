//! How much work a schema can cause for one value of an event.
//!
//! A validator follows `$ref`, `allOf`, `anyOf` and similar keywords without descending into the event. Two references
//! that each contain two references, thirty levels deep, are a schema of one kilobyte and a thousand million
//! evaluations; and a long chain of them overflows the stack. Both are counted here, before the validator compiles the
//! schema.
//!
//! - Everything that the validator compiles is counted: subschemas of keywords, and the targets of references
//!   ([`ReferenceIndex`]).
//! - Recursion at the same value of an event is accepted once per schema, not twice: the validator tries every path
//!   through two cycles.

use super::in_rust_syntax;
use super::positions::PartPosition;
use super::references::{ReferenceIndex, ReferenceTarget};
use super::scopes;
use crate::types::schema::patterns::automaton_states;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Most evaluations of one value.
const REACH_MAX: usize = 10_000;
/// Longest chain of evaluations of one value; the validator recurses along it, once per level of the event.
const CHAIN_MAX: usize = 16;

/// The cost of a schema for one value of an event.
pub(super) struct SchemaReach {
    /// The most evaluations of any value.
    pub(super) looks: usize,
    /// The states of the automata of all patterns that one value is matched with, at most.
    pub(super) pattern_states: usize,
    /// Whether a reference was not followed, because its target was not found.
    pub(super) is_partial: bool,
}

/// Computes the cost of a schema for one value; `Err` says why it cannot be used.
pub(super) fn evaluations_per_value(schema: &Value) -> Result<SchemaReach, &'static str> {
    let index = ReferenceIndex::new(schema).ok_or(UNREADABLE)?;
    scopes::check(schema, &index)?;
    let mut count =
        LookCount { index, known: HashMap::new(), depth: 0, circles: 0, is_partial: false, referred: Vec::new() };
    let (mut most, mut pattern_states) = (1, 0);
    let mut seen = HashSet::new();
    let mut rest = vec![(schema, PartPosition::Schema)];
    while let Some((part, position)) = rest.pop() {
        match part {
            Value::Array(items) => rest.extend(items.iter().map(|item| (item, position))),
            Value::Object(members) if seen.insert((std::ptr::from_ref(part), position == PartPosition::Schema)) => {
                if position == PartPosition::Schema {
                    let looks = count.cost_of(part)?;
                    most = most.max(looks.count);
                    pattern_states = pattern_states.max(looks.pattern_states);
                    // The value of an unknown keyword is compiled if a reference points to it.
                    rest.extend(count.referred.drain(..).map(|part| (part, PartPosition::Schema)));
                }
                let positions = members.iter().map(|(name, member)| (member, position.of_member(name)));
                let inside = positions.filter_map(|(member, position)| Some((member, position?)));
                rest.extend(inside.filter(|(_, position)| *position != PartPosition::Unknown));
            }
            _ => (),
        }
    }
    Ok(SchemaReach { looks: most, pattern_states, is_partial: count.is_partial })
}

/// The number of values in an instance, and the bytes of its texts, names of members included.
pub(super) fn size_of_instance(value: &Value) -> (usize, usize) {
    let (mut rest, mut values, mut text_bytes) = (vec![value], 0, 0);
    while let Some(part) = rest.pop() {
        values += 1;
        match part {
            Value::Array(items) => rest.extend(items),
            Value::Object(members) => {
                text_bytes += members.keys().map(String::len).sum::<usize>();
                rest.extend(members.values());
            }
            Value::String(text) => text_bytes += text.len(),
            _ => {}
        }
    }
    (values, text_bytes)
}

/// Whether a value has at most so many parts; stops counting beyond that.
pub(super) fn has_at_most(value: &Value, parts: usize) -> bool {
    let mut rest = vec![value];
    let mut seen = 0;
    while let Some(part) = rest.pop() {
        seen += 1;
        match part {
            Value::Array(items) => rest.extend(items.iter().take(parts + 1)),
            Value::Object(members) => rest.extend(members.values().take(parts + 1)),
            _ => {}
        }
        if seen + rest.len() > parts {
            return false;
        }
    }
    true
}

struct LookCount<'s> {
    index: ReferenceIndex<'s>,
    /// The cost of each part, by its address; `None` while it is being computed.
    known: HashMap<*const Value, Option<PlaceLooks>>,
    /// The depth in the chain that is being followed.
    depth: usize,
    /// How often a part was reached from itself.
    circles: usize,
    is_partial: bool,
    /// Targets of references since this was last drained.
    referred: Vec<&'s Value>,
}

/// The evaluations of one value that start with one part of the schema.
#[derive(Clone, Copy)]
struct PlaceLooks {
    count: usize,
    /// The longest chain among them.
    chain: usize,
    /// The states of the automata of all patterns among them.
    pattern_states: usize,
}

const MULTIPLIES: &str = "its references and alternatives multiply";
const UNREADABLE: &str = "its references cannot be followed";
const INTO_DATA: &str = "a reference in it leads into `const`, `enum`, `default` or `examples`, which hold no schemas";

impl<'s> LookCount<'s> {
    fn cost_of(&mut self, part: &'s Value) -> Result<PlaceLooks, &'static str> {
        const ONE: PlaceLooks = PlaceLooks { count: 1, chain: 1, pattern_states: 0 };
        let Value::Object(members) = part else { return Ok(ONE) };
        match self.known.get(&std::ptr::from_ref(part)) {
            Some(Some(known)) => return Ok(*known),
            Some(None) => {
                self.circles += 1;
                return if self.circles > 1 { Err(MULTIPLIES) } else { Ok(ONE) };
            }
            None if self.depth == CHAIN_MAX => return Err(MULTIPLIES),
            None => (),
        }
        self.known.insert(part, None);
        self.depth += 1;
        let mut looks = ONE;
        for (keyword, value) in members {
            looks.pattern_states = looks.pattern_states.saturating_add(pattern_states(keyword, value));
            let (further, meta_schemas) = self.further(part, keyword, value)?;
            looks.count = looks.count.saturating_add(meta_schemas * META_SCHEMA_LOOKS.count);
            looks.chain = looks.chain.max(meta_schemas * META_SCHEMA_LOOKS.chain);
            for next in further {
                let next = self.cost_of(next)?;
                looks.count = looks.count.saturating_add(next.count);
                looks.chain = looks.chain.max(next.chain + 1);
                looks.pattern_states = looks.pattern_states.saturating_add(next.pattern_states);
            }
        }
        self.depth -= 1;
        self.known.insert(part, Some(looks));
        if looks.count <= REACH_MAX && looks.chain <= CHAIN_MAX { Ok(looks) } else { Err(MULTIPLIES) }
    }

    /// The subschemas that a keyword applies to the same value, and how many meta-schemas.
    fn further(
        &mut self,
        part: &'s Value,
        keyword: &str,
        value: &'s Value,
    ) -> Result<(Vec<&'s Value>, usize), &'static str> {
        let parts = match (keyword, value) {
            ("$ref" | "$dynamicRef", Value::String(to)) => match self.index.target(part, to) {
                ReferenceTarget::Parts(parts) => {
                    self.referred.extend(&parts);
                    parts
                }
                ReferenceTarget::MetaSchema => return Ok((Vec::new(), 1)),
                ReferenceTarget::Data => return Err(INTO_DATA),
                ReferenceTarget::Nowhere => {
                    self.is_partial = true;
                    Vec::new()
                }
            },
            ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => parts.iter().collect(),
            ("not" | "if" | "then" | "else", _) => vec![value],
            ("dependentSchemas" | "dependencies", Value::Object(parts)) => parts.values().collect(),
            _ => Vec::new(),
        };
        Ok((parts, 0))
    }
}

/// The cost of a meta-schema for one value, rounded up.
const META_SCHEMA_LOOKS: PlaceLooks = PlaceLooks { count: 100, chain: 6, pattern_states: 1000 };

/// The states of the automata of a keyword's patterns, for texts or for names of members.
fn pattern_states(keyword: &str, value: &Value) -> usize {
    match (keyword, value) {
        ("pattern", Value::String(pattern)) => automaton_states(&in_rust_syntax(pattern)),
        ("patternProperties", Value::Object(named)) => {
            named.keys().map(|pattern| automaton_states(&in_rust_syntax(pattern))).fold(0, usize::saturating_add)
        }
        _ => 0,
    }
}
