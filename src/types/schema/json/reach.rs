//! How much work a schema can make of one place of an event.
//!
//! A validator follows `$ref`, `allOf`, `anyOf` and their kin without going further into the event. Two references
//! that each hold two references, thirty levels down, are a schema of one kilobyte and a thousand million looks; and a
//! long enough chain of them overflows the stack. Both are counted here, before the validator sees the schema.

use serde_json::Value;
use std::collections::HashMap;

/// Most looks at one place.
const REACH_MAX: usize = 10_000;
/// Longest chain of looks at one place; the validator recurses along it, once per level of the event.
const CHAIN_MAX: usize = 16;

/// The most looks any place of an event gets; `None` where they are too many.
pub(super) fn reach(schema: &Value) -> Option<usize> {
    let mut count = Count { root: schema, known: HashMap::new(), depth: 0 };
    let mut most = 1;
    let mut rest = vec![schema];
    while let Some(part) = rest.pop() {
        most = most.max(count.looks(part)?.count);
        match part {
            Value::Array(items) => rest.extend(items),
            Value::Object(members) => rest.extend(members.values()),
            _ => {}
        }
    }
    Some(most)
}

/// Whether a value has at most so many parts; stops counting beyond.
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

struct Count<'s> {
    root: &'s Value,
    /// What was counted, by the address of the part; a circle ends where it began.
    known: HashMap<*const Value, Looks>,
    /// How deep we are in the chain being followed.
    depth: usize,
}

/// The looks at one place that start with one part of the schema.
#[derive(Clone, Copy)]
struct Looks {
    count: usize,
    /// The longest chain among them.
    chain: usize,
}

impl<'s> Count<'s> {
    /// `None` where they are too many.
    fn looks(&mut self, part: &'s Value) -> Option<Looks> {
        const ONE: Looks = Looks { count: 1, chain: 1 };
        let Value::Object(members) = part else { return Some(ONE) };
        if let Some(known) = self.known.get(&std::ptr::from_ref(part)) {
            return Some(*known);
        }
        if self.depth == CHAIN_MAX {
            return None;
        }
        self.known.insert(part, ONE);
        self.depth += 1;
        let mut looks = ONE;
        for (keyword, value) in members {
            for next in self.further(keyword, value) {
                let next = self.looks(next)?;
                looks = Looks { count: looks.count + next.count, chain: looks.chain.max(next.chain + 1) };
            }
        }
        self.depth -= 1;
        self.known.insert(part, looks);
        (looks.count <= REACH_MAX && looks.chain <= CHAIN_MAX).then_some(looks)
    }

    /// The parts a keyword holds against the same place.
    fn further(&self, keyword: &str, value: &'s Value) -> Vec<&'s Value> {
        match (keyword, value) {
            ("$ref" | "$dynamicRef", Value::String(to)) => self.target(to).into_iter().collect(),
            ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => parts.iter().collect(),
            ("not" | "if" | "then" | "else", _) => vec![value],
            ("dependentSchemas" | "dependencies", Value::Object(parts)) => parts.values().collect(),
            _ => Vec::new(),
        }
    }

    /// What a reference leads to, where it is written as a pointer.
    fn target(&self, reference: &str) -> Option<&'s Value> {
        self.root.pointer(reference.strip_prefix('#')?)
    }
}
