//! The cost of compiling the regular expressions of a schema, estimated before any is compiled.
//!
//! - The size of a compiled expression grows with the product of its repetitions and with the ranges of its character
//!   classes: `\p{L}{20}` is nine characters and about a megabyte. The time to compile is proportional.
//! - The estimate only parses the expression. Parsing takes time in proportion to the square of the text, and to the
//!   tables of its Unicode classes, so both are bounded first.
//! - A schema that is already in a log may take twice the size, and have any number of expressions: it was accepted
//!   when the limits were higher. Beyond that its events are refused, so no compilation takes long.

use contract::limits;
use regex_syntax::hir::{Class, ClassUnicodeRange, Hir, HirKind};
use regex_syntax::utf8::Utf8Sequences;
use std::borrow::Cow;

/// Which limits apply to a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SchemaOrigin {
    /// A request or the configuration.
    Request,
    /// The log.
    Log,
}

/// The cost of a schema's expressions so far.
pub(super) struct PatternBudget {
    count_max: usize,
    bytes_max: usize,
    count: usize,
    bytes: usize,
    unicode_classes: usize,
}

impl PatternBudget {
    pub(super) fn of(origin: SchemaOrigin) -> Self {
        let (count_max, bytes_max) = match origin {
            SchemaOrigin::Request => (limits::SCHEMA_PATTERNS_MAX, limits::SCHEMA_PATTERN_BYTES_MAX),
            SchemaOrigin::Log => (usize::MAX, 2 * limits::SCHEMA_PATTERN_BYTES_MAX),
        };
        Self { count_max, bytes_max, count: 0, bytes: 0, unicode_classes: 0 }
    }

    /// Adds an expression, which `convert` turns into the syntax of the `regex` crate; `Err` says why it is one too
    /// many.
    pub(super) fn spend<'p>(
        &mut self,
        pattern: &'p str,
        convert: impl FnOnce(&'p str) -> Cow<'p, str>,
    ) -> Result<(), String> {
        self.count += 1;
        if self.count > self.count_max {
            return Err(format!("it has more than {} patterns", self.count_max));
        }
        // A conversion may write out the tables of a class, so their number is limited before.
        if pattern.len() > PATTERN_TEXT_MAX || unicode_classes(pattern) > CLASSES_MAX {
            return Err(format!("a pattern in it has more than {PATTERN_TEXT_MAX} bytes, or {CLASSES_MAX} classes"));
        }
        let pattern = convert(pattern);
        self.unicode_classes += unicode_classes(&pattern);
        if self.unicode_classes > UNICODE_CLASSES_MAX || pattern.len() > CONVERTED_TEXT_MAX {
            return Err(format!("its patterns name more than {UNICODE_CLASSES_MAX} classes of characters"));
        }
        self.bytes = self.bytes.saturating_add(estimate(&pattern));
        if self.bytes > self.bytes_max {
            return Err(format!(
                "its patterns take more than {} MiB to compile; repeat less in them (`{{20}}`), or use smaller classes of \
                 characters than `\\p{{L}}` and `\\w`",
                self.bytes_max >> 20
            ));
        }
        Ok(())
    }

    /// The approximate size of everything that is compiled, in bytes: up to four times the automata.
    pub(super) fn compiled_bytes(&self) -> usize {
        self.bytes.saturating_mul(4)
    }
}

/// Longest expression, in bytes.
const PATTERN_TEXT_MAX: usize = 16 * 1024;
/// Longest expression once it is converted, in bytes.
const CONVERTED_TEXT_MAX: usize = 256 * 1024;
/// Most classes of characters (`\d`, `\p{L}`) in one expression.
const CLASSES_MAX: usize = 1_000;
/// Most classes of the Unicode tables (`\p{L}`, `\w`) in one schema.
const UNICODE_CLASSES_MAX: usize = 200;

/// The number of classes in an expression, at most; in a converted one, of the Unicode classes.
fn unicode_classes(pattern: &str) -> usize {
    let behind = pattern.as_bytes().iter().skip(1);
    let pairs = pattern.as_bytes().iter().zip(behind);
    pairs.filter(|(first, second)| **first == b'\\' && b"pPwWdDsSiIcC".contains(second)).count()
}

/// The approximate size of the automaton of an expression, in bytes; everything compiled takes up to four times that.
/// An expression that cannot be parsed cannot be compiled either; the compiler reports it.
fn estimate(pattern: &str) -> usize {
    regex_syntax::parse(pattern).map_or(0, |hir| automaton_bytes(&hir))
}

/// The approximate number of states of an automaton: the steps that each byte of a text takes in the worst case.
pub(super) fn automaton_states(pattern: &str) -> usize {
    estimate(pattern).div_ceil(STATE_BYTES)
}

/// The approximate number of states of all automata that are so large once they are compiled.
pub(super) fn automaton_states_in(compiled_bytes: usize) -> usize {
    (compiled_bytes / 4).div_ceil(STATE_BYTES)
}

fn automaton_bytes(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => STATE_BYTES,
        HirKind::Literal(literal) => STATE_BYTES.saturating_mul(literal.0.len()),
        HirKind::Class(Class::Unicode(class)) => class.iter().map(range_bytes).fold(STATE_BYTES, usize::saturating_add),
        HirKind::Class(Class::Bytes(class)) => STATE_BYTES + TRANSITION_BYTES * class.ranges().len(),
        HirKind::Repetition(repetition) => {
            // An unbounded repetition is a loop over one more copy.
            let copies = repetition.max.unwrap_or_else(|| repetition.min.saturating_add(1)).max(1);
            automaton_bytes(&repetition.sub).saturating_add(STATE_BYTES).saturating_mul(copies as usize)
        }
        HirKind::Capture(capture) => automaton_bytes(&capture.sub).saturating_add(2 * STATE_BYTES),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(automaton_bytes).fold(STATE_BYTES, usize::saturating_add)
        }
    }
}

/// A range of characters has a state for every byte of its UTF-8 sequences, some of which are shared.
fn range_bytes(range: &ClassUnicodeRange) -> usize {
    match range.end().is_ascii() {
        true => TRANSITION_BYTES,
        false => TRANSITION_BYTES + STATE_BYTES * Utf8Sequences::new(range.start(), range.end()).count(),
    }
}

const STATE_BYTES: usize = 24;
const TRANSITION_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_within_a_factor_of_what_the_compiler_takes() {
        for pattern in ["^[a-z0-9-]{1,64}$", r"\p{L}{5}", r"(\p{L}|\d{3}){3}", "(?i)abc{100}", ".{100}", "(a|b|c){100}"]
        {
            // Everything compiled takes up to four times the automaton, plus a constant part.
            let bytes = 8 * 1024 + estimate(pattern) * 4;
            assert!(regex::RegexBuilder::new(pattern).size_limit(bytes).build().is_ok(), "{pattern}: {bytes}");
        }
    }

    fn spend(budget: &mut PatternBudget, pattern: &str) -> Result<(), String> {
        budget.spend(pattern, |pattern| Cow::Owned(pattern.to_owned()))
    }

    #[test]
    fn ordinary_patterns_fit_in_numbers_and_bombs_do_not() {
        let mut ordinary = PatternBudget::of(SchemaOrigin::Request);
        for _ in 0..limits::SCHEMA_PATTERNS_MAX {
            spend(&mut ordinary, r"^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,63}\.[A-Za-z]{2,}$").unwrap();
        }
        assert!(spend(&mut ordinary, "a").unwrap_err().contains("more than 200 patterns"));
        for origin in [SchemaOrigin::Request, SchemaOrigin::Log] {
            let mut bomb = PatternBudget::of(origin);
            assert!((0..20).any(|n| spend(&mut bomb, &format!(r"\p{{L}}{{20}}{n}")).is_err()));
            for bomb in [
                r"((\p{L}{100}){100}){100}",
                r"(((((a{100}){100}){100}){100}){100}){100}",
                r"\w{1000}",
                &r"\d?".repeat(501),
                &"a|".repeat(10_000),
            ] {
                assert!(spend(&mut PatternBudget::of(origin), bomb).is_err(), "{bomb}");
            }
        }
    }
}
