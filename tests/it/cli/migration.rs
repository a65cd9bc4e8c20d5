//! Moving everything to an empty broker with `export` and `import`: every event arrives exactly once.

use super::{ask, feed};
use crate::http::{Server, TENANT};
use serde_json::{Value, json};

const PLACED: &str = "order.placed";
const CLOSED: &str = "order.closed";

/// A broker with a topic and two event types.
fn broker(topic: &Value) -> Server {
    let server = Server::start(&[]);
    feed(&server, &["topics", "create", "--file", "-"], &topic.to_string()).expect(0);
    for event_type in [PLACED, CLOSED] {
        let definition = json!({"id": event_type, "topic": "shop.orders"});
        feed(&server, &["types", "register"], &definition.to_string()).expect(0);
    }
    server
}

/// Publishes an event; returns the status of the response.
async fn publish(server: &Server, producer: Option<&str>, members: &Value) -> u16 {
    let mut event = json!({"type": PLACED, "source": "shop", "subject": "s", "tenant": TENANT, "data": {"n": 1}});
    event.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    let request = server.client.post(format!("{}/v1/events", server.url)).json(&event);
    let request = producer.into_iter().fold(request, |request, producer| request.header("Producer-Id", producer));
    request.send().await.unwrap().status().as_u16()
}

/// What a reader of the topic sees, without positions and storage times.
fn events(server: &Server) -> Vec<Value> {
    let exported = ask(server, &["export", "shop.orders"]).expect(0).out;
    let event = |line: &str| {
        let mut event: Value = serde_json::from_str(line).unwrap();
        let members = event.as_object_mut().unwrap();
        members.remove("position").unwrap();
        members.remove("createdAt").unwrap();
        event
    };
    exported.lines().map(event).collect()
}

fn republish(server: &Server, sequence: &str) {
    ask(server, &["topics", "republish", "shop.orders", "--from", sequence, "--to", sequence]).expect(0);
}

fn import(server: &Server, exported: &str) -> String {
    feed(server, &["import", "-"], exported).expect(0).out
}

const ID: &str = "550e8400-e29b-41d4-a716-446655440000";

/// Two producers with one id, a `deduplicationId` that is used again after its window, and a copy: the import treated
/// the second of each as a duplicate, with exit code 0.
#[tokio::test]
async fn events_that_share_a_key_and_republished_copies_all_arrive() {
    let topic = json!({"id": "shop.orders", "streaming": true, "idempotentRetention": "PT1S"});
    let (old, new) = (broker(&topic), Server::start(&[]));
    let same = json!({"id": ID, "occurredAt": "2026-01-01T00:00:00Z"});
    assert_eq!(publish(&old, Some("p1"), &same).await, 201);
    assert_eq!(publish(&old, Some("p2"), &same).await, 201);
    assert_eq!(publish(&old, None, &json!({"deduplicationId": "D"})).await, 201);
    // The event is a duplicate until the topic has forgotten the key.
    while publish(&old, None, &json!({"deduplicationId": "D"})).await == 200 {}
    republish(&old, "1");
    assert_eq!(publish(&old, None, &json!({"type": CLOSED})).await, 201);
    ask(&old, &["types", "archive", CLOSED]).expect(0);

    let topics = ask(&old, &["topics", "list", "--json"]).expect(0).out;
    feed(&new, &["topics", "create", "--file", "-"], &topics).expect(0);
    let types = ask(&old, &["types", "list", "--json"]).expect(0).out;
    feed(&new, &["types", "register", "-", "--unarchived"], &types).expect(0);
    let exported = ask(&old, &["export", "--all"]).expect(0).out;
    assert_eq!(import(&new, &exported), "imported 6, duplicates 0, failed 0\n");
    assert_eq!(events(&new), events(&old), "sequences and copies are equal, too");
    assert_eq!(events(&new)[4]["republishOf"], 1);
    // Archived types stay archived.
    assert_eq!(publish(&new, None, &json!({"type": CLOSED})).await, 201);
    feed(&new, &["types", "register", "-"], &types).expect(0);
    assert_eq!(publish(&new, None, &json!({"type": CLOSED})).await, 422);
}

#[tokio::test]
async fn an_import_can_be_repeated_and_a_producer_can_retry_against_the_new_broker() {
    let topic = json!({"id": "shop.orders", "streaming": true});
    let (old, new) = (broker(&topic), broker(&topic));
    let (same, retried) = (json!({"id": ID}), json!({"id": "550e8400-e29b-41d4-a716-446655440001"}));
    for producer in ["p1", "p2"] {
        assert_eq!(publish(&old, Some(producer), &same).await, 201);
    }
    assert_eq!(publish(&old, None, &retried).await, 201);
    republish(&old, "2");
    let exported = ask(&old, &["export", "--all"]).expect(0).out;
    assert_eq!(import(&new, &exported), "imported 4, duplicates 0, failed 0\n");
    for target in [&new, &old] {
        assert_eq!(import(target, &exported), "imported 0, duplicates 4, failed 0\n", "nothing is stored twice");
    }
    assert_eq!(events(&new), events(&old));
    assert_eq!(publish(&new, None, &retried).await, 200, "the producer gets the event that was moved");
    assert_eq!(publish(&new, Some("p1"), &same).await, 201, "an export does not say which producer it was");
    // An event that was published to both brokers is stored once.
    let both = json!({"id": "550e8400-e29b-41d4-a716-446655440002"});
    for broker in [&old, &new] {
        assert_eq!(publish(broker, None, &both).await, 201);
    }
    let exported = ask(&old, &["export", "--all", "--after", "0"]).expect(0).out;
    assert_eq!(import(&new, &exported), "imported 0, duplicates 5, failed 0\n");
}

#[tokio::test]
async fn copies_name_the_sequence_that_their_event_has_here_or_are_refused() {
    let topic = json!({"id": "shop.orders", "streaming": true});
    let (old, new) = (broker(&topic), broker(&topic));
    for n in 0..3 {
        assert_eq!(publish(&old, None, &json!({"data": {"n": n}})).await, 201);
    }
    republish(&old, "2");
    republish(&old, "1");
    // The first event is not imported: all later events get other sequences, and the original of its copy is missing.
    let exported = ask(&old, &["export", "--all"]).expect(0).out;
    let rest: String = exported.lines().skip(1).map(|line| format!("{line}\n")).collect();
    let run = feed(&new, &["import", "-"], &rest).expect(1);
    assert_eq!(run.out, "imported 3, duplicates 0, failed 1\n");
    assert!(run.err.contains("line 4 was refused") && run.err.contains("copy of sequence 1"), "{}", run.err);
    assert!(run.err.contains("3 events have other sequences than in the export"), "{}", run.err);
    let events = events(&new);
    let numbers: Vec<_> =
        events.iter().map(|event| (event["data"]["n"].clone(), event["republishOf"].clone())).collect();
    assert_eq!(numbers, [(json!(1), Value::Null), (json!(2), Value::Null), (json!(1), json!(1))]);
}
