//! The checks of an event's `data`: parsed strictly, once, and validated against the schema version that it names.

use super::prepare::{MissingSchema, PublishRules};
use crate::ledger::RegisteredType;
use crate::types::versions;
use contract::{Error, Kind, NewEvent, Result, Violation, limits, parse_strict};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// Parses `data` strictly, once.
pub(super) fn parse_data(event: &NewEvent) -> Result<Value> {
    let text = event.data.get();
    if text.len() > limits::EVENT_BYTES_MAX {
        return Err(too_large());
    }
    let data = parse_strict(text, limits::DATA_DEPTH_MAX).map_err(under_data)?;
    if data.is_object() { Ok(data) } else { Err(Error::invalid("/data", "must be a JSON object")) }
}

/// The schema version that an event was checked against.
pub(super) struct SchemaCheck {
    pub(super) version: Option<Cow<'static, str>>,
    pub(super) deprecated: bool,
}

/// Why `data` is refused, or cannot be checked yet.
pub(super) enum DataFault {
    Refused(Error),
    SchemaMissing(MissingSchema),
}

impl From<Error> for DataFault {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// Validates `data` against the event's schema version; an archived type accepts no events.
pub(super) fn check_data(
    policy: &PublishRules,
    known: &Arc<RegisteredType>,
    event: &NewEvent,
    data: &mut Value,
) -> Result<SchemaCheck, DataFault> {
    if known.event_type.archived {
        return Err(Error::invalid("/type", "The event type is archived; it accepts no more events.").into());
    }
    let choice = versions::choose(known, event.data_version.as_deref())?;
    if let Some(version) = choice.version {
        let subject_type = event.subject_type.as_ref().map(|id| id.as_str());
        let Some(schema) = policy.schemas.cached(known, version) else {
            let version = version.definition.version;
            return Err(DataFault::SchemaMissing(MissingSchema { event_type: Arc::clone(known), version }));
        };
        let work = schema.work(data, event.data.get().len());
        let outcome =
            policy.schemas.checks().run(work, || schema.check(event.subject.as_deref(), subject_type, data))?;
        outcome.map_err(|violations| {
            Error::new(Kind::Validation, "The event does not match its type's schema; see `errors`.")
                .with_violations(violations)
        })?;
    }
    Ok(SchemaCheck { deprecated: choice.is_deprecated(), version: Some(choice.text) })
}

pub(super) fn too_large() -> Error {
    Error::new(
        Kind::PayloadTooLarge,
        format!("One event may have {} bytes; put the large part elsewhere and refer to it.", limits::EVENT_BYTES_MAX),
    )
}

/// Moves the pointers of the strict parser, which start at `data`, to the event.
fn under_data(error: Error) -> Error {
    let violations: Vec<_> = error
        .violations()
        .iter()
        .map(|violation| Violation::new(format!("/data{}", violation.pointer), violation.detail.clone()))
        .collect();
    if violations.is_empty() { error } else { error.with_violations(violations) }
}
