//! Schema versions: added as FINALISING, finalised to CURRENT, DEPRECATED; and the version that an event is published
//! under.
//!
//! - At most one version per major is CURRENT. Finalising a version and deprecating the one before it are one entry.
//! - A minor version is finalised only if it accepts every event that the highest finalised minor of its major accepts,
//!   and only if it is above that one; so minors are finalised in order.
//! - Comparing schemas is expensive, so it is done before the decision. If the definition changed in the meantime, it
//!   is done again.
//! - An archived type accepts no events and no versions; stored events stay.

use super::compile_queue::CompileWork;
use super::{TypeContext, declared_versions, schema};
use crate::ledger::{
    Command, Decision, Entry, Ledger, RegisteredType, ReplyRecorder, answer_or_repeat, decide_until_known,
};
use contract::{
    Error, EventType, EventTypeId, Kind, NewVersion, Position, RegisterOutcome, RegisteredVersion, Result,
    SchemaVersion, Timestamp, VersionStatus,
};
use std::borrow::Cow;
use std::sync::Arc;

/// The version an event is published under.
pub(crate) struct ChosenVersion<'a> {
    /// `None` if the type has no schema.
    pub(crate) version: Option<&'a RegisteredVersion>,
    /// As it is written in the stored event.
    pub(crate) text: Cow<'static, str>,
}

impl ChosenVersion<'_> {
    /// Whether the publisher is told that it is deprecated.
    pub(crate) fn is_deprecated(&self) -> bool {
        self.version.is_some_and(|version| version.status == VersionStatus::Deprecated)
    }
}

/// The version that a new event names, otherwise the CURRENT one of the highest major.
pub(crate) fn choose<'a>(known: &'a RegisteredType, requested: Option<&str>) -> Result<ChosenVersion<'a>> {
    let refused = |detail: &str| Error::invalid("/dataVersion", detail);
    let versions = &known.event_type.versions;
    let requested = requested.map(str::parse::<SchemaVersion>).transpose().map_err(|error| refused(error.detail()))?;
    let Some(requested) = requested else {
        if versions.is_empty() {
            return Ok(ChosenVersion { version: None, text: Cow::Borrowed(FIRST) });
        }
        let current = versions.iter().rev().find(|version| version.status == VersionStatus::Current);
        let current = current
            .ok_or_else(|| refused("No version of the event type's schema is current; name one or finalise one."))?;
        return Ok(ChosenVersion { version: Some(current), text: text_of(current.definition.version) });
    };
    if versions.is_empty() && requested == SchemaVersion::FIRST {
        return Ok(ChosenVersion { version: None, text: Cow::Borrowed(FIRST) });
    }
    let version = known.version(requested).ok_or_else(|| refused("is not a version of the event type's schema"))?;
    if version.status == VersionStatus::Finalising {
        return Err(refused("is still being finalised; use a version that is current"));
    }
    Ok(ChosenVersion { version: Some(version), text: text_of(requested) })
}

/// The text of a version; the common case needs no allocation.
fn text_of(version: SchemaVersion) -> Cow<'static, str> {
    match version == SchemaVersion::FIRST {
        true => Cow::Borrowed(FIRST),
        false => version.to_string().into(),
    }
}

/// Adds a version, or replaces one that is still being finalised.
pub(crate) async fn add(
    TypeContext { ledger, schemas }: TypeContext<'_>,
    id: &EventTypeId,
    version: NewVersion,
    recorder: ReplyRecorder<RegisterOutcome<RegisteredVersion>>,
) -> Result<RegisterOutcome<RegisteredVersion>> {
    decide_until_known((), |()| async {
        let known = find(ledger, id)?;
        let (compiler, seen, version) = (schemas.clone(), Arc::clone(&known), version.clone());
        let check = move || {
            let target = seen.event_type.definition.schema_target;
            let definition = declared_versions::checked(&compiler, "", version, target)?;
            if seen.version(definition.version).is_none_or(|known| known.definition != definition) {
                refuse_if_incompatible(&seen, &definition)?;
            }
            Ok(definition)
        };
        let definition = schemas.run(CompileWork::Registration, check).await?;
        let bytes = definition.schema.to_string().len();
        let command = AddVersion { id: id.clone(), definition, seen: known.defined_at, bytes };
        ledger.submit_recording(command, recorder.map_answer(decided)).await.map(answer_or_repeat)
    })
    .await
}

/// Makes a version CURRENT.
pub(crate) async fn finalise(
    TypeContext { ledger, schemas }: TypeContext<'_>,
    id: &EventTypeId,
    version: SchemaVersion,
    recorder: ReplyRecorder<RegisteredVersion>,
) -> Result<RegisteredVersion> {
    decide_until_known((), |()| async {
        let known = find(ledger, id)?;
        let seen = Arc::clone(&known);
        let check = move || {
            let draft = seen.version(version).filter(|version| version.status == VersionStatus::Finalising);
            match draft.filter(|draft| is_above(&seen, draft.definition.version)) {
                Some(draft) => refuse_if_incompatible(&seen, &draft.definition),
                None => Ok(()),
            }
        };
        schemas.run(CompileWork::Registration, check).await?;
        let command = FinaliseVersion { id: id.clone(), version, seen: known.defined_at };
        ledger.submit_recording(command, recorder.map_answer(decided)).await.map(answer_or_repeat)
    })
    .await
}

/// Makes a version that the configuration declares CURRENT, in one decision: several brokers may declare it at the same time.
/// Nothing changes if it is finalised already.
pub(super) async fn declare(
    TypeContext { ledger, schemas }: TypeContext<'_>,
    id: &EventTypeId,
    definition: NewVersion,
) -> Result<()> {
    decide_until_known((), |()| async {
        let known = find(ledger, id)?;
        if is_settled(&known, definition.version) {
            return Ok(answer_or_repeat(Some(())));
        }
        let (seen, compared) = (Arc::clone(&known), definition.clone());
        schemas.run(CompileWork::Registration, move || refuse_if_incompatible(&seen, &compared)).await?;
        let bytes = definition.schema.to_string().len();
        let command = DeclareVersion { id: id.clone(), definition: definition.clone(), seen: known.defined_at, bytes };
        ledger.submit(command).await.map(answer_or_repeat)
    })
    .await
}

/// Makes a CURRENT version DEPRECATED.
pub(crate) async fn deprecate(
    ledger: &Ledger,
    id: &EventTypeId,
    version: SchemaVersion,
    recorder: ReplyRecorder<RegisteredVersion>,
) -> Result<RegisteredVersion> {
    ledger.submit_recording(DeprecateVersion { id: id.clone(), version }, recorder).await
}

/// Archives an event type.
pub(crate) async fn archive(
    ledger: &Ledger,
    id: &EventTypeId,
    recorder: ReplyRecorder<EventType>,
) -> Result<EventType> {
    ledger.submit_recording(ArchiveEventType(id.clone()), recorder).await
}

const FIRST: &str = "1.0";
const NOT_ABOVE: &str = "must be above the highest finalised minor of its major version";

/// The result for the caller, unless the request must be prepared again.
pub(super) fn decided<A: Clone>(answer: &Option<A>) -> Option<Result<A>> {
    answer.clone().map(Ok)
}

pub(super) fn find(ledger: &Ledger, id: &EventTypeId) -> Result<Arc<RegisteredType>> {
    ledger.registry().event_type(id).cloned().ok_or_else(|| Error::not_found("event type"))
}

/// The highest finalised minor of a major.
fn highest(known: &RegisteredType, major: u32) -> Option<&RegisteredVersion> {
    let finalised = known.event_type.versions.iter().filter(|known| known.status != VersionStatus::Finalising);
    finalised.filter(|known| known.definition.version.major == major).max_by_key(|known| known.definition.version)
}

fn is_above(known: &RegisteredType, version: SchemaVersion) -> bool {
    highest(known, version.major).is_none_or(|highest| highest.definition.version < version)
}

fn refuse_if_incompatible(known: &RegisteredType, definition: &NewVersion) -> Result<()> {
    let before = highest(known, definition.version.major).filter(|_| is_above(known, definition.version));
    let target = known.event_type.definition.schema_target;
    declared_versions::refuse_incompatible(
        before.map_or_else(Vec::new, |old| schema::incompatibilities("", &old.definition, definition, target)),
    )
}

/// Whether declaring a version does not change it: it is finalised, or the type stays as it is.
fn is_settled(known: &RegisteredType, version: SchemaVersion) -> bool {
    let is_final = |version: &RegisteredVersion| version.status != VersionStatus::Finalising;
    known.version(version).is_some_and(|version| is_final(version) || known.event_type.archived)
}

fn invalid_state(detail: &'static str) -> Error {
    Error::new(Kind::InvalidState, detail)
}

/// Looks up a type that is not archived.
fn live_type(decision: &Decision<'_>, id: &EventTypeId) -> Result<Arc<RegisteredType>> {
    let known = decision.registry().event_type(id).cloned().ok_or_else(|| Error::not_found("event type"))?;
    if known.event_type.archived {
        return Err(invalid_state("The event type is archived; it stays as it is."));
    }
    Ok(known)
}

fn change(decision: &mut Decision<'_>, id: &EventTypeId, versions: Vec<RegisteredVersion>) -> Result<()> {
    decision.add_entry(Entry::VersionsChanged { event_type: id.clone(), versions }).map(|_| ())
}

struct AddVersion {
    id: EventTypeId,
    definition: NewVersion,
    /// The definition it was compared with.
    seen: Position,
    bytes: usize,
}

impl Command for AddVersion {
    /// `None`: look again.
    type Answer = Option<RegisterOutcome<RegisteredVersion>>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        let known = live_type(decision, &self.id)?;
        if let Some(version) = known.version(self.definition.version) {
            if version.definition == self.definition {
                return Ok(Some(RegisterOutcome::Unchanged(version.clone())));
            }
            if version.status != VersionStatus::Finalising {
                return Err(invalid_state("This version is finalised and never changes; add a higher one."));
            }
        }
        if known.defined_at != self.seen {
            return Ok(None);
        }
        if !is_above(&known, self.definition.version) {
            return Err(Error::invalid("/version", NOT_ABOVE));
        }
        check_room(decision, &known, &self.definition, self.bytes)?;
        let version = RegisteredVersion {
            definition: self.definition.clone(),
            status: VersionStatus::Finalising,
            created_at: Timestamp::from_millis(decision.now()),
            finalised_at: None,
            deprecated_at: None,
        };
        change(decision, &self.id, vec![version.clone()])?;
        Ok(Some(RegisterOutcome::Created(version)))
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Refuses a new version, or a new definition of one, that is too much.
fn check_room(decision: &Decision<'_>, known: &RegisteredType, new: &NewVersion, bytes: usize) -> Result<()> {
    let others = known.event_type.versions.iter().map(|version| &version.definition);
    let others = others.filter(|other| other.version != new.version);
    declared_versions::check_room(others.chain([new]))?;
    declared_versions::check_room_of_all(decision.registry(), bytes)
}

/// Adds a version, or replaces one that is still being finalised, and makes it CURRENT.
struct DeclareVersion {
    id: EventTypeId,
    definition: NewVersion,
    /// The definition it was compared with.
    seen: Position,
    bytes: usize,
}

impl Command for DeclareVersion {
    /// `None`: look again.
    type Answer = Option<()>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        let known = decision.registry().event_type(&self.id).cloned();
        if known.is_some_and(|known| is_settled(&known, self.definition.version)) {
            return Ok(Some(()));
        }
        let known = live_type(decision, &self.id)?;
        if known.defined_at != self.seen {
            return Ok(None);
        }
        if !is_above(&known, self.definition.version) {
            return Err(Error::invalid("/versions", format!("{} {NOT_ABOVE}", self.definition.version)));
        }
        check_room(decision, &known, &self.definition, self.bytes)?;
        let now = Timestamp::from_millis(decision.now());
        let version = RegisteredVersion {
            definition: self.definition.clone(),
            status: VersionStatus::Current,
            created_at: known.version(self.definition.version).map_or(now, |draft| draft.created_at),
            finalised_at: Some(now),
            deprecated_at: None,
        };
        make_current(decision, &known, version).map(Some)
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Makes a version CURRENT, and the one of its major that is CURRENT, DEPRECATED.
fn make_current(decision: &mut Decision<'_>, known: &RegisteredType, version: RegisteredVersion) -> Result<()> {
    let (major, now) = (version.definition.version.major, Timestamp::from_millis(decision.now()));
    let before = known.event_type.versions.iter().filter(|version| version.status == VersionStatus::Current);
    let before = before.filter(|version| version.definition.version.major == major);
    let mut changed: Vec<_> = before.map(|version| deprecated(version, now)).collect();
    changed.push(version);
    change(decision, &known.event_type.definition.id, changed)
}

struct FinaliseVersion {
    id: EventTypeId,
    version: SchemaVersion,
    /// The definition it was compared with.
    seen: Position,
}

impl Command for FinaliseVersion {
    /// `None`: look again.
    type Answer = Option<RegisteredVersion>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        let known = live_type(decision, &self.id)?;
        let draft = known.version(self.version).ok_or_else(|| Error::not_found("schema version"))?;
        if draft.status != VersionStatus::Finalising {
            return Err(invalid_state("This version is finalised already."));
        }
        if !is_above(&known, self.version) {
            return Err(invalid_state("A higher minor of this major version is finalised already; add one above it."));
        }
        if known.defined_at != self.seen {
            return Ok(None);
        }
        let now = Timestamp::from_millis(decision.now());
        let version = RegisteredVersion { status: VersionStatus::Current, finalised_at: Some(now), ..draft.clone() };
        make_current(decision, &known, version.clone())?;
        Ok(Some(version))
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

fn deprecated(version: &RegisteredVersion, now: Timestamp) -> RegisteredVersion {
    RegisteredVersion { status: VersionStatus::Deprecated, deprecated_at: Some(now), ..version.clone() }
}

struct DeprecateVersion {
    id: EventTypeId,
    version: SchemaVersion,
}

impl Command for DeprecateVersion {
    type Answer = RegisteredVersion;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<RegisteredVersion> {
        let known = live_type(decision, &self.id)?;
        let version = known.version(self.version).ok_or_else(|| Error::not_found("schema version"))?;
        match version.status {
            VersionStatus::Finalising => return Err(invalid_state("This version is still being finalised.")),
            VersionStatus::Deprecated => return Err(invalid_state("This version is deprecated already.")),
            VersionStatus::Current => (),
        }
        let version = deprecated(version, Timestamp::from_millis(decision.now()));
        change(decision, &self.id, vec![version.clone()])?;
        Ok(version)
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

struct ArchiveEventType(EventTypeId);

impl Command for ArchiveEventType {
    type Answer = EventType;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<EventType> {
        live_type(decision, &self.0)?;
        decision.add_entry(Entry::EventTypeArchived { event_type: self.0.clone() })?;
        super::get(decision.registry(), &self.0)
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}
