//! Identifiers over HTTP: codes on every route, colons in paths, CloudEvents with non-UUID ids, labels as pairs.

use super::subscriptions::{PRIVATE, WebhookReceiver};
use super::{Server, TENANT, TOPIC, answer, event, expect_problem};
use reqwest::Method;
use serde_json::{Value, json};

const ONE: &str = "application/cloudevents+json";
const MANY: &str = "application/cloudevents-batch+json";
const INVALID: &str = "EVENT_BROKER_INVALID_TYPE";

async fn create(server: &Server, path: &str, body: Value) -> Value {
    let (status, made) = server.post(path, &body).await;
    assert_eq!(status, 201, "{path}: {made}");
    made
}

#[tokio::test]
async fn codes_are_taken_on_every_route() {
    let server = Server::start(&[]);
    create(&server, "/v1/topics", json!({"id": "shop.orders", "streaming": true})).await;
    let new = json!({"id": "order.created", "topic": "shop.orders", "allowedSubjectTypes": ["shop.order"]});
    create(&server, "/v1/event-types", new).await;
    let mut sent = event("order.created", "o-1");
    sent["subjectType"] = json!("shop.order");
    let stored = create(&server, "/v1/events", sent).await;
    assert_eq!((&stored["topic"], &stored["subjectType"]), (&json!("shop.orders"), &json!("shop.order")));
    for (path, pointer, expected) in [
        ("/v1/topics/shop.orders", "/id", json!("shop.orders")),
        ("/v1/topics?topic=shop.*", "/topics/0/id", json!("shop.orders")),
        ("/v1/topics?topic=shop.orders", "/topics/0/id", json!("shop.orders")),
        ("/v1/topics/segments?topic=shop.orders", "/topic", json!("shop.orders")),
        ("/v1/event-types/order.created", "/id", json!("order.created")),
        ("/v1/event-types?type=order.*&topic=shop.orders", "/items/0/id", json!("order.created")),
        ("/v1/event-types?topic=shop.*", "/items/0/id", json!("order.created")),
        ("/v1/event-types?topic=shop:*", "/items", json!([])),
        ("/v1/events?topic=shop.orders&offset=0&type=order.*&subjectType=shop.*", "/items/0", stored.clone()),
        ("/v1/events?topic=shop.orders&offset=0&type=orders.*", "/items", json!([])),
        ("/v1/events:poll?topic=shop.orders&offset=0&timeout=0&type=order.created", "/items/0", stored.clone()),
        ("/v1/log?type=order.*", "/items/0", stored.clone()),
        ("/v1/aggregates/shop.order/o-1?topic=shop.orders", "/lastEvent", stored.clone()),
        ("/v1/aggregates/shop.order/o-1/events?topic=shop.orders", "/items/0", stored.clone()),
        ("/v1/dead-letters?topic=shop.orders", "/items", json!([])),
    ] {
        let (status, answer) = server.get(path).await;
        assert_eq!((status.as_u16(), answer.pointer(pointer)), (200, Some(&expected)), "{path}: {answer}");
    }
    let group =
        json!({"consumerGroup": "g", "topic": "shop.orders", "types": ["order.*"], "subjectTypes": ["shop.order"]});
    let consumer = create(&server, "/v1/consumers", group).await["data"]["id"].as_str().unwrap().to_owned();
    let (_, page) = server.get(&format!("/v1/events:poll?consumer_id={consumer}&offset=0&timeout=0")).await;
    assert_eq!(page["items"][0]["id"], stored["id"], "{page}");
    for (method, path, body) in [
        (Method::POST, "/v1/claims", json!({"handler": "h", "topic": "shop.orders", "sequence": 1})),
        (Method::PUT, "/v1/projections/p", json!({"topic": "shop.orders"})),
        (Method::POST, "/v1/consumer-groups/g:reset", json!({"topic": "shop.orders", "offset": 0})),
        (
            Method::POST,
            "/v1/topics/shop.orders:republish",
            json!({"from": 1, "to": 1, "target": "topic", "dryRun": true}),
        ),
        (Method::PATCH, "/v1/topics/shop.orders", json!({"description": "d"})),
        (Method::POST, "/v1/event-types/order.created:archive", json!({})),
    ] {
        let (status, answer) = answer(server.request(method, path).json(&body)).await;
        assert!(status.is_success(), "{path}: {status} {answer}");
    }
}

#[tokio::test]
async fn what_is_neither_a_code_nor_a_gts_id_is_refused_with_an_example_of_both() {
    let server = Server::start(&[]);
    for id in ["orders", "shop:order.created", "order created", "GTS.order.created", "a.b.c.d.e.f.g.h.i"] {
        for (path, body) in [
            ("/v1/topics", json!({"id": id, "streaming": true})),
            ("/v1/event-types", json!({"id": id})),
            ("/v1/events", event(id, "s")),
        ] {
            let problem = expect_problem(server.post(path, &body).await, 400, INVALID);
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains("order.created") && detail.contains("gts.order.created.v1"), "{detail}");
        }
    }
    expect_problem(server.get("/v1/events?offset=0&topic=order.*").await, 400, INVALID);
    expect_problem(server.get(&format!("/v1/events?offset=0&topic={TOPIC}&type=order*")).await, 400, INVALID);
}

#[tokio::test]
async fn a_colon_in_a_path_begins_a_verb_only_where_the_route_has_it() {
    let server = Server::start(&[]);
    for id in ["a:b", "a:b:c", "a:b:trim"] {
        let request = server.request(Method::POST, "/v1/topics").json(&json!({"id": id, "streaming": true}));
        let response = request.send().await.unwrap();
        let location = response.headers()["location"].to_str().unwrap().to_owned();
        let (status, shown) = server.get(&location).await;
        assert_eq!((status.as_u16(), &shown["id"]), (200, &json!(id)), "{location}");
    }
    create(&server, "/v1/event-types", json!({"id": "a:b:archive"})).await;
    create(&server, "/v1/event-types", json!({"id": "a:b"})).await;
    for (method, path, status, id) in [
        (Method::GET, "/v1/topics/a:b:c", 200, "a:b:c"),
        (Method::GET, "/v1/topics/a%3Ab%3ac", 200, "a:b:c"),
        (Method::GET, "/v1/topics/a:b%3Atrim", 200, "a:b:trim"),
        (Method::GET, "/v1/topics/a:b:trim", 405, "POST"),
        (Method::PATCH, "/v1/topics/a:b%3Atrim", 200, "a:b:trim"),
        (Method::PATCH, "/v1/topics/a:b:trim", 405, "POST"),
        (Method::POST, "/v1/topics/a:b:c", 405, "GET, HEAD, PATCH, DELETE"),
        (Method::POST, "/v1/topics/a:b%3Atrim", 405, "GET, HEAD, PATCH, DELETE"),
        (Method::PUT, "/v1/topics/a:b:c", 405, "GET, HEAD, PATCH, DELETE"),
        (Method::PUT, "/v1/topics/a:b:trim", 405, "POST"),
        (Method::POST, &format!("/v1/topics/{TOPIC}:nothing"), 404, ""),
        (Method::GET, "/v1/event-types/a:b%3Aarchive", 200, "a:b:archive"),
        (Method::GET, "/v1/event-types/a:b:archive", 405, "POST"),
        (Method::GET, "/v1/event-types/a:b:trim", 404, ""),
        (Method::POST, "/v1/event-types/a:b%3Aarchive:archive", 200, "a:b:archive"),
        (Method::POST, "/v1/event-types/a:b:archive", 200, "a:b"),
    ] {
        let what = format!("{method} {path}");
        let response = server.request(method, path).json(&json!({})).send().await.unwrap();
        let allowed = response.headers().get("allow").map(|allow| allow.to_str().unwrap().to_owned());
        let (said, body) = (response.status().as_u16(), response.json::<Value>().await.unwrap());
        assert_eq!(said, status, "{what}: {body}");
        match status {
            200 => assert_eq!(body["id"], id, "{what}"),
            405 => assert_eq!(allowed.as_deref(), Some(id), "{what}"),
            _ => (),
        }
    }
    let (status, counted) = server.post("/v1/topics/a:b:trim", &json!({"through": 0})).await;
    assert_eq!((status.as_u16(), &counted["count"]), (200, &json!(0)));
}

/// One key, one effect, however the colons of the same name are encoded.
#[tokio::test]
async fn a_key_counts_for_the_same_request_whether_its_colons_are_encoded_or_not() {
    let server = Server::start(&[]);
    create(&server, "/v1/topics", json!({"id": "a:b", "streaming": true})).await;
    for (path, replayed) in [("/v1/topics/a:b", false), ("/v1/topics/a%3Ab", true)] {
        let request =
            server.request(Method::PATCH, path).header("idempotency-key", "k").json(&json!({"description": "d"}));
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers().contains_key("idempotent-replayed"), replayed, "{path}");
    }
}

#[tokio::test]
async fn a_dash_is_the_subject_type_of_events_that_name_none() {
    let server = Server::start_with(&[("EVENT_BROKER__GTS__PROFILE", "strict")], &[]);
    let event_type = "gts.acme.shop.orders.created.v1~";
    server.register(event_type).await;
    let stored = create(&server, "/v1/events", event(event_type, "o-1")).await;
    let (status, aggregate) = server.get(&format!("/v1/aggregates/-/o-1?topic={TOPIC}")).await;
    assert_eq!((status.as_u16(), &aggregate["lastEvent"]), (200, &stored), "{aggregate}");
    let (status, page) = server.get(&format!("/v1/aggregates/-/o-1/events?topic={TOPIC}")).await;
    assert_eq!((status.as_u16(), &page["items"][0], &page["aggregateSequence"]), (200, &stored, &json!(1)));
    let mut next = event(event_type, "o-1");
    next["expectedAggregateSequence"] = aggregate["aggregateSequence"].clone();
    assert_eq!(create(&server, "/v1/events", next).await["aggregateSequence"], 2);
    expect_problem(server.get(&format!("/v1/aggregates/-/o-2?topic={TOPIC}")).await, 404, "EVENT_BROKER_NOT_FOUND");
}

#[tokio::test]
async fn labels_are_taken_as_pairs_too_and_served_as_context() {
    let server = Server::start(&[]);
    server.register("order.created").await;
    let with = |member: &str, labels: Value| {
        let mut event = event("order.created", "s");
        event[member] = labels;
        event
    };
    let pairs = json!([{"key": "customer_id", "value": "cust_789"}, {"key": "region", "value": "us-west"}]);
    let stored = create(&server, "/v1/events", with("contextData", pairs.clone())).await;
    assert_eq!(stored["context"], json!({"customer_id": "cust_789", "region": "us-west"}));
    assert!(stored.get("contextData").is_none());
    let (_, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=0&context.region=us-west")).await;
    assert_eq!(page["items"][0], stored);
    let (_, batch) = server.post("/v1/events:batch", &json!({"events": [with("contextData", pairs.clone())]})).await;
    assert_eq!(batch["data"]["results"][0]["event"]["context"], stored["context"], "{batch}");
    let mut both = with("contextData", pairs);
    both["context"] = json!({});
    let twice = json!([{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]);
    for (body, pointer) in [
        (both, "/contextData"),
        (with("contextData", twice), "/contextData"),
        (with("contextData", json!([{"key": "a"}])), "/contextData/0/value"),
        (with("contextData", json!([{"key": "a", "value": 1}])), "/contextData/0/value"),
        (with("contextData", json!({"a": "1"})), "/contextData"),
        (with("contextData", json!([{"key": "a", "value": "x".repeat(1025)}])), "/context"),
        (with("context", json!([{"key": "a", "value": "1"}])), "/context"),
    ] {
        let problem = server.post("/v1/events", &body).await;
        let problem = expect_problem(problem, 422, "EVENT_BROKER_VALIDATION_ERROR");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
}

/// A CloudEvent as other systems produce it.
fn foreign(id: &str) -> Value {
    json!({
        "specversion": "1.0", "type": "com.github.pull_request.opened", "source": "https://github.com/cloudevents/spec/pull",
        "subject": "123", "id": id, "time": "2018-04-05T17:31:00Z", "tenant": TENANT, "data": {"n": 1},
    })
}

/// Python: `uuid.uuid5(uuid.UUID("8c5d3b0f-7a0e-4c1a-9f64-2f1b6d0ae7c3"), source + "\0" + id)`.
const OURS: &str = "fd146083-9171-52e2-89ba-05c12831a396";

#[tokio::test]
async fn a_cloud_event_whose_id_is_no_uuid_keeps_it() {
    let server = Server::start(&[]);
    server.register("com.github.pull_request.opened").await;
    let publish = |body: Value| {
        let request = server.request(Method::POST, "/v1/events").header("content-type", ONE).body(body.to_string());
        async { request.send().await.unwrap() }
    };
    let sent = foreign("A234-1234-1234");
    let response = publish(sent.clone()).await;
    assert_eq!(
        (response.status().as_u16(), response.headers()["location"].to_str().unwrap()),
        (201, &*format!("/v1/events/{OURS}"))
    );
    let stored: Value = response.json().await.unwrap();
    assert_eq!((&stored["id"], &stored["cloudEventId"]), (&json!(OURS), &json!("A234-1234-1234")));
    let again = publish(sent.clone()).await;
    assert_eq!((again.status().as_u16(), again.headers()["idempotent-replayed"].to_str().unwrap()), (200, "true"));
    // The same id with another source is another event.
    let mut other = sent.clone();
    other["source"] = json!("https://github.com/cloudevents/other");
    let other: Value = publish(other).await.json().await.unwrap();
    assert_ne!(other["id"], stored["id"]);
    assert_eq!(server.get(&format!("/v1/events/{OURS}")).await.1, stored);
    let read = async |path: &str, accept: &str| {
        let request = server.request(Method::GET, path).header("accept", accept);
        request.send().await.unwrap().json::<Value>().await.unwrap()
    };
    let one = read(&format!("/v1/events/{OURS}"), ONE).await;
    assert_eq!((&one["id"], one.get("cloudeventid")), (&json!("A234-1234-1234"), None));
    assert_eq!(one["dataschema"], "gts://com.github.pull_request.opened#1.0");
    let page = read(&format!("/v1/events?topic={TOPIC}&offset=0"), MANY).await;
    assert_eq!((&page[0]["id"], &page[1]["id"]), (&json!("A234-1234-1234"), &json!("A234-1234-1234")));
    let (_, found) = server.get(&format!("/v1/events?topic={TOPIC}&offset=0&filter=cloudEventId%3D%3D%27A234-1234-1234%27%26%26subject%3D%3D%27123%27")).await;
    assert_eq!(found["items"].as_array().unwrap().len(), 2, "{found}");
    // A UUID in another spelling is the same UUID, and is returned in the spelling that was sent.
    let spelt: Value = publish(foreign("550E8400-E29B-41D4-A716-446655440000")).await.json().await.unwrap();
    assert_eq!(
        (&spelt["id"], &spelt["cloudEventId"]),
        (&json!("550e8400-e29b-41d4-a716-446655440000"), &json!("550E8400-E29B-41D4-A716-446655440000"))
    );
    let usual: Value = publish(foreign("650e8400-e29b-41d4-a716-446655440000")).await.json().await.unwrap();
    assert_eq!((&usual["id"], usual.get("cloudEventId")), (&json!("650e8400-e29b-41d4-a716-446655440000"), None));
}

#[tokio::test]
async fn ids_of_cloud_events_survive_batches_headers_and_an_export() {
    let server = Server::start(&[]);
    server.register("com.github.pull_request.opened").await;
    let batch = json!([foreign("a-1"), foreign("a-2")]);
    let request = server.request(Method::POST, "/v1/events").header("content-type", MANY).body(batch.to_string());
    let (status, results) = answer(request).await;
    assert_eq!((status.as_u16(), &results["data"]["results"][1]["event"]["cloudEventId"]), (207, &json!("a-2")));
    let mut request = server.request(Method::POST, "/v1/events").header("content-type", "application/json");
    for (name, value) in foreign("a 3\u{20ac}").as_object().unwrap().iter().filter(|(name, _)| *name != "data") {
        let value = value.as_str().unwrap().replace(' ', "%20").replace('\u{20ac}', "%E2%82%AC");
        request = request.header(format!("ce-{name}"), value);
    }
    let (status, third) = answer(request.body("{}")).await;
    assert_eq!((status.as_u16(), &third["cloudEventId"]), (201, &json!("a 3\u{20ac}")), "{third}");
    // Exported lines are imported into another broker.
    let (_, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=0")).await;
    let lines: Vec<_> = page["items"].as_array().unwrap().iter().map(Value::to_string).collect();
    let other = Server::start(&[]);
    other.register("com.github.pull_request.opened").await;
    let import = |lines: String| answer(other.request(Method::POST, "/v1/events:import").body(lines));
    let (_, report) = import(lines.join("\n")).await;
    assert!(report.to_string().contains(r#"imported":3"#) || report["imported"] == 3, "{report}");
    let (_, moved) = other.get(&format!("/v1/events/{}", third["id"].as_str().unwrap())).await;
    assert_eq!((&moved["id"], &moved["cloudEventId"]), (&third["id"], &third["cloudEventId"]));
    // A CloudEvent id that does not match the event id is refused, and the broker's own JSON format has no member for
    // it.
    let (_, report) = import(lines[0].replace(r#""cloudEventId":"a-1""#, r#""cloudEventId":"a-9""#)).await;
    assert!(report.to_string().contains("/cloudEventId"), "{report}");
    let mut ours = event("com.github.pull_request.opened", "s");
    ours["cloudEventId"] = json!("a-1");
    let problem = expect_problem(server.post("/v1/events", &ours).await, 422, "EVENT_BROKER_VALIDATION_ERROR");
    assert_eq!(problem["errors"][0]["pointer"], "/cloudEventId");
}

#[tokio::test]
async fn deliveries_as_cloud_events_give_the_original_id_back() {
    let server = Server::start_with(&PRIVATE, &[]);
    server.register("com.github.pull_request.opened").await;
    let (structured, binary) = (WebhookReceiver::start(0).await, WebhookReceiver::start(0).await);
    for (code, format, receiver) in [("s", "cloudevents-structured", &structured), ("b", "cloudevents-binary", &binary)]
    {
        let types = json!([{"type": "com.github.*"}]);
        let new = json!({"code": code, "topic": TOPIC, "target": receiver.url, "format": format, "eventTypes": types});
        create(&server, "/v1/subscriptions", new).await;
    }
    let sent = foreign("A234-1234-1234");
    let request = server.request(Method::POST, "/v1/events").header("content-type", ONE).body(sent.to_string());
    assert_eq!(answer(request).await.0, 201);
    let (head, event, _) = structured.heard(1).await.remove(0);
    assert_eq!((&event["id"], head["webhook-id"].to_str().unwrap()), (&json!("A234-1234-1234"), OURS));
    let (head, _, _) = binary.heard(1).await.remove(0);
    assert_eq!((head["ce-id"].to_str().unwrap(), head["webhook-id"].to_str().unwrap()), ("A234-1234-1234", OURS));
}

#[tokio::test]
async fn a_topic_says_once_that_it_deduplicates_by_id() {
    let server = Server::start(&[]);
    let new = json!({"id": "shop.once", "streaming": true, "deduplicateBy": "id"});
    let made = create(&server, "/v1/topics", new.clone()).await;
    assert_eq!(made["deduplicateBy"], "id");
    assert_eq!(server.post("/v1/topics", &new).await.0, 200);
    create(&server, "/v1/event-types", json!({"id": "order.created", "topic": "shop.once"})).await;
    let mut sent = event("order.created", "o");
    sent["id"] = json!("11111111-1111-4111-8111-111111111111");
    for (day, status, producer) in [(1, 201, "a"), (2, 200, "b")] {
        sent["occurredAt"] = json!(format!("2026-01-0{day}T00:00:00Z"));
        let request = server.request(Method::POST, "/v1/events").header("producer-id", producer).json(&sent);
        let (said, stored) = answer(request).await;
        assert_eq!((said.as_u16(), &stored["sequence"]), (status, &json!(1)), "{stored}");
    }
    let change = server.request(Method::PATCH, "/v1/topics/shop.once").json(&json!({"deduplicateBy": "submission"}));
    let problem = expect_problem(answer(change).await, 422, "EVENT_BROKER_VALIDATION_ERROR");
    assert_eq!(problem["errors"][0]["pointer"], "/deduplicateBy");
    let other = json!({"id": "shop.once", "streaming": true});
    let problem = expect_problem(server.post("/v1/topics", &other).await, 409, "EVENT_BROKER_ALREADY_EXISTS");
    assert!(problem["detail"].as_str().unwrap().contains("deduplicateBy"), "{problem}");
    let unknown = json!({"id": "shop.other", "streaming": true, "deduplicateBy": "subject"});
    expect_problem(server.post("/v1/topics", &unknown).await, 422, "EVENT_BROKER_VALIDATION_ERROR");
}
