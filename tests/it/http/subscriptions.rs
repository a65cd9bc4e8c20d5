//! Subscriptions over HTTP, with a receiver in the test: deliveries are signed, in order, retried, and resumed after a
//! kill.

use super::{CREATED, Deadline, Server, TOPIC, event};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio::sync::watch;

pub(super) const PRIVATE: [(&str, &str); 1] = [("EVENT_BROKER__DISPATCH__ALLOW_PRIVATE_TARGETS", "true")];

/// What was received, and the response to send.
#[derive(Clone)]
pub(super) struct WebhookReceiver {
    heard: Arc<Mutex<Vec<(HeaderMap, Bytes)>>>,
    count: Arc<watch::Sender<usize>>,
    /// This many of the first requests are refused.
    refuse: usize,
    pub(super) url: String,
}

impl WebhookReceiver {
    pub(super) async fn start(refuse: usize) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let receiver = Self { heard: Arc::default(), count: Arc::new(watch::Sender::new(0)), refuse, url };
        let router = Router::new().route("/hook", post(take)).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        receiver
    }

    /// Waits for this many deliveries; returns all that were received.
    pub(super) async fn heard(&self, count: usize) -> Vec<(HeaderMap, Value, Bytes)> {
        let mut counted = self.count.subscribe();
        counted.wait_for(|there| *there >= count).await.unwrap();
        let heard = self.heard.lock().unwrap();
        heard.iter().map(|(head, body)| (head.clone(), serde_json::from_slice(body).unwrap(), body.clone())).collect()
    }
}

async fn take(State(receiver): State<WebhookReceiver>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let number = {
        let mut heard = receiver.heard.lock().unwrap();
        heard.push((headers, body));
        heard.len()
    };
    receiver.count.send_replace(number);
    if number <= receiver.refuse { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK }
}

async fn subscribe(server: &Server, receiver: &WebhookReceiver, more: Value) -> Value {
    let mut new = json!({"code": "mail", "topic": TOPIC, "target": receiver.url});
    for (name, value) in more.as_object().unwrap() {
        new[name] = value.clone();
    }
    let (status, made) = server.post("/v1/subscriptions", &new).await;
    assert_eq!(status, 201, "{made}");
    made
}

async fn publish(server: &Server, subject: &str) -> Value {
    let (status, stored) = server.post("/v1/events", &event(CREATED, subject)).await;
    assert_eq!(status, 201, "{stored}");
    stored
}

/// Waits until a job has ended; returns it.
async fn completed(server: &Server, id: &str) -> Value {
    let deadline = Deadline::begin();
    loop {
        deadline.check("a job to be completed");
        let (status, job) = server.get(&format!("/v1/dispatch-jobs/{id}")).await;
        assert_eq!(status, 200, "{job}");
        if job["status"] == "COMPLETED" {
            return job;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn events_arrive_signed_in_order_and_after_a_failure() {
    let server = Server::start_with(&PRIVATE, &[]);
    server.register(CREATED).await;
    let receiver = WebhookReceiver::start(1).await;
    let made = subscribe(&server, &receiver, json!({"mode": "BLOCK_ON_ERROR", "retrySchedule": ["PT0S"]})).await;
    let first = publish(&server, "a").await;
    publish(&server, "a").await;
    let heard = receiver.heard(3).await;
    let sequences: Vec<_> = heard.iter().map(|(_, event, _)| event["sequence"].as_u64().unwrap()).collect();
    assert_eq!(sequences, [1, 1, 2]);
    let key = BASE64.decode(made["secret"].as_str().unwrap().strip_prefix("whsec_").unwrap()).unwrap();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
    let mut tokens = Vec::new();
    for (number, (head, event, body)) in heard.iter().enumerate() {
        let header = |name: &str| head[name].to_str().unwrap();
        assert_eq!(header("webhook-id"), event["id"]);
        let signed =
            format!("{}.{}.{}", header("webhook-id"), header("webhook-timestamp"), String::from_utf8_lossy(body));
        let signature = format!("v1,{}", BASE64.encode(ring::hmac::sign(&key, signed.as_bytes())));
        assert_eq!(header("webhook-signature"), signature);
        assert_eq!(header("event-broker-subscription"), "mail");
        assert_eq!(header("event-broker-attempt"), ["1", "2", "1"][number]);
        tokens.push(header("event-broker-token").parse::<u64>().unwrap());
    }
    assert!(tokens[0] < tokens[1], "{tokens:?}");
    let (_, jobs) = server.get("/v1/dispatch-jobs?subscription=mail").await;
    let job = completed(&server, jobs["items"][0]["id"].as_str().unwrap()).await;
    assert_eq!(
        (&job["event"], &job["attempts"][0]["status"], &job["attempts"][1]["status"]),
        (&first["id"], &json!(500), &json!(200))
    );
    let (status, shown) = server.get("/v1/subscriptions/mail").await;
    assert!(status == 200 && shown.get("secret").is_none() && !shown.to_string().contains("whsec_"), "{shown}");
}

#[tokio::test]
async fn a_broker_that_was_killed_goes_on_where_it_was() {
    let receiver = WebhookReceiver::start(0).await;
    let server = Server::start_with(&PRIVATE, &[]);
    server.register(CREATED).await;
    subscribe(&server, &receiver, json!({"mode": "BLOCK_ON_ERROR"})).await;
    publish(&server, "a").await;
    receiver.heard(1).await;
    let (status, _) = server.post("/v1/subscriptions/mail:pause", &json!({"reason": "later"})).await;
    assert_eq!(status, 200);
    publish(&server, "a").await;
    publish(&server, "b").await;
    let folder: TempDir = server.kill();
    let server = Server::start_again_with(folder, &PRIVATE);
    let (status, shown) = server.post("/v1/subscriptions/mail:resume", &json!({})).await;
    assert_eq!((status.as_u16(), &shown["status"]), (200, &json!("ACTIVE")));
    // The first delivery may arrive twice: it is unknown whether its result was stored before the kill.
    let (_, jobs) = server.get("/v1/dispatch-jobs?subscription=mail").await;
    for job in jobs["items"].as_array().unwrap() {
        completed(&server, job["id"].as_str().unwrap()).await;
    }
    let mut seen: Vec<_> = receiver.heard(3).await.iter().map(|it| it.1["sequence"].as_u64().unwrap()).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [1, 2, 3]);
}

#[tokio::test]
async fn what_may_not_be_called_and_what_breaks_the_rules_is_refused_by_name() {
    let server = Server::start(&[]);
    let new =
        json!({"code": "a b", "topic": TOPIC, "target": "http://127.0.0.1/", "maxAttempts": 0, "pool": "nobodys"});
    let (status, problem) = server.post("/v1/subscriptions", &new).await;
    let pointers: Vec<_> = problem["errors"].as_array().unwrap().iter().map(|it| it["pointer"].clone()).collect();
    assert_eq!((status.as_u16(), pointers), (422, vec![json!("/code"), json!("/target"), json!("/maxAttempts")]));
    for (member, value, pointer) in [
        ("pool", json!("nobodys"), "/pool"),
        ("topic", json!("gts.hx.core.events.topic.v1~vendor.nobodys.v1"), "/topic"),
        ("signing", json!({"secrets": ["s3cret"]}), "/signing/secrets/0"),
        ("headers", json!({"webhook-id": "x"}), "/headers/webhook-id"),
    ] {
        let mut new = json!({"code": "a", "topic": TOPIC, "target": "https://example.com/"});
        new[member] = value;
        let (status, problem) = server.post("/v1/subscriptions", &new).await;
        assert_eq!((status.as_u16(), &problem["errors"][0]["pointer"]), (422, &json!(pointer)), "{problem}");
        assert!(!problem.to_string().contains("s3cret"));
    }
    let (_, listed) = server.get("/v1/subscriptions").await;
    assert_eq!(listed["items"], json!([]));
}

#[tokio::test]
async fn a_nul_and_a_null_where_there_must_be_something_are_refused() {
    let server = Server::start(&[]);
    let new = json!({"code": "mail", "topic": TOPIC, "target": "https://example.com/", "auth": null, "signing": null});
    assert_eq!(server.post("/v1/subscriptions", &new).await.0, 201);
    let task = json!({"code": "t", "target": "https://example.com/", "payload": 1, "messageGroup": "a\u{0}b"});
    let mail = "/v1/subscriptions/mail";
    for (method, path, body, pointer) in [
        (Method::POST, "/v1/dispatch-jobs", task, "/messageGroup"),
        (Method::POST, "/v1/subscriptions/mail:pause", json!({"reason": "a\u{0}b"}), "/reason"),
        (Method::PATCH, mail, json!({"name": "a\u{0}b"}), "/name"),
        (Method::PATCH, mail, json!({"customConfig": {"a": "\u{0}"}}), "/customConfig"),
        (Method::PATCH, mail, json!({"mode": null}), "/mode"),
        (Method::PATCH, mail, json!({"timeoutSeconds": null}), "/timeoutSeconds"),
        (Method::PATCH, mail, json!({"signing": null}), "/signing"),
        (Method::PATCH, "/v1/pools/default", json!({"concurrency": null}), "/concurrency"),
    ] {
        let (status, problem) = super::answer(server.request(method, path).json(&body)).await;
        assert_eq!((status.as_u16(), &problem["errors"][0]["pointer"]), (422, &json!(pointer)), "{body}: {problem}");
    }
    let (status, changed) = super::answer(server.request(Method::PATCH, mail).json(&json!({"auth": null}))).await;
    assert_eq!((status.as_u16(), &changed["status"]), (200, &json!("ACTIVE")), "{changed}");
}

#[tokio::test]
async fn a_request_under_a_key_makes_one_subscription_and_its_replay_shows_no_secret() {
    let server = Server::start(&[]);
    let new = json!({"code": "mail", "topic": TOPIC, "target": "https://example.com/"});
    let send = || async {
        let request = server.request(Method::POST, "/v1/subscriptions").header("idempotency-key", "k1").json(&new);
        super::answer(request).await
    };
    let (status, made) = send().await;
    assert!(status == 201 && made["secret"].as_str().unwrap().starts_with("whsec_"), "{made}");
    let (status, again) = send().await;
    assert_eq!((status.as_u16(), &again["id"], again.get("secret")), (201, &made["id"], None));
    let (status, rotated) = server.post("/v1/subscriptions/mail:rotate-secret", &json!({"graceSeconds": 60})).await;
    assert!(status == 200 && rotated["secret"] != made["secret"] && rotated["previousUntil"].is_string(), "{rotated}");
}

const NEWS: &str = "gts.hx.core.events.topic.v1~hx.broker.dispatch.operations.v1";

#[tokio::test]
async fn what_an_operator_wants_to_hear_of_is_pushed_like_any_event() {
    let server = Server::start_with(&PRIVATE, &[]);
    server.register(CREATED).await;
    let (failing, listening) = (WebhookReceiver::start(usize::MAX).await, WebhookReceiver::start(0).await);
    subscribe(&server, &listening, json!({"code": "ops", "topic": NEWS})).await;
    subscribe(&server, &failing, json!({"maxAttempts": 1})).await;
    let stored = publish(&server, "a").await;
    let (head, reply, _) = listening.heard(1).await[0].clone();
    assert_eq!(head["event-broker-topic"].to_str().unwrap(), NEWS);
    assert_eq!(reply["type"], "gts.hyperspot.core.events.type.v1~hx.broker.dispatch.job_dead.v1");
    assert_eq!((&reply["data"]["subscription"], &reply["data"]["event"]), (&json!("mail"), &stored["id"]));
    assert_eq!((&reply["data"]["error"]["class"], &reply["data"]["sequence"]), (&json!("http_5xx"), &json!(1)));
    let (_, job) = server.get(&format!("/v1/dispatch-jobs/{}", reply["data"]["job"].as_str().unwrap())).await;
    assert_eq!((&job["status"], &job["deadLetter"]), (&json!("ERROR"), &reply["data"]["deadLetter"]));
    let (_, listed) = server.get("/v1/topics").await;
    assert!(!listed.to_string().contains("operations"), "{listed}");
}

#[tokio::test]
async fn a_subscription_shows_every_default() {
    let server = Server::start(&[]);
    let new = json!({"code": "mail", "topic": TOPIC, "target": "https://example.com/"});
    let (status, made) = server.post("/v1/subscriptions", &new).await;
    assert_eq!(status, 201, "{made}");
    let (_, shown) = server.get("/v1/subscriptions/mail").await;
    for (member, value) in [
        ("eventTypes", json!([])),
        ("mode", json!("IMMEDIATE")),
        ("pool", json!("default")),
        ("timeoutSeconds", json!(30)),
        ("maxAgeSeconds", json!(86_400)),
        ("delaySeconds", json!(0)),
        ("sequence", json!(99)),
        ("maxAttempts", json!(8)),
        ("dataOnly", json!(false)),
        ("format", json!("event")),
        ("headers", json!({})),
        ("handshake", json!(false)),
        ("customConfig", json!({})),
        ("startFrom", json!("latest")),
    ] {
        assert_eq!((&shown[member], &made[member]), (&value, &value), "{member}");
    }
    assert_eq!(shown["retrySchedule"].as_array().map(Vec::len), Some(7), "{shown}");
    let (status, changed) = super::answer(
        server.request(Method::PATCH, "/v1/subscriptions/mail").json(&json!({"retrySchedule": ["PT1S"]})),
    )
    .await;
    assert_eq!((status.as_u16(), &changed["maxAttempts"]), (200, &json!(2)), "a default follows the schedule");
}

#[tokio::test]
async fn a_description_may_have_2048_characters_of_any_length_in_bytes() {
    let server = Server::start(&[]);
    let (fits, too_long) = ("\u{e9}".repeat(2048), "e".repeat(2049));
    for (path, body) in [
        ("/v1/subscriptions", json!({"code": "mail", "topic": TOPIC, "target": "https://example.com/"})),
        ("/v1/topics", json!({"id": "gts.hx.core.events.topic.v1~vendor.described.v1", "streaming": true})),
        ("/v1/event-types", json!({"id": "gts.hyperspot.core.events.type.v1~vendor.described.v1", "topic": TOPIC})),
    ] {
        for (description, expected) in [(&too_long, 422), (&fits, 201)] {
            let mut body = body.clone();
            body["description"] = json!(description);
            let (status, answer) = server.post(path, &body).await;
            assert_eq!(status.as_u16(), expected, "{path}: {}", answer["errors"]);
        }
    }
}

#[tokio::test]
async fn an_unknown_event_has_no_jobs_and_a_private_target_names_the_setting() {
    let server = Server::start(&[]);
    let (status, listed) = server.get("/v1/dispatch-jobs?event=550e8400-e29b-41d4-a716-446655440000").await;
    assert_eq!((status.as_u16(), &listed["items"]), (200, &json!([])), "{listed}");
    let new = json!({"code": "mail", "topic": TOPIC, "target": "http://127.0.0.1:9/"});
    let (status, problem) = server.post("/v1/subscriptions", &new).await;
    let detail = problem["errors"][0]["detail"].as_str().unwrap();
    assert!(status == 422 && detail.contains("dispatch.allow_private_targets"), "{problem}");
}

#[tokio::test]
async fn a_failed_delivery_and_a_dead_letter_are_lines_of_the_log_without_payload_or_address() {
    let server = Server::start_with(&PRIVATE, &[]);
    server.register(CREATED).await;
    let receiver = WebhookReceiver::start(usize::MAX).await;
    let target = format!("{}?token=s3cret", receiver.url);
    let more = json!({"target": target, "maxAttempts": 2, "retrySchedule": ["PT0S"]});
    subscribe(&server, &receiver, more).await;
    let stored = publish(&server, "canary").await;
    let lines = loop {
        let logged = server.logged();
        let lines: Vec<_> =
            logged.lines().filter(|line| line.contains("a delivery failed")).map(str::to_owned).collect();
        if lines.len() >= 2 {
            break lines;
        }
        tokio::task::yield_now().await;
    };
    for (line, word) in lines.iter().zip(["next_try", "given up"]) {
        assert!(line.contains(stored["id"].as_str().unwrap()) && line.contains("mail"), "{line}");
        assert!(line.contains("http_5xx") && line.contains(word), "{line}");
        assert!(!line.contains("s3cret") && !line.contains("canary"), "{line}");
    }
}

#[tokio::test]
async fn a_breaker_is_shown_and_closed() {
    let server = Server::start_with(&PRIVATE, &[]);
    server.register(CREATED).await;
    let receiver = WebhookReceiver::start(10).await;
    subscribe(&server, &receiver, json!({"retrySchedule": ["PT1H"]})).await;
    for number in 0..10 {
        publish(&server, &format!("s{number}")).await;
    }
    let open = loop {
        let (_, shown) = server.get("/v1/subscriptions/mail").await;
        if shown["breaker"]["state"] == "OPEN" {
            break shown["breaker"].clone();
        }
        tokio::task::yield_now().await;
    };
    assert!(open["failures"] == 10 && open["since"].is_string() && open["nextTryAt"].is_string(), "{open}");
    publish(&server, "last").await;
    let (status, closed) = server.post("/v1/subscriptions/mail:close-breaker", &json!({})).await;
    assert_eq!((status.as_u16(), &closed["breaker"]["state"]), (200, &json!("CLOSED")), "{closed}");
    let heard = receiver.heard(11).await;
    assert_eq!(heard[10].1["subject"], "last");
    assert_eq!(server.post("/v1/subscriptions/nobody:close-breaker", &json!({})).await.0, 404);
}

#[tokio::test]
async fn the_code_of_a_subscription_cannot_be_the_id_of_another_one() {
    let server = Server::start(&[]);
    let new = |code: &str| json!({"code": code, "topic": TOPIC, "target": "https://example.com/"});
    let (status, made) = server.post("/v1/subscriptions", &new("mail")).await;
    assert_eq!(status, 201, "{made}");
    let id = made["id"].as_str().unwrap();
    for code in [id.to_owned(), id.to_uppercase(), id.replace('-', "")] {
        let (status, refused) = server.post("/v1/subscriptions", &new(&code)).await;
        assert_eq!((status.as_u16(), &refused["errors"][0]["pointer"]), (422, &json!("/code")), "{code}: {refused}");
    }
    let (status, made) = server.post("/v1/subscriptions", &new("a1b2c3d4-e5f6-7890")).await;
    assert_eq!(status, 201, "{made}");
}
