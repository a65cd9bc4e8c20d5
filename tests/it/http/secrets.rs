//! The secret guard over HTTP: what is answered, and that no answer, log line or stored text has the secret.

use super::claims::{claim, say};
use super::raw_http::ask;
use super::{CREATED, Server, TOPIC, answer, event, expect_problem};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

/// The example key of AWS's documentation.
const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const STRICT: &str = "gts.hx.core.events.topic.v1~vendor.strict.v1";
const RULED: &str = "gts.vendor.strict.ruled.v1";

/// A server with a type in the default topic, which flags, and one in a topic that refuses.
async fn server(variables: &[(&str, &str)]) -> Server {
    let server = Server::start_with(variables, &[]);
    server.register(CREATED).await;
    let strict = json!({"id": STRICT, "streaming": true, "secrets": "reject"});
    let (status, made) = server.post("/v1/topics", &strict).await;
    assert_eq!((status.as_u16(), &made["secrets"]), (201, &json!("reject")));
    let (status, _) = server.post("/v1/event-types", &json!({"id": RULED, "topic": STRICT})).await;
    assert_eq!(status, 201);
    server
}

fn event_with(event_type: &str, data: Value) -> Value {
    let mut event = event(event_type, "s-1");
    event["data"] = data;
    event
}

async fn published(server: &Server, path: &str, body: &Value) -> (u16, HeaderMap, Value) {
    let response = server.request(Method::POST, path).json(body).send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    (status, headers, response.json().await.unwrap())
}

#[tokio::test]
async fn a_suspected_event_is_stored_and_the_header_names_the_places() {
    let server = server(&[]).await;
    let data = json!({"aws": {"key": KEY}, "a,b é%": {"password": "correct horse"}});
    let sent = event_with(CREATED, data.clone());
    let (status, headers, stored) = published(&server, "/v1/events", &sent).await;
    assert_eq!(status, 201, "{stored}");
    assert_eq!(headers["secret-suspected"], "/data/aws/key, /data/a%2Cb%20%C3%A9%25/password");
    assert_eq!(stored["data"], data);
    let (_, headers, _) = published(&server, "/v1/events", &event(CREATED, "s-1")).await;
    assert_eq!(headers.get("secret-suspected"), None);
    let batch = json!({"events": [sent, event(CREATED, "s-2")]});
    let (status, _, outcome) = published(&server, "/v1/events:batch", &batch).await;
    let results = &outcome["data"]["results"];
    assert_eq!(status, 207);
    assert_eq!(results[0]["secretSuspected"], json!(["/data/aws/key", "/data/a,b é%/password"]));
    assert_eq!(results[1].get("secretSuspected"), None);
    let log = server.logged();
    assert!(log.contains("aws-access-key") && !log.contains(KEY) && !log.contains("correct horse"), "{log}");
}

#[tokio::test]
async fn a_replayed_answer_has_the_header_too() {
    let server = server(&[]).await;
    for replayed in [false, true] {
        let request = server.request(Method::POST, "/v1/events").header("idempotency-key", "k-1");
        let response = request.json(&event_with(CREATED, json!({"key": KEY}))).send().await.unwrap();
        assert_eq!(response.headers().contains_key("idempotent-replayed"), replayed);
        assert_eq!(response.headers()["secret-suspected"], "/data/key");
    }
}

#[tokio::test]
async fn a_refusal_names_the_rule_and_the_place_and_never_the_value() {
    let server = server(&[]).await;
    let mut sent = event_with(RULED, json!({"aws": {"key": KEY}, "keys": {KEY: 1}}));
    sent["subject"] = json!(KEY);
    sent["context"] = json!({"note": format!("use {KEY}")});
    let problem = expect_problem(server.post("/v1/events", &sent).await, 422, "EVENT_BROKER_VALIDATION_ERROR");
    let errors: Vec<_> =
        problem["errors"].as_array().unwrap().iter().map(|it| it["pointer"].as_str().unwrap()).collect();
    assert_eq!(errors, ["/subject", "/context/note", "/data/aws/key", "/data/keys"]);
    assert!(problem["errors"][0]["detail"].as_str().unwrap().contains("aws-access-key"), "{problem}");
    assert!(!problem.to_string().contains(KEY), "{problem}");
    let batch = json!({"events": [event_with(RULED, json!({"key": KEY})), event(RULED, "s-2"), event(CREATED, "s-3")]});
    let (_, _, outcome) = published(&server, "/v1/events:batch", &batch).await;
    let results = outcome["data"]["results"].as_array().unwrap();
    let statuses: Vec<_> = results.iter().map(|result| result["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [422, 424, 201]);
    assert_eq!(results[0]["error"]["errors"][0]["pointer"], "/data/key");
    assert!(!outcome.to_string().contains(KEY) && !server.logged().contains(KEY));
    let names_only = event_with(RULED, json!({"password": "correct horse"}));
    let (status, headers, _) = published(&server, "/v1/events", &names_only).await;
    assert_eq!((status, headers["secret-suspected"].to_str().unwrap()), (201, "/data/password"));
}

#[tokio::test]
async fn cloud_events_and_imports_are_inspected_like_events() {
    let server = server(&[]).await;
    let cloud_event = |event_type: &str, id: &str| {
        json!({"specversion": "1.0", "type": event_type, "id": id, "source": "shop", "subject": "s-1", "tenant": super::TENANT,
            "data": {"key": KEY}})
    };
    let send = |event: Value| {
        let request = server.request(Method::POST, "/v1/events").header("content-type", "application/cloudevents+json");
        request.body(event.to_string()).send()
    };
    let flagged = send(cloud_event(CREATED, "ce-1")).await.unwrap();
    assert_eq!(
        (flagged.status().as_u16(), &flagged.headers()["secret-suspected"]),
        (201, &"/data/key".parse().unwrap())
    );
    let refused = send(cloud_event(RULED, "ce-2")).await.unwrap();
    let problem: Value = refused.json().await.unwrap();
    assert_eq!((&problem["status"], &problem["errors"][0]["pointer"]), (&json!(422), &json!("/data/key")));
    let lines = [event_with(RULED, json!({"key": KEY})), event(RULED, "s-2"), event_with(CREATED, json!({"key": KEY}))];
    let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let report =
        ask(&server, "POST", "/v1/events:import", &[("content-type", "application/x-ndjson")], body.as_bytes());
    let report = String::from_utf8(report.body).unwrap();
    let rows: Vec<Value> = report.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&rows[0]["line"], &rows[0]["error"]["errors"][0]["pointer"]), (&json!(1), &json!("/data/key")));
    let total = rows.last().unwrap();
    assert_eq!((&total["imported"], &total["failed"]), (&json!(2), &json!(1)), "{report}");
    assert!(!report.contains(KEY));
}

#[tokio::test]
async fn the_policy_of_a_topic_can_change() {
    let server = server(&[]).await;
    let sent = event_with(RULED, json!({"key": KEY}));
    assert_eq!(server.post("/v1/events", &sent).await.0, 422);
    let path = format!("/v1/topics/{STRICT}");
    for (policy, expected) in [("flag", Some("/data/key")), ("off", None)] {
        let change = server.request(Method::PATCH, &path).json(&json!({"secrets": policy}));
        assert_eq!(answer(change).await.1["secrets"], policy);
        let (status, headers, _) = published(&server, "/v1/events", &sent).await;
        let header = headers.get("secret-suspected").map(|value| value.to_str().unwrap());
        assert_eq!((status, header), (201, expected));
    }
    let change = server.request(Method::PATCH, &path).json(&json!({"secrets": "canary"}));
    let problem = expect_problem(answer(change).await, 422, "EVENT_BROKER_VALIDATION_ERROR");
    assert_eq!(problem["errors"][0]["pointer"], "/secrets");
}

#[tokio::test]
async fn the_error_of_a_handler_is_stored_without_secrets() {
    let server = server(&[]).await;
    assert_eq!(server.post("/v1/events", &event(CREATED, "a")).await.0, 201);
    let taken = claim(&server, "billing", 1).await;
    let error =
        json!({"class": "Refused", "message": format!("key {KEY} of postgres://app:s3cr3t-word@db/orders is wrong")});
    let (status, dead) = say(&server, &taken, "fail", &json!({"error": error, "retryable": false})).await;
    assert_eq!(status, 200);
    let expected = "key ‹aws-access-key› of postgres‹url-password›db/orders is wrong";
    assert_eq!(dead["error"]["message"], expected);
    let (_, letter) = server.get(&format!("/v1/dead-letters/{}", dead["deadLetter"].as_str().unwrap())).await;
    assert_eq!((&letter["exc_msg"], &letter["attempts"][0]["error"]["message"]), (&json!(expected), &json!(expected)));
    assert!(!server.logged().contains(KEY));
}

/// The event of the letter was stored when the topic did not refuse; only new data is inspected.
#[tokio::test]
async fn a_dead_letter_is_redriven_with_its_old_data_and_not_with_a_new_secret() {
    let server = server(&[]).await;
    let path = format!("/v1/topics/{STRICT}");
    let change = |policy: &str| answer(server.request(Method::PATCH, &path).json(&json!({"secrets": policy})));
    assert_eq!(change("off").await.0, 200);
    assert_eq!(server.post("/v1/events", &event_with(RULED, json!({"key": KEY}))).await.0, 201);
    assert_eq!(change("reject").await.0, 200);
    let wanted = json!({"handler": "billing", "topic": STRICT, "sequence": 1});
    let taken = server.post("/v1/claims", &wanted).await.1["claim"].take();
    let failure = json!({"error": {"class": "Poison", "message": "no"}, "retryable": false});
    let dead = say(&server, &taken, "fail", &failure).await.1;
    let redrive = format!("/v1/dead-letters/{}:redrive", dead["deadLetter"].as_str().unwrap());
    let refused = server.post(&redrive, &json!({"override": {"data": {"note": KEY}}})).await;
    let problem = expect_problem(refused, 422, "EVENT_BROKER_VALIDATION_ERROR");
    assert_eq!(problem["errors"][0]["pointer"], "/override/data/note");
    let (status, redriven) = server.post(&redrive, &json!({"override": {"newEventId": true}})).await;
    assert_eq!(status, 200, "{redriven}");
    let produced = json!({"events": [event_with(RULED, json!({"key": KEY}))]});
    let taken =
        server.post("/v1/claims", &json!({"handler": "billing", "topic": STRICT, "sequence": 2})).await.1["claim"]
            .take();
    let refused = say(&server, &taken, "done", &produced).await;
    let problem = expect_problem(refused, 422, "EVENT_BROKER_VALIDATION_ERROR");
    assert_eq!(problem["errors"][0]["pointer"], "/events/0/data/key");
}

#[tokio::test]
async fn headers_of_subscriptions_and_payloads_of_tasks_are_inspected() {
    let server = server(&super::subscriptions::PRIVATE).await;
    let subscription = |code: &str, topic: &str, value: &str| json!({"code": code, "topic": topic, "target": "http://127.0.0.1:9/hook", "headers": {"x-note": value}});
    let (status, headers, made) = published(&server, "/v1/subscriptions", &subscription("flagged", TOPIC, KEY)).await;
    assert_eq!((status, &headers["secret-suspected"]), (201, &"/headers/x-note".parse().unwrap()), "{made}");
    let refused = server.post("/v1/subscriptions", &subscription("refused", STRICT, KEY)).await;
    let problem = expect_problem(refused, 422, "EVENT_BROKER_VALIDATION_ERROR");
    assert_eq!(problem["errors"][0]["pointer"], "/headers/x-note");
    assert_eq!(server.post("/v1/subscriptions", &subscription("changed", STRICT, "plain")).await.0, 201);
    let change = server.request(Method::PATCH, "/v1/subscriptions/changed").json(&json!({"headers": {"x-note": KEY}}));
    let problem = expect_problem(answer(change).await, 422, "EVENT_BROKER_VALIDATION_ERROR");
    assert_eq!(problem["errors"][0]["pointer"], "/headers/x-note");
    let task = json!({"code": "t", "target": "http://127.0.0.1:9/hook", "payload": {"list": [1, KEY]}});
    let (status, headers, made) = published(&server, "/v1/dispatch-jobs", &task).await;
    assert_eq!((status, &headers["secret-suspected"]), (201, &"/payload/list/1".parse().unwrap()), "{made}");
}

#[tokio::test]
async fn the_response_of_a_receiver_is_stored_without_secrets() {
    let server = server(&super::subscriptions::PRIVATE).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    // The second key ends behind what is kept of a response.
    let body = format!("unknown key {KEY} {}{KEY}", "x ".repeat(490));
    let router = Router::new().route("/hook", post(|| async { (StatusCode::BAD_REQUEST, body) }));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let new = json!({"code": "mail", "topic": TOPIC, "target": url, "maxAttempts": 1});
    assert_eq!(server.post("/v1/subscriptions", &new).await.0, 201);
    assert_eq!(server.post("/v1/events", &event(CREATED, "a")).await.0, 201);
    let deadline = super::Deadline::begin();
    let job = loop {
        deadline.check("the job to fail");
        let job = server.get("/v1/dispatch-jobs?subscription=mail").await.1["items"][0].take();
        if job["status"] == "ERROR" {
            break server.get(&format!("/v1/dispatch-jobs/{}", job["id"].as_str().unwrap())).await.1;
        }
        tokio::task::yield_now().await;
    };
    let response = job["attempts"][0]["response"].as_str().unwrap();
    assert!(response.starts_with("unknown key ‹aws-access-key› x x "), "{response}");
    assert!(!response.contains("AKIA") && !server.logged().contains(KEY), "{response}");
}
