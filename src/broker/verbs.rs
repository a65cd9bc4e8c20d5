//! The verbs of the contract, as other programs in this process call them.
//!
//! Where other brokers write to the log too, what is missing here may have been made there a moment ago: before a verb
//! says so, the broker reads what is new and looks again.

use super::Broker;
use crate::ledger::Keep;
use crate::{topics, types};
use contract::{
    Aggregate, AggregateEvents, AggregateRead, Atomicity, BatchOutcome, BoxFuture, Claim, ClaimCompletion,
    ClaimOutcome, Compact, Completion, Consumer, ConsumerGroup, Counted, Cursor, DeadLetter, DryRun, EventBroker,
    EventPage, EventType, EventTypeId, Failure, GroupReset, GroupTopic, Handler, IdPattern, Kind, LetterFilter,
    LetterOrder, LetterSummary, LettersResolved, LogPage, LogRead, NewCheckpoint, NewClaim, NewConsumer, NewEvent,
    NewEventType, NewHandler, NewProjection, NewTopic, NewVersion, Offset, Page, ProducerId, Projection, Published,
    Read, ReadOffset, Redrive, Registered, Republish, Result, SchemaVersion, Segments, StoredEvent, Token, Topic,
    TopicChange, TopicId, Trim, Version,
};
use std::time::Duration;
use uuid::Uuid;

impl Broker {
    /// What `ask` comes to; where it misses something that another broker may have made, once more with all of the log.
    pub(super) async fn afresh<T, F: Future<Output = Result<T>>>(&self, ask: impl Fn() -> F) -> Result<T> {
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
    fn register_topic(&self, topic: NewTopic) -> BoxFuture<'_, Result<Registered<Topic>>> {
        Box::pin(topics::register(&self.logs, topic, Keep::nothing()))
    }

    fn change_topic<'a>(&'a self, topic: &'a TopicId, change: TopicChange) -> BoxFuture<'a, Result<Topic>> {
        Box::pin(self.writes().change_topic(topic, change, Keep::nothing()))
    }

    fn topic<'a>(&'a self, id: &'a TopicId) -> BoxFuture<'a, Result<Topic>> {
        Box::pin(self.afresh(move || async move { topics::get(&self.logs.default_ledger().registry(), id) }))
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

    fn republish<'a>(&'a self, topic: &'a TopicId, order: Republish) -> BoxFuture<'a, Result<Counted>> {
        Box::pin(self.writes().republish(topic, order, Keep::nothing()))
    }

    fn trim_topic<'a>(&'a self, topic: &'a TopicId, trim: Trim) -> BoxFuture<'a, Result<Counted>> {
        Box::pin(async move {
            topic.check_unreserved("/id")?;
            let trim = &trim;
            let ask = || async move {
                let found = self.logs.find(topic)?;
                let ledger = self.logs.ledger(&found.place);
                topics::may_erase(ledger, trim.erase)?;
                let counted = topics::trim_as_told(ledger, &found.topic, trim).await?;
                topics::erase(ledger, trim.erase).await?;
                Ok(counted)
            };
            self.afresh(ask).await
        })
    }

    fn delete_topic<'a>(&'a self, topic: &'a TopicId, force: bool) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.writes().delete_topic(topic, force, Keep::nothing()))
    }

    fn plan_topic_deletion<'a>(&'a self, topic: &'a TopicId) -> BoxFuture<'a, Result<DryRun>> {
        Box::pin(self.afresh(move || async move {
            self.check_deletable(topic)?;
            topics::dry_run(&self.logs, topic).await
        }))
    }

    fn compact_topic<'a>(&'a self, topic: &'a TopicId, order: Compact) -> BoxFuture<'a, Result<Counted>> {
        let ask = move || async move {
            topic.check_unreserved("/id")?;
            let found = self.logs.find(topic)?;
            let age = self.policy.config.storage.retention_millis();
            let tombstones = topics::tombstones(&self.logs.default_ledger().registry());
            let ledger = self.logs.ledger(&found.place);
            topics::may_erase(ledger, order.erase)?;
            let counted = topics::compact_now(ledger, &found.topic, age, &tombstones).await?;
            topics::erase(ledger, order.erase).await?;
            Ok(counted)
        };
        Box::pin(self.afresh(ask))
    }

    fn segments<'a>(&'a self, topic: &'a TopicId) -> BoxFuture<'a, Result<Segments>> {
        Box::pin(self.afresh(move || topics::segments(&self.logs, topic)))
    }

    fn register_event_type(&self, event_type: NewEventType) -> BoxFuture<'_, Result<Registered<EventType>>> {
        Box::pin(types::register((self.logs.default_ledger(), &self.policy.schemas), event_type, Keep::nothing()))
    }

    fn event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<EventType>> {
        Box::pin(self.afresh(move || async move { types::get(&self.logs.default_ledger().registry(), id) }))
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
    ) -> BoxFuture<'a, Result<Registered<Version>>> {
        Box::pin(self.writes().add_version(id, version, Keep::nothing()))
    }

    fn finalise_version<'a>(&'a self, id: &'a EventTypeId, version: SchemaVersion) -> BoxFuture<'a, Result<Version>> {
        Box::pin(self.writes().finalise_version(id, version, Keep::nothing()))
    }

    fn deprecate_version<'a>(&'a self, id: &'a EventTypeId, version: SchemaVersion) -> BoxFuture<'a, Result<Version>> {
        Box::pin(self.writes().deprecate_version(id, version, Keep::nothing()))
    }

    fn archive_event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<EventType>> {
        Box::pin(self.writes().archive_event_type(id, Keep::nothing()))
    }

    fn delete_event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.writes().delete_event_type(id, Keep::nothing()))
    }

    fn publish<'a>(&'a self, event: NewEvent, producer: Option<&'a ProducerId>) -> BoxFuture<'a, Result<Published>> {
        Box::pin(self.intake(producer).publish(Box::new(event), Keep::nothing()))
    }

    fn publish_batch<'a>(
        &'a self,
        events: Vec<NewEvent>,
        atomicity: Atomicity,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BatchOutcome>> {
        Box::pin(self.publish_submitted(events.into_iter().map(Ok).collect(), atomicity, producer))
    }

    fn read(&self, read: Read) -> BoxFuture<'_, Result<EventPage>> {
        Box::pin(async move {
            let read = &read;
            self.afresh(|| async move { self.reader().read(read).await }).await
        })
    }

    fn wait(&self, read: Read, timeout: Duration) -> BoxFuture<'_, Result<EventPage>> {
        Box::pin(async move {
            let read = &read;
            self.afresh(|| async move { self.reader().wait(read, timeout).await }).await
        })
    }

    fn read_log(&self, read: LogRead) -> BoxFuture<'_, Result<LogPage>> {
        Box::pin(async move { self.reader().read_log(&read).await })
    }

    fn wait_log(&self, read: LogRead, timeout: Duration) -> BoxFuture<'_, Result<LogPage>> {
        Box::pin(async move { self.reader().wait_log(&read, timeout).await })
    }

    fn event(&self, id: Uuid) -> BoxFuture<'_, Result<StoredEvent>> {
        Box::pin(self.afresh(move || async move { self.reader().event(id).await }))
    }

    fn aggregate(&self, read: AggregateRead) -> BoxFuture<'_, Result<Aggregate>> {
        Box::pin(async move {
            let read = &read;
            self.afresh(|| async move { self.reader().aggregate(read).await }).await
        })
    }

    fn read_aggregate(&self, read: AggregateRead) -> BoxFuture<'_, Result<AggregateEvents>> {
        Box::pin(async move {
            let read = &read;
            self.afresh(|| async move { self.reader().read_aggregate(read).await }).await
        })
    }

    fn create_consumer(&self, consumer: NewConsumer) -> BoxFuture<'_, Result<Consumer>> {
        Box::pin(self.writes().create_consumer(consumer, Keep::nothing()))
    }

    fn consumer(&self, id: Uuid) -> BoxFuture<'_, Result<Consumer>> {
        Box::pin(self.afresh(move || async move { self.consumers().get(id) }))
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
        Box::pin(self.writes().delete_consumer(id, Keep::nothing()))
    }

    fn read_as(&self, consumer: Uuid, offset: ReadOffset, limit: usize) -> BoxFuture<'_, Result<EventPage>> {
        Box::pin(self.afresh(move || async move { self.consumers().read(consumer, offset, limit).await }))
    }

    fn wait_as(
        &self,
        consumer: Uuid,
        offset: ReadOffset,
        limit: usize,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<EventPage>> {
        Box::pin(self.afresh(move || async move { self.consumers().wait(consumer, offset, limit, timeout).await }))
    }

    fn commit_offset(&self, consumer: Uuid, offset: Offset) -> BoxFuture<'_, Result<GroupTopic>> {
        Box::pin(self.writes().commit_offset(consumer, offset, Keep::nothing()))
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
        Box::pin(self.writes().delete_group(name, Keep::nothing()))
    }

    fn reset_group<'a>(&'a self, name: &'a str, reset: GroupReset) -> BoxFuture<'a, Result<ConsumerGroup>> {
        Box::pin(self.writes().reset_group(name, reset, Keep::nothing()))
    }

    fn put_projection<'a>(
        &'a self,
        name: &'a str,
        projection: NewProjection,
    ) -> BoxFuture<'a, Result<Registered<Projection>>> {
        Box::pin(self.writes().put_projection(name, projection, Keep::nothing()))
    }

    fn projection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(self.afresh(move || async move { self.projections().get(name).await }))
    }

    fn projections<'a>(&'a self, cursor: Option<&'a Cursor>, limit: usize) -> BoxFuture<'a, Result<Page<Projection>>> {
        Box::pin(async move { self.projections().list(cursor, limit).await })
    }

    fn delete_projection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.writes().delete_projection(name, Keep::nothing()))
    }

    fn move_checkpoint<'a>(&'a self, name: &'a str, to: NewCheckpoint) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(self.writes().move_checkpoint(name, to, Keep::nothing()))
    }

    fn reset_projection<'a>(&'a self, name: &'a str, offset: Offset) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(self.writes().reset_projection(name, offset, Keep::nothing()))
    }

    fn wait_for_projection<'a>(
        &'a self,
        name: &'a str,
        offset: Offset,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(self.afresh(move || async move { self.projections().wait(name, offset, timeout).await }))
    }

    fn claim<'a>(&'a self, claim: NewClaim, producer: Option<&'a ProducerId>) -> BoxFuture<'a, Result<ClaimOutcome>> {
        Box::pin(self.writes().claim(claim, producer, Keep::nothing()))
    }

    fn claim_batch<'a>(
        &'a self,
        claims: Vec<NewClaim>,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Vec<Result<ClaimOutcome>>>> {
        Box::pin(self.writes().claim_batch(claims, producer, Keep::nothing()))
    }

    fn heartbeat<'a>(&'a self, claim: &'a str, token: Token) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(self.writes().heartbeat(claim, token, Keep::nothing()))
    }

    fn complete_claim<'a>(
        &'a self,
        claim: &'a str,
        completion: Completion,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(self.writes().complete_claim(claim, completion, producer, Keep::nothing()))
    }

    fn complete_claims<'a>(
        &'a self,
        completions: Vec<ClaimCompletion>,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Vec<Result<Claim>>>> {
        Box::pin(self.writes().complete_claims(completions, producer, Keep::nothing()))
    }

    fn fail_claim<'a>(&'a self, claim: &'a str, failure: Failure) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(self.writes().fail_claim(claim, failure, Keep::nothing()))
    }

    fn release_claim<'a>(&'a self, claim: &'a str, token: Token) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(self.writes().release_claim(claim, token, Keep::nothing()))
    }

    fn open_claim<'a>(&'a self, claim: &'a str) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(self.afresh(move || async move { self.claims(None).get(claim).await }))
    }

    fn open_claims<'a>(
        &'a self,
        handler: &'a str,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Claim>>> {
        Box::pin(async move { self.claims(None).list(handler, cursor, limit) })
    }

    fn put_handler<'a>(&'a self, name: &'a str, handler: NewHandler) -> BoxFuture<'a, Result<Registered<Handler>>> {
        Box::pin(self.writes().put_handler(name, handler, Keep::nothing()))
    }

    fn delete_handler<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.writes().delete_handler(name, Keep::nothing()))
    }

    fn handler<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Handler>> {
        Box::pin(self.afresh(move || async move { self.claims(None).handler(name).await }))
    }

    fn handlers<'a>(&'a self, cursor: Option<&'a Cursor>, limit: usize) -> BoxFuture<'a, Result<Page<Handler>>> {
        Box::pin(async move { self.claims(None).handlers(cursor, limit).await })
    }

    fn dead_letters<'a>(
        &'a self,
        filter: &'a LetterFilter,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<DeadLetter>>> {
        Box::pin(async move { self.letters(None).list(filter, cursor, limit).await })
    }

    fn dead_letter_summary(&self) -> BoxFuture<'_, Result<LetterSummary>> {
        Box::pin(async move { Ok(self.letters(None).summary()) })
    }

    fn dead_letter(&self, id: Uuid) -> BoxFuture<'_, Result<DeadLetter>> {
        Box::pin(self.afresh(move || async move { self.letters(None).get(id).await }))
    }

    fn redrive<'a>(
        &'a self,
        id: Uuid,
        redrive: Redrive,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<DeadLetter>> {
        Box::pin(self.writes().redrive(id, redrive, by, Keep::nothing()))
    }

    fn discard<'a>(
        &'a self,
        id: Uuid,
        reason: String,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<DeadLetter>> {
        Box::pin(self.writes().discard(id, reason, by, Keep::nothing()))
    }

    fn redrive_all<'a>(
        &'a self,
        order: LetterOrder,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<LettersResolved>> {
        Box::pin(self.writes().redrive_all(order, by, Keep::nothing()))
    }

    fn discard_all<'a>(
        &'a self,
        order: LetterOrder,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<LettersResolved>> {
        Box::pin(self.writes().discard_all(order, by, Keep::nothing()))
    }
}
