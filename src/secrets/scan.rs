//! The search: one automaton for the literals of all rules.

use super::entropy;
use super::names::{self, NAME_ENDS};
use super::rules::{RULES, SecretRule};
use aho_corasick::{AhoCorasick, Input, MatchKind};
use std::sync::LazyLock;

/// The literals, and the rule of each; `None` for the end of a member's name.
struct RuleLiterals {
    automaton: AhoCorasick,
    rules: Vec<Option<&'static SecretRule>>,
}

/// A constant that is computed at the first use. If the automaton could not be built, it would find nothing; a test sees that it
/// is built.
static LITERALS: LazyLock<Option<RuleLiterals>> = LazyLock::new(|| {
    let of_rules = RULES.iter().flat_map(|rule| rule.literals.iter().map(move |literal| (*literal, Some(rule))));
    let (texts, rules): (Vec<_>, Vec<_>) = of_rules.chain(NAME_ENDS.iter().map(|end| (*end, None))).unzip();
    let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(texts).ok()?;
    Some(RuleLiterals { automaton, rules })
});

/// A match of a rule.
#[derive(Debug, Clone, Copy)]
pub(super) struct SecretMatch {
    pub(super) rule: &'static SecretRule,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The first match of a rule at or after `from`, in a text that is not escaped.
pub(super) fn find(text: &str, from: usize) -> Option<SecretMatch> {
    let bytes = text.as_bytes();
    literals_from(bytes, from).find_map(|(rule, start, literal_end)| {
        let rule = rule?;
        rule.end_of(bytes, start, literal_end).map(|end| SecretMatch { rule, start, end })
    })
}

/// Whether JSON text may hold a secret: `false` is certain. An escape that could hide one counts as one.
pub(super) fn may_hold_secret(json: &str) -> bool {
    let bytes = json.as_bytes();
    let is_secret = |(rule, start, literal_end): (Option<&SecretRule>, usize, usize)| match rule {
        // The letter of an escape such as `\n` is not part of the text.
        Some(rule) if is_escape(bytes, start) => rule.end_of_body(bytes, literal_end).is_some(),
        Some(rule) => rule.end_of(bytes, start, literal_end).is_some(),
        None => names::is_secret_member(bytes, literal_end),
    };
    has_hiding_escape(json) || literals_from(bytes, 0).any(is_secret) || entropy::has_random_run(bytes)
}

/// The literals in a text, with their rules, begins and ends. The search for the next one begins inside the last one, which it may
/// overlap.
fn literals_from(
    bytes: &[u8],
    mut from: usize,
) -> impl Iterator<Item = (Option<&'static SecretRule>, usize, usize)> + '_ {
    std::iter::from_fn(move || {
        let literals = LITERALS.as_ref().filter(|_| from < bytes.len())?;
        let hit = literals.automaton.find(Input::new(bytes).range(from..))?;
        from = hit.start() + 1;
        Some((literals.rules.get(hit.pattern().as_usize()).copied().flatten(), hit.start(), hit.end()))
    })
}

/// Whether the two characters before `at` are an escape of JSON.
fn is_escape(bytes: &[u8], at: usize) -> bool {
    at.checked_sub(2).and_then(|before| bytes.get(before)) == Some(&b'\\')
}

/// Whether a text has `\u` or `\/`: only these spell a character of a rule differently.
fn has_hiding_escape(json: &str) -> bool {
    let pairs = json.as_bytes().windows(2);
    json.contains('\\') && pairs.into_iter().any(|pair| pair == b"\\u" || pair == b"\\/")
}

#[cfg(test)]
pub(super) fn is_built() -> bool {
    LITERALS.is_some()
}
