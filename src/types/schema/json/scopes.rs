//! How often the parts of a schema are compiled.
//!
//! The validator compiles the target of a reference once for every chain of subschemas with an `$id` through which it
//! is reached, because a `$dynamicRef` may have another target in each. Sixty such subschemas that refer to each other
//! are a schema of five kilobytes and a thousand million chains. They are counted here, before the validator compiles
//! the schema.

use super::positions::PartPosition;
use super::references::{ReferenceIndex, ReferenceTarget};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Most compiled parts, each counted as often as it is compiled.
const PARTS_MAX: usize = 50_000;
/// Longest chain of references.
const CHAIN_MAX: usize = 100;

/// Whether the validator may compile a schema; `Err` says why not.
pub(super) fn check<'s>(schema: &'s Value, index: &ReferenceIndex<'s>) -> Result<(), &'static str> {
    if index.embedded_resources() == 0 {
        return Ok(());
    }
    let mut count = ScopeCount { index, known: HashMap::new(), seen: HashSet::new(), path: Vec::new(), parts: 0 };
    count.enter(schema, &[])
}

struct ScopeCount<'i, 's> {
    index: &'i ReferenceIndex<'s>,
    known: HashMap<*const Value, Rc<PartContents<'s>>>,
    /// What was counted: a part, and the chain of resources through which it was reached.
    seen: HashSet<(*const Value, Vec<usize>)>,
    /// The parts that are being counted.
    path: Vec<*const Value>,
    parts: usize,
}

/// What is compiled with a part, without the targets of its references.
struct PartContents<'s> {
    size: usize,
    /// The resource of each reference, and its target.
    references: Vec<(usize, &'s Value)>,
}

const TOO_MANY: &str = "its parts with an `$id` refer to each other in too many ways";

impl<'s> ScopeCount<'_, 's> {
    fn enter(&mut self, part: &'s Value, scope: &[usize]) -> Result<(), &'static str> {
        let address = std::ptr::from_ref(part);
        if self.path.contains(&address) || !self.seen.insert((address, scope.to_vec())) {
            return Ok(());
        }
        let contents = self.contents(part);
        self.parts = self.parts.saturating_add(contents.size);
        if self.parts > PARTS_MAX || self.path.len() == CHAIN_MAX {
            return Err(TOO_MANY);
        }
        self.path.push(address);
        for (resource, target) in &contents.references {
            let mut scope = scope.to_vec();
            if self.index.resource(target) != Some(*resource) {
                scope.push(*resource);
            }
            self.enter(target, &scope)?;
        }
        self.path.pop();
        Ok(())
    }

    fn contents(&mut self, part: &'s Value) -> Rc<PartContents<'s>> {
        let index = self.index;
        let known = self.known.entry(part).or_insert_with(|| Rc::new(contents(part, index)));
        Rc::clone(known)
    }
}

fn contents<'s>(part: &'s Value, index: &ReferenceIndex<'s>) -> PartContents<'s> {
    let mut found = PartContents { size: 0, references: Vec::new() };
    let mut rest = vec![(part, PartPosition::Schema)];
    while let Some((part, position)) = rest.pop() {
        match part {
            Value::Array(items) => rest.extend(items.iter().map(|item| (item, position))),
            Value::Object(members) => {
                found.size += 1;
                for (name, member) in members {
                    match (name.as_str(), member, position.of_member(name)) {
                        ("$ref" | "$dynamicRef", Value::String(to), _) => {
                            let ReferenceTarget::Parts(targets) = index.target(part, to) else { continue };
                            let resource = index.resource(part).unwrap_or_default();
                            found.references.extend(targets.into_iter().map(|target| (resource, target)));
                        }
                        (_, _, Some(PartPosition::Unknown) | None) => (),
                        (_, _, Some(position)) => rest.push((member, position)),
                    }
                }
            }
            _ => found.size += 1,
        }
    }
    found
}
