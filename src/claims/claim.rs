//! Claiming, one or several events at a time: each item has its own answer, each log makes one decision.
//!
//! - A republished copy is claimed under its original's sequence, so that a handler does an event once, whichever copy it claims.
//! - Under an idempotency key a log decides all of its items or none, and stores the reply to all of them in the same append.
//!   Items of several logs take several appends; their reply is stored after the last one by the route.

use super::claim_decision::{ClaimEvents, ClaimRequest, ClaimVerdict, OrderedBy};
use super::order::{self, AggregateReads};
use super::policy::ClaimDefaults;
use super::{Claims, UNKNOWN_OWNER, check_name, view};
use crate::events::{damage_detail, find_event, original_of};
use crate::ledger::{ClaimKey, Ledger, ReplyRecorder, changed_concurrently, decide_while_unknown, read_failed};
use crate::logs::{LocatedTopic, LogRef};
use contract::{
    ClaimAnswer, ClaimOutcome, Error, Kind, NewClaim, Result, Sequence, Timestamp, TopicId, Violation, limits,
};
use futures_util::future::join_all;
use log::{LogError, ReadLimit, ReadRange, Record, RecordHeader};
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use uuid::Uuid;

/// Events of a request that are this close to each other are read at once, with those between them.
const ADJACENT_GAP: u64 = 4;
/// Most bytes of events read at once for their headers.
const RUN_BYTES: usize = 4 * 1024 * 1024;

/// The items of a request that one log decides, by their indexes.
pub(super) struct LogItems<T> {
    pub(super) place: LogRef,
    pub(super) items: Vec<(usize, T)>,
}

/// Sorts items by the log that decides them; the order within each is kept. A reply is stored by the decision only if one
/// log decides all items.
pub(super) fn group_by_log<T, A: 'static>(
    items: Vec<(usize, LogRef, T)>,
    recorder: ReplyRecorder<ItemResults<A>>,
) -> (Vec<LogItems<T>>, ReplyRecorder<ItemResults<A>>) {
    let mut parts: Vec<LogItems<T>> = Vec::new();
    for (index, place, item) in items {
        match parts.iter_mut().find(|part| part.place == place) {
            Some(part) => part.items.push((index, item)),
            None => parts.push(LogItems { place, items: vec![(index, item)] }),
        }
    }
    let recorder = if parts.len() == 1 { recorder } else { ReplyRecorder::disabled() };
    (parts, recorder)
}

/// One answer per item of a request.
#[derive(Clone)]
pub(super) struct ItemAnswers<T>(Vec<Option<Result<T>>>);

/// The answers to all items of a request.
pub(super) type ItemResults<T> = Vec<Result<T>>;

impl<T> ItemAnswers<T> {
    pub(super) fn of(count: usize) -> Self {
        Self((0..count).map(|_| None).collect())
    }

    pub(super) fn put(&mut self, index: usize, answer: Result<T>) {
        if let Some(place) = self.0.get_mut(index) {
            *place = Some(answer);
        }
    }

    /// The same answer for several items.
    pub(super) fn put_all<I>(&mut self, items: &[(usize, I)], answer: &Error) {
        items.iter().for_each(|(index, _)| self.put(*index, Err(answer.clone())));
    }

    pub(super) fn finish(self) -> ItemResults<T> {
        debug_assert!(self.0.iter().all(Option::is_some), "every item has an answer");
        self.0.into_iter().map(|answer| answer.unwrap_or_else(no_answer)).collect()
    }
}

/// An event to be claimed.
#[derive(Clone)]
struct FoundEvent {
    located: LocatedTopic,
    header: RecordHeader,
    /// The sequence that identifies it: its original's, if it is a copy.
    key: Sequence,
}

impl FoundEvent {
    fn of(located: &LocatedTopic, record: &Record) -> Self {
        let key = original_of(record).unwrap_or(record.header.sequence);
        Self { located: located.clone(), header: record.header, key }
    }
}

/// Events by their topics and sequences.
type EventsByTopic = HashMap<TopicId, HashMap<Sequence, FoundEvent>>;

pub(super) fn check_count(count: usize) -> Result<()> {
    match count {
        0 => Err(Error::invalid("/claims", "is empty: name at least one")),
        _ if count > limits::CLAIMS_BATCH_MAX => {
            let detail = format!("A request may name {} claims; split it.", limits::CLAIMS_BATCH_MAX);
            Err(Error::new(Kind::BatchTooLarge, detail))
        }
        _ => Ok(()),
    }
}

impl Claims<'_> {
    /// Claims one event.
    pub(crate) async fn claim(&self, claim: NewClaim, recorder: ReplyRecorder<ClaimOutcome>) -> Result<ClaimOutcome> {
        let mut answers = self.claim_several(vec![claim], recorder.map_answer(single_answer)).await;
        answers.pop().unwrap_or_else(no_answer)
    }

    /// Claims several events, each by itself.
    pub(crate) async fn claim_batch(
        &self,
        claims: Vec<NewClaim>,
        recorder: ReplyRecorder<ItemResults<ClaimOutcome>>,
    ) -> Result<ItemResults<ClaimOutcome>> {
        check_count(claims.len())?;
        Ok(self.claim_several(claims, recorder).await)
    }

    async fn claim_several(
        &self,
        claims: Vec<NewClaim>,
        recorder: ReplyRecorder<ItemResults<ClaimOutcome>>,
    ) -> ItemResults<ClaimOutcome> {
        let mut answers = ItemAnswers::of(claims.len());
        let mut found = Vec::with_capacity(claims.len());
        let (known, mut is_refreshed) = (self.read_adjacent(&claims).await, false);
        for (index, claim) in claims.into_iter().enumerate() {
            let mut request = self.claim_request(claim.clone(), &known).await;
            if self.context.refresh_once(&mut request, &mut is_refreshed).await {
                request = self.claim_request(claim, &known).await;
            }
            match request {
                Ok((place, wanted)) => found.push((index, place, wanted)),
                Err(error) => answers.put(index, Err(error)),
            }
        }
        let (parts, recorder) = group_by_log(found, recorder);
        for part in parts {
            self.decide_claims(part, &mut answers, &recorder).await;
        }
        answers.finish()
    }

    /// Has one log decide its items. Those that need a read are decided again; under an idempotency key, all of them.
    async fn decide_claims(
        &self,
        LogItems { place, items }: LogItems<ClaimRequest>,
        answers: &mut ItemAnswers<ClaimOutcome>,
        recorder: &ReplyRecorder<ItemResults<ClaimOutcome>>,
    ) {
        let ledger = self.context.logs.ledger(&place);
        let decided = decide_while_unknown((items, answers), |(items, answers)| async move {
            let verdicts = self.submit_claims(ledger, &items, answers, recorder).await;
            let again = self.answer_decided(ledger, items, verdicts, answers, recorder).await;
            Ok(if again.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue((again, answers)) })
        });
        if let Ok(ControlFlow::Continue((items, answers))) = decided.await {
            answers.put_all(&items, &changed_concurrently());
        }
    }

    async fn submit_claims(
        &self,
        ledger: &Ledger,
        items: &[(usize, ClaimRequest)],
        answers: &ItemAnswers<ClaimOutcome>,
        recorder: &ReplyRecorder<ItemResults<ClaimOutcome>>,
    ) -> Vec<Result<ClaimVerdict>> {
        let (indexes, requests): (Vec<_>, Vec<_>) = items.iter().cloned().unzip();
        let (requests, all_or_none) = (Arc::new(requests), recorder.is_enabled());
        let recorder = match all_or_none {
            true => self.claim_recorder(recorder, &indexes, &requests, answers),
            false => ReplyRecorder::disabled(),
        };
        let command = ClaimEvents { items: requests, defaults: self.defaults(), all_or_none };
        let verdicts = ledger.submit_recording(command, recorder).await;
        verdicts.unwrap_or_else(|error| indexes.iter().map(|_| Err(error.clone())).collect())
    }

    /// Answers the items that are decided, and reads what the others need; returns those to be decided again.
    async fn answer_decided(
        &self,
        ledger: &Ledger,
        items: Vec<(usize, ClaimRequest)>,
        verdicts: Vec<Result<ClaimVerdict>>,
        answers: &mut ItemAnswers<ClaimOutcome>,
        recorder: &ReplyRecorder<ItemResults<ClaimOutcome>>,
    ) -> Vec<(usize, ClaimRequest)> {
        let needs_read = |verdict: &Result<ClaimVerdict>| matches!(verdict, Ok(ClaimVerdict::NeedsRead(_)));
        let is_undone = recorder.is_enabled() && verdicts.iter().any(needs_read);
        let (mut again, mut unread) = (Vec::new(), Vec::new());
        for ((index, request), verdict) in items.into_iter().zip(verdicts) {
            match verdict {
                Ok(ClaimVerdict::NeedsRead(need)) => unread.push((index, request, need)),
                _ if is_undone => again.push((index, request)),
                Ok(verdict) => {
                    if matches!(verdict, ClaimVerdict::Stale) {
                        self.stale.note(&request.key.handler, &request.topic, request.key.sequence);
                    }
                    answers.put(index, Ok(outcome(&request, &verdict, self.defaults())));
                }
                Err(error) => answers.put(index, Err(error)),
            }
        }
        let reads = unread.into_iter().map(async |(index, mut request, need)| {
            let read = order::read(ledger, &mut request, need).await;
            (index, read.map(|()| request))
        });
        for (index, read) in join_all(reads).await {
            match read {
                Ok(request) => again.push((index, request)),
                Err(error) => answers.put(index, Err(error)),
            }
        }
        again.sort_unstable_by_key(|(index, _)| *index);
        again
    }

    /// The reply to store with a decision: its answers, and those that are known already. `None` if it is to be repeated.
    fn claim_recorder(
        &self,
        recorder: &ReplyRecorder<ItemResults<ClaimOutcome>>,
        indexes: &[usize],
        requests: &Arc<Vec<ClaimRequest>>,
        answers: &ItemAnswers<ClaimOutcome>,
    ) -> ReplyRecorder<Vec<Result<ClaimVerdict>>> {
        let (indexes, requests) = (indexes.to_vec(), Arc::clone(requests));
        let (answers, defaults) = (answers.clone(), self.defaults());
        recorder.map_answer(move |verdicts: &Vec<Result<ClaimVerdict>>| {
            let mut answers = answers.clone();
            for ((index, request), verdict) in indexes.iter().zip(requests.iter()).zip(verdicts) {
                match verdict {
                    Ok(ClaimVerdict::NeedsRead(_)) => return None,
                    Ok(verdict) => answers.put(*index, Ok(outcome(request, verdict, defaults))),
                    Err(error) => answers.put(*index, Err(error.clone())),
                }
            }
            Some(Ok(answers.finish()))
        })
    }

    /// The request for a claim, and the log that decides it.
    async fn claim_request(&self, claim: NewClaim, known: &EventsByTopic) -> Result<(LogRef, ClaimRequest)> {
        check(&claim)?;
        let FoundEvent { located: LocatedTopic { log: place, topic }, header, key: sequence } =
            match (claim.event_id, &claim.topic, claim.sequence) {
                (Some(id), ..) => self.event_with(id).await?,
                (None, Some(id), Some(sequence)) => match known.get(id).and_then(|topic| topic.get(&sequence)) {
                    Some(found) => found.clone(),
                    None => self.event_at(id, sequence).await?,
                },
                _ => return Err(Error::invalid("/eventId", "is missing: name the event")),
            };
        let owner = claim.owner.or_else(|| self.context.caller.map(|producer| producer.0.clone()));
        let mut request = ClaimRequest {
            found_at: header.sequence,
            is_original_removed: false,
            event: Uuid::from_u128(header.id),
            aggregate: header.facets.and_then(|facets| facets.aggregate),
            owner: owner.unwrap_or_else(|| UNKNOWN_OWNER.to_owned()),
            lease_millis: claim.lease.map(|lease| lease.millis()),
            ordered_by: OrderedBy::Order(claim.order),
            policy: self.policy_for(&place, &claim.handler),
            reads: AggregateReads::default(),
            key: ClaimKey { handler: claim.handler, topic: topic.number.0, sequence },
            topic,
        };
        if sequence != header.sequence {
            let original = order::original_mark(self.context.logs.ledger(&place), &request).await?;
            request.is_original_removed = original.is_none();
            request.aggregate = original.or(request.aggregate);
        }
        Ok((place, request))
    }

    /// Events of a request that are next to each other in their topics, each run of them read at once. Events that are not
    /// found this way are read one by one, and refused with their own error.
    async fn read_adjacent(&self, claims: &[NewClaim]) -> EventsByTopic {
        let mut wanted: HashMap<&TopicId, BTreeSet<Sequence>> = HashMap::new();
        for claim in claims.iter().filter(|_| claims.len() > 1) {
            if let (Some(topic), Some(sequence)) = (&claim.topic, claim.sequence) {
                wanted.entry(topic).or_default().insert(sequence);
            }
        }
        let mut found = EventsByTopic::new();
        for (id, sequences) in wanted {
            let Ok(located) = self.context.logs.find(id) else { continue };
            let sequences: Vec<_> = sequences.into_iter().collect();
            let is_near = |one: &Sequence, next: &Sequence| next.get() - one.get() <= ADJACENT_GAP;
            for run in sequences.chunk_by(is_near) {
                let page = self.read_run(&located, run).await;
                let page = page.into_iter().map(|record| (record.header.sequence, FoundEvent::of(&located, &record)));
                found.entry(id.clone()).or_default().extend(page);
            }
        }
        found
    }

    async fn read_run(&self, located: &LocatedTopic, run: &[Sequence]) -> Vec<Record> {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return Vec::new() };
        let before = Sequence(first.get().saturating_sub(1));
        let records = usize::try_from(last.get() - before.get()).unwrap_or(usize::MAX);
        let range = ReadRange::Topic(located.topic.number, before);
        let log = self.context.logs.ledger(&located.log).log();
        let page = log.read(range, ReadLimit { records, bytes: RUN_BYTES }).await;
        page.unwrap_or_else(|error| {
            tracing::debug!(%error, "events to be claimed are read one by one: reading them together failed");
            Vec::new()
        })
    }

    async fn event_with(&self, id: Uuid) -> Result<FoundEvent> {
        let (place, header) = self.context.reader.locate(id).await?;
        let registry = self.context.logs.ledger(&place).registry();
        let topic = registry.topic_numbered(header.topic).cloned().ok_or_else(|| Error::not_found("event"))?;
        let located = LocatedTopic { log: place, topic };
        if header.facets.is_none_or(|facets| facets.idempotency.is_some()) {
            return Ok(FoundEvent { located, header, key: header.sequence });
        }
        self.read_event(&located, header.sequence).await
    }

    async fn event_at(&self, topic: &TopicId, sequence: Sequence) -> Result<FoundEvent> {
        if self.context.logs.find(topic).is_err() {
            // Another broker may have registered it a moment ago.
            self.context.logs.default_ledger().refresh().await?;
        }
        let located = self.context.logs.find(topic).map_err(|error| match error.kind() {
            Kind::NotFound => Error::invalid("/topic", "is not registered"),
            _ => error,
        })?;
        self.read_event(&located, sequence).await
    }

    async fn read_event(&self, located: &LocatedTopic, sequence: Sequence) -> Result<FoundEvent> {
        let range = ReadRange::Topic(located.topic.number, Sequence(sequence.get().saturating_sub(1)));
        let log = self.context.logs.ledger(&located.log).log();
        let one = ReadLimit { records: 1, bytes: 0 };
        let page = match log.read(range, one).await {
            Err(LogError::Damaged(_)) => return self.damaged_event(located, sequence).await,
            page => page.map_err(read_failed)?,
        };
        let record = page.first().filter(|record| record.header.sequence == sequence);
        Ok(FoundEvent::of(located, record.ok_or_else(|| Error::not_found("event"))?))
    }

    /// A damaged event can be claimed by its header, unless it may be a copy: what it is a copy of is in the body.
    async fn damaged_event(&self, located: &LocatedTopic, sequence: Sequence) -> Result<FoundEvent> {
        let ledger = self.context.logs.ledger(&located.log);
        match find_event(ledger, located.topic.number, sequence).await? {
            Some(found) if found.header().facets.is_some_and(|facets| facets.idempotency.is_some()) => {
                Ok(FoundEvent { located: located.clone(), header: *found.header(), key: sequence })
            }
            Some(_) => Err(Error::new(Kind::Unavailable, damage_detail(sequence)).with_retry_after(60)),
            None => Err(Error::not_found("event")),
        }
    }
}

/// The answer to a request.
fn outcome(request: &ClaimRequest, verdict: &ClaimVerdict, defaults: ClaimDefaults) -> ClaimOutcome {
    let outcome = |outcome| ClaimOutcome { outcome, claim: None, retry_at: None };
    match verdict {
        ClaimVerdict::Claimed(row) => {
            let claim = view(&request.key, &request.topic.topic.definition.id, row, defaults);
            ClaimOutcome { claim: Some(claim), ..outcome(ClaimAnswer::Claimed) }
        }
        ClaimVerdict::Done => outcome(ClaimAnswer::Done),
        ClaimVerdict::Stale => outcome(ClaimAnswer::Stale),
        ClaimVerdict::Held(at) => {
            ClaimOutcome { retry_at: at.map(Timestamp::from_millis), ..outcome(ClaimAnswer::Held) }
        }
        ClaimVerdict::NeedsRead(_) => outcome(ClaimAnswer::Held),
    }
}

/// The answer to a request of one item.
pub(super) fn single_answer<T: Clone>(answers: &ItemResults<T>) -> Option<Result<T>> {
    answers.first().cloned()
}

pub(super) fn no_answer<T>() -> Result<T> {
    Err(Error::new(Kind::Unavailable, "The decision has no answer for this item."))
}

/// Checks a request, and reports everything that is wrong with it.
fn check(claim: &NewClaim) -> Result<()> {
    let mut violations: Vec<_> = check_name(&claim.handler, "/handler").into_iter().collect();
    let mut refuse = |pointer: &str, detail: String| violations.push(Violation::new(pointer, detail));
    match (claim.event_id, &claim.topic, claim.sequence) {
        (Some(_), None, None) | (None, Some(_), Some(_)) => (),
        (Some(_), ..) => {
            refuse("/eventId", "must not be used with `topic` or `sequence`; name the event one way".to_owned());
        }
        (None, None, None) => refuse("/eventId", "is missing: name the event, or its topic and sequence".to_owned()),
        (None, None, Some(_)) => refuse("/topic", "is missing; `sequence` needs it".to_owned()),
        (None, Some(_), None) => refuse("/sequence", "is missing; `topic` needs it".to_owned()),
    }
    if claim.sequence == Some(Sequence::ZERO) {
        refuse("/sequence", "must be 1 or more".to_owned());
    }
    if let Some(owner) = &claim.owner {
        let violation = check_name(owner, "/owner");
        violation.into_iter().for_each(|it| refuse("/owner", it.detail));
    }
    if claim.lease.as_ref().is_some_and(|lease| !is_lease(lease.millis())) {
        refuse("/lease", lease_rule());
    }
    match violations.is_empty() {
        true => Ok(()),
        false => {
            Err(Error::new(Kind::Validation, "The claim breaks the rules; see `errors`.").with_violations(violations))
        }
    }
}

/// The shortest lease in which three heartbeats fit, in milliseconds.
const LEASE_MILLIS_MIN: i64 = 3;

/// Whether a lease has an allowed length.
pub(super) fn is_lease(millis: i64) -> bool {
    (LEASE_MILLIS_MIN..=limits::LEASE_SECONDS_MAX * 1000).contains(&millis)
}

pub(super) fn lease_rule() -> String {
    format!("must be at least {LEASE_MILLIS_MIN} milliseconds and at most {} seconds", limits::LEASE_SECONDS_MAX)
}
