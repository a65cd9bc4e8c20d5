//! Versions that are declared with their event type, in its registration or in the configuration.
//!
//! - They are finalised at once: the highest minor of each major is CURRENT, the others are DEPRECATED.
//! - The rules are the same as for versions that are added one by one: each minor accepts what the one before accepts.

use super::SchemaCompiler;
use super::compile_queue::CompileWork;
use super::schema::{self, SchemaSource};
use crate::ledger::Registry;
use contract::{
    Error, Kind, NewEventType, NewVersion, RegisteredVersion, Result, SchemaTarget, SchemaType, Timestamp,
    VersionStatus, Violation, limits,
};
use std::sync::Arc;

/// The versions that an event type declares, checked, lowest first.
pub(super) async fn versions(schemas: &SchemaCompiler, event_type: &NewEventType) -> Result<Vec<NewVersion>> {
    let declared = &event_type.versions;
    if event_type.data_schema.is_some() && !declared.is_empty() {
        return Err(Error::invalid("/versions", "There is a `dataSchema`, too; send only one of them."));
    }
    if declared.len() > limits::VERSIONS_MAX {
        return Err(Error::invalid(
            "/versions",
            format!("An event type has at most {} versions.", limits::VERSIONS_MAX),
        ));
    }
    let target = event_type.schema_target;
    let mut placed = Vec::new();
    // Every schema has a turn of its own, so that other work can run in between.
    for (index, version) in declared.iter().enumerate() {
        let (compiler, version) = (schemas.clone(), version.clone());
        let check = move || {
            let at = format!("/versions/{index}");
            Ok((checked(&compiler, &at, version, target)?, at))
        };
        placed.push(Arc::new(schemas.run(CompileWork::Registration, check).await?));
    }
    placed.sort_by_key(|placed| placed.0.version);
    let mut incompatible = Vec::new();
    for pair in placed.windows(2) {
        let [old, new] = pair else { continue };
        if old.0.version == new.0.version {
            return Err(Error::invalid(format!("{}/version", new.1), "is declared twice"));
        }
        if old.0.version.major == new.0.version.major {
            let (old, new) = (Arc::clone(old), Arc::clone(new));
            let compare = move || Ok(schema::incompatibilities(&new.1, &old.0, &new.0, target));
            incompatible.extend(schemas.run(CompileWork::Registration, compare).await?);
        }
    }
    refuse_incompatible(incompatible)?;
    check_room(placed.iter().map(|placed| &placed.0))?;
    Ok(placed.into_iter().map(|placed| Arc::unwrap_or_clone(placed).0).collect())
}

/// Checks a version of a request (at the pointer `at`) and compiles its schema; returns it as it is stored.
pub(super) fn checked(
    schemas: &SchemaCompiler,
    at: &str,
    version: NewVersion,
    target: Option<SchemaTarget>,
) -> Result<NewVersion> {
    let version = schema::normalised(at, version)?;
    for (name, text) in [("mimeType", &version.mime_type), ("message", &version.message)] {
        if text.as_ref().is_some_and(|text| text.is_empty() || text.len() > limits::LABEL_BYTES_MAX) {
            return Err(Error::invalid(format!("{at}/{name}"), "is empty, or too long"));
        }
    }
    if version.message.is_some() && version.schema_type != SchemaType::Proto {
        return Err(Error::invalid(format!("{at}/message"), "is for schemas of the type PROTO only"));
    }
    if target == Some(SchemaTarget::Event) && version.schema_type != SchemaType::JsonSchema {
        let detail = "describes `data` alone, and the event type's `schemaTarget` is the event";
        return Err(Error::invalid(format!("{at}/schemaType"), detail));
    }
    schemas.compile(&SchemaSource::of_version(at, &version, target))?;
    Ok(version)
}

/// Declared versions with their initial status.
pub(super) fn registered(declared: &[NewVersion], now: Timestamp) -> Vec<RegisteredVersion> {
    let is_highest = |version: &NewVersion| {
        !declared
            .iter()
            .any(|other| other.version.major == version.version.major && other.version.minor > version.version.minor)
    };
    let made = declared.iter().map(|version| {
        let current = is_highest(version);
        RegisteredVersion {
            definition: version.clone(),
            status: if current { VersionStatus::Current } else { VersionStatus::Deprecated },
            created_at: now,
            finalised_at: Some(now),
            deprecated_at: (!current).then_some(now),
        }
    });
    made.collect()
}

/// Refuses a version that is incompatible with the one before it.
pub(super) fn refuse_incompatible(mut incompatible: Vec<Violation>) -> Result<()> {
    if incompatible.is_empty() {
        return Ok(());
    }
    incompatible.truncate(limits::VIOLATIONS_MAX);
    let detail = "This version would refuse events the version before it takes; see `errors`, or make it a new major.";
    Err(Error::new(Kind::Validation, detail).with_violations(incompatible))
}

/// Refuses more bytes of schemas than all event types may have together: the definitions are in RAM.
pub(super) fn check_room_of_all(registry: &Registry, added_bytes: usize) -> Result<()> {
    if registry.schema_bytes().saturating_add(added_bytes) > limits::EVENT_TYPES_BYTES_MAX {
        let detail = "This broker has the largest permitted size of schemas; delete archived event types.";
        return Err(Error::new(Kind::Overloaded, detail));
    }
    Ok(())
}

/// Refuses more versions, or more bytes of schemas, than an event type may have in total.
pub(super) fn check_room<'a>(versions: impl Iterator<Item = &'a NewVersion>) -> Result<()> {
    let (mut count, mut bytes) = (0, 0);
    for version in versions {
        count += 1;
        bytes += version.schema.to_string().len();
    }
    if count > limits::VERSIONS_MAX || bytes > limits::VERSIONS_BYTES_MAX {
        return Err(Error::new(
            Kind::Overloaded,
            "This event type has the largest permitted number or size of schema versions.",
        ));
    }
    Ok(())
}
