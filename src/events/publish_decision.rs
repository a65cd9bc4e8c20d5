//! The decision of a publish: which events are stored, which repeat a stored one, which are refused.
//!
//! - A unit is written whole or leaves no trace. Duplicates of events that were stored before are independent of it: they
//!   abort nothing and are not undone.
//! - The order of the checks: idempotency key, the type's rules of today, the event's own sequence, the expected aggregate
//!   sequence.
//! - A request that was prepared against a definition that has changed since is stale: nothing is written, and the caller
//!   prepares it again.

use super::import::ImportedKeys;
use super::outcome::{SubmissionNotes, created_event, duplicate_event, stored_event};
use super::prepare::{PreparedEvent, PublishRefusal};
use super::removed::first_stored;
use crate::ledger::{CarriedRows, Command, Decision, Entry, IdempotencyRow, Ledger, Registry};
use crate::logs::{LogRef, Logs};
use contract::{
    AggregateSequence, Atomicity, BatchOutcome, Error, Kind, PayloadMismatch, Position, PublishedEvent, Result,
    StoredEvent,
};
use log::{Record, TopicNumber};
use std::collections::HashMap;
use std::sync::Arc;

/// Which items of one log are stored together or not at all.
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

/// A prepared request to one log.
pub(super) struct PublishEvents {
    items: Vec<Result<PreparedEvent, PublishRefusal>>,
    units: AtomicUnits,
    types: TypesSource,
    /// If the reply is recorded, it must be complete when it is decided: the stored events in it are read beforehand.
    stored: Option<EventsByPosition>,
}

/// The stored events that were read so far, or why they cannot be read.
pub(super) type EventsByPosition = HashMap<Position, Arc<Result<StoredEvent>>>;

pub(super) enum PublishDecision {
    /// A definition changed since the request was prepared.
    Stale,
    /// The reply is to be recorded, and these events of it must be read first. Nothing was written.
    NeedsRead(Vec<EventLocation>),
    /// One outcome per item.
    Items(Vec<Result<EventOutcome>>),
}

/// The decision on one event.
pub(super) enum EventOutcome {
    New {
        record: Record,
        notes: SubmissionNotes,
    },
    Before {
        place: EventLocation,
        payload_mismatch: bool,
        notes: SubmissionNotes,
        event: Option<Arc<Result<StoredEvent>>>,
    },
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
        let mut carried = CarriedRows::default();
        match &self.units {
            AtomicUnits::One => self.decide_unit(0..self.items.len(), decision, &mut answers, &mut carried),
            AtomicUnits::Several(units) => {
                for unit in units {
                    self.decide_unit(unit.iter().copied(), decision, &mut answers, &mut carried);
                }
            }
        }
        debug_assert!(answers.iter().all(Option::is_some), "every event belongs to a unit");
        if let Some(seen) = &self.stored {
            let unseen = fill_stored(&mut answers, seen);
            if !unseen.is_empty() {
                decision.undo(mark);
                return Ok(PublishDecision::NeedsRead(unseen));
            }
        }
        if !carried.keys.is_empty() {
            decision.add_entry(Entry::HistoryCarried { carried })?;
        }
        Ok(PublishDecision::Items(answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(aborted()))).collect()))
    }

    fn bytes(&self) -> usize {
        self.items.iter().flatten().map(|prepared| prepared.draft.text.len() + size_of::<PreparedEvent>()).sum()
    }
}

impl PublishEvents {
    pub(super) fn new(
        items: Vec<Result<PreparedEvent, PublishRefusal>>,
        atomicity: Atomicity,
        types: TypesSource,
        stored: Option<EventsByPosition>,
    ) -> Self {
        Self { units: AtomicUnits::of(&items, atomicity), items, types, stored }
    }

    fn decide_unit(
        &self,
        unit: impl Iterator<Item = usize> + Clone,
        decision: &mut Decision<'_>,
        answers: &mut [Option<Result<EventOutcome>>],
        carried: &mut CarriedRows,
    ) {
        let mark = decision.mark();
        let (before, carried_before) = (decision.position(), carried.keys.len());
        let mut refused = false;
        for index in unit.clone() {
            let answer = match self.items.get(index) {
                Some(Ok(item)) if !refused => match &item.imported {
                    Some(keys) => decide_imported(item, keys, decision, carried),
                    None => decide_event(item, decision),
                },
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
            carried.keys.truncate(carried_before);
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
    /// The result for the caller, if all events of it have been read.
    pub(super) fn to_answer(&self) -> Option<Result<BatchOutcome>> {
        match self {
            Self::Items(items) => items.iter().map(item_answer).collect::<Option<_>>().map(Ok),
            Self::Stale | Self::NeedsRead(_) => None,
        }
    }
}

fn item_answer(item: &Result<EventOutcome>) -> Option<Result<PublishedEvent>> {
    match item {
        Ok(EventOutcome::New { record, notes }) => Some(Ok(created_event(record.clone(), notes.clone()))),
        Ok(EventOutcome::Before { event: None, .. }) => None,
        Ok(EventOutcome::Before { event: Some(event), payload_mismatch, notes, .. }) => {
            Some(event.as_ref().clone().map(|event| duplicate_event(event, *payload_mismatch, notes.clone())))
        }
        Err(error) => Some(Err(error.clone())),
    }
}

/// Puts the events that were stored before into the outcomes; returns the locations of those that must be read first.
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

/// Reads stored events into `seen`.
pub(super) async fn read_stored(
    ledger: &Ledger,
    places: Vec<EventLocation>,
    seen: &mut Option<EventsByPosition>,
) -> Result<()> {
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

/// Where a decision looks up the event types.
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

    /// The registry with the types, unless it is the decision's own.
    fn elsewhere(&self) -> Option<Arc<Registry>> {
        match self {
            Self::Here => None,
            Self::DefaultLog(ledger) => Some(ledger.registry()),
        }
    }
}

/// Whether the topics and types that events were prepared against are unchanged.
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

/// Decides one event: the idempotency key first, then the rules of its type, its own sequence, and the aggregate's.
pub(super) fn decide_event(item: &PreparedEvent, decision: &mut Decision<'_>) -> Result<EventOutcome> {
    if let Some(stored) = find_duplicate(item, decision)? {
        return Ok(stored);
    }
    let record = add_event(item, decision)?;
    Ok(EventOutcome::New { record, notes: item.notes.clone() })
}

/// Decides a line of an export; the keys it is to be known by are added to `carried`.
fn decide_imported(
    item: &PreparedEvent,
    keys: &ImportedKeys,
    decision: &mut Decision<'_>,
    carried: &mut CarriedRows,
) -> Result<EventOutcome> {
    if let Some(row) = keys.find(&item.topic, decision, carried)? {
        return duplicate_of(item, keys.digest(), row);
    }
    let record = add_event(item, decision)?;
    keys.carry(&item.topic, &record.header, decision, carried)?;
    Ok(EventOutcome::New { record, notes: item.notes.clone() })
}

/// Stores an event that is no duplicate, if nothing refuses it.
fn add_event(item: &PreparedEvent, decision: &mut Decision<'_>) -> Result<Record> {
    if let Some(refusal) = &item.refusal {
        return Err(refusal.clone());
    }
    if let Some(requested) = item.sequence {
        let next = decision.tail(item.draft.topic).next();
        if requested < next {
            return Err(Error::new(Kind::SequenceExists, "That sequence is taken; leave `sequence` out to append."));
        }
        if requested > next {
            return Err(Error::new(Kind::InvalidSequence, "That sequence would leave a gap in the topic."));
        }
    }
    if let (Some(expected), Some(aggregate)) = (item.expected, item.draft.aggregate) {
        let actual = decision.head(aggregate)?.map_or(AggregateSequence::ZERO, |head| head.aggregate_sequence);
        if actual != expected {
            return Err(Error::expected_sequence(actual));
        }
    }
    decision.add_event(&item.draft)
}

/// Decides an event whose unit has failed already: a duplicate is still a duplicate, any other event is aborted.
fn only_duplicate(item: &PreparedEvent, decision: &Decision<'_>) -> Result<EventOutcome> {
    find_duplicate(item, decision)?.ok_or_else(aborted)
}

/// The event stored under the same idempotency key within the topic's window, if there is one.
fn find_duplicate(item: &PreparedEvent, decision: &Decision<'_>) -> Result<Option<EventOutcome>> {
    let Some(mark) = item.draft.idempotency else { return Ok(None) };
    let row = decision.stored_key(mark.key)?.filter(|row| item.topic.remembers(row.time, decision.time_for(row.time)));
    row.map(|row| duplicate_of(item, mark.digest, row)).transpose()
}

/// The outcome of an event that repeats a stored one; refused if its `data` differs and the topic rejects that.
fn duplicate_of(item: &PreparedEvent, digest: u64, stored: IdempotencyRow) -> Result<EventOutcome> {
    let differs = digest != stored.digest;
    match item.topic.topic.definition.on_payload_mismatch.unwrap_or_default() {
        PayloadMismatch::Reject if differs => Err(Error::new(
            Kind::EventIdReuse,
            "This idempotency key was used for other `data`; use a new `id` for a new event.",
        )),
        policy => {
            let payload_mismatch = differs && policy == PayloadMismatch::Flag;
            let place = EventLocation { topic: item.draft.topic, position: stored.position };
            Ok(EventOutcome::Before { place, payload_mismatch, notes: item.notes.clone(), event: None })
        }
    }
}

pub(super) fn aborted() -> Error {
    Error::new(Kind::BatchAborted, "Another event of the same atomic unit was refused, so this one was not written.")
}
