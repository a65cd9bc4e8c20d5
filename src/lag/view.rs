//! A view: what was found in a topic for one name, so that it is read once.

use super::{LagQuery, RemainingWork, compiled};
use crate::events::original_of;
use crate::filters::{CompiledFilter, FilterStats};
use crate::ledger::{ClaimRows, ConsumerFilter, read_failed};
use contract::{Position, Result, Sequence};
use log::{LogError, ReadLimit, ReadRange, Record, RecordHeader};
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, BTreeSet, HashMap};

const PAGE: ReadLimit = ReadLimit { records: 1024, bytes: 1024 * 1024 };
/// Most events remembered one by one; those behind them count as they are.
const FOUND_MAX: usize = 20_000;

/// What a view is about. Where it changes, the view begins anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ViewBasis {
    /// Whether an event is stale that a later one of its aggregate has passed.
    pub(super) latest: bool,
    pub(super) generation: Option<Position>,
    pub(super) deletions: u64,
    pub(super) filter: ConsumerFilter,
    /// Whether finished events are to be done again.
    pub(super) again: bool,
}

/// What was found.
#[derive(Default)]
pub(super) struct LagView {
    kind: Option<ViewBasis>,
    filter: Option<CompiledFilter>,
    /// Behind which it was begun.
    start: Sequence,
    scanned: Sequence,
    /// What is to be done, with its aggregate where that matters.
    found: BTreeMap<Sequence, Option<u128>>,
    aggregates: HashMap<u128, BTreeSet<Sequence>>,
}

impl LagView {
    /// Brings it in step with the state: begins anew where it must, and drops what is settled since.
    pub(super) fn refresh(&mut self, question: &LagQuery<'_>, kind: &ViewBasis, start: Sequence) -> Result<()> {
        if self.kind.as_ref() != Some(kind) || start < self.start {
            let filter = Some(compiled(&kind.filter)?);
            *self = Self { kind: Some(kind.clone()), filter, start, scanned: start, ..Self::default() };
        }
        self.scanned = self.scanned.max(start);
        let claims = question.ledger.claims();
        let is_over =
            |sequence: &Sequence| *sequence <= start || (!kind.again && is_settled(question, &claims, *sequence));
        let over: Vec<_> = self.found.keys().filter(|sequence| is_over(sequence)).copied().collect();
        for sequence in over {
            let is_done = question.is_finished(&claims, sequence);
            if let Some(Some(key)) = self.remove(sequence).filter(|_| kind.latest && is_done) {
                self.pass(key, sequence);
            }
        }
        Ok(())
    }

    /// Reads on towards the tail, as far as the budget goes.
    pub(super) async fn read_on(&mut self, question: &LagQuery<'_>, budget: &mut usize) -> Result<()> {
        let mut failures = FilterStats::default();
        while self.scanned < question.topic.tail() && *budget > 0 && self.found.len() < FOUND_MAX {
            // Looked at before the log is read: what is at or below it is in the log, or gone.
            let tail = question.topic.tail();
            let read = question.ledger.log().read(ReadRange::Topic(question.topic.number, self.scanned), PAGE).await;
            let page = match read {
                Err(LogError::Trimmed(earliest)) => {
                    self.scanned = Sequence(earliest.get().saturating_sub(1)).max(self.scanned);
                    continue;
                }
                Err(LogError::Damaged(_)) => {
                    self.take_in_damaged(question, tail).await?;
                    *budget -= 1;
                    continue;
                }
                page => page.map_err(read_failed)?,
            };
            self.ingest_page(question, &page, tail, &mut failures);
            *budget = budget.saturating_sub(page.len().max(1));
            self.scanned = page.last().map_or(tail, |record| record.header.sequence.min(tail));
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// The next event is damaged: what its header says counts, and it is to be done as far as the filter goes.
    async fn take_in_damaged(&mut self, question: &LagQuery<'_>, tail: Sequence) -> Result<()> {
        let range = ReadRange::Topic(question.topic.number, self.scanned);
        let headers =
            question.ledger.log().headers(range, ReadLimit { records: 1, bytes: 0 }).await.map_err(read_failed)?;
        let Some(header) = headers.first().filter(|header| header.sequence <= tail) else {
            self.scanned = tail;
            return Ok(());
        };
        self.ingest(question, &question.ledger.claims(), header, |_, _| true);
        self.scanned = header.sequence;
        Ok(())
    }

    fn ingest_page(&mut self, question: &LagQuery<'_>, page: &[Record], tail: Sequence, failures: &mut FilterStats) {
        let claims = question.ledger.claims();
        for record in page.iter().filter(|record| record.header.sequence <= tail) {
            self.ingest(question, &claims, &record.header, |view, kind| {
                let is_copy =
                    |original| is_final(question, &claims, original, kind.again) || view.found.contains_key(&original);
                let is_taken = |filter: &CompiledFilter| filter.is_empty() || filter.matches(record, failures);
                view.filter.as_ref().is_some_and(is_taken) && !original_of(record).is_some_and(is_copy)
            });
        }
    }

    /// Remembers an event that is to be done, if it is `wanted`.
    fn ingest(
        &mut self,
        question: &LagQuery<'_>,
        claims: &ClaimRows,
        header: &RecordHeader,
        wanted: impl FnOnce(&Self, &ViewBasis) -> bool,
    ) {
        let Some(kind) = &self.kind else { return };
        let sequence = header.sequence;
        let aggregate = header.facets.and_then(|facets| Some(facets.aggregate?.key)).filter(|_| kind.latest);
        if is_final(question, claims, sequence, kind.again) {
            if let Some(key) = aggregate.filter(|_| question.is_finished(claims, sequence)) {
                self.pass(key, sequence);
            }
            return;
        }
        if !wanted(self, kind) {
            return;
        }
        self.found.insert(sequence, aggregate);
        if let Some(key) = aggregate {
            self.aggregates.entry(key).or_default().insert(sequence);
        }
    }

    /// An event of an aggregate is finished: those before it are stale.
    fn pass(&mut self, key: u128, through: Sequence) {
        let Some(events) = self.aggregates.get(&key) else { return };
        let stale: Vec<_> = events.range(..through).copied().collect();
        stale.into_iter().for_each(|sequence| _ = self.remove(sequence));
    }

    fn remove(&mut self, sequence: Sequence) -> Option<Option<u128>> {
        let aggregate = self.found.remove(&sequence)?;
        if let Some(key) = aggregate
            && let Some(events) = self.aggregates.get_mut(&key)
        {
            events.remove(&sequence);
            if events.is_empty() {
                self.aggregates.remove(&key);
            }
        }
        Some(aggregate)
    }

    pub(super) fn remaining_work(&self, question: &LagQuery<'_>, start: Sequence) -> RemainingWork {
        let found: RoaringTreemap = self.found.keys().map(|sequence| sequence.get()).collect();
        let again = self.kind.as_ref().is_some_and(|kind| kind.again);
        RemainingWork::of(question.name, question.topic.number.0, (start, self.scanned), found, again)
    }
}

/// Whether an event is finished, or none of the group's business.
fn is_settled(question: &LagQuery<'_>, claims: &ClaimRows, sequence: Sequence) -> bool {
    let number = question.topic.number.0;
    let is_past = claims.group_progress(question.name, number).is_some_and(|division| division.is_past(sequence));
    is_past || question.is_finished(claims, sequence)
}

/// The same, where finished events may be done again: a replaced one never is.
fn is_final(question: &LagQuery<'_>, claims: &ClaimRows, sequence: Sequence, again: bool) -> bool {
    match again {
        true => claims.is_replaced(question.name, question.topic.number.0, sequence),
        false => is_settled(question, claims, sequence),
    }
}
