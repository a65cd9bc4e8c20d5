//! Checks the document against the server: each operation is called with its own examples, and each response is
//! validated against the document.

use super::{ApiDocument, ApiOperation, expect_valid};
use crate::http::{Server, TOPIC, answer};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Operations that others depend on, in order; the rest follows.
const FIRST: [&str; 11] = [
    "registerTopic",
    "registerEventType",
    "addVersion",
    "publishEvent",
    "createConsumer",
    "resetConsumerGroup",
    "putProjection",
    "putHandler",
    "claimEvent",
    "createSubscription",
    "createPool",
];
/// Operations that end something, in order.
const LAST: [&str; 11] = [
    "finaliseVersion",
    "deprecateVersion",
    "archiveEventType",
    "deleteEventType",
    "deleteConsumer",
    "deleteProjection",
    "deleteSubscription",
    "deletePool",
    "deleteConsumerGroup",
    "deleteHandler",
    "deleteTopic",
];
/// Headers that a response has only where the document says so.
const TELLING: [&str; 12] = [
    "location",
    "idempotent-replayed",
    "payload-mismatch",
    "deprecation",
    "secret-suspected",
    "retry-after",
    "allow",
    "next-offset",
    "tail",
    "etag",
    "cache-control",
    "content-security-policy",
];

/// A group without members.
const UNUSED_GROUP: &str = "unused";
/// A topic that is not in use.
const UNUSED_TOPIC: &str = "unused.topic";
/// An archived event type without events.
const UNUSED_TYPE: &str = "unused.type";
/// Claims to release.
const RELEASES: usize = 30;
/// Dead letters to discard.
const LETTERS: usize = 30;
/// Tasks to operate on.
const TASKS: usize = 60;

/// A server, its document, and the client to call it.
struct DocumentClient {
    server: Server,
    document: ApiDocument,
    /// A live consumer, used instead of the one in the examples.
    consumer: String,
    /// Used instead of the claims and dead letters of the examples.
    work: ExampleWork,
}

/// Claims and dead letters of events that exist.
#[derive(Default)]
struct ExampleWork {
    /// To keep, to finish, to release: id and token.
    claims: Vec<(String, u64)>,
    /// To release, each once; every request takes its claim twice, once for its path and once for its body.
    releases: Vec<(String, u64)>,
    released: AtomicUsize,
    letters: Vec<String>,
    /// The number of letters that were discarded so far.
    discarded: AtomicUsize,
    /// Tasks scheduled for a time that does not come; each can be used once.
    tasks: Vec<String>,
    dealt_with: AtomicUsize,
    /// The number of subscriptions that were created so far.
    subscribed: AtomicUsize,
}

impl ExampleWork {
    /// Creates enough dead letters for every test to discard as often as it needs.
    async fn begin(server: &Server, event: &Value) -> Self {
        let events: Vec<_> = (0..LETTERS + RELEASES + 3)
            .map(|n| {
                let mut event = event.clone();
                event["id"] = Value::Null;
                event["subject"] = json!(uuid::Uuid::from_u128(n as u128 + 1));
                event
            })
            .collect();
        let (status, stored) = server.post("/v1/events:batch", &json!({"events": events})).await;
        assert_eq!(status, 207);
        let ids = stored["data"]["results"].as_array().unwrap().iter().map(|it| it["event"]["id"].clone());
        let claims: Vec<_> = ids.map(|id| json!({"handler": "billing", "eventId": id})).collect();
        let (status, taken) = server.post("/v1/claims", &json!({"claims": claims})).await;
        assert_eq!(status, 200);
        let reset = json!({"topic": TOPIC, "offset": 0});
        assert_eq!(server.post(&format!("/v1/consumer-groups/{UNUSED_GROUP}:reset"), &reset).await.0, 200);
        let unused = json!({"id": UNUSED_TOPIC, "streaming": true});
        assert_eq!(server.post("/v1/topics", &unused).await.0, 201);
        assert_eq!(server.post("/v1/event-types", &json!({"id": UNUSED_TYPE})).await.0, 201);
        assert_eq!(server.post(&format!("/v1/event-types/{UNUSED_TYPE}:archive"), &Value::Null).await.0, 200);
        let mut work = Self::default();
        for result in taken["results"].as_array().unwrap() {
            let claim = &result["claim"];
            let (id, token) = (claim["id"].as_str().unwrap().to_owned(), claim["token"].as_u64().unwrap());
            if work.claims.len() < 3 {
                work.claims.push((id, token));
                continue;
            }
            if work.releases.len() < RELEASES {
                work.releases.push((id, token));
                continue;
            }
            let failure = json!({"token": token, "error": {"class": "X", "message": "y"}, "retryable": false});
            let (status, dead) = server.post(&format!("/v1/claims/{id}:fail"), &failure).await;
            assert_eq!(status, 200, "{dead}");
            work.letters.push(dead["deadLetter"].as_str().unwrap().to_owned());
        }
        work
    }

    /// The claim that an operation uses.
    fn claim_for(&self, operation: &str) -> &(String, u64) {
        if operation == "releaseClaim" {
            return &self.releases[self.released.fetch_add(1, Ordering::Relaxed) / 2];
        }
        &self.claims[match operation {
            "completeClaim" => 1,
            "failClaim" => 2,
            _ => 0,
        }]
    }

    /// The letter that an operation uses; each letter can be discarded once.
    fn letter_for(&self, operation: &str) -> &str {
        match operation {
            "discardDeadLetter" => &self.letters[1 + self.discarded.fetch_add(1, Ordering::Relaxed)],
            _ => &self.letters[0],
        }
    }
}

impl ExampleWork {
    /// A task that was not used yet.
    fn task(&self) -> &str {
        &self.tasks[self.dealt_with.fetch_add(1, Ordering::Relaxed)]
    }

    /// Requests enough tasks for every test.
    async fn wait_for_tasks(&mut self, server: &Server) {
        let task = json!({"code": "late", "target": "https://hooks.invalid/", "payload": 1, "scheduledFor": "2099-01-01T00:00:00Z"});
        for _ in 0..TASKS {
            let (status, job) = server.post("/v1/dispatch-jobs", &task).await;
            assert_eq!(status, 201, "{job}");
            self.tasks.push(job["id"].as_str().unwrap().to_owned());
        }
    }
}

impl DocumentClient {
    /// A server on which the examples work.
    async fn begin() -> Self {
        let server = Server::start(&[]);
        let document = ApiDocument::of(&server).await;
        let mut asking = Self { server, document, consumer: String::new(), work: ExampleWork::default() };
        for operation in asking.operations().iter().take(FIRST.len()) {
            let response = asking.request(operation, &[]).send().await.unwrap();
            let status = response.status();
            let body: Value = response.json().await.unwrap();
            assert!(status.is_success(), "{}: {status} {body}", operation.id);
            if let Some(id) = body["data"]["id"].as_str() {
                asking.consumer = id.to_owned();
            }
        }
        let publish = asking.operations().into_iter().find(|it| it.id == "publishEvent").unwrap();
        let event = &publish.spec["requestBody"]["content"]["application/json"]["example"];
        let subscribed = AtomicUsize::new(asking.work.subscribed.load(Ordering::Relaxed));
        asking.work = ExampleWork { subscribed, ..ExampleWork::begin(&asking.server, event).await };
        asking.work.wait_for_tasks(&asking.server).await;
        asking
    }

    /// All operations, in an order that works.
    fn operations(&self) -> Vec<ApiOperation> {
        let mut operations = self.document.operations();
        let place = |ids: &[&str], id: &str| ids.iter().position(|known| *known == id);
        operations.sort_by_key(|it| (place(&FIRST, &it.id).unwrap_or(FIRST.len()), place(&LAST, &it.id)));
        operations
    }

    /// The operation with the examples of its path, its body and its required parameters, and with `more`.
    fn request(&self, operation: &ApiOperation, more: &[(&str, &str)]) -> RequestBuilder {
        let request = self.without_body(operation, more);
        let body = &operation.spec["requestBody"]["content"]["application/json"]["example"];
        match (operation.id.as_str(), body) {
            (_, Value::Null) => request,
            _ => request.json(&self.working(operation, body)),
        }
    }

    /// The example of a body, adjusted to this server.
    fn working(&self, operation: &ApiOperation, body: &Value) -> Value {
        let mut body = body.clone();
        match operation.id.as_str() {
            "commitOffset" => body["offset"] = json!(1),
            // The first one has the code of the examples; no two have the same code.
            "createSubscription" => match self.work.subscribed.fetch_add(1, Ordering::Relaxed) {
                0 => (),
                number => body["code"] = json!(format!("another-{number}")),
            },
            "heartbeatClaim" | "completeClaim" | "failClaim" | "releaseClaim" => {
                body["token"] = json!(self.work.claim_for(&operation.id).1);
                if operation.id == "completeClaim" {
                    body["offset"] = json!(1);
                }
            }
            _ => (),
        }
        body
    }

    fn without_body(&self, operation: &ApiOperation, more: &[(&str, &str)]) -> RequestBuilder {
        let mut path = operation.path.clone();
        let mut query = more.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect::<Vec<_>>();
        for parameter in self.document.parameters(operation) {
            let (name, example) = (parameter["name"].as_str().unwrap(), text_of(&parameter["example"]));
            let needed = parameter["required"] == true || name == "topic" && operation.id.ends_with("Events");
            match parameter["in"].as_str().unwrap() {
                "path" if operation.path.contains("/consumers/") => {
                    path = path.replace(&format!("{{{name}}}"), &self.consumer);
                }
                "path" if operation.id == "deleteTopic" => path = path.replace("{id}", UNUSED_TOPIC),
                "path" if operation.id == "deleteEventType" => path = path.replace("{id}", UNUSED_TYPE),
                "path" if operation.id == "deleteConsumerGroup" => path = path.replace("{name}", UNUSED_GROUP),
                "path" if operation.path.contains("/claims/") => {
                    path = path.replace(&format!("{{{name}}}"), &self.work.claim_for(&operation.id).0);
                }
                "path" if operation.path.contains("/dead-letters/") => {
                    path = path.replace(&format!("{{{name}}}"), self.work.letter_for(&operation.id));
                }
                "path" if operation.path.contains("/dispatch-jobs/") => {
                    path = path.replace(&format!("{{{name}}}"), self.work.task());
                }
                "path" => path = path.replace(&format!("{{{name}}}"), &encoded(&example)),
                // No event arrives during the test, so the request must not wait.
                "query" if name == "timeout" => query.push("timeout=0".to_owned()),
                "query" if more.iter().any(|(other, _)| *other == name) || !needed => (),
                "query" if name == "offset" => query.push("offset=0".to_owned()),
                "query" => query.push(format!("{name}={}", encoded(&example))),
                _ => (),
            }
        }
        self.server.request(operation.method.clone(), &format!("{path}?{}", query.join("&")))
    }

    /// Validates a response against the document; returns its status and its body.
    async fn check(&self, operation: &ApiOperation, response: Response) -> (StatusCode, Value) {
        let status = response.status();
        let what = format!("{} {}: {status}", operation.method, operation.path);
        let specified = &operation.spec["responses"][status.as_str()];
        assert!(specified.is_object(), "{what} is not in the document: {}", response.text().await.unwrap());
        let specified = self.document.at(specified);
        for (name, header) in specified["headers"].as_object().unwrap() {
            let Some(value) = response.headers().get(name) else { continue };
            let schema = &self.document.at(header)["schema"];
            let text = value.to_str().unwrap();
            let value = if schema["type"] == "integer" { json!(text.parse::<u64>().unwrap()) } else { json!(text) };
            expect_valid(&self.document.validator(schema), &value, &format!("{what}: {name}"));
        }
        assert!(response.headers().contains_key("x-trace-id"), "{what}");
        for name in TELLING.iter().filter(|name| response.headers().contains_key(**name)) {
            let mut known = specified["headers"].as_object().unwrap().keys();
            assert!(known.any(|known| known.eq_ignore_ascii_case(name)), "{what}: {name} is not in the document");
        }
        let Some(media) = response.headers().get("content-type") else {
            assert!(specified.get("content").is_none(), "{what} has no body");
            return (status, Value::Null);
        };
        let media = media.to_str().unwrap().split(';').next().unwrap().to_owned();
        let content = &specified["content"][&media];
        assert!(content.is_object(), "{what}: {media} is not in the document");
        if media == "text/event-stream" {
            return (status, Value::Null);
        }
        let bytes = response.bytes().await.unwrap();
        let body = match media.ends_with("json") && media != "application/x-ndjson" {
            true => serde_json::from_slice(&bytes).unwrap(),
            false => json!(String::from_utf8_lossy(&bytes)),
        };
        // The document that this server returns has more members than its schema names; every other schema is complete.
        let validator = match operation.id == "getDocument" {
            true => self.document.validator(&content["schema"]),
            false => self.document.strict_validator(&content["schema"]),
        };
        expect_valid(&validator, &body, &what);
        (status, body)
    }

    async fn ask(&self, operation: &ApiOperation, request: RequestBuilder) -> (StatusCode, Value) {
        self.check(operation, request.send().await.unwrap()).await
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// An example as it is written in an address: the first of several.
fn text_of(example: &Value) -> String {
    match example {
        Value::String(text) => text.clone(),
        Value::Array(several) => text_of(&several[0]),
        other => other.to_string(),
    }
}

#[tokio::test]
async fn every_operation_answers_its_own_example_as_described() {
    let asking = DocumentClient::begin().await;
    for operation in asking.operations() {
        // The client follows a redirect; the target is tested by its own operation.
        if operation.spec["responses"].get("303").is_some() {
            continue;
        }
        let (status, body) = asking.ask(&operation, asking.request(&operation, &[])).await;
        assert!(status.is_success(), "{} {}: {status} {body}", operation.method, operation.path);
    }
}

#[tokio::test]
async fn every_form_of_a_body_and_of_an_answer_is_as_described() {
    let asking = DocumentClient::begin().await;
    for operation in asking.operations() {
        for (media, content) in operation.spec["requestBody"]["content"].as_object().into_iter().flatten() {
            let body = match &content["example"] {
                Value::String(lines) => lines.clone(),
                value => asking.working(&operation, value).to_string(),
            };
            let request = asking.without_body(&operation, &[]).header("content-type", media).body(body);
            let (status, answer) = asking.ask(&operation, request).await;
            assert!(status.is_success(), "{} as {media}: {status} {answer}", operation.id);
        }
        for (media, _) in operation.spec["responses"]["200"]["content"].as_object().into_iter().flatten() {
            if !operation.path.starts_with("/v1/") || ["importEvents", "deleteTopic"].contains(&operation.id.as_str()) {
                continue;
            }
            let response = asking.request(&operation, &[]).header("accept", media).send().await.unwrap();
            let sent = response.headers()["content-type"].to_str().unwrap().to_owned();
            let (status, answer) = asking.check(&operation, response).await;
            assert!(status.is_success() && sent.starts_with(media.as_str()), "{}: {sent} {answer}", operation.id);
        }
    }
}

#[tokio::test]
async fn every_parameter_is_taken_with_its_example() {
    let asking = DocumentClient::begin().await;
    for operation in asking.operations() {
        for parameter in asking.document.parameters(&operation) {
            let (name, example) = (parameter["name"].as_str().unwrap(), text_of(&parameter["example"]));
            let example = if name == "consumer_id" { asking.consumer.clone() } else { example };
            let request = match parameter["in"].as_str().unwrap() {
                "query" if name == "timeout" => continue,
                "query" => asking.request(&operation, &[(name, &example)]),
                "header" => asking.request(&operation, &[]).header(name, &example),
                _ => continue,
            };
            if operation.spec["responses"].get("303").is_some() {
                continue;
            }
            let (status, body) = asking.ask(&operation, request).await;
            // The checkpoint does not move, and an operation that ends something can do so only once.
            let waits = name == "waitFor" || operation.id == "waitForProjection";
            let refused = waits && status == 504 || LAST.contains(&operation.id.as_str());
            assert!(status.is_success() || refused, "{} {}, {name}: {status} {body}", operation.method, operation.path);
        }
    }
}

#[tokio::test]
async fn what_is_refused_everywhere_is_refused_as_described() {
    let asking = DocumentClient::begin().await;
    for operation in asking.operations() {
        let (method, path) = (&operation.method, &operation.path);
        let documented = |status: &str| operation.spec["responses"].get(status).is_some();
        if !documented("303") {
            let strange = asking.request(&operation, &[]).header("accept", "image/png");
            let (status, _) = asking.ask(&operation, strange).await;
            assert_eq!(status == 406, documented("406"), "{method} {path}: accept");
        }
        if documented("422") {
            let (status, _) = asking.ask(&operation, asking.request(&operation, &[("nobody-knows", "1")])).await;
            assert_eq!(status, 422, "{method} {path}");
        }
        if documented("415") {
            let request = asking.without_body(&operation, &[]).header("content-type", "text/xml").body("<a/>");
            assert_eq!(asking.ask(&operation, request).await.0, 415, "{method} {path}");
        }
        let long = asking.request(&operation, &[("x", &"x".repeat(20_000))]);
        assert_eq!(asking.ask(&operation, long).await.0, 414, "{method} {path}");
        let heavy = asking.request(&operation, &[]).header("x-heavy", "x".repeat(40_000));
        assert_eq!(asking.ask(&operation, heavy).await.0, 431, "{method} {path}");
    }
}

#[tokio::test]
async fn a_method_that_is_not_in_the_document_is_not_allowed() {
    let asking = DocumentClient::begin().await;
    let operations = asking.operations();
    for operation in &operations {
        let there: BTreeSet<_> =
            operations.iter().filter(|it| it.path == operation.path).map(|it| it.method.as_str()).collect();
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "OPTIONS"] {
            // A group's name may end like a verb, so a request for it is a request for a group.
            if there.contains(method) || method == "GET" && operation.id == "resetConsumerGroup" {
                continue;
            }
            let mut other = operation.clone();
            other.method = method.parse().unwrap();
            let response = asking.request(&other, &[]).send().await.unwrap();
            let allow = response.headers().get("allow").map(|it| it.to_str().unwrap().to_owned());
            assert_eq!(response.status(), 405, "{method} {}", operation.path);
            let allow = allow.unwrap_or_else(|| panic!("{method} {} has no Allow", operation.path));
            let allowed: BTreeSet<_> = allow.split(',').map(str::trim).filter(|it| *it != "HEAD").collect();
            assert_eq!(allowed, there, "{method} {}", operation.path);
            asking.check(operation, response).await;
        }
    }
}

#[tokio::test]
async fn a_duplicate_a_mismatch_and_a_conflict_are_as_described() {
    let asking = DocumentClient::begin().await;
    let operation = asking.operations().into_iter().find(|it| it.id == "publishEvent").unwrap();
    let flagging =
        json!({"id": "gts.x.core.events.topic.v1~vendor.flagging.v1", "streaming": true, "onPayloadMismatch": "flag"});
    assert_eq!(asking.server.post("/v1/topics", &flagging).await.0, 201);
    let event_type = "gts.vendor.orders.order_placed.v1";
    let (status, _) = asking.server.post("/v1/event-types", &json!({"id": event_type, "topic": flagging["id"]})).await;
    assert_eq!(status, 201);
    let mut event = crate::http::event(event_type, "s-1");
    event["id"] = json!("660e8400-e29b-41d4-a716-446655440001");
    let publish = |body: &Value| asking.server.request(Method::POST, "/v1/events").json(body);
    assert_eq!(asking.ask(&operation, publish(&event)).await.0, 201);
    event["data"] = json!({"n": 2});
    let response = publish(&event).send().await.unwrap();
    let headers = response.headers().clone();
    assert!(headers["idempotent-replayed"] == "true" && headers["payload-mismatch"] == "true", "{headers:?}");
    assert_eq!(asking.check(&operation, response).await.0, 200);
    event["id"] = Value::Null;
    event["expectedAggregateSequence"] = json!(7);
    let (status, problem) = asking.ask(&operation, publish(&event)).await;
    assert_eq!((status.as_u16(), &problem["actual"]), (409, &json!(1)));
    assert_eq!(answer(publish(&json!({"type": 1}))).await.0, 422);
    assert_eq!(asking.ask(&operation, publish(&json!(["a", "b"]))).await.0, 422);
}

#[tokio::test]
async fn a_list_does_not_pass_for_an_object() {
    let asking = DocumentClient::begin().await;
    for operation in asking.operations() {
        let media = &operation.spec["requestBody"]["content"]["application/json"];
        if media.is_null() || operation.id == "importEvents" {
            continue;
        }
        // The parser would otherwise read an array as the members in order.
        let request = asking.without_body(&operation, &[]).json(&json!([null, null]));
        let (status, problem) = asking.ask(&operation, request).await;
        assert_eq!((status.as_u16(), &problem["errors"][0]["pointer"]), (422, &json!("")), "{}", operation.id);
    }
}

#[tokio::test]
async fn an_event_under_a_deprecated_version_is_told_so_as_described() {
    let asking = DocumentClient::begin().await;
    let operations = asking.operations();
    let named = |id: &str| operations.iter().find(|it| it.id == id).unwrap();
    // The example's type has version 1.0 through its `dataSchema`; finalising 1.1 deprecates it.
    let (status, version) = asking.ask(named("finaliseVersion"), asking.request(named("finaliseVersion"), &[])).await;
    assert_eq!((status.as_u16(), &version["status"]), (200, &json!("CURRENT")));
    let publish = named("publishEvent");
    let mut event = publish.spec["requestBody"]["content"]["application/json"]["example"].clone();
    event["id"] = Value::Null;
    event["dataVersion"] = json!("1.0");
    let response = asking.server.request(Method::POST, "/v1/events").json(&event).send().await.unwrap();
    assert_eq!(response.headers()["deprecation"], "true");
    assert_eq!(asking.check(publish, response).await.0, 201);
    let request = asking.server.request(Method::POST, "/v1/events:batch").json(&json!({"events": [event]}));
    let (status, outcome) = asking.ask(named("publishBatch"), request).await;
    assert_eq!((status.as_u16(), &outcome["data"]["results"][0]["deprecated"]), (207, &json!(true)));
}
