//! A view: the events to be done in a topic for one name, so that the topic is read once.
//!
//! - An event is in the view once, under the sequence that identifies it, however many copies republishing has stored. Its place
//!   is the last of them: the event is to be done as long as one of them is after the group's offset.

use super::{LagQuery, RemainingWork, compiled};
use crate::events::original_of;
use crate::filters::{CompiledFilter, FilterStats};
use crate::ledger::{ClaimRows, ConsumerFilter, GroupProgress, read_failed};
use contract::{Position, Result, Sequence};
use log::{LogError, ReadLimit, ReadRange, Record, RecordHeader};
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, BTreeSet, HashMap};

const PAGE: ReadLimit = ReadLimit { records: 1024, bytes: 1024 * 1024 };
/// Most events kept one by one; those after them count unless the state alone says that they are settled.
const FOUND_MAX: usize = 20_000;

/// What a view depends on. If it changes, the view starts again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ViewBasis {
    /// Whether an event is stale if a later one of its aggregate is finished.
    pub(super) latest: bool,
    pub(super) generation: Option<Position>,
    pub(super) deletions: u64,
    pub(super) filter: ConsumerFilter,
    /// Whether finished events are to be done again.
    pub(super) again: bool,
}

/// The events to be done, as far as the topic was read.
#[derive(Default)]
pub(super) struct LagView {
    basis: Option<ViewBasis>,
    filter: Option<CompiledFilter>,
    /// The view has the events after this sequence.
    start: Sequence,
    scanned: Sequence,
    /// By the sequences that identify them.
    found: BTreeMap<Sequence, UndoneEvent>,
    /// The same, by aggregate.
    aggregates: HashMap<u128, BTreeSet<Sequence>>,
    /// The events that were found and have become stale: so are their copies.
    stale: RoaringTreemap,
}

/// An event to be done.
struct UndoneEvent {
    /// Where it is stored, or its last copy.
    place: Sequence,
    /// Its aggregate, if that matters.
    aggregate: Option<u128>,
}

impl LagView {
    /// Applies what has changed in the state: starts again if it must, and drops the events that are settled since.
    pub(super) fn refresh(&mut self, query: &LagQuery<'_>, basis: &ViewBasis, start: Sequence) -> Result<()> {
        if self.basis.as_ref() != Some(basis) || start < self.start {
            let filter = Some(compiled(&basis.filter)?);
            *self = Self { basis: Some(basis.clone()), filter, start, scanned: start, ..Self::default() };
        }
        // Events up to here are dropped below: a query after an earlier offset has to start again.
        (self.start, self.scanned) = (start, self.scanned.max(start));
        let claims = query.ledger.claims();
        let is_over = |(key, event): &(&Sequence, &UndoneEvent)| {
            event.place <= start || (!basis.again && is_settled(query, &claims, (**key, event.place)))
        };
        let over: Vec<_> = self.found.iter().filter(is_over).map(|(key, _)| *key).collect();
        for key in over {
            let is_done = query.is_finished(&claims, key);
            if let Some(Some(aggregate)) = self.remove(key).filter(|_| basis.latest && is_done) {
                self.overtake(aggregate, key);
            }
        }
        Ok(())
    }

    /// Continues to read towards the tail, as far as the budget allows.
    pub(super) async fn read_on(&mut self, query: &LagQuery<'_>, budget: &mut usize) -> Result<()> {
        let mut failures = FilterStats::default();
        while self.scanned < query.topic.tail() && *budget > 0 && self.found.len() < FOUND_MAX {
            // Loaded before the log is read: what is at or below it is in the log, or removed.
            let tail = query.topic.tail();
            let read = query.ledger.log().read(ReadRange::Topic(query.topic.number, self.scanned), PAGE).await;
            let page = match read {
                Err(LogError::Trimmed(earliest)) => {
                    self.scanned = Sequence(earliest.get().saturating_sub(1)).max(self.scanned);
                    continue;
                }
                Err(LogError::Damaged(_)) => {
                    self.ingest_damaged(query, tail).await?;
                    *budget -= 1;
                    continue;
                }
                page => page.map_err(read_failed)?,
            };
            self.ingest_page(query, &page, tail, &mut failures);
            *budget = budget.saturating_sub(page.len().max(1));
            self.scanned = page.last().map_or(tail, |record| record.header.sequence.min(tail));
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// The next event is damaged: it counts by its header, as an event that matches the filter.
    async fn ingest_damaged(&mut self, query: &LagQuery<'_>, tail: Sequence) -> Result<()> {
        let range = ReadRange::Topic(query.topic.number, self.scanned);
        let headers =
            query.ledger.log().headers(range, ReadLimit { records: 1, bytes: 0 }).await.map_err(read_failed)?;
        let Some(header) = headers.first().filter(|header| header.sequence <= tail) else {
            self.scanned = tail;
            return Ok(());
        };
        self.ingest(query, &query.ledger.claims(), (header, header.sequence), |_| true);
        self.scanned = header.sequence;
        Ok(())
    }

    fn ingest_page(&mut self, query: &LagQuery<'_>, page: &[Record], tail: Sequence, failures: &mut FilterStats) {
        let claims = query.ledger.claims();
        for record in page.iter().filter(|record| record.header.sequence <= tail) {
            let key = original_of(record).unwrap_or(record.header.sequence);
            self.ingest(query, &claims, (&record.header, key), |view| {
                let is_matched = |filter: &CompiledFilter| filter.is_empty() || filter.matches(record, failures);
                view.filter.as_ref().is_some_and(is_matched)
            });
        }
    }

    /// Adds the event with this key if it is to be done: if it is not settled, and is `wanted`.
    fn ingest(
        &mut self,
        query: &LagQuery<'_>,
        claims: &ClaimRows,
        (header, key): (&RecordHeader, Sequence),
        wanted: impl FnOnce(&Self) -> bool,
    ) {
        let Some(basis) = &self.basis else { return };
        let place = header.sequence;
        let aggregate = header.facets.and_then(|facets| Some(facets.aggregate?.key)).filter(|_| basis.latest);
        if is_final(query, claims, (key, place), basis.again) {
            if let Some(aggregate) = aggregate.filter(|_| query.is_finished(claims, key)) {
                self.overtake(aggregate, key);
            }
            return;
        }
        if self.stale.contains(key.get()) || !wanted(self) {
            return;
        }
        self.found.insert(key, UndoneEvent { place, aggregate });
        if let Some(aggregate) = aggregate {
            self.aggregates.entry(aggregate).or_default().insert(key);
        }
    }

    /// An event of an aggregate is finished: those before it are stale.
    fn overtake(&mut self, aggregate: u128, finished: Sequence) {
        let Some(events) = self.aggregates.get(&aggregate) else { return };
        let stale: Vec<_> = events.range(..finished).copied().collect();
        for key in stale {
            self.remove(key);
            self.stale.insert(key.get());
        }
    }

    fn remove(&mut self, key: Sequence) -> Option<Option<u128>> {
        let UndoneEvent { aggregate, .. } = self.found.remove(&key)?;
        if let Some(aggregate) = aggregate
            && let Some(events) = self.aggregates.get_mut(&aggregate)
        {
            events.remove(&key);
            if events.is_empty() {
                self.aggregates.remove(&aggregate);
            }
        }
        Some(aggregate)
    }

    pub(super) fn remaining_work(&self, query: &LagQuery<'_>, start: Sequence) -> RemainingWork {
        let found = self.found.iter().map(|(key, event)| (*key, event.place));
        let again = self.basis.as_ref().is_some_and(|basis| basis.again);
        RemainingWork::of(query.name, query.topic.number.0, (start, self.scanned), found, again)
    }
}

/// Whether an event, by its key, is finished, or the one at this place is passed. Older versions finished a copy by its place.
fn is_settled(query: &LagQuery<'_>, claims: &ClaimRows, (key, place): (Sequence, Sequence)) -> bool {
    let is_past = |progress: &GroupProgress| progress.is_past(place);
    claims.group_progress(query.name, query.topic.number.0).is_some_and(is_past)
        || query.is_finished(claims, key)
        || query.is_finished(claims, place)
}

/// The same, if finished events may be done again: a replaced one never is.
fn is_final(query: &LagQuery<'_>, claims: &ClaimRows, (key, place): (Sequence, Sequence), again: bool) -> bool {
    match again {
        true => claims.is_replaced(query.name, query.topic.number.0, key),
        false => is_settled(query, claims, (key, place)),
    }
}
