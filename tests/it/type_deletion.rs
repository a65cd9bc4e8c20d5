//! Deleting event types while other callers publish, republish and trim: no event of a deleted type remains.

use crate::scenario::{subject_type_id, topic_id, type_id};
use contract::api::*;
use contract::{EventTypeId, Kind, NewEvent, NewEventType, NewTopic, RepublishRequest, Sequence, TrimRequest};
use event_broker::{Broker, Config};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

const PUBLISHERS: usize = 3;

fn placed() -> EventTypeId {
    type_id("placed").parse().unwrap()
}

fn event() -> NewEvent {
    let data = serde_json::value::to_raw_value(&serde_json::json!({})).unwrap();
    let event = NewEvent::new(placed(), "test", data).about(subject_type_id("order"), "a");
    NewEvent { tenant: Some(Uuid::from_u128(1)), ..event }
}

async fn made(streaming: &str) -> Arc<Broker> {
    let broker = Broker::open(Config::default()).await.unwrap();
    let streaming = serde_json::from_str(streaming).unwrap();
    broker.register_topic(NewTopic { streaming, ..NewTopic::new(topic_id("orders")) }).await.unwrap();
    let mut event_type = NewEventType::new(placed());
    event_type.topic = Some(topic_id("orders"));
    broker.register_event_type(event_type).await.unwrap();
    Arc::new(broker)
}

async fn trim_all(broker: &Broker) {
    let trim = TrimRequest { through: Some(Sequence(u64::MAX / 2)), ..TrimRequest::default() };
    broker.trim_topic(&topic_id("orders"), trim).await.unwrap();
}

/// Publishes until the type accepts no more events.
async fn publish_on(broker: Arc<Broker>, deadline: Instant) {
    while Instant::now() < deadline {
        match broker.publish(event(), None).await {
            Ok(_) => tokio::task::yield_now().await,
            Err(refused) => return assert_eq!(refused.kind(), Kind::Validation, "{refused}"),
        }
    }
    panic!("the type must stop accepting events");
}

/// Republishes the first events until the type is deleted.
async fn republish_on(broker: Arc<Broker>, deadline: Instant) {
    while Instant::now() < deadline {
        // Events that were removed a moment ago are not a failure.
        let _ = broker.republish(&topic_id("orders"), RepublishRequest::to_topic(Sequence(1), Sequence(50))).await;
        if broker.event_type(&placed()).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the type must be deleted");
}

async fn deleted_while_published(streaming: &str) {
    let broker = made(streaming).await;
    for _ in 0..10 {
        broker.publish(event(), None).await.unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut others = vec![tokio::spawn(republish_on(Arc::clone(&broker), deadline))];
    others.extend((0..PUBLISHERS).map(|_| tokio::spawn(publish_on(Arc::clone(&broker), deadline))));
    broker.archive_event_type(&placed()).await.unwrap();
    loop {
        trim_all(&broker).await;
        match broker.delete_event_type(&placed()).await {
            Ok(()) => break,
            Err(error) => assert_eq!(error.kind(), Kind::InvalidState, "{error}"),
        }
        assert!(Instant::now() < deadline, "there is always an event");
    }
    for other in others {
        other.await.unwrap();
    }
    let left = broker.segments(&topic_id("orders")).await.unwrap().segments;
    assert!(left.is_empty(), "events are left of a type that is deleted: {left:?}");
    broker.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_event_is_left_of_a_type_that_is_deleted_while_others_publish_it() {
    for _ in 0..5 {
        deleted_while_published("true").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nor_in_another_log() {
    for _ in 0..5 {
        deleted_while_published(r#"{"location":"memory://side"}"#).await;
    }
}
