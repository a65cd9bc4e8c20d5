//! The examples of handlers: a receiver that checks fencing tokens, and events that are produced with the completion.

#[path = "../../examples/consume_produce.rs"]
#[allow(dead_code, reason = "its `main` is for people")]
mod consume_produce;
#[path = "../../examples/fenced_receiver.rs"]
#[allow(dead_code, reason = "its `main` is for people")]
mod fenced_receiver;

use crate::lossy_proxy::LossyProxy;
use crate::test_broker::{Deadline, TestBroker, bank, moved};
use consume_produce::{NOTED, note};
use contract::api::*;
use contract::{
    Claim, Completion, DeadLetterFilter, Kind, NewClaim, NewEventType, NewHandler, NewTopic, TopicId, TopicRead,
};
use event_broker_client::Client;
use event_broker_client::handler::{HandlerOptions, HandlerRunner};
use fenced_receiver::{Receiver, StaleToken};
use serde_json::json;
use std::time::Duration;

fn notes() -> TopicId {
    "gts.hx.core.events.topic.v1~vendor.notes.v1".parse().unwrap()
}

/// Claims the first event, as soon as that is possible.
async fn claim(client: &Client, owner: &str) -> Claim {
    let mut wanted = NewClaim::at("charges", bank(), contract::Sequence(1)).owned_by(owner);
    wanted.lease = Some("PT0.3S".parse().unwrap());
    let deadline = Deadline::begin();
    loop {
        deadline.check("a claim");
        if let Some(claim) = client.claim(wanted.clone(), None).await.unwrap().claim {
            return claim;
        }
    }
}

#[tokio::test]
async fn a_worker_that_stalled_past_its_lease_is_refused_by_the_receiver_and_by_the_broker() {
    let server = TestBroker::set(Vec::new()).await;
    let (client, receiver) = (server.client(), Receiver::default());
    server.publish(moved("a", None, &json!({"account": "a", "amount": 5}))).await;
    let event = client.read(TopicRead::all(bank())).await.unwrap().items.remove(0);
    // The first worker stalls until its lease has expired and another worker has the event.
    let stalled = claim(&client, "one").await;
    let taken_over = claim(&client, "two").await;
    assert!(taken_over.token > stalled.token && taken_over.attempt == 2);
    fenced_receiver::work(receiver.clone(), event.clone(), taken_over.clone()).await.unwrap();
    assert_eq!(receiver.charge("a", 5, event.id, taken_over.token), Ok(5), "an event counts once");
    // Then it resumes.
    assert_eq!(receiver.charge("a", 5, event.id, stalled.token), Err(StaleToken(taken_over.token)));
    let refused = fenced_receiver::work(receiver.clone(), event, stalled.clone()).await.unwrap_err();
    assert!(refused.to_string().starts_with("StaleToken: Token"), "{refused}");
    for answer in [
        client.complete_claim(&stalled.id, Completion::of(stalled.token), None).await,
        client.heartbeat(&stalled.id, stalled.token).await,
    ] {
        assert_eq!(answer.unwrap_err().kind(), Kind::ClaimLost);
    }
    client.complete_claim(&taken_over.id, Completion::of(taken_over.token), None).await.unwrap();
    server.close().await;
}

async fn broker_with_notes() -> TestBroker {
    let server = TestBroker::set(Vec::new()).await;
    server.broker.register_topic(NewTopic::new(notes())).await.unwrap();
    let mut event_type = NewEventType::new(NOTED.parse().unwrap());
    event_type.topic = Some(notes());
    server.broker.register_event_type(event_type).await.unwrap();
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_is_answered_by_one_however_often_the_word_that_it_is_done_is_lost() {
    const EVENTS: u64 = 20;
    let server = broker_with_notes().await;
    for n in 0..EVENTS {
        server.publish(moved(&format!("a-{}", n % 5), None, &json!({"account": "a", "amount": n}))).await;
    }
    let meddler = LossyProxy::before(&server.url, ":done HTTP").await;
    let runner =
        HandlerRunner::new(Client::new(&meddler.url).unwrap(), "notes", bank(), HandlerOptions::default(), note);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(runner.run(async { drop(stopped.await) }));
    let mut produced = Vec::new();
    let deadline = Deadline::begin();
    while produced.len() < EVENTS as usize {
        deadline.check("the events that are produced");
        let after = contract::Offset(produced.len() as u64);
        let read = TopicRead::all(notes()).after(after);
        produced.extend(server.broker.wait(read, Duration::from_secs(30)).await.unwrap().items);
    }
    // The first response to every report is lost, and every report has its effect.
    while server.broker.consumer_group("notes").await.is_ok_and(|it| it.topics[0].committed_offset.get() < EVENTS) {
        deadline.check("the last offset");
        tokio::task::yield_now().await;
    }
    drop(stop);
    running.await.unwrap().unwrap();
    assert_eq!(meddler.kept_back(), EVENTS as usize);
    let events = server.broker.read(TopicRead::all(notes())).await.unwrap().items;
    let mut causes: Vec<_> = events.iter().map(|it| it.event().unwrap().causation_id.unwrap()).collect();
    causes.sort_unstable();
    causes.dedup();
    assert_eq!((events.len(), causes.len()), (EVENTS as usize, EVENTS as usize));
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_produced_event_that_is_refused_is_a_failure_of_the_work() {
    let server = TestBroker::set(Vec::new()).await;
    // The produced event type is not registered.
    let terms = NewHandler { max_attempts: Some(2), backoff: Some("PT0S".parse().unwrap()), ..NewHandler::default() };
    server.broker.put_handler("notes", terms).await.unwrap();
    server.publish(moved("a", None, &json!({"account": "a", "amount": 1}))).await;
    let runner = HandlerRunner::new(server.client(), "notes", bank(), HandlerOptions::default(), note);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(runner.run(async { drop(stopped.await) }));
    let letter = loop {
        if let Some(letter) =
            server.broker.dead_letters(&DeadLetterFilter::default(), None, 1).await.unwrap().items.pop()
        {
            break letter;
        }
        tokio::task::yield_now().await;
    };
    drop(stop);
    running.await.unwrap().unwrap();
    assert_eq!((letter.exc_class.as_str(), letter.attempts.len()), (Kind::Validation.code(), 2));
    assert!(letter.exc_msg.contains("/events/0/type"), "{}", letter.exc_msg);
    server.close().await;
}
