//! The patterns of `matches`: compiled once, and charged by the cost of matching them.
//!
//! A linear-time matcher reads a text byte by byte, and visits all states of its automaton for each byte in the worst
//! case. For `a[ab]{500}c` a byte takes some hundred times as long as for `error`, so a byte costs more steps the more
//! states the automaton has.

use super::token::CelError;
use regex::{Regex, RegexBuilder};
use regex_syntax::hir::{Class, Hir, HirKind};

/// Largest compiled pattern, in bytes.
const SIZE_MAX: usize = 128 * 1024;
/// States that a matcher visits in the time of one step.
const STATES_PER_STEP: usize = 16;

/// A pattern ready to be matched.
#[derive(Debug)]
pub(super) struct CelPattern {
    regex: Regex,
    steps_per_byte: usize,
}

impl CelPattern {
    /// Compiles the pattern at this byte of an expression.
    pub(super) fn compile(pattern: &str, at: usize) -> Result<Self, CelError> {
        let refused = || CelError::new(at, "the pattern is not a regular expression, or too large");
        let builder = &mut RegexBuilder::new(pattern);
        let regex = builder.size_limit(SIZE_MAX).dfa_size_limit(SIZE_MAX).nest_limit(16).build();
        let regex = regex.map_err(|_| refused())?;
        let states = regex_syntax::parse(pattern).map(|hir| states(&hir)).map_err(|_| refused())?;
        Ok(Self { regex, steps_per_byte: (states / STATES_PER_STEP).max(1) })
    }

    /// The steps of matching a text of so many bytes.
    pub(super) const fn steps(&self, bytes: usize) -> usize {
        bytes.saturating_mul(self.steps_per_byte)
    }

    pub(super) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

/// The approximate number of states of an expression's automaton.
fn states(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len(),
        // A character beyond ASCII has up to four bytes.
        HirKind::Class(Class::Unicode(class)) if !class.is_ascii() => 4,
        HirKind::Class(_) => 1,
        HirKind::Repetition(repetition) => {
            let copies = repetition.max.unwrap_or_else(|| repetition.min.saturating_add(1)).max(1);
            states(&repetition.sub).saturating_add(1).saturating_mul(copies as usize)
        }
        HirKind::Capture(capture) => states(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().map(states).fold(1, usize::saturating_add),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_costs_what_its_automaton_takes() {
        let steps = |pattern| CelPattern::compile(pattern, 0).unwrap().steps(1000);
        for ordinary in ["error", ".*error.*", r"^\d+-[a-z]+$", "^(a|b|c)$"] {
            assert_eq!(steps(ordinary), 1000, "{ordinary}");
        }
        assert!(steps("^[a-z0-9-]{1,64}$") < 10_000);
        assert!(steps("a[ab]{500}c") > 50_000);
        assert!(steps("(a[ab]{10}){50}") > 50_000);
    }
}
