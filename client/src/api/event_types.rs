//! Event types and schema versions.

use crate::client::Client;
use crate::query;
use crate::requests::{NO_PARAMS, custom_method};
use contract::api::{BoxFuture, EventTypeApi};
use contract::{
    Cursor, EventType, EventTypeId, IdPattern, NewEventType, NewVersion, Page, RegisterOutcome, RegisteredVersion,
    Result, SchemaVersion,
};
use reqwest::Method;

impl Client {
    /// One version of an event type's schema, without the others.
    pub async fn version(&self, id: &EventTypeId, version: SchemaVersion) -> Result<RegisteredVersion> {
        self.get(&["event-types", id.as_str(), "versions", &version.to_string()], NO_PARAMS).await
    }
}

impl EventTypeApi for Client {
    fn register_event_type(&self, event_type: NewEventType) -> BoxFuture<'_, Result<RegisterOutcome<EventType>>> {
        Box::pin(async move { self.register(Method::POST, &["event-types"], &event_type).await })
    }

    fn event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<EventType>> {
        Box::pin(async move { self.get(&["event-types", id.as_str()], NO_PARAMS).await })
    }

    fn event_types<'a>(
        &'a self,
        pattern: Option<&'a IdPattern>,
        topic: Option<&'a IdPattern>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<EventType>>> {
        let mut query = query::page(cursor, limit);
        query::add(&mut query, "type", pattern);
        query::add(&mut query, "topic", topic);
        Box::pin(async move { self.list(&["event-types"], &query).await })
    }

    fn add_version<'a>(
        &'a self,
        id: &'a EventTypeId,
        version: NewVersion,
    ) -> BoxFuture<'a, Result<RegisterOutcome<RegisteredVersion>>> {
        Box::pin(async move { self.register(Method::POST, &["event-types", id.as_str(), "versions"], &version).await })
    }

    fn finalise_version<'a>(
        &'a self,
        id: &'a EventTypeId,
        version: SchemaVersion,
    ) -> BoxFuture<'a, Result<RegisteredVersion>> {
        Box::pin(async move {
            self.post_empty(&["event-types", id.as_str(), "versions", &custom_method(version, "finalise")]).await
        })
    }

    fn deprecate_version<'a>(
        &'a self,
        id: &'a EventTypeId,
        version: SchemaVersion,
    ) -> BoxFuture<'a, Result<RegisteredVersion>> {
        Box::pin(async move {
            self.post_empty(&["event-types", id.as_str(), "versions", &custom_method(version, "deprecate")]).await
        })
    }

    fn archive_event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<EventType>> {
        Box::pin(async move { self.post_empty(&["event-types", &custom_method(id, "archive")]).await })
    }

    fn delete_event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.remove(&["event-types", id.as_str()]).await })
    }
}
