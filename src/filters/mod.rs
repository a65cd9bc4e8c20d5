//! Filters: which stored events a reader wants, compiled once and asked for every record.
//!
//! - Cheapest first: the header decides about tenants, a memo of the header's fingerprints about types, one borrowed
//!   parse of the body about the other members, and CEL comes last.
//! - Values of one member widen, different members narrow; so do the values and the keys of `context`.
//! - `occurredFrom` is inclusive, `occurredTo` exclusive.
//! - An entry of the broker's own matches no filter, not even the empty one.
//! - A CEL expression that has no answer for an event does not match it, and is counted.
//!
//! How far a read scans, and what is done with a match, is the reader's business.

mod body_conditions;
mod cel;
#[cfg(test)]
mod tests;
mod verdict_cache;

use body_conditions::{BodyConditions, ParsedBody};
use cel::CelProgram;
use contract::{EventFilter, IdPattern, Identifier, Result};
use log::Record;
use verdict_cache::VerdictCache;

/// A filter ready for use; share it between the tasks that read.
pub struct CompiledFilter {
    /// Sorted; empty: any tenant, or none.
    tenants: Vec<u128>,
    types: Option<TypePatterns>,
    subject_types: Option<TypePatterns>,
    conditions: Option<BodyConditions>,
    program: Option<CelProgram>,
}

/// What asking CEL expressions has come to: how often one had no answer, and how much work it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FilterStats {
    count: u64,
    steps: u64,
}

/// Compiles a filter; a CEL expression that is not valid is refused with its line and column.
pub fn compile(filter: &EventFilter) -> Result<CompiledFilter> {
    let mut tenants: Vec<u128> = filter.tenants.iter().map(|tenant| tenant.as_u128()).collect();
    tenants.sort_unstable();
    Ok(CompiledFilter {
        tenants,
        types: TypePatterns::of(&filter.types),
        subject_types: TypePatterns::of(&filter.subject_types),
        conditions: BodyConditions::of(filter),
        program: filter.cel.as_deref().map(CelProgram::compile).transpose()?,
    })
}

impl CompiledFilter {
    /// Whether it takes every event: then there is no need to ask.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty()
            && self.types.is_none()
            && self.subject_types.is_none()
            && self.conditions.is_none()
            && self.program.is_none()
    }

    /// Whether it takes this record.
    pub fn matches(&self, record: &Record, failures: &mut FilterStats) -> bool {
        let Some(facets) = &record.header.facets else { return false };
        let body = ParsedBody::new(&record.body);
        self.takes_tenant(facets.tenant)
            && self.types.as_ref().is_none_or(|types| types.take(facets.type_tag, || body.event_type()))
            && self
                .subject_types
                .as_ref()
                .is_none_or(|types| types.take(facets.subject_type_tag, || body.subject_type()))
            && self.conditions.as_ref().is_none_or(|conditions| conditions.are_met(&body))
            && self.program.as_ref().is_none_or(|program| failures.evaluate(program, body.text()))
    }

    /// In a header 0 is no tenant, so it is nobody's.
    fn takes_tenant(&self, tenant: u128) -> bool {
        self.tenants.is_empty() || tenant != 0 && self.tenants.binary_search(&tenant).is_ok()
    }
}

impl FilterStats {
    /// How often there was no answer: a member was absent, types did not fit, or it took too many steps.
    #[must_use]
    pub fn count(self) -> u64 {
        self.count
    }

    /// The work so far. One event is bounded, a scan of many is not: past some hundred thousand steps (a few
    /// milliseconds) a reader should let others run.
    #[must_use]
    pub fn steps(self) -> u64 {
        self.steps
    }

    /// No answer is no match, and counts.
    fn evaluate(&mut self, program: &CelProgram, body: &[u8]) -> bool {
        let answer = program.matches(body, &mut self.steps);
        self.count += u64::from(answer.is_none());
        answer.unwrap_or(false)
    }
}

/// Patterns of one member, and what they said about the fingerprints seen so far.
struct TypePatterns {
    patterns: Vec<IdPattern>,
    memo: VerdictCache,
}

impl TypePatterns {
    /// `None` where there are no patterns: then any type will do, or none.
    fn of(patterns: &[IdPattern]) -> Option<Self> {
        (!patterns.is_empty()).then(|| Self { patterns: patterns.to_vec(), memo: VerdictCache::new() })
    }

    /// Whether a pattern takes the type with this fingerprint; `name` finds its name in the event.
    fn take<'b>(&self, tag: u64, name: impl FnOnce() -> Option<&'b str>) -> bool {
        self.memo.verdict(tag, || {
            let id = name().and_then(|name| Identifier::parse(name).ok());
            id.is_some_and(|id| self.patterns.iter().any(|pattern| pattern.matches(&id)))
        })
    }
}
