//! Event types, subscriptions and events named by codes, with `contextData`, as an application sends them.
//!
//! Its events name no tenant, so the broker is configured not to require one. Its `id`s are TSIDs, sent as CloudEvents.

use super::subscriptions::{PRIVATE, WebhookReceiver};
use super::{Server, TOPIC, answer};
use reqwest::Method;
use serde_json::{Value, json};

fn server() -> Server {
    let mut variables = PRIVATE.to_vec();
    variables.push(("EVENT_BROKER__TENANT__REQUIRED", "false"));
    Server::start_with(&variables, &[])
}

async fn create(server: &Server, path: &str, body: Value) -> Value {
    let (status, made) = server.post(path, &body).await;
    assert_eq!(status, 201, "{path}: {made}");
    made
}

#[tokio::test]
async fn the_event_of_the_ingestion_example_is_stored() {
    let server = server();
    server.register("order.created").await;
    let request = server.request(Method::POST, "/v1/events").header("content-type", "application/json").body(
        r#"{
  "type": "order.created",
  "source": "ecommerce-api",
  "subject": "order:12345",
  "data": {"amount": 99.99, "items": 3}
}"#,
    );
    let (status, stored) = answer(request).await;
    assert_eq!(
        (status.as_u16(), &stored["type"], &stored["subject"]),
        (201, &json!("order.created"), &json!("order:12345"))
    );
    let (_, aggregate) = server.get(&format!("/v1/aggregates/-/order:12345?topic={TOPIC}")).await;
    assert_eq!(aggregate["lastEvent"], stored);
}

#[tokio::test]
async fn the_event_with_context_data_is_searched_by_it() {
    let server = server();
    server.register("order.created").await;
    let mut event: Value = serde_json::from_str(
        r#"{
  "type": "order.created",
  "subject": "order:12345",
  "data": {"amount": 99.99},
  "contextData": [
    {"key": "customer_id", "value": "cust_789"},
    {"key": "region", "value": "us-west"}
  ]
}"#,
    )
    .unwrap();
    event["source"] = json!("ecommerce-api");
    let stored = create(&server, "/v1/events", event).await;
    assert_eq!(stored["context"], json!({"customer_id": "cust_789", "region": "us-west"}));
    for (label, count) in [("customer_id=cust_789", 1), ("region=us-east", 0)] {
        let (_, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=0&context.{label}")).await;
        assert_eq!(page["items"].as_array().unwrap().len(), count, "{label}");
    }
}

#[tokio::test]
async fn an_event_under_a_tsid_comes_as_a_cloud_event() {
    let server = server();
    server.register("order.created").await;
    let event = json!({
        "specversion": "1.0", "id": "0HZXEQ5Y8JY5Z", "type": "order.created", "source": "ecommerce-api",
        "subject": "order:12345", "correlationid": "c-1", "causationid": "0HZXEQ5Y8JY5Y", "messagegroup": "order:12345",
        "deduplicationid": "order-12345-created", "data": {"amount": 99.99},
    });
    let request = server.request(Method::POST, "/v1/events").header("content-type", "application/cloudevents+json");
    let (status, stored) = answer(request.body(event.to_string())).await;
    assert_eq!((status.as_u16(), &stored["cloudEventId"]), (201, &json!("0HZXEQ5Y8JY5Z")), "{stored}");
    assert_eq!((&stored["messageGroup"], &stored["causationId"]), (&json!("order:12345"), &json!("0HZXEQ5Y8JY5Y")));
}

#[tokio::test]
async fn types_are_registered_by_their_codes_with_versions_in_three_languages() {
    let server = server();
    for code in
        ["ecommerce:orders:order:created", "ecommerce:orders:order:shipped", "crm:customers:customer:registered"]
    {
        create(&server, "/v1/event-types", json!({"id": code, "description": "from the document"})).await;
        let (_, shown) = server.get(&format!("/v1/event-types/{code}")).await;
        assert_eq!(shown["id"], code);
    }
    let proto = r#"syntax = "proto3"; message OrderCreated { double amount = 1; }"#;
    let xsd = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="order"><xs:complexType><xs:sequence><xs:element name="amount" type="xs:decimal"/></xs:sequence></xs:complexType></xs:element></xs:schema>"#;
    let json_schema = json!({
        "$id": "gts://ecommerce:orders:order:created", "type": "object", "required": ["amount"],
        "properties": {"amount": {"$ref": "gts://ecommerce:orders:order:created#/$defs/amount"}},
        "$defs": {"amount": {"type": "number"}},
    });
    for (code, schema_type, schema) in [
        ("ecommerce:orders:order:created", "JSON_SCHEMA", json_schema),
        ("ecommerce:orders:order:shipped", "PROTO", json!(proto)),
        ("crm:customers:customer:registered", "XSD", json!(xsd)),
    ] {
        let version =
            json!({"version": "1.0", "mimeType": "application/json", "schemaType": schema_type, "schema": schema});
        let made = create(&server, &format!("/v1/event-types/{code}/versions"), version).await;
        assert_eq!(made["status"], "FINALISING", "{made}");
        let (status, current) = server.post(&format!("/v1/event-types/{code}/versions/1.0:finalise"), &json!({})).await;
        assert_eq!((status.as_u16(), &current["status"]), (200, &json!("CURRENT")), "{current}");
    }
    let event = |code: &str, data: Value| json!({"type": code, "source": "s", "subject": "order:12345", "data": data});
    let created = event("ecommerce:orders:order:created", json!({"amount": 99.99}));
    let stored = create(&server, "/v1/events", created).await;
    assert_eq!(stored["dataVersion"], "1.0");
    let path = format!("/v1/events/{}", stored["id"].as_str().unwrap());
    let out = server.request(Method::GET, &path).header("accept", "application/cloudevents+json");
    assert_eq!(answer(out).await.1["dataschema"], "gts://ecommerce:orders:order:created#1.0");
    create(&server, "/v1/events", event("ecommerce:orders:order:shipped", json!({"amount": 99.99}))).await;
    create(
        &server,
        "/v1/events",
        event("crm:customers:customer:registered", json!({"xml": "<order><amount>9.5</amount></order>"})),
    )
    .await;
    let (status, refused) = server.post("/v1/events", &event("ecommerce:orders:order:created", json!({}))).await;
    assert_eq!((status.as_u16(), &refused["errors"][0]["pointer"]), (422, &json!("/data")), "{refused}");
}

/// A CloudEvent names its schema; for a code the name is `gts://{code}#{dataVersion}`.
#[tokio::test]
async fn the_schema_of_a_code_is_named_by_a_cloud_event() {
    let server = server();
    create(&server, "/v1/event-types", json!({"id": "order.created", "dataSchema": {"type": "object"}})).await;
    let event = json!({
        "specversion": "1.0", "id": "1", "type": "order.created", "source": "s", "subject": "o",
        "dataschema": "gts://order.created#1.0", "data": {},
    });
    let request = server.request(Method::POST, "/v1/events").header("content-type", "application/cloudevents+json");
    let (status, stored) = answer(request.body(event.to_string())).await;
    assert_eq!((status.as_u16(), &stored["dataVersion"]), (201, &json!("1.0")), "{stored}");
}

#[tokio::test]
async fn a_subscription_by_code_delivers_in_the_message_group_of_the_example() {
    let server = server();
    server.register("ecommerce:orders:order:created").await;
    server.register("crm:customers:customer:registered").await;
    let receiver = WebhookReceiver::start(0).await;
    let new = json!({
        "code": "order-processor", "name": "Order processor", "topic": TOPIC, "target": receiver.url,
        "eventTypes": [{"type": "ecommerce:orders:*"}], "mode": "BLOCK_ON_ERROR",
    });
    create(&server, "/v1/subscriptions", new).await;
    for code in ["crm:customers:customer:registered", "ecommerce:orders:order:created"] {
        let event = json!({
            "type": code, "source": "ecommerce-api", "subject": "order:12345", "messageGroup": "order:12345", "data": {},
        });
        create(&server, "/v1/events", event).await;
    }
    let (_, delivered, _) = receiver.heard(1).await.remove(0);
    assert_eq!(delivered["type"], "ecommerce:orders:order:created");
    let (_, jobs) = server.get("/v1/dispatch-jobs?subscription=order-processor").await;
    assert_eq!(jobs["items"].as_array().unwrap().len(), 1, "{jobs}");
    assert_eq!(jobs["items"][0]["messageGroup"], "order-processor:order:12345", "{jobs}");
}
