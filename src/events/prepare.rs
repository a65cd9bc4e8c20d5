//! Prepares a submitted event: everything but its numbers.
//!
//! Everything here runs on the caller's task: limits, routing, types, schema, fingerprints, the JSON text. The versions
//! of the definitions that were used are recorded, so that the decision can detect a stale preparation.

use super::data_check::{DataFault, SchemaCheck, check_data, parse_data, too_large};
use super::import::{CopyLock, ImportedKeys};
use super::outcome::SubmissionNotes;
use super::{cloud_event_id, envelope, fingerprint};
use crate::config::{Config, TopicRoute, UnregisteredPolicy, likely_name};
use crate::ledger::{EventDraft, RegisteredTopic, RegisteredType, Registry};
use crate::logs::{LocatedTopic, LogRef, Logs};
use crate::secrets::{InspectedParts, SecretGuard, SecretInspection};
use crate::types::SchemaCompiler;
use contract::{
    AggregateSequence, Error, EventTypeId, Kind, MediaType, NewEvent, Position, ProducerId, Result, SchemaVersion,
    Sequence, Timestamp, TopicId, UnreadableEvent, Violation, limits,
};
use log::{IdempotencyMark, TopicNumber};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;
use uuid::Uuid;

/// The configuration and the compiled schemas that events are checked against.
pub(crate) struct PublishRules {
    pub(crate) config: Config,
    pub(crate) schemas: SchemaCompiler,
    /// Serialises imports of republished copies.
    pub(crate) import_copies: CopyLock,
    pub(crate) secrets: SecretGuard,
}

impl PublishRules {
    /// The topic of a type's events: the one the type names, otherwise that of the most specific route, otherwise the
    /// default topic.
    pub(crate) fn topic_of<'a>(&'a self, id: &EventTypeId, named: Option<&'a TopicId>) -> Option<&'a TopicId> {
        let routed = || {
            let matching = self.config.routes.iter().filter(|route| route.pattern.matches(id.as_identifier()));
            matching.max_by_key(|route| route.pattern.specificity()).map(|route: &TopicRoute| &route.topic)
        };
        named.or_else(routed).or(self.config.default_topic.as_ref())
    }
}

/// An event that is ready to be numbered and stored.
pub(crate) struct PreparedEvent {
    pub(crate) draft: EventDraft,
    /// The sequence that the event must get.
    pub(crate) sequence: Option<Sequence>,
    pub(crate) expected: Option<AggregateSequence>,
    pub(crate) topic: Arc<RegisteredTopic>,
    /// The log its topic lives in.
    pub(crate) place: LogRef,
    /// The position of its type's definition; `None` for an unregistered type.
    pub(crate) type_defined_at: Option<Position>,
    pub(crate) event_type: EventTypeId,
    /// Why it is refused, unless it is a duplicate: the stored event was valid by the rules of its time.
    pub(crate) refusal: Option<Error>,
    /// What the response says about it.
    pub(super) notes: SubmissionNotes,
    /// The keys of a line of an export.
    pub(crate) imported: Option<Box<ImportedKeys>>,
}

/// An event's text and id.
struct WrittenEvent {
    id: Uuid,
    text: envelope::EventText,
}

/// Why an event could not be prepared.
pub(crate) enum PrepareError {
    Refused(PublishRefusal),
    /// Its schema must be compiled first, which takes too long for this thread.
    SchemaMissing(MissingSchema),
}

impl From<PublishRefusal> for PrepareError {
    fn from(refused: PublishRefusal) -> Self {
        Self::Refused(refused)
    }
}

/// A schema version that must be compiled.
pub(crate) struct MissingSchema {
    pub(crate) event_type: Arc<RegisteredType>,
    pub(crate) version: SchemaVersion,
}

/// A refusal, with the topic it concerns if that is known.
pub(crate) struct PublishRefusal {
    pub(crate) error: Error,
    pub(crate) topic: Option<(LogRef, TopicNumber)>,
}

impl PublishRefusal {
    fn in_topic(found: &LocatedTopic, error: Error) -> Self {
        Self { error, topic: Some((found.log.clone(), found.topic.number)) }
    }
}

/// What events are prepared against.
#[derive(Clone, Copy)]
pub(super) struct PrepareContext<'a> {
    pub(super) policy: &'a PublishRules,
    pub(super) logs: &'a Logs,
    /// The registry of the default log, which has all event types.
    pub(super) registry: &'a Registry,
    /// Which parts of events are searched for secrets.
    pub(super) inspected: InspectedParts,
}

/// Checks an event, and writes everything of it that does not depend on its place in the log.
pub(super) fn prepare(
    context: PrepareContext<'_>,
    event: &NewEvent,
    producer: Option<&ProducerId>,
    now: i64,
) -> Result<PreparedEvent, PrepareError> {
    let nowhere = |error| PublishRefusal { error, topic: None };
    let policy = context.policy;
    let known = context.find_type(&event.event_type).map_err(nowhere)?;
    let found = context.find_topic(&event.event_type, event.topic.as_ref(), known).map_err(nowhere)?;
    let here = |error| PublishRefusal::in_topic(&found, error);
    check_members(policy, event, producer).map_err(here)?;
    check_subject(known, event).map_err(here)?;
    let mut data = parse_data(event).map_err(here)?;
    let checked = match known {
        Some(known) => match check_data(policy, known, event, &mut data) {
            Err(DataFault::SchemaMissing(missing)) => return Err(PrepareError::SchemaMissing(missing)),
            Err(DataFault::Refused(error)) => Err(error),
            Ok(checked) => Ok(checked),
        },
        None => Ok(SchemaCheck { version: event.data_version.clone().map(Cow::Owned), deprecated: false }),
    };
    let text = write(event, &checked, &found.topic, now).map_err(here)?;
    // If the rules never changed, they refused the first submission as well: there is no stored event.
    let checked = match checked {
        Err(error) if !known.is_some_and(|known| may_have_changed(known)) => return Err(here(error).into()),
        checked => checked,
    };
    let inspection = match &checked {
        Ok(_) => policy.secrets.inspect_event(
            found.topic.topic.definition.secrets.unwrap_or_default(),
            event,
            &data,
            context.inspected,
        ),
        Err(_) => SecretInspection::default(),
    };
    let mut prepared = build(event, producer, known, found, (&data, text), &checked);
    prepared.notes.secret_suspected = inspection.suspected;
    // The topic's policy and the guard's rules may have changed since a stored event was accepted.
    if let Some(error) = checked.err().or(inspection.refusal) {
        if prepared.draft.idempotency.is_none() && prepared.imported.is_none() {
            let topic = Some((prepared.place, prepared.topic.number));
            return Err(PublishRefusal { error, topic }.into());
        }
        prepared.refusal = Some(error);
    }
    Ok(prepared)
}

/// Whether stored events of a type may violate its rules of today.
fn may_have_changed(known: &RegisteredType) -> bool {
    let event_type = &known.event_type;
    match event_type.versions.as_slice() {
        [only] => event_type.archived || event_type.definition.data_schema.is_none() || only.finalised_at.is_none(),
        [] => event_type.archived,
        _ => true,
    }
}

/// The refusal of an unreadable event; if its type is known, so is the topic it concerns.
pub(super) fn refuse_unread(context: PrepareContext<'_>, unread: &UnreadableEvent) -> PublishRefusal {
    let found = unread.event_type.as_ref().and_then(|event_type| {
        let known = context.find_type(event_type).ok()?;
        context.find_topic(event_type, None, known).ok()
    });
    PublishRefusal { error: unread.error.clone(), topic: found.map(|found| (found.log, found.topic.number)) }
}

/// The topic that an event would be stored in; `None` if it is refused before that is known.
pub(crate) fn destination(policy: &PublishRules, logs: &Logs, event: &NewEvent) -> Option<LocatedTopic> {
    let registry = &logs.default_ledger().registry();
    let context = PrepareContext { policy, logs, registry, inspected: InspectedParts::None };
    let known = context.find_type(&event.event_type).ok()?;
    context.find_topic(&event.event_type, event.topic.as_ref(), known).ok()
}

impl<'a> PrepareContext<'a> {
    fn find_type(self, event_type: &EventTypeId) -> Result<Option<&'a Arc<RegisteredType>>> {
        let known = self.registry.event_type(event_type);
        if known.is_none() && self.policy.config.types.unregistered == UnregisteredPolicy::Refuse {
            return Err(Error::invalid("/type", unregistered(self.registry, event_type)));
        }
        Ok(known)
    }

    /// The topic that the rules name, otherwise the one that the event names.
    fn find_topic(
        self,
        event_type: &EventTypeId,
        requested: Option<&TopicId>,
        known: Option<&Arc<RegisteredType>>,
    ) -> Result<LocatedTopic> {
        let named = known.and_then(|known| known.event_type.definition.topic.as_ref());
        let resolved = self
            .policy
            .topic_of(event_type, named)
            .or(requested)
            .ok_or_else(|| Error::invalid("/topic", "No topic is known for this event type; name one."))?;
        if requested.is_some_and(|requested| requested != resolved) {
            return Err(Error::invalid("/topic", "The event type belongs to another topic; leave `topic` out."));
        }
        resolved.check_unreserved("/topic")?;
        let found = self.logs.locate(self.registry, resolved)?;
        found.ok_or_else(|| {
            Error::invalid("/topic", "The event's topic is not registered; register it first (POST /v1/topics).")
        })
    }
}

/// Names that are compared with an unknown one; a refusal must not cost more than an event.
const NAMES_COMPARED_MAX: usize = 256;

fn unregistered(registry: &Registry, event_type: &EventTypeId) -> String {
    let known = registry.event_types().map(|known| known.event_type.definition.id.key());
    let suggestion = likely_name(event_type.key(), known.take(NAMES_COMPARED_MAX));
    let suggestion = suggestion.map(|suggestion| format!(" Did you mean `{suggestion}`?")).unwrap_or_default();
    format!("The event type is not registered; register it before publishing (POST /v1/event-types).{suggestion}")
}

/// Checks lengths, NULs, and required members.
fn check_members(policy: &PublishRules, event: &NewEvent, producer: Option<&ProducerId>) -> Result<()> {
    let mut violations = Vec::new();
    let mut text = |pointer: &str, value: Option<&str>, bytes_max: usize| {
        let Some(value) = value else { return };
        if value.len() > bytes_max {
            violations.push(Violation::new(pointer, format!("is longer than {bytes_max} bytes")));
        }
        if value.contains('\0') {
            violations.push(Violation::new(pointer, Violation::NUL));
        }
    };
    text("/source", Some(&event.source), limits::SUBJECT_BYTES_MAX);
    text("/subject", event.subject.as_deref(), limits::SUBJECT_BYTES_MAX);
    text("/dataVersion", event.data_version.as_deref(), limits::LABEL_BYTES_MAX);
    text("/traceParent", event.trace_parent.as_deref(), limits::LABEL_BYTES_MAX);
    text("/correlationId", event.correlation_id.as_deref(), limits::LABEL_BYTES_MAX);
    text("/causationId", event.causation_id.as_deref(), limits::LABEL_BYTES_MAX);
    text("/messageGroup", event.message_group.as_deref(), limits::LABEL_BYTES_MAX);
    text("/deduplicationId", event.deduplication_id.as_deref(), limits::LABEL_BYTES_MAX);
    text("/requestId", event.request_id.as_deref(), limits::LABEL_BYTES_MAX);
    text("/actor/id", event.actor.as_ref().map(|actor| actor.id.as_str()), limits::LABEL_BYTES_MAX);
    text("", producer.map(|producer| producer.0.as_str()), limits::LABEL_BYTES_MAX);
    text("/cloudEventId", event.cloud_event_id.as_deref(), limits::LABEL_BYTES_MAX);
    text("/dataContentType", event.data_content_type.as_deref(), limits::LABEL_BYTES_MAX);
    for (key, value) in &event.context {
        text("/context", Some(key), limits::CONTEXT_BYTES_MAX);
        text("/context", Some(value), limits::CONTEXT_BYTES_MAX);
    }
    let stands_for = |id: &String| event.id == Some(cloud_event_id::id_of(&event.source, id));
    if !event.cloud_event_id.as_ref().is_none_or(stands_for) {
        violations.push(Violation::new("/cloudEventId", "does not lead to `id`; see the rule in the documentation"));
    }
    let is_json = |text: &String| MediaType::parse(text).is_some_and(|media| media.is_json() && media.is_utf8());
    if !event.data_content_type.as_ref().is_none_or(is_json) {
        violations.push(Violation::new("/dataContentType", "must be a media type of JSON in UTF-8"));
    }
    if event.source.is_empty() {
        violations.push(Violation::new("/source", "must not be empty"));
    }
    if event.context.len() > limits::CONTEXT_PAIRS_MAX {
        violations.push(Violation::new("/context", format!("has more than {} pairs", limits::CONTEXT_PAIRS_MAX)));
    }
    if event.tenant.is_some_and(|tenant| tenant.is_nil()) {
        violations.push(Violation::new("/tenant", Violation::NIL_TENANT));
    }
    if event.tenant.is_none() && policy.config.tenant.required {
        violations.push(Violation::new("/tenant", "is missing: say whose event it is"));
    }
    refuse(violations, "The event has members that break the rules; see `errors`.")
}

fn check_subject(known: Option<&Arc<RegisteredType>>, event: &NewEvent) -> Result<()> {
    let mut violations = Vec::new();
    let optional = known.is_none_or(|known| known.event_type.definition.subject_optional);
    match &event.subject {
        None if !optional => violations.push(Violation::new("/subject", "is missing: the event type requires one")),
        Some(subject) if subject.is_empty() => violations.push(Violation::new("/subject", "must not be empty")),
        _ => (),
    }
    if event.subject.is_none() && event.expected_aggregate_sequence.is_some() {
        violations.push(Violation::new("/expectedAggregateSequence", "needs a `subject` to be expected of"));
    }
    let allowed = known.map_or(&[][..], |known| &known.event_type.definition.allowed_subject_types);
    let fits = match &event.subject_type {
        Some(subject_type) => allowed.is_empty() || allowed.contains(subject_type),
        None => allowed.is_empty() || event.subject.is_none(),
    };
    if !fits {
        violations.push(Violation::new("/subjectType", "is not one of the event type's allowed subject types"));
    }
    if event.sequence.is_some_and(|sequence| sequence < 1) {
        return Err(Error::new(Kind::InvalidSequence, "An event's own `sequence` must be a positive integer."));
    }
    refuse(violations, "The event's subject does not fit its type; see `errors`.")
}

/// The event's text without its numbers.
fn write(event: &NewEvent, checked: &Result<SchemaCheck>, topic: &RegisteredTopic, now: i64) -> Result<WrittenEvent> {
    let id = event.id.unwrap_or_else(Uuid::new_v4);
    let occurred_at = event.occurred_at.unwrap_or_else(|| Timestamp::from_millis(now));
    let version = checked.as_ref().ok().and_then(|checked| checked.version.as_deref());
    let republish_of = event.exported.as_ref().and_then(|numbers| numbers.republish_of);
    let text = envelope::write(event, id, &topic.topic.definition.id, occurred_at, version, republish_of)
        .map_err(|error| Error::new(Kind::Malformed, "The event cannot be written as JSON.").with_source(error))?;
    match text.bytes.len() > limits::EVENT_BYTES_MAX {
        true => Err(too_large()),
        false => Ok(WrittenEvent { id, text }),
    }
}

/// A draft of one of the broker's own events, to which no rules apply.
pub(crate) fn draft_of(event: &NewEvent, id: Uuid, topic: &RegisteredTopic, now: i64) -> Result<EventDraft> {
    let subject_type_tag = fingerprint::subject_type_tag(event.subject_type.as_ref());
    let text = envelope::write(event, id, &topic.topic.definition.id, Timestamp::from_millis(now), None, None)
        .map_err(|error| Error::new(Kind::Malformed, "The event cannot be written as JSON.").with_source(error))?;
    Ok(EventDraft {
        topic: topic.number,
        id: id.as_u128(),
        type_tag: fingerprint::type_tag(&event.event_type),
        subject_type_tag,
        tenant: event.tenant.map_or(0, |tenant| tenant.as_u128()),
        aggregate: event.subject.as_ref().map(|it| fingerprint::aggregate_in(topic, subject_type_tag, it)),
        idempotency: None,
        text: text.bytes,
        splice: text.splice,
    })
}

fn build(
    event: &NewEvent,
    producer: Option<&ProducerId>,
    known: Option<&Arc<RegisteredType>>,
    LocatedTopic { log: place, topic }: LocatedTopic,
    (data, WrittenEvent { id, text }): (&Value, WrittenEvent),
    checked: &Result<SchemaCheck>,
) -> PreparedEvent {
    let type_tag = known.map_or_else(|| fingerprint::type_tag(&event.event_type), |known| known.tag);
    let subject_type_tag = fingerprint::subject_type_tag(event.subject_type.as_ref());
    let key = fingerprint::idempotency(event, &topic, type_tag, producer);
    let imported = event
        .exported
        .as_deref()
        .map(|numbers| Box::new(ImportedKeys::new((&topic, type_tag), event, (id, numbers), fingerprint::data(data))));
    let idempotency = match &imported {
        Some(imported) => imported.mark(),
        None => key.map(|key| IdempotencyMark { key, digest: fingerprint::data(data) }),
    };
    let draft = EventDraft {
        topic: topic.number,
        id: id.as_u128(),
        type_tag,
        subject_type_tag,
        tenant: event.tenant.map_or(0, |tenant| tenant.as_u128()),
        aggregate: event.subject.as_ref().map(|it| fingerprint::aggregate_in(&topic, subject_type_tag, it)),
        idempotency,
        text: text.bytes,
        splice: text.splice,
    };
    PreparedEvent {
        draft,
        sequence: event.sequence.map(|sequence| Sequence(sequence.unsigned_abs())),
        expected: event.expected_aggregate_sequence,
        topic,
        place,
        type_defined_at: known.map(|known| known.defined_at),
        event_type: event.event_type.clone(),
        refusal: None,
        notes: SubmissionNotes {
            deprecated: checked.as_ref().is_ok_and(|checked| checked.deprecated),
            secret_suspected: Vec::new(),
        },
        imported,
    }
}

fn refuse(violations: Vec<Violation>, detail: &'static str) -> Result<()> {
    if violations.is_empty() {
        return Ok(());
    }
    Err(Error::new(Kind::Validation, detail).with_violations(violations))
}
