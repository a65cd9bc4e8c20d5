//! How much work a schema's content models cause, before the compiler reads them.
//!
//! The compiler builds an automaton for every content model, with counters where an occurrence is bounded. Its work
//! grows with the square of a model's size, with groups expanded, and exponentially with nested repetitions; counters
//! inside repetitions make every document expensive. All three were measured, and are bounded here.

use super::tree::SchemaElement;
use std::collections::HashMap;

/// Whether the compiler may read a schema; `Err` says why not.
pub(super) fn check(schema: &SchemaElement) -> Result<(), &'static str> {
    let mut measure = ContentMeasure { named: HashMap::new(), known: HashMap::new() };
    for child in &schema.children {
        if let Some(name) = child.attribute("name") {
            measure.named.insert((child.name.as_str(), name), child);
        }
    }
    let substitutes = schema.children.iter().filter(|child| child.attribute("substitutionGroup").is_some()).count();
    let (mut rest, mut seen, mut work, mut references) = (vec![schema], 0, 0_usize, 0_usize);
    while let Some(element) = rest.pop() {
        seen += 1;
        if seen > PARTS_MAX {
            return Err("it has too many parts");
        }
        match element.name.as_str() {
            "complexType" => {
                let extent = measure.of(element, 0)?;
                work = work.saturating_add(extent.work());
                references = references.saturating_add(extent.references);
            }
            "simpleType" if measure.of(element, 0)?.size > MEMBERS_MAX => {
                return Err("its unions have too many members");
            }
            _ => (),
        }
        if work > WORK_MAX {
            return Err("its content models are too large");
        }
        if references.saturating_mul(substitutes) > SUBSTITUTES_MAX {
            return Err("its elements can be substituted in too many places");
        }
        rest.extend(&element.children);
    }
    Ok(())
}

/// Most elements of a schema.
const PARTS_MAX: usize = 5_000;
/// Largest sum over all content models: the square of the size in particles, five times that for each repetition within
/// another.
const WORK_MAX: usize = 500_000;
/// Most simple types in one union, those of nested unions included.
const MEMBERS_MAX: usize = 500;
/// Largest product of how many elements substitute others and how often elements are referred to.
const SUBSTITUTES_MAX: usize = 20_000;
/// Longest chain of nested groups and of derived types.
const CHAIN_MAX: usize = 100;
/// Largest `minOccurs` or `maxOccurs`.
const OCCURS_MAX: u64 = 100_000;

/// Most repetitions within each other.
const REPEATS_MAX: usize = 4;
/// Largest product of the size of a part that is repeated, in particles, and of how many things are counted in it.
const COUNTED_MAX: usize = 64;

/// The size of a part of a content model, with groups expanded.
#[derive(Clone, Copy, Default)]
struct ContentExtent {
    /// In particles.
    size: usize,
    /// Most repetitions within each other.
    repeats: usize,
    /// How many bounded occurrences are in it, itself included.
    counted: usize,
    /// How many references to elements are in it.
    references: usize,
}

impl ContentExtent {
    /// The work that it causes for the compiler.
    fn work(&self) -> usize {
        let folds = 5_usize.saturating_pow(u32::try_from(self.repeats.saturating_sub(1)).unwrap_or(u32::MAX));
        self.size.saturating_mul(self.size).saturating_mul(folds)
    }

    fn add(&mut self, part: &Self) {
        self.size = self.size.saturating_add(part.size);
        self.repeats = self.repeats.max(part.repeats);
        self.counted = self.counted.saturating_add(part.counted);
        self.references = self.references.saturating_add(part.references);
    }
}

struct ContentMeasure<'s> {
    /// Groups and types by their names. There is one namespace, as nothing is included.
    named: HashMap<(&'s str, &'s str), &'s SchemaElement>,
    /// What was measured; a cycle, which the compiler refuses, ends where it began.
    known: HashMap<*const SchemaElement, ContentExtent>,
}

impl<'s> ContentMeasure<'s> {
    fn of(&mut self, element: &'s SchemaElement, depth: usize) -> Result<ContentExtent, &'static str> {
        if let Some(known) = self.known.get(&std::ptr::from_ref(element)) {
            return Ok(*known);
        }
        if depth > CHAIN_MAX {
            return Err("it is nested too deeply");
        }
        self.known.insert(element, ContentExtent::default());
        let is_reference = element.name == "element" && element.attribute("ref").is_some();
        let mut extent = ContentExtent { size: 1, references: usize::from(is_reference), ..ContentExtent::default() };
        // An element's own type has a separate content model; the values of an enumeration are found by a look-up.
        let inside = if element.name == "element" { &[][..] } else { &element.children };
        let inside = inside.iter().filter(|child| child.name != "enumeration");
        for part in inside.chain(self.references_of(element)) {
            extent.add(&self.of(part, depth + 1)?);
        }
        let extent = repeated(extent, occurs(element)?)?;
        self.known.insert(element, extent);
        Ok(extent)
    }

    /// The parts of the schema that an element refers to by name.
    fn references_of(&self, element: &SchemaElement) -> Vec<&'s SchemaElement> {
        let (attribute, kind) = match element.name.as_str() {
            "group" => ("ref", "group"),
            "attributeGroup" => ("ref", "attributeGroup"),
            "extension" => ("base", "complexType"),
            "restriction" => ("base", "simpleType"),
            "list" => ("itemType", "simpleType"),
            "union" => ("memberTypes", "simpleType"),
            _ => return Vec::new(),
        };
        let names = element.attribute(attribute).unwrap_or_default().split_whitespace();
        let names = names.filter_map(|name| name.rsplit(':').next());
        names.filter_map(|name| self.named.get(&(kind, name)).copied()).collect()
    }
}

fn repeated(mut extent: ContentExtent, (min, max): (u64, u64)) -> Result<ContentExtent, &'static str> {
    let is_counted = min > 1 || (max > 1 && max != u64::MAX);
    if is_counted && extent.counted > 0 {
        return Err("it counts occurrences within counted occurrences; use `unbounded` for one of them");
    }
    extent.counted += usize::from(is_counted);
    extent.repeats += usize::from(max > 1);
    if extent.repeats > REPEATS_MAX {
        return Err("it repeats within repetitions too deeply");
    }
    if max > 1 && extent.counted.saturating_mul(extent.size) > COUNTED_MAX {
        return Err("it counts occurrences in a large part that is repeated; use `unbounded` for them");
    }
    Ok(extent)
}

/// The minimal and maximal number of occurrences.
fn occurs(element: &SchemaElement) -> Result<(u64, u64), &'static str> {
    let number = |name| match element.attribute(name) {
        None => Ok(1),
        Some("unbounded") => Ok(u64::MAX),
        Some(text) => text.parse::<u64>().ok().filter(|number| *number <= OCCURS_MAX).ok_or(TOO_OFTEN),
    };
    Ok((number("minOccurs")?, number("maxOccurs")?))
}

const TOO_OFTEN: &str = "a `minOccurs` or `maxOccurs` in it is too large, or not a number";
