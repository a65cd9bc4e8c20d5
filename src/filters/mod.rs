//! Filters: which stored events a reader gets; compiled once, evaluated for every record.
//!
//! - The cheapest conditions come first: tenants are in the header, types are decided by a cache of the header's tags,
//!   other members by one borrowing parse of the body; CEL comes last.
//! - Several values of one member are alternatives; different members must all match. The same holds for values and
//!   keys of `context`.
//! - `occurredFrom` is inclusive, `occurredTo` exclusive.
//! - The broker's own entries match no filter, not even the empty one.
//! - An event for which a CEL expression cannot be evaluated does not match, and is counted.
//!
//! Readers decide how far they scan, and what they do with a match.

mod body_conditions;
mod cel;
#[cfg(test)]
mod tests;
mod verdict_cache;

use body_conditions::{BodyConditions, ParsedBody};
use cel::CelProgram;
use contract::{EventFilter, IdPattern, Identifier, Result};
use log::{Record, RecordHeader};
use verdict_cache::VerdictCache;

/// A compiled filter; it can be shared between tasks.
pub struct CompiledFilter {
    /// Sorted; empty: any tenant, or none.
    tenants: Vec<u128>,
    types: Option<TypePatterns>,
    subject_types: Option<TypePatterns>,
    conditions: Option<BodyConditions>,
    program: Option<CelProgram>,
}

/// Statistics of CEL evaluations: failures, and the work done.
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
    /// Whether it accepts every event, and need not be evaluated.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty()
            && self.types.is_none()
            && self.subject_types.is_none()
            && self.conditions.is_none()
            && self.program.is_none()
    }

    /// Whether it accepts this record.
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

    /// Whether it may accept a record whose body cannot be read, by its header and the name of its type, if that is known:
    /// whatever only the body tells counts as met.
    #[must_use]
    pub fn may_match(&self, header: &RecordHeader, event_type: Option<&str>) -> bool {
        let Some(facets) = &header.facets else { return false };
        let is_type =
            |types: &TypePatterns| event_type.is_none_or(|event_type| types.take(facets.type_tag, || Some(event_type)));
        self.takes_tenant(facets.tenant)
            && self.types.as_ref().is_none_or(is_type)
            && (self.subject_types.is_none() || facets.subject_type_tag != 0)
    }

    /// In a header, 0 stands for no tenant.
    fn takes_tenant(&self, tenant: u128) -> bool {
        self.tenants.is_empty() || tenant != 0 && self.tenants.binary_search(&tenant).is_ok()
    }
}

impl FilterStats {
    /// How many evaluations failed: a member was absent, types did not fit, or there were too many steps.
    #[must_use]
    pub fn count(self) -> u64 {
        self.count
    }

    /// The work so far, in steps. The work for one event is bounded, that of a scan is not: after some hundred thousand
    /// steps (a few milliseconds) a reader should let other tasks run.
    #[must_use]
    pub fn steps(self) -> u64 {
        self.steps
    }

    /// A failed evaluation is no match, and is counted.
    fn evaluate(&mut self, program: &CelProgram, body: &[u8]) -> bool {
        let answer = program.matches(body, &mut self.steps);
        self.count += u64::from(answer.is_none());
        answer.unwrap_or(false)
    }
}

/// The patterns of one member, and their cached verdicts by tag.
struct TypePatterns {
    patterns: Vec<IdPattern>,
    memo: VerdictCache,
}

impl TypePatterns {
    /// `None` if there are no patterns: any type matches, or none.
    fn of(patterns: &[IdPattern]) -> Option<Self> {
        (!patterns.is_empty()).then(|| Self { patterns: patterns.to_vec(), memo: VerdictCache::new() })
    }

    /// Whether a pattern matches the type with this tag; `name` reads its name from the event.
    fn take<'b>(&self, tag: u64, name: impl FnOnce() -> Option<&'b str>) -> bool {
        self.memo.verdict(tag, || {
            let id = name().and_then(|name| Identifier::parse(name).ok());
            id.is_some_and(|id| self.patterns.iter().any(|pattern| pattern.matches(&id)))
        })
    }
}
