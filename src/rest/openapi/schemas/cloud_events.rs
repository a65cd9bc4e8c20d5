//! CloudEvents 1.0, as they are published and as they are read.

use super::ids::{ID, id, subject_type_id, topic_id};
use crate::rest::openapi::examples::{self, CREATED, EVENT_ID, OCCURRED_AT, SUBJECT, TENANT, TRACE_PARENT};
use crate::rest::openapi::schema_spec::{
    SchemaSpec, any_of, any_text, boolean, enumeration, list, number, object, only_null, patterned, schema_ref, text,
    text_up_to, time, uuid,
};
use contract::limits::{BATCH_EVENTS_MAX, LABEL_BYTES_MAX, SUBJECT_BYTES_MAX};
use serde_json::json;

pub(super) fn all() -> Vec<(&'static str, SchemaSpec)> {
    vec![
        ("CloudEvent", cloud_event()),
        ("CloudEvents", cloud_events()),
        ("StoredCloudEvent", stored_cloud_event()),
        ("StoredCloudEvents", stored_cloud_events()),
    ]
}

const OWN_ID: &str = "The id. If it is not a UUID, the broker's `id` is the UUID (version 5) of `source`, a NUL byte and \
    this, and `cloudEventId` keeps it.";
const CONTENT_TYPE: &str = "The media type of `data`: JSON, in UTF-8. It is stored with its parameters and returned.";
const JSON_MEDIA: &str = r#"^[A-Za-z0-9!#$&^_.+-]+/([A-Za-z0-9!#$&^_.+-]+\+)?[jJ][sS][oO][nN]( *;[ -~]*)?$"#;
const SEQUENCE: &str = "A positive integer without leading zeros, if there is no `sequencetype`: the sequence that the \
    event must get. Any other text is the CloudEvents extension of that name (the producer's own order), and is stored \
    as a label.";
const COUNTED: &str = "^[1-9][0-9]{0,17}$";

fn cloud_event() -> SchemaSpec {
    let label = |example: &str, description: &str| text_up_to(LABEL_BYTES_MAX, description).example(example);
    let other = "An extension attribute, which becomes a label in the event's `context`: a text, a number, a boolean or \
        null.";
    let forms = [
        any_text("A text.").example("console"),
        number(0..=0, "An integer of 32 bits.").of_32_bits().example(7),
        boolean("A boolean.").example(true),
        only_null("The same as absent."),
    ];
    let other = any_of(forms, other);
    let name = patterned("^[a-z0-9]+$", "Lower-case letters and digits.").example("appid");
    object("An event as a structured CloudEvent 1.0. Members of this broker are extension attributes in lower case.")
        .required("specversion", enumeration(&["1.0"], "The version of CloudEvents.").example("1.0"))
        .required("id", text_up_to(LABEL_BYTES_MAX, OWN_ID).not_empty().example(EVENT_ID))
        .required(
            "source",
            text_up_to(SUBJECT_BYTES_MAX, "The program that publishes.").not_empty().example("example-service"),
        )
        .required("type", id("A registered event type."))
        .optional_nullable(
            "subject",
            text_up_to(SUBJECT_BYTES_MAX, "What the event is about.").not_empty().example(SUBJECT),
        )
        .optional_nullable("time", time("`occurredAt`.").example(OCCURRED_AT))
        .optional_nullable(
            "datacontenttype",
            patterned(JSON_MEDIA, CONTENT_TYPE).max_length(LABEL_BYTES_MAX).example("application/json"),
        )
        .optional_nullable(
            "dataschema",
            data_schema("The type's id and the `dataVersion`: `gts://{type}#{dataVersion}`."),
        )
        .optional_nullable("topic", topic_id("The topic; optional."))
        .optional_nullable("subjecttype", subject_type_id("`subjectType`."))
        .optional_nullable("tenant", uuid("The tenant.").example(TENANT))
        .optional_nullable("sequence", text(SEQUENCE).example("12345"))
        .optional_nullable(
            "expectedaggregatesequence",
            patterned("^[0-9]{1,18}$", "`expectedAggregateSequence`.").example("0"),
        )
        .optional_nullable("traceparent", label(TRACE_PARENT, "`traceParent`."))
        .optional_nullable("correlationid", label("signup-7f3a", "`correlationId`."))
        .optional_nullable("causationid", label(EVENT_ID, "`causationId`."))
        .optional_nullable("messagegroup", label("tenant-42", "`messageGroup`."))
        .optional_nullable("deduplicationid", label("import-2025-12-03-17", "`deduplicationId`."))
        .optional_nullable("requestid", label("req-81c2", "`requestId`."))
        .optional_nullable("actortype", actor_type())
        .optional_nullable("actorid", label("user-12345", "`actor.id`; used together with `actortype`."))
        .optional_nullable(
            "context",
            text("Labels whose keys cannot be attributes, as JSON.").example(r#"{"Region":"eu"}"#),
        )
        .required("data", data())
        .additional(other.example("console"))
        .property_names(name)
        .example(examples::cloud_event())
}

fn cloud_events() -> SchemaSpec {
    let description = "Several structured CloudEvents; each has its own result, as in a batch.";
    list(schema_ref("CloudEvent"), description).items(1, BATCH_EVENTS_MAX).example(json!([examples::cloud_event()]))
}

fn stored_cloud_event() -> SchemaSpec {
    let label = |example: &str, description: &str| text(description).example(example);
    object(
        "A stored event as a structured CloudEvent 1.0. Numbers are strings, because they may exceed the integers of \
        the format.",
    )
    .required("specversion", enumeration(&["1.0"], "The version of CloudEvents.").example("1.0"))
    .required("id", text("The id: of the original CloudEvent, otherwise the broker's.").example(EVENT_ID))
    .required("source", text("The program that published the event.").example("example-service"))
    .required("type", id("The type."))
    .required("time", time("`occurredAt`.").example(OCCURRED_AT))
    .required(
        "datacontenttype",
        patterned(JSON_MEDIA, "The media type of `data`, as it was published.").example("application/json"),
    )
    .optional("dataschema", data_schema("`gts://{type}#{dataVersion}`."))
    .required("topic", topic_id("The topic."))
    .required("sequence", patterned(COUNTED, "The sequence in the topic.").example("12345"))
    .required("position", patterned(COUNTED, "The position in the log.").example("20071"))
    .required("createdat", time("When the broker stored it.").example(OCCURRED_AT))
    .optional("subject", text("What the event is about.").example(SUBJECT))
    .optional("subjecttype", subject_type_id("The type of the subject."))
    .optional("aggregatesequence", patterned(COUNTED, "The sequence in the aggregate.").example("1"))
    .optional("tenant", uuid("The tenant.").example(TENANT))
    .optional("traceparent", label(TRACE_PARENT, "`traceParent`."))
    .optional("correlationid", label("signup-7f3a", "`correlationId`."))
    .optional("causationid", label(EVENT_ID, "`causationId`."))
    .optional("messagegroup", label("tenant-42", "`messageGroup`."))
    .optional("deduplicationid", label("import-2025-12-03-17", "`deduplicationId`."))
    .optional("requestid", label("req-81c2", "`requestId`."))
    .optional("actortype", actor_type())
    .optional("actorid", label("user-12345", "`actor.id`."))
    .optional("context", text("Labels whose keys cannot be attributes, as JSON.").example(r#"{"Region":"eu"}"#))
    .required("data", data())
    .additional(text("A label of the event's `context`.").example("console"))
    .example(examples::stored_cloud_event())
}

fn stored_cloud_events() -> SchemaSpec {
    list(schema_ref("StoredCloudEvent"), "Events, in order.").example(json!([examples::stored_cloud_event()]))
}

fn actor_type() -> SchemaSpec {
    enumeration(&["user", "service_principal", "system"], "`actor.type`; used together with `actorid`.").example("user")
}

fn data_schema(description: &str) -> SchemaSpec {
    let type_id = ID.trim_start_matches('^').trim_end_matches('$');
    let pattern = format!(r"^gts://{type_id}#[0-9]{{1,9}}\.[0-9]{{1,9}}$");
    patterned(&pattern, description).example(format!("gts://{CREATED}#1.0"))
}

fn data() -> SchemaSpec {
    let description = "The payload, validated against the type's schema. Binary data (`data_base64`) is not supported.";
    object(description).open().example(json!({"userId": "user-12345", "email": "user@example.com"}))
}
