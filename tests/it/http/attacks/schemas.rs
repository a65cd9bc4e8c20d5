//! Schemas that take far more to compile than their text promises.

use super::super::{CREATED, Server, answer, expect_problem};
use super::Bystander;
use reqwest::Method;
use serde_json::{Value, json};

fn type_with(name: &str, schema: &Value) -> Value {
    json!({"id": format!("attack.{name}"), "dataSchema": schema})
}

#[tokio::test]
async fn a_schema_whose_patterns_are_too_many_or_too_large_is_refused_while_others_are_served() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let bystander = Bystander::begin(&server);
    let members = |count: usize| -> serde_json::Map<String, Value> {
        (0..count).map(|n| (format!("m{n}"), json!({"pattern": format!(r"\p{{L}}{{20}}{n}")}))).collect()
    };
    let named: serde_json::Map<String, Value> = (0..150).map(|n| (format!(r"\p{{L}}{{20}}{n}"), json!({}))).collect();
    for (name, schema) in [
        ("many", json!({"properties": members(600)})),
        ("large", json!({"properties": members(150)})),
        ("named", json!({"patternProperties": named})),
        ("nested", json!({"properties": {"a": {"pattern": "(((((a{100}){100}){100}){100}){100}){100}"}}})),
        ("hidden", json!({"$defs": {"unused": {"anyOf": [{"properties": members(150)}]}}})),
    ] {
        let refused = server.post("/v1/event-types", &type_with(name, &schema)).await;
        expect_problem(refused, 422, "EVENT_BROKER_VALIDATION_ERROR");
        let (status, _) = answer(server.request(Method::GET, "/healthz")).await;
        assert_eq!(status, 200);
    }
    bystander.end().await;
}

#[tokio::test]
async fn an_xml_schema_whose_patterns_are_too_large_is_refused() {
    let server = Server::start(&[]);
    let facets: String = (0..40).map(|n| format!(r#"<xs:pattern value="\p{{L}}{{20}}{n}"/>"#)).collect();
    let schema = format!(
        r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="a"><xs:simpleType>
           <xs:restriction base="xs:string">{facets}</xs:restriction></xs:simpleType></xs:element></xs:schema>"#
    );
    let version = json!({"version": "1.0", "schemaType": "XSD", "schema": schema});
    let refused = server.post("/v1/event-types", &json!({"id": "attack.xsd", "versions": [version]})).await;
    let problem = expect_problem(refused, 422, "EVENT_BROKER_VALIDATION_ERROR");
    assert_eq!(problem["errors"][0]["pointer"], "/versions/0/schema");
}

#[tokio::test]
async fn patterns_as_people_write_them_are_taken() {
    let server = Server::start(&[]);
    let members: serde_json::Map<String, Value> = [
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
