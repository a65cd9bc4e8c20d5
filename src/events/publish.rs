//! Publishing: one decision per request, one atomic unit per topic (or per request).
//!
//! - A unit is written whole or leaves no trace. Duplicates of what was stored before stand apart: they abort nothing
//!   and are not undone.
//! - What was prepared against a definition that has changed since is prepared again, not forced through. Types are the
//!   default log's: a side log's decision looks at them as they are durable there. So once somebody has seen a type change,
//!   no event is decided against the type as it was before.

use super::outcome::{created_event, duplicate_event, outcomes, stored_event};
use super::prepare::{
    MissingSchema, PrepareError, PreparedEvent, PublishRefusal, PublishRules, prepare, refuse_unread,
};
use super::released_data::ReleasedData;
use super::removed::first_stored;
use super::split_by_log::{LogSpread, log_spread, publish_by_log, spans_logs};
use crate::ledger::{Command, Decision, IdempotencyRow, Ledger, Registry, ReplyRecorder};
use crate::logs::{LogRef, Logs};
use contract::{
    AggregateSequence, Atomicity, BatchOutcome, Error, Kind, NewEvent, PayloadMismatch, Position, ProducerId,
    PublishedEvent, Result, StoredEvent, UnreadableEvent,
};
use log::{Record, TopicNumber};
use std::collections::HashMap;
use std::sync::Arc;

/// How often a request is prepared anew because definitions changed under it, before it is told to come back.
const PREPARE_TRIES_MAX: usize = 8;

/// An event as it came in, or why it could not be read.
pub(super) type SubmittedEvent = Result<NewEvent, UnreadableEvent>;

/// Publishes on behalf of one caller.
#[derive(Clone, Copy)]
pub(crate) struct EventPublisher<'a> {
    pub(crate) logs: &'a Logs,
    pub(crate) policy: &'a PublishRules,
    pub(crate) producer: Option<&'a ProducerId>,
}

impl EventPublisher<'_> {
    /// Publishes one event.
    pub(crate) async fn publish(
        self,
        event: Box<NewEvent>,
        recorder: ReplyRecorder<PublishedEvent>,
    ) -> Result<PublishedEvent> {
        let recorder = recorder.map_answer(|outcomes: &BatchOutcome| outcomes.first().cloned());
        let mut outcomes = self.publish_batch(vec![Ok(*event)], Atomicity::PerTopic, recorder).await?;
        outcomes.pop().unwrap_or_else(|| Err(Error::new(Kind::Unavailable, "The broker gave no answer.")))
    }

    /// Publishes several events; `Err` means that none was looked at. Where they live in several logs no answer is
    /// kept with them.
    pub(crate) async fn publish_batch(
        self,
        events: Vec<SubmittedEvent>,
        atomicity: Atomicity,
        recorder: ReplyRecorder<BatchOutcome>,
    ) -> Result<BatchOutcome> {
        check_size(self.policy, &events)?;
        self.publish_units(events, atomicity, recorder).await
    }

    /// The same, of events that are few and small enough.
    pub(crate) async fn publish_units(
        self,
        mut events: Vec<SubmittedEvent>,
        atomicity: Atomicity,
        recorder: ReplyRecorder<BatchOutcome>,
    ) -> Result<BatchOutcome> {
        let mut seen = recorder.is_enabled().then(EventsByPosition::default);
        let mut is_up_to_date = false;
        for _ in 0..PREPARE_TRIES_MAX {
            let items = self.prepare(&events).await?;
            if !is_up_to_date && items.iter().any(Result::is_err) {
                // Another broker may have registered a moment ago what is missing here.
                self.logs.default_ledger().refresh().await?;
                is_up_to_date = true;
                if self.logs.default_ledger().log().is_shared() {
                    continue;
                }
            }
            let place = match log_spread(&items) {
                LogSpread::One(place) => place,
                LogSpread::Several if atomicity == Atomicity::All => return Err(spans_logs(&items)),
                LogSpread::Several => return Ok(publish_by_log(self, events, &items, atomicity).await),
            };
            if items.iter().all(Result::is_err) {
                return Ok(items.into_iter().map(refusal).collect());
            }
            let ledger = self.logs.ledger(&place);
            let types = TypesSource::of(self.logs, &place);
            let released = ReleasedData::release(&mut events, &items);
            let request = PublishEvents { stored: seen.clone(), ..PublishEvents::new(items, atomicity, types) };
            match ledger.submit_recording(request, recorder.map_answer(PublishDecision::to_answer)).await? {
                PublishDecision::Items(items) => return outcomes(ledger, items).await,
                PublishDecision::NeedsRead(places) => read_stored(ledger, places, &mut seen).await?,
                PublishDecision::Stale => (),
            }
            released.restore(&mut events)?;
        }
        Err(Error::new(Kind::Overloaded, "Topics or types keep changing under this request; try again.")
            .with_retry_after(1))
    }

    /// Prepares events, once the schemas of their types are compiled.
    pub(super) async fn prepare(self, events: &[SubmittedEvent]) -> Result<Vec<Result<PreparedEvent, PublishRefusal>>> {
        // A cache too small for all schemas of one batch would be filled again and again.
        for _ in 0..=events.len() {
            match self.prepare_compiled(events) {
                Ok(items) => return Ok(items),
                Err(MissingSchema { event_type, version }) => self.policy.schemas.load(event_type, version).await?,
            };
        }
        Err(Error::new(Kind::Overloaded, "Schemas keep changing under this request; try again.").with_retry_after(1))
    }

    fn prepare_compiled(
        self,
        events: &[SubmittedEvent],
    ) -> Result<Vec<Result<PreparedEvent, PublishRefusal>>, MissingSchema> {
        let registry = self.logs.default_ledger().registry();
        let now = self.logs.default_ledger().now();
        let scope = (self.policy, self.logs);
        let prepared = |event: &SubmittedEvent| match event {
            Ok(event) => match prepare(scope, &registry, event, self.producer, now) {
                Ok(prepared) => Ok(Ok(prepared)),
                Err(PrepareError::Refused(refused)) => Ok(Err(refused)),
                Err(PrepareError::SchemaMissing(missing)) => Err(missing),
            },
            Err(unread) => Ok(Err(refuse_unread(scope, &registry, unread))),
        };
        events.iter().map(prepared).collect()
    }
}

fn refusal(item: Result<PreparedEvent, PublishRefusal>) -> Result<PublishedEvent> {
    Err(item.err().map_or_else(aborted, |refused| refused.error))
}

pub(super) fn check_size(policy: &PublishRules, events: &[SubmittedEvent]) -> Result<()> {
    let config = &policy.config;
    if events.is_empty() {
        return Err(Error::invalid("/events", "must hold at least one event"));
    }
    if events.len() > config.batch.max_size {
        let detail = format!("A batch may hold {} events; split it.", config.batch.max_size);
        return Err(Error::new(Kind::BatchTooLarge, detail));
    }
    // One event alone is measured as an event, not as a batch.
    let bytes: usize = events.iter().flatten().map(|event| event.data.get().len()).sum();
    if events.len() > 1 && bytes > config.batch.max_payload_bytes {
        let detail = format!("A batch may hold {} bytes; split it.", config.batch.max_payload_bytes);
        return Err(Error::new(Kind::BatchTooLarge, detail));
    }
    Ok(())
}

/// Which items of one log stand or fall together.
enum AtomicUnits {
    /// All of them: most requests concern one topic.
    One,
    /// By index; each list in the order submitted.
    Several(Vec<Vec<usize>>),
}

impl AtomicUnits {
    fn of(items: &[Result<PreparedEvent, PublishRefusal>], atomicity: Atomicity) -> Self {
        match atomicity {
            Atomicity::All => return Self::One,
            Atomicity::Each => return Self::Several((0..items.len()).map(|index| vec![index]).collect()),
            Atomicity::PerTopic => (),
        }
        let topic_of = |item: &Result<PreparedEvent, PublishRefusal>| match item {
            Ok(prepared) => Some(prepared.draft.topic),
            Err(refused) => refused.topic.as_ref().map(|(_, topic)| *topic),
        };
        let first = items.first().and_then(topic_of);
        if items.len() == 1 || first.is_some() && items.iter().all(|item| topic_of(item) == first) {
            return Self::One;
        }
        let mut units: Vec<(Option<TopicNumber>, Vec<usize>)> = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let topic = topic_of(item);
            match units.iter_mut().find(|(known, _)| topic.is_some() && *known == topic) {
                Some((_, unit)) => unit.push(index),
                None => units.push((topic, vec![index])),
            }
        }
        Self::Several(units.into_iter().map(|(_, unit)| unit).collect())
    }
}

/// A request to one log, ready to be decided.
struct PublishEvents {
    items: Vec<Result<PreparedEvent, PublishRefusal>>,
    units: AtomicUnits,
    types: TypesSource,
    /// Where the answer is kept, it must be whole when it is decided: the events it repeats are read beforehand.
    stored: Option<EventsByPosition>,
}

/// Events stored before, as far as they were read; or why they are gone.
type EventsByPosition = HashMap<Position, Arc<Result<StoredEvent>>>;

enum PublishDecision {
    /// A definition changed since the request was prepared.
    Stale,
    /// The answer is to be kept, and these events of it must be read first. Nothing was written.
    NeedsRead(Vec<EventLocation>),
    /// One answer per item.
    Items(Vec<Result<EventOutcome>>),
}

/// What the decision came to for one event.
pub(super) enum EventOutcome {
    New { record: Record, deprecated: bool },
    Before { place: EventLocation, payload_mismatch: bool, deprecated: bool, event: Option<Arc<Result<StoredEvent>>> },
}

/// Where an event was stored.
#[derive(Clone, Copy)]
pub(super) struct EventLocation {
    pub(super) topic: TopicNumber,
    pub(super) position: Position,
}

impl Command for PublishEvents {
    type Answer = PublishDecision;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<PublishDecision> {
        if !are_current(self.items.iter().flatten(), &self.types, decision) {
            return Ok(PublishDecision::Stale);
        }
        let mark = decision.mark();
        let mut answers: Vec<Option<Result<EventOutcome>>> = self.items.iter().map(|_| None).collect();
        match &self.units {
            AtomicUnits::One => self.decide_unit(0..self.items.len(), decision, &mut answers),
            AtomicUnits::Several(units) => {
                for unit in units {
                    self.decide_unit(unit.iter().copied(), decision, &mut answers);
                }
            }
        }
        if let Some(seen) = &self.stored {
            let unseen = fill_stored(&mut answers, seen);
            if !unseen.is_empty() {
                decision.undo(mark);
                return Ok(PublishDecision::NeedsRead(unseen));
            }
        }
        Ok(PublishDecision::Items(answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(aborted()))).collect()))
    }

    fn bytes(&self) -> usize {
        self.items.iter().flatten().map(|prepared| prepared.draft.text.len() + size_of::<PreparedEvent>()).sum()
    }
}

impl PublishEvents {
    fn new(items: Vec<Result<PreparedEvent, PublishRefusal>>, atomicity: Atomicity, types: TypesSource) -> Self {
        Self { units: AtomicUnits::of(&items, atomicity), items, types, stored: None }
    }

    fn decide_unit(
        &self,
        unit: impl Iterator<Item = usize> + Clone,
        decision: &mut Decision<'_>,
        answers: &mut [Option<Result<EventOutcome>>],
    ) {
        let mark = decision.mark();
        let before = decision.position();
        let mut refused = false;
        for index in unit.clone() {
            let answer = match self.items.get(index) {
                Some(Ok(item)) if !refused => decide_event(item, decision),
                Some(Ok(item)) => only_duplicate(item, decision),
                Some(Err(refusal)) => Err(refusal.error.clone()),
                None => continue,
            };
            refused |= answer.is_err();
            if let Some(place) = answers.get_mut(index) {
                *place = Some(answer);
            }
        }
        if refused {
            decision.undo(mark);
            for index in unit {
                if let Some(Some(answer)) = answers.get_mut(index)
                    && answer.as_ref().is_ok_and(|stored| stored.position() > before)
                {
                    *answer = Err(aborted());
                }
            }
        }
    }
}

impl PublishDecision {
    /// What the caller is told, where everything it is told is at hand.
    fn to_answer(&self) -> Option<Result<BatchOutcome>> {
        match self {
            Self::Items(items) => items.iter().map(item_answer).collect::<Option<_>>().map(Ok),
            Self::Stale | Self::NeedsRead(_) => None,
        }
    }
}

fn item_answer(item: &Result<EventOutcome>) -> Option<Result<PublishedEvent>> {
    match item {
        Ok(EventOutcome::New { record, deprecated }) => Some(Ok(created_event(record.clone(), *deprecated))),
        Ok(EventOutcome::Before { event: None, .. }) => None,
        Ok(EventOutcome::Before { event: Some(event), payload_mismatch, deprecated, .. }) => {
            Some(event.as_ref().clone().map(|event| duplicate_event(event, *payload_mismatch, *deprecated)))
        }
        Err(error) => Some(Err(error.clone())),
    }
}

/// Puts the events that were stored before into the answers; answers where those are that nobody has read yet.
fn fill_stored(answers: &mut [Option<Result<EventOutcome>>], seen: &EventsByPosition) -> Vec<EventLocation> {
    let stored = answers.iter().flatten().flatten();
    let new: HashMap<_, _> = stored
        .filter_map(|stored| match stored {
            EventOutcome::New { record, .. } => Some((record.header.position, record.clone())),
            EventOutcome::Before { .. } => None,
        })
        .collect();
    let mut unseen = Vec::new();
    for stored in answers.iter_mut().flatten().flatten() {
        let EventOutcome::Before { place, event, .. } = stored else { continue };
        // A batch may repeat an event of its own.
        let own = new.get(&place.position).map(|record| Arc::new(Ok(stored_event(record.clone()))));
        *event = own.or_else(|| seen.get(&place.position).cloned());
        if event.is_none() {
            unseen.push(*place);
        }
    }
    unseen
}

async fn read_stored(ledger: &Ledger, places: Vec<EventLocation>, seen: &mut Option<EventsByPosition>) -> Result<()> {
    for EventLocation { topic, position } in places {
        let event = match first_stored(ledger, topic, position).await {
            Err(error) if error.kind() != Kind::Trimmed => return Err(error),
            event => event,
        };
        seen.get_or_insert_default().insert(position, Arc::new(event));
    }
    Ok(())
}

impl EventOutcome {
    const fn position(&self) -> Position {
        match self {
            Self::New { record, .. } => record.header.position,
            Self::Before { place, .. } => place.position,
        }
    }
}

/// Where a decision finds the event types.
pub(super) enum TypesSource {
    /// In the log that decides.
    Here,
    /// In the default log, whose side log decides.
    DefaultLog(Arc<Ledger>),
}

impl TypesSource {
    pub(super) fn of(logs: &Logs, place: &LogRef) -> Self {
        match place {
            LogRef::Default => Self::Here,
            LogRef::Side(_) => Self::DefaultLog(Arc::clone(logs.default_ledger())),
        }
    }

    /// The registry that has the types, where the decision's own has not.
    fn elsewhere(&self) -> Option<Arc<Registry>> {
        match self {
            Self::Here => None,
            Self::DefaultLog(ledger) => Some(ledger.registry()),
        }
    }
}

/// Whether everything that events were prepared against is still so.
pub(super) fn are_current<'a>(
    mut items: impl Iterator<Item = &'a PreparedEvent>,
    types: &TypesSource,
    decision: &Decision<'_>,
) -> bool {
    let (registry, elsewhere) = (decision.registry(), types.elsewhere());
    let types = elsewhere.as_deref().unwrap_or(registry);
    items.all(|item| {
        let topic = registry.topic_numbered(item.topic.number).map(|topic| topic.defined_at);
        let event_type = types.event_type(&item.event_type).map(|known| known.defined_at);
        topic == Some(item.topic.defined_at) && event_type == item.type_defined_at
    })
}

/// Idempotency first, then what its type says today, then the event's own sequence, then the aggregate's; then it is stored.
pub(super) fn decide_event(item: &PreparedEvent, decision: &mut Decision<'_>) -> Result<EventOutcome> {
    if let Some(stored) = find_duplicate(item, decision)? {
        return Ok(stored);
    }
    if let Some(refusal) = &item.refusal {
        return Err(refusal.clone());
    }
    if let Some(asked) = item.sequence {
        let next = decision.tail(item.draft.topic).next();
        if asked < next {
            return Err(Error::new(Kind::SequenceExists, "That sequence is taken; leave `sequence` out to append."));
        }
        if asked > next {
            return Err(Error::new(Kind::InvalidSequence, "That sequence would leave a gap in the topic."));
        }
    }
    if let (Some(expected), Some(aggregate)) = (item.expected, item.draft.aggregate) {
        let actual = decision.head(aggregate)?.map_or(AggregateSequence::ZERO, |head| head.aggregate_sequence);
        if actual != expected {
            return Err(Error::expected_sequence(actual));
        }
    }
    Ok(EventOutcome::New { record: decision.add_event(&item.draft)?, deprecated: item.deprecated })
}

/// For an event whose unit has failed already: a duplicate is still a duplicate, anything else is aborted.
fn only_duplicate(item: &PreparedEvent, decision: &Decision<'_>) -> Result<EventOutcome> {
    find_duplicate(item, decision)?.ok_or_else(aborted)
}

/// The event stored under the same idempotency key within the topic's window, if there is one.
fn find_duplicate(item: &PreparedEvent, decision: &Decision<'_>) -> Result<Option<EventOutcome>> {
    let Some(mark) = item.draft.idempotency else { return Ok(None) };
    let Some(known) = decision.stored_key(mark.key)? else { return Ok(None) };
    let IdempotencyRow { position, time, digest } = known;
    if !item.topic.remembers(time, decision.now()) {
        return Ok(None);
    }
    let differs = digest != mark.digest;
    let policy = item.topic.topic.definition.on_payload_mismatch.unwrap_or_default();
    match policy {
        PayloadMismatch::Reject if differs => Err(Error::new(
            Kind::EventIdReuse,
            "This idempotency key was used for other `data`; use a new `id` for a new event.",
        )),
        policy => {
            let payload_mismatch = differs && policy == PayloadMismatch::Flag;
            let place = EventLocation { topic: item.draft.topic, position };
            Ok(Some(EventOutcome::Before { place, payload_mismatch, deprecated: item.deprecated, event: None }))
        }
    }
}

fn aborted() -> Error {
    Error::new(Kind::BatchAborted, "Another event of the same atomic unit was refused, so this one was not written.")
}
