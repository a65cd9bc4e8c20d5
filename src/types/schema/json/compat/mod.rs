//! Whether a JSON Schema accepts every event that its predecessor accepts, by what it newly limits.
//!
//! - A schema is read as parts that all apply: itself, the target of its `$ref`, the members of `allOf`. Every keyword
//!   of a new part must be implied by an old part; a removed keyword limits nothing.
//! - The comparison is sound, with one deliberate exception: a member that the old schema did not name (in an object
//!   that it left open) was not specified, so the new schema may name and specify it.
//! - Keywords that are not analysed (`anyOf` and similar, tuples, `unevaluated…`) must not change, nor what they refer
//!   to.
//! - Pointers are into the new schema. The work is bounded by steps, the depth by the maximal depth of an event.

#[cfg(test)]
mod tests;

use super::bounds::{self, ARRAY, OBJECT};
use super::keywords::{
    closing, escaped, is_anything, is_plain_list, may_name, names, refers_plainly, requires, target,
};
use super::{draft_of, messages, target_of};
use crate::types::schema::changed;
use contract::{SchemaTarget, Violation, limits};
use jsonschema::Draft;
use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// The places where `new`, at the pointer `at` of a request, might refuse an event that `old` accepts.
pub(in crate::types::schema) fn incompatibilities(
    at: &str,
    old: &Value,
    new: &Value,
    target: Option<SchemaTarget>,
) -> Vec<Violation> {
    compare(at, old, new, target, false)
}

/// Compares two schemas; with `is_strict` there is no exception for new members.
fn compare(at: &str, old: &Value, new: &Value, target: Option<SchemaTarget>, is_strict: bool) -> Vec<Violation> {
    if draft_of(old) != draft_of(new) {
        return vec![changed(format!("{at}/$schema"), "must stay the same draft within a major version")];
    }
    if target.is_none() && target_of(old) != target_of(new) {
        return vec![changed(at, "describes the event where it described `data`, or the other way round")];
    }
    if !(refers_plainly(old) && refers_plainly(new)) {
        return vec![changed(at, CANNOT)];
    }
    let draft_7 = draft_of(new) == Some(Draft::Draft7);
    let mut walk = JsonComparison {
        at,
        draft_7,
        is_strict,
        old,
        new,
        seen: HashSet::new(),
        same: HashSet::new(),
        patterns: HashMap::new(),
        steps: 0,
        found: Vec::new(),
    };
    walk.compare_schemas(&[old], new, "", 0);
    if walk.steps > STEPS_MAX {
        walk.found = vec![changed(at, "is too complex to be compared with the version before it")];
    }
    walk.found
}

const CANNOT: &str = "changed in a way that cannot be shown compatible";
/// Most pairs of parts of the two schemas that are compared.
const STEPS_MAX: usize = 200_000;
/// Largest compiled pattern, in bytes.
const PATTERN_SIZE_MAX: usize = 1024 * 1024;

/// A part of a schema that applies together with others: an object's keywords, or `false`.
enum SchemaPart<'s> {
    Nothing,
    Keywords(&'s Map<String, Value>),
}

struct JsonComparison<'s> {
    at: &'s str,
    draft_7: bool,
    is_strict: bool,
    old: &'s Value,
    new: &'s Value,
    /// Pairs that were compared, or are being compared further up: a cycle ends where it began.
    seen: HashSet<(Vec<*const Value>, *const Value)>,
    /// Pairs of the current comparison for equality; one that differs ends it.
    same: HashSet<(*const Value, *const Value)>,
    patterns: HashMap<&'s str, Option<Regex>>,
    steps: usize,
    found: Vec<Violation>,
}

impl<'s> JsonComparison<'s> {
    /// Reports what `new`, at `place`, limits beyond the schemas `olds`, all of which apply.
    fn compare_schemas(&mut self, olds: &[&'s Value], new: &'s Value, place: &str, depth: usize) {
        // No event is deeper, so nothing can be incompatible there.
        if depth > limits::DATA_DEPTH_MAX + 2 || self.found.len() >= limits::VIOLATIONS_MAX {
            return;
        }
        let mut known = Vec::new();
        for old in olds {
            for (part, _) in self.parts(self.old, old, "") {
                match part {
                    SchemaPart::Nothing => return,
                    SchemaPart::Keywords(keywords) => known.push(keywords),
                }
            }
        }
        let mut pair: Vec<_> = olds.iter().map(|old| std::ptr::from_ref(*old)).collect();
        pair.sort_unstable();
        if !self.seen.insert((pair, new)) {
            return;
        }
        for (part, place) in self.parts(self.new, new, place) {
            match part {
                SchemaPart::Nothing => self.report(&place, "no longer allows anything here"),
                SchemaPart::Keywords(keywords) => self.keywords(&known, keywords, &place, depth),
            }
        }
    }

    fn keywords(&mut self, olds: &[&'s Map<String, Value>], new: &'s Map<String, Value>, place: &str, depth: usize) {
        let kinds = bounds::kinds(olds);
        for (keyword, value) in new {
            let here = format!("{place}/{keyword}");
            match keyword.as_str() {
                "type" => {
                    let gone = kinds & !bounds::kinds_of_type(value);
                    if gone != 0 {
                        self.report(&here, &format!("no longer allows the type: {}", bounds::names(gone)));
                    }
                }
                "enum" => self.listed(olds, &value.as_array().into_iter().flatten().collect::<Vec<_>>(), &here),
                "const" => self.listed(olds, &[value], &here),
                "required" if kinds & OBJECT != 0 => self.required(olds, value, &here),
                "properties" | "patternProperties" | "additionalProperties" | "propertyNames" => {
                    if kinds & OBJECT != 0 {
                        self.members(olds, new, keyword, &here, depth);
                    }
                }
                "items" if kinds & ARRAY != 0 && is_plain_list(new) => {
                    let lists = olds.iter().filter(|old| is_plain_list(old)).filter_map(|old| old.get("items"));
                    self.compare_schemas(&lists.collect::<Vec<_>>(), value, &here, depth + 1);
                }
                other => self.other(olds, new, other, &here),
            }
        }
    }

    fn other(&mut self, olds: &[&'s Map<String, Value>], new: &'s Map<String, Value>, keyword: &str, here: &str) {
        let group: &[&str] = match keyword {
            "if" | "then" | "else" => &["if", "then", "else"],
            "contains" | "minContains" | "maxContains" => &["contains", "minContains", "maxContains"],
            "items" | "prefixItems" | "additionalItems" => &["items", "prefixItems", "additionalItems"],
            "anyOf" => &["anyOf"],
            "oneOf" => &["oneOf"],
            "not" => &["not"],
            "dependentRequired" => &["dependentRequired"],
            "dependentSchemas" => &["dependentSchemas"],
            "dependencies" => &["dependencies"],
            // These keywords depend on all others beside them.
            "unevaluatedItems" | "unevaluatedProperties" => &[],
            _ => {
                let taken = new.get(keyword).and_then(|value| bounds::taken(keyword, value, olds));
                return taken.into_iter().for_each(|taken| self.report(here, taken));
            }
        };
        let is_same = olds.iter().any(|old| {
            self.same.clear();
            match group {
                [] => self.is_same_object(old, new, 0),
                _ => group.iter().all(|keyword| self.is_same_member(old.get(*keyword), new.get(*keyword), 0)),
            }
        });
        if !is_same {
            self.report(here, CANNOT);
        }
    }

    fn listed(&mut self, olds: &[&'s Map<String, Value>], allowed: &[&'s Value], here: &str) {
        let known = olds.iter().filter_map(|old| bounds::listed(old)).min_by_key(Vec::len);
        match known {
            Some(values) if values.iter().all(|value| allowed.contains(value)) => (),
            Some(_) => self.report(here, "no longer allows a value that was allowed"),
            None => self.report(here, "newly limits which values are allowed"),
        }
        self.steps += allowed.len();
    }

    fn required(&mut self, olds: &[&'s Map<String, Value>], value: &Value, here: &str) {
        for name in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
            self.steps += olds.len();
            if !olds.iter().any(|old| requires(old, name)) {
                self.report(here, &format!("newly requires the member '{name}'"));
            }
        }
    }

    fn members(
        &mut self,
        olds: &[&'s Map<String, Value>],
        new: &'s Map<String, Value>,
        keyword: &str,
        here: &str,
        depth: usize,
    ) {
        let Some(value) = new.get(keyword) else { return };
        match (keyword, value) {
            ("properties", Value::Object(members)) => {
                for (name, member) in members {
                    let Some(known) = self.old_schemas_of(olds, name) else { continue };
                    self.compare_schemas(&known, member, &format!("{here}/{}", escaped(name)), depth + 1);
                }
            }
            ("patternProperties", Value::Object(members)) => {
                for (pattern, member) in members {
                    self.pattern(olds, pattern, member, &format!("{here}/{}", escaped(pattern)), depth);
                }
            }
            ("propertyNames", _) => {
                let known: Vec<_> = olds.iter().filter_map(|old| old.get(keyword)).collect();
                self.compare_schemas(&known, value, here, depth + 1);
            }
            _ => self.additional(olds, new, value, here, depth),
        }
    }

    /// A pattern of the new schema applies to every member that matches it, whether or not it was named before.
    fn pattern(
        &mut self,
        olds: &[&'s Map<String, Value>],
        pattern: &'s str,
        member: &'s Value,
        here: &str,
        depth: usize,
    ) {
        let patterns = olds.iter().filter_map(|old| old.get("patternProperties")?.as_object());
        let same: Vec<_> = patterns.clone().filter_map(|known| known.get(pattern)).collect();
        if !same.is_empty() {
            return self.compare_schemas(&same, member, here, depth + 1);
        }
        for name in names(olds) {
            match self.matches(pattern, name) {
                Some(true) => {
                    let known = self.old_schemas_of(olds, name).unwrap_or_default();
                    self.compare_schemas(&known, member, here, depth + 1);
                }
                Some(false) => (),
                None => return self.report(here, CANNOT),
            }
        }
        for other in patterns.flat_map(Map::values) {
            self.compare_schemas(&[other], member, here, depth + 1);
        }
        let rest: Vec<_> = olds.iter().filter_map(|old| closing(old)).collect();
        if !rest.is_empty() || self.is_strict {
            self.compare_schemas(&rest, member, here, depth + 1);
        }
    }

    /// `additionalProperties` of the new schema applies to every member that it does not name itself.
    fn additional(
        &mut self,
        olds: &[&'s Map<String, Value>],
        new: &'s Map<String, Value>,
        rest: &'s Value,
        here: &str,
        depth: usize,
    ) {
        if is_anything(rest) {
            return;
        }
        for name in names(olds) {
            if self.has_member(new, name) {
                continue;
            }
            let known = self.old_schemas_of(olds, name).unwrap_or_default();
            if rest != &Value::Bool(false) {
                self.compare_schemas(&known, rest, here, depth + 1);
            } else if !known.iter().any(|known| known == &&Value::Bool(false)) {
                self.report(here, &format!("no longer allows the member '{name}'"));
            }
        }
        let kept = new.get("patternProperties").and_then(Value::as_object);
        for (pattern, member) in olds.iter().filter_map(|old| old.get("patternProperties")?.as_object()).flatten() {
            if !kept.is_some_and(|kept| kept.contains_key(pattern)) {
                self.compare_schemas(&[member], rest, here, depth + 1);
            }
        }
        let known: Vec<_> = olds.iter().filter_map(|old| closing(old)).collect();
        if known.is_empty() {
            self.report(here, "limits members that were left open");
        } else {
            self.compare_schemas(&known, rest, here, depth + 1);
        }
    }

    /// The old schemas of a member; `None` if they left it open without naming it.
    fn old_schemas_of(&mut self, olds: &[&'s Map<String, Value>], name: &str) -> Option<Vec<&'s Value>> {
        let (mut known, mut is_named) = (Vec::new(), self.is_strict);
        for old in olds {
            let mut here = false;
            if let Some(member) = old.get("properties").and_then(|members| members.get(name)) {
                known.push(member);
                here = true;
            }
            for (pattern, member) in old.get("patternProperties").and_then(Value::as_object).into_iter().flatten() {
                let matches = self.matches(pattern, name);
                known.extend(matches.unwrap_or(false).then_some(member));
                here |= matches.unwrap_or(true);
            }
            if !here && let Some(rest) = closing(old) {
                known.push(rest);
                here = true;
            }
            self.steps += 1;
            is_named |= here || requires(old, name) || may_name(self.old, old, name);
        }
        is_named.then_some(known)
    }

    /// Whether a schema's own keywords name a member.
    fn has_member(&mut self, schema: &'s Map<String, Value>, name: &str) -> bool {
        let named = schema.get("properties").is_some_and(|members| members.get(name).is_some());
        let mut patterns = schema.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
        named || patterns.any(|pattern| self.matches(pattern, name) == Some(true))
    }

    /// Whether a member's name matches; `None` if the pattern cannot be parsed.
    fn matches(&mut self, pattern: &'s str, name: &str) -> Option<bool> {
        self.steps += 1;
        let compile = || RegexBuilder::new(pattern).size_limit(PATTERN_SIZE_MAX).build().ok();
        self.patterns.entry(pattern).or_insert_with(compile).as_ref().map(|pattern| pattern.is_match(name))
    }

    /// The parts of a schema that all apply, each with its place; none if it accepts anything.
    fn parts(&mut self, root: &'s Value, schema: &'s Value, place: &str) -> Vec<(SchemaPart<'s>, String)> {
        let (mut parts, mut seen) = (Vec::new(), HashSet::new());
        let mut rest = vec![(schema, place.to_owned())];
        while let Some((schema, place)) = rest.pop() {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return Vec::new();
            }
            if !seen.insert(std::ptr::from_ref(schema)) {
                continue;
            }
            let keywords = match schema {
                Value::Bool(false) => {
                    parts.push((SchemaPart::Nothing, place));
                    continue;
                }
                Value::Object(keywords) => keywords,
                _ => continue,
            };
            let target = keywords.get("$ref").and_then(Value::as_str).and_then(|to| Some((target(root, to)?, to)));
            let is_reference = target.is_some();
            rest.extend(target.map(|(target, to)| (target, to.trim_start_matches('#').to_owned())));
            if is_reference && self.draft_7 {
                continue;
            }
            let all = keywords.get("allOf").and_then(Value::as_array).into_iter().flatten().enumerate();
            rest.extend(all.map(|(index, part)| (part, format!("{place}/allOf/{index}"))));
            parts.push((SchemaPart::Keywords(keywords), place));
        }
        parts
    }

    /// Whether two parts are equal, and what they refer to, too.
    fn is_same(&mut self, old: &'s Value, new: &'s Value, depth: usize) -> bool {
        self.steps += 1;
        if self.steps > STEPS_MAX || depth > 2 * limits::DATA_DEPTH_MAX {
            return false;
        }
        match (old, new) {
            (Value::Object(one), Value::Object(other)) => {
                !self.same.insert((old, new)) || self.is_same_object(one, other, depth)
            }
            (Value::Array(one), Value::Array(other)) => {
                one.len() == other.len()
                    && one.iter().zip(other).all(|(one, other)| self.is_same(one, other, depth + 1))
            }
            _ => old == new,
        }
    }

    fn is_same_object(&mut self, old: &'s Map<String, Value>, new: &'s Map<String, Value>, depth: usize) -> bool {
        let all = old.len() == new.len()
            && old.iter().all(|(name, member)| self.is_same_member(Some(member), new.get(name), depth));
        let reference = |schema: &'s Map<String, Value>, root: &'s Value| target(root, schema.get("$ref")?.as_str()?);
        all && match (reference(old, self.old), reference(new, self.new)) {
            (Some(old), Some(new)) => self.is_same(old, new, depth + 1),
            (None, None) => true,
            _ => false,
        }
    }

    fn is_same_member(&mut self, old: Option<&'s Value>, new: Option<&'s Value>, depth: usize) -> bool {
        match (old, new) {
            (Some(old), Some(new)) => self.is_same(old, new, depth + 1),
            (None, None) => true,
            _ => false,
        }
    }

    fn report(&mut self, place: &str, detail: &str) {
        let violation = changed(messages::pointer(self.at, place), detail);
        if !self.found.contains(&violation) && self.found.len() < limits::VIOLATIONS_MAX {
            self.found.push(violation);
        }
    }
}
