//! Event types and schema versions.

use super::BrokerWrites;
use crate::broker::Broker;
use crate::ledger::ReplyRecorder;
use crate::{topics, types};
use contract::api::{BoxFuture, EventTypeApi};
use contract::{
    Cursor, EventType, EventTypeId, IdPattern, NewEventType, NewVersion, Page, RegisterOutcome, RegisteredVersion,
    Result, SchemaVersion,
};

impl BrokerWrites<'_> {
    pub(crate) async fn register_event_type(
        self,
        event_type: NewEventType,
        recorder: ReplyRecorder<RegisterOutcome<EventType>>,
    ) -> Result<RegisterOutcome<EventType>> {
        types::register(self.refreshed().await?.type_context(), event_type, recorder).await
    }

    pub(crate) async fn add_version(
        self,
        id: &EventTypeId,
        version: NewVersion,
        recorder: ReplyRecorder<RegisterOutcome<RegisteredVersion>>,
    ) -> Result<RegisterOutcome<RegisteredVersion>> {
        types::versions::add(self.refreshed().await?.type_context(), id, version, recorder).await
    }

    pub(crate) async fn finalise_version(
        self,
        id: &EventTypeId,
        version: SchemaVersion,
        recorder: ReplyRecorder<RegisteredVersion>,
    ) -> Result<RegisteredVersion> {
        types::versions::finalise(self.refreshed().await?.type_context(), id, version, recorder).await
    }

    pub(crate) async fn deprecate_version(
        self,
        id: &EventTypeId,
        version: SchemaVersion,
        recorder: ReplyRecorder<RegisteredVersion>,
    ) -> Result<RegisteredVersion> {
        types::versions::deprecate(self.refreshed().await?.logs.default_ledger(), id, version, recorder).await
    }

    pub(crate) async fn archive_event_type(
        self,
        id: &EventTypeId,
        recorder: ReplyRecorder<EventType>,
    ) -> Result<EventType> {
        types::versions::archive(self.refreshed().await?.logs.default_ledger(), id, recorder).await
    }

    pub(crate) async fn delete_event_type(self, id: &EventTypeId, recorder: ReplyRecorder<()>) -> Result<()> {
        let broker = self.refreshed().await?;
        types::delete(&broker.logs, &broker.type_searches, id, recorder).await
    }
}

impl EventTypeApi for Broker {
    fn register_event_type(&self, event_type: NewEventType) -> BoxFuture<'_, Result<RegisterOutcome<EventType>>> {
        Box::pin(self.writes().register_event_type(event_type, ReplyRecorder::disabled()))
    }

    fn event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<EventType>> {
        Box::pin(self.with_refresh(move || async move { types::get(&self.logs.default_ledger().registry(), id) }))
    }

    fn event_types<'a>(
        &'a self,
        pattern: Option<&'a IdPattern>,
        topic: Option<&'a IdPattern>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<EventType>>> {
        Box::pin(async move {
            self.reader().check_limit(limit)?;
            let goes_there = |event_type: &NewEventType| {
                let goes_to = self.policy.topic_of(&event_type.id, event_type.topic.as_ref());
                topic.is_none_or(|pattern| goes_to.is_some_and(|id| topics::is_selected(pattern, id)))
            };
            Ok(types::list(&self.logs.default_ledger().registry(), pattern, goes_there, cursor, limit))
        })
    }

    fn add_version<'a>(
        &'a self,
        id: &'a EventTypeId,
        version: NewVersion,
    ) -> BoxFuture<'a, Result<RegisterOutcome<RegisteredVersion>>> {
        Box::pin(self.writes().add_version(id, version, ReplyRecorder::disabled()))
    }

    fn finalise_version<'a>(
        &'a self,
        id: &'a EventTypeId,
        version: SchemaVersion,
    ) -> BoxFuture<'a, Result<RegisteredVersion>> {
        Box::pin(self.writes().finalise_version(id, version, ReplyRecorder::disabled()))
    }

    fn deprecate_version<'a>(
        &'a self,
        id: &'a EventTypeId,
        version: SchemaVersion,
    ) -> BoxFuture<'a, Result<RegisteredVersion>> {
        Box::pin(self.writes().deprecate_version(id, version, ReplyRecorder::disabled()))
    }

    fn archive_event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<EventType>> {
        Box::pin(self.writes().archive_event_type(id, ReplyRecorder::disabled()))
    }

    fn delete_event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.writes().delete_event_type(id, ReplyRecorder::disabled()))
    }
}
