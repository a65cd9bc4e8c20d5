//! Parameters of requests: those that several operations take stand once, the rest with their operation.

use super::DocumentLimits;
use super::examples::{self, CEL, CONSUMER_ID, CREATED, CURSOR, OCCURRED_AT, SUBJECT, SUBJECT_TYPE, TENANT, TOPIC};
use super::schema_spec::{SchemaSpec, any_text, enumeration, list, number, patterned, schema_ref, text, time, uuid};
use super::schemas::ids;
use contract::limits::{CEL_BYTES_MAX, KEY_BYTES_MAX, LABEL_BYTES_MAX};
use serde_json::{Value, json};
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn, ParameterStyle};
use utoipa::openapi::{Ref, Required};

/// Those that filter events.
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

/// A piece of the path.
pub(super) fn path(name: &str, shape: SchemaSpec, description: &str, example: impl Into<Value>) -> Parameter {
    build(name, ParameterIn::Path, shape, description, example.into()).required(Required::True).build()
}

/// A parameter of the query that may be left out.
pub(super) fn optional_query(name: &str, shape: SchemaSpec, description: &str, example: impl Into<Value>) -> Parameter {
    build(name, ParameterIn::Query, shape, description, example.into()).required(Required::False).build()
}

/// A parameter of the query that must be there.
pub(super) fn required_query(name: &str, shape: SchemaSpec, description: &str, example: impl Into<Value>) -> Parameter {
    build(name, ParameterIn::Query, shape, description, example.into()).required(Required::True).build()
}

/// A header.
pub(super) fn header(name: &str, shape: SchemaSpec, description: &str, example: impl Into<Value>) -> Parameter {
    build(name, ParameterIn::Header, shape, description, example.into()).required(Required::False).build()
}

/// `timeout`, with what is waited for.
pub(super) fn timeout(bounds: &DocumentLimits, wait_default: u64, description: &str) -> Parameter {
    let description = format!("{description} In seconds; {wait_default} when absent.");
    let seconds = number(0..=bounds.wait_max, &description).default_value(wait_default);
    optional_query("timeout", seconds, &description, wait_default)
}

/// A parameter of the query that says where a read starts: a number, or either end. Its schema has a name, without which
/// oapi-codegen writes code that does not compile.
pub(super) fn read_start(name: &str, required: Required, description: &str, example: impl Into<Value>) -> Parameter {
    let example = Some(example.into());
    let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Query).description(Some(description));
    parameter.schema(Some(schema_ref("ReadOffset"))).example(example).required(required).build()
}

/// A parameter of the query that may be repeated.
fn repeated(name: &str, shape: SchemaSpec, description: &str, example: &str) -> Parameter {
    let description = format!("{description} Repeated, it widens.");
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

/// Every shared parameter with its name among the components.
pub(super) fn shared(bounds: &DocumentLimits) -> Vec<(&'static str, Parameter)> {
    let mut shared = reading(bounds);
    shared.extend(filters());
    shared
}

const TRACE: &str = "The caller's place in a trace, as W3C writes it. One that is not valid is passed over, and the \
    request begins a trace of its own.";
const PRODUCER: &str = "The program instance that publishes; the idempotency key counts within it.";
const KEY: &str = "Makes it safe to send the request again: the same request under the same key is carried out once, and \
    answered again as it was answered first (`Idempotent-Replayed`). Keys count within their operation, and are \
    remembered for 24 hours or longer.";
const ACCEPT: &str =
    "Which form of answer the caller takes. Ranges and weights are understood; JSON where several fit.";
const WAIT_FOR: &str = "Answer only once these projections, by their names with commas between, have applied the event. One \
    that is not registered is refused (422) before anything is stored, and so is one that reads another topic than a single \
    event's; in a batch it has nothing to wait for. When the time is up: 504, and the event is stored all the same.";

fn reading(bounds: &DocumentLimits) -> Vec<(&'static str, Parameter)> {
    let DocumentLimits { limit_max, limit_default, .. } = *bounds;
    let limit = format!("Most rows or events in the answer; {limit_default} when absent.");
    let forms = ["application/json", "application/cloudevents-batch+json"];
    let seen = "Where the answer starts: behind the last sequence seen (0: none), before the first event that is still \
        there (`earliest`, which is never refused as removed), or behind the last one (`latest`).";
    let reader = "Reads as this consumer: its topic and filters take the place of those of the query.";
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
            optional_query(
                "cursor",
                patterned(ids::CURSOR, "Opaque."),
                "The page to show: a cursor of the last answer.",
                CURSOR,
            ),
        ),
        ("offset", read_start("offset", Required::True, seen, 12_345)),
        (
            "read.topic",
            optional_query(
                "topic",
                ids::topic_id("The topic."),
                "The topic to read; needed without `consumer_id`.",
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
    let label = "Events with this label; any key may stand behind `context.`.";
    let cel = "A CEL expression over the event's members; an event it fails on does not match.";
    let expression = text(cel).not_empty().max_length(CEL_BYTES_MAX);
    vec![
        ("filter.type", repeated("type", ids::pattern("A type."), "Events of this type.", CREATED)),
        (
            "filter.subjectType",
            repeated("subjectType", ids::pattern("A type."), "Events about things of this type.", SUBJECT_TYPE),
        ),
        ("filter.subject", repeated("subject", free("A subject."), "Events about this subject.", SUBJECT)),
        ("filter.tenant", repeated("tenant", uuid("A tenant.").example(TENANT), "Events of this tenant.", TENANT)),
        ("filter.source", repeated("source", free("A source."), "Events of this program.", "example-service")),
        (
            "filter.correlationId",
            repeated("correlationId", free("A correlation id."), "Events of this transaction.", "signup-7f3a"),
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
