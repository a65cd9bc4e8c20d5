//! The writing verbs, each keeping its answer where its caller gave a key.
//!
//! The same verbs as `EventBroker`'s, for who speaks to callers that send a request again.

use super::Broker;
use crate::idempotency::StoredReplies;
use crate::ledger::{Ledger, ReplyRecorder};
use crate::{dispatch, topics, types};
use contract::{
    Atomicity, BatchOutcome, BulkResolveOutcome, BulkResolveRequest, Claim, ClaimCompletion, ClaimFailure,
    ClaimOutcome, Completion, Consumer, ConsumerGroup, DeadLetter, Error, EventCount, EventType, EventTypeId,
    FencingToken, GroupReset, GroupTopic, Handler, Kind, NewCheckpoint, NewClaim, NewConsumer, NewEvent, NewEventType,
    NewHandler, NewProjection, NewTopic, NewVersion, Offset, ProducerId, Projection, PublishedEvent, RedriveRequest,
    RegisterOutcome, RegisteredVersion, RepublishRequest, RepublishTarget, Result, SchemaVersion, Topic, TopicChange,
    TopicId, UnreadableEvent,
};
use uuid::Uuid;

/// A broker's writing verbs.
#[derive(Clone, Copy)]
pub(crate) struct BrokerWrites<'a>(pub(super) &'a Broker);

impl Broker {
    /// The writing verbs, with answers to keep.
    pub(crate) const fn writes(&self) -> BrokerWrites<'_> {
        BrokerWrites(self)
    }

    /// Refuses to delete a topic that must be there.
    pub(super) fn check_deletable(&self, id: &TopicId) -> Result<()> {
        id.check_unreserved("/id")?;
        if self.policy.config.default_topic.as_ref() == Some(id) {
            let detail =
                "This is the broker's default topic; name another one in the configuration (`default_topic`) first.";
            return Err(Error::new(Kind::InvalidState, detail));
        }
        Ok(())
    }

    /// The answers that are kept.
    pub(crate) fn stored_replies(&self) -> StoredReplies<'_> {
        let lives_millis = self.policy.config.idempotency.key_retention_millis();
        StoredReplies { logs: &self.logs, lives_millis }
    }
}

impl BrokerWrites<'_> {
    pub(crate) async fn register_topic(
        self,
        topic: NewTopic,
        keep: ReplyRecorder<RegisterOutcome<Topic>>,
    ) -> Result<RegisterOutcome<Topic>> {
        topics::register(&self.0.logs, topic, keep).await
    }

    pub(crate) async fn change_topic(
        self,
        id: &TopicId,
        change: TopicChange,
        keep: ReplyRecorder<Topic>,
    ) -> Result<Topic> {
        let (change, keep) = (&change, &keep);
        self.0.with_refresh(|| topics::change(&self.0.logs, id, change.clone(), keep.clone())).await
    }

    pub(crate) async fn delete_topic(self, id: &TopicId, force: bool, keep: ReplyRecorder<()>) -> Result<()> {
        self.0.check_deletable(id)?;
        let keep = &keep;
        let members = |ledger: &Ledger| self.0.consumers().members_of_topic(ledger, id);
        let delete = || topics::delete(&self.0.logs, id, force, members, keep.clone());
        let ended = self.0.with_refresh(delete).await?;
        ended.into_iter().for_each(|consumer| self.0.sessions.end(consumer));
        self.0.retention.forget(id);
        Ok(())
    }

    pub(crate) async fn register_event_type(
        self,
        event_type: NewEventType,
        keep: ReplyRecorder<RegisterOutcome<EventType>>,
    ) -> Result<RegisterOutcome<EventType>> {
        types::register((self.0.logs.default_ledger(), &self.0.policy.schemas), event_type, keep).await
    }

    pub(crate) async fn add_version(
        self,
        id: &EventTypeId,
        version: NewVersion,
        keep: ReplyRecorder<RegisterOutcome<RegisteredVersion>>,
    ) -> Result<RegisterOutcome<RegisteredVersion>> {
        types::versions::add((self.0.logs.default_ledger(), &self.0.policy.schemas), id, version, keep).await
    }

    pub(crate) async fn finalise_version(
        self,
        id: &EventTypeId,
        version: SchemaVersion,
        keep: ReplyRecorder<RegisteredVersion>,
    ) -> Result<RegisteredVersion> {
        types::versions::finalise((self.0.logs.default_ledger(), &self.0.policy.schemas), id, version, keep).await
    }

    pub(crate) async fn deprecate_version(
        self,
        id: &EventTypeId,
        version: SchemaVersion,
        keep: ReplyRecorder<RegisteredVersion>,
    ) -> Result<RegisteredVersion> {
        types::versions::deprecate(self.0.logs.default_ledger(), id, version, keep).await
    }

    pub(crate) async fn archive_event_type(
        self,
        id: &EventTypeId,
        keep: ReplyRecorder<EventType>,
    ) -> Result<EventType> {
        types::versions::archive(self.0.logs.default_ledger(), id, keep).await
    }

    pub(crate) async fn delete_event_type(self, id: &EventTypeId, keep: ReplyRecorder<()>) -> Result<()> {
        types::delete(&self.0.logs, &self.0.type_searches, id, keep).await
    }

    pub(crate) async fn publish(
        self,
        event: Box<NewEvent>,
        producer: Option<&ProducerId>,
        keep: ReplyRecorder<PublishedEvent>,
    ) -> Result<PublishedEvent> {
        self.0.publisher(producer).publish(event, keep).await
    }

    pub(crate) async fn publish_batch(
        self,
        events: Vec<Result<NewEvent, UnreadableEvent>>,
        atomicity: Atomicity,
        producer: Option<&ProducerId>,
        keep: ReplyRecorder<BatchOutcome>,
    ) -> Result<BatchOutcome> {
        self.0.publisher(producer).publish_batch(events, atomicity, keep).await
    }

    pub(crate) async fn create_consumer(
        self,
        consumer: NewConsumer,
        keep: ReplyRecorder<Consumer>,
    ) -> Result<Consumer> {
        let (consumer, keep) = (&consumer, &keep);
        self.0.with_refresh(|| async move { self.0.consumers().create(consumer.clone(), keep.clone()).await }).await
    }

    pub(crate) async fn delete_consumer(self, id: Uuid, keep: ReplyRecorder<()>) -> Result<()> {
        let keep = &keep;
        self.0.with_refresh(|| async move { self.0.consumers().delete(id, keep.clone()).await }).await
    }

    pub(crate) async fn commit_offset(
        self,
        id: Uuid,
        offset: Offset,
        keep: ReplyRecorder<GroupTopic>,
    ) -> Result<GroupTopic> {
        let keep = &keep;
        self.0.with_refresh(|| async move { self.0.consumers().commit(id, offset, keep.clone()).await }).await
    }

    pub(crate) async fn reset_group(
        self,
        name: &str,
        reset: GroupReset,
        keep: ReplyRecorder<ConsumerGroup>,
    ) -> Result<ConsumerGroup> {
        let (reset, keep) = (&reset, &keep);
        self.0.with_refresh(|| async move { self.0.consumers().reset(name, reset.clone(), keep.clone()).await }).await
    }

    pub(crate) async fn delete_projection(self, name: &str, keep: ReplyRecorder<()>) -> Result<()> {
        let keep = &keep;
        self.0.with_refresh(|| async move { self.0.projections().delete(name, keep.clone()).await }).await
    }

    pub(crate) async fn put_projection(
        self,
        name: &str,
        projection: NewProjection,
        keep: ReplyRecorder<RegisterOutcome<Projection>>,
    ) -> Result<RegisterOutcome<Projection>> {
        let (projection, keep) = (&projection, &keep);
        self.0
            .with_refresh(|| async move { self.0.projections().put(name, projection.clone(), keep.clone()).await })
            .await
    }

    pub(crate) async fn move_checkpoint(
        self,
        name: &str,
        to: NewCheckpoint,
        keep: ReplyRecorder<Projection>,
    ) -> Result<Projection> {
        let keep = &keep;
        self.0.with_refresh(|| async move { self.0.projections().checkpoint(name, to, keep.clone()).await }).await
    }

    pub(crate) async fn reset_projection(
        self,
        name: &str,
        offset: Offset,
        keep: ReplyRecorder<Projection>,
    ) -> Result<Projection> {
        let keep = &keep;
        self.0.with_refresh(|| async move { self.0.projections().reset(name, offset, keep.clone()).await }).await
    }

    pub(crate) async fn claim(
        self,
        claim: NewClaim,
        producer: Option<&ProducerId>,
        keep: ReplyRecorder<ClaimOutcome>,
    ) -> Result<ClaimOutcome> {
        let (claim, keep) = (&claim, &keep);
        self.0.with_refresh(|| async move { self.0.claims(producer).claim(claim.clone(), keep.clone()).await }).await
    }

    pub(crate) async fn claim_batch(
        self,
        claims: Vec<NewClaim>,
        producer: Option<&ProducerId>,
        keep: ReplyRecorder<Vec<Result<ClaimOutcome>>>,
    ) -> Result<Vec<Result<ClaimOutcome>>> {
        self.0.claims(producer).claim_batch(claims, keep).await
    }

    pub(crate) async fn heartbeat(self, claim: &str, token: FencingToken, keep: ReplyRecorder<Claim>) -> Result<Claim> {
        let keep = &keep;
        self.0.with_refresh(|| async move { self.0.claims(None).heartbeat(claim, token, keep.clone()).await }).await
    }

    pub(crate) async fn complete_claim(
        self,
        claim: &str,
        completion: Completion,
        producer: Option<&ProducerId>,
        keep: ReplyRecorder<Claim>,
    ) -> Result<Claim> {
        let (done, keep) = (&completion, &keep);
        self.0
            .with_refresh(|| async move { self.0.claims(producer).complete(claim, done.clone(), keep.clone()).await })
            .await
    }

    pub(crate) async fn complete_claims(
        self,
        completions: Vec<ClaimCompletion>,
        producer: Option<&ProducerId>,
        keep: ReplyRecorder<Vec<Result<Claim>>>,
    ) -> Result<Vec<Result<Claim>>> {
        self.0.claims(producer).complete_batch(completions, keep).await
    }

    pub(crate) async fn fail_claim(
        self,
        claim: &str,
        failure: ClaimFailure,
        keep: ReplyRecorder<Claim>,
    ) -> Result<Claim> {
        let (failure, keep) = (&failure, &keep);
        self.0
            .with_refresh(|| async move { self.0.claims(None).fail(claim, failure.clone(), keep.clone()).await })
            .await
    }

    pub(crate) async fn release_claim(
        self,
        claim: &str,
        token: FencingToken,
        keep: ReplyRecorder<Claim>,
    ) -> Result<Claim> {
        let keep = &keep;
        self.0.with_refresh(|| async move { self.0.claims(None).release(claim, token, keep.clone()).await }).await
    }

    pub(crate) async fn delete_handler(self, name: &str, keep: ReplyRecorder<()>) -> Result<()> {
        let keep = &keep;
        self.0.with_refresh(|| async move { self.0.claims(None).delete_handler(name, keep).await }).await
    }

    pub(crate) async fn delete_group(self, name: &str, keep: ReplyRecorder<()>) -> Result<()> {
        let keep = &keep;
        self.0.with_refresh(|| async move { self.0.consumers().delete_group(name, keep).await }).await
    }

    pub(crate) async fn put_handler(
        self,
        name: &str,
        handler: NewHandler,
        keep: ReplyRecorder<RegisterOutcome<Handler>>,
    ) -> Result<RegisterOutcome<Handler>> {
        self.0.claims(None).put_handler(name, handler, keep).await
    }

    pub(crate) async fn resume_dispatch(self, by: &str, keep: ReplyRecorder<()>) -> Result<()> {
        dispatch::resume_dispatch(&self.0.logs, by, keep).await
    }

    pub(crate) async fn redrive(
        self,
        id: Uuid,
        redrive: RedriveRequest,
        by: Option<&ProducerId>,
        keep: ReplyRecorder<DeadLetter>,
    ) -> Result<DeadLetter> {
        let (redrive, keep) = (&redrive, &keep);
        self.0.with_refresh(|| async move { self.0.letters(by).redrive(id, redrive, keep).await }).await
    }

    pub(crate) async fn discard(
        self,
        id: Uuid,
        reason: String,
        by: Option<&ProducerId>,
        keep: ReplyRecorder<DeadLetter>,
    ) -> Result<DeadLetter> {
        self.0.letters(by).discard(id, reason, &keep).await
    }

    pub(crate) async fn redrive_all(
        self,
        order: BulkResolveRequest,
        by: Option<&ProducerId>,
        keep: ReplyRecorder<BulkResolveOutcome>,
    ) -> Result<BulkResolveOutcome> {
        self.0.letters(by).redrive_all(order, &keep).await
    }

    pub(crate) async fn discard_all(
        self,
        order: BulkResolveRequest,
        by: Option<&ProducerId>,
        keep: ReplyRecorder<BulkResolveOutcome>,
    ) -> Result<BulkResolveOutcome> {
        self.0.letters(by).discard_all(order, &keep).await
    }

    pub(crate) async fn republish(
        self,
        id: &TopicId,
        order: RepublishRequest,
        keep: ReplyRecorder<EventCount>,
    ) -> Result<EventCount> {
        id.check_unreserved("/id")?;
        let (order, keep) = (&order, &keep);
        let again = || async move {
            let (logs, found) = (&self.0.logs, self.0.logs.find(id)?);
            topics::check_republish(order)?;
            match order.target {
                RepublishTarget::Topic => topics::republish_to_topic(logs, &found, order, keep).await,
                RepublishTarget::Group => topics::republish_to_group(logs, &found, order, keep).await,
                RepublishTarget::Subscriptions => self.0.subscriptions(None).republish(&found, order, keep).await,
            }
        };
        self.0.with_refresh(again).await
    }
}
