//! Deleting event types while others publish, publish again and trim: no event is left of a type that is gone.

use crate::scenario::{subject_type_id, topic_id, type_id};
use contract::{
    EventBroker, EventTypeId, Kind, NewEvent, NewEventType, NewTopic, Read, Republish, RepublishTarget, Sequence, Trim,
};
use event_broker::{Broker, Config};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

const PUBLISHERS: usize = 4;

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
    let trim = Trim { through: Some(Sequence(u64::MAX / 2)), ..Trim::default() };
    broker.trim_topic(&topic_id("orders"), trim).await.unwrap();
}

/// Publishes, or publishes again, until the type takes no more events.
async fn publish_on(broker: Arc<Broker>, repeats: bool, deadline: Instant) {
    while Instant::now() < deadline {
        let order = Republish {
            from: Sequence(1),
            to: Sequence(10_000),
            target: RepublishTarget::Topic,
            name: None,
            dry_run: false,
        };
        if repeats {
            // What was removed a moment ago is no failure.
            let _ = broker.republish(&topic_id("orders"), order).await;
            if broker.event_type(&placed()).await.is_err() {
                return;
            }
        } else if broker.publish(event(), None).await.is_err() {
            return;
        }
    }
    panic!("the type is not deleted");
}

async fn deleted_while_published(streaming: &str) {
    let broker = made(streaming).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    let publishers: Vec<_> =
        (0..PUBLISHERS).map(|n| tokio::spawn(publish_on(Arc::clone(&broker), n == 0, deadline))).collect();
    while broker.read(Read::all(topic_id("orders"))).await.unwrap().items.len() < 10 {
        assert!(Instant::now() < deadline, "nothing is published");
        tokio::task::yield_now().await;
    }
    broker.archive_event_type(&placed()).await.unwrap();
    loop {
        trim_all(&broker).await;
        match broker.delete_event_type(&placed()).await {
            Ok(()) => break,
            Err(error) => assert_eq!(error.kind(), Kind::InvalidState, "{error}"),
        }
        assert!(Instant::now() < deadline, "there is always an event");
    }
    for publisher in publishers {
        publisher.await.unwrap();
    }
    let tail = broker.segments(&topic_id("orders")).await.unwrap().segments;
    assert!(tail.is_empty(), "events are left of a type that is deleted: {tail:?}");
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
