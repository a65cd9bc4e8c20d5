//! The search: one automaton for the literals of all rules.

use super::entropy;
use super::names::{self, NAME_ENDS};
use super::rules::{RULES, SecretRule};
use aho_corasick::{AhoCorasick, Input, MatchKind};
use std::sync::LazyLock;

/// The literals, and the rule of each; `None` for the end of a member's name.
struct Literals {
    automaton: AhoCorasick,
    rules: Vec<Option<&'static SecretRule>>,
}

/// A constant that is computed at the first use. If the automaton could not be built, it would find nothing; a test sees that it
/// is built.
static LITERALS: LazyLock<Option<Literals>> = LazyLock::new(|| {
    let of_rules = RULES.iter().flat_map(|rule| rule.literals.iter().map(move |literal| (*literal, Some(rule))));
    let (texts, rules): (Vec<_>, Vec<_>) = of_rules.chain(NAME_ENDS.iter().map(|end| (*end, None))).unzip();
    let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(texts).ok()?;
    Some(Literals { automaton, rules })
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
    let literals = LITERALS.as_ref()?;
    let bytes = text.as_bytes();
    let mut from = from;
    while from < bytes.len() {
        let hit = literals.automaton.find(Input::new(bytes).range(from..))?;
        from = hit.end();
        let Some(rule) = literals.rules.get(hit.pattern().as_usize()).copied().flatten() else { continue };
        if let Some(end) = rule.end_of(bytes, hit.start(), hit.end()) {
            return Some(SecretMatch { rule, start: hit.start(), end });
        }
    }
    None
}

/// Whether JSON text may hold a secret: `false` is certain, if the text is valid. An escape that could hide one counts as one.
pub(super) fn may_hold_secret(json: &str) -> bool {
    let Some(literals) = LITERALS.as_ref() else { return false };
    let bytes = json.as_bytes();
    let is_secret = |hit: aho_corasick::Match| match literals.rules.get(hit.pattern().as_usize()).copied().flatten() {
        Some(rule) => rule.end_of(bytes, hit.start(), hit.end()).is_some(),
        None => names::is_secret_member(bytes, hit.end()),
    };
    has_hiding_escape(json)
        || literals.automaton.find_iter(bytes).any(is_secret)
        || entropy::random_run(bytes).is_some()
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
