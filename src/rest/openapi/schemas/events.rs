//! Events on their way in and out.

use super::NUMBER_MAX;
use super::ids::{id, subject_type_id, topic_id, version};
use crate::rest::openapi::DocumentLimits;
use crate::rest::openapi::examples::{self, EVENT_ID, OCCURRED_AT, SUBJECT, TENANT, TRACE_PARENT, at_pointer};
use crate::rest::openapi::member_rules::rule;
use crate::rest::openapi::schema_spec::{
    SchemaSpec, boolean, described_ref, enumeration, list, nullable_ref, number, object, schema_ref, text, text_up_to,
    time, uuid,
};
use contract::limits::{CONTEXT_BYTES_MAX, CONTEXT_PAIRS_MAX, DATA_DEPTH_MAX, LABEL_BYTES_MAX, SUBJECT_BYTES_MAX};
use serde_json::{Value, json};

pub(super) fn all(bounds: &DocumentLimits) -> Vec<(&'static str, SchemaSpec)> {
    vec![
        ("EventInput", new_event()),
        ("Event", event()),
        ("Actor", actor()),
        ("ContextPair", context_pair()),
        ("BatchInput", new_batch(bounds)),
        ("BatchOutcome", batch_outcome()),
        ("BatchResult", batch_result()),
        ("PolledEvent", polled_event()),
        ("EventPage", event_page()),
        ("LogPage", log_page()),
        ("Aggregate", aggregate()),
        ("AggregateEvents", aggregate_events()),
    ]
}

const MADE: &str = "Its id; the broker makes one (version 4) when it is absent.";
const AS_EXPECTED: &str = "The aggregate's last `aggregateSequence` as the caller knows it; 0: it must be new.";
const DEDUPLICATION: &str = "Takes the place of the whole idempotency key, within topic and tenant; not in topics with \
    `deduplicateBy: id`.";
const CLOUD_EVENT_ID: &str = "The `id` of the CloudEvent it came as, where that is not a UUID in its usual spelling. `id` is \
    then the UUID, version 5, of `source`, a NUL byte and this.";
const DATA_CONTENT_TYPE: &str = "The media type of `data`, where it came as a CloudEvent with another `datacontenttype` than \
    `application/json`.";

fn new_event() -> SchemaSpec {
    let label = |example: &str, description: &str| text_up_to(LABEL_BYTES_MAX, description).example(example);
    object("An event as a producer submits it.")
        .optional_nullable("id", uuid(MADE).example(EVENT_ID))
        .required("type", id("A registered event type."))
        .optional_nullable(
            "topic",
            topic_id("Where it goes. Optional, because the type says it; a different one is refused."),
        )
        .optional_nullable(
            "occurredAt",
            time("When it happened; the time of arrival when absent.").example(OCCURRED_AT),
        )
        .required(
            "source",
            text_up_to(SUBJECT_BYTES_MAX, "Which program speaks.").not_empty().example("example-service"),
        )
        .optional_nullable("subject", subject("What it speaks of; required unless the type allows none."))
        .optional_nullable(
            "subjectType",
            subject_type_id("What kind of thing that is; the type may allow some kinds only."),
        )
        .optional_nullable(
            "tenant",
            uuid("Whose event it is; required unless the server is told otherwise.").example(TENANT),
        )
        .optional_nullable("dataVersion", version("The version of the type's schema; the CURRENT one when absent."))
        .optional_nullable(
            "sequence",
            number(1..=NUMBER_MAX, "The event must become exactly this sequence.").example(12_345),
        )
        .optional_nullable("expectedAggregateSequence", number(0..=u64::MAX, AS_EXPECTED).example(0))
        .optional_nullable("traceParent", label(TRACE_PARENT, "W3C trace context."))
        .optional_nullable("correlationId", label("signup-7f3a", "Groups what belongs to one business transaction."))
        .optional_nullable("causationId", label(EVENT_ID, "The event that caused this one."))
        .optional_nullable("messageGroup", label("tenant-42", "Deliveries of one message group go in order."))
        .optional_nullable("deduplicationId", label("import-2025-12-03-17", DEDUPLICATION))
        .optional_nullable("requestId", label("req-81c2", "The request that led to this event."))
        .optional("actor", nullable_ref("Actor", "Who did it.").example(user()))
        .optional("context", context())
        .optional("contextData", context_data())
        .required("data", data())
        .closed()
        .with_rules([rule().without("contextData"), rule().without("context")])
        .example(examples::new_event())
}

fn event() -> SchemaSpec {
    let label = |example: &str, description: &str| text(description).example(example);
    let own = |description: &str| number(1..=NUMBER_MAX, description);
    object("A stored event. It never changes.")
        .required("id", uuid("Its id.").example(EVENT_ID))
        .optional("cloudEventId", text(CLOUD_EVENT_ID).example("A234-1234-1234"))
        .optional("dataContentType", text(DATA_CONTENT_TYPE).example("application/vnd.acme+json"))
        .required("type", id("Its type, spelt as the producer did."))
        .required("topic", topic_id("The topic it was stored in."))
        .required("sequence", own("Its number in the topic, without gaps.").example(12_345))
        .optional("aggregateSequence", own("Its number in the aggregate; absent where it speaks of none.").example(1))
        .required("position", own("Its number in the log.").example(20_071))
        .required("createdAt", time("When the broker stored it.").example(OCCURRED_AT))
        .required("occurredAt", time("When it happened.").example(OCCURRED_AT))
        .required("source", text("Which program spoke.").example("example-service"))
        .optional("subject", text("What it speaks of.").example(SUBJECT))
        .optional("subjectType", subject_type_id("What kind of thing that is."))
        .optional("tenant", uuid("Whose event it is.").example(TENANT))
        .optional("dataVersion", text("The version of the type's schema it was held against.").example("1.0"))
        .optional("traceParent", label(TRACE_PARENT, "W3C trace context."))
        .optional("correlationId", label("signup-7f3a", "Groups what belongs to one business transaction."))
        .optional("causationId", label(EVENT_ID, "The event that caused this one."))
        .optional("messageGroup", label("tenant-42", "Deliveries of one message group go in order."))
        .optional("deduplicationId", label("import-2025-12-03-17", "What deduplicated it."))
        .optional("requestId", label("req-81c2", "The request that led to it."))
        .optional("actor", described_ref("Actor", "Who did it."))
        .optional(
            "republishOf",
            own("Where it was published again: the sequence at which it was first stored.").example(12_000),
        )
        .optional("context", context())
        .required("data", data())
        .example(examples::event())
}

fn polled_event() -> SchemaSpec {
    let description = "Where the members of a group divide the events: the claim to this one. Finish it with `:done` or \
        `:fail`.";
    event().optional("claim", described_ref("Claim", description))
}

fn actor() -> SchemaSpec {
    let kinds = ["user", "service_principal", "system"];
    object("Who caused an event.")
        .required("type", enumeration(&kinds, "What kind of actor.").example("user"))
        .required("id", text_up_to(LABEL_BYTES_MAX, "Its id in its own system.").example("user-12345"))
        .closed()
        .example(user())
}

fn user() -> Value {
    json!({"type": "user", "id": "user-12345"})
}

fn subject(description: &str) -> SchemaSpec {
    text_up_to(SUBJECT_BYTES_MAX, description).not_empty().example(SUBJECT)
}

fn context() -> SchemaSpec {
    let label = |description: &str| text_up_to(CONTEXT_BYTES_MAX, description);
    object("Labels to search by.")
        .additional(label("A label's value.").example("console"))
        .members(CONTEXT_PAIRS_MAX, label("A label's key.").example("appId"))
        .example(json!({"appId": "console"}))
}

fn context_data() -> SchemaSpec {
    let description =
        "The labels as a list; instead of `context`. No key twice. They are kept and served as `context`.";
    list(schema_ref("ContextPair"), description)
        .items(0, CONTEXT_PAIRS_MAX)
        .example(json!([{"key": "appId", "value": "console"}]))
}

fn context_pair() -> SchemaSpec {
    object("A label.")
        .required("key", text_up_to(CONTEXT_BYTES_MAX, "Its key.").example("appId"))
        .required("value", text_up_to(CONTEXT_BYTES_MAX, "Its value.").example("console"))
        .closed()
        .example(json!({"key": "appId", "value": "console"}))
}

fn data() -> SchemaSpec {
    let description = format!(
        "The payload, kept as it was spelt and held against the type's schema. At most {DATA_DEPTH_MAX} levels deep; no \
        member name twice, no NUL in any text."
    );
    object(&description).open().example(json!({"userId": "user-12345", "email": "user@example.com"}))
}

fn new_batch(bounds: &DocumentLimits) -> SchemaSpec {
    let example = examples::new_batch();
    let events = list(
        schema_ref("EventInput"),
        "The events. One that is refused gets its own result; the rest stands or falls \
        with it as `atomic` says.",
    );
    object("Events to be published together.")
        .required("events", events.items(1, bounds.batch_max).example(at_pointer(&example, "/events")))
        .closed()
        .example(example)
}

fn batch_outcome() -> SchemaSpec {
    let example = examples::batch_outcome();
    let count = |description: &str| number(0..=NUMBER_MAX, description);
    let results = list(schema_ref("BatchResult"), "One result per event, in the order they were sent.");
    let data = object("The results.")
        .required("results", results.example(at_pointer(&example, "/data/results")))
        .example(at_pointer(&example, "/data"));
    let meta = object("How many there are of each.")
        .required("total", count("Events in the batch.").example(2))
        .required("succeeded", count("Stored now or before.").example(1))
        .required("failed", count("Refused.").example(1))
        .example(at_pointer(&example, "/meta"));
    object("What became of a batch.").required("data", data).required("meta", meta).example(example)
}

fn batch_result() -> SchemaSpec {
    let status = "What publishing it alone would have been answered with; 424 where a sibling was refused.";
    object("What became of one event of a batch.")
        .required("index", number(0..=NUMBER_MAX, "Its place in the batch, from 0.").example(0))
        .required("status", number(200..=599, status).example(201))
        .optional(
            "payloadMismatch",
            boolean("The first submission's `data` was another; the topic flags it.").example(true),
        )
        .optional(
            "deprecated",
            boolean("It was published under a DEPRECATED version of its type's schema.").example(true),
        )
        .optional("event", described_ref("Event", "The stored event, where it was not refused."))
        .optional("error", described_ref("Problem", "The refusal, without `instance` and `traceId`."))
        .example(at_pointer(&examples::batch_outcome(), "/data/results/0"))
}

fn items(example: &Value) -> SchemaSpec {
    list(schema_ref("Event"), "The events, in order.").example(at_pointer(example, "/items"))
}

fn event_page() -> SchemaSpec {
    let example = examples::event_page();
    let next = "How far the read came, matching or not: go on here. For a member of a shared group, how far the group has \
        come.";
    let items = list(schema_ref("PolledEvent"), "The events, in order.").example(at_pointer(&example, "/items"));
    object("Events of one topic.")
        .required("items", items)
        .required("nextOffset", number(0..=NUMBER_MAX, next).example(12_345))
        .required("tail", number(0..=NUMBER_MAX, "The topic's last sequence.").example(12_345))
        .example(example)
}

fn log_page() -> SchemaSpec {
    let example = examples::log_page();
    object("Events of all topics of the default log.")
        .required("items", items(&example))
        .required("nextPosition", number(0..=NUMBER_MAX, "How far the read came: go on here.").example(20_071))
        .required("tail", number(0..=NUMBER_MAX, "The log's last position.").example(20_071))
        .example(example)
}

fn aggregate() -> SchemaSpec {
    object("An aggregate: its last sequence and its last event.")
        .required("aggregateSequence", number(1..=NUMBER_MAX, "Its last number.").example(1))
        .required("sequence", number(1..=NUMBER_MAX, "That event's number in the topic.").example(12_345))
        .required(
            "lastEvent",
            nullable_ref("Event", "That event; null once retention has removed it.").example(examples::event()),
        )
        .example(examples::aggregate())
}

fn aggregate_events() -> SchemaSpec {
    let example = examples::aggregate_events();
    object("Events of one aggregate.")
        .required("items", items(&example))
        .required("nextAfter", number(0..=NUMBER_MAX, "How far the read came: go on here.").example(1))
        .required(
            "aggregateSequence",
            number(0..=NUMBER_MAX, "The aggregate's last number; 0: there is none.").example(1),
        )
        .example(example)
}
