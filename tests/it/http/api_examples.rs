//! The examples of the HTTP contract: every printed request and response, sent to the real program.
//!
//! - The files beside this one are the printed blocks of the contract, byte for byte.
//! - A response has every printed member, with the printed value unless the broker assigns it, and beyond those only
//!   members that are named here.

use super::{CREATED, Server, TENANT, TOPIC, answer, event, expect_problem};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

const USERS: &str = "gts.hx.core.events.topic.v1~vendor.users.v1";
const UPDATED: &str = "gts.hyperspot.core.events.type.v1~vendor.tenants.tenant_updated.v1";
const SUBJECT: &str = "1053828c-57b1-4c2b-97dc-ccff6225651e";
/// The members that the broker's events have beyond the printed ones.
const MORE_OF_EVENTS: &[&str] = &["topic", "position", "aggregateSequence", "dataVersion"];
/// The members that the broker assigns.
const ASSIGNED: &[&str] = &["createdAt", "sequence"];

macro_rules! printed {
    ($name:literal) => {
        include_str!(concat!("api_examples/", $name, ".json"))
    };
}

/// Compares a response with the printed one. `assigned` members have the printed type; `more` may be present as well.
fn same(answer: &Value, printed: &Value, assigned: &[&str], more: &[&str]) {
    match (answer, printed) {
        (Value::Object(members), Value::Object(expected)) => {
            for (name, value) in expected {
                let there = members.get(name).unwrap_or_else(|| panic!("`{name}` is missing in {answer}"));
                match assigned.contains(&name.as_str()) {
                    true => assert_eq!(kind_of(there), kind_of(value), "{name} in {answer}"),
                    false => same(there, value, assigned, more),
                }
            }
            let unknown = members.keys().find(|name| !expected.contains_key(*name) && !more.contains(&name.as_str()));
            assert_eq!(unknown, None, "not printed, and not named here: {answer}");
        }
        (Value::Array(items), Value::Array(expected)) => {
            assert_eq!(items.len(), expected.len(), "{answer}");
            items.iter().zip(expected).for_each(|(item, expected)| same(item, expected, assigned, more));
        }
        _ => assert_eq!(answer, printed),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        // Times have the printed format too.
        Value::String(text) if text.len() == 24 && text.ends_with('Z') => "a time",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A printed resource as a request: without what the broker assigns.
fn asked(text: &str, assigned: &[&str]) -> Value {
    let mut value = value(text);
    assigned.iter().for_each(|name| drop(value.as_object_mut().unwrap().remove(*name)));
    value
}

/// Sends a printed body unchanged.
async fn send(server: &Server, path: &str, body: &'static str) -> Response {
    let request = server.request(Method::POST, path).header("content-type", "application/json").body(body);
    request.send().await.unwrap()
}

async fn taken(response: Response) -> (StatusCode, Value) {
    (response.status(), response.json().await.unwrap())
}

/// A server with the two event types of the contract, the first with its schema as printed.
async fn server(arguments: &[&str]) -> Server {
    let server = Server::start(arguments);
    let (status, made) = server.post("/v1/event-types", &asked(printed!("event_type"), &["createdAt"])).await;
    assert_eq!(status, 201, "{made}");
    same(&made, &value(printed!("event_type")), &["createdAt"], &["versions"]);
    assert_eq!((&made["versions"][0]["version"], &made["versions"][0]["status"]), (&json!("1.0"), &json!("CURRENT")));
    server.register(UPDATED).await;
    server
}

/// The topic of the printed listing, as a registration request.
fn users_topic() -> Value {
    let mut topic = value(printed!("topics"))["topics"][0].take();
    topic.as_object_mut().unwrap().remove("createdAt");
    topic
}

#[tokio::test]
async fn topics_are_listed_as_printed_on_file_and_on_memory() {
    for storage in ["file", "memory"] {
        let server = Server::start(&["--storage", storage]);
        let (status, made) = server.post("/v1/topics", &users_topic()).await;
        assert_eq!(status, 201, "{storage}: {made}");
        assert_eq!(server.post("/v1/topics", &users_topic()).await.0, 200, "the same request repeated");
        let (status, list) = server.get(&format!("/v1/topics?topic={USERS}")).await;
        assert_eq!(status, 200);
        same(&list, &value(printed!("topics")), &["createdAt"], &["page_info"]);
        let (_, shown) = server.get(&format!("/v1/topics/{USERS}")).await;
        assert_eq!(shown, list["topics"][0]);
        let (_, all) = server.get("/v1/topics").await;
        let ids: Vec<_> = all["topics"].as_array().unwrap().iter().map(|topic| &topic["id"]).collect();
        assert_eq!(ids, [TOPIC, USERS]);
        assert_eq!(all["page_info"], json!({"next_cursor": null, "prev_cursor": null, "limit": 100}));
        let (_, derived) = server.get("/v1/topics?topic=gts.hx.core.events.topic.v1~vendor.*").await;
        assert_eq!(derived["topics"], list["topics"], "wildcards allowed");
    }
}

#[tokio::test]
async fn the_printed_topic_can_be_registered_and_its_events_live_there() {
    let variables = [("EVENT_BROKER__DEFAULT_TOPIC", "null")];
    let server = Server::start_with(&variables, &[]);
    let (status, made) = server.post("/v1/topics", &asked(printed!("topic"), &["createdAt"])).await;
    assert_eq!(status, 201, "{made}");
    same(&made, &value(printed!("topic")), &["createdAt"], &[]);
    let mut event_type = asked(printed!("event_type"), &["createdAt"]);
    event_type["topic"] = json!(TOPIC);
    assert_eq!(server.post("/v1/event-types", &event_type).await.0, 201);
    let (status, stored) = taken(send(&server, "/v1/events", printed!("publish")).await).await;
    assert_eq!((status.as_u16(), &stored["topic"]), (201, &json!(TOPIC)));
}

#[tokio::test]
async fn segments_are_listed_as_printed_with_cursors_and_in_both_orders() {
    for storage in ["file", "memory"] {
        let variables = [("EVENT_BROKER__STORAGE__SEGMENT_BYTES", "1024")];
        let server = Server::start_with(&variables, &["--storage", storage]);
        server.post("/v1/topics", &users_topic()).await;
        server.post("/v1/event-types", &json!({"id": CREATED, "topic": USERS})).await;
        for number in 0..12 {
            assert_eq!(server.post("/v1/events", &event(CREATED, &format!("s-{number}"))).await.0, 201);
        }
        let path = format!("/v1/topics/segments?topic={USERS}");
        let (status, whole) = server.get(&path).await;
        assert_eq!(status, 200);
        let printed = value(printed!("segments"));
        let segments = whole["segments"].as_array().unwrap();
        for segment in segments {
            let assigned: Vec<_> = segment.as_object().unwrap().keys().map(String::as_str).collect();
            same(segment, &printed["segments"][0], &assigned, &[]);
            assert!(segment["location"].as_str().unwrap().contains("://"), "{segment}");
        }
        let assigned = ["start", "startTime", "end", "endTime", "segments", "page_info"];
        same(&whole, &printed, &assigned, &[]);
        dense(segments);
        assert_eq!((&whole["start"], &whole["end"]), (&json!(1), &json!(12)));
        // Memory has no files to seal.
        if storage == "file" {
            assert!(segments.len() >= 3, "{whole}");
            walk(&server, &path, segments).await;
        }
    }
}

/// Segments follow each other without a gap.
fn dense(segments: &[Value]) {
    let mut next = 1;
    for segment in segments {
        let number = |name: &str| segment[name].as_u64().unwrap();
        assert_eq!(number("startSequence"), next, "{segment}");
        next = number("endSequence") + 1;
        assert_eq!(number("amount"), next - number("startSequence"), "{segment}");
    }
}

/// Reads one segment at a time, forwards and backwards, in both sort orders.
async fn walk(server: &Server, path: &str, segments: &[Value]) {
    let mut backwards = segments.to_vec();
    backwards.reverse();
    for (order, expected) in [("", segments), ("&$orderby=rangeStart%20asc", segments)]
        .into_iter()
        .chain([("&$orderby=rangeStart+desc", &backwards[..])])
    {
        let mut page = server.get(&format!("{path}{order}&limit=1")).await.1;
        for segment in expected {
            assert_eq!(page["segments"], json!([segment]), "{order}");
            assert_eq!((&page["start"], page["page_info"]["limit"].as_u64()), (&json!(1), Some(1)));
            let Some(cursor) = page["page_info"]["next_cursor"].as_str() else { break };
            page = server.get(&format!("{path}{order}&limit=1&cursor={cursor}")).await.1;
        }
        assert_eq!(page["segments"], json!([expected.last().unwrap()]), "the last page has no next one");
        let cursor = page["page_info"]["prev_cursor"].as_str().unwrap();
        let before = server.get(&format!("{path}{order}&limit=1&cursor={cursor}")).await.1;
        assert_eq!(before["segments"], json!([expected[expected.len() - 2]]), "{order}");
    }
}

#[tokio::test]
async fn an_event_is_published_as_printed_and_a_repetition_is_a_duplicate() {
    let server = server(&[]).await;
    let response = send(&server, "/v1/events", printed!("publish")).await;
    assert_eq!(response.headers()["location"], "/v1/events/550e8400-e29b-41d4-a716-446655440000");
    assert!(!response.headers().contains_key("idempotent-replayed"));
    let (status, stored) = taken(response).await;
    assert_eq!(status, 201, "{stored}");
    same(&stored, &value(printed!("published")), ASSIGNED, MORE_OF_EVENTS);
    assert_eq!(stored["sequence"], 1);
    let again = send(&server, "/v1/events", printed!("publish")).await;
    assert_eq!(again.headers()["idempotent-replayed"], "true");
    assert_eq!(taken(again).await, (StatusCode::OK, stored.clone()));
    // The key does not include `data`: the sample of the data model has the same key and another address.
    let other = asked(printed!("event"), ASSIGNED);
    let (status, first) = server.post("/v1/events", &other).await;
    assert_eq!((status.as_u16(), &first), (200, &stored));
    // Another producer has its own keys.
    let request = server.request(Method::POST, "/v1/events").header("Producer-Id", "instance-7").json(&other);
    let (status, new) = answer(request).await;
    assert_eq!(status, 201, "{new}");
    same(&new, &value(printed!("event")), ASSIGNED, MORE_OF_EVENTS);
    let (status, shown) = server.get("/v1/events/550e8400-e29b-41d4-a716-446655440000").await;
    assert_eq!((status.as_u16(), shown), (200, stored));
}

#[tokio::test]
async fn a_batch_is_answered_event_by_event() {
    let server = server(&[]).await;
    let (status, answer) = taken(send(&server, "/v1/events:batch", printed!("batch")).await).await;
    assert_eq!((status.as_u16(), &answer["meta"]), (207, &json!({"total": 2, "succeeded": 2, "failed": 0})));
    let sequences: Vec<_> = [0, 1].map(|index| answer["data"]["results"][index]["event"]["sequence"].as_u64()).into();
    assert_eq!(sequences, [Some(1), Some(2)]);
}

#[tokio::test]
async fn a_batch_over_two_topics_stores_one_and_refuses_the_other_as_printed() {
    let server = Server::start(&[]);
    server.post("/v1/topics", &json!({"id": USERS, "streaming": true})).await;
    server.post("/v1/event-types", &asked(printed!("event_type"), &["createdAt"])).await;
    let schema = json!({"type": "object", "required": ["name"]});
    server.post("/v1/event-types", &json!({"id": UPDATED, "topic": USERS, "dataSchema": schema})).await;
    let (status, answer) = taken(send(&server, "/v1/events:batch", printed!("batch")).await).await;
    assert_eq!(status, 207, "{answer}");
    // The printed response's event is not the printed request's: the test compares the members of the event, and the
    // values of the rest.
    let assigned = ["createdAt", "sequence", "id", "source", "detail"];
    let more = [MORE_OF_EVENTS, &["errors"]].concat();
    same(&answer, &value(printed!("batch_results")), &assigned, &more);
    assert_eq!(answer["data"]["results"][0]["event"]["id"], "829501ea-99dd-484f-a227-3e958747b8ea");
    let pointers = &answer["data"]["results"][1]["error"]["errors"];
    assert_eq!((pointers.as_array().unwrap().len(), &pointers[0]["pointer"]), (1, &json!("/data")), "{answer}");
    // Per topic the write is atomic: another event for the topic of the refused one is not written either.
    let mut batch = value(printed!("batch"));
    let mut sibling = batch["events"][1].clone();
    (sibling["id"], sibling["data"]["name"]) = (json!("78d4c214-f688-43d7-9b1c-164ea146cda1"), json!("n"));
    batch["events"].as_array_mut().unwrap().push(sibling);
    let (_, answer) = server.post("/v1/events:batch", &batch).await;
    let statuses: Vec<_> = [0, 1, 2].map(|index| answer["data"]["results"][index]["status"].as_u64()).into();
    assert_eq!(statuses, [Some(200), Some(422), Some(424)]);
    let (_, page) = server.get(&format!("/v1/events?topic={USERS}&offset=0")).await;
    assert_eq!(page["tail"], 0);
}

#[tokio::test]
async fn events_are_listed_as_printed() {
    let server = server(&[]).await;
    send(&server, "/v1/events", printed!("publish")).await;
    let (status, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=0&limit=50")).await;
    assert_eq!(status, 200);
    let more = [MORE_OF_EVENTS, &["tenant", "traceParent", "nextOffset", "tail"]].concat();
    same(&page, &value(printed!("listed")), ASSIGNED, &more);
    // The printed request unchanged, beyond the tail.
    let (status, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=10000&limit=50")).await;
    assert_eq!((status.as_u16(), &page["items"], &page["tail"]), (200, &json!([]), &json!(1)));
}

#[tokio::test]
async fn a_poll_is_answered_as_printed_when_the_event_comes() {
    let server = Server::start_with(&[("EVENT_BROKER__TYPES__UNREGISTERED", "accept")], &[]);
    server.post("/v1/events", &event(CREATED, "seen")).await;
    let request = server.request(Method::GET, &format!("/v1/events:poll?topic={TOPIC}&offset=1&timeout=30&limit=25"));
    let poll = tokio::spawn(async move { answer(request).await });
    let mut printed = value(printed!("polled"));
    let mut coming = printed["items"][0].clone();
    ASSIGNED.iter().for_each(|name| drop(coming.as_object_mut().unwrap().remove(*name)));
    coming["tenant"] = json!(TENANT);
    assert_eq!(server.post("/v1/events", &coming).await.0, 201);
    let (status, page) = poll.await.unwrap();
    assert_eq!(status, 200);
    printed["items"][0]["sequence"] = json!(2);
    let more = [MORE_OF_EVENTS, &["tenant", "nextOffset", "tail"]].concat();
    same(&page, &printed, &["createdAt"], &more);
    // At the time-out: 200 with an empty array, not 408.
    let (status, page) = server.get(&format!("/v1/events:poll?topic={TOPIC}&offset=2&timeout=0&limit=25")).await;
    assert_eq!((status.as_u16(), &page["items"]), (200, &json!([])));
}

#[tokio::test]
async fn consumers_poll_each_with_their_own_filter() {
    let server = server(&[]).await;
    let response = send(&server, "/v1/consumers", printed!("new_consumer")).await;
    let (status, first) = taken(response).await;
    assert_eq!(status, 201, "{first}");
    let assigned = ["id", "createdAt", "expiresAt"];
    same(&first, &value(printed!("consumer")), &assigned, &["sessionTimeout", "distribution", "lastSeenAt"]);
    let time = |name: &str| first["data"][name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!(time("expiresAt").duration_since(time("createdAt")).as_secs(), 30);
    let mut wide = value(printed!("new_consumer"));
    wide["CEL"] = json!("has(data) && data.userId != 'user-12345'");
    let (_, second) = server.post("/v1/consumers", &wide).await;
    assert_ne!(first["data"]["id"], second["data"]["id"]);
    let poll = |consumer: &Value| {
        let id = consumer["data"]["id"].as_str().unwrap();
        server.request(Method::GET, &format!("/v1/events:poll?consumer_id={id}&offset=0&topic=ignored"))
    };
    let polls = [poll(&first), poll(&second)].map(|request| tokio::spawn(async move { answer(request).await }));
    send(&server, "/v1/events", printed!("publish")).await;
    let mut other = value(printed!("batch"))["events"][1].take();
    other["data"]["userId"] = json!("user-2");
    server.post("/v1/events", &other).await;
    for (poll, sequence) in polls.into_iter().zip([1, 2]) {
        let (status, page) = poll.await.unwrap();
        let items = page["items"].as_array().unwrap();
        assert_eq!((status.as_u16(), items.len(), &items[0]["sequence"]), (200, 1, &json!(sequence)), "{page}");
    }
    let path = format!("/v1/consumers/{}", first["data"]["id"].as_str().unwrap());
    assert_eq!(server.request(Method::DELETE, &path).send().await.unwrap().status(), 204);
    expect_problem(server.get(&path).await, 404, "EVENT_BROKER_NOT_FOUND");
}

#[tokio::test]
async fn every_documented_error_code_is_answered_with_its_problem() {
    let server = server(&[]).await;
    let problem = server.get(&format!("/v1/events:poll?topic={TOPIC}&offset=zero")).await;
    same(&problem.1, &value(printed!("problem")), &["detail", "traceId"], &[]);
    expect_problem(problem, 400, "EVENT_BROKER_INVALID_OFFSET");
    assert_eq!(send(&server, "/v1/events", printed!("publish")).await.status(), 201);
    let with = |name: &str, value: Value| {
        let mut event = asked(printed!("publish"), &["id"]);
        event[name] = value;
        event
    };
    for (body, status, code) in [
        (with("type", json!("users created")), 400, "EVENT_BROKER_INVALID_TYPE"),
        (with("subjectType", json!("gts.")), 400, "EVENT_BROKER_INVALID_TYPE"),
        (with("sequence", json!(0)), 400, "EVENT_BROKER_INVALID_SEQUENCE"),
        (with("sequence", json!("two")), 400, "EVENT_BROKER_INVALID_SEQUENCE"),
        (with("sequence", json!(7)), 400, "EVENT_BROKER_INVALID_SEQUENCE"),
        (with("sequence", json!(1)), 409, "EVENT_BROKER_SEQUENCE_EXISTS"),
        (with("subject", json!("not-a-uuid")), 422, "EVENT_BROKER_VALIDATION_ERROR"),
        (with("subjectType", json!("gts.vendor.users.user.v1")), 422, "EVENT_BROKER_VALIDATION_ERROR"),
        (with("data", json!({"userId": "u"})), 422, "EVENT_BROKER_VALIDATION_ERROR"),
        (with("data", json!({"userId": "u", "email": "nobody"})), 422, "EVENT_BROKER_VALIDATION_ERROR"),
    ] {
        expect_problem(server.post("/v1/events", &body).await, status, code);
    }
    assert_eq!(server.post("/v1/events", &with("sequence", json!(2))).await.0, 201, "only the next one is accepted");
    expect_problem(server.get(&format!("/v1/events/{TENANT}")).await, 404, "EVENT_BROKER_NOT_FOUND");
    let large = json!({"events": vec![with("id", json!(SUBJECT)); 101]});
    expect_problem(server.post("/v1/events:batch", &large).await, 400, "EVENT_BROKER_BATCH_TOO_LARGE");
}

#[tokio::test]
async fn the_quickstart_configuration_is_in_force() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/config/quickstart.yaml");
    let server = Server::start(&["--config", file]);
    server.register(CREATED).await;
    for round in 0..3 {
        let events: Vec<_> = (0..100).map(|number| event(CREATED, &format!("s-{round}-{number}"))).collect();
        assert_eq!(server.post("/v1/events:batch", &json!({"events": events})).await.0, 207);
    }
    let count = async |query: &str| {
        let (_, page) = server.get(&format!("/v1/events{query}")).await;
        page["items"].as_array().map(Vec::len)
    };
    assert_eq!(count(&format!("?topic={TOPIC}&offset=0")).await, Some(25), "consumer.default_limit");
    assert_eq!(count(&format!(":poll?topic={TOPIC}&offset=0")).await, Some(25), "consumer.default_limit");
    assert_eq!(count(&format!("?topic={TOPIC}&offset=0&limit=200")).await, Some(200), "consumer.max_limit");
    for refused in [
        format!("/v1/events?topic={TOPIC}&offset=0&limit=201"),
        format!("/v1/events:poll?topic={TOPIC}&offset=300&timeout=31"),
        "/v1/topics?limit=201".to_owned(),
    ] {
        expect_problem(server.get(&refused).await, 422, "EVENT_BROKER_VALIDATION_ERROR");
    }
    assert_eq!(server.get("/v1/topics").await.1["page_info"]["limit"], 25);
    let large = json!({"events": vec![event(CREATED, "s"); 101]});
    expect_problem(server.post("/v1/events:batch", &large).await, 400, "EVENT_BROKER_BATCH_TOO_LARGE");
    let mut large = event(CREATED, "s");
    large["data"] = json!({"text": "x".repeat(1024 * 1024)});
    let large = json!({"events": [large]});
    expect_problem(server.post("/v1/events:batch", &large).await, 400, "EVENT_BROKER_BATCH_TOO_LARGE");
}
