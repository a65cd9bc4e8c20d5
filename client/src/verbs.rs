//! [`EventBroker`] over HTTP: every verb as a request.
//!
//! - Hot writes that come to the same when repeated (publishing under an id, committing, checkpoints, heartbeats, done,
//!   failed) are sent as they are; all others carry a key of their call.

use crate::client::Client;
use crate::query;
use crate::requests::{NO_PARAMS, custom_method};
use crate::response::{self, DataBody};
use contract::{
    Aggregate, AggregateEvents, AggregateRead, Atomicity, BatchOutcome, BoxFuture, BulkResolveOutcome,
    BulkResolveRequest, Claim, ClaimCompletion, ClaimFailure, ClaimOutcome, CompactRequest, Completion, Consumer,
    ConsumerGroup, Cursor, DeadLetter, DeadLetterFilter, DeadLetterSummary, DryRunReport, EventBroker, EventCount,
    EventPage, EventType, EventTypeId, FencingToken, GroupReset, GroupTopic, Handler, IdPattern, LogPage, LogRead,
    NewCheckpoint, NewClaim, NewConsumer, NewEvent, NewEventType, NewHandler, NewProjection, NewTopic, NewVersion,
    Offset, Page, ProducerId, Projection, PublishedEvent, ReadOffset, RedriveRequest, RegisterOutcome,
    RegisteredVersion, RepublishRequest, Result, SchemaVersion, StoredEvent, Topic, TopicChange, TopicId, TopicRead,
    TopicSegments, TrimRequest,
};
use reqwest::Method;
use serde_json::json;
use std::time::Duration;
use uuid::Uuid;

impl EventBroker for Client {
    fn register_topic(&self, topic: NewTopic) -> BoxFuture<'_, Result<RegisterOutcome<Topic>>> {
        Box::pin(async move { self.register(Method::POST, &["topics"], &topic).await })
    }

    fn change_topic<'a>(&'a self, topic: &'a TopicId, change: TopicChange) -> BoxFuture<'a, Result<Topic>> {
        Box::pin(async move {
            self.send_json(self.request(Method::PATCH, &["topics", topic.as_str()], NO_PARAMS).json(&change).keyed())
                .await
        })
    }

    fn topic<'a>(&'a self, id: &'a TopicId) -> BoxFuture<'a, Result<Topic>> {
        Box::pin(async move { self.get(&["topics", id.as_str()], NO_PARAMS).await })
    }

    fn topics<'a>(
        &'a self,
        pattern: Option<&'a IdPattern>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Topic>>> {
        let mut query = query::page(cursor, limit);
        query::add(&mut query, "topic", pattern);
        Box::pin(async move { self.list(&["topics"], &query).await })
    }

    fn segments<'a>(&'a self, topic: &'a TopicId) -> BoxFuture<'a, Result<TopicSegments>> {
        Box::pin(self.segments_of(topic))
    }

    fn register_event_type(&self, event_type: NewEventType) -> BoxFuture<'_, Result<RegisterOutcome<EventType>>> {
        Box::pin(async move { self.register(Method::POST, &["event-types"], &event_type).await })
    }

    fn event_type<'a>(&'a self, id: &'a EventTypeId) -> BoxFuture<'a, Result<EventType>> {
        Box::pin(async move { self.get(&["event-types", id.as_str()], NO_PARAMS).await })
    }

    fn event_types<'a>(
        &'a self,
        pattern: Option<&'a IdPattern>,
        topic: Option<&'a TopicId>,
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

    fn publish<'a>(
        &'a self,
        event: NewEvent,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<PublishedEvent>> {
        Box::pin(self.publish_with(event, producer, NO_PARAMS, Duration::ZERO))
    }

    fn publish_batch<'a>(
        &'a self,
        events: Vec<NewEvent>,
        atomicity: Atomicity,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BatchOutcome>> {
        Box::pin(self.publish_several(events, atomicity, producer))
    }

    fn read(&self, read: TopicRead) -> BoxFuture<'_, Result<EventPage>> {
        let query = query::of_read(&read, None);
        Box::pin(async move { response::event_page(&self.bytes(&["events"], &query, Duration::ZERO).await?) })
    }

    fn wait(&self, read: TopicRead, timeout: Duration) -> BoxFuture<'_, Result<EventPage>> {
        let query = query::of_read(&read, Some(timeout));
        Box::pin(async move { response::event_page(&self.bytes(&["events:poll"], &query, timeout).await?) })
    }

    fn read_log(&self, read: LogRead) -> BoxFuture<'_, Result<LogPage>> {
        self.wait_log(read, Duration::ZERO)
    }

    fn wait_log(&self, read: LogRead, timeout: Duration) -> BoxFuture<'_, Result<LogPage>> {
        let query = query::of_log_read(&read, timeout);
        Box::pin(async move { response::log_page(&self.bytes(&["log"], &query, timeout).await?) })
    }

    fn event(&self, id: Uuid) -> BoxFuture<'_, Result<StoredEvent>> {
        Box::pin(async move {
            response::stored_event(self.bytes(&["events", &id.to_string()], NO_PARAMS, Duration::ZERO).await?)
        })
    }

    fn aggregate(&self, read: AggregateRead) -> BoxFuture<'_, Result<Aggregate>> {
        Box::pin(async move {
            let path = ["aggregates", query::subject_type(&read), &read.subject];
            let query = query::one("topic", &read.topic);
            response::aggregate(&self.bytes(&path, &query, Duration::ZERO).await?)
        })
    }

    fn read_aggregate(&self, read: AggregateRead) -> BoxFuture<'_, Result<AggregateEvents>> {
        Box::pin(async move {
            let path = ["aggregates", query::subject_type(&read), &read.subject, "events"];
            let query = query::of_aggregate(&read);
            response::aggregate_events(&self.bytes(&path, &query, Duration::ZERO).await?)
        })
    }

    fn create_consumer(&self, consumer: NewConsumer) -> BoxFuture<'_, Result<Consumer>> {
        Box::pin(async move { Ok(self.post_keyed::<DataBody<_>>(&["consumers"], &consumer).await?.data) })
    }

    fn consumer(&self, id: Uuid) -> BoxFuture<'_, Result<Consumer>> {
        Box::pin(async move { Ok(self.get::<DataBody<_>>(&["consumers", &id.to_string()], NO_PARAMS).await?.data) })
    }

    fn consumers<'a>(
        &'a self,
        group: Option<&'a str>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Consumer>>> {
        let mut query = query::page(cursor, limit);
        query::add(&mut query, "consumerGroup", group);
        Box::pin(async move { self.list(&["consumers"], &query).await })
    }

    fn delete_consumer(&self, id: Uuid) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.remove(&["consumers", &id.to_string()]).await })
    }

    fn read_as(&self, consumer: Uuid, offset: ReadOffset, limit: usize) -> BoxFuture<'_, Result<EventPage>> {
        let query = query::of_consumer(consumer, offset, limit, None);
        Box::pin(async move { response::event_page(&self.bytes(&["events"], &query, Duration::ZERO).await?) })
    }

    fn wait_as(
        &self,
        consumer: Uuid,
        offset: ReadOffset,
        limit: usize,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<EventPage>> {
        let query = query::of_consumer(consumer, offset, limit, Some(timeout));
        Box::pin(async move { response::event_page(&self.bytes(&["events:poll"], &query, timeout).await?) })
    }

    fn commit_offset(&self, consumer: Uuid, offset: Offset) -> BoxFuture<'_, Result<GroupTopic>> {
        Box::pin(async move {
            self.post_repeatable(&["consumers", &custom_method(consumer, "commit")], &json!({"offset": offset})).await
        })
    }

    fn consumer_groups<'a>(
        &'a self,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<ConsumerGroup>>> {
        let query = query::page(cursor, limit);
        Box::pin(async move { self.list(&["consumer-groups"], &query).await })
    }

    fn consumer_group<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ConsumerGroup>> {
        Box::pin(async move { self.get(&["consumer-groups", name], NO_PARAMS).await })
    }

    fn delete_group<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.remove(&["consumer-groups", name]).await })
    }

    fn reset_group<'a>(&'a self, name: &'a str, reset: GroupReset) -> BoxFuture<'a, Result<ConsumerGroup>> {
        Box::pin(async move {
            self.post_keyed(&["consumer-groups", &custom_method(name, "reset")], &query::reset(&reset)).await
        })
    }

    fn republish<'a>(&'a self, topic: &'a TopicId, order: RepublishRequest) -> BoxFuture<'a, Result<EventCount>> {
        Box::pin(async move { self.post_keyed(&["topics", &custom_method(topic.as_str(), "republish")], &order).await })
    }

    fn compact_topic<'a>(&'a self, topic: &'a TopicId, order: CompactRequest) -> BoxFuture<'a, Result<EventCount>> {
        Box::pin(async move { self.post_keyed(&["topics", &custom_method(topic.as_str(), "compact")], &order).await })
    }

    fn delete_topic<'a>(&'a self, topic: &'a TopicId, force: bool) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.remove_with(&["topics", topic.as_str()], &query::one("force", force)).await })
    }

    fn plan_topic_deletion<'a>(&'a self, topic: &'a TopicId) -> BoxFuture<'a, Result<DryRunReport>> {
        Box::pin(async move { self.preview_removal(&["topics", topic.as_str()]).await })
    }

    fn trim_topic<'a>(&'a self, topic: &'a TopicId, trim: TrimRequest) -> BoxFuture<'a, Result<EventCount>> {
        Box::pin(async move { self.post_keyed(&["topics", &custom_method(topic.as_str(), "trim")], &trim).await })
    }

    fn put_projection<'a>(
        &'a self,
        name: &'a str,
        projection: NewProjection,
    ) -> BoxFuture<'a, Result<RegisterOutcome<Projection>>> {
        Box::pin(async move { self.register(Method::PUT, &["projections", name], &projection).await })
    }

    fn projection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(async move { self.get(&["projections", name], NO_PARAMS).await })
    }

    fn projections<'a>(&'a self, cursor: Option<&'a Cursor>, limit: usize) -> BoxFuture<'a, Result<Page<Projection>>> {
        let query = query::page(cursor, limit);
        Box::pin(async move { self.list(&["projections"], &query).await })
    }

    fn delete_projection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.remove(&["projections", name]).await })
    }

    fn move_checkpoint<'a>(&'a self, name: &'a str, to: NewCheckpoint) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(async move { self.post_repeatable(&["projections", &custom_method(name, "checkpoint")], &to).await })
    }

    fn reset_projection<'a>(&'a self, name: &'a str, offset: Offset) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(async move {
            self.post_keyed(&["projections", &custom_method(name, "reset")], &json!({"offset": offset})).await
        })
    }

    fn wait_for_projection<'a>(
        &'a self,
        name: &'a str,
        offset: Offset,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Projection>> {
        let mut query = query::one("offset", offset);
        query.push(query::seconds(timeout));
        Box::pin(async move {
            response::parse(&self.bytes(&["projections", &custom_method(name, "wait")], &query, timeout).await?)
        })
    }

    fn claim<'a>(&'a self, claim: NewClaim, producer: Option<&'a ProducerId>) -> BoxFuture<'a, Result<ClaimOutcome>> {
        Box::pin(async move {
            self.send_json(self.request(Method::POST, &["claims"], NO_PARAMS).json(&claim).by(producer).keyed()).await
        })
    }

    fn claim_batch<'a>(
        &'a self,
        claims: Vec<NewClaim>,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Vec<Result<ClaimOutcome>>>> {
        Box::pin(async move {
            let ask = self
                .request(Method::POST, &["claims"], NO_PARAMS)
                .json(&json!({"claims": claims}))
                .by(producer)
                .keyed();
            response::outcomes(&self.send(ask).await?.body)
        })
    }

    fn heartbeat<'a>(&'a self, claim: &'a str, token: FencingToken) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(async move {
            self.post_repeatable(&["claims", &custom_method(claim, "heartbeat")], &json!({"token": token})).await
        })
    }

    fn complete_claim<'a>(
        &'a self,
        claim: &'a str,
        completion: Completion,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(async move {
            self.send_json(
                self.request(Method::POST, &["claims", &custom_method(claim, "done")], NO_PARAMS)
                    .json(&completion)
                    .by(producer),
            )
            .await
        })
    }

    fn complete_claims<'a>(
        &'a self,
        completions: Vec<ClaimCompletion>,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Vec<Result<Claim>>>> {
        Box::pin(async move {
            let ask = self
                .request(Method::POST, &["claims:done"], NO_PARAMS)
                .json(&json!({"claims": completions}))
                .by(producer);
            response::claims(&self.send(ask).await?.body)
        })
    }

    fn fail_claim<'a>(&'a self, claim: &'a str, failure: ClaimFailure) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(async move { self.post_repeatable(&["claims", &custom_method(claim, "fail")], &failure).await })
    }

    fn release_claim<'a>(&'a self, claim: &'a str, token: FencingToken) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(async move {
            self.post_keyed(&["claims", &custom_method(claim, "release")], &json!({"token": token})).await
        })
    }

    fn open_claim<'a>(&'a self, claim: &'a str) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(async move { self.get(&["claims", claim], NO_PARAMS).await })
    }

    fn open_claims<'a>(
        &'a self,
        handler: &'a str,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Claim>>> {
        let mut query = query::page(cursor, limit);
        query::add(&mut query, "handler", Some(handler));
        Box::pin(async move { self.list(&["claims"], &query).await })
    }

    fn put_handler<'a>(
        &'a self,
        name: &'a str,
        handler: NewHandler,
    ) -> BoxFuture<'a, Result<RegisterOutcome<Handler>>> {
        Box::pin(async move { self.register(Method::PUT, &["handlers", name], &handler).await })
    }

    fn delete_handler<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.remove(&["handlers", name]).await })
    }

    fn handler<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Handler>> {
        Box::pin(async move { self.get(&["handlers", name], NO_PARAMS).await })
    }

    fn handlers<'a>(&'a self, cursor: Option<&'a Cursor>, limit: usize) -> BoxFuture<'a, Result<Page<Handler>>> {
        let query = query::page(cursor, limit);
        Box::pin(async move { self.list(&["handlers"], &query).await })
    }

    fn dead_letters<'a>(
        &'a self,
        filter: &'a DeadLetterFilter,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<DeadLetter>>> {
        let query = query::of_letters(filter, cursor, limit);
        Box::pin(async move { self.list(&["dead-letters"], &query).await })
    }

    fn dead_letter_summary(&self) -> BoxFuture<'_, Result<DeadLetterSummary>> {
        Box::pin(async move { self.get(&["dead-letters", "summary"], NO_PARAMS).await })
    }

    fn dead_letter(&self, id: Uuid) -> BoxFuture<'_, Result<DeadLetter>> {
        Box::pin(async move { self.get(&["dead-letters", &id.to_string()], NO_PARAMS).await })
    }

    fn redrive<'a>(
        &'a self,
        id: Uuid,
        redrive: RedriveRequest,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<DeadLetter>> {
        Box::pin(
            async move { self.post_resolution(&["dead-letters", &custom_method(id, "redrive")], &redrive, by).await },
        )
    }

    fn discard<'a>(
        &'a self,
        id: Uuid,
        reason: String,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<DeadLetter>> {
        Box::pin(async move {
            self.post_resolution(&["dead-letters", &custom_method(id, "discard")], &json!({"reason": reason}), by).await
        })
    }

    fn redrive_all<'a>(
        &'a self,
        order: BulkResolveRequest,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BulkResolveOutcome>> {
        Box::pin(async move { self.post_resolution(&["dead-letters:redrive"], &order, by).await })
    }

    fn discard_all<'a>(
        &'a self,
        order: BulkResolveRequest,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BulkResolveOutcome>> {
        Box::pin(async move { self.post_resolution(&["dead-letters:discard"], &order, by).await })
    }
}
