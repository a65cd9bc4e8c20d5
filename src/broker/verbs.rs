//! The verbs of the contract, as other programs in this process call them.
//!
//! Where other brokers write to the log too, what is missing here may have been made there a moment ago: before a verb
//! says so, the broker reads what is new and looks again.

use super::Broker;
use crate::ledger::ReplyRecorder;
use crate::{topics, types};
use contract::{
    Aggregate, AggregateEvents, AggregateRead, Atomicity, BatchOutcome, BoxFuture, BulkResolveOutcome,
    BulkResolveRequest, Claim, ClaimCompletion, ClaimFailure, ClaimOutcome, CompactRequest, Completion, Consumer,
    ConsumerGroup, Cursor, DeadLetter, DeadLetterFilter, DeadLetterSummary, DryRunReport, EventBroker, EventCount,
    EventPage, EventType, EventTypeId, FencingToken, GroupReset, GroupTopic, Handler, IdPattern, Kind, LogPage,
    LogRead, NewCheckpoint, NewClaim, NewConsumer, NewEvent, NewEventType, NewHandler, NewProjection, NewTopic,
    NewVersion, Offset, Page, ProducerId, Projection, PublishedEvent, ReadOffset, RedriveRequest, RegisterOutcome,
    RegisteredVersion, RepublishRequest, Result, SchemaVersion, StoredEvent, Topic, TopicChange, TopicId, TopicRead,
    TopicSegments, TrimRequest,
};
use std::time::Duration;
use uuid::Uuid;

impl Broker {
    /// What `ask` comes to; where it misses something that another broker may have made, once more with all of the log.
    pub(super) async fn with_refresh<T, F: Future<Output = Result<T>>>(&self, ask: impl Fn() -> F) -> Result<T> {
        let answer = ask().await;
        let default = self.logs.default_ledger();
        match &answer {
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Validation) && default.log().is_shared() => {
                default.refresh().await?;
                ask().await
            }
            _ => answer,
        }
    }
}

impl EventBroker for Broker {
    fn register_topic(&self, topic: NewTopic) -> BoxFuture<'_, Result<RegisterOutcome<Topic>>> {
        Box::pin(topics::register(&self.logs, topic, ReplyRecorder::disabled()))
    }

    fn change_topic<'a>(&'a self, topic: &'a TopicId, change: TopicChange) -> BoxFuture<'a, Result<Topic>> {
        Box::pin(self.writes().change_topic(topic, change, ReplyRecorder::disabled()))
    }

    fn topic<'a>(&'a self, id: &'a TopicId) -> BoxFuture<'a, Result<Topic>> {
        Box::pin(self.with_refresh(move || async move { topics::get(&self.logs.default_ledger().registry(), id) }))
    }

    fn topics<'a>(
        &'a self,
        pattern: Option<&'a IdPattern>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Topic>>> {
        Box::pin(async move {
            self.reader().check_limit(limit)?;
            Ok(topics::list(&self.logs.default_ledger().registry(), pattern, cursor, limit))
        })
    }

    fn republish<'a>(&'a self, topic: &'a TopicId, order: RepublishRequest) -> BoxFuture<'a, Result<EventCount>> {
        Box::pin(self.writes().republish(topic, order, ReplyRecorder::disabled()))
    }

    fn trim_topic<'a>(&'a self, topic: &'a TopicId, trim: TrimRequest) -> BoxFuture<'a, Result<EventCount>> {
        Box::pin(async move {
            topic.check_unreserved("/id")?;
            let trim = &trim;
            let ask = || async move {
                let found = self.logs.find(topic)?;
                let ledger = self.logs.ledger(&found.log);
                topics::may_erase(ledger, trim.erase)?;
                let counted = topics::trim_on_request(ledger, &found.topic, trim).await?;
                topics::erase(ledger, trim.erase).await?;
                Ok(counted)
            };
            self.with_refresh(ask).await
        })
    }

    fn delete_topic<'a>(&'a self, topic: &'a TopicId, force: bool) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.writes().delete_topic(topic, force, ReplyRecorder::disabled()))
    }

    fn plan_topic_deletion<'a>(&'a self, topic: &'a TopicId) -> BoxFuture<'a, Result<DryRunReport>> {
        Box::pin(self.with_refresh(move || async move {
            self.check_deletable(topic)?;
            topics::dry_run(&self.logs, topic).await
        }))
    }

    fn compact_topic<'a>(&'a self, topic: &'a TopicId, order: CompactRequest) -> BoxFuture<'a, Result<EventCount>> {
        let ask = move || async move {
            topic.check_unreserved("/id")?;
            let found = self.logs.find(topic)?;
            let age = self.policy.config.storage.retention_millis();
            let tombstones = topics::tombstones(&self.logs.default_ledger().registry());
            let ledger = self.logs.ledger(&found.log);
            topics::may_erase(ledger, order.erase)?;
            let counted = topics::compact_now(ledger, &found.topic, age, &tombstones).await?;
            topics::erase(ledger, order.erase).await?;
            Ok(counted)
        };
        Box::pin(self.with_refresh(ask))
    }

    fn segments<'a>(&'a self, topic: &'a TopicId) -> BoxFuture<'a, Result<TopicSegments>> {
        Box::pin(self.with_refresh(move || topics::segments(&self.logs, topic)))
    }

    fn register_event_type(&self, event_type: NewEventType) -> BoxFuture<'_, Result<RegisterOutcome<EventType>>> {
        Box::pin(types::register(
            (self.logs.default_ledger(), &self.policy.schemas),
            event_type,
            ReplyRecorder::disabled(),
        ))
    }

    fn event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<EventType>> {
        Box::pin(self.with_refresh(move || async move { types::get(&self.logs.default_ledger().registry(), id) }))
    }

    fn event_types<'a>(
        &'a self,
        pattern: Option<&'a IdPattern>,
        topic: Option<&'a TopicId>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<EventType>>> {
        Box::pin(async move {
            self.reader().check_limit(limit)?;
            let goes_there = |event_type: &NewEventType| {
                let goes_to = self.policy.topic_of(&event_type.id, event_type.topic.as_ref());
                topic.is_none() || topic == goes_to
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

    fn publish<'a>(
        &'a self,
        event: NewEvent,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<PublishedEvent>> {
        Box::pin(self.publisher(producer).publish(Box::new(event), ReplyRecorder::disabled()))
    }

    fn publish_batch<'a>(
        &'a self,
        events: Vec<NewEvent>,
        atomicity: Atomicity,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BatchOutcome>> {
        Box::pin(self.publish_submitted(events.into_iter().map(Ok).collect(), atomicity, producer))
    }

    fn read(&self, read: TopicRead) -> BoxFuture<'_, Result<EventPage>> {
        Box::pin(async move {
            let read = &read;
            self.with_refresh(|| async move { self.reader().read(read).await }).await
        })
    }

    fn wait(&self, read: TopicRead, timeout: Duration) -> BoxFuture<'_, Result<EventPage>> {
        Box::pin(async move {
            let read = &read;
            self.with_refresh(|| async move { self.reader().wait(read, timeout).await }).await
        })
    }

    fn read_log(&self, read: LogRead) -> BoxFuture<'_, Result<LogPage>> {
        Box::pin(async move { self.reader().read_log(&read).await })
    }

    fn wait_log(&self, read: LogRead, timeout: Duration) -> BoxFuture<'_, Result<LogPage>> {
        Box::pin(async move { self.reader().wait_log(&read, timeout).await })
    }

    fn event(&self, id: Uuid) -> BoxFuture<'_, Result<StoredEvent>> {
        Box::pin(self.with_refresh(move || async move { self.reader().event(id).await }))
    }

    fn aggregate(&self, read: AggregateRead) -> BoxFuture<'_, Result<Aggregate>> {
        Box::pin(async move {
            let read = &read;
            self.with_refresh(|| async move { self.reader().aggregate(read).await }).await
        })
    }

    fn read_aggregate(&self, read: AggregateRead) -> BoxFuture<'_, Result<AggregateEvents>> {
        Box::pin(async move {
            let read = &read;
            self.with_refresh(|| async move { self.reader().read_aggregate(read).await }).await
        })
    }

    fn create_consumer(&self, consumer: NewConsumer) -> BoxFuture<'_, Result<Consumer>> {
        Box::pin(self.writes().create_consumer(consumer, ReplyRecorder::disabled()))
    }

    fn consumer(&self, id: Uuid) -> BoxFuture<'_, Result<Consumer>> {
        Box::pin(self.with_refresh(move || async move { self.consumers().get(id) }))
    }

    fn consumers<'a>(
        &'a self,
        group: Option<&'a str>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Consumer>>> {
        Box::pin(async move { self.consumers().list(group, cursor, limit) })
    }

    fn delete_consumer(&self, id: Uuid) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.writes().delete_consumer(id, ReplyRecorder::disabled()))
    }

    fn read_as(&self, consumer: Uuid, offset: ReadOffset, limit: usize) -> BoxFuture<'_, Result<EventPage>> {
        Box::pin(self.with_refresh(move || async move { self.consumers().read(consumer, offset, limit).await }))
    }

    fn wait_as(
        &self,
        consumer: Uuid,
        offset: ReadOffset,
        limit: usize,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<EventPage>> {
        Box::pin(
            self.with_refresh(move || async move { self.consumers().wait(consumer, offset, limit, timeout).await }),
        )
    }

    fn commit_offset(&self, consumer: Uuid, offset: Offset) -> BoxFuture<'_, Result<GroupTopic>> {
        Box::pin(self.writes().commit_offset(consumer, offset, ReplyRecorder::disabled()))
    }

    fn consumer_groups<'a>(
        &'a self,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<ConsumerGroup>>> {
        Box::pin(async move { self.consumers().groups(cursor, limit).await })
    }

    fn consumer_group<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ConsumerGroup>> {
        Box::pin(async move {
            // Others may have moved it a moment ago. Where that cannot be told, what is known here is shown.
            let _ = self.logs.default_ledger().refresh().await;
            self.consumers().group(name).await
        })
    }

    fn delete_group<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.writes().delete_group(name, ReplyRecorder::disabled()))
    }

    fn reset_group<'a>(&'a self, name: &'a str, reset: GroupReset) -> BoxFuture<'a, Result<ConsumerGroup>> {
        Box::pin(self.writes().reset_group(name, reset, ReplyRecorder::disabled()))
    }

    fn put_projection<'a>(
        &'a self,
        name: &'a str,
        projection: NewProjection,
    ) -> BoxFuture<'a, Result<RegisterOutcome<Projection>>> {
        Box::pin(self.writes().put_projection(name, projection, ReplyRecorder::disabled()))
    }

    fn projection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(self.with_refresh(move || async move { self.projections().get(name).await }))
    }

    fn projections<'a>(&'a self, cursor: Option<&'a Cursor>, limit: usize) -> BoxFuture<'a, Result<Page<Projection>>> {
        Box::pin(async move { self.projections().list(cursor, limit).await })
    }

    fn delete_projection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.writes().delete_projection(name, ReplyRecorder::disabled()))
    }

    fn move_checkpoint<'a>(&'a self, name: &'a str, to: NewCheckpoint) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(self.writes().move_checkpoint(name, to, ReplyRecorder::disabled()))
    }

    fn reset_projection<'a>(&'a self, name: &'a str, offset: Offset) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(self.writes().reset_projection(name, offset, ReplyRecorder::disabled()))
    }

    fn wait_for_projection<'a>(
        &'a self,
        name: &'a str,
        offset: Offset,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(self.with_refresh(move || async move { self.projections().wait(name, offset, timeout).await }))
    }

    fn claim<'a>(&'a self, claim: NewClaim, producer: Option<&'a ProducerId>) -> BoxFuture<'a, Result<ClaimOutcome>> {
        Box::pin(self.writes().claim(claim, producer, ReplyRecorder::disabled()))
    }

    fn claim_batch<'a>(
        &'a self,
        claims: Vec<NewClaim>,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Vec<Result<ClaimOutcome>>>> {
        Box::pin(self.writes().claim_batch(claims, producer, ReplyRecorder::disabled()))
    }

    fn heartbeat<'a>(&'a self, claim: &'a str, token: FencingToken) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(self.writes().heartbeat(claim, token, ReplyRecorder::disabled()))
    }

    fn complete_claim<'a>(
        &'a self,
        claim: &'a str,
        completion: Completion,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(self.writes().complete_claim(claim, completion, producer, ReplyRecorder::disabled()))
    }

    fn complete_claims<'a>(
        &'a self,
        completions: Vec<ClaimCompletion>,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Vec<Result<Claim>>>> {
        Box::pin(self.writes().complete_claims(completions, producer, ReplyRecorder::disabled()))
    }

    fn fail_claim<'a>(&'a self, claim: &'a str, failure: ClaimFailure) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(self.writes().fail_claim(claim, failure, ReplyRecorder::disabled()))
    }

    fn release_claim<'a>(&'a self, claim: &'a str, token: FencingToken) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(self.writes().release_claim(claim, token, ReplyRecorder::disabled()))
    }

    fn open_claim<'a>(&'a self, claim: &'a str) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(self.with_refresh(move || async move { self.claims(None).get(claim).await }))
    }

    fn open_claims<'a>(
        &'a self,
        handler: &'a str,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Claim>>> {
        Box::pin(async move { self.claims(None).list(handler, cursor, limit) })
    }

    fn put_handler<'a>(
        &'a self,
        name: &'a str,
        handler: NewHandler,
    ) -> BoxFuture<'a, Result<RegisterOutcome<Handler>>> {
        Box::pin(self.writes().put_handler(name, handler, ReplyRecorder::disabled()))
    }

    fn delete_handler<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.writes().delete_handler(name, ReplyRecorder::disabled()))
    }

    fn handler<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Handler>> {
        Box::pin(self.with_refresh(move || async move { self.claims(None).handler(name).await }))
    }

    fn handlers<'a>(&'a self, cursor: Option<&'a Cursor>, limit: usize) -> BoxFuture<'a, Result<Page<Handler>>> {
        Box::pin(async move { self.claims(None).handlers(cursor, limit).await })
    }

    fn dead_letters<'a>(
        &'a self,
        filter: &'a DeadLetterFilter,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<DeadLetter>>> {
        Box::pin(async move { self.letters(None).list(filter, cursor, limit).await })
    }

    fn dead_letter_summary(&self) -> BoxFuture<'_, Result<DeadLetterSummary>> {
        Box::pin(async move { Ok(self.letters(None).summary()) })
    }

    fn dead_letter(&self, id: Uuid) -> BoxFuture<'_, Result<DeadLetter>> {
        Box::pin(self.with_refresh(move || async move { self.letters(None).get(id).await }))
    }

    fn redrive<'a>(
        &'a self,
        id: Uuid,
        redrive: RedriveRequest,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<DeadLetter>> {
        Box::pin(self.writes().redrive(id, redrive, by, ReplyRecorder::disabled()))
    }

    fn discard<'a>(
        &'a self,
        id: Uuid,
        reason: String,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<DeadLetter>> {
        Box::pin(self.writes().discard(id, reason, by, ReplyRecorder::disabled()))
    }

    fn redrive_all<'a>(
        &'a self,
        order: BulkResolveRequest,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BulkResolveOutcome>> {
        Box::pin(self.writes().redrive_all(order, by, ReplyRecorder::disabled()))
    }

    fn discard_all<'a>(
        &'a self,
        order: BulkResolveRequest,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BulkResolveOutcome>> {
        Box::pin(self.writes().discard_all(order, by, ReplyRecorder::disabled()))
    }
}
