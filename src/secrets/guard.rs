//! The guard: what happens to a submission in which a secret was found.

use super::rules::{HIGH_ENTROPY, MEMBER_NAME, RULES, SecretRule};
use super::scan;
use super::walk::{SecretFinding, SecretFindings, push_step};
use contract::{Error, Kind, NewEvent, Result, SecretPolicy, Violation, limits, parse_strict};
use serde_json::Value;
use std::sync::atomic::{AtomicU64, Ordering};

/// Inspects submissions, and counts what was found by rule.
#[derive(Debug)]
pub(crate) struct SecretGuard {
    /// Whether callers must authenticate. Then private keys and the broker's own keys are refused whatever the topic says: an own
    /// key in a topic would give its readers the rights of another caller.
    requires_authentication: bool,
    found: Box<[AtomicU64]>,
}

/// Which parts of an event are inspected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InspectedParts {
    /// All that a caller can put a secret into.
    All,
    /// `data` alone: the other members come from a stored event.
    Data,
    /// None: the event repeats a stored one.
    None,
}

/// The result of an inspection.
#[derive(Debug, Default)]
pub(crate) struct SecretInspection {
    /// Why the submission is refused.
    pub(crate) refusal: Option<Error>,
    /// The pointers to what is suspected.
    pub(crate) suspected: Vec<String>,
}

impl SecretGuard {
    pub(crate) fn new(requires_authentication: bool) -> Self {
        let found = (0..RULES.len() + 2).map(|_| AtomicU64::new(0)).collect();
        Self { requires_authentication, found }
    }

    /// Inspects an event; `data` is its parsed `data`.
    pub(crate) fn inspect_event(
        &self,
        policy: SecretPolicy,
        event: &NewEvent,
        data: &Value,
        parts: InspectedParts,
    ) -> SecretInspection {
        if parts == InspectedParts::None || self.ignores(policy) {
            return SecretInspection::default();
        }
        let mut findings = SecretFindings::default();
        if parts == InspectedParts::All {
            findings.add_text("/source", None, &event.source);
            if let Some(subject) = &event.subject {
                findings.add_text("/subject", None, subject);
            }
            add_members(&mut findings, "/context", event.context.iter());
        }
        if scan::may_hold_secret(event.data.get()) {
            findings.add_json(&mut "/data".to_owned(), None, data);
        }
        self.judge(policy, findings)
    }

    /// Inspects the headers of a subscription.
    pub(crate) fn inspect_headers<'a>(
        &self,
        policy: SecretPolicy,
        headers: impl Iterator<Item = (&'a String, &'a String)>,
    ) -> Result<()> {
        if self.ignores(policy) {
            return Ok(());
        }
        self.judge(policy, findings_of_headers(headers)).refusal.map_or(Ok(()), Err)
    }

    /// Inspects the payload of a task, which belongs to no topic: suspicions are flagged.
    pub(crate) fn inspect_payload(&self, json: &str) -> Result<()> {
        self.judge(SecretPolicy::default(), findings_of_payload(json)).refusal.map_or(Ok(()), Err)
    }

    fn ignores(&self, policy: SecretPolicy) -> bool {
        policy == SecretPolicy::Off && !self.requires_authentication
    }

    /// Decides what findings lead to.
    fn judge(&self, policy: SecretPolicy, findings: SecretFindings) -> SecretInspection {
        if findings.is_empty() {
            return SecretInspection::default();
        }
        let is_refused = |rule: &SecretRule| {
            rule.may_reject && policy == SecretPolicy::Reject || rule.always_rejected && self.requires_authentication
        };
        let SecretFindings { certain, suspected } = findings;
        let (refused, mut flagged): (Vec<_>, Vec<_>) = certain.into_iter().partition(|found| is_refused(found.rule));
        flagged.extend(suspected);
        if policy == SecretPolicy::Off {
            flagged.clear();
        }
        refused.iter().for_each(|found| self.count(found.rule, true));
        if !refused.is_empty() {
            return SecretInspection { refusal: Some(refusal(&refused)), suspected: Vec::new() };
        }
        flagged.iter().for_each(|found| self.count(found.rule, false));
        let mut suspected: Vec<_> = flagged.into_iter().map(|found| found.pointer).collect();
        suspected.dedup();
        SecretInspection { refusal: None, suspected }
    }

    /// Counts a finding. The log gets a line for the first, the second, the fourth and so on: whoever publishes must not be
    /// able to fill it.
    fn count(&self, rule: &'static SecretRule, is_refused: bool) {
        let index = RULES.iter().chain([&MEMBER_NAME, &HIGH_ENTROPY]).position(|known| known.name == rule.name);
        let Some(counter) = index.and_then(|index| self.found.get(index)) else { return };
        let count = counter.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            tracing::warn!(rule = rule.name, count, is_refused, "a submission looks like it contains a secret");
        }
    }

    /// How many findings of a rule were counted.
    #[cfg(test)]
    pub(super) fn counted(&self, name: &str) -> u64 {
        let index = RULES.iter().chain([&MEMBER_NAME, &HIGH_ENTROPY]).position(|known| known.name == name);
        index.and_then(|index| self.found.get(index)).map_or(0, |counter| counter.load(Ordering::Relaxed))
    }
}

/// The pointers to suspected headers of a subscription.
pub(crate) fn suspected_headers<'a>(headers: impl Iterator<Item = (&'a String, &'a String)>) -> Vec<String> {
    pointers(findings_of_headers(headers))
}

/// The pointers to what is suspected in the payload of a task.
pub(crate) fn suspected_payload(json: &str) -> Vec<String> {
    pointers(findings_of_payload(json))
}

fn pointers(SecretFindings { certain, suspected }: SecretFindings) -> Vec<String> {
    certain.into_iter().chain(suspected).map(|found| found.pointer).collect()
}

fn findings_of_headers<'a>(headers: impl Iterator<Item = (&'a String, &'a String)>) -> SecretFindings {
    let mut findings = SecretFindings::default();
    add_members(&mut findings, "/headers", headers);
    findings
}

fn findings_of_payload(json: &str) -> SecretFindings {
    let mut findings = SecretFindings::default();
    if scan::may_hold_secret(json) {
        let pointer = "/payload";
        match parse_strict(json, limits::DATA_DEPTH_MAX) {
            Ok(value) => findings.add_json(&mut pointer.to_owned(), None, &value),
            // It is not an error of a task that it is nested deeper, or has a member twice.
            Err(_) => findings.add_text(pointer, None, json),
        }
    }
    findings
}

fn add_members<'a>(
    findings: &mut SecretFindings,
    pointer: &str,
    members: impl Iterator<Item = (&'a String, &'a String)>,
) {
    for (name, value) in members {
        let mut place = pointer.to_owned();
        if findings.add_name(pointer, name) {
            push_step(&mut place, name);
        }
        findings.add_text(&place, Some(name), value);
    }
}

fn refusal(refused: &[SecretFinding]) -> Error {
    let violation = |SecretFinding { pointer, rule }: &SecretFinding| {
        let detail = format!("looks like {} ({}); store the id of a secret's version instead", rule.what, rule.name);
        Violation::new(pointer, detail)
    };
    Error::new(Kind::Validation, "The request contains what looks like a secret, and it may not; see `errors`.")
        .with_violations(refused.iter().map(violation).collect())
}
