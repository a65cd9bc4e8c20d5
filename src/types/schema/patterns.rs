//! What the regular expressions of a schema take to compile, estimated before any of them is compiled.
//!
//! - A compiled expression grows with the product of its repetitions and with the ranges of its character classes:
//!   `\p{L}{20}` is nine characters and about a megabyte. Compiling takes time in proportion.
//! - The estimate only parses the expression, which takes time in proportion to its text.
//! - Only new schemas are measured. One that a log holds already is compiled as it is.

use contract::limits;
use regex_syntax::hir::{Class, ClassUnicodeRange, Hir, HirKind};
use regex_syntax::utf8::Utf8Sequences;

/// What the expressions of one schema have taken so far.
#[derive(Default)]
pub(super) struct PatternBudget {
    count: usize,
    bytes: usize,
}

impl PatternBudget {
    /// Counts an expression in the syntax of the `regex` crate; else why the schema has one too many.
    pub(super) fn spend(&mut self, pattern: &str) -> Result<(), String> {
        self.count += 1;
        if self.count > limits::SCHEMA_PATTERNS_MAX {
            return Err(format!("it has more than {} patterns", limits::SCHEMA_PATTERNS_MAX));
        }
        self.bytes = self.bytes.saturating_add(estimate(pattern));
        if self.bytes > limits::SCHEMA_PATTERN_BYTES_MAX {
            return Err(format!(
                "its patterns take more than {} MiB to compile; repeat less in them (`{{20}}`), or use smaller classes of \
                 characters than `\\p{{L}}` and `\\w`",
                limits::SCHEMA_PATTERN_BYTES_MAX >> 20
            ));
        }
        Ok(())
    }
}

impl PatternBudget {
    /// About what expressions take once they are compiled, whether or not that is too much; in bytes.
    pub(super) fn sum(patterns: impl Iterator<Item = impl AsRef<str>>) -> usize {
        patterns.map(|pattern| estimate(pattern.as_ref())).fold(0, usize::saturating_add).saturating_mul(4)
    }
}

/// About what the automaton of an expression takes, in bytes; all that is compiled of it takes up to four times that.
/// What cannot be parsed cannot be compiled either; the compiler says why.
fn estimate(pattern: &str) -> usize {
    regex_syntax::parse(pattern).map_or(0, |hir| automaton_bytes(&hir))
}

fn automaton_bytes(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => STATE_BYTES,
        HirKind::Literal(literal) => STATE_BYTES.saturating_mul(literal.0.len()),
        HirKind::Class(Class::Unicode(class)) => class.iter().map(range_bytes).fold(STATE_BYTES, usize::saturating_add),
        HirKind::Class(Class::Bytes(class)) => STATE_BYTES + TRANSITION_BYTES * class.ranges().len(),
        HirKind::Repetition(repetition) => {
            // An open end is a loop over one more copy.
            let copies = repetition.max.unwrap_or_else(|| repetition.min.saturating_add(1)).max(1);
            automaton_bytes(&repetition.sub).saturating_add(STATE_BYTES).saturating_mul(copies as usize)
        }
        HirKind::Capture(capture) => automaton_bytes(&capture.sub).saturating_add(2 * STATE_BYTES),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(automaton_bytes).fold(STATE_BYTES, usize::saturating_add)
        }
    }
}

/// A range of characters is a state for every byte of its sequences in UTF-8, of which others share some.
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
            // All that is compiled takes up to four times the automaton; some of it is there once, however small the pattern.
            let bytes = 8 * 1024 + estimate(pattern) * 4;
            assert!(regex::RegexBuilder::new(pattern).size_limit(bytes).build().is_ok(), "{pattern}: {bytes}");
        }
    }

    #[test]
    fn ordinary_patterns_fit_in_numbers_and_bombs_do_not() {
        let mut ordinary = PatternBudget::default();
        for _ in 0..limits::SCHEMA_PATTERNS_MAX {
            ordinary.spend(r"^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,63}\.[A-Za-z]{2,}$").unwrap();
        }
        assert!(ordinary.spend("a").unwrap_err().contains("more than 200 patterns"));
        let mut bomb = PatternBudget::default();
        assert!((0..10).any(|n| bomb.spend(&format!(r"\p{{L}}{{20}}{n}")).is_err()));
        for nested in [r"((\p{L}{100}){100}){100}", r"(((((a{100}){100}){100}){100}){100}){100}", r"\w{1000}"] {
            assert!(PatternBudget::default().spend(nested).is_err(), "{nested}");
        }
    }
}
