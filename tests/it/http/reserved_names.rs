//! Names that callers may not use: the nil tenant, the broker's own topics, and logs that the configuration does not
//! allow.

use super::{CREATED, Server, TOPIC, answer, event};
use reqwest::Method;
use serde_json::{Value, json};

const NIL: &str = "00000000-0000-0000-0000-000000000000";
const NEWS: &str = "gts.hx.core.events.topic.v1~hx.broker.dispatch.operations.v1";
const RESERVED: [&str; 3] = [NEWS, "gts.hx.broker.events.topic.v1~", "acme.hx.broker.orders"];

/// The pointer of a refusal with 422.
fn refused_at((status, problem): &(reqwest::StatusCode, Value)) -> &str {
    assert_eq!(status.as_u16(), 422, "{problem}");
    assert_eq!(problem["type"], "https://errors.hyperspot.com/EVENT_BROKER_VALIDATION_ERROR", "{problem}");
    problem["errors"][0]["pointer"].as_str().unwrap()
}

async fn stored(server: &Server) -> usize {
    server.get("/v1/log?after=0").await.1["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn the_nil_uuid_is_no_tenant_wherever_one_is_named() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let nil = || {
        let mut event = event(CREATED, "s");
        event["tenant"] = json!(NIL);
        event
    };
    assert_eq!(refused_at(&server.post("/v1/events", &nil()).await), "/tenant");
    let (status, batch) = server.post("/v1/events:batch", &json!({"events": [nil()]})).await;
    assert_eq!(status, 207);
    let result = &batch["data"]["results"][0];
    assert_eq!((&result["status"], &result["error"]["errors"][0]["pointer"]), (&json!(422), &json!("/tenant")));
    let lines = server.request(Method::POST, "/v1/events:import").header("content-type", "application/x-ndjson");
    let report = lines.body(format!("{}\n", nil())).send().await.unwrap().text().await.unwrap();
    assert!(report.contains("EVENT_BROKER_VALIDATION_ERROR") && report.contains("/tenant"), "{report}");
    let cloud = json!({"specversion": "1.0", "id": "1", "type": CREATED, "source": "s", "subject": "s", "tenant": NIL,
        "data": {}});
    let structured = server.request(Method::POST, "/v1/events").header("content-type", "application/cloudevents+json");
    assert_eq!(refused_at(&answer(structured.body(cloud.to_string())).await), "/tenant");
    for path in ["/v1/events?offset=0&", "/v1/events:poll?offset=0&", "/v1/events:stream?", "/v1/log?after=0&"] {
        let topic = if path.starts_with("/v1/log") { String::new() } else { format!("topic={TOPIC}&") };
        assert_eq!(refused_at(&server.get(&format!("{path}{topic}tenant={NIL}")).await), "/tenant", "{path}");
    }
    assert_eq!(stored(&server).await, 0);

    let subscription = json!({"code": "mail", "topic": TOPIC, "target": "https://example.com/", "tenant": NIL});
    assert_eq!(refused_at(&server.post("/v1/subscriptions", &subscription).await), "/tenant");
    let made = json!({"code": "mail", "topic": TOPIC, "target": "https://example.com/"});
    assert_eq!(server.post("/v1/subscriptions", &made).await.0, 201);
    let change = server.request(Method::PATCH, "/v1/subscriptions/mail").json(&json!({"tenant": NIL}));
    assert_eq!(refused_at(&answer(change).await), "/tenant");

    let (status, first) = server.post("/v1/events", &event(CREATED, "s")).await;
    assert_eq!(status, 201);
    let (_, claimed) = server.post("/v1/claims", &json!({"handler": "h", "eventId": first["id"]})).await;
    let (id, token) = (claimed["claim"]["id"].as_str().unwrap(), &claimed["claim"]["token"]);
    let done = server.post(&format!("/v1/claims/{id}:done"), &json!({"token": token, "events": [nil()]})).await;
    let pointer = refused_at(&done);
    assert!(pointer.ends_with("/tenant"), "{pointer}");
    assert_eq!(stored(&server).await, 1);
}

#[tokio::test]
async fn topics_of_the_broker_are_read_and_nothing_else() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let made = json!({"code": "mail", "topic": TOPIC, "target": "https://example.com/"});
    assert_eq!(server.post("/v1/subscriptions", &made).await.0, 201);
    assert_eq!(server.post("/v1/subscriptions/mail:pause", &json!({})).await.0, 200);
    let before = stored(&server).await;
    for topic in RESERVED {
        let new = json!({"id": topic, "streaming": true});
        assert_eq!(refused_at(&server.post("/v1/topics", &new).await), "/id", "{topic}");
        let new = json!({"id": "gts.acme.core.events.type.v1~acme.forged.x.v1", "topic": topic});
        assert_eq!(refused_at(&server.post("/v1/event-types", &new).await), "/topic", "{topic}");
        let mut forged = event("gts.hyperspot.core.events.type.v1~hx.broker.dispatch.job_dead.v1", "s");
        forged["topic"] = json!(topic);
        assert_eq!(server.post("/v1/events", &forged).await.0, 422, "{topic}");
        let patch = server.request(Method::PATCH, &format!("/v1/topics/{topic}"));
        assert_eq!(refused_at(&answer(patch.json(&json!({"retention": "PT1S"}))).await), "/id", "{topic}");
        let orders = [
            (":trim", json!({"through": 1})),
            (":compact", json!({})),
            (":republish", json!({"target": "topic", "fromSequence": 1})),
        ];
        for (verb, order) in orders {
            let (status, problem) = server.post(&format!("/v1/topics/{topic}{verb}"), &order).await;
            assert_eq!(status, 422, "{topic} {verb}: {problem}");
        }
    }
    assert_eq!(stored(&server).await, before);
    let (status, page) = server.get(&format!("/v1/events?topic={NEWS}&offset=0")).await;
    assert_eq!((status.as_u16(), &page["items"][0]["source"]), (200, &json!("event-broker")), "{page}");
}

#[tokio::test]
async fn unregistered_types_do_not_lead_to_the_brokers_topics_either() {
    let server = Server::start_with(&[("EVENT_BROKER__TYPES__UNREGISTERED", "accept")], &[]);
    let mut forged = event("gts.acme.core.events.type.v1~acme.forged.x.v1", "s");
    forged["topic"] = json!(NEWS);
    // Without a default topic the event itself must name its topic.
    let (status, problem) = server.post("/v1/events", &forged).await;
    assert_eq!(status, 422, "{problem}");
    assert_eq!(problem["errors"][0]["pointer"], "/topic", "{problem}");
}

#[tokio::test]
async fn side_logs_that_the_configuration_forbids_are_refused_with_the_setting() {
    if super::is_on_databases() {
        return; // Every topic lives in the database.
    }
    let elsewhere = tempfile::TempDir::new().unwrap();
    let locations = elsewhere.path().canonicalize().unwrap().to_str().unwrap().to_owned();
    let listed = format!("[{locations}]");
    let variables =
        [("EVENT_BROKER__STORAGE__SIDE_LOGS", "false"), ("EVENT_BROKER__STORAGE__LOCATIONS", listed.as_str())];
    let server = Server::start_with(&variables, &[]);
    for (number, streaming) in
        [json!({"type": "memory"}), json!({"type": "file", "location": "file://a/b"})].iter().enumerate()
    {
        let refusal =
            server.post("/v1/topics", &json!({"id": format!("side.t{number}"), "streaming": streaming})).await;
        assert_eq!(refused_at(&refusal), "/streaming");
        assert!(refusal.1["errors"][0]["detail"].as_str().unwrap().contains("`storage.side_logs"), "{}", refusal.1);
    }
    for (number, streaming) in [
        json!(true),
        json!({"type": "file"}),
        json!({"retention": "P1D"}),
        json!({"type": "file", "location": format!("file://{locations}/x")}),
    ]
    .iter()
    .enumerate()
    {
        let made =
            server.post("/v1/topics", &json!({"id": format!("allowed.t{number}"), "streaming": streaming})).await;
        assert_eq!(made.0, 201, "{}", made.1);
    }
}
