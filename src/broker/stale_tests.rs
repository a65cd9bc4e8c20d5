//! Several brokers on one log, one of which has not heard of what another one has just acknowledged: its verbs act on it
//! all the same.

use super::Broker;
use crate::clock::SystemClock;
use crate::config::Config;
use contract::api::*;
use contract::*;
use log::{Log, LogError, MemoryLog, ReadLimit, ReadRange, Record, RecordHeader, RecordQuery, TopicNumber};
use serde_json::value::RawValue;
use std::sync::Arc;
use tokio::sync::watch;
use uuid::Uuid;

/// A shared log whose notifications do not arrive.
struct SilentLog {
    log: Arc<MemoryLog>,
    tail: watch::Sender<Position>,
}

impl Log for SilentLog {
    fn append(&self, after: Position, batch: Vec<Record>) -> BoxFuture<'_, Result<(), LogError>> {
        self.log.append(after, batch)
    }

    fn read(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<Record>, LogError>> {
        self.log.read(range, limit)
    }

    fn tail(&self) -> watch::Receiver<Position> {
        self.tail.subscribe()
    }

    fn find(&self, what: RecordQuery) -> BoxFuture<'_, Result<Option<RecordHeader>, LogError>> {
        self.log.find(what)
    }

    fn segments(&self, topic: TopicNumber) -> BoxFuture<'_, Result<Vec<Segment>, LogError>> {
        self.log.segments(topic)
    }

    fn remove(&self, topic: TopicNumber, through: Sequence) -> BoxFuture<'_, Result<(), LogError>> {
        self.log.remove(topic, through)
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn blocks(&self) -> bool {
        false
    }
}

const TARGET: &str = "http://127.0.0.1:9/";

fn topic() -> TopicId {
    "shop.orders".parse().unwrap()
}

fn event_type() -> EventTypeId {
    "order.placed".parse().unwrap()
}

async fn open(log: Arc<dyn Log>) -> Broker {
    let mut config = Config::default();
    config.dispatch.enabled = false;
    config.dispatch.allow_private_targets = true;
    Broker::on_log(config, log, None, Arc::new(SystemClock)).await.unwrap()
}

async fn publish(broker: &Broker) -> StoredEvent {
    let data = RawValue::from_string("{}".to_owned()).unwrap();
    let event = NewEvent { tenant: Some(Uuid::from_u128(1)), ..NewEvent::new(event_type(), "test", data) };
    let event = event.about("shop.order".parse().unwrap(), "o-1");
    broker.publish(event, None).await.unwrap().event
}

async fn publish_range(broker: &Broker) -> (Sequence, Sequence) {
    let sequence = publish(broker).await.sequence;
    (sequence, sequence)
}

async fn give_up(broker: &Broker) -> Uuid {
    let event = publish(broker).await;
    let claimed = broker.claim(NewClaim::of_event("h", event.id), None).await.unwrap().claim.unwrap();
    let error = ClaimError::new("class", "message");
    let failure = ClaimFailure { token: claimed.token, error, retryable: Some(false) };
    broker.fail_claim(&claimed.id, failure).await.unwrap();
    broker.dead_letters(&DeadLetterFilter::default(), None, 100).await.unwrap().items.last().unwrap().id
}

async fn subscribe(broker: &Broker, pool: Option<&str>) -> Result<()> {
    let new = NewSubscription { pool: pool.map(str::to_owned), ..NewSubscription::new("s", topic(), TARGET) };
    broker.create_subscription(new).await.map(drop)
}

async fn add_pool(broker: &Broker) {
    broker.create_pool(Pool { code: "p".to_owned(), concurrency: 1, rate_per_minute: None }).await.unwrap();
}

async fn join(broker: &Broker, shared: bool) -> Uuid {
    let consumer = NewConsumer::new("g", topic());
    broker.create_consumer(if shared { consumer.shared() } else { consumer }).await.unwrap().id
}

/// One broker prepares something that both know, and changes something that the other one has not heard of. Then the
/// verb of the other one must succeed.
async fn check<P, T>(
    name: &str,
    prepare: impl AsyncFnOnce(&Broker) -> P,
    change: impl AsyncFnOnce(&Broker, P) -> T,
    verb: impl AsyncFnOnce(&Broker, T) -> Result<bool>,
) {
    let log = Arc::new(MemoryLog::shared());
    let one = open(log.clone()).await;
    let other = open(Arc::new(SilentLog { log, tail: watch::Sender::default() })).await;
    one.register_topic(NewTopic { cleanup: Some(CleanupPolicy::Compact), ..NewTopic::new(topic()) }).await.unwrap();
    one.register_event_type(NewEventType { topic: Some(topic()), ..NewEventType::new(event_type()) }).await.unwrap();
    let prepared = prepare(&one).await;
    other.refresh().await.unwrap();
    let changed = change(&one, prepared).await;
    let positions = [&one, &other].map(|broker| *broker.default_ledger().position().borrow());
    assert!(positions[0] > positions[1], "{name}: the other broker knows it already");
    let outcome = verb(&other, changed).await;
    assert!(matches!(outcome, Ok(true)), "{name}: {outcome:?}");
    one.close().await;
    other.close().await;
}

async fn nothing(_: &Broker) {}

#[tokio::test]
async fn a_range_is_not_cut_at_what_the_broker_knew() {
    let publish = async |one: &Broker, ()| publish_range(one).await;
    check("trim", nothing, publish, async |other, (through, _)| {
        let trim = TrimRequest { through: Some(through), ..TrimRequest::default() };
        Ok(other.trim_topic(&topic(), trim).await?.count == 1)
    })
    .await;
    check("republish", nothing, publish, async |other, (from, to)| {
        Ok(other.republish(&topic(), RepublishRequest::to_topic(from, to)).await?.count == 1)
    })
    .await;
    let subscribed = async |one: &Broker| subscribe(one, None).await.unwrap();
    check("republish to subscriptions", subscribed, publish, async |other, (from, to)| {
        Ok(other.republish(&topic(), RepublishRequest::to_subscriptions(from, to)).await?.count == 1)
    })
    .await;
    check("replay", subscribed, publish, async |other, (from, _)| {
        let replay = NewReplay { from: ReplayBound::Sequence(from), to: None, dry_run: true };
        Ok(other.replay_subscription("s", replay).await?.count == 1)
    })
    .await;
    let twice = async |one: &Broker, ()| (publish_range(one).await, publish_range(one).await);
    check("compact", nothing, twice, async |other, _| {
        Ok(other.compact_topic(&topic(), CompactRequest::default()).await?.count == 1)
    })
    .await;
    check("reset to the end", nothing, publish, async |other, (sequence, _)| {
        let reset = GroupReset { topic: topic(), to: ResetTo::Latest };
        Ok(other.reset_group("g", reset).await?.topics[0].committed_offset == sequence.into())
    })
    .await;
}

#[tokio::test]
async fn everything_that_matches_includes_what_another_broker_has_just_added() {
    let give_up = async |one: &Broker, ()| give_up(one).await;
    let order = || BulkResolveRequest { reason: Some("test".to_owned()), ..BulkResolveRequest::default() };
    check("redrive all", nothing, give_up, async |other, _| Ok(other.redrive_all(order(), None).await?.count == 1))
        .await;
    check("discard all", nothing, give_up, async |other, _| Ok(other.discard_all(order(), None).await?.count == 1))
        .await;
    check("discard", nothing, give_up, async |other, id| {
        other.discard(id, "test".to_owned(), None).await.map(|_| true)
    })
    .await;
}

#[tokio::test]
async fn nothing_is_refused_because_of_what_another_broker_has_removed() {
    let leave = async |one: &Broker, id: Uuid| one.delete_consumer(id).await.unwrap();
    let joined = async |one: &Broker| {
        let id = join(one, false).await;
        one.commit_offset(id, Offset(0)).await.unwrap();
        id
    };
    check("delete a group", joined, leave, async |other, ()| other.delete_group("g").await.map(|()| true)).await;
    check("delete a topic", joined, leave, async |other, ()| other.delete_topic(&topic(), false).await.map(|()| true))
        .await;
    check("plan to delete a topic", joined, leave, async |other, ()| {
        other.plan_topic_deletion(&topic()).await.map(|_| true)
    })
    .await;
    let shares = async |one: &Broker| {
        let event = publish(one).await;
        one.claim(NewClaim::of_event("g", event.id), None).await.unwrap();
        join(one, true).await
    };
    check("delete a handler", shares, leave, async |other, ()| other.delete_handler("g").await.map(|()| true)).await;
    let uses_pool = async |one: &Broker| {
        add_pool(one).await;
        subscribe(one, Some("p")).await.unwrap();
    };
    let unsubscribe = async |one: &Broker, ()| one.delete_subscription("s", None).await.unwrap();
    check("delete a pool", uses_pool, unsubscribe, async |other, ()| other.delete_pool("p").await.map(|()| true)).await;
    check("take a code", uses_pool, unsubscribe, async |other, ()| subscribe(other, None).await.map(|()| true)).await;
    let archive = async |one: &Broker, ()| one.archive_event_type(&event_type()).await.unwrap();
    check("delete a type", nothing, archive, async |other, _| {
        other.delete_event_type(&event_type()).await.map(|()| true)
    })
    .await;
}

#[tokio::test]
async fn nothing_is_refused_because_it_is_not_known_yet() {
    let project = async |one: &Broker, ()| {
        one.put_projection("view", NewProjection::of_topic(topic())).await.unwrap();
    };
    check("wait for a projection", nothing, project, async |other, ()| {
        Ok(other.awaited_projections("view").await?.len() == 1)
    })
    .await;
    let add_pool = async |one: &Broker, ()| add_pool(one).await;
    check("subscribe with a pool", nothing, add_pool, async |other, ()| {
        subscribe(other, Some("p")).await.map(|()| true)
    })
    .await;
    let publish = async |one: &Broker, ()| publish(one).await;
    check("claim a batch", nothing, publish, async |other, event| {
        let claims = vec![NewClaim::of_event("h", event.id), NewClaim::at("i", topic(), event.sequence)];
        let answers = other.claim_batch(claims, None).await?;
        Ok(answers.into_iter().all(|answer| matches!(answer, Ok(claim) if claim.outcome == ClaimAnswer::Claimed)))
    })
    .await;
    let claim_elsewhere = async |one: &Broker, ()| {
        let (topic, id): (TopicId, EventTypeId) = ("shop.new".parse().unwrap(), "item.added".parse().unwrap());
        one.register_topic(NewTopic::new(topic.clone())).await.unwrap();
        one.register_event_type(NewEventType { topic: Some(topic), ..NewEventType::new(id.clone()) }).await.unwrap();
        let data = RawValue::from_string("{}".to_owned()).unwrap();
        let event = NewEvent { tenant: Some(Uuid::from_u128(1)), ..NewEvent::new(id, "test", data) };
        let event = event.about("shop.item".parse().unwrap(), "i-1");
        let event = one.publish(event, None).await.unwrap().event;
        one.claim(NewClaim::of_event("h", event.id), None).await.unwrap().claim.unwrap()
    };
    check("complete a batch", nothing, claim_elsewhere, async |other, claim| {
        let done = ClaimCompletion { id: claim.id, token: claim.token, events: Vec::new(), offset: None };
        Ok(other.complete_claims(vec![done], None).await?.iter().all(Result::is_ok))
    })
    .await;
}
