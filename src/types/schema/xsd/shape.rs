//! How much work a schema's content models are, before the compiler sees them.
//!
//! The compiler makes an automaton of every content model, with counters where something occurs a number of times. Its
//! work grows with the square of a model's size, groups written out, and by powers with repetitions in repetitions;
//! counters in what is repeated make every document dear. All three were measured, and are bounded here.

use super::tree::Element;
use std::collections::HashMap;

/// Whether the compiler may see a schema; else why not.
pub(super) fn check(schema: &Element) -> Result<(), &'static str> {
    let mut measure = Measure { named: HashMap::new(), known: HashMap::new() };
    for child in &schema.children {
        if let ("group" | "complexType", Some(name)) = (child.name.as_str(), child.attribute("name")) {
            measure.named.insert((child.name.as_str(), name), child);
        }
    }
    let (mut rest, mut seen, mut work) = (vec![schema], 0, 0_usize);
    while let Some(element) = rest.pop() {
        seen += 1;
        if seen > PARTS_MAX {
            return Err("it has too many parts");
        }
        if element.name == "complexType" {
            let Extent { size, repeats, .. } = measure.of(element, 0)?;
            let folds = 5_usize.saturating_pow(u32::try_from(repeats.saturating_sub(1)).unwrap_or(u32::MAX));
            work = work.saturating_add(size.saturating_mul(size).saturating_mul(folds));
        }
        if work > WORK_MAX {
            return Err("its content models are too large");
        }
        rest.extend(&element.children);
    }
    Ok(())
}

/// Most elements of a schema.
const PARTS_MAX: usize = 5_000;
/// Largest sum over all content models: the square of the size in particles, five times that for each repetition within
/// another.
const WORK_MAX: usize = 100_000;
/// Longest chain of groups in groups and types on types.
const CHAIN_MAX: usize = 100;
/// Largest number that says how often something occurs.
const OCCURS_MAX: u64 = 100_000;

/// Most repetitions within each other.
const REPEATS_MAX: usize = 4;
/// Largest product of the size of a part that is repeated, in particles, and of how many things are counted in it.
const COUNTED_MAX: usize = 64;

/// What a part of a content model comes to, groups written out.
#[derive(Clone, Copy, Default)]
struct Extent {
    /// In particles.
    size: usize,
    /// Most repetitions within each other.
    repeats: usize,
    /// How many things in it are counted, itself included.
    counted: usize,
}

struct Measure<'s> {
    /// Groups and types by their names. There is one namespace, as nothing is included.
    named: HashMap<(&'s str, &'s str), &'s Element>,
    /// What was measured; a circle, which the compiler refuses, ends where it began.
    known: HashMap<*const Element, Extent>,
}

impl<'s> Measure<'s> {
    fn of(&mut self, element: &'s Element, depth: usize) -> Result<Extent, &'static str> {
        if let Some(known) = self.known.get(&std::ptr::from_ref(element)) {
            return Ok(*known);
        }
        if depth > CHAIN_MAX {
            return Err("it is nested too deeply");
        }
        self.known.insert(element, Extent::default());
        let mut extent = Extent { size: 1, ..Extent::default() };
        // An element's own type is a content model of its own.
        let inside = if element.name == "element" { &[][..] } else { &element.children };
        let refers = |name: &str| element.attribute(name).and_then(|to| to.rsplit(':').next());
        let other = match element.name.as_str() {
            "group" => refers("ref").and_then(|name| self.named.get(&("group", name)).copied()),
            "extension" => refers("base").and_then(|name| self.named.get(&("complexType", name)).copied()),
            _ => None,
        };
        for part in inside.iter().chain(other) {
            let part = self.of(part, depth + 1)?;
            extent.size = extent.size.saturating_add(part.size);
            extent.repeats = extent.repeats.max(part.repeats);
            extent.counted = extent.counted.saturating_add(part.counted);
        }
        let extent = repeated(extent, occurs(element)?)?;
        self.known.insert(element, extent);
        Ok(extent)
    }
}

fn repeated(mut extent: Extent, (min, max): (u64, u64)) -> Result<Extent, &'static str> {
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

/// How often something occurs, at least and at most.
fn occurs(element: &Element) -> Result<(u64, u64), &'static str> {
    let number = |name| match element.attribute(name) {
        None => Ok(1),
        Some("unbounded") => Ok(u64::MAX),
        Some(text) => text.parse::<u64>().ok().filter(|number| *number <= OCCURS_MAX).ok_or(TOO_OFTEN),
    };
    Ok((number("minOccurs")?, number("maxOccurs")?))
}

const TOO_OFTEN: &str = "it says how often something occurs with a number that is too large, or none";
