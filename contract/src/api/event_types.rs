//! Event types and the versions of their schemas.

use super::BoxFuture;
use crate::{
    Cursor, EventType, EventTypeId, IdPattern, NewEventType, NewVersion, Page, RegisterOutcome, RegisteredVersion,
    Result, SchemaVersion,
};

/// Event types and the versions of their schemas.
///
/// ```text
///   add_version ──▶ FINALISING ──finalise_version──▶ CURRENT ──deprecate_version──▶ DEPRECATED
///                                                       └── or a later version of its major becomes CURRENT ──▲
/// ```
pub trait EventTypeApi: Send + Sync {
    /// Registers an event type. The same definition again is [`RegisterOutcome::Unchanged`]; another definition is
    /// refused.
    fn register_event_type(&self, event_type: NewEventType) -> BoxFuture<'_, Result<RegisterOutcome<EventType>>>;
    /// One event type.
    fn event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<EventType>>;
    /// Event types in the order of their ids; only those that match `pattern` and whose events go to a topic that matches
    /// `topic`, if these are given.
    fn event_types<'a>(
        &'a self,
        pattern: Option<&'a IdPattern>,
        topic: Option<&'a IdPattern>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<EventType>>>;
    /// Adds a schema version, FINALISING. The same definition again is [`RegisterOutcome::Unchanged`]; another definition
    /// replaces a version that is still FINALISING, and is refused otherwise. A minor version must accept everything that
    /// its predecessor accepts.
    fn add_version<'a>(
        &'a self,
        id: &'a EventTypeId,
        version: NewVersion,
    ) -> BoxFuture<'a, Result<RegisterOutcome<RegisteredVersion>>>;
    /// Makes a FINALISING version CURRENT, and the CURRENT version of the same major DEPRECATED.
    fn finalise_version<'a>(
        &'a self,
        id: &'a EventTypeId,
        version: SchemaVersion,
    ) -> BoxFuture<'a, Result<RegisteredVersion>>;
    /// Makes a CURRENT version DEPRECATED. Events of it are still accepted.
    fn deprecate_version<'a>(
        &'a self,
        id: &'a EventTypeId,
        version: SchemaVersion,
    ) -> BoxFuture<'a, Result<RegisteredVersion>>;
    /// Archives an event type: new events of it are refused. Stored events stay readable.
    fn archive_event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<EventType>>;
    /// Deletes an archived event type; its name may be registered again. [`crate::Kind::InvalidState`] if it is not
    /// archived, or if an event of it is still stored.
    fn delete_event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<()>>;
}
