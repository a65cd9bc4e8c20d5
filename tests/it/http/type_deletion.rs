//! Deleting event types.

use super::{CREATED, Server, TOPIC, answer, event, expect_problem};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const ORDERS: &str = "shop.orders";
const PLACED: &str = "shop.order.placed";

async fn delete(server: &Server) -> (StatusCode, Value) {
    answer(server.request(Method::DELETE, &format!("/v1/event-types/{PLACED}"))).await
}

async fn archive(server: &Server) {
    assert_eq!(server.post(&format!("/v1/event-types/{PLACED}:archive"), &json!({})).await.0, 200);
}

/// A topic with this storage, and a type whose events are stored there.
async fn made(streaming: &Value) -> Server {
    let server = Server::start(&[]);
    let topic = json!({"id": ORDERS, "streaming": streaming});
    assert_eq!(server.post("/v1/topics", &topic).await.0, 201);
    assert_eq!(server.post("/v1/event-types", &json!({"id": PLACED, "topic": ORDERS})).await.0, 201);
    server
}

async fn kept_by_its_events_alone(streaming: Value) {
    let server = made(&streaming).await;
    for subject in ["o-1", "o-2"] {
        assert_eq!(server.post("/v1/events", &event(PLACED, subject)).await.0, 201);
    }
    let problem = expect_problem(delete(&server).await, 409, "EVENT_BROKER_INVALID_STATE");
    assert!(problem["detail"].as_str().unwrap().contains(":archive"), "{problem}");
    archive(&server).await;
    for through in [1, 2] {
        let problem = expect_problem(delete(&server).await, 409, "EVENT_BROKER_INVALID_STATE");
        let detail = problem["detail"].as_str().unwrap();
        let first = format!("sequence {through} of the topic {ORDERS}");
        assert!(detail.contains(&first) && detail.contains(":trim") && detail.contains("retention"), "{detail}");
        let trim = server.post(&format!("/v1/topics/{ORDERS}:trim"), &json!({"through": through})).await;
        assert_eq!(trim.0, 200, "{}", trim.1);
    }
    assert_eq!(delete(&server).await.0, 204);
    expect_problem(server.get(&format!("/v1/event-types/{PLACED}")).await, 404, "EVENT_BROKER_NOT_FOUND");
    expect_problem(delete(&server).await, 404, "EVENT_BROKER_NOT_FOUND");
    expect_problem(server.post("/v1/events", &event(PLACED, "o-1")).await, 422, "EVENT_BROKER_VALIDATION_ERROR");
}

#[tokio::test]
async fn an_archived_type_is_deleted_once_no_event_of_it_is_stored() {
    kept_by_its_events_alone(json!(true)).await;
}

#[tokio::test]
async fn events_in_other_logs_keep_a_type_too() {
    kept_by_its_events_alone(json!({"type": "file", "location": "file://own/orders"})).await;
    kept_by_its_events_alone(json!({"type": "memory"})).await;
}

#[tokio::test]
async fn events_go_with_their_topic_and_others_in_it_keep_nothing() {
    let server = made(&json!(true)).await;
    server.register(CREATED).await;
    assert_eq!(server.post("/v1/events", &event(PLACED, "o-1")).await.0, 201);
    assert_eq!(server.post("/v1/events", &event(CREATED, "t-1")).await.0, 201);
    archive(&server).await;
    expect_problem(delete(&server).await, 409, "EVENT_BROKER_INVALID_STATE");
    assert_eq!(answer(server.request(Method::DELETE, &format!("/v1/topics/{ORDERS}"))).await.0, 204);
    assert_eq!(delete(&server).await.0, 204);
    let (_, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=0")).await;
    assert_eq!(page["items"].as_array().unwrap().len(), 1, "{page}");
}

#[tokio::test]
async fn a_deleted_types_name_is_free_for_another_definition_also_after_a_restart() {
    let mut server = made(&json!(true)).await;
    archive(&server).await;
    let path = format!("/v1/event-types/{PLACED}");
    let keyed = |server: &Server| answer(server.request(Method::DELETE, &path).header("idempotency-key", "k1"));
    assert_eq!(keyed(&server).await.0, 204);
    let other = json!({"id": PLACED, "topic": ORDERS, "dataSchema": {"type": "object", "required": ["total"]}});
    for keeps_state in [true, false] {
        server.terminate();
        let (_, folder) = server.wait();
        if !keeps_state {
            let _ = std::fs::remove_dir_all(folder.path().join("state"));
        }
        server = Server::start_in(folder, &[]);
        expect_problem(server.get(&path).await, 404, "EVENT_BROKER_NOT_FOUND");
        assert_eq!(keyed(&server).await.0, 204, "repeated under the same key");
    }
    assert_eq!(server.post("/v1/event-types", &other).await.0, 201);
    assert_eq!(keyed(&server).await.0, 204, "repeated, and executed once");
    let (status, shown) = server.get(&path).await;
    assert_eq!((status.as_u16(), shown.get("archived").is_none_or(|it| it == false)), (200, true), "{shown}");
    let refused =
        expect_problem(server.post("/v1/events", &event(PLACED, "o-1")).await, 422, "EVENT_BROKER_VALIDATION_ERROR");
    assert_eq!(refused["errors"][0]["pointer"], "/data", "{refused}");
}

#[tokio::test]
async fn what_is_deleted_is_named_without_a_verb() {
    let server = made(&json!(true)).await;
    let path = format!("/v1/event-types/{PLACED}:archive");
    expect_problem(answer(server.request(Method::DELETE, &path)).await, 405, "EVENT_BROKER_METHOD_NOT_ALLOWED");
    let path = "/v1/event-types/no.such";
    expect_problem(answer(server.request(Method::DELETE, path)).await, 404, "EVENT_BROKER_NOT_FOUND");
    let path = format!("/v1/event-types/{PLACED}?force=true");
    expect_problem(answer(server.request(Method::DELETE, &path)).await, 422, "EVENT_BROKER_VALIDATION_ERROR");
}
