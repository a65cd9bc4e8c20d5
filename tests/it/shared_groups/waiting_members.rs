//! Members that wait: an event reaches one of them, however many there are, and whichever of them leaves meanwhile.

use crate::scenario::{subject_type_id, topic_id, type_id};
use contract::api::*;
use contract::{NewConsumer, NewEvent, NewEventType, NewHandler, Offset};
use event_broker::{Broker, Config};
use serde_json::value::RawValue;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::JoinSet;
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(30);

async fn join(broker: &Broker) -> Uuid {
    let consumer = NewConsumer::new("crowd", topic_id("default")).shared();
    let consumer = NewConsumer { max_in_flight: Some(1), session_timeout: Some("PT1H".parse().unwrap()), ..consumer };
    broker.create_consumer(consumer).await.unwrap().id
}

async fn publish(broker: &Broker, subject: u64) {
    let data = RawValue::from_string("{}".to_owned()).unwrap();
    let event = NewEvent::new(type_id("placed").parse().unwrap(), "test", data);
    let event = event.about(subject_type_id("order"), subject.to_string());
    broker.publish(NewEvent { tenant: Some(Uuid::from_u128(1)), ..event }, None).await.unwrap();
}

/// When this returns, every waiting poll is in the queue.
async fn waiting(broker: &Arc<Broker>, members: &[Uuid], polls: &mut JoinSet<(Uuid, usize)>) {
    for id in members.iter().copied() {
        let broker = Arc::clone(broker);
        polls.spawn(async move {
            let page = broker.wait_as(id, Offset::ZERO.into(), 10, LONG).await.unwrap();
            if let Some(claim) = page.claims.first() {
                let done = contract::Completion::of(claim.token);
                broker.complete_claim(&claim.id, done, None).await.unwrap();
            }
            (id, page.items.len())
        });
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// If a waiting member is woken and leaves, the wake-up must go to another member.
#[tokio::test]
async fn work_reaches_a_member_that_waits_also_where_others_give_up_waiting() {
    let broker = Arc::new(Broker::open(Config::default()).await.unwrap());
    broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    let handler = NewHandler { lease: Some("PT1H".parse().unwrap()), ..NewHandler::default() };
    broker.put_handler("crowd", handler).await.unwrap();
    let mut members = Vec::new();
    for _ in 0..50 {
        members.push(join(&broker).await);
    }
    let (gone, stay) = members.split_at(25);
    let (mut leaving, mut polls) = (JoinSet::new(), JoinSet::new());
    waiting(&broker, gone, &mut leaving).await;
    waiting(&broker, stay, &mut polls).await;
    for subject in 0..5 {
        publish(&broker, subject).await;
    }
    for _ in 0..5 {
        assert_eq!(leaving.join_next().await.unwrap().unwrap().1, 1);
    }
    // The members at the front of the queue leave at the same time; those behind them receive the rest.
    leaving.abort_all();
    for subject in 5..30 {
        publish(&broker, subject).await;
    }
    for _ in 0..25 {
        let (_, got) = tokio::time::timeout(LONG, polls.join_next()).await.unwrap().unwrap().unwrap();
        assert_eq!(got, 1);
    }
    broker.close().await;
}

/// A future that counts how often it is polled.
struct CountedFuture<F> {
    future: Pin<Box<F>>,
    polls: Arc<AtomicUsize>,
}

impl<F: Future> Future for CountedFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.future.as_mut().poll(context)
    }
}

/// Every member waited for the deletion of the topic at its tail, so each append woke all of them.
#[tokio::test]
async fn an_event_wakes_a_few_members_however_many_wait() {
    const MEMBERS: usize = 200;
    let broker = Arc::new(Broker::open(Config::default()).await.unwrap());
    broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    let (polls, mut waits) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
    for _ in 0..MEMBERS {
        let (id, broker) = (join(&broker).await, Arc::clone(&broker));
        let future = Box::pin(async move { broker.wait_as(id, Offset::ZERO.into(), 10, LONG).await.unwrap() });
        waits.spawn(CountedFuture { future, polls: Arc::clone(&polls) });
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let before = polls.load(Ordering::Relaxed);
    assert!(before >= MEMBERS, "all of them wait");
    for subject in 0..10 {
        publish(&broker, subject).await;
        assert_eq!(waits.join_next().await.unwrap().unwrap().items.len(), 1);
    }
    let woken = polls.load(Ordering::Relaxed) - before;
    assert!(woken < MEMBERS, "10 events were {woken} polls of {MEMBERS} members");
    broker.close().await;
}
