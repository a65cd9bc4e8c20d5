//! CloudEvents 1.0 over HTTP: structured, batched and binary in; structured and batched out; no attribute is lost.

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

/// A CloudEvent with an attribute of every type.
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

/// Every attribute that was sent is returned, and besides them only what the broker assigns.
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
    // The returned event can be sent again, and is the same event.
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

/// A binary CloudEvent with this id and these additional headers.
async fn send_binary(server: &Server, id: &str, media: &str, headers: &[(&str, &str)]) -> (reqwest::StatusCode, Value) {
    let mut request = server.request(Method::POST, "/v1/events").header("content-type", media);
    let required = [("ce-specversion", "1.0"), ("ce-id", id), ("ce-source", "/shop"), ("ce-type", CREATED)];
    for (name, value) in required.iter().chain(&[("ce-subject", "s"), ("ce-tenant", TENANT)]).chain(headers) {
        if !value.is_empty() {
            request = request.header(*name, *value);
        }
    }
    answer(request.body(r#"{"n":1}"#)).await
}

#[tokio::test]
async fn header_values_are_unquoted_and_percent_decoded() {
    let server = server().await;
    for (value, text) in [
        (r#""Euro %E2%82%AC""#, "Euro €"),
        (r#""a \"b\"""#, "a \"b\""),
        ("Euro%20%E2%82%AC", "Euro €"),
        (r#"a "b""#, r#"a "b""#),
        ("%22a%22", "\"a\""),
    ] {
        let id = uuid::Uuid::new_v4().to_string();
        let (status, stored) = send_binary(&server, &id, "application/json", &[("ce-correlationid", value)]).await;
        assert_eq!((status.as_u16(), &stored["correlationId"]), (201, &json!(text)), "{value}");
    }
}

#[tokio::test]
async fn the_content_type_of_data_is_given_back_in_both_modes() {
    let server = server().await;
    for (number, media) in
        ["application/vnd.acme+json", "application/json; charset=utf-8", "Text/JSON;x=\"a b\""].iter().enumerate()
    {
        let ids = [0, 1].map(|mode| format!("550e8400-e29b-41d4-a716-4466554400{number}{mode}"));
        let mut structured = cloud_event(&ids[0]);
        structured["datacontenttype"] = json!(media);
        assert_eq!(send(&server, "/v1/events", ONE, &structured).await.status(), 201, "{media}");
        let (status, stored) = send_binary(&server, &ids[1], media, &[]).await;
        assert_eq!((status.as_u16(), &stored["dataContentType"]), (201, &json!(media)), "{stored}");
        for id in ids {
            let out: Value = read(&server, &format!("/v1/events/{id}"), ONE).await.json().await.unwrap();
            assert_eq!(out["datacontenttype"], *media);
        }
    }
    // An export keeps it; an import accepts it only in its valid form.
    let (_, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=0&limit=1")).await;
    let line = page["items"][0].to_string();
    let id = page["items"][0]["id"].as_str().unwrap();
    let another = line.replace(id, "00000000-0000-4000-8000-000000000001");
    for (line, word) in [
        (line.clone(), r#""duplicates":1"#),
        (another.replace("application/vnd.acme+json", "text/plain"), "/dataContentType"),
    ] {
        let response = server.request(Method::POST, "/v1/events:import").body(line).send().await.unwrap();
        let report = response.text().await.unwrap();
        assert!(report.contains(word), "{report}");
    }
}

#[tokio::test]
async fn a_binary_event_that_is_none_is_refused() {
    let server = server().await;
    let id = "550e8400-e29b-41d4-a716-446655440000";
    for (name, value, pointer) in [
        ("ce-data", "x", "/data"),
        ("ce-datacontenttype", "application/json", "/datacontenttype"),
        ("ce-my-ext", "x", "/my-ext"),
        ("ce-ext", "%FF", "/ext"),
    ] {
        let problem = send_binary(&server, id, "application/json", &[(name, value)]).await;
        let problem = expect_problem(problem, 422, "EVENT_BROKER_VALIDATION_ERROR");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
    let problem = send_binary(&server, "", "application/json", &[]).await;
    assert_eq!(expect_problem(problem, 422, "EVENT_BROKER_VALIDATION_ERROR")["errors"][0]["pointer"], "/id");
    for media in ["text/plain", "notjson", "application/json; charset=iso-8859-1"] {
        let problem = send_binary(&server, id, media, &[]).await;
        expect_problem(problem, 415, "EVENT_BROKER_UNSUPPORTED_MEDIA_TYPE");
    }
    let response = send(&server, "/v1/events", &format!("{ONE}; charset=iso-8859-1"), &cloud_event(id)).await;
    assert_eq!(response.status(), 415);
    assert_eq!(server.get(&format!("/v1/events?topic={TOPIC}&offset=0")).await.1["tail"], 0);
}

#[tokio::test]
async fn a_producers_own_sequence_is_a_label() {
    let server = server().await;
    for (number, sequence) in ["0000001", "0000001", "order-7"].iter().enumerate() {
        let mut sent = cloud_event(&format!("550e8400-e29b-41d4-a716-44665544000{number}"));
        sent["sequence"] = json!(sequence);
        let response = send(&server, "/v1/events", ONE, &sent).await;
        assert_eq!(response.status(), 201, "{sequence}");
        let ours: Value = response.json().await.unwrap();
        assert_eq!((&ours["sequence"], &ours["context"]["sequence"]), (&json!(number + 1), &json!(sequence)));
        let path = format!("/v1/events/{}", ours["id"].as_str().unwrap());
        let out: Value = read(&server, &path, ONE).await.json().await.unwrap();
        assert_eq!(out["sequence"], (number + 1).to_string());
        assert_eq!(out["context"], json!({"sequence": sequence}).to_string());
    }
    // A number as the broker formats it is the expected sequence of the event.
    let mut sent = cloud_event("550e8400-e29b-41d4-a716-446655440009");
    for (sequence, status) in [("1", 409), ("9", 400), ("4", 201)] {
        sent["sequence"] = json!(sequence);
        assert_eq!(send(&server, "/v1/events", ONE, &sent).await.status(), status, "{sequence}");
    }
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
        // A plain label, one that is not a valid attribute name, one with the name of a member, and empty ones.
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
    // The members that the other broker assigns itself.
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
        (with("id", Value::Null), "/id"),
        (with("id", json!(5)), "/id"),
        (with("specversion", json!(1.0)), "/specversion"),
        (with("Ext", json!("x")), "/Ext"),
        (with("my-ext", json!("x")), "/my-ext"),
        (with("ext", json!(1.5)), "/ext"),
        (with("ext", json!(4_294_967_296_u64)), "/ext"),
        (with("datacontenttype", json!("notjson")), "/datacontenttype"),
        (with("datacontenttype", json!("text/x-json-but-not")), "/datacontenttype"),
        (with("datacontenttype", json!("application/json; charset=iso-8859-1")), "/datacontenttype"),
        (with("dataschema", json!("gts://gts.other.type.v1~#1.0")), "/dataschema"),
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
    assert_eq!(statuses, [Some(422), Some(424)], "the write to a topic is atomic");
    let (_, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=0")).await;
    assert_eq!(page["tail"], 0);
}
