//! Lag: how many events a handler, and the group of its name, still has to do in a topic. One number for both.
//!
//! - What counts: open claims and open dead letters, and every event behind the group's offset that its filter takes and
//!   that is neither finished nor stale nor passed. What retention has removed does not count.
//! - The state alone answers where nothing has to be read: without a filter, and where no event can be stale.
//! - Otherwise the topic is read, each event once: a [`View`] remembers what it has found, and is read on from there.
//! - A damaged event counts by its header. Its body cannot be asked, so a filter takes it.
//! - The cost of one question is bounded. What could not be read yet counts as if it was to be done, so a number may be too
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

/// Views kept; beyond it the one that was not asked for longest goes.
const VIEWS_MAX: usize = 64;

/// How many events one request reads at most.
pub(crate) struct ScanBudget(usize);

impl Default for ScanBudget {
    fn default() -> Self {
        Self(limits::SCAN_EVENTS_MAX)
    }
}

/// Whose lag, in which topic.
pub(crate) struct LagQuery<'a> {
    pub(crate) ledger: &'a Ledger,
    /// The handler, and the group.
    pub(crate) name: &'a str,
    pub(crate) topic: &'a RegisteredTopic,
    /// The handler's order.
    pub(crate) order: ClaimOrder,
}

/// What is known of the lag of some names.
#[derive(Default)]
pub(crate) struct LagCache(Mutex<CachedViews>);

#[derive(Default)]
struct CachedViews {
    known: HashMap<(String, TopicId), CachedView>,
    /// Grows with every question.
    clock: u64,
}

struct CachedView {
    view: Arc<tokio::sync::Mutex<LagView>>,
    used: u64,
}

impl LagCache {
    /// How many events are to be done.
    pub(crate) async fn lag(&self, question: &LagQuery<'_>, budget: &mut ScanBudget) -> Result<u64> {
        let remaining = self.remaining_work(question, budget).await?;
        let (offset, tail) = (question.offset(), question.topic.tail());
        Ok(remaining.lag(&question.ledger.claims(), offset, tail))
    }

    /// What is to be done behind the group's offset, or behind any later one.
    pub(crate) async fn remaining_work(
        &self,
        question: &LagQuery<'_>,
        budget: &mut ScanBudget,
    ) -> Result<RemainingWork> {
        let start = question.start().await?;
        let kind = question.basis();
        if question.is_plain(&kind, start) {
            return Ok(question.plain(start));
        }
        let view = self.view(question);
        let mut view = view.lock().await;
        view.refresh(question, &kind, start)?;
        view.read_on(question, &mut budget.0).await?;
        Ok(view.remaining_work(question, start))
    }

    /// What is to be done behind another offset, that the group is to be moved to. Where its members divide the topic and
    /// it goes back, what is finished there is to be done again.
    pub(crate) async fn remaining_work_from(&self, question: &LagQuery<'_>, from: Sequence) -> Result<RemainingWork> {
        let is_back = from < question.offset();
        if !is_back {
            return self.remaining_work(question, &mut ScanBudget::default()).await;
        }
        let start = question.start_behind(from).await?;
        let kind = ViewBasis { again: question.is_divided(), ..question.basis() };
        if !kind.again && question.is_plain(&kind, start) {
            return Ok(question.plain(start));
        }
        let mut view = LagView::default();
        view.refresh(question, &kind, start)?;
        view.read_on(question, &mut ScanBudget::default().0).await?;
        Ok(view.remaining_work(question, start))
    }

    fn view(&self, question: &LagQuery<'_>) -> Arc<tokio::sync::Mutex<LagView>> {
        let mut views = self.lock();
        views.clock += 1;
        let used = views.clock;
        let key = (question.name.to_owned(), question.topic.topic.definition.id.clone());
        if views.known.len() >= VIEWS_MAX && !views.known.contains_key(&key) {
            let oldest = views.known.iter().min_by_key(|(_, known)| known.used).map(|(key, _)| key.clone());
            oldest.iter().for_each(|key| drop(views.known.remove(key)));
        }
        let known = views.known.entry(key).or_insert_with(|| CachedView { view: Arc::default(), used });
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

    fn is_divided(&self) -> bool {
        self.ledger.claims().group_progress(self.name, self.number()).is_some()
    }

    /// How far the group has come.
    fn offset(&self) -> Sequence {
        if let Some(division) = self.ledger.claims().group_progress(self.name, self.number()) {
            return division.watermark();
        }
        let readers = self.ledger.consumers();
        let group = readers.group(self.name);
        let offset = group.and_then(|group| group.offsets.get(&self.topic.topic.definition.id));
        offset.copied().map_or(Sequence::ZERO, Sequence::from)
    }

    /// What of the topic counts, and how.
    fn basis(&self) -> ViewBasis {
        let id = &self.topic.topic.definition.id;
        let filter = self.ledger.consumers().group(self.name).and_then(|group| group.filters.get(id).cloned());
        let claims = self.ledger.claims();
        let generation = claims.group_progress(self.name, self.number()).map(|division| division.generation());
        ViewBasis {
            latest: generation.is_none() && self.order == ClaimOrder::Latest,
            generation,
            deletions: claims.deletions(),
            filter: filter.unwrap_or_default(),
            again: false,
        }
    }

    /// Behind which sequence events count: the offset, or what is gone.
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

    /// Whether the state alone knows what is to be done: there is no filter, and what is finished has no gap, so that no
    /// event is stale.
    fn is_plain(&self, kind: &ViewBasis, start: Sequence) -> bool {
        let claims = self.ledger.claims();
        let highest = claims.highest(self.name, self.number());
        let has_no_gap = || {
            let finished = claims.finished_between(self.name, self.number(), start, highest);
            highest <= start || finished == highest.get() - start.get()
        };
        kind.filter.is_empty() && (!kind.latest || has_no_gap())
    }

    fn plain(&self, start: Sequence) -> RemainingWork {
        RemainingWork::plain(self.name, self.number(), start)
    }

    fn is_finished(&self, claims: &ClaimRows, sequence: Sequence) -> bool {
        claims.is_finished(self.name, self.number(), sequence)
    }
}

/// The filter of a group, ready for use.
fn compiled(filter: &ConsumerFilter) -> Result<filters::CompiledFilter> {
    let ConsumerFilter { types, subject_types, cel } = filter.clone();
    filters::compile(&EventFilter { types, subject_types, cel, ..EventFilter::default() })
}
