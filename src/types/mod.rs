//! Event types: what an event of a name may look like.
//!
//! - A definition is registered once; the same again changes nothing, another one is refused.
//! - A schema is compiled once per definition, however many events are held against it.

pub(crate) mod schema;

use crate::ledger::{Command, Decision, Entry, Ledger, Registry, TypeEntry};
use contract::{
    Cursor, Error, EventType, EventTypeId, GtsPattern, Kind, NewEventType, Page, Position, Registered, Result,
    Timestamp, Violation, limits,
};
use schema::Schema;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Compiled schemas by the definition they belong to.
#[derive(Default)]
pub(crate) struct Schemas(RwLock<HashMap<Position, Arc<Schema>>>);

impl Schemas {
    /// The schema of this definition, `None` where it has none.
    pub(crate) fn of(&self, known: &TypeEntry) -> Result<Option<Arc<Schema>>> {
        let definition = &known.event_type.definition;
        let Some(text) = &definition.data_schema else { return Ok(None) };
        if let Some(schema) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&known.defined_at) {
            return Ok(Some(Arc::clone(schema)));
        }
        let schema = Arc::new(Schema::compile(&text.to_string(), definition.schema_target)?);
        let mut compiled = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Ok(Some(Arc::clone(compiled.entry(known.defined_at).or_insert(schema))))
    }
}

/// Registers an event type.
pub(crate) async fn register(ledger: &Ledger, event_type: NewEventType) -> Result<Registered<EventType>> {
    check(&event_type)?;
    ledger.submit(Register(event_type)).await
}

/// One event type.
pub(crate) fn get(registry: &Registry, id: &EventTypeId) -> Result<EventType> {
    let known = registry.event_type(id).ok_or_else(|| Error::not_found("event type"))?;
    Ok(known.event_type.clone())
}

/// Event types in order of their ids, the page at `cursor`.
pub(crate) fn list(
    registry: &Registry,
    pattern: Option<&GtsPattern>,
    cursor: Option<&Cursor>,
    limit: usize,
) -> Page<EventType> {
    let matching = registry.event_types().filter(|known| {
        let id = &known.event_type.definition.id;
        pattern.is_none_or(|pattern| pattern.matches(id.as_gts()))
    });
    Page::of(matching.map(|known| known.event_type.clone()), cursor, limit, |last| last.definition.id.key().to_owned())
}

fn check(event_type: &NewEventType) -> Result<()> {
    let mut violations = Vec::new();
    let description = event_type.description.as_deref().unwrap_or_default();
    if description.len() > limits::DESCRIPTION_BYTES_MAX {
        violations.push(Violation::new("/description", "is too long"));
    }
    let template = event_type.subject_ref_template.as_deref().unwrap_or_default();
    if template.len() > limits::SUBJECT_BYTES_MAX {
        violations.push(Violation::new("/subjectRefTemplate", "is too long"));
    }
    if event_type.allowed_subject_types.len() > limits::SUBJECT_TYPES_MAX {
        violations.push(Violation::new("/allowedSubjectTypes", "names too many types"));
    }
    if !violations.is_empty() {
        return Err(
            Error::new(Kind::Validation, "The event type breaks the rules; see `errors`.").with_violations(violations)
        );
    }
    match &event_type.data_schema {
        Some(text) => Schema::compile(&text.to_string(), event_type.schema_target).map(|_| ()),
        None => Ok(()),
    }
}

struct Register(NewEventType);

impl Command for Register {
    type Answer = Registered<EventType>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        let registry = decision.registry();
        if let Some(known) = registry.event_type(&self.0.id) {
            if known.event_type.definition == self.0 {
                return Ok(Registered::Unchanged(known.event_type.clone()));
            }
            return Err(Error::new(Kind::AlreadyExists, "An event type of this name has another definition."));
        }
        if self.0.topic.as_ref().is_some_and(|topic| registry.definition(topic).is_none()) {
            return Err(Error::invalid("/topic", "is not registered; register the topic first"));
        }
        if registry.event_type_count() >= limits::EVENT_TYPES_MAX {
            return Err(Error::new(Kind::Overloaded, "This broker holds as many event types as it may."));
        }
        let created_at = Timestamp::from_millis(decision.now());
        let event_type = EventType { definition: self.0.clone(), created_at };
        decision.add_entry(Entry::EventTypeRegistered { event_type: event_type.clone() })?;
        Ok(Registered::Created(event_type))
    }

    fn bytes(&self) -> usize {
        self.0.data_schema.as_ref().map_or(0, |schema| schema.to_string().len())
    }
}
