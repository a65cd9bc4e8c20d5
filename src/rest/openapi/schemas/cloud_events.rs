//! CloudEvents 1.0 on their way in and out.

use super::ids::{ID, id, subject_type_id, topic_id};
use crate::rest::openapi::examples::{self, CREATED, EVENT_ID, OCCURRED_AT, SUBJECT, TENANT, TRACE_PARENT};
use crate::rest::openapi::shape::{
    Shape, any_text, either, flag, list, named, number, object, only_null, patterned, text, text_up_to, time, uuid,
    word,
};
use contract::limits::{BATCH_EVENTS_MAX, LABEL_BYTES_MAX, SUBJECT_BYTES_MAX};
use serde_json::json;

pub(super) fn all() -> Vec<(&'static str, Shape)> {
    vec![
        ("CloudEvent", cloud_event()),
        ("CloudEvents", cloud_events()),
        ("StoredCloudEvent", stored_cloud_event()),
        ("StoredCloudEvents", stored_cloud_events()),
    ]
}

const OWN_ID: &str = "Its id. Where it is not a UUID, the broker's `id` is the UUID, \
    version 5, of `source`, a NUL byte and this, and `cloudEventId` keeps it.";
const CONTENT_TYPE: &str = "The media type of `data`: JSON, in UTF-8. It is kept with its parameters and given back.";
const JSON_MEDIA: &str = r#"^[A-Za-z0-9!#$&^_.+-]+/([A-Za-z0-9!#$&^_.+-]+\+)?[jJ][sS][oO][nN]( *;[ -~]*)?$"#;
const SEQUENCE: &str = "A positive integer without leading zeros, and without `sequencetype` beside it: the event must become \
    exactly this sequence. Any other text is CloudEvents' extension of that name, the producer's own order, and a label.";
const COUNTED: &str = "^[1-9][0-9]{0,17}$";

fn cloud_event() -> Shape {
    let label = |example: &str, description: &str| text_up_to(LABEL_BYTES_MAX, description).like(example);
    let other = "Another attribute: a label of the event's `context`; a text, a number, a boolean or null.";
    let forms = [
        any_text("A text.").like("console"),
        number(0..=0, "An integer of 32 bits.").of_32_bits().like(7),
        flag("A boolean.").like(true),
        only_null("As if it were absent."),
    ];
    let other = either(forms, other);
    let name = patterned("^[a-z0-9]+$", "Lower-case letters and digits.").like("appid");
    object("An event as a structured CloudEvent 1.0. Our own members are extension attributes in lower case.")
        .must("specversion", word(&["1.0"], "The version of CloudEvents.").like("1.0"))
        .must("id", text_up_to(LABEL_BYTES_MAX, OWN_ID).not_empty().like(EVENT_ID))
        .must("source", text_up_to(SUBJECT_BYTES_MAX, "Which program speaks.").not_empty().like("example-service"))
        .must("type", id("A registered event type."))
        .or_null("subject", text_up_to(SUBJECT_BYTES_MAX, "What it speaks of.").not_empty().like(SUBJECT))
        .or_null("time", time("`occurredAt`.").like(OCCURRED_AT))
        .or_null("datacontenttype", patterned(JSON_MEDIA, CONTENT_TYPE).up_to(LABEL_BYTES_MAX).like("application/json"))
        .or_null("dataschema", data_schema("`dataVersion`, behind the type's id: `gts://{type}#{dataVersion}`."))
        .or_null("topic", topic_id("Where it goes; optional."))
        .or_null("subjecttype", subject_type_id("`subjectType`."))
        .or_null("tenant", uuid("Whose event it is.").like(TENANT))
        .or_null("sequence", text(SEQUENCE).like("12345"))
        .or_null("expectedaggregatesequence", patterned("^[0-9]{1,18}$", "`expectedAggregateSequence`.").like("0"))
        .or_null("traceparent", label(TRACE_PARENT, "`traceParent`."))
        .or_null("correlationid", label("signup-7f3a", "`correlationId`."))
        .or_null("causationid", label(EVENT_ID, "`causationId`."))
        .or_null("messagegroup", label("tenant-42", "`messageGroup`."))
        .or_null("deduplicationid", label("import-2025-12-03-17", "`deduplicationId`."))
        .or_null("requestid", label("req-81c2", "`requestId`."))
        .or_null("actortype", actor_type())
        .or_null("actorid", label("user-12345", "`actor.id`; goes with `actortype`."))
        .or_null("context", text("Labels whose keys cannot be attributes, as JSON.").like(r#"{"Region":"eu"}"#))
        .must("data", data())
        .others(other.like("console"))
        .names(name)
        .like(examples::cloud_event())
}

fn cloud_events() -> Shape {
    let description = "Several structured CloudEvents; each has its own result, as in a batch.";
    list(named("CloudEvent"), description).items(1, BATCH_EVENTS_MAX).like(json!([examples::cloud_event()]))
}

fn stored_cloud_event() -> Shape {
    let label = |example: &str, description: &str| text(description).like(example);
    object("A stored event as a structured CloudEvent 1.0. Numbers travel as text: they outgrow the format's integers.")
        .must("specversion", word(&["1.0"], "The version of CloudEvents.").like("1.0"))
        .must("id", text("Its id: the one it came with as a CloudEvent, else the broker's.").like(EVENT_ID))
        .must("source", text("Which program spoke.").like("example-service"))
        .must("type", id("Its type."))
        .must("time", time("`occurredAt`.").like(OCCURRED_AT))
        .must(
            "datacontenttype",
            patterned(JSON_MEDIA, "The media type of `data`, as it came.").like("application/json"),
        )
        .may("dataschema", data_schema("`gts://{type}#{dataVersion}`."))
        .must("topic", topic_id("The topic it was stored in."))
        .must("sequence", patterned(COUNTED, "Its number in the topic.").like("12345"))
        .must("position", patterned(COUNTED, "Its number in the log.").like("20071"))
        .must("createdat", time("When the broker stored it.").like(OCCURRED_AT))
        .may("subject", text("What it speaks of.").like(SUBJECT))
        .may("subjecttype", subject_type_id("What kind of thing that is."))
        .may("aggregatesequence", patterned(COUNTED, "Its number in the aggregate.").like("1"))
        .may("tenant", uuid("Whose event it is.").like(TENANT))
        .may("traceparent", label(TRACE_PARENT, "`traceParent`."))
        .may("correlationid", label("signup-7f3a", "`correlationId`."))
        .may("causationid", label(EVENT_ID, "`causationId`."))
        .may("messagegroup", label("tenant-42", "`messageGroup`."))
        .may("deduplicationid", label("import-2025-12-03-17", "`deduplicationId`."))
        .may("requestid", label("req-81c2", "`requestId`."))
        .may("actortype", actor_type())
        .may("actorid", label("user-12345", "`actor.id`."))
        .may("context", text("Labels whose keys cannot be attributes, as JSON.").like(r#"{"Region":"eu"}"#))
        .must("data", data())
        .others(text("A label of the event's `context`.").like("console"))
        .like(examples::stored_cloud_event())
}

fn stored_cloud_events() -> Shape {
    list(named("StoredCloudEvent"), "Events, in order.").like(json!([examples::stored_cloud_event()]))
}

fn actor_type() -> Shape {
    word(&["user", "service_principal", "system"], "`actor.type`; goes with `actorid`.").like("user")
}

fn data_schema(description: &str) -> Shape {
    let type_id = ID.trim_start_matches('^').trim_end_matches('$');
    let pattern = format!(r"^gts://{type_id}#[0-9]{{1,9}}\.[0-9]{{1,9}}$");
    patterned(&pattern, description).like(format!("gts://{CREATED}#1.0"))
}

fn data() -> Shape {
    let description = "The payload, held against the type's schema. Binary data (`data_base64`) is not taken.";
    object(description).open().like(json!({"userId": "user-12345", "email": "user@example.com"}))
}
