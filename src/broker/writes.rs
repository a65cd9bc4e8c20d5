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
        recorder: ReplyRecorder<RegisterOutcome<Topic>>,
    ) -> Result<RegisterOutcome<Topic>> {
        topics::register(&self.0.logs, topic, recorder).await
    }

    pub(crate) async fn change_topic(
        self,
        id: &TopicId,
        change: TopicChange,
        recorder: ReplyRecorder<Topic>,
    ) -> Result<Topic> {
        let (change, keep) = (&change, &recorder);
        self.0.with_refresh(|| topics::change(&self.0.logs, id, change.clone(), keep.clone())).await
    }

    pub(crate) async fn delete_topic(self, id: &TopicId, force: bool, recorder: ReplyRecorder<()>) -> Result<()> {
        self.0.check_deletable(id)?;
        let recorder = &recorder;
        let members = |ledger: &Ledger| self.0.consumers().members_of_topic(ledger, id);
        let delete = || topics::delete(&self.0.logs, id, force, members, recorder.clone());
        let ended = self.0.with_refresh(delete).await?;
        ended.into_iter().for_each(|consumer| self.0.sessions.end(consumer));
        self.0.retention.forget(id);
        Ok(())
    }

    pub(crate) async fn register_event_type(
        self,
        event_type: NewEventType,
        recorder: ReplyRecorder<RegisterOutcome<EventType>>,
    ) -> Result<RegisterOutcome<EventType>> {
        types::register((self.0.logs.default_ledger(), &self.0.policy.schemas), event_type, recorder).await
    }

    pub(crate) async fn add_version(
        self,
        id: &EventTypeId,
        version: NewVersion,
        recorder: ReplyRecorder<RegisterOutcome<RegisteredVersion>>,
    ) -> Result<RegisterOutcome<RegisteredVersion>> {
        types::versions::add((self.0.logs.default_ledger(), &self.0.policy.schemas), id, version, recorder).await
    }

    pub(crate) async fn finalise_version(
        self,
        id: &EventTypeId,
        version: SchemaVersion,
        recorder: ReplyRecorder<RegisteredVersion>,
    ) -> Result<RegisteredVersion> {
        types::versions::finalise((self.0.logs.default_ledger(), &self.0.policy.schemas), id, version, recorder).await
    }

    pub(crate) async fn deprecate_version(
        self,
        id: &EventTypeId,
        version: SchemaVersion,
        recorder: ReplyRecorder<RegisteredVersion>,
    ) -> Result<RegisteredVersion> {
        types::versions::deprecate(self.0.logs.default_ledger(), id, version, recorder).await
    }

    pub(crate) async fn archive_event_type(
        self,
        id: &EventTypeId,
        recorder: ReplyRecorder<EventType>,
    ) -> Result<EventType> {
        types::versions::archive(self.0.logs.default_ledger(), id, recorder).await
    }

    pub(crate) async fn delete_event_type(self, id: &EventTypeId, recorder: ReplyRecorder<()>) -> Result<()> {
        types::delete(&self.0.logs, &self.0.type_searches, id, recorder).await
    }

    pub(crate) async fn publish(
        self,
        event: Box<NewEvent>,
        producer: Option<&ProducerId>,
        recorder: ReplyRecorder<PublishedEvent>,
    ) -> Result<PublishedEvent> {
        self.0.publisher(producer).publish(event, recorder).await
    }

    pub(crate) async fn publish_batch(
        self,
        events: Vec<Result<NewEvent, UnreadableEvent>>,
        atomicity: Atomicity,
        producer: Option<&ProducerId>,
        recorder: ReplyRecorder<BatchOutcome>,
    ) -> Result<BatchOutcome> {
        self.0.publisher(producer).publish_batch(events, atomicity, recorder).await
    }

    pub(crate) async fn create_consumer(
        self,
        consumer: NewConsumer,
        recorder: ReplyRecorder<Consumer>,
    ) -> Result<Consumer> {
        let (consumer, keep) = (&consumer, &recorder);
        self.0.with_refresh(|| async move { self.0.consumers().create(consumer.clone(), keep.clone()).await }).await
    }

    pub(crate) async fn delete_consumer(self, id: Uuid, recorder: ReplyRecorder<()>) -> Result<()> {
        let recorder = &recorder;
        self.0.with_refresh(|| async move { self.0.consumers().delete(id, recorder.clone()).await }).await
    }

    pub(crate) async fn commit_offset(
        self,
        id: Uuid,
        offset: Offset,
        recorder: ReplyRecorder<GroupTopic>,
    ) -> Result<GroupTopic> {
        let recorder = &recorder;
        self.0.with_refresh(|| async move { self.0.consumers().commit(id, offset, recorder.clone()).await }).await
    }

    pub(crate) async fn reset_group(
        self,
        name: &str,
        reset: GroupReset,
        recorder: ReplyRecorder<ConsumerGroup>,
    ) -> Result<ConsumerGroup> {
        let (reset, keep) = (&reset, &recorder);
        self.0.with_refresh(|| async move { self.0.consumers().reset(name, reset.clone(), keep.clone()).await }).await
    }

    pub(crate) async fn delete_projection(self, name: &str, recorder: ReplyRecorder<()>) -> Result<()> {
        let recorder = &recorder;
        self.0.with_refresh(|| async move { self.0.projections().delete(name, recorder.clone()).await }).await
    }

    pub(crate) async fn put_projection(
        self,
        name: &str,
        projection: NewProjection,
        recorder: ReplyRecorder<RegisterOutcome<Projection>>,
    ) -> Result<RegisterOutcome<Projection>> {
        let (projection, keep) = (&projection, &recorder);
        self.0
            .with_refresh(|| async move { self.0.projections().put(name, projection.clone(), keep.clone()).await })
            .await
    }

    pub(crate) async fn move_checkpoint(
        self,
        name: &str,
        to: NewCheckpoint,
        recorder: ReplyRecorder<Projection>,
    ) -> Result<Projection> {
        let recorder = &recorder;
        self.0.with_refresh(|| async move { self.0.projections().checkpoint(name, to, recorder.clone()).await }).await
    }

    pub(crate) async fn reset_projection(
        self,
        name: &str,
        offset: Offset,
        recorder: ReplyRecorder<Projection>,
    ) -> Result<Projection> {
        let recorder = &recorder;
        self.0.with_refresh(|| async move { self.0.projections().reset(name, offset, recorder.clone()).await }).await
    }

    pub(crate) async fn claim(
        self,
        claim: NewClaim,
        producer: Option<&ProducerId>,
        recorder: ReplyRecorder<ClaimOutcome>,
    ) -> Result<ClaimOutcome> {
        let (claim, keep) = (&claim, &recorder);
        self.0.with_refresh(|| async move { self.0.claims(producer).claim(claim.clone(), keep.clone()).await }).await
    }

    pub(crate) async fn claim_batch(
        self,
        claims: Vec<NewClaim>,
        producer: Option<&ProducerId>,
        recorder: ReplyRecorder<Vec<Result<ClaimOutcome>>>,
    ) -> Result<Vec<Result<ClaimOutcome>>> {
        self.0.claims(producer).claim_batch(claims, recorder).await
    }

    pub(crate) async fn heartbeat(self, claim: &str, token: FencingToken, recorder: ReplyRecorder<Claim>) -> Result<Claim> {
        let recorder = &recorder;
        self.0.with_refresh(|| async move { self.0.claims(None).heartbeat(claim, token, recorder.clone()).await }).await
    }

    pub(crate) async fn complete_claim(
        self,
        claim: &str,
        completion: Completion,
        producer: Option<&ProducerId>,
        recorder: ReplyRecorder<Claim>,
    ) -> Result<Claim> {
        let (done, keep) = (&completion, &recorder);
        self.0
            .with_refresh(|| async move { self.0.claims(producer).complete(claim, done.clone(), keep.clone()).await })
            .await
    }

    pub(crate) async fn complete_claims(
        self,
        completions: Vec<ClaimCompletion>,
        producer: Option<&ProducerId>,
        recorder: ReplyRecorder<Vec<Result<Claim>>>,
    ) -> Result<Vec<Result<Claim>>> {
        self.0.claims(producer).complete_batch(completions, recorder).await
    }

    pub(crate) async fn fail_claim(
        self,
        claim: &str,
        failure: ClaimFailure,
        recorder: ReplyRecorder<Claim>,
    ) -> Result<Claim> {
        let (failure, keep) = (&failure, &recorder);
        self.0
            .with_refresh(|| async move { self.0.claims(None).fail(claim, failure.clone(), keep.clone()).await })
            .await
    }

    pub(crate) async fn release_claim(
        self,
        claim: &str,
        token: FencingToken,
        recorder: ReplyRecorder<Claim>,
    ) -> Result<Claim> {
        let recorder = &recorder;
        self.0.with_refresh(|| async move { self.0.claims(None).release(claim, token, recorder.clone()).await }).await
    }

    pub(crate) async fn delete_handler(self, name: &str, recorder: ReplyRecorder<()>) -> Result<()> {
        let recorder = &recorder;
        self.0.with_refresh(|| async move { self.0.claims(None).delete_handler(name, recorder).await }).await
    }

    pub(crate) async fn delete_group(self, name: &str, recorder: ReplyRecorder<()>) -> Result<()> {
        let recorder = &recorder;
        self.0.with_refresh(|| async move { self.0.consumers().delete_group(name, recorder).await }).await
    }

    pub(crate) async fn put_handler(
        self,
        name: &str,
        handler: NewHandler,
        recorder: ReplyRecorder<RegisterOutcome<Handler>>,
    ) -> Result<RegisterOutcome<Handler>> {
        self.0.claims(None).put_handler(name, handler, recorder).await
    }

    pub(crate) async fn resume_dispatch(self, by: &str, recorder: ReplyRecorder<()>) -> Result<()> {
        dispatch::resume_dispatch(&self.0.logs, by, recorder).await
    }

    pub(crate) async fn redrive(
        self,
        id: Uuid,
        redrive: RedriveRequest,
        by: Option<&ProducerId>,
        recorder: ReplyRecorder<DeadLetter>,
    ) -> Result<DeadLetter> {
        let (redrive, keep) = (&redrive, &recorder);
        self.0.with_refresh(|| async move { self.0.letters(by).redrive(id, redrive, keep).await }).await
    }

    pub(crate) async fn discard(
        self,
        id: Uuid,
        reason: String,
        by: Option<&ProducerId>,
        recorder: ReplyRecorder<DeadLetter>,
    ) -> Result<DeadLetter> {
        self.0.letters(by).discard(id, reason, &recorder).await
    }

    pub(crate) async fn redrive_all(
        self,
        order: BulkResolveRequest,
        by: Option<&ProducerId>,
        recorder: ReplyRecorder<BulkResolveOutcome>,
    ) -> Result<BulkResolveOutcome> {
        self.0.letters(by).redrive_all(order, &recorder).await
    }

    pub(crate) async fn discard_all(
        self,
        order: BulkResolveRequest,
        by: Option<&ProducerId>,
        recorder: ReplyRecorder<BulkResolveOutcome>,
    ) -> Result<BulkResolveOutcome> {
        self.0.letters(by).discard_all(order, &recorder).await
    }

    pub(crate) async fn republish(
        self,
        id: &TopicId,
        order: RepublishRequest,
        recorder: ReplyRecorder<EventCount>,
    ) -> Result<EventCount> {
        id.check_unreserved("/id")?;
        let (order, keep) = (&order, &recorder);
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
