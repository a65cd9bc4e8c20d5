//! Lag: how many events a handler, and the group of its name, still has to do in a topic. One number for both.
//!
//! - Open claims and open dead letters count, and every event after the group's offset that its filter matches and that is
//!   neither finished nor stale nor passed. An event and its republished copies count once. Removed events do not count.
//! - The state alone is sufficient only if everything is settled: what is unsettled has to be read, because its body says whether
//!   it is a copy of a finished event.
//! - Each event is read once: a [`LagView`] keeps what it has found, and continues from there.
//! - A damaged event counts by its header. Its body cannot be read, so it counts as an event that matches the filter.
//! - The cost of one query is bounded. Events that were not read yet count as if they were to be done, so a number may be too
//!   high at first, never too low.

mod remaining_work;
mod view;

pub(crate) use remaining_work::RemainingWork;

use crate::filters;
use crate::ledger::{ClaimRows, ConsumerFilter, Ledger, RegisteredTopic, read_failed};
use contract::{ClaimOrder, EventFilter, Result, Sequence, TopicId, limits};
use log::{LogError, ReadLimit, ReadRange};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use view::{LagView, ViewBasis};

/// Views kept; beyond that the least recently used one is dropped.
const VIEWS_MAX: usize = 64;

/// How many more events one request may read.
pub(crate) struct ScanBudget(usize);

impl Default for ScanBudget {
    fn default() -> Self {
        Self(limits::SCAN_EVENTS_MAX)
    }
}

/// A query for the lag of a name in a topic.
pub(crate) struct LagQuery<'a> {
    pub(crate) ledger: &'a Ledger,
    /// The handler, and the group.
    pub(crate) name: &'a str,
    pub(crate) topic: &'a Arc<RegisteredTopic>,
    /// The handler's order.
    pub(crate) order: ClaimOrder,
}

/// The views of the names whose lag was queried last.
#[derive(Default)]
pub(crate) struct LagCache(Mutex<CachedViews>);

#[derive(Default)]
struct CachedViews {
    known: HashMap<(String, TopicId), CachedView>,
    /// Grows with every query.
    clock: u64,
}

struct CachedView {
    /// If another topic has the name now, the view is not valid.
    topic: Arc<RegisteredTopic>,
    view: Arc<tokio::sync::Mutex<LagView>>,
    used: u64,
}

impl LagCache {
    /// How many events are to be done.
    pub(crate) async fn lag(&self, query: &LagQuery<'_>, budget: &mut ScanBudget) -> Result<u64> {
        let remaining = self.remaining_work(query, budget).await?;
        let (offset, tail) = (query.offset(), query.topic.tail());
        Ok(remaining.lag(&query.ledger.claims(), offset, tail))
    }

    /// The events to be done after the group's offset, or after any later one.
    pub(crate) async fn remaining_work(&self, query: &LagQuery<'_>, budget: &mut ScanBudget) -> Result<RemainingWork> {
        let start = query.start().await?;
        let basis = query.basis();
        if query.is_plain(start) {
            return Ok(query.plain(start));
        }
        let view = self.view(query);
        let mut view = view.lock().await;
        view.refresh(query, &basis, start)?;
        view.read_on(query, &mut budget.0).await?;
        Ok(view.remaining_work(query, start))
    }

    /// The events to be done after another offset that the group is to be moved to. If a shared group goes back, finished events
    /// after that offset are to be done again.
    pub(crate) async fn remaining_work_from(&self, query: &LagQuery<'_>, from: Sequence) -> Result<RemainingWork> {
        let is_back = from < query.offset();
        if !is_back {
            return self.remaining_work(query, &mut ScanBudget::default()).await;
        }
        let start = query.start_behind(from).await?;
        let basis = ViewBasis { again: query.is_shared(), ..query.basis() };
        if !basis.again && query.is_plain(start) {
            return Ok(query.plain(start));
        }
        let mut view = LagView::default();
        view.refresh(query, &basis, start)?;
        view.read_on(query, &mut ScanBudget::default().0).await?;
        Ok(view.remaining_work(query, start))
    }

    fn view(&self, query: &LagQuery<'_>) -> Arc<tokio::sync::Mutex<LagView>> {
        let mut views = self.lock();
        views.clock += 1;
        let used = views.clock;
        let key = (query.name.to_owned(), query.topic.topic.definition.id.clone());
        if views.known.len() >= VIEWS_MAX && !views.known.contains_key(&key) {
            let oldest = views.known.iter().min_by_key(|(_, known)| known.used).map(|(key, _)| key.clone());
            oldest.iter().for_each(|key| drop(views.known.remove(key)));
        }
        let new = || CachedView { topic: Arc::clone(query.topic), view: Arc::default(), used };
        let known = views.known.entry(key).or_insert_with(new);
        if !known.topic.is_same(query.topic) {
            *known = new();
        }
        known.used = used;
        Arc::clone(&known.view)
    }

    fn lock(&self) -> MutexGuard<'_, CachedViews> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LagQuery<'_> {
    fn number(&self) -> u32 {
        self.topic.number.0
    }

    fn is_shared(&self) -> bool {
        self.ledger.claims().group_progress(self.name, self.number()).is_some()
    }

    /// The group's committed offset.
    fn offset(&self) -> Sequence {
        if let Some(progress) = self.ledger.claims().group_progress(self.name, self.number()) {
            return progress.watermark();
        }
        let consumers = self.ledger.consumers();
        let group = consumers.group(self.name);
        let offset = group.and_then(|group| group.offsets.get(&self.topic.topic.definition.id));
        offset.copied().map_or(Sequence::ZERO, Sequence::from)
    }

    /// Which events of the topic count.
    fn basis(&self) -> ViewBasis {
        let id = &self.topic.topic.definition.id;
        let filter = self.ledger.consumers().group(self.name).and_then(|group| group.filters.get(id).cloned());
        let claims = self.ledger.claims();
        let generation = claims.group_progress(self.name, self.number()).map(|progress| progress.generation());
        ViewBasis {
            latest: generation.is_none() && self.order == ClaimOrder::Latest,
            generation,
            deletions: claims.deletions(),
            filter: filter.unwrap_or_default(),
            again: false,
        }
    }

    /// Events after this sequence count: the offset, or the last removed one.
    async fn start(&self) -> Result<Sequence> {
        self.start_behind(self.offset()).await
    }

    async fn start_behind(&self, offset: Sequence) -> Result<Sequence> {
        if offset >= self.topic.tail() {
            return Ok(offset);
        }
        let range = ReadRange::Topic(self.topic.number, offset);
        match self.ledger.log().headers(range, ReadLimit { records: 1, bytes: 0 }).await {
            Err(LogError::Trimmed(earliest)) => Ok(Sequence(earliest.get().saturating_sub(1)).max(offset)),
            page => page.map(|_| offset).map_err(read_failed),
        }
    }

    /// Whether the state alone is sufficient: every event after `start` is settled.
    fn is_plain(&self, start: Sequence) -> bool {
        let tail = self.topic.tail();
        let settled = self.ledger.claims().settled_between(self.name, self.number(), start, tail);
        settled == tail.get().saturating_sub(start.get())
    }

    fn plain(&self, start: Sequence) -> RemainingWork {
        RemainingWork::plain(self.name, self.number(), start)
    }

    fn is_finished(&self, claims: &ClaimRows, sequence: Sequence) -> bool {
        claims.is_finished(self.name, self.number(), sequence)
    }
}

/// The compiled filter of a group.
fn compiled(filter: &ConsumerFilter) -> Result<filters::CompiledFilter> {
    let ConsumerFilter { types, subject_types, cel } = filter.clone();
    filters::compile(&EventFilter { types, subject_types, cel, ..EventFilter::default() })
}
