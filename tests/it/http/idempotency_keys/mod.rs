//! `Idempotency-Key`: a repeated request receives the stored response, and its effect happens once.

mod one_append;

use super::{CREATED, Deadline, Server, TENANT, TOPIC, client, event, expect_problem};
use crate::overload::GatedLog;
use contract::{Sequence, TopicId};
use event_broker::{Broker, Clock, Config, ManualClock, StorageConfig, SystemClock, rest};
use log::file::{FileLog, FileLogOptions};
use log::testing::fault_disk::{DiskFault, DiskOperation, FaultDisk};
use log::{Log, MemoryLog};
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const KEY: &str = "idempotency-key";
const VERSIONED: &str = "gts.vendor.orders.order_placed.v1";
const USERS: &str = "gts.hx.core.events.topic.v1~vendor.users.v1";

/// A response with all its bytes.
#[derive(Debug, Clone)]
struct HttpAnswer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl HttpAnswer {
    fn is_replayed(&self) -> bool {
        self.headers.get("idempotent-replayed").is_some_and(|value| value == "true")
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    fn code(&self) -> String {
        self.json()["type"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned()
    }

    fn problem(&self, status: u16, code: &str) -> Value {
        expect_problem((self.status, self.json()), status, code)
    }

    /// Fails unless `again` is a copy of this response: same status, headers and bytes. A problem document names the
    /// trace of its own request; nothing else may differ.
    fn expect_again(&self, again: &Self, what: &str) {
        assert!(again.is_replayed(), "{what}: {again:?}");
        assert_eq!(again.status, self.status, "{what}: {again:?}");
        for name in ["content-type", "location", "deprecation", "payload-mismatch", "secret-suspected", "retry-after"] {
            assert_eq!(again.headers.get(name), self.headers.get(name), "{what}: {name}");
        }
        let own_trace = |got: &Self| got.body.replace(got.headers["x-trace-id"].to_str().unwrap(), "TRACE");
        match self.status.is_client_error() {
            true => assert_eq!(own_trace(again), own_trace(self), "{what}"),
            false => assert_eq!(again.body, self.body, "{what}"),
        }
    }
}

async fn send(client: &Client, url: &str, key: &str, (method, path, body): (Method, &str, &Value)) -> HttpAnswer {
    let request = client.request(method, format!("{url}{path}")).header(KEY, key);
    let request = if body.is_null() { request } else { request.json(body) };
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    HttpAnswer { status, headers, body: response.text().await.unwrap() }
}

/// A broker served in this process, with a log and a clock that the test provides.
struct InProcessServer {
    url: String,
    broker: Arc<Broker>,
    client: Client,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), usize>>,
}

impl InProcessServer {
    async fn on(config: Config, log: Arc<dyn Log>, clock: Arc<dyn Clock>) -> Self {
        Self::serve(Broker::on_log(config, log, None, clock).await.unwrap()).await
    }

    async fn serve(broker: Broker) -> Self {
        let broker = Arc::new(broker);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let stopped = async { drop(stopped.await) };
        let serving = tokio::spawn(rest::serve(listener, broker.clone(), rest::HttpOptions::default(), stopped));
        Self { url, broker, client: client(), stop, serving }
    }

    /// Stops it and releases the log.
    async fn end(self) {
        let Self { broker, stop, serving, .. } = self;
        drop(stop);
        serving.await.unwrap().unwrap();
        broker.close().await;
    }

    async fn post(&self, key: &str, path: &str, body: &Value) -> HttpAnswer {
        send(&self.client, &self.url, key, (Method::POST, path, body)).await
    }

    /// Registers the event type, and returns the server.
    async fn with_type(self) -> Self {
        let got = self.post("type", "/v1/event-types", &json!({"id": CREATED})).await;
        assert!(got.status.is_success(), "{got:?}");
        self
    }

    /// `data.n` of every event of the default topic.
    async fn stored(&self) -> Vec<u64> {
        self.stored_after(0).await
    }

    async fn stored_after(&self, offset: u64) -> Vec<u64> {
        let url = format!("{}/v1/events?topic={TOPIC}&offset={offset}", self.url);
        let page: Value = self.client.get(url).send().await.unwrap().json().await.unwrap();
        page["items"].as_array().unwrap().iter().map(|event| event["data"]["n"].as_u64().unwrap()).collect()
    }
}

fn numbered(n: u64) -> Value {
    json!({"type": CREATED, "source": "test", "subject": "s", "tenant": TENANT, "data": {"n": n}})
}

/// One row: the request, and a different request to the same route.
struct RouteCase {
    method: Method,
    path: String,
    body: Value,
    other: (String, Value),
    status: u16,
}

fn row(method: Method, path: &str, body: Value, other: (&str, Value), status: u16) -> RouteCase {
    RouteCase { method, path: path.to_owned(), body, other: (other.0.to_owned(), other.1), status }
}

fn post(path: &str, body: Value, other_body: Value, status: u16) -> RouteCase {
    row(Method::POST, path, body, (path, other_body), status)
}

/// Every writing route except `:import`, in an order that works, for the consumer with this id.
fn routes(consumer: &str) -> Vec<RouteCase> {
    let versions = format!("/v1/event-types/{VERSIONED}/versions");
    let version = |number: &str| json!({"version": number, "schemaType": "JSON_SCHEMA", "schema": {"type": "object"}});
    let versioned = json!({"id": VERSIONED, "topic": USERS, "dataSchema": {"type": "object"}});
    let one = event(CREATED, "s-1");
    let mut late = event(CREATED, "s-1");
    late["expectedAggregateSequence"] = json!(7);
    let nobody = "/v1/consumers/550e8400-e29b-41d4-a716-446655440000";
    let reset = |offset: Value| json!({"topic": TOPIC, "offset": offset});
    vec![
        post("/v1/topics", json!({"id": USERS, "streaming": true}), json!({"id": TOPIC, "streaming": true}), 201),
        row(
            Method::PATCH,
            &format!("/v1/topics/{USERS}"),
            json!({"description": "a"}),
            (&format!("/v1/topics/{USERS}"), json!({"description": "b"})),
            200,
        ),
        post("/v1/event-types", versioned, json!({"id": CREATED}), 201),
        post(&versions, version("1.1"), version("1.2"), 201),
        row(
            Method::POST,
            &format!("{versions}/1.1:finalise"),
            Value::Null,
            (&format!("{versions}/1.0:finalise"), Value::Null),
            200,
        ),
        row(
            Method::POST,
            &format!("{versions}/1.1:deprecate"),
            Value::Null,
            (&format!("{versions}/1.0:deprecate"), Value::Null),
            200,
        ),
        row(
            Method::POST,
            &format!("/v1/event-types/{VERSIONED}:archive"),
            Value::Null,
            (&format!("/v1/event-types/{CREATED}:archive"), Value::Null),
            200,
        ),
        post("/v1/events", one.clone(), event(CREATED, "s-2"), 201),
        post("/v1/events:batch", json!({"events": [one, event("gts.vendor.x.y.v1", "s")]}), json!({"events": []}), 207),
        post(
            "/v1/consumers",
            json!({"consumerGroup": "g", "topic": TOPIC}),
            json!({"consumerGroup": "h", "topic": TOPIC}),
            201,
        ),
        post(&format!("/v1/consumers/{consumer}:commit"), json!({"offset": 1}), json!({"offset": 2}), 200),
        post("/v1/consumer-groups/g:reset", reset(json!(0)), reset(json!("latest")), 200),
        row(Method::DELETE, &format!("/v1/consumers/{consumer}"), Value::Null, (nobody, Value::Null), 204),
        // Refused: by the schema of the request, by the registry, by a decision, or because the target does not exist.
        post("/v1/events", json!({"type": CREATED}), json!({}), 422),
        post("/v1/events", event("gts.vendor.x.y.v1", "s"), json!({}), 422),
        post("/v1/events", late, json!({}), 409),
        post("/v1/topics", json!({"id": USERS, "streaming": true, "retention": "P1D"}), json!({}), 409),
        row(Method::DELETE, nobody, Value::Null, (&format!("/v1/consumers/{consumer}"), Value::Null), 404),
        row(Method::PATCH, "/v1/topics/nothing", json!({}), (&format!("/v1/topics/{USERS}"), json!({})), 400),
    ]
}

#[tokio::test]
async fn every_writing_route_answers_again_what_it_answered_first() {
    for arguments in [&["--storage", "memory"][..], &[]] {
        let server = Server::start(arguments);
        server.register(CREATED).await;
        let consumer = json!({"consumerGroup": "g", "topic": TOPIC, "sessionTimeout": "PT10M"});
        let (_, made) = server.post("/v1/consumers", &consumer).await;
        let consumer = made["data"]["id"].as_str().unwrap();
        let mut answers = Vec::new();
        for (number, RouteCase { method, path, body, other, status }) in routes(consumer).into_iter().enumerate() {
            let (what, key) = (format!("{method} {path}"), format!("key-{number}"));
            let asked = || (method.clone(), path.as_str(), &body);
            let first = send(&server.client, &server.url, &key, asked()).await;
            assert_eq!(first.status.as_u16(), status, "{what}: {first:?}");
            assert!(!first.is_replayed(), "{what}");
            let again = send(&server.client, &server.url, &key, asked()).await;
            first.expect_again(&again, &what);
            let asked_other = (method.clone(), other.0.as_str(), &other.1);
            let reused = send(&server.client, &server.url, &key, asked_other).await;
            reused.problem(409, "idempotency_key_reuse");
            assert!(!reused.is_replayed(), "{what}");
            answers.push((what, key, (method, path, body), first));
        }
        let (_, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=0")).await;
        assert_eq!(page["items"].as_array().unwrap().len(), 2, "one of the event, one of the batch");
        let (_, consumers) = server.get("/v1/consumers").await;
        assert_eq!(consumers["items"].as_array().unwrap().len(), 1, "{consumers}");
        if !arguments.is_empty() {
            continue;
        }
        // The stored responses survive a crash.
        let server = Server::start_in(server.kill(), arguments);
        for (what, key, (method, path, body), first) in &answers {
            let again = send(&server.client, &server.url, key, (method.clone(), path, body)).await;
            first.expect_again(&again, &format!("{what} after a crash"));
        }
    }
}

#[tokio::test]
async fn a_key_is_checked_and_counts_within_its_route_and_only_where_something_is_written() {
    let server = Server::start(&["--storage", "memory"]);
    server.register(CREATED).await;
    for key in ["", "a b", "ä", &"x".repeat(256)] {
        let request = server.request(Method::POST, "/v1/events").header(KEY, key.as_bytes()).json(&numbered(1));
        expect_problem(super::answer(request).await, 422, "EVENT_BROKER_VALIDATION_ERROR");
    }
    let twice = server.request(Method::POST, "/v1/events").header(KEY, "a").header(KEY, "a").json(&numbered(1));
    expect_problem(super::answer(twice).await, 422, "EVENT_BROKER_VALIDATION_ERROR");
    let reading = server.request(Method::GET, "/v1/topics").header(KEY, "a b");
    assert_eq!(super::answer(reading).await.0, 200);
    let ask = |path: &'static str, body: Value| {
        let (client, url) = (server.client.clone(), server.url.clone());
        async move { send(&client, &url, &"x".repeat(255), (Method::POST, path, &body)).await }
    };
    assert_eq!(ask("/v1/events", numbered(1)).await.status, 201);
    assert_eq!(ask("/v1/events:batch", json!({"events": [numbered(1)]})).await.status, 207);
    assert_eq!(ask("/v1/topics", json!({"id": USERS, "streaming": true})).await.status, 201);
    // Another query is another request; another spelling of the same query is not.
    let other = ask("/v1/events:batch?atomic=all", json!({"events": [numbered(1)]})).await;
    other.problem(409, "idempotency_key_reuse");
    let spelt =
        format!(" {{\"data\":{{\"n\":1.0}}, {}", numbered(1).to_string().trim_start_matches("{\"data\":{\"n\":1},"));
    let request = server.request(Method::POST, "/v1/events").header(KEY, "x".repeat(255));
    let response = request.header("content-type", "application/json; charset=utf-8").body(spelt).send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.headers()["idempotent-replayed"].as_bytes()), (201, &b"true"[..]));
}

#[tokio::test]
async fn cloud_events_are_told_by_their_bytes_and_their_attributes() {
    let server = Server::start(&["--storage", "memory"]);
    server.register(CREATED).await;
    let binary = |source: &'static str, body: &'static str| {
        let request = server.request(Method::POST, "/v1/events").header(KEY, "binary");
        let request = request.header("ce-specversion", "1.0").header("ce-type", CREATED).header("ce-source", source);
        let request = request.header("ce-id", "a-1").header("ce-subject", "s").header("ce-tenant", TENANT);
        super::answer(request.header("content-type", "application/json").body(body))
    };
    let (status, first) = binary("here", "{}").await;
    assert_eq!(status, 201);
    assert_eq!(binary("here", "{}").await, (status, first));
    expect_problem(binary("there", "{}").await, 409, "idempotency_key_reuse");
    expect_problem(binary("here", r#"{"n":1}"#).await, 409, "idempotency_key_reuse");
    let structured = json!({
        "specversion": "1.0", "id": "a-2", "type": CREATED, "source": "s", "subject": "s", "tenant": TENANT, "data": {},
    });
    let several = |media: &'static str, body: String| {
        let request = server.request(Method::POST, "/v1/events").header(KEY, "structured");
        super::answer(request.header("content-type", media).body(body))
    };
    let (status, first) = several("application/cloudevents-batch+json", format!("[{structured}]")).await;
    assert_eq!(status, 207);
    let again = several("application/cloudevents-batch+json", format!("[{structured}]")).await;
    assert_eq!(again, (status, first));
    let other = several("application/cloudevents-batch+json", format!("[{structured} ]")).await;
    expect_problem(other, 409, "idempotency_key_reuse");
}

#[tokio::test]
async fn an_import_under_a_key_tells_its_last_line_again() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let import = |body: String| {
        let request = server.request(Method::POST, "/v1/events:import").header(KEY, "import").body(body);
        async move {
            let response = request.send().await.unwrap();
            let (status, headers) = (response.status(), response.headers().clone());
            HttpAnswer { status, headers, body: response.text().await.unwrap() }
        }
    };
    let lines = format!("{}\nnothing\n{}\n", numbered(1), numbered(2));
    let first = import(lines.clone()).await;
    let last = first.body.lines().last().unwrap();
    assert_eq!(last, r#"{"done":true,"duplicates":0,"failed":1,"imported":2,"lines":3}"#);
    let again = import(lines.clone()).await;
    assert!(again.is_replayed() && again.body.trim_end() == last, "{again:?}");
    assert_eq!(again.headers["content-type"], first.headers["content-type"]);
    import(format!("{lines}\n")).await.problem(409, "idempotency_key_reuse");
    let (_, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=0")).await;
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
}

/// Sends one request under one key from many clients until each has received its response.
async fn race(urls: &[String], key: &str, body: &Value) -> Vec<HttpAnswer> {
    let client = client();
    let asking: Vec<_> = (0..64)
        .map(|number| {
            let (url, client) = (urls[number % urls.len()].clone(), client.clone());
            let (key, body) = (key.to_owned(), body.clone());
            tokio::spawn(async move {
                let deadline = Deadline::begin();
                loop {
                    deadline.check("the first request with the key");
                    let got = send(&client, &url, &key, (Method::POST, "/v1/events", &body)).await;
                    if got.code() != "idempotency_key_in_flight" {
                        return got;
                    }
                    assert_eq!((got.status.as_u16(), &got.headers["retry-after"]), (409, &"1".parse().unwrap()));
                }
            })
        })
        .collect();
    let mut answers = Vec::new();
    for asking in asking {
        answers.push(asking.await.unwrap());
    }
    answers
}

fn expect_one_first(answers: &[HttpAnswer]) {
    assert_eq!(answers.iter().filter(|got| !got.is_replayed()).count(), 1);
    assert!(answers.iter().all(|got| got.status == 201 && got.body == answers[0].body), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_requests_with_one_key_happen_once_and_all_are_told_the_same() {
    let folder = TempDir::new().unwrap();
    for config in [Config::default(), Config::folder(folder.path())] {
        let served = InProcessServer::serve(Broker::open(config).await.unwrap()).await.with_type().await;
        expect_one_first(&race(std::slice::from_ref(&served.url), "k", &numbered(1)).await);
        assert_eq!(served.stored().await, [1]);
        served.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_brokers_on_one_log_one_carries_it_out_and_both_tell_the_same() {
    let log = Arc::new(MemoryLog::new());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let one = InProcessServer::on(Config::default(), log.clone(), clock.clone()).await.with_type().await;
    let other = InProcessServer::on(Config::default(), log, clock).await;
    let urls = [one.url.clone(), other.url.clone()];
    for round in 0..20 {
        expect_one_first(&race(&urls, &format!("k{round}"), &numbered(round)).await);
    }
    assert_eq!(one.stored().await, (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_key_whose_request_still_runs_is_turned_away_and_answered_later() {
    let log = Arc::new(GatedLog::new());
    let served = InProcessServer::on(Config::default(), log.clone(), Arc::new(SystemClock)).await.with_type().await;
    log.set(false);
    let body = numbered(1);
    let (one, other) = (served.post("k", "/v1/events", &body), served.post("k", "/v1/events", &body));
    tokio::pin!(one, other);
    // The append is blocked, so the first request has no response yet: the one that has a response came second.
    let turned_away = tokio::select! { got = &mut one => (got, true), got = &mut other => (got, false) };
    turned_away.0.problem(409, "idempotency_key_in_flight");
    assert_eq!(turned_away.0.headers["retry-after"], "1");
    log.set(true);
    let first = if turned_away.1 { other.await } else { one.await };
    assert_eq!(first.status, 201);
    first.expect_again(&served.post("k", "/v1/events", &body).await, "afterwards");
}

#[tokio::test]
async fn a_caller_that_hangs_up_finds_its_answer_when_it_comes_back() {
    let log = Arc::new(GatedLog::new());
    let served = InProcessServer::on(Config::default(), log.clone(), Arc::new(SystemClock)).await.with_type().await;
    log.set(false);
    let body = numbered(1);
    let turned_away = {
        let (one, other) = (served.post("k", "/v1/events", &body), served.post("k", "/v1/events", &body));
        // The request that was not refused holds the key; it is cancelled here.
        tokio::select! { got = one => got, got = other => got }
    };
    turned_away.problem(409, "idempotency_key_in_flight");
    log.set(true);
    let again = loop {
        let got = served.post("k", "/v1/events", &body).await;
        if got.code() != "idempotency_key_in_flight" {
            break got;
        }
    };
    assert_eq!(again.status, 201);
    assert_eq!(served.stored().await, [1]);
}

#[tokio::test]
async fn a_key_lives_for_its_time_over_checkpoints_and_is_new_afterwards() {
    const HOUR: i64 = 3_600_000;
    let folder = TempDir::new().unwrap();
    let clock = Arc::new(ManualClock::at(1_764_763_200_000));
    let open = || async {
        let config = Config { default_topic: None, ..Config::folder(folder.path()) };
        let broker = Broker::open_at(config, clock.clone()).await.unwrap();
        InProcessServer::serve(broker).await
    };
    let served = open().await;
    // No topic remembers its events' keys for as long as the keys of requests are kept.
    let topic = json!({"id": TOPIC, "streaming": true, "idempotentRetention": "PT1H"});
    assert_eq!(served.post("topic", "/v1/topics", &topic).await.status, 201);
    let known = served.post("type", "/v1/event-types", &json!({"id": CREATED, "topic": TOPIC})).await;
    assert_eq!(known.status, 201);
    let first = served.post("k", "/v1/events", &numbered(1)).await;
    served.end().await;
    for hours in [2, 21] {
        clock.advance(hours * HOUR);
        let served = open().await;
        first.expect_again(&served.post("k", "/v1/events", &numbered(1)).await, &format!("{hours} hours later"));
        served.post("k", "/v1/events", &numbered(2)).await.problem(409, "idempotency_key_reuse");
        // A new event, so that shutdown writes a checkpoint and discards what has expired.
        assert_eq!(
            served.post(&format!("later-{hours}"), "/v1/events", &numbered(hours.unsigned_abs())).await.status,
            201
        );
        served.end().await;
    }
    clock.advance(HOUR - 300_000);
    let served = open().await;
    // Responses stored before the restart expire only after the clock has run for five minutes.
    clock.advance(300_000);
    let other = served.post("k", "/v1/events", &numbered(2)).await;
    assert!(other.status == 201 && !other.is_replayed(), "{other:?}");
    assert_eq!(served.stored().await, [1, 2, 21, 2]);
}

#[tokio::test]
async fn an_answer_whose_event_is_gone_is_not_carried_out_again() {
    let served = InProcessServer::on(Config::default(), Arc::new(MemoryLog::new()), Arc::new(SystemClock)).await;
    let served = served.with_type().await;
    assert_eq!(served.post("k", "/v1/events", &numbered(1)).await.status, 201);
    let topic: TopicId = TOPIC.parse().unwrap();
    assert_eq!(served.broker.trim(&topic, Sequence(1)).await.unwrap(), 1);
    served.post("k", "/v1/events", &numbered(1)).await.problem(410, "EVENT_BROKER_TRIMMED");
    assert!(served.stored_after(1).await.is_empty());
}

#[tokio::test]
async fn a_duplicate_and_a_mixed_batch_are_answered_again_as_they_were() {
    let server = Server::start(&["--storage", "memory"]);
    server.register(CREATED).await;
    let mut known = numbered(1);
    known["id"] = json!("550e8400-e29b-41d4-a716-446655440000");
    assert_eq!(server.post("/v1/events", &known).await.0, 201);
    let duplicate = send(&server.client, &server.url, "d", (Method::POST, "/v1/events", &known)).await;
    assert_eq!(duplicate.status, 200);
    let again = send(&server.client, &server.url, "d", (Method::POST, "/v1/events", &known)).await;
    duplicate.expect_again(&again, "a duplicate");
    let mut own = numbered(3);
    own["deduplicationId"] = json!("once");
    let body = json!({"events": [known, numbered(2), own, own, {"type": "nothing"}]});
    let first = send(&server.client, &server.url, "b", (Method::POST, "/v1/events:batch", &body)).await;
    let results = first.json()["data"]["results"].clone();
    let statuses: Vec<_> = (0..5).map(|index| results[index]["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 201, 201, 200, 400], "{results}");
    let again = send(&server.client, &server.url, "b", (Method::POST, "/v1/events:batch", &body)).await;
    first.expect_again(&again, "a batch");
}

#[tokio::test]
async fn topics_and_batches_over_several_logs_keep_their_answers_too() {
    let server = Server::start(&[]);
    let side = "gts.hx.core.events.topic.v1~vendor.side.v1";
    let topic = json!({"id": side, "streaming": {"type": "memory", "location": "side"}});
    let ask = |key: &'static str, method: Method, path: String, body: Value| {
        let (client, url) = (server.client.clone(), server.url.clone());
        async move { send(&client, &url, key, (method, &path, &body)).await }
    };
    let again = |key: &'static str, method: Method, path: &str, body: Value| {
        let (first, second) =
            (ask(key, method.clone(), path.to_owned(), body.clone()), ask(key, method, path.to_owned(), body));
        async move {
            let first = first.await;
            first.expect_again(&second.await, key);
            first
        }
    };
    assert_eq!(again("topic", Method::POST, "/v1/topics", topic).await.status, 201);
    let changed = again("change", Method::PATCH, &format!("/v1/topics/{side}"), json!({"description": "d"})).await;
    assert_eq!(changed.status, 200);
    server.register(CREATED).await;
    assert_eq!(server.post("/v1/event-types", &json!({"id": VERSIONED, "topic": side})).await.0, 201);
    let aside = event(VERSIONED, "s");
    assert_eq!(again("one", Method::POST, "/v1/events", aside.clone()).await.status, 201);
    let both = json!({"events": [aside, event(CREATED, "s")]});
    let batch = again("batch", Method::POST, "/v1/events:batch", both.clone()).await;
    assert_eq!(batch.json()["meta"]["succeeded"], 2);
    // A key belongs to one request, whichever log the next request would use.
    ask("one", Method::POST, "/v1/events".to_owned(), event(CREATED, "s")).await.problem(409, "idempotency_key_reuse");
    for (topic, count) in [(side, 2), (TOPIC, 1)] {
        let (_, page) = server.get(&format!("/v1/events?topic={topic}&offset=0")).await;
        assert_eq!(page["items"].as_array().unwrap().len(), count, "{topic}");
    }
}

#[tokio::test]
async fn what_was_refused_for_the_moment_is_tried_again() {
    // A limit is reached: 429.
    let config = Config { storage: StorageConfig::default(), ..Config::default() };
    let served = InProcessServer::on(config, Arc::new(MemoryLog::new()), Arc::new(SystemClock)).await;
    let topic = |n: usize| {
        let id = format!("gts.hx.core.events.topic.v1~vendor.t{n}.v1");
        json!({"id": id, "streaming": {"type": "memory", "location": format!("l{n}")}})
    };
    for n in 0..contract::limits::LOGS_MAX {
        assert_eq!(served.post(&format!("t{n}"), "/v1/topics", &topic(n)).await.status, 201, "{n}");
    }
    for n in [1000, 1000, 1001] {
        let full = served.post("full", "/v1/topics", &topic(n)).await;
        full.problem(429, "EVENT_BROKER_OVERLOADED");
        assert!(!full.is_replayed());
    }
    // The log failed: 503.
    for (operation, nth) in [(DiskOperation::Write, 1), (DiskOperation::Sync, 1)] {
        let disk = FaultDisk::new();
        let open = |disk: FaultDisk| async move {
            let log = FileLog::open(Arc::new(disk), FileLogOptions::default()).unwrap();
            InProcessServer::on(Config::default(), Arc::new(log), Arc::new(SystemClock)).await
        };
        let served = open(disk.clone()).await.with_type().await;
        disk.fail(operation, nth, DiskFault::Error(std::io::ErrorKind::Other));
        let failed = served.post("k", "/v1/events", &numbered(1)).await;
        failed.problem(503, "EVENT_BROKER_UNAVAILABLE");
        let still = served.post("k", "/v1/events", &numbered(1)).await;
        assert!(still.status == 503 && !still.is_replayed());
        served.end().await;
        let served = open(disk.power_cut(7)).await;
        assert_eq!(served.post("k", "/v1/events", &numbered(1)).await.status, 201);
        assert_eq!(served.stored().await, [1], "{operation:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_under_load_every_key_happens_once() {
    const CLIENTS: usize = 16;
    const KEYS: usize = 200;
    let mut folder = TempDir::new().unwrap();
    for enough in [150, 900] {
        let server = Server::start_in(folder, &[]);
        server.register(CREATED).await;
        let answered = Arc::new(AtomicUsize::new(0));
        let asking: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (url, client, answered) = (server.url.clone(), client(), answered.clone());
                tokio::spawn(async move {
                    let mut bodies = BTreeMap::new();
                    for n in 0..KEYS {
                        let key = format!("{enough}-{number}-{n}");
                        let request = client.post(format!("{url}/v1/events")).header(KEY, &key);
                        let response = request.json(&keyed(&key)).send().await;
                        let body = match response {
                            Ok(response) if response.status() == 201 => response.text().await.ok(),
                            _ => None,
                        };
                        let done = body.is_none();
                        bodies.insert(key, body);
                        if done {
                            break;
                        }
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    bodies
                })
            })
            .collect();
        let deadline = Deadline::begin();
        while answered.load(Ordering::Relaxed) < enough {
            deadline.check("completed requests");
            tokio::task::yield_now().await;
        }
        let killed = server.kill();
        let mut bodies = BTreeMap::new();
        for asking in asking {
            bodies.extend(asking.await.unwrap());
        }
        assert!(bodies.values().any(Option::is_none), "no request was interrupted");
        let server = Server::start_in(killed, &[]);
        for (key, body) in &bodies {
            let again = send(&server.client, &server.url, key, (Method::POST, "/v1/events", &keyed(key))).await;
            assert_eq!(again.status, 201, "{key}");
            if let Some(body) = body {
                assert!(again.is_replayed() && again.body == *body, "{key}");
            }
        }
        expect_once(&server, bodies.len(), &format!("{enough}-")).await;
        folder = server.kill();
    }
}

fn keyed(key: &str) -> Value {
    json!({"type": CREATED, "source": "test", "subject": key, "tenant": TENANT, "data": {"key": key}})
}

/// Every key with this prefix is in one event.
async fn expect_once(server: &Server, count: usize, begin: &str) {
    let (mut offset, mut keys) = (0, Vec::new());
    let deadline = Deadline::begin();
    loop {
        deadline.check("the last page");
        let (_, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset={offset}")).await;
        let items = page["items"].as_array().unwrap();
        keys.extend(items.iter().map(|event| event["data"]["key"].as_str().unwrap().to_owned()));
        offset = page["nextOffset"].as_u64().unwrap();
        if page["nextOffset"] == page["tail"] {
            break;
        }
    }
    keys.retain(|key| key.starts_with(begin));
    let stored = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!((stored, keys.len()), (count, count));
}
