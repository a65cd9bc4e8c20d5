//! Events, as they are published and as they are read.

use super::NUMBER_MAX;
use super::ids::{id, subject_type_id, topic_id, version};
use crate::rest::openapi::DocumentLimits;
use crate::rest::openapi::examples::{self, EVENT_ID, OCCURRED_AT, SUBJECT, TENANT, TRACE_PARENT, at_pointer};
use crate::rest::openapi::member_rules::rule;
use crate::rest::openapi::schema_spec::{
    SchemaSpec, any_text, boolean, described_ref, enumeration, list, nullable_ref, number, object, schema_ref, text,
    text_up_to, time, uuid,
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

const MADE: &str = "The id. Default: the broker generates one (UUID version 4).";
const AS_EXPECTED: &str = "The aggregate's last `aggregateSequence` that the caller knows. The event is refused if there \
    is a later one. 0: the aggregate must be new.";
const DEDUPLICATION: &str = "Replaces the whole idempotency key, within topic and tenant. Not used in topics with \
    `deduplicateBy: id`.";
const CLOUD_EVENT_ID: &str = "The `id` of the original CloudEvent, if that is not a UUID in its usual spelling. `id` is \
    then the UUID (version 5) of `source`, a NUL byte and this.";
const DATA_CONTENT_TYPE: &str = "The media type of `data`, if the original CloudEvent had another `datacontenttype` than \
    `application/json`.";

fn new_event() -> SchemaSpec {
    let label = |example: &str, description: &str| text_up_to(LABEL_BYTES_MAX, description).example(example);
    object("An event, as a producer publishes it.")
        .optional_nullable("id", uuid(MADE).example(EVENT_ID))
        .required("type", id("A registered event type."))
        .optional_nullable(
            "topic",
            topic_id("The topic. Optional, because the type determines it; a different topic is refused."),
        )
        .optional_nullable(
            "occurredAt",
            time("When the event happened. Default: the time of arrival.").example(OCCURRED_AT),
        )
        .required(
            "source",
            text_up_to(SUBJECT_BYTES_MAX, "The program that publishes.").not_empty().example("example-service"),
        )
        .optional_nullable(
            "subject",
            subject(
                "What the event is about. Required unless the type allows events without a \
            subject.",
            ),
        )
        .optional_nullable(
            "subjectType",
            subject_type_id("The type of the subject. The event type may allow only some."),
        )
        .optional_nullable(
            "tenant",
            uuid("The tenant. Required unless `tenant.required` is `false` in the configuration.").example(TENANT),
        )
        .optional_nullable("dataVersion", version("The schema version. Default: the CURRENT one."))
        .optional_nullable(
            "sequence",
            number(1..=NUMBER_MAX, "The sequence that the event must get; otherwise it is refused.").example(12_345),
        )
        .optional_nullable("expectedAggregateSequence", number(0..=u64::MAX, AS_EXPECTED).example(0))
        .optional_nullable("traceParent", label(TRACE_PARENT, "W3C trace context."))
        .optional_nullable("correlationId", label("signup-7f3a", "Groups the events of one business transaction."))
        .optional_nullable("causationId", label(EVENT_ID, "The event that caused this one."))
        .optional_nullable(
            "messageGroup",
            label("tenant-42", "Webhook deliveries of one message group keep their order."),
        )
        .optional_nullable("deduplicationId", label("import-2025-12-03-17", DEDUPLICATION))
        .optional_nullable("requestId", label("req-81c2", "The request that caused the event."))
        .optional("actor", nullable_ref("Actor", "Who caused the event.").example(user()))
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
        .required("type", id("The type, as the producer spelt it."))
        .required("topic", topic_id("The topic."))
        .required("sequence", own("The number in the topic, without gaps.").example(12_345))
        .optional("aggregateSequence", own("The number in the aggregate; absent without a subject.").example(1))
        .required("position", own("The number in the log.").example(20_071))
        .required("createdAt", time("When the broker stored it.").example(OCCURRED_AT))
        .required("occurredAt", time("When the event happened.").example(OCCURRED_AT))
        .required("source", text("The program that published the event.").example("example-service"))
        .optional("subject", text("What the event is about.").example(SUBJECT))
        .optional("subjectType", subject_type_id("The type of the subject."))
        .optional("tenant", uuid("The tenant.").example(TENANT))
        .optional("dataVersion", text("The schema version against which it was validated.").example("1.0"))
        .optional("traceParent", label(TRACE_PARENT, "W3C trace context."))
        .optional("correlationId", label("signup-7f3a", "Groups the events of one business transaction."))
        .optional("causationId", label(EVENT_ID, "The event that caused this one."))
        .optional("messageGroup", label("tenant-42", "Webhook deliveries of one message group keep their order."))
        .optional("deduplicationId", label("import-2025-12-03-17", "The deduplication id of the submission."))
        .optional("requestId", label("req-81c2", "The request that caused the event."))
        .optional("actor", described_ref("Actor", "Who caused the event."))
        .optional("republishOf", own("Of a republished event: the sequence of the original.").example(12_000))
        .optional("context", context())
        .required("data", data())
        .example(examples::event())
}

fn polled_event() -> SchemaSpec {
    let description = "For members of a shared group: the claim of this event. Finish it with `:done` or `:fail`.";
    event().optional("claim", described_ref("Claim", description))
}

fn actor() -> SchemaSpec {
    let kinds = ["user", "service_principal", "system"];
    object("Who caused an event.")
        .required("type", enumeration(&kinds, "The kind of actor.").example("user"))
        .required("id", text_up_to(LABEL_BYTES_MAX, "The id of the actor in its own system.").example("user-12345"))
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
    let description = "The labels as a list, as an alternative to `context`. Every key occurs once. They are stored and returned as \
            `context`.";
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
        "The payload. It is stored as it was sent, and validated against the type's schema. At most {DATA_DEPTH_MAX} \
            levels deep, without duplicate members, and without NUL in any string."
    );
    object(&description).open().example(json!({"userId": "user-12345", "email": "user@example.com"}))
}

fn new_batch(bounds: &DocumentLimits) -> SchemaSpec {
    let events = list(
        schema_ref("EventInput"),
        "The events. A refused event has its own result; `atomic` determines whether the others are stored.",
    );
    object("Events to be published together.")
        .required("events", events.items(1, bounds.batch_max))
        .closed()
        .example(examples::new_batch())
}

fn batch_outcome() -> SchemaSpec {
    let example = examples::batch_outcome();
    let count = |description: &str| number(0..=NUMBER_MAX, description);
    let results = list(schema_ref("BatchResult"), "One result per event, in the order of the request.");
    let data = object("The results.")
        .required("results", results.example(at_pointer(&example, "/data/results")))
        .example(at_pointer(&example, "/data"));
    let meta = object("Counts of the results.")
        .required("total", count("Events in the batch.").example(2))
        .required("succeeded", count("Stored by this request or before.").example(1))
        .required("failed", count("Refused.").example(1))
        .example(at_pointer(&example, "/meta"));
    object("The results of a batch.").required("data", data).required("meta", meta).example(example)
}

fn batch_result() -> SchemaSpec {
    let status = "The status that publishing the event alone would have; 424 if another event of the atomic unit was \
        refused.";
    object("The result of one event of a batch.")
        .required("index", number(0..=NUMBER_MAX, "Its index in the batch, from 0.").example(0))
        .required("status", number(200..=599, status).example(201))
        .optional(
            "payloadMismatch",
            boolean("A duplicate whose `data` differs from the first submission's, in a topic that flags this.")
                .example(true),
        )
        .optional(
            "deprecated",
            boolean("It was published under a DEPRECATED version of its type's schema.").example(true),
        )
        .optional("secretSuspected", suspected())
        .optional("event", described_ref("Event", "The stored event, if it was not refused."))
        .optional("error", described_ref("Problem", "The refusal, without `instance` and `traceId`."))
        .example(at_pointer(&examples::batch_outcome(), "/data/results/0"))
}

fn suspected() -> SchemaSpec {
    let pointer = any_text("A JSON pointer into the event.").example("/data/aws/key");
    list(pointer, "Where the event seems to contain a secret, in a topic that flags this.")
        .example(json!(["/data/aws/key"]))
}

fn items(example: &Value) -> SchemaSpec {
    list(schema_ref("Event"), "The events, in order.").example(at_pointer(example, "/items"))
}

fn event_page() -> SchemaSpec {
    let example = examples::event_page();
    let next = "The offset to continue with: the last sequence that was read, whether it matched or not. For a member of \
        a shared group: the group's offset.";
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
        .required("nextPosition", number(0..=NUMBER_MAX, "The position to continue with.").example(20_071))
        .required("tail", number(0..=NUMBER_MAX, "The log's last position.").example(20_071))
        .example(example)
}

fn aggregate() -> SchemaSpec {
    object("An aggregate: its last sequence and its last event.")
        .required("aggregateSequence", number(1..=NUMBER_MAX, "Its last sequence.").example(1))
        .required("sequence", number(1..=NUMBER_MAX, "The sequence of that event in the topic.").example(12_345))
        .required(
            "lastEvent",
            nullable_ref("Event", "That event; null after retention has removed it.").example(examples::event()),
        )
        .example(examples::aggregate())
}

fn aggregate_events() -> SchemaSpec {
    let example = examples::aggregate_events();
    object("Events of one aggregate.")
        .required("items", items(&example))
        .required("nextAfter", number(0..=NUMBER_MAX, "The `aggregateSequence` to continue with.").example(1))
        .required(
            "aggregateSequence",
            number(0..=NUMBER_MAX, "The aggregate's last sequence; 0: it has no events.").example(1),
        )
        .example(example)
}
