//! Schemas that take far more to compile, or to validate an event, than the size of their text suggests.
//!
//! During each attack, a bystander publishes events that are validated against a schema of their own.

use super::super::{CREATED, Server, answer, event, expect_problem};
use super::BystanderPublisher;
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Far longer than any response here takes: a runaway compilation would take minutes, or not end.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

fn type_with(name: &str, schema: &Value) -> Value {
    json!({"id": format!("attack.{name}"), "dataSchema": schema})
}

fn type_with_xsd(name: &str, schema: &str) -> Value {
    let version = json!({"version": "1.0", "schemaType": "XSD", "schema": schema});
    json!({"id": format!("attack.{name}"), "versions": [version]})
}

/// A broker with a type that has a schema, and a bystander that publishes its events.
async fn attacked() -> (Server, BystanderPublisher) {
    let server = Server::start(&[]);
    let schema = json!({"properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let (status, told) = server.post("/v1/event-types", &json!({"id": CREATED, "dataSchema": schema})).await;
    assert_eq!(status, 201, "{told}");
    let mut bystander = BystanderPublisher::begin(&server);
    bystander.goes_on(1).await;
    (server, bystander)
}

/// Posts a body, and calls `/healthz` until the response arrives, which must be in time.
async fn post(server: &Server, what: &str, path: &str, body: &Value) -> (reqwest::StatusCode, Value) {
    let begun = Instant::now();
    let mut posted = Box::pin(server.post(path, body));
    loop {
        let health = answer(server.request(Method::GET, "/healthz"));
        let (done, health) = tokio::join!(tokio::time::timeout(Duration::from_millis(5), &mut posted), health);
        assert_eq!(health.0, 200, "{what}");
        if let Ok(answered) = done {
            return answered;
        }
        assert!(begun.elapsed() < ANSWERED_WITHIN, "{what} gets no response");
    }
}

async fn expect_refused(server: &Server, what: &str, body: &Value) -> Value {
    let refused = post(server, what, "/v1/event-types", body).await;
    assert_eq!(refused.0, 422, "{what}: {}", refused.1);
    expect_problem(refused, 422, "EVENT_BROKER_VALIDATION_ERROR")
}

/// Members whose patterns take more than half a megabyte of memory each: 600 of them are 22 KB of text.
fn members(count: usize) -> Map<String, Value> {
    (0..count).map(|n| (format!("m{n}"), json!({"pattern": format!(r"\p{{L}}{{20}}{n}")}))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_whose_patterns_are_too_many_or_too_large_is_refused_while_others_are_served() {
    let (server, bystander) = attacked().await;
    let named: Map<String, Value> = (0..150).map(|n| (format!(r"\p{{L}}{{20}}{n}"), json!({}))).collect();
    for (name, schema) in [
        ("many", json!({"properties": members(600)})),
        ("large", json!({"properties": members(150)})),
        ("named", json!({"patternProperties": named})),
        ("nested", json!({"properties": {"a": {"pattern": "(((((a{100}){100}){100}){100}){100}){100}"}}})),
        ("hidden", json!({"$defs": {"unused": {"anyOf": [{"properties": members(150)}]}}})),
        ("default", json!({"properties": {"default": {"properties": members(150)}}})),
        ("examples", json!({"$defs": {"examples": {"properties": members(150)}}})),
        ("referred", json!({"$ref": "#/default/x", "default": {"x": {"properties": members(150)}}})),
        ("class", json!({"pattern": format!("[{}]", scattered(40_000))})),
        ("escapes", json!({"pattern": r"\cA".repeat(60_000)})),
    ] {
        expect_refused(&server, name, &type_with(name, &schema)).await;
        // No type is registered, so nothing can be published.
        let (status, _) = post(&server, name, "/v1/events", &event(&format!("attack.{name}"), "s")).await;
        assert!(status.is_client_error(), "{name} {status}");
    }
    bystander.end().await;
}

/// Characters of which no two are adjacent, so that each is a separate range.
fn scattered(count: u32) -> String {
    (0..count).filter_map(|n| char::from_u32(0x2_0000 + 2 * n)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_whose_references_multiply_is_refused_however_they_are_written() {
    let (server, bystander) = attacked().await;
    let levels = 40;
    // Each level is visited twice by the level above it.
    let doubling = |level: &dyn Fn(usize) -> Value, to: &dyn Fn(usize) -> Value| {
        let parts: Map<String, Value> = (0..levels)
            .map(|n| {
                let mut part = level(n);
                if n + 1 < levels {
                    part["allOf"] = json!([to(n + 1), to(n + 1)]);
                }
                (format!("d{n}"), part)
            })
            .collect();
        let mut schema = to(0);
        schema["$defs"] = parts.into();
        schema
    };
    for (name, schema) in [
        ("pointers", doubling(&|_| json!({}), &|n| json!({"$ref": format!("#/$defs/d{n}")}))),
        ("encoded", doubling(&|_| json!({}), &|n| json!({"$ref": format!("#/%24defs/d{n}")}))),
        ("anchors", doubling(&|n| json!({"$anchor": format!("a{n}")}), &|n| json!({"$ref": format!("#a{n}")}))),
        (
            "dynamic",
            doubling(&|n| json!({"$dynamicAnchor": format!("a{n}")}), &|n| json!({"$dynamicRef": format!("#a{n}")})),
        ),
        ("ids", doubling(&|n| json!({"$id": format!("urn:a{n}")}), &|n| json!({"$ref": format!("urn:a{n}")}))),
        (
            "relative",
            doubling(
                &|n| json!({"$id": format!("http://a.example/b/a{n}")}),
                &|n| json!({"$ref": format!("http://a.example/c/../b/a{n}")}),
            ),
        ),
        (
            "chains",
            json!({"$id": "urn:root", "$ref": "urn:a0", "$defs": (0..30).flat_map(|n| ["a", "b"].map(|name| {
                let next = n + 1;
                let members = json!({"x": {"$ref": format!("urn:a{next}")}, "y": {"$ref": format!("urn:b{next}")}});
                let members = if next < 30 { members } else { json!({}) };
                (format!("{name}{n}"), json!({"$id": format!("urn:{name}{n}"), "properties": members}))
            })).collect::<Map<_, _>>()}),
        ),
        (
            "circles",
            json!({"$ref": "#/$defs/d0", "$defs": (0..12).map(|n| {
                let others = (0..12).filter(|other| *other != n);
                let others: Vec<_> = others.map(|other| json!({"$ref": format!("#/$defs/d{other}")})).collect();
                (format!("d{n}"), json!({"allOf": others}))
            }).collect::<Map<_, _>>()}),
        ),
    ] {
        expect_refused(&server, name, &type_with(name, &schema)).await;
    }
    bystander.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn references_as_people_write_them_are_taken() {
    let server = Server::start(&[]);
    for (n, schema) in [
        json!({"$ref": "#item", "$defs": {"i": {"$anchor": "item", "type": "object"}}}),
        json!({"$id": "https://a.example/order", "properties": {"lines": {"items": {"$ref": "line"}}},
            "$defs": {"line": {"$id": "line", "type": "object", "properties": {"sku": {"$ref": "#/$defs/sku"}},
                "$defs": {"sku": {"type": "string"}}}}}),
        json!({"$dynamicAnchor": "node", "properties": {"children": {"items": {"$dynamicRef": "#node"}}}}),
        json!({"properties": {"default": {"$ref": "#/properties/examples"}, "examples": {"type": "string"}}}),
        json!({"const": {"$ref": "#/nowhere", "$schema": "urn:mine", "$id": "urn:x"}}),
        json!({"properties": {"schema": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}}),
        json!({"$ref": "#/x-parts/a%20b", "x-parts": {"a b": {"type": "object"}}}),
        json!({"$ref": "#/components/schemas/default", "components": {"schemas": {"default": {"type": "object"}}}}),
    ]
    .into_iter()
    .enumerate()
    {
        let (status, told) = server.post("/v1/event-types", &type_with(&format!("ordinary{n}"), &schema)).await;
        assert_eq!(status, 201, "{schema} {told}");
    }
}

fn xsd(body: &str) -> String {
    format!(r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">{body}</xs:schema>"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_xml_schema_whose_patterns_are_too_large_is_refused() {
    let (server, bystander) = attacked().await;
    let facets: String = (0..40).fold(String::new(), |mut facets, n| {
        let _ = write!(facets, r#"<xs:pattern value="\p{{L}}{{20}}{n}"/>"#);
        facets
    });
    let restricted = |base: &str, facets: &str| format!(r#"<xs:restriction base="{base}">{facets}</xs:restriction>"#);
    let many = format!(
        r#"<xs:element name="a"><xs:simpleType>{}</xs:simpleType></xs:element>"#,
        restricted("xs:string", &facets)
    );
    let content = format!(
        r#"<xs:complexType name="t"><xs:simpleContent>{}</xs:simpleContent></xs:complexType>"#,
        restricted("xs:string", &facets)
    );
    for (name, body) in [("facets", many), ("content", content)] {
        let problem = expect_refused(&server, name, &type_with_xsd(name, &xsd(&body))).await;
        assert_eq!(problem["errors"][0]["pointer"], "/versions/0/schema");
    }
    bystander.end().await;
}

/// Publishes events of one type at the same time, all of which must be accepted.
async fn publish_at_once(server: &Server, event_type: &str, data: Vec<Value>) {
    let events = data.into_iter().map(|data| {
        let mut event = event(event_type, "s");
        event["data"] = data;
        async move { post(server, "an event", "/v1/events", &event).await }
    });
    for (status, told) in join_all(events).await {
        assert_eq!(status, 201, "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_come_at_once_or_have_many_names_are_taken_while_others_are_served() {
    let (server, bystander) = attacked().await;
    let mut enumerated = String::new();
    for n in 0..2_000 {
        let _ = write!(enumerated, r#"<xs:enumeration value="v{n}"/>"#);
    }
    let schema = xsd(&format!(
        r#"<xs:element name="a"><xs:complexType><xs:sequence>
           <xs:any processContents="skip" minOccurs="0" maxOccurs="unbounded"/></xs:sequence></xs:complexType></xs:element>
           <xs:simpleType name="v"><xs:restriction base="xs:string">{enumerated}</xs:restriction></xs:simpleType>"#
    ));
    let (status, told) = server.post("/v1/event-types", &type_with_xsd("documents", &schema)).await;
    assert_eq!(status, 201, "{told}");
    let names: String = (0..20_000).fold(String::new(), |mut names, n| {
        let _ = write!(names, "<element-number-{n}/>");
        names
    });
    let documents = vec![json!({"xml": format!("<a>{names}</a>")}); 4];
    publish_at_once(&server, "attack.documents", documents).await;
    publish_at_once(&server, "attack.documents", vec![json!({"xml": "<a/>"}); 16]).await;
    bystander.end().await;
}

/// A schema of the maximum size.
fn largest(n: usize) -> Value {
    let members: Map<String, Value> =
        (0..6).map(|m| (format!("m{m}"), json!({"pattern": format!(r"^\p{{L}}{{20}}{n}")}))).collect();
    json!({"properties": members})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_events_after_a_restart_are_taken_while_large_schemas_are_compiled() {
    let (server, bystander) = attacked().await;
    for n in 0..6 {
        let (status, told) = server.post("/v1/event-types", &type_with(&format!("large{n}"), &largest(n))).await;
        assert_eq!(status, 201, "{told}");
    }
    bystander.end().await;
    let server = Server::start_in(server.kill(), &[]);
    let mut bystander = BystanderPublisher::begin(&server);
    let large = (0..6).map(|n| format!("attack.large{n}")).collect::<Vec<_>>();
    join_all(large.iter().map(|large| publish_at_once(&server, large, vec![json!({}); 4]))).await;
    bystander.goes_on(1).await;
    bystander.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_on_the_content_of_an_element_is_not_compiled_for_every_value() {
    let (server, bystander) = attacked().await;
    let schema = xsd(
        r#"<xs:complexType name="text"><xs:simpleContent><xs:extension base="xs:string"/></xs:simpleContent></xs:complexType>
           <xs:complexType name="word"><xs:simpleContent><xs:restriction base="text">
             <xs:pattern value="\p{L}{1,20}"/></xs:restriction></xs:simpleContent></xs:complexType>
           <xs:element name="a"><xs:complexType><xs:sequence>
             <xs:element name="b" type="word" minOccurs="0" maxOccurs="unbounded"/></xs:sequence></xs:complexType></xs:element>"#,
    );
    let (status, told) = server.post("/v1/event-types", &type_with_xsd("content", &schema)).await;
    assert_eq!(status, 201, "{told}");
    publish_at_once(
        &server,
        "attack.content",
        vec![json!({"xml": format!("<a>{}</a>", "<b>word</b>".repeat(20_000))})],
    )
    .await;
    bystander.end().await;
}

#[tokio::test]
async fn patterns_as_people_write_them_are_taken() {
    let server = Server::start(&[]);
    let members: Map<String, Value> = [
        r"^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,255}\.[A-Za-z]{2,}$",
        r"^\+?[1-9]\d{1,14}$",
        r"^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
        r"^\p{L}[\p{L}\p{M} '-]{0,15}$",
        r"^\w{1,200}$",
        r"^[^\u0000-\u001F]{1,1000}$",
    ]
    .iter()
    .enumerate()
    .map(|(n, pattern)| (format!("m{n}"), json!({"type": "string", "pattern": pattern})))
    .collect();
    let (status, told) = server.post("/v1/event-types", &type_with("people", &json!({"properties": members}))).await;
    assert_eq!(status, 201, "{told}");
}
