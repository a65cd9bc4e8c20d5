//! CloudEvents 1.0 over HTTP: structured, batched and binary in; structured and batched out; nothing lost on the way.

use super::{CREATED, Server, TENANT, TOPIC, answer, event, expect_problem};
use reqwest::{Method, Response};
use serde_json::{Value, json};

const ONE: &str = "application/cloudevents+json";
const MANY: &str = "application/cloudevents-batch+json";

async fn server() -> Server {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    server
}

/// A CloudEvent with an attribute of every sort.
fn cloud_event(id: &str) -> Value {
    json!({
        "specversion": "1.0", "id": id, "source": "/shop/é", "type": CREATED, "subject": "o/1 é",
        "time": "2025-12-03T12:01:59.829Z", "datacontenttype": "application/json",
        "dataschema": format!("gts://{CREATED}#1.0"), "topic": TOPIC,
        "subjecttype": "gts.vendor.tenants.tenant.v1", "tenant": TENANT, "correlationid": "c-1", "causationid": "c-0",
        "messagegroup": "g", "requestid": "r-1", "actortype": "user", "actorid": "u-1", "appid": "web",
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "data": {"total": 1.5, "lines": [{"sku": "é"}], "none": null},
    })
}

async fn send(server: &Server, path: &str, media: &str, body: &Value) -> Response {
    let request = server.request(Method::POST, path).header("content-type", media).body(body.to_string());
    request.send().await.unwrap()
}

async fn read(server: &Server, path: &str, accept: &str) -> Response {
    let response = server.request(Method::GET, path).header("accept", accept).send().await.unwrap();
    assert_eq!(response.status(), 200);
    response
}

/// Everything that went in came out, and besides it only what the broker assigns.
fn same(out: &Value, sent: &Value) {
    for (name, value) in sent.as_object().unwrap() {
        assert_eq!(&out[name], value, "{name} in {out}");
    }
    let assigned = ["sequence", "position", "aggregatesequence", "createdat"];
    for name in out.as_object().unwrap().keys() {
        assert!(sent.get(name).is_some() || assigned.contains(&name.as_str()), "{name} was never sent: {out}");
        let is_a_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        assert!(is_a_name && (1..=20).contains(&name.len()), "{name} may not be an attribute's name");
    }
    for name in ["sequence", "position", "aggregatesequence"] {
        assert!(out[name].as_str().is_some_and(|text| text.parse::<u64>().is_ok()), "{name} in {out}");
    }
}

#[tokio::test]
async fn a_structured_event_comes_out_as_it_went_in() {
    let server = server().await;
    let sent = cloud_event("550e8400-e29b-41d4-a716-446655440000");
    let response = send(&server, "/v1/events", "application/cloudevents+json; charset=utf-8", &sent).await;
    assert_eq!(response.status(), 201);
    let ours: Value = response.json().await.unwrap();
    assert_eq!((&ours["occurredAt"], &ours["subjectType"]), (&sent["time"], &sent["subjecttype"]));
    assert_eq!((&ours["actor"], &ours["context"]), (&json!({"type": "user", "id": "u-1"}), &json!({"appid": "web"})));
    assert_eq!((&ours["dataVersion"], &ours["data"]), (&json!("1.0"), &sent["data"]));
    let response = read(&server, "/v1/events/550e8400-e29b-41d4-a716-446655440000", ONE).await;
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with(ONE));
    let out: Value = response.json().await.unwrap();
    same(&out, &sent);
    // What came out goes in again, and is the same event.
    let again = send(&server, "/v1/events", ONE, &out).await;
    assert_eq!((again.status().as_u16(), &again.headers()["idempotent-replayed"]), (200, &"true".parse().unwrap()));
}

#[tokio::test]
async fn a_batch_comes_out_as_a_batch_with_its_offsets_in_headers() {
    let server = server().await;
    let sent: Vec<_> =
        (0..3).map(|number| cloud_event(&format!("550e8400-e29b-41d4-a716-44665544000{number}"))).collect();
    for (path, events) in [("/v1/events", &sent[..2]), ("/v1/events:batch", &sent[2..])] {
        let response = send(&server, path, MANY, &json!(events)).await;
        assert_eq!(response.status(), 207, "{path}");
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["meta"]["succeeded"], events.len(), "{answer}");
    }
    for (path, next, sent) in [
        (format!("/v1/events?topic={TOPIC}&offset=0&limit=2"), "2", &sent[..2]),
        (format!("/v1/events:poll?topic={TOPIC}&offset=1"), "3", &sent[1..]),
    ] {
        let response = read(&server, &path, MANY).await;
        assert!(response.headers()["content-type"].to_str().unwrap().starts_with(MANY));
        assert_eq!(["next-offset", "tail"].map(|name| response.headers()[name].clone()), [next, "3"]);
        let out: Vec<Value> = response.json().await.unwrap();
        assert_eq!(out.len(), 2);
        out.iter().zip(sent).for_each(|(out, sent)| same(out, sent));
    }
    let log = read(&server, "/v1/log?after=0", MANY).await;
    assert_eq!(log.headers()["next-offset"], log.headers()["tail"]);
    assert_eq!(log.json::<Vec<Value>>().await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_binary_event_comes_out_as_its_headers_and_body_said() {
    let server = server().await;
    let mut sent = cloud_event("550e8400-e29b-41d4-a716-446655440000");
    let mut request = server.request(Method::POST, "/v1/events").header("content-type", "application/json");
    for (name, value) in
        sent.as_object().unwrap().iter().filter(|(name, _)| !matches!(name.as_str(), "data" | "datacontenttype"))
    {
        let text = percent_encoding::utf8_percent_encode(value.as_str().unwrap(), percent_encoding::CONTROLS);
        request = request.header(format!("ce-{name}"), text.to_string().replace(' ', "%20"));
    }
    let (status, stored) = answer(request.body(sent["data"].to_string())).await;
    assert_eq!(status, 201, "{stored}");
    let out: Value = read(&server, "/v1/events/550e8400-e29b-41d4-a716-446655440000", ONE).await.json().await.unwrap();
    sent["datacontenttype"] = json!("application/json");
    same(&out, &sent);
}

#[tokio::test]
async fn an_event_of_ours_survives_the_way_through_cloud_events() {
    let (from, to) = (server().await, server().await);
    let mut ours = event(CREATED, "s-1");
    for (name, value) in [
        ("subjectType", json!("gts.vendor.tenants.tenant.v1~")),
        ("occurredAt", json!("2025-12-03T12:01:59.829Z")),
        ("correlationId", json!("c")),
        ("causationId", json!("é\n")),
        ("messageGroup", json!("g")),
        ("deduplicationId", json!("d")),
        ("requestId", json!("r")),
        ("traceParent", json!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")),
        ("actor", json!({"type": "service_principal", "id": "p"})),
        // A plain label, one that cannot be an attribute's name, one that has the name of a member, and empty ones.
        (
            "context",
            json!({"app": "web", "Env Id": "eu", "tenant": "t", "data": "d", "sequence": "9", "none": "", "": "x"}),
        ),
        ("data", json!({"big": 12345678901234567890_u64, "text": "\u{7f}é\u{10ffff}", "deep": [[[{}]]]})),
    ] {
        ours[name] = value;
    }
    let (status, stored) = from.post("/v1/events", &ours).await;
    assert_eq!(status, 201, "{stored}");
    let path = format!("/v1/events/{}", stored["id"].as_str().unwrap());
    let mut out: Value = read(&from, &path, ONE).await.json().await.unwrap();
    // What the other broker assigns itself.
    for name in ["sequence", "position", "aggregatesequence", "createdat"] {
        out.as_object_mut().unwrap().remove(name).unwrap();
    }
    assert_eq!(send(&to, "/v1/events", ONE, &out).await.status(), 201);
    let (_, mut arrived) = to.get(&path).await;
    let mut stored = stored;
    for event in [&mut arrived, &mut stored] {
        event["createdAt"].take();
        event["position"].take();
    }
    assert_eq!(arrived, stored);
}

#[tokio::test]
async fn what_is_no_cloud_event_is_refused_by_pointer_and_alone() {
    let server = server().await;
    let sent = cloud_event("550e8400-e29b-41d4-a716-446655440000");
    let with = |name: &str, value: Value| {
        let mut event = sent.clone();
        event[name] = value;
        event
    };
    for (body, pointer) in [
        (with("specversion", json!("0.3")), "/specversion"),
        (with("specversion", Value::Null), "/specversion"),
        (with("source", Value::Null), "/source"),
        (with("type", Value::Null), "/type"),
        (with("id", json!("")), "/id"),
        (with("id", json!("x".repeat(513))), "/id"),
        (with("id", json!("a\u{0}b")), "/id"),
        (with("time", json!("yesterday")), "/time"),
        (with("datacontenttype", json!("text/xml")), "/datacontenttype"),
        (with("dataschema", json!("https://example.com/schema")), "/dataschema"),
        (with("data_base64", json!("AA==")), "/data_base64"),
        (with("data", json!("text")), "/data"),
        (with("actorid", Value::Null), "/actorid"),
        (with("appid", json!({})), "/appid"),
        (with("expectedaggregatesequence", json!("x")), "/expectedaggregatesequence"),
    ] {
        let response = send(&server, "/v1/events", ONE, &body).await;
        let problem = (response.status(), response.json().await.unwrap());
        let problem = expect_problem(problem, 422, "EVENT_BROKER_VALIDATION_ERROR");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
    let other = with("id", json!("550e8400-e29b-41d4-a716-446655440001"));
    let response = send(&server, "/v1/events:batch", MANY, &json!([with("source", Value::Null), other])).await;
    let answer: Value = response.json().await.unwrap();
    let statuses: Vec<_> = [0, 1].map(|index| answer["data"]["results"][index]["status"].as_u64()).into();
    assert_eq!(statuses, [Some(422), Some(424)], "a topic is all or nothing");
    let (_, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=0")).await;
    assert_eq!(page["tail"], 0);
}
