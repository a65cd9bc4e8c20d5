//! Shared groups over HTTP: what a member receives, in every form, what wakes it, and republishing.

use super::claims::{say, server};
use super::projections::check_table;
use super::{CREATED, Deadline, Server, TOPIC, answer, event};
use futures_util::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Joins a shared group; returns the path to poll.
pub(crate) async fn join(server: &Server, group: &str, topic: &str) -> String {
    let member = json!({"consumerGroup": group, "topic": topic, "distribution": "shared", "maxInFlight": 20});
    let (status, made) = server.post("/v1/consumers", &member).await;
    assert_eq!((status.as_u16(), made["data"]["maxInFlight"].as_u64()), (201, Some(20)), "{made}");
    format!("/v1/events:poll?consumer_id={}&offset=0", made["data"]["id"].as_str().unwrap())
}

/// Polls; returns the events.
async fn poll(server: &Server, path: &str, timeout: u64) -> Vec<Value> {
    let (status, page) = server.get(&format!("{path}&timeout={timeout}")).await;
    assert_eq!(status, 200, "{page}");
    page["items"].as_array().unwrap().clone()
}

fn sequences(items: &[Value]) -> Vec<u64> {
    items.iter().map(|item| item["sequence"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn a_member_is_handed_events_with_their_claims() {
    let server = server().await;
    let path = join(&server, "billing", TOPIC).await;
    let items = poll(&server, &path, 0).await;
    assert_eq!(sequences(&items), [1, 3]);
    for item in &items {
        let claim = &item["claim"];
        for (member, wanted) in
            [("attempt", json!(1)), ("handler", json!("billing")), ("sequence", item["sequence"].clone())]
        {
            assert_eq!(claim[member], wanted, "{claim}");
        }
        assert_eq!(claim["eventId"], item["id"]);
        assert!(claim["token"].is_u64() && claim["leaseExpiresAt"].is_string() && claim["id"].is_string(), "{claim}");
        assert_eq!(say(&server, claim, "done", &json!({})).await.0, 200);
    }
    let (_, group) = server.get("/v1/consumer-groups/billing").await;
    assert_eq!((&group["topics"][0]["committedOffset"], &group["topics"][0]["lag"]), (&json!(1), &json!(1)), "{group}");
    let request = server.request(Method::GET, &format!("{path}&timeout=0"));
    let response = request.header("accept", "application/cloudevents-batch+json").send().await.unwrap();
    assert!(response.headers()["next-offset"] == "1" && response.headers()["tail"] == "3");
    let events: Value = response.json().await.unwrap();
    assert_eq!((&events[0]["sequence"], &events[0]["claimattempt"]), (&json!("2"), &json!("1")), "{events}");
    let claim =
        json!({"id": events[0]["claimid"], "token": events[0]["claimtoken"].as_str().unwrap().parse::<u64>().unwrap()});
    assert_eq!(say(&server, &claim, "done", &json!({})).await.0, 200);
    let (_, group) = server.get("/v1/consumer-groups/billing").await;
    assert_eq!(group["topics"][0]["lag"], 0, "{group}");
}

#[tokio::test]
async fn a_poll_that_waits_is_woken_by_whatever_makes_work_free() {
    let server = server().await;
    let handler = json!({"lease": "PT1S", "maxAttempts": 2, "backoff": "PT1S"});
    let put = server.request(Method::PUT, "/v1/handlers/billing").json(&handler).send().await.unwrap();
    assert!(put.status().is_success());
    let (path, other) = (join(&server, "billing", TOPIC).await, join(&server, "billing", TOPIC).await);
    let mut held = poll(&server, &path, 0).await;
    held.extend(poll(&server, &other, 0).await);
    assert_eq!(sequences(&held), [1, 3]);
    let first = held[0]["claim"].clone();
    let nothing = json!({});
    // Woken by a done claim.
    let (items, done) = tokio::join!(poll(&server, &other, 20), say(&server, &first, "done", &nothing));
    assert_eq!((sequences(&items), done.0.as_u16()), (vec![2], 200));
    // Woken by the end of a back-off.
    let error = json!({"error": {"class": "X", "message": "y"}});
    assert_eq!(say(&server, &items[0]["claim"], "fail", &error).await.0, 200);
    let began = Instant::now();
    let mut again = poll(&server, &path, 20).await;
    while sequences(&again) != [2] {
        // The lease of the other event may expire first.
        assert_eq!(sequences(&again), [3]);
        assert_eq!(say(&server, &again[0]["claim"], "done", &json!({})).await.0, 200);
        again = poll(&server, &path, 20).await;
    }
    assert!(began.elapsed() < Duration::from_secs(10));
    // Woken by the expiry of a lease: that was the last attempt, so the event becomes a dead letter, and a redrive
    // wakes the poll.
    let dead = async {
        let deadline = Deadline::begin();
        loop {
            deadline.check("a dead letter");
            let (_, letters) = server.get("/v1/dead-letters?name=billing").await;
            if let Some(dead_letter) = letters["items"][0]["id"].as_str() {
                return dead_letter.to_owned();
            }
            poll(&server, &other, 1).await;
        }
    };
    let dead_letter = dead.await;
    let redrive = format!("/v1/dead-letters/{dead_letter}:redrive");
    let (items, redriven) = tokio::join!(poll(&server, &path, 20), server.post(&redrive, &nothing));
    assert_eq!((sequences(&items), redriven.0.as_u16()), (vec![2], 200));
    // Woken by an append.
    let published = event(CREATED, "z");
    let (items, stored) = tokio::join!(poll(&server, &other, 20), server.post("/v1/events", &published));
    assert_eq!(items[0]["id"], stored.1["id"]);
}

#[tokio::test]
async fn a_stream_hands_out_work_too() {
    let server = server().await;
    let path = join(&server, "billing", TOPIC).await.replace("events:poll", "events:stream");
    let mut stream = server.request(Method::GET, &path).send().await.unwrap().bytes_stream();
    let mut text = String::new();
    let deadline = Deadline::begin();
    while text.matches("data: ").count() < 2 || !text.ends_with("\n\n") {
        deadline.check("events of the stream");
        text.push_str(std::str::from_utf8(&stream.next().await.unwrap().unwrap()).unwrap());
    }
    let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = events.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(sequences(&events), [1, 3]);
    assert_eq!(say(&server, &events[0]["claim"], "done", &json!({})).await.0, 200);
    while text.matches("data: ").count() < 3 || !text.ends_with("\n\n") {
        deadline.check("events of the stream");
        text.push_str(std::str::from_utf8(&stream.next().await.unwrap().unwrap()).unwrap());
    }
}

#[tokio::test]
async fn verbs_of_a_topic_answer_and_refuse_as_the_table_says() {
    let server = server().await;
    let table = r#"
        POST /v1/topics/{T}:republish {"from":1,"to":2,"target":"topic","dryRun":true} -> 200
        POST /v1/topics/{T}:republish {"from":1,"to":2} -> 422 VALIDATION_ERROR /target
        POST /v1/topics/{T}:republish {"from":1,"to":2,"target":"all"} -> 422 VALIDATION_ERROR /target
        POST /v1/topics/{T}:republish {"from":"1","to":2,"target":"topic"} -> 422 VALIDATION_ERROR /from
        POST /v1/topics/{T}:republish {"from":2,"to":1,"target":"topic"} -> 422 VALIDATION_ERROR /to
        POST /v1/topics/{T}:republish {"from":1,"to":2,"target":"topic","name":"g"} -> 422 VALIDATION_ERROR /name
        POST /v1/topics/{T}:republish {"from":1,"to":2,"target":"group"} -> 422 VALIDATION_ERROR /name
        POST /v1/topics/{T}:republish {"from":1,"to":2,"target":"group","name":"g"} -> 422 VALIDATION_ERROR /name
        POST /v1/topics/{T}:republish {"from":1,"to":2,"target":"subscriptions"} -> 200
        POST /v1/topics/{T}:republish {"from":1,"to":2,"target":"subscriptions","name":"s"} -> 422 VALIDATION_ERROR /name
        POST /v1/topics/{T}:republish {"from":2,"to":1,"target":"subscriptions"} -> 422 VALIDATION_ERROR /to
        POST /v1/topics/{O}:republish {"from":1,"to":2,"target":"subscriptions"} -> 404 NOT_FOUND
        POST /v1/topics/{T}:republish {"from":1,"to":2,"target":"topic","x":1} -> 422 VALIDATION_ERROR /x
        POST /v1/topics/{O}:republish {"from":1,"to":2,"target":"topic"} -> 404 NOT_FOUND
        POST /v1/topics/{T}:trim {} -> 422 VALIDATION_ERROR /through
        POST /v1/topics/{T}:trim {"through":1,"before":"2025-12-03T12:00:00Z"} -> 422 VALIDATION_ERROR /before
        POST /v1/topics/{T}:trim {"before":"then"} -> 422 VALIDATION_ERROR /before
        POST /v1/topics/{O}:trim {"through":1} -> 404 NOT_FOUND
        POST /v1/topics/{T}:trim {"before":"2020-12-03T12:00:00Z"} -> 200
        POST /v1/topics/{T}:compact {} -> 409 INVALID_STATE
        POST /v1/topics/{O}:compact {} -> 404 NOT_FOUND
        POST /v1/topics/{T}:shrink {} -> 404 NOT_FOUND
        POST /v1/topics/{T} {} -> 405 METHOD_NOT_ALLOWED
        GET /v1/topics/{T}:trim -> 405 METHOD_NOT_ALLOWED
        PATCH /v1/topics/{T}:republish {} -> 405 METHOD_NOT_ALLOWED
    "#;
    let other = "gts.hx.core.events.topic.v1~vendor.nowhere.v1";
    check_table(&server, &table.replace("{T}", TOPIC).replace("{O}", other));
    let path = format!("/v1/topics/{TOPIC}:republish");
    let order = json!({"from": 1, "to": 3, "target": "topic"});
    for _ in 0..2 {
        let request = server.request(Method::POST, &path).header("idempotency-key", "again-1").json(&order);
        assert_eq!(super::answer(request).await, (reqwest::StatusCode::OK, json!({"count": 3})));
    }
    let (_, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=3")).await;
    let items = page["items"].as_array().unwrap();
    assert_eq!(items.iter().map(|item| item["republishOf"].clone()).collect::<Vec<_>>(), [1, 2, 3]);
    let (_, first) = server.get(&format!("/v1/events/{}", items[0]["id"].as_str().unwrap())).await;
    assert_eq!((&first["sequence"], &first["id"], &first["data"]), (&json!(1), &items[0]["id"], &items[0]["data"]));
    let (status, trimmed) = server.post(&format!("/v1/topics/{TOPIC}:trim"), &json!({"through": 2})).await;
    assert_eq!((status.as_u16(), trimmed), (200, json!({"count": 2})));
}

#[tokio::test]
async fn a_group_whose_name_ends_like_a_custom_method_can_be_deleted() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let consumer = json!({"consumerGroup": "x:reset", "topic": TOPIC});
    let (status, made) = server.post("/v1/consumers", &consumer).await;
    assert_eq!(status, 201, "{made}");
    let reset = json!({"topic": TOPIC, "offset": "earliest"});
    assert_eq!(server.post("/v1/consumer-groups/x%3Areset:reset", &reset).await.0, 200);
    assert_eq!(server.get("/v1/consumer-groups/x%3Areset").await.0, 200);
    let id = made["data"]["id"].as_str().unwrap();
    for path in [format!("/v1/consumers/{id}"), "/v1/consumer-groups/x%3Areset".to_owned()] {
        let (status, problem) = answer(server.request(Method::DELETE, &path)).await;
        assert_eq!(status, 204, "{path}: {problem}");
    }
    assert_eq!(server.get("/v1/consumer-groups/x%3Areset").await.0, 404);
}
