//! Every method of the contract, over HTTP and in process: the same script has the same results.

use crate::test_broker::{TestBroker, bank, moved};
use contract::api::*;
use contract::{
    AggregateRead, AggregateSequence, Atomicity, BulkResolveRequest, ClaimCompletion, ClaimError, ClaimFailure,
    Completion, Cursor, DeadLetterFilter, DeadLetterSource, Error, EventTypeId, GroupReset, IdPattern, LogRead,
    NewCheckpoint, NewClaim, NewConsumer, NewEvent, NewEventType, NewHandler, NewProjection, NewTopic, NewVersion,
    Offset, Page, Position, ProducerId, PublishedEvent, ReadOffset, RedriveRequest, RegisterOutcome, ResetTo, Result,
    SchemaVersion, Sequence, Timestamp, TopicChange, TopicId, TopicRead,
};
use serde_json::json;
use std::fmt::Debug;
use std::time::Duration;
use uuid::Uuid;

const NOW: Duration = Duration::ZERO;

fn other() -> TopicId {
    "gts.hx.core.events.topic.v1~vendor.other.v1".parse().unwrap()
}

fn opened() -> EventTypeId {
    "gts.hyperspot.core.events.type.v1~vendor.bank.account_opened.v1".parse().unwrap()
}

/// The results, line by line, without times and ids that a broker makes.
#[derive(Default)]
struct Said(Vec<String>);

impl Said {
    fn add(&mut self, what: impl Debug) {
        self.0.push(format!("{what:?}"));
    }

    fn refused<T: Debug>(&mut self, answer: Result<T>) {
        let error = answer.unwrap_err();
        self.0.push(refusal(&error));
    }

    fn registered<T: Debug>(&mut self, answer: RegisterOutcome<T>, show: impl Fn(&T) -> String) {
        match answer {
            RegisterOutcome::Created(thing) => self.0.push(format!("created {}", show(&thing))),
            RegisterOutcome::Unchanged(thing) => self.0.push(format!("unchanged {}", show(&thing))),
        }
    }

    fn page<T>(&mut self, page: &Page<T>, show: impl Fn(&T) -> String) {
        let rows: Vec<_> = page.items.iter().map(show).collect();
        self.add((rows, page.next.is_some(), page.prev.is_some()));
    }
}

/// All members of a refusal, except those that only a server adds.
fn refusal(error: &Error) -> String {
    let extras = (error.actual(), error.earliest(), error.resume_offset(), error.stored());
    format!("{:?} {} {:?} {extras:?}", error.kind(), error.detail(), error.violations())
}

fn published(published: &PublishedEvent) -> String {
    let PublishedEvent { event, outcome, deprecated, .. } = published;
    format!("{} {} {outcome:?} {deprecated}", event.sequence, event.aggregate_sequence)
}

fn event(id: u128, account: &str) -> NewEvent {
    let mut event = moved(account, None, &json!({"account": account, "amount": 1}));
    event.id = Some(Uuid::from_u128(id));
    event.subject_type = Some("gts.vendor.bank.account.v1".parse().unwrap());
    event
}

async fn registry(broker: &dyn EventBroker, said: &mut Said) -> Result<()> {
    for description in [Some("One.".to_owned()), Some("One.".to_owned()), Some("Two.".to_owned())] {
        match broker.register_topic(NewTopic { description, ..NewTopic::new(other()) }).await {
            Ok(registered) => said.registered(registered, |it| format!("{:?}", it.definition)),
            Err(error) => said.0.push(refusal(&error)),
        }
    }
    let change = TopicChange { description: Some(Some("Three.".to_owned())), ..TopicChange::default() };
    said.add(broker.change_topic(&other(), change).await?.definition);
    said.add(broker.topic(&other()).await?.definition);
    said.refused(broker.topic(&"gts.hx.core.events.topic.v1~vendor.none.v1".parse().unwrap()).await);
    let page = broker.topics(None, None, 1).await?;
    said.page(&page, |it| it.definition.id.to_string());
    said.page(&broker.topics(None, page.next.as_ref(), 10).await?, |it| it.definition.id.to_string());
    let pattern: IdPattern = "gts.hx.core.events.topic.v1~vendor.other.*".parse().unwrap();
    said.page(&broker.topics(Some(&pattern), None, 10).await?, |it| it.definition.id.to_string());
    let mut new_type = NewEventType::new(opened());
    new_type.topic = Some(other());
    let show = |it: &contract::EventType| format!("{:?}", it.definition);
    said.registered(broker.register_event_type(new_type.clone()).await?, show);
    said.registered(broker.register_event_type(new_type).await?, show);
    said.add(broker.event_type(&opened()).await?.definition);
    let of_topic: IdPattern = other().to_string().parse().unwrap();
    said.page(&broker.event_types(None, Some(&of_topic), None, 10).await?, |it| it.definition.id.to_string());
    let (first, second) = (SchemaVersion { major: 1, minor: 0 }, SchemaVersion { major: 2, minor: 0 });
    for version in [first, second] {
        let added = broker.add_version(&opened(), NewVersion::json_schema(version, json!({"type": "object"}))).await?;
        said.registered(added, |it| format!("{:?} {:?}", it.definition, it.status));
        said.add(broker.finalise_version(&opened(), version).await?.status);
    }
    said.refused(broker.finalise_version(&opened(), second).await);
    said.add(broker.deprecate_version(&opened(), first).await?.status);
    said.refused(broker.delete_event_type(&opened()).await);
    said.add(broker.archive_event_type(&opened()).await?.definition);
    said.add(broker.delete_event_type(&opened()).await);
    said.refused(broker.delete_event_type(&opened()).await);
    Ok(())
}

async fn events(broker: &dyn EventBroker, said: &mut Said) -> Result<()> {
    let producer = ProducerId("p".to_owned());
    for id in [1, 1, 2] {
        said.0.push(published(&broker.publish(event(id, "a"), Some(&producer)).await?));
    }
    let mut expecting = event(3, "a");
    expecting.expected_aggregate_sequence = Some(AggregateSequence(1));
    said.refused(broker.publish(expecting, None).await);
    let unknown: EventTypeId = "gts.hyperspot.core.events.type.v1~vendor.bank.unknown.v1".parse().unwrap();
    let bad = || NewEvent { event_type: unknown.clone(), ..event(8, "a") };
    for (atomicity, id) in [(Atomicity::PerTopic, 4), (Atomicity::All, 5), (Atomicity::Each, 6)] {
        let outcome = broker.publish_batch(vec![event(id, "b"), bad(), event(1, "a")], atomicity, None).await?;
        said.0.extend(outcome.iter().map(|it| it.as_ref().map_or_else(refusal, published)));
    }
    said.add(broker.publish_batch(Vec::new(), Atomicity::PerTopic, None).await.unwrap_err().kind());
    let page = broker.read(TopicRead::all(bank())).await?;
    let texts = |items: &[contract::StoredEvent]| items.iter().map(|it| it.id.as_u128()).collect::<Vec<_>>();
    said.add((texts(&page.items), page.next_offset, page.tail));
    let page = broker.wait(TopicRead::all(bank()).after(Offset(2)), NOW).await?;
    said.add((texts(&page.items), page.next_offset, page.tail));
    let log = LogRead { after: Position(0), limit: 2, filter: Default::default() };
    said.add(texts(&broker.read_log(log.clone()).await?.items));
    said.add(texts(&broker.wait_log(log, NOW).await?.items));
    said.add(broker.event(Uuid::from_u128(2)).await?.event()?.subject);
    said.refused(broker.event(Uuid::from_u128(99)).await);
    let subject_type = event(1, "a").subject_type.unwrap();
    let (after, limit) = (AggregateSequence(1), 10);
    let read = AggregateRead { topic: bank(), subject_type: Some(subject_type), subject: "a".to_owned(), after, limit };
    let aggregate = broker.aggregate(read.clone()).await?;
    said.add((aggregate.aggregate_sequence, aggregate.sequence, aggregate.last_event.map(|it| it.id)));
    let page = broker.read_aggregate(read.clone()).await?;
    said.add((texts(&page.items), page.next_after, page.aggregate_sequence));
    said.refused(broker.aggregate(AggregateRead { subject_type: None, ..read.clone() }).await);
    said.refused(broker.aggregate(AggregateRead { subject: "nobody / at all".to_owned(), ..read }).await);
    let segments = broker.segments(&bank()).await?;
    said.add((segments.topic, segments.segments.iter().map(|it| it.amount).sum::<u64>()));
    Ok(())
}

async fn consumers(broker: &dyn EventBroker, said: &mut Said) -> Result<()> {
    let made = broker.create_consumer(NewConsumer::new("a group", bank())).await?;
    said.add((&made.consumer_group, &made.topic, &made.session_timeout, made.distribution));
    said.add(broker.consumer(made.id).await?.id == made.id);
    said.page(&broker.consumers(Some("a group"), None, 10).await?, |it| it.consumer_group.clone());
    said.add(broker.read_as(made.id, Offset(1).into(), 2).await?.next_offset);
    said.add(broker.wait_as(made.id, Offset(2).into(), 1, NOW).await?.next_offset);
    for offset in [ReadOffset::Earliest, ReadOffset::Latest] {
        for page in [
            broker.read_as(made.id, offset, 1).await?,
            broker.wait_as(made.id, offset, 1, NOW).await?,
            broker.read(TopicRead { limit: 1, ..TopicRead::all(bank()).after(offset) }).await?,
        ] {
            said.add((offset, page.items.len(), page.next_offset, page.tail));
        }
    }
    let committed = broker.commit_offset(made.id, Offset(2)).await?;
    said.add((committed.committed_offset, committed.lag, committed.members.len()));
    said.page(&broker.consumer_groups(None, 10).await?, |it| it.consumer_group.clone());
    for to in [ResetTo::Earliest, ResetTo::Latest, ResetTo::Offset(Offset(1)), ResetTo::Time(Timestamp::from_millis(0))]
    {
        let group = broker.reset_group("a group", GroupReset { topic: bank(), to }).await?;
        said.add((to, group.topics[0].committed_offset));
    }
    said.add(broker.consumer_group("a group").await?.topics[0].lag);
    broker.delete_consumer(made.id).await?;
    said.refused(broker.delete_consumer(made.id).await);
    Ok(())
}

async fn projections(broker: &dyn EventBroker, said: &mut Said) -> Result<()> {
    for _ in 0..2 {
        let put = broker.put_projection("p/1", NewProjection::of_topic(bank())).await?;
        said.registered(put, |it| format!("{:?} {} {}", it.definition, it.checkpoint, it.generation));
    }
    said.add(broker.move_checkpoint("p/1", NewCheckpoint::at(Offset(2))).await?.checkpoint);
    said.refused(broker.move_checkpoint("p/1", NewCheckpoint::at(Offset(1))).await);
    said.add(broker.wait_for_projection("p/1", Offset(2), NOW).await?.checkpoint);
    said.refused(broker.wait_for_projection("p/1", Offset(3), NOW).await);
    let reset = broker.reset_projection("p/1", Offset(1)).await?;
    said.add((reset.generation, reset.checkpoint, reset.start, broker.projection("p/1").await?.lag.events));
    said.page(&broker.projections(None, 10).await?, |it| it.name.clone());
    broker.delete_projection("p/1").await?;
    said.refused(broker.projection("p/1").await);
    Ok(())
}

async fn claims(broker: &dyn EventBroker, said: &mut Said) -> Result<()> {
    let terms = NewHandler { max_attempts: Some(1), ..NewHandler::default() };
    for _ in 0..2 {
        said.registered(broker.put_handler("h", terms.clone()).await?, |it| format!("{} {}", it.name, it.max_attempts));
    }
    let producer = ProducerId("worker-1".to_owned());
    let claim = |sequence| NewClaim::at("h", bank(), Sequence(sequence));
    let first = broker.claim(claim(1), Some(&producer)).await?.claim.unwrap();
    said.add((&first.owner, first.attempt, first.status, &first.lease, &first.topic, first.sequence));
    let batch = broker.claim_batch(vec![claim(1), claim(3), claim(99)], Some(&producer)).await?;
    said.0.extend(batch.iter().map(|it| match it {
        Ok(outcome) => format!("{:?} {:?}", outcome.outcome, outcome.retry_at.is_some()),
        Err(error) => refusal(error),
    }));
    said.add(broker.heartbeat(&first.id, first.token).await?.status);
    said.page(&broker.open_claims("h", None, 10).await?, |it| format!("{} {:?}", it.sequence, it.status));
    said.add(broker.open_claim(&first.id).await?.event_id);
    let mut completion = Completion::of(first.token);
    (completion.events, completion.offset) = (vec![event(20, "c")], Some(Offset(1)));
    said.add(broker.complete_claim(&first.id, completion, Some(&producer)).await?.status);
    said.refused(broker.heartbeat(&first.id, first.token).await);
    said.refused(broker.release_claim(&first.id, first.token).await);
    said.refused(broker.delete_handler("nobody").await);
    said.refused(broker.delete_group("nobody").await);
    let again = broker.claim(NewClaim::at("fleeting", bank(), Sequence(1)), None).await?.claim.unwrap();
    said.add(broker.release_claim(&again.id, again.token).await?.status);
    broker.delete_handler("fleeting").await?;
    said.refused(broker.handler("fleeting").await);
    let third = batch[1].as_ref().unwrap().claim.clone().unwrap();
    let (id, token) = (third.id.clone(), third.token);
    let done = |token| ClaimCompletion { id: id.clone(), token, events: Vec::new(), offset: None };
    let done = broker.complete_claims(vec![done(token), done(token.next())], None).await?;
    said.0.extend(done.iter().map(|it| it.as_ref().map_or_else(refusal, |claim| format!("{:?}", claim.status))));
    for sequence in [4, 5] {
        let failing = broker.claim(claim(sequence), None).await?.claim.unwrap();
        let failure = ClaimFailure { token: failing.token, error: ClaimError::new("X", "no"), retryable: None };
        said.add(broker.fail_claim(&failing.id, failure).await?.status);
    }
    let handler = broker.handler("h").await?;
    said.add((handler.in_flight, handler.failed, handler.dead_letters, handler.topics.len()));
    said.page(&broker.handlers(None, 10).await?, |it| it.name.clone());
    Ok(())
}

async fn dead_letters(broker: &dyn EventBroker, said: &mut Said) -> Result<()> {
    let by = ProducerId("somebody".to_owned());
    let filter = DeadLetterFilter {
        source: Some(DeadLetterSource::Handler),
        topic: Some(bank()),
        ..DeadLetterFilter::default()
    };
    let page = broker.dead_letters(&filter, None, 1).await?;
    said.page(&page, |it| format!("{} {} {} {}", it.name, it.exc_class, it.exc_msg, it.original_topic));
    let next: Option<&Cursor> = page.next.as_ref();
    said.page(&broker.dead_letters(&filter, next, 1).await?, |it| it.service.clone());
    said.add(broker.dead_letter_summary().await?.count);
    let id = page.items[0].id;
    said.add(broker.dead_letter(id).await?.attempts.len());
    let order = BulkResolveRequest { name: Some("h".to_owned()), dry_run: true, ..BulkResolveRequest::default() };
    said.add(broker.redrive_all(order.clone(), Some(&by)).await?);
    said.add(broker.redrive(id, RedriveRequest::default(), Some(&by)).await?.status);
    said.refused(broker.redrive(id, RedriveRequest::default(), None).await);
    let order = BulkResolveRequest { dry_run: false, reason: Some("Enough.".to_owned()), ..order };
    said.add(broker.discard_all(order.clone(), Some(&by)).await?);
    said.add(broker.redrive_all(order, None).await?);
    said.refused(broker.discard(id, "Late.".to_owned(), None).await);
    let all = DeadLetterFilter { resolved_too: true, ..DeadLetterFilter::default() };
    let letters = broker.dead_letters(&all, None, 10).await?.items.into_iter();
    let dealt_with = letters.map(|it| (format!("{:?}", it.status), it.resolution.map(|it| (it.by, it.reason))));
    let mut dealt_with: Vec<_> = dealt_with.collect();
    dealt_with.sort();
    said.add(dealt_with);
    Ok(())
}

async fn script(broker: &dyn EventBroker) -> Vec<String> {
    let mut said = Said::default();
    registry(broker, &mut said).await.unwrap();
    events(broker, &mut said).await.unwrap();
    consumers(broker, &mut said).await.unwrap();
    projections(broker, &mut said).await.unwrap();
    claims(broker, &mut said).await.unwrap();
    dead_letters(broker, &mut said).await.unwrap();
    said.0
}

#[tokio::test]
async fn over_http_every_verb_answers_and_refuses_as_in_process() {
    let (near, far) = (TestBroker::set(Vec::new()).await, TestBroker::set(Vec::new()).await);
    let (in_process, over_http) = (script(near.broker.as_ref()).await, script(&far.client()).await);
    for (near, far) in in_process.iter().zip(&over_http) {
        assert_eq!(near, far);
    }
    assert_eq!(in_process.len(), over_http.len());
    near.close().await;
    far.close().await;
}
