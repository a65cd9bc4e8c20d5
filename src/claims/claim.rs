//! Claiming, one or several events at a time: each item has its own answer, each log makes one decision.
//!
//! - Under a key a log decides all of its items or none, and keeps the answer to all of them in the same append. Items of
//!   several logs take several appends; their answer is kept behind the last, by whoever asked.

use super::claim_decision::{ClaimEvents, ClaimRequest, ClaimVerdict, OrderedBy};
use super::order::{self, AggregateReads};
use super::policy::ClaimDefaults;
use super::{Claims, UNKNOWN_OWNER, check_name, view};
use crate::events::original_of;
use crate::ledger::{ClaimKey, ReplyRecorder, read_failed};
use crate::logs::{LocatedTopic, LogRef};
use contract::{
    ClaimAnswer, ClaimOutcome, Error, Kind, NewClaim, Result, Sequence, Timestamp, TopicId, Violation, limits,
};
use futures_util::future::join_all;
use log::{ReadLimit, ReadRange, Record, RecordHeader};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use uuid::Uuid;

/// How often one request is decided anew because something changed under it, before it is told to come back.
pub(super) const TRIES_MAX: usize = 8;

/// Events of a request this near to each other are read at once, with those between them.
const GAP_MAX: u64 = 4;
/// Most bytes of events read at once for their headers.
const RUN_BYTES: usize = 4 * 1024 * 1024;

/// The items of a request that one log decides, by their indexes.
pub(super) struct LogItems<T> {
    pub(super) place: LogRef,
    pub(super) items: Vec<(usize, T)>,
}

/// Sorts items by the log that decides them; the order within each is kept. An answer is kept where one log decides all
/// of it.
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

/// One answer per item of a request; those nobody gave are told so.
#[derive(Clone)]
pub(super) struct ItemAnswers<T>(Vec<Option<Result<T>>>);

/// What all items of a request are answered.
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

    pub(super) fn finish(self) -> ItemResults<T> {
        let changing = || {
            let detail = "What this request rests on keeps changing under it; try again.";
            Err(Error::new(Kind::Overloaded, detail).with_retry_after(1))
        };
        self.0.into_iter().map(|answer| answer.unwrap_or_else(changing)).collect()
    }
}

/// An event somebody wants to claim.
#[derive(Clone)]
struct FoundEvent {
    located: LocatedTopic,
    header: RecordHeader,
    /// The sequence it is known by: where it was published again, the first one's. So whoever has done the one has done
    /// the other.
    sequence: Sequence,
}

impl FoundEvent {
    fn of(located: &LocatedTopic, record: &Record) -> Self {
        let sequence = original_of(record).unwrap_or(record.header.sequence);
        Self { located: located.clone(), header: record.header, sequence }
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
    /// Claims one event, or says why not.
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
        let known = self.read_adjacent(&claims).await;
        for (index, claim) in claims.into_iter().enumerate() {
            match self.claim_request(claim, &known).await {
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

    /// Has one log decide its items, those again that must know more; under a key, all of them.
    async fn decide_claims(
        &self,
        LogItems { place, mut items }: LogItems<ClaimRequest>,
        answers: &mut ItemAnswers<ClaimOutcome>,
        recorder: &ReplyRecorder<ItemResults<ClaimOutcome>>,
    ) {
        let (ledger, whole) = (self.logs.ledger(&place), recorder.is_enabled());
        for _ in 0..TRIES_MAX {
            let (indexes, wanted): (Vec<_>, Vec<_>) = items.into_iter().unzip();
            let request = Arc::new(wanted);
            let recorder =
                if whole { self.claim_recorder(recorder, &indexes, &request, answers) } else { ReplyRecorder::disabled() };
            let take = ClaimEvents { items: Arc::clone(&request), defaults: self.defaults(), all_or_none: whole };
            let taken = ledger.submit_recording(take, recorder).await;
            let taken = taken.unwrap_or_else(|error| indexes.iter().map(|_| Err(error.clone())).collect());
            let is_undone = whole && taken.iter().any(|taken| matches!(taken, Ok(ClaimVerdict::NeedsRead(_))));
            items = Vec::new();
            let mut unsure = Vec::new();
            for ((index, wanted), taken) in indexes.into_iter().zip(request.iter()).zip(taken) {
                match taken {
                    Ok(ClaimVerdict::NeedsRead(need)) => unsure.push((index, wanted.clone(), need)),
                    _ if is_undone => items.push((index, wanted.clone())),
                    Ok(ClaimVerdict::Stale) => {
                        let topic = &wanted.topic.topic.definition.id;
                        self.stale.note(&wanted.key.handler, topic, wanted.key.sequence);
                        answers.put(index, Ok(outcome(wanted, &ClaimVerdict::Stale, self.defaults())));
                    }
                    taken => answers.put(index, taken.map(|taken| outcome(wanted, &taken, self.defaults()))),
                }
            }
            let reads = unsure.into_iter().map(async |(index, mut request, need)| {
                let read = order::read(ledger, &mut request, need).await;
                (index, read.map(|()| request))
            });
            for (index, read) in join_all(reads).await {
                match read {
                    Ok(request) => items.push((index, request)),
                    Err(error) => answers.put(index, Err(error)),
                }
            }
            items.sort_unstable_by_key(|(index, _)| *index);
            if items.is_empty() {
                return;
            }
        }
    }

    /// What is kept of a decision about all these: their answers beside those that are known already.
    fn claim_recorder(
        &self,
        recorder: &ReplyRecorder<ItemResults<ClaimOutcome>>,
        indexes: &[usize],
        request: &Arc<Vec<ClaimRequest>>,
        answers: &ItemAnswers<ClaimOutcome>,
    ) -> ReplyRecorder<Vec<Result<ClaimVerdict>>> {
        let (indexes, wanted) = (indexes.to_vec(), Arc::clone(request));
        let (answers, defaults) = (answers.clone(), self.defaults());
        recorder.map_answer(move |taken: &Vec<Result<ClaimVerdict>>| {
            let mut answers = answers.clone();
            for ((index, wanted), taken) in indexes.iter().zip(wanted.iter()).zip(taken) {
                match taken {
                    Ok(ClaimVerdict::NeedsRead(_)) => return None,
                    Ok(taken) => answers.put(*index, Ok(outcome(wanted, taken, defaults))),
                    Err(error) => answers.put(*index, Err(error.clone())),
                }
            }
            Some(Ok(answers.finish()))
        })
    }

    /// The event somebody wants to claim, and the log that decides it.
    async fn claim_request(&self, claim: NewClaim, known: &EventsByTopic) -> Result<(LogRef, ClaimRequest)> {
        check(&claim)?;
        let FoundEvent { located: LocatedTopic { log: place, topic }, header, sequence } =
            match (claim.event_id, &claim.topic, claim.sequence) {
                (Some(id), ..) => self.event_with(id).await?,
                (None, Some(id), Some(sequence)) => match known.get(id).and_then(|topic| topic.get(&sequence)) {
                    Some(found) => found.clone(),
                    None => self.event_at(id, sequence).await?,
                },
                _ => return Err(Error::invalid("/eventId", "is missing: name the event")),
            };
        let owner = claim.owner.or_else(|| self.producer.map(|producer| producer.0.clone()));
        let wanted = ClaimRequest {
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
        Ok((place, wanted))
    }

    /// Events of a request that stand side by side in their topics, each run of them read at once. Whatever is not found so
    /// is looked for by itself, and refused in its own words.
    async fn read_adjacent(&self, claims: &[NewClaim]) -> EventsByTopic {
        let mut request: HashMap<&TopicId, BTreeSet<Sequence>> = HashMap::new();
        for claim in claims.iter().filter(|_| claims.len() > 1) {
            if let (Some(topic), Some(sequence)) = (&claim.topic, claim.sequence) {
                request.entry(topic).or_default().insert(sequence);
            }
        }
        let mut found = EventsByTopic::new();
        for (id, sequences) in request {
            let Ok(located) = self.logs.find(id) else { continue };
            let sequences: Vec<_> = sequences.into_iter().collect();
            let is_near = |one: &Sequence, next: &Sequence| next.get() - one.get() <= GAP_MAX;
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
        let log = self.logs.ledger(&located.log).log();
        log.read(range, ReadLimit { records, bytes: RUN_BYTES }).await.unwrap_or_default()
    }

    async fn event_with(&self, id: Uuid) -> Result<FoundEvent> {
        let (place, header) = self.reader.locate(id).await?;
        let registry = self.logs.ledger(&place).registry();
        let topic = registry.topic_numbered(header.topic).cloned().ok_or_else(|| Error::not_found("event"))?;
        let located = LocatedTopic { log: place, topic };
        if header.facets.is_none_or(|facets| facets.idempotency.is_some()) {
            return Ok(FoundEvent { located, header, sequence: header.sequence });
        }
        let page = self.read_run(&located, &[header.sequence]).await;
        let sequence = page.first().and_then(original_of).unwrap_or(header.sequence);
        Ok(FoundEvent { located, header, sequence })
    }

    async fn event_at(&self, topic: &TopicId, sequence: Sequence) -> Result<FoundEvent> {
        if self.logs.find(topic).is_err() {
            // Another broker may have registered it a moment ago.
            self.logs.default_ledger().refresh().await?;
        }
        let located = self.logs.find(topic).map_err(|error| match error.kind() {
            Kind::NotFound => Error::invalid("/topic", "is not registered"),
            _ => error,
        })?;
        let range = ReadRange::Topic(located.topic.number, Sequence(sequence.get().saturating_sub(1)));
        let log = self.logs.ledger(&located.log).log();
        let page = log.read(range, ReadLimit { records: 1, bytes: 0 }).await.map_err(read_failed)?;
        let record = page.first().filter(|record| record.header.sequence == sequence);
        Ok(FoundEvent::of(&located, record.ok_or_else(|| Error::not_found("event"))?))
    }
}

/// What became of a wish, as it is told.
fn outcome(wanted: &ClaimRequest, taken: &ClaimVerdict, defaults: ClaimDefaults) -> ClaimOutcome {
    let outcome = |outcome| ClaimOutcome { outcome, claim: None, retry_at: None };
    match taken {
        ClaimVerdict::Claimed(row) => {
            let claim = view(&wanted.key, &wanted.topic.topic.definition.id, row, defaults);
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
    Err(Error::new(Kind::Unavailable, "The broker gave no answer."))
}

/// What a claim must keep to; all it breaks otherwise.
fn check(claim: &NewClaim) -> Result<()> {
    let mut violations: Vec<_> = check_name(&claim.handler, "/handler").into_iter().collect();
    let mut refuse = |pointer: &str, detail: String| violations.push(Violation::new(pointer, detail));
    match (claim.event_id, &claim.topic, claim.sequence) {
        (Some(_), None, None) | (None, Some(_), Some(_)) => (),
        (Some(_), ..) => refuse("/eventId", "stands beside `topic` or `sequence`; name the event one way".to_owned()),
        (None, None, None) => refuse("/eventId", "is missing: name the event, or its topic and sequence".to_owned()),
        (None, None, Some(_)) => refuse("/topic", "is missing beside `sequence`".to_owned()),
        (None, Some(_), None) => refuse("/sequence", "is missing beside `topic`".to_owned()),
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

/// Whether a lease may be so long.
pub(super) fn is_lease(millis: i64) -> bool {
    (1..=limits::LEASE_SECONDS_MAX * 1000).contains(&millis)
}

pub(super) fn lease_rule() -> String {
    format!("must be longer than nothing and at most {} seconds", limits::LEASE_SECONDS_MAX)
}
