//! `gts.profile: strict` on every operation of the document that takes an identifier: the test finds each place where
//! an identifier may be written, in path, query and body, and tries it.

use super::{ApiDocument, ApiOperation};
use crate::http::{CREATED, Server, TENANT, TOPIC};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// An identifier in the form of the specification.
const STRICT: &str = "gts.hx.core.events.topic.v1~acme.shop.main.orders.v1~";
/// Identifiers that a relaxed broker accepts.
const RELAXED: [&str; 3] = ["order.created", "gts.x.test1.events.v1~", "gts.order.created.v1"];

/// The document, and how it marks identifiers.
struct IdentifierPlaces {
    document: ApiDocument,
    patterns: BTreeSet<String>,
}

impl IdentifierPlaces {
    fn of(document: ApiDocument) -> Self {
        let pattern = |schema: &Value| schema["pattern"].as_str().unwrap().to_owned();
        let aggregate = &document.0["paths"]["/v1/aggregates/{subject_type}/{subject}"]["get"]["parameters"];
        let subject_type = aggregate.as_array().unwrap().iter().find(|it| it["name"] == "subject_type").unwrap();
        let patterns = BTreeSet::from([
            pattern(&document.schema("EventInput")["properties"]["type"]),
            pattern(&document.schema("ConsumerInput")["properties"]["types"]["items"]),
            pattern(&subject_type["schema"]),
        ]);
        Self { document, patterns }
    }

    fn is_identifier(&self, schema: &Value) -> bool {
        schema["pattern"].as_str().is_some_and(|pattern| self.patterns.contains(pattern))
    }

    /// The places of identifiers in a body like this example; of a list, the first item.
    fn in_body(&self, schema: &Value, example: &Value, pointer: &str, found: &mut Vec<(String, bool)>) {
        let schema = self.document.at(schema);
        if self.is_identifier(schema) {
            return found.push((pointer.to_owned(), false));
        }
        for one in schema["anyOf"].as_array().into_iter().flatten() {
            self.in_body(one, example, pointer, found);
        }
        if schema.get("items").is_some() {
            if self.is_identifier(self.document.at(&schema["items"])) {
                return found.push((pointer.to_owned(), true));
            }
            if let Some(first) = example.get(0) {
                self.in_body(&schema["items"], first, &format!("{pointer}/0"), found);
            }
        }
        for (name, member) in schema["properties"].as_object().into_iter().flatten() {
            let behind = self.document.at(member);
            let stands_alone = self.is_identifier(behind) || self.is_identifier(&behind["items"]);
            if example.get(name).is_some() || stands_alone && example.is_object() {
                self.in_body(member, &example[name], &format!("{pointer}/{name}"), found);
            }
        }
    }
}

/// Puts an identifier at a place of a body.
fn put(body: &mut Value, (pointer, is_list): &(String, bool), id: &str) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let id = if *is_list { json!([id]) } else { json!(id) };
    match body.pointer_mut(parent).unwrap() {
        Value::Array(items) => items[name.parse::<usize>().unwrap()] = id,
        parent => parent[name] = id,
    }
}

/// Sends a request with these parameters instead of the examples; returns the response.
async fn ask(
    server: &Server,
    places: &IdentifierPlaces,
    operation: &ApiOperation,
    (name, id): (&str, &str),
    body: Option<(&str, String)>,
) -> (u16, String) {
    let (mut path, mut query) = (operation.path.clone(), Vec::new());
    for parameter in places.document.parameters(operation) {
        let (own, schema) = (parameter["name"].as_str().unwrap(), &parameter["schema"]);
        let is_identifier = places.is_identifier(schema) || places.is_identifier(&schema["items"]);
        let example = parameter["example"].as_str().map_or_else(|| parameter["example"].to_string(), str::to_owned);
        let value = if own == name {
            id.to_owned()
        } else if is_identifier {
            STRICT.to_owned()
        } else {
            example
        };
        match parameter["in"].as_str().unwrap() {
            "path" => {
                path = path.replace(&format!("{{{own}}}"), &encoded(&value));
            }
            "query" if own == "timeout" => query.push((own.to_owned(), "0".to_owned())),
            "query" if own == name || parameter["required"] == true || own == "topic" => {
                query.push((own.to_owned(), value));
            }
            _ => (),
        }
    }
    let query: Vec<_> = query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    let mut request = server.request(operation.method.clone(), &format!("{path}?{}", query.join("&")));
    if let Some((media, body)) = body {
        request = request.header("content-type", media).body(body);
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    // A stream that is accepted does not end.
    let is_stream = response.headers().get("content-type").is_some_and(|media| media == "text/event-stream");
    (status, if is_stream { String::new() } else { response.text().await.unwrap() })
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

const REFUSED: &str = "EVENT_BROKER_INVALID_TYPE";

fn expect_refused(answer: &(u16, String), what: &str) {
    assert!(matches!(answer.0, 200 | 207 | 400) && answer.1.contains(REFUSED), "{what} was not refused: {answer:?}");
    assert!(answer.1.contains("strict GTS identifiers only"), "{what}: {answer:?}");
}

#[tokio::test]
async fn a_strict_broker_takes_strict_identifiers_only_wherever_one_may_stand() {
    let server = Server::start_with(&[("EVENT_BROKER__GTS__PROFILE", "strict")], &[]);
    let places = IdentifierPlaces::of(ApiDocument::of(&server).await);
    let (mut in_addresses, mut in_bodies) = (0, 0);
    for operation in places.document.operations() {
        for parameter in places.document.parameters(&operation) {
            let (name, schema) = (parameter["name"].as_str().unwrap(), &parameter["schema"]);
            if !places.is_identifier(schema) && !places.is_identifier(&schema["items"]) {
                continue;
            }
            in_addresses += 1;
            let what = format!("{} {} {name}", operation.method, operation.path);
            let taken = ask(&server, &places, &operation, (name, STRICT), body_of(&places, &operation)).await;
            assert!(!taken.1.contains(REFUSED), "{what}: {taken:?}");
            for id in RELAXED {
                let answer = ask(&server, &places, &operation, (name, id), body_of(&places, &operation)).await;
                expect_refused(&answer, &what);
                assert_eq!(answer.0, 400, "{what}");
            }
        }
        for (media, content) in operation.spec["requestBody"]["content"].as_object().into_iter().flatten() {
            let (schema, example) = body(&places, content);
            let mut found = Vec::new();
            places.in_body(schema, &example, "", &mut found);
            for place in &found {
                in_bodies += 1;
                let what = format!("{} {} as {media}: {}", operation.method, operation.path, place.0);
                let mut base = example.clone();
                found.iter().for_each(|place| put(&mut base, place, STRICT));
                let sent = |body: &Value| Some((media.as_str(), body.to_string()));
                let taken = ask(&server, &places, &operation, ("", ""), sent(&base)).await;
                assert!(!taken.1.contains(REFUSED), "{what}: {taken:?}");
                for id in RELAXED {
                    put(&mut base, place, id);
                    expect_refused(&ask(&server, &places, &operation, ("", ""), sent(&base)).await, &what);
                }
            }
        }
    }
    assert!(in_addresses >= 30 && in_bodies >= 20, "only {in_addresses} and {in_bodies} places were found");
}

/// The schema and the example of a body. Line-delimited bodies use the schema of a line, which is that of a published
/// event.
fn body<'a>(places: &'a IdentifierPlaces, content: &'a Value) -> (&'a Value, Value) {
    match &content["example"] {
        Value::String(lines) => {
            (places.document.schema("EventInput"), serde_json::from_str(lines.lines().next().unwrap()).unwrap())
        }
        example => (&content["schema"], shortened(example)),
    }
}

/// An example with one item in each of its lists.
fn shortened(example: &Value) -> Value {
    match example {
        Value::Array(items) => items.iter().take(1).map(shortened).collect(),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(name, member)| (name.clone(), shortened(member))).collect())
        }
        other => other.clone(),
    }
}

/// A body that a strict broker accepts, if the operation has one.
fn body_of<'a>(places: &'a IdentifierPlaces, operation: &'a ApiOperation) -> Option<(&'a str, String)> {
    let (media, content) = operation.spec["requestBody"]["content"].as_object()?.iter().next()?;
    let (schema, mut example) = body(places, content);
    let mut found = Vec::new();
    places.in_body(schema, &example, "", &mut found);
    found.iter().for_each(|place| put(&mut example, place, STRICT));
    Some((media, example.to_string()))
}

#[tokio::test]
async fn a_strict_broker_reads_the_headers_of_a_binary_cloud_event_strictly() {
    let server = Server::start_with(&[("EVENT_BROKER__GTS__PROFILE", "strict")], &[]);
    let event_type = "gts.acme.shop.orders.created.v1~";
    let (status, answer) = server.post("/v1/event-types", &json!({"id": event_type})).await;
    assert_eq!(status, 201, "{answer}");
    for (name, id) in [("ce-type", "order.created"), ("ce-topic", "shop.orders"), ("ce-subjecttype", CREATED)] {
        let mut headers =
            vec![("ce-specversion", "1.0"), ("ce-id", "a-1"), ("ce-source", "s"), ("ce-type", event_type)];
        headers.extend([("ce-tenant", TENANT), ("ce-subject", "o"), ("content-type", "application/json")]);
        let send = async |headers: &[(&str, &str)]| {
            let request = server.request(Method::POST, "/v1/events").body("{}");
            let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            let response = request.send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        };
        let taken = send(&headers).await;
        assert!(matches!(taken.0, 200 | 201), "{taken:?}");
        assert!(taken.1.contains(&format!(r#""topic":"{TOPIC}""#)), "the default topic works: {}", taken.1);
        headers.retain(|(own, _)| *own != name);
        headers.push((name, id));
        expect_refused(&send(&headers).await, name);
    }
}

/// A log written before the setting was changed still opens, and its events are still delivered in full.
#[tokio::test]
async fn what_was_stored_before_the_profile_became_strict_is_read_as_it_is() {
    let server = Server::start(&[]);
    server.register("order.created").await;
    let (status, stored) = server.post("/v1/events", &crate::http::event("order.created", "o-1")).await;
    assert_eq!(status, 201, "{stored}");
    let folder = server.kill();
    let server = Server::start_again_with(folder, &[("EVENT_BROKER__GTS__PROFILE", "strict")]);
    let (_, page) =
        server.get(&format!("/v1/events?topic={TOPIC}&offset=0&filter=type%3D%3D%27order.created%27")).await;
    assert_eq!(page["items"][0], stored);
    let (_, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=0&type=gts.*")).await;
    assert_eq!(page["items"], json!([]));
    let (_, types) = server.get("/v1/event-types").await;
    assert_eq!(types["items"][0]["id"], "order.created");
}
