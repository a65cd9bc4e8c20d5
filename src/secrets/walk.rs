//! Findings with their places.
//!
//! - The pointer to a member whose name looks like a secret, or is very long, is that of the object around it.
//! - A text counts once, with the rule that is most certain.

use super::entropy;
use super::names;
use super::rules::{HIGH_ENTROPY, MEMBER_NAME, SecretRule};
use super::scan;
use serde_json::Value;

/// Most findings of one kind (certain, suspected) that are reported of one submission.
pub(super) const FINDINGS_MAX: usize = 16;
/// Longest pointer of a finding; members further inside are reported with the pointer of what is around them.
pub(super) const POINTER_BYTES_MAX: usize = 256;

/// A place, and why it is suspected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SecretFinding {
    pub(super) pointer: String,
    pub(super) rule: &'static SecretRule,
}

impl PartialEq for SecretRule {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for SecretRule {}

/// The findings of one submission.
#[derive(Debug, Default)]
pub(super) struct SecretFindings {
    /// Those of rules that may refuse.
    pub(super) certain: Vec<SecretFinding>,
    pub(super) suspected: Vec<SecretFinding>,
}

impl SecretFindings {
    pub(super) fn add(&mut self, pointer: &str, rule: &'static SecretRule) {
        let list = if rule.may_reject { &mut self.certain } else { &mut self.suspected };
        let finding = SecretFinding { pointer: pointer.to_owned(), rule };
        if list.len() < FINDINGS_MAX && list.last() != Some(&finding) {
            list.push(finding);
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.certain.is_empty() && self.suspected.is_empty()
    }

    /// Inspects a text, which may be the value of a member with this name.
    pub(super) fn add_text(&mut self, pointer: &str, name: Option<&str>, text: &str) {
        if let Some(found) = scan::find(text, 0) {
            // A later match may be one that is always refused.
            let mut best = found;
            let mut next = scan::find(text, found.end);
            while let Some(found) = next.filter(|_| !best.rule.always_rejected) {
                best = if found.rule.always_rejected { found } else { best };
                next = scan::find(text, found.end);
            }
            self.add(pointer, best.rule);
        } else if name.is_some_and(names::is_secret_name) && names::is_secret_value(text) {
            self.add(pointer, &MEMBER_NAME);
        } else if entropy::is_suspicious(name, text) {
            self.add(pointer, &HIGH_ENTROPY);
        }
    }

    /// Inspects a member's name; returns whether it can be part of a pointer.
    pub(super) fn add_name(&mut self, pointer: &str, name: &str) -> bool {
        match scan::find(name, 0) {
            Some(found) => self.add(pointer, found.rule),
            None if entropy::is_suspicious(None, name) => self.add(pointer, &HIGH_ENTROPY),
            None => return pointer.len() + name.len() < POINTER_BYTES_MAX,
        }
        false
    }

    /// Inspects a JSON value.
    pub(super) fn add_json(&mut self, pointer: &mut String, name: Option<&str>, value: &Value) {
        match value {
            Value::String(text) => self.add_text(pointer, name, text),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.add_inside(pointer, Some(&index.to_string()), name, item);
                }
            }
            Value::Object(members) => {
                for (key, value) in members {
                    let shown = self.add_name(pointer, key).then_some(key.as_str());
                    self.add_inside(pointer, shown, Some(key), value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => (),
        }
    }

    fn add_inside(&mut self, pointer: &mut String, step: Option<&str>, name: Option<&str>, value: &Value) {
        let before = pointer.len();
        if let Some(step) = step {
            push_step(pointer, step);
        }
        self.add_json(pointer, name, value);
        pointer.truncate(before);
    }
}

/// Adds a step to a JSON pointer.
pub(super) fn push_step(pointer: &mut String, step: &str) {
    pointer.push('/');
    for letter in step.chars() {
        match letter {
            '~' => *pointer += "~0",
            '/' => *pointer += "~1",
            other => pointer.push(other),
        }
    }
}
