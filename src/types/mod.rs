//! Event types: the rules for events of a name, version by version.
//!
//! - A definition is registered once; registering the same again changes nothing, another one is refused. The versions
//!   that it declares must be known; more may have been added since.
//! - A schema is compiled once, however many events are validated against it ([`schema_compiler`]).
//! - An archived type can be deleted once no event of it is stored ([`deletion`]).
//! - [`versions`] has the life of schema versions, [`schema`] the languages.

mod compile_queue;
mod declared_versions;
mod deletion;
pub(crate) mod schema;
mod schema_compiler;
pub(crate) mod versions;

use crate::ledger::{Command, Decision, Entry, Ledger, RegisteredType, Registry, ReplyRecorder};
use compile_queue::CompileWork;
use contract::{
    Cursor, Error, EventType, EventTypeId, IdPattern, Kind, NewEventType, NewVersion, Page, RegisterOutcome, Result,
    Timestamp, Violation, limits,
};
use schema::SchemaSource;
use std::sync::Arc;

pub(crate) use deletion::{TypeSearches, delete};
pub(crate) use schema_compiler::SchemaCompiler;

/// Where event types are registered, and what compiles their schemas.
#[derive(Clone, Copy)]
pub(crate) struct TypeContext<'a> {
    /// The default log.
    pub(crate) ledger: &'a Ledger,
    pub(crate) schemas: &'a SchemaCompiler,
}

/// Registers an event type.
pub(crate) async fn register(
    TypeContext { ledger, schemas }: TypeContext<'_>,
    event_type: NewEventType,
    recorder: ReplyRecorder<RegisterOutcome<EventType>>,
) -> Result<RegisterOutcome<EventType>> {
    let (event_type, declared) = check_off_thread(schemas, event_type).await?;
    let bytes = event_type.data_schema.as_ref().map_or(0, |schema| schema.to_string().len())
        + declared.iter().map(|version| version.schema.to_string().len()).sum::<usize>();
    // Declared versions are stored with their status, not in the definition.
    let definition = NewEventType { versions: Vec::new(), ..event_type };
    ledger.submit_recording(RegisterEventType { definition, declared, bytes }, recorder).await
}

/// Registers a type that the configuration declares. If the type exists, versions of it that are new or being finalised are
/// finalised as they are declared.
pub(crate) async fn declare(context: TypeContext<'_>, event_type: NewEventType) -> Result<()> {
    if context.ledger.registry().event_type(&event_type.id).is_none() {
        match register(context, event_type.clone(), ReplyRecorder::disabled()).await {
            // Another broker registered it meanwhile, perhaps with fewer versions.
            Err(error) if error.kind() == Kind::AlreadyExists => (),
            registered => return registered.map(drop),
        }
    }
    let (event_type, declared) = check_off_thread(context.schemas, event_type).await?;
    for version in declared {
        versions::declare(context, &event_type.id, version).await?;
    }
    register(context, event_type, ReplyRecorder::disabled()).await.map(drop)
}

/// Checks a definition and compiles its schemas; returns the declared versions, too.
async fn check_off_thread(
    schemas: &SchemaCompiler,
    event_type: NewEventType,
) -> Result<(NewEventType, Vec<NewVersion>)> {
    check(&event_type)?;
    let event_type = Arc::new(event_type);
    if event_type.data_schema.is_some() {
        let (compiler, checked) = (schemas.clone(), Arc::clone(&event_type));
        let compile = move || match &checked.data_schema {
            Some(schema) => {
                compiler.compile(&SchemaSource::json("/dataSchema", schema, checked.schema_target)).map(drop)
            }
            None => Ok(()),
        };
        schemas.run(CompileWork::Registration, compile).await?;
    }
    let declared = declared_versions::versions(schemas, &event_type).await?;
    Ok((Arc::unwrap_or_clone(event_type), declared))
}

fn busy(detail: &'static str) -> Error {
    Error::new(Kind::Overloaded, detail).with_retry_after(1)
}

/// The members in which two definitions differ, such as `retention`, `description`.
pub(crate) fn differing_members<T: serde::Serialize>(known: &T, new: &T) -> String {
    let members = |it: &T| match serde_json::to_value(it) {
        Ok(serde_json::Value::Object(members)) => members,
        _ => serde_json::Map::new(),
    };
    let (known, new) = (members(known), members(new));
    let names: std::collections::BTreeSet<_> = known.keys().chain(new.keys()).collect();
    let differing = names.into_iter().filter(|name| known.get(*name) != new.get(*name));
    differing.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Looks up an event type.
pub(crate) fn get(registry: &Registry, id: &EventTypeId) -> Result<EventType> {
    let known = registry.event_type(id).ok_or_else(|| Error::not_found("event type"))?;
    Ok(known.event_type.clone())
}

/// The page of event types at `cursor`, in the order of their ids, that `is_wanted` accepts.
pub(crate) fn list(
    registry: &Registry,
    pattern: Option<&IdPattern>,
    is_wanted: impl Fn(&NewEventType) -> bool,
    cursor: Option<&Cursor>,
    limit: usize,
) -> Page<EventType> {
    let matching = registry.event_types().filter(|known| {
        let id = &known.event_type.definition.id;
        pattern.is_none_or(|pattern| pattern.matches(id.as_identifier())) && is_wanted(&known.event_type.definition)
    });
    // A type may have megabytes of schemas: it is measured and copied only if it is on the page.
    let key = |known: &&Arc<RegisteredType>| known.event_type.definition.id.key().to_owned();
    let page = Page::of_rows_with_sizes(matching, cursor, limit, |known| printed_bytes(&known.event_type), key);
    page.map(|known| known.event_type.clone())
}

/// The bytes of a value as JSON.
fn printed_bytes(value: &impl serde::Serialize) -> usize {
    struct ByteCounter(usize);
    impl std::io::Write for ByteCounter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = ByteCounter(0);
    match serde_json::to_writer(&mut counter, value) {
        Ok(()) => counter.0,
        Err(_) => usize::MAX,
    }
}

fn check(event_type: &NewEventType) -> Result<()> {
    let mut violations = Vec::new();
    let description = event_type.description.as_deref().unwrap_or_default();
    if description.chars().count() > limits::DESCRIPTION_CHARS_MAX {
        let detail = format!("may have at most {} characters", limits::DESCRIPTION_CHARS_MAX);
        violations.push(Violation::new("/description", detail));
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
    Ok(())
}

struct RegisterEventType {
    definition: NewEventType,
    declared: Vec<NewVersion>,
    bytes: usize,
}

impl RegisterEventType {
    fn is_known(&self, known: &RegisteredType) -> bool {
        let has = |declared: &NewVersion| {
            known.version(declared.version).is_some_and(|version| version.definition == *declared)
        };
        known.event_type.definition == self.definition && self.declared.iter().all(has)
    }

    /// The refusal, with the members that differ from the registered type, and what to do.
    fn differs(&self, known: &RegisteredType) -> Error {
        let members = match differing_members(&known.event_type.definition, &self.definition) {
            members if members.is_empty() => "`versions`".to_owned(),
            members => members,
        };
        let detail = format!(
            "An event type of this name is registered with another {members}. A registered type does not change: register \
            another name, or add a schema as a new version (POST /v1/event-types/{{id}}/versions)."
        );
        Error::new(Kind::AlreadyExists, detail)
    }
}

impl Command for RegisterEventType {
    type Answer = RegisterOutcome<EventType>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        let registry = decision.registry();
        if let Some(known) = registry.event_type(&self.definition.id) {
            if self.is_known(known) {
                return Ok(RegisterOutcome::Unchanged(known.event_type.clone()));
            }
            return Err(self.differs(known));
        }
        if let Some(topic) = &self.definition.topic {
            topic.check_unreserved("/topic")?;
        }
        if self.definition.topic.as_ref().is_some_and(|topic| registry.definition(topic).is_none()) {
            return Err(Error::invalid("/topic", "is not registered; register the topic first"));
        }
        if registry.event_type_count() >= limits::EVENT_TYPES_MAX {
            return Err(Error::new(Kind::Overloaded, "This broker has the largest permitted number of event types."));
        }
        declared_versions::check_room_of_all(registry, self.bytes)?;
        let created_at = Timestamp::from_millis(decision.now());
        let versions = declared_versions::registered(&self.declared, created_at);
        let event_type = EventType { definition: self.definition.clone(), created_at, versions, archived: false };
        decision.add_entry(Entry::EventTypeRegistered { event_type })?;
        get(decision.registry(), &self.definition.id).map(RegisterOutcome::Created)
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}
