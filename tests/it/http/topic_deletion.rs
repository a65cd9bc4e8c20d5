//! Deleting topics.

use super::{CREATED, Server, TOPIC, answer, event, expect_problem};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const ORDERS: &str = "shop.orders";
const PLACED: &str = "shop.order.placed";

async fn delete(server: &Server, query: &str) -> (StatusCode, Value) {
    answer(server.request(Method::DELETE, &format!("/v1/topics/{ORDERS}{query}"))).await
}

async fn make(server: &Server, streaming: &Value) {
    let (status, made) = server.post("/v1/topics", &json!({"id": ORDERS, "streaming": streaming})).await;
    assert_eq!(status, 201, "{made}");
}

async fn register_type(server: &Server) {
    let (status, made) = server.post("/v1/event-types", &json!({"id": PLACED, "topic": ORDERS})).await;
    assert_eq!(status, 201, "{made}");
}

/// An event under a fixed idempotency key.
fn placed() -> Value {
    let mut event = event(PLACED, "o-1");
    event["deduplicationId"] = json!("first");
    event
}

async fn publish(server: &Server) -> Value {
    let (status, stored) = server.post("/v1/events", &placed()).await;
    assert_eq!(status, 201, "{stored}");
    stored
}

async fn deleted_and_made_again(streaming: Value) {
    let mut server = Server::start(&[]);
    make(&server, &streaming).await;
    register_type(&server).await;
    let old = publish(&server).await;
    let old = old["id"].as_str().unwrap();
    let (status, planned) = delete(&server, "?dryRun=true").await;
    assert_eq!((status.as_u16(), &planned["count"]), (200, &json!(1)), "{planned}");
    assert!(planned["effects"].is_array(), "{planned}");
    assert_eq!(server.get(&format!("/v1/topics/{ORDERS}")).await.0, 200);

    assert_eq!(delete(&server, "").await.0, 204);
    for path in [
        format!("/v1/topics/{ORDERS}"),
        format!("/v1/events?topic={ORDERS}&offset=0"),
        format!("/v1/events:poll?topic={ORDERS}&offset=0&timeout=0"),
        format!("/v1/events/{old}"),
    ] {
        expect_problem(server.get(&path).await, 404, "EVENT_BROKER_NOT_FOUND");
    }
    expect_problem(delete(&server, "").await, 404, "EVENT_BROKER_NOT_FOUND");
    assert_eq!(server.get("/v1/log?after=0").await.1["items"], json!([]));
    expect_problem(server.post("/v1/events", &placed()).await, 422, "EVENT_BROKER_VALIDATION_ERROR");

    make(&server, &streaming).await;
    let new = publish(&server).await;
    assert_eq!((&new["sequence"], &new["aggregateSequence"]), (&json!(1), &json!(1)), "{new}");
    let (_, page) = server.get(&format!("/v1/events?topic={ORDERS}&offset=0")).await;
    assert_eq!(page["items"].as_array().unwrap().len(), 1, "{page}");
    if streaming.get("type") == Some(&json!("memory")) {
        return;
    }
    // The result is the same after a restart, from the checkpoint or from the log.
    for keeps_state in [true, false] {
        server.terminate();
        let (_, folder) = server.wait();
        if !keeps_state {
            let _ = std::fs::remove_dir_all(folder.path().join("state"));
        }
        server = Server::start_in(folder, &[]);
        let (_, page) = server.get(&format!("/v1/events?topic={ORDERS}&offset=0")).await;
        assert_eq!((&page["items"][0]["id"], &page["tail"]), (&new["id"], &json!(1)), "{page}");
        expect_problem(server.get(&format!("/v1/events/{old}")).await, 404, "EVENT_BROKER_NOT_FOUND");
        let (status, _) = server.post("/v1/events", &placed()).await;
        assert_eq!(status, 200, "its own key is known");
    }
}

#[tokio::test]
async fn a_deleted_topic_is_gone_and_its_name_begins_anew() {
    deleted_and_made_again(json!(true)).await;
}

#[tokio::test]
async fn so_is_one_of_another_log() {
    deleted_and_made_again(json!({"type": "file", "location": "file://own/orders"})).await;
    deleted_and_made_again(json!({"type": "memory"})).await;
}

#[tokio::test]
async fn what_uses_a_topic_keeps_it_unless_it_goes_by_force() {
    let server = Server::start(&[]);
    make(&server, &json!(true)).await;
    register_type(&server).await;
    let stored = publish(&server).await;
    let subscription = json!({"code": "mail", "topic": ORDERS, "target": "https://example.com/"});
    let consumer = json!({"consumerGroup": "billing", "topic": ORDERS});
    let (_, made) = server.post("/v1/consumers", &consumer).await;
    let consumer = format!("/v1/consumers/{}", made["data"]["id"].as_str().unwrap());
    assert_eq!(server.post(&format!("{consumer}:commit"), &json!({"offset": 1})).await.0, 200);
    assert_eq!(server.post("/v1/subscriptions", &subscription).await.0, 201);
    let put = server.request(Method::PUT, "/v1/projections/table").json(&json!({"topic": ORDERS}));
    assert_eq!(answer(put).await.0, 201);
    let (_, claimed) = server.post("/v1/claims", &json!({"handler": "h", "eventId": stored["id"]})).await;
    let claim = claimed["claim"]["id"].as_str().unwrap();
    let failure =
        json!({"token": claimed["claim"]["token"], "error": {"class": "x", "message": "y"}, "retryable": false});
    assert_eq!(server.post(&format!("/v1/claims/{claim}:fail"), &failure).await.0, 200);
    assert_eq!(server.get("/v1/dead-letters").await.1["items"].as_array().unwrap().len(), 1);

    let problem = expect_problem(delete(&server, "").await, 409, "EVENT_BROKER_INVALID_STATE");
    for user in ["mail", "consumer", "table"] {
        assert!(problem["detail"].as_str().unwrap().contains(user), "{user}: {problem}");
    }
    let (_, planned) = delete(&server, "?dryRun=true").await;
    assert!(planned["effects"].to_string().contains("mail"), "{planned}");
    let key = |request: reqwest::RequestBuilder| answer(request.header("idempotency-key", "k1"));
    let path = format!("/v1/topics/{ORDERS}?force=true");
    assert_eq!(key(server.request(Method::DELETE, &path)).await.0, 204);
    assert_eq!(key(server.request(Method::DELETE, &path)).await.0, 204, "repeated under the same key");
    for path in ["/v1/subscriptions/mail", "/v1/projections/table", &consumer, "/v1/consumer-groups/billing"] {
        expect_problem(server.get(path).await, 404, "EVENT_BROKER_NOT_FOUND");
    }
    assert_eq!(server.get("/v1/dead-letters").await.1["items"], json!([]));
    assert_eq!(server.get(&format!("/v1/event-types/{PLACED}")).await.0, 200);
    make(&server, &json!(true)).await;
    let new = publish(&server).await;
    let (_, claimed) = server.post("/v1/claims", &json!({"handler": "h", "eventId": new["id"]})).await;
    assert_eq!(claimed["outcome"], "claimed", "{claimed}");
}

#[tokio::test]
async fn an_open_poll_ends_with_404_when_its_topic_is_deleted() {
    let server = Server::start(&[]);
    make(&server, &json!(true)).await;
    let (sent, mut stream) = (server.client.get(format!("{}/v1/events:stream?topic={ORDERS}", server.url)), Vec::new());
    let mut response = sent.send().await.unwrap();
    stream.extend_from_slice(&response.chunk().await.unwrap().unwrap());
    let path = format!("/v1/events:poll?topic={ORDERS}&offset=0&timeout=30");
    let (polled, deleted) = tokio::join!(server.get(&path), delete(&server, ""));
    assert_eq!(deleted.0, 204);
    expect_problem(polled, 404, "EVENT_BROKER_NOT_FOUND");
    while let Some(chunk) = response.chunk().await.unwrap() {
        stream.extend_from_slice(&chunk);
    }
    let stream = String::from_utf8(stream).unwrap();
    assert!(stream.contains("event: problem") && stream.contains("EVENT_BROKER_NOT_FOUND"), "{stream}");
}

#[tokio::test]
async fn topics_that_must_be_there_are_not_deleted() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let remove = |topic: &str| answer(server.request(Method::DELETE, &format!("/v1/topics/{topic}")));
    expect_problem(remove(TOPIC).await, 409, "EVENT_BROKER_INVALID_STATE");
    let news = "gts.hx.core.events.topic.v1~hx.broker.dispatch.operations.v1";
    expect_problem(remove(news).await, 422, "EVENT_BROKER_VALIDATION_ERROR");
    expect_problem(remove("no.such").await, 404, "EVENT_BROKER_NOT_FOUND");
    expect_problem(remove("no.such?force=yes").await, 422, "EVENT_BROKER_VALIDATION_ERROR");
}
