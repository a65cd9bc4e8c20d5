//! Parameters: shared ones are defined once, the others with their operation.

use super::DocumentLimits;
use super::examples::{self, CEL, CONSUMER_ID, CREATED, CURSOR, OCCURRED_AT, SUBJECT, SUBJECT_TYPE, TENANT, TOPIC};
use super::schema_spec::{SchemaSpec, any_text, enumeration, list, number, patterned, schema_ref, text, time, uuid};
use super::schemas::ids;
use contract::limits::{CEL_BYTES_MAX, KEY_BYTES_MAX, LABEL_BYTES_MAX};
use serde_json::{Value, json};
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn, ParameterStyle};
use utoipa::openapi::{Ref, Required};

/// The filters of events.
pub(super) const FILTERS: [&str; 10] = [
    "filter.type",
    "filter.subjectType",
    "filter.subject",
    "filter.tenant",
    "filter.source",
    "filter.correlationId",
    "filter.context",
    "filter.occurredFrom",
    "filter.occurredTo",
    "filter.filter",
];

/// The shared parameter of this name.
pub(super) fn reference(name: &str) -> Ref {
    Ref::new(format!("#/components/parameters/{name}"))
}

/// A parameter in the path.
pub(super) fn path(name: &str, shape: SchemaSpec, description: &str, example: impl Into<Value>) -> Parameter {
    build(name, ParameterIn::Path, shape, description, example.into()).required(Required::True).build()
}

/// An optional parameter of the query.
pub(super) fn optional_query(name: &str, shape: SchemaSpec, description: &str, example: impl Into<Value>) -> Parameter {
    build(name, ParameterIn::Query, shape, description, example.into()).required(Required::False).build()
}

/// A required parameter of the query.
pub(super) fn required_query(name: &str, shape: SchemaSpec, description: &str, example: impl Into<Value>) -> Parameter {
    build(name, ParameterIn::Query, shape, description, example.into()).required(Required::True).build()
}

/// A header.
pub(super) fn header(name: &str, shape: SchemaSpec, description: &str, example: impl Into<Value>) -> Parameter {
    build(name, ParameterIn::Header, shape, description, example.into()).required(Required::False).build()
}

/// `timeout`.
pub(super) fn timeout(bounds: &DocumentLimits, wait_default: u64, description: &str) -> Parameter {
    let description = format!("{description} In seconds. Default: {wait_default}.");
    let seconds = number(0..=bounds.wait_max, &description).default_value(wait_default);
    optional_query("timeout", seconds, &description, wait_default)
}

/// The start of a read: a number, or an end of the topic. Its schema has a name, because otherwise oapi-codegen generates code
/// that does not compile.
pub(super) fn read_start(name: &str, required: Required, description: &str, example: impl Into<Value>) -> Parameter {
    let example = Some(example.into());
    let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Query).description(Some(description));
    parameter.schema(Some(schema_ref("ReadOffset"))).example(example).required(required).build()
}

/// A parameter of the query that may occur several times.
fn repeated(name: &str, shape: SchemaSpec, description: &str, example: &str) -> Parameter {
    let description = format!("{description} Several values are alternatives.");
    let several = list(shape, &description).example(json!([example]));
    let parameter = build(name, ParameterIn::Query, several, &description, json!([example]));
    parameter.required(Required::False).style(Some(ParameterStyle::Form)).explode(Some(true)).build()
}

fn build(name: &str, place: ParameterIn, shape: SchemaSpec, description: &str, example: Value) -> ParameterBuilder {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .description(Some(description))
        .schema(Some(shape.example(example.clone())))
        .example(Some(example))
}

/// The shared parameters with their names.
pub(super) fn shared(bounds: &DocumentLimits) -> Vec<(&'static str, Parameter)> {
    let mut shared = reading(bounds);
    shared.extend(filters());
    shared
}

const TRACE: &str = "The trace context of the caller (W3C). An invalid one is ignored, and the request starts a new \
    trace.";
const PRODUCER: &str = "The program instance that publishes. It scopes the idempotency keys of its events.";
const KEY: &str = "Makes retries safe: a request is executed once per key, and a retry gets the response of the first \
    request (`Idempotent-Replayed`). Keys are scoped to the operation, and are remembered for at least 24 hours.";
const ACCEPT: &str = "The accepted media types, with ranges and weights. JSON is preferred if several match.";
const WAIT_FOR: &str = "The names of projections, separated by commas: the response is sent when all of them have \
    applied the event. An unknown projection, or one that reads another topic than a single event's, is refused (422) \
    before anything is stored. In a batch, a projection waits only for the events of its topic. When the time-out has \
    passed: 504; the event is stored nevertheless.";

fn reading(bounds: &DocumentLimits) -> Vec<(&'static str, Parameter)> {
    let DocumentLimits { limit_max, limit_default, .. } = *bounds;
    let limit = format!("Most rows or events in the response. Default: {limit_default}.");
    let forms = ["application/json", "application/cloudevents-batch+json"];
    let seen = "The start: after the last received sequence (0: none), at the first stored event (`earliest`, which \
        never gets 410), or after the last one (`latest`).";
    let reader = "Reads as this consumer: its topic and filters are used, not those of the query.";
    let key = patterned("^[!-~]+$", KEY).max_length(KEY_BYTES_MAX);
    let producer = patterned("^[!-~]([ -~]*[!-~])?$", PRODUCER).max_length(LABEL_BYTES_MAX);
    vec![
        ("traceparent", header("traceparent", any_text(TRACE), TRACE, examples::TRACE_PARENT)),
        ("Producer-Id", header("Producer-Id", producer, PRODUCER, "tenant-service-7f9c")),
        ("Idempotency-Key", header("Idempotency-Key", key, KEY, "9b2c61f0-signup-7f3a")),
        ("Accept", header("Accept", enumeration(&forms, ACCEPT), ACCEPT, "application/json")),
        ("limit", optional_query("limit", number(1..=limit_max, &limit).default_value(limit_default), &limit, 50)),
        (
            "cursor",
            optional_query("cursor", patterned(ids::CURSOR, "Opaque."), "A cursor of a previous response.", CURSOR),
        ),
        ("offset", read_start("offset", Required::True, seen, 12_345)),
        (
            "read.topic",
            optional_query(
                "topic",
                ids::topic_id("The topic."),
                "The topic to read; required without `consumer_id`.",
                TOPIC,
            ),
        ),
        ("consumer_id", optional_query("consumer_id", uuid("A consumer."), reader, CONSUMER_ID)),
        ("waitFor", optional_query("waitFor", text(WAIT_FOR), WAIT_FOR, examples::PROJECTION)),
    ]
}

fn filters() -> Vec<(&'static str, Parameter)> {
    let from = "Events that occurred at this time or later.";
    let to = "Events that occurred before this time.";
    let label = "Events with this label. Any key can follow `context.`.";
    let cel = "A CEL expression over the event's members. An event for which it fails does not match.";
    let expression = text(cel).not_empty().max_length(CEL_BYTES_MAX);
    vec![
        ("filter.type", repeated("type", ids::pattern("A type."), "Events of this type.", CREATED)),
        (
            "filter.subjectType",
            repeated("subjectType", ids::pattern("A type."), "Events with this subject type.", SUBJECT_TYPE),
        ),
        ("filter.subject", repeated("subject", free("A subject."), "Events about this subject.", SUBJECT)),
        ("filter.tenant", repeated("tenant", uuid("A tenant.").example(TENANT), "Events of this tenant.", TENANT)),
        ("filter.source", repeated("source", free("A source."), "Events with this source.", "example-service")),
        (
            "filter.correlationId",
            repeated("correlationId", free("A correlation id."), "Events with this correlation id.", "signup-7f3a"),
        ),
        ("filter.context", repeated("context.appId", free("A label's value."), label, "console")),
        ("filter.occurredFrom", optional_query("occurredFrom", time(from), from, OCCURRED_AT)),
        ("filter.occurredTo", optional_query("occurredTo", time(to), to, OCCURRED_AT)),
        ("filter.filter", optional_query("filter", expression, cel, CEL)),
    ]
}

fn free(description: &str) -> SchemaSpec {
    any_text(description).example("example")
}
