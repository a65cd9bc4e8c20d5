//! Handlers: their policies, and their state over all logs.

use super::claim::{is_lease, lease_rule};
use super::complete_decision::PutHandler;
use super::policy::{ClaimPolicy, span};
use super::{Claims, check_name};
use crate::lag::{LagQuery, ScanBudget};
use crate::ledger::{ClaimRows, ClaimState, Ledger, RegisteredTopic, ReplyRecorder};
use contract::{
    Cursor, Error, Handler, HandlerTopic, IsoDuration, Kind, NewHandler, Offset, Page, RegisterOutcome, Result,
    Timestamp, Violation, limits,
};
use log::TopicNumber;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A handler's state, summed over its logs.
#[derive(Default)]
struct HandlerTotals {
    topics: Vec<(Arc<Ledger>, Arc<RegisteredTopic>, HandlerTopic)>,
    oldest_failure: Option<Timestamp>,
}

impl Claims<'_> {
    /// Sets a handler's policy.
    pub(crate) async fn put_handler(
        &self,
        name: &str,
        handler: NewHandler,
        recorder: ReplyRecorder<RegisterOutcome<Handler>>,
    ) -> Result<RegisterOutcome<Handler>> {
        check(name, &handler)?;
        // The reply shows the progress as of now: a decision knows only its own log.
        let shown = self.handler_view(name, Some(&handler), &mut ScanBudget::default()).await?;
        let put = PutHandler { name: name.to_owned(), definition: Arc::new(handler) };
        let registered = move |is_new: &bool| match is_new {
            true => RegisterOutcome::Created(shown.clone()),
            false => RegisterOutcome::Unchanged(shown.clone()),
        };
        let seen = registered.clone();
        let recorder = recorder.map_answer(move |is_new| Some(Ok(seen(is_new))));
        Ok(registered(&self.context.logs.default_ledger().submit_recording(put, recorder).await?))
    }

    /// One handler: it has a policy, or has claimed an event.
    pub(crate) async fn handler(&self, name: &str) -> Result<Handler> {
        self.known_handler(name, &mut ScanBudget::default()).await
    }

    async fn known_handler(&self, name: &str, budget: &mut ScanBudget) -> Result<Handler> {
        if !self.context.logs.ledgers().iter().any(|ledger| ledger.claims().has_handler(name)) {
            return Err(Error::not_found("handler"));
        }
        let policy = self.context.logs.default_ledger().claims().policy(name).cloned();
        self.handler_view(name, policy.as_ref(), budget).await
    }

    /// A handler with this policy, as the API shows it.
    async fn handler_view(&self, name: &str, put: Option<&NewHandler>, budget: &mut ScanBudget) -> Result<Handler> {
        let policy = ClaimPolicy::of(put, self.defaults());
        let mut totals = HandlerTotals::default();
        self.context.logs.ledgers().iter().for_each(|ledger| totals.add(ledger, name, ledger.now()));
        let HandlerTotals { topics: found, oldest_failure } = totals;
        let mut topics = Vec::with_capacity(found.len());
        for (ledger, topic, progress) in found {
            let query = LagQuery { ledger: &ledger, name, topic: &topic, order: policy.order };
            topics.push(HandlerTopic { lag: self.lag.lag(&query, budget).await?, ..progress });
        }
        topics.sort_unstable_by(|one, other| one.topic.cmp(&other.topic));
        let sum = |count: fn(&HandlerTopic) -> u64| topics.iter().map(count).sum();
        let as_put = |put: Option<&IsoDuration>, millis: i64| put.cloned().unwrap_or_else(|| span(millis));
        Ok(Handler {
            name: name.to_owned(),
            lease: as_put(put.and_then(|it| it.lease.as_ref()), policy.lease_millis),
            max_attempts: policy.max_attempts,
            backoff: as_put(put.and_then(|it| it.backoff.as_ref()), policy.backoff_millis),
            order: policy.order,
            in_flight: sum(|topic| topic.in_flight),
            failed: sum(|topic| topic.failed),
            dead_letters: sum(|topic| topic.dead_letters),
            oldest_failure,
            lag: sum(|topic| topic.lag),
            stale: self.stale.count(name),
            topics,
        })
    }

    /// Handlers in order of their names, the page at `cursor`.
    pub(crate) async fn handlers(&self, cursor: Option<&Cursor>, limit: usize) -> Result<Page<Handler>> {
        self.context.reader.check_limit(limit)?;
        let mut names = BTreeSet::new();
        for ledger in self.context.logs.ledgers() {
            names.extend(ledger.claims().handlers().map(str::to_owned));
        }
        let Page { items, next, prev } = Page::of(names.into_iter(), cursor, limit, Clone::clone);
        let (mut views, mut budget) = (Vec::with_capacity(items.len()), ScanBudget::default());
        for name in &items {
            views.push(self.known_handler(name, &mut budget).await?);
        }
        Ok(Page { items: views, next, prev })
    }
}

impl HandlerTotals {
    /// Adds one log: the topics of which the handler has claimed events, or that its group reads.
    fn add(&mut self, ledger: &Arc<Ledger>, name: &str, now: i64) {
        let registry = ledger.registry();
        let (offsets, read) = match ledger.consumers().group(name) {
            Some(group) => (group.offsets.clone(), group.filters.keys().cloned().collect()),
            None => (BTreeMap::new(), Vec::new()),
        };
        let claims = ledger.claims();
        let claimed = claims.topics(name).filter_map(|number| registry.topic_numbered(TopicNumber(number)));
        let of_group = offsets.keys().chain(&read).filter_map(|id| registry.topic(id));
        let topics: BTreeMap<_, _> = claimed.chain(of_group).map(|topic| (topic.number, Arc::clone(topic))).collect();
        for topic in topics.into_values() {
            let (id, number) = (topic.topic.definition.id.clone(), topic.number.0);
            let committed = offsets.get(&id).copied().unwrap_or(Offset::ZERO);
            let finished = claims.highest(name, number).get().max(committed.get());
            let mut progress = HandlerTopic { topic: id, finished, lag: 0, in_flight: 0, failed: 0, dead_letters: 0 };
            self.count(&claims, name, number, now, &mut progress);
            self.topics.push((Arc::clone(ledger), topic, progress));
        }
    }

    fn count(&mut self, claims: &ClaimRows, name: &str, number: u32, now: i64, topic: &mut HandlerTopic) {
        for (_, row) in claims.open(name, number) {
            match row.standing {
                ClaimState::Live { until } if until > now => topic.in_flight += 1,
                ClaimState::Dead { .. } => topic.dead_letters += 1,
                ClaimState::Live { .. } | ClaimState::Failed { .. } | ClaimState::Redriven => topic.failed += 1,
                ClaimState::Released => (),
            }
            let failed_at = row.attempts.first().map(|attempt| attempt.failed_at);
            self.oldest_failure = [self.oldest_failure, failed_at].into_iter().flatten().min();
        }
    }
}

/// Checks a policy, and reports everything that is wrong with it.
fn check(name: &str, handler: &NewHandler) -> Result<()> {
    let NewHandler { lease, max_attempts, backoff, .. } = handler;
    let mut violations: Vec<_> = check_name(name, "/name").into_iter().collect();
    if lease.as_ref().is_some_and(|lease| !is_lease(lease.millis())) {
        violations.push(Violation::new("/lease", lease_rule()));
    }
    if max_attempts.is_some_and(|count| !(1..=limits::ATTEMPTS_MAX).contains(&count)) {
        violations.push(Violation::new("/maxAttempts", format!("must be between 1 and {}", limits::ATTEMPTS_MAX)));
    }
    if backoff.as_ref().is_some_and(|wait| wait.millis() > limits::BACKOFF_SECONDS_MAX * 1000) {
        let detail = format!("may be at most {} seconds", limits::BACKOFF_SECONDS_MAX);
        violations.push(Violation::new("/backoff", detail));
    }
    match violations.is_empty() {
        true => Ok(()),
        false => {
            Err(Error::new(Kind::Validation, "The handler breaks the rules; see `errors`.").with_violations(violations))
        }
    }
}
