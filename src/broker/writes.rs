//! The writing verbs, each keeping its answer where its caller gave a key.
//!
//! The same verbs as `EventBroker`'s, for who speaks to callers that send a request again.

use super::Broker;
use crate::answers::Answers;
use crate::ledger::Keep;
use crate::{topics, types};
use contract::{
    Atomicity, BatchOutcome, Consumer, ConsumerGroup, EventType, EventTypeId, GroupReset, GroupTopic, NewConsumer,
    NewEvent, NewEventType, NewTopic, NewVersion, Offset, ProducerId, Published, Registered, Result, SchemaVersion,
    Topic, TopicChange, TopicId, Unread, Version,
};
use uuid::Uuid;

/// A broker's writing verbs.
#[derive(Clone, Copy)]
pub(crate) struct Writes<'a>(pub(super) &'a Broker);

impl Broker {
    /// The writing verbs, with answers to keep.
    pub(crate) const fn writes(&self) -> Writes<'_> {
        Writes(self)
    }

    /// The answers that are kept.
    pub(crate) fn answers(&self) -> Answers<'_> {
        let lives_millis = self.policy.config.idempotency.key_retention_millis();
        Answers { logs: &self.logs, clock: self.clock.as_ref(), lives_millis }
    }
}

impl Writes<'_> {
    pub(crate) async fn register_topic(
        self,
        topic: NewTopic,
        keep: Keep<Registered<Topic>>,
    ) -> Result<Registered<Topic>> {
        topics::register(&self.0.logs, topic, keep).await
    }

    pub(crate) async fn change_topic(self, id: &TopicId, change: TopicChange, keep: Keep<Topic>) -> Result<Topic> {
        let (change, keep) = (&change, &keep);
        self.0.afresh(|| topics::change(&self.0.logs, id, change.clone(), keep.clone())).await
    }

    pub(crate) async fn register_event_type(
        self,
        event_type: NewEventType,
        keep: Keep<Registered<EventType>>,
    ) -> Result<Registered<EventType>> {
        types::register(self.0.logs.default_ledger(), event_type, keep).await
    }

    pub(crate) async fn add_version(
        self,
        id: &EventTypeId,
        version: NewVersion,
        keep: Keep<Registered<Version>>,
    ) -> Result<Registered<Version>> {
        types::versions::add(self.0.logs.default_ledger(), id, version, keep).await
    }

    pub(crate) async fn finalise_version(
        self,
        id: &EventTypeId,
        version: SchemaVersion,
        keep: Keep<Version>,
    ) -> Result<Version> {
        types::versions::finalise(self.0.logs.default_ledger(), id, version, keep).await
    }

    pub(crate) async fn deprecate_version(
        self,
        id: &EventTypeId,
        version: SchemaVersion,
        keep: Keep<Version>,
    ) -> Result<Version> {
        types::versions::deprecate(self.0.logs.default_ledger(), id, version, keep).await
    }

    pub(crate) async fn archive_event_type(self, id: &EventTypeId, keep: Keep<EventType>) -> Result<EventType> {
        types::versions::archive(self.0.logs.default_ledger(), id, keep).await
    }

    pub(crate) async fn publish(
        self,
        event: NewEvent,
        producer: Option<&ProducerId>,
        keep: Keep<Published>,
    ) -> Result<Published> {
        self.0.intake(producer).publish(event, keep).await
    }

    pub(crate) async fn publish_batch(
        self,
        events: Vec<Result<NewEvent, Unread>>,
        atomicity: Atomicity,
        producer: Option<&ProducerId>,
        keep: Keep<BatchOutcome>,
    ) -> Result<BatchOutcome> {
        self.0.intake(producer).publish_batch(events, atomicity, keep).await
    }

    pub(crate) async fn create_consumer(self, consumer: NewConsumer, keep: Keep<Consumer>) -> Result<Consumer> {
        let (consumer, keep) = (&consumer, &keep);
        self.0.afresh(|| async move { self.0.consumers().create(consumer.clone(), keep.clone()).await }).await
    }

    pub(crate) async fn delete_consumer(self, id: Uuid, keep: Keep<()>) -> Result<()> {
        let keep = &keep;
        self.0.afresh(|| async move { self.0.consumers().delete(id, keep.clone()).await }).await
    }

    pub(crate) async fn commit_offset(self, id: Uuid, offset: Offset, keep: Keep<GroupTopic>) -> Result<GroupTopic> {
        let keep = &keep;
        self.0.afresh(|| async move { self.0.consumers().commit(id, offset, keep.clone()).await }).await
    }

    pub(crate) async fn reset_group(
        self,
        name: &str,
        reset: GroupReset,
        keep: Keep<ConsumerGroup>,
    ) -> Result<ConsumerGroup> {
        let (reset, keep) = (&reset, &keep);
        self.0.afresh(|| async move { self.0.consumers().reset(name, reset.clone(), keep.clone()).await }).await
    }

    pub(crate) async fn delete_projection(self, name: &str, keep: Keep<()>) -> Result<()> {
        let keep = &keep;
        self.0.afresh(|| async move { self.0.projections().delete(name, keep.clone()).await }).await
    }
}
