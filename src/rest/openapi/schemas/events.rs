//! Events on their way in and out.

use super::NUMBER_MAX;
use super::ids::{id, subject_type_id, topic_id, version};
use crate::rest::openapi::Bounds;
use crate::rest::openapi::examples::{self, EVENT_ID, OCCURRED_AT, SUBJECT, TENANT, TRACE_PARENT, part};
use crate::rest::openapi::rules::rule;
use crate::rest::openapi::shape::{
    Shape, flag, list, named, named_as, named_or_null, number, object, text, text_up_to, time, uuid, word,
};
use contract::limits::{CONTEXT_BYTES_MAX, CONTEXT_PAIRS_MAX, DATA_DEPTH_MAX, LABEL_BYTES_MAX, SUBJECT_BYTES_MAX};
use serde_json::{Value, json};

pub(super) fn all(bounds: &Bounds) -> Vec<(&'static str, Shape)> {
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

fn new_event() -> Shape {
    let label = |example: &str, description: &str| text_up_to(LABEL_BYTES_MAX, description).like(example);
    object("An event as a producer submits it.")
        .or_null("id", uuid(MADE).like(EVENT_ID))
        .must("type", id("A registered event type."))
        .or_null("topic", topic_id("Where it goes. Optional, because the type says it; a different one is refused."))
        .or_null("occurredAt", time("When it happened; the time of arrival when absent.").like(OCCURRED_AT))
        .must("source", text_up_to(SUBJECT_BYTES_MAX, "Which program speaks.").not_empty().like("example-service"))
        .or_null("subject", subject("What it speaks of; required unless the type allows none."))
        .or_null("subjectType", subject_type_id("What kind of thing that is; the type may allow some kinds only."))
        .or_null("tenant", uuid("Whose event it is; required unless the server is told otherwise.").like(TENANT))
        .or_null("dataVersion", version("The version of the type's schema; the CURRENT one when absent."))
        .or_null("sequence", number(1..=NUMBER_MAX, "The event must become exactly this sequence.").like(12_345))
        .or_null("expectedAggregateSequence", number(0..=u64::MAX, AS_EXPECTED).like(0))
        .or_null("traceParent", label(TRACE_PARENT, "W3C trace context."))
        .or_null("correlationId", label("signup-7f3a", "Groups what belongs to one business transaction."))
        .or_null("causationId", label(EVENT_ID, "The event that caused this one."))
        .or_null("messageGroup", label("tenant-42", "Deliveries of one message group go in order."))
        .or_null("deduplicationId", label("import-2025-12-03-17", DEDUPLICATION))
        .or_null("requestId", label("req-81c2", "The request that led to this event."))
        .may("actor", named_or_null("Actor", "Who did it.").like(user()))
        .may("context", context())
        .may("contextData", context_data())
        .must("data", data())
        .closed()
        .ruled([rule().without("contextData"), rule().without("context")])
        .like(examples::new_event())
}

fn event() -> Shape {
    let label = |example: &str, description: &str| text(description).like(example);
    let own = |description: &str| number(1..=NUMBER_MAX, description);
    object("A stored event. It never changes.")
        .must("id", uuid("Its id.").like(EVENT_ID))
        .may("cloudEventId", text(CLOUD_EVENT_ID).like("A234-1234-1234"))
        .may("dataContentType", text(DATA_CONTENT_TYPE).like("application/vnd.acme+json"))
        .must("type", id("Its type, spelt as the producer did."))
        .must("topic", topic_id("The topic it was stored in."))
        .must("sequence", own("Its number in the topic, without gaps.").like(12_345))
        .may("aggregateSequence", own("Its number in the aggregate; absent where it speaks of none.").like(1))
        .must("position", own("Its number in the log.").like(20_071))
        .must("createdAt", time("When the broker stored it.").like(OCCURRED_AT))
        .must("occurredAt", time("When it happened.").like(OCCURRED_AT))
        .must("source", text("Which program spoke.").like("example-service"))
        .may("subject", text("What it speaks of.").like(SUBJECT))
        .may("subjectType", subject_type_id("What kind of thing that is."))
        .may("tenant", uuid("Whose event it is.").like(TENANT))
        .may("dataVersion", text("The version of the type's schema it was held against.").like("1.0"))
        .may("traceParent", label(TRACE_PARENT, "W3C trace context."))
        .may("correlationId", label("signup-7f3a", "Groups what belongs to one business transaction."))
        .may("causationId", label(EVENT_ID, "The event that caused this one."))
        .may("messageGroup", label("tenant-42", "Deliveries of one message group go in order."))
        .may("deduplicationId", label("import-2025-12-03-17", "What deduplicated it."))
        .may("requestId", label("req-81c2", "The request that led to it."))
        .may("actor", named_as("Actor", "Who did it."))
        .may(
            "republishOf",
            own("Where it was published again: the sequence at which it was first stored.").like(12_000),
        )
        .may("context", context())
        .must("data", data())
        .like(examples::event())
}

fn polled_event() -> Shape {
    let description = "Where the members of a group divide the events: the claim to this one. Finish it with `:done` or \
        `:fail`.";
    event().may("claim", named_as("Claim", description))
}

fn actor() -> Shape {
    let kinds = ["user", "service_principal", "system"];
    object("Who caused an event.")
        .must("type", word(&kinds, "What kind of actor.").like("user"))
        .must("id", text_up_to(LABEL_BYTES_MAX, "Its id in its own system.").like("user-12345"))
        .closed()
        .like(user())
}

fn user() -> Value {
    json!({"type": "user", "id": "user-12345"})
}

fn subject(description: &str) -> Shape {
    text_up_to(SUBJECT_BYTES_MAX, description).not_empty().like(SUBJECT)
}

fn context() -> Shape {
    let label = |description: &str| text_up_to(CONTEXT_BYTES_MAX, description);
    object("Labels to search by.")
        .others(label("A label's value.").like("console"))
        .members(CONTEXT_PAIRS_MAX, label("A label's key.").like("appId"))
        .like(json!({"appId": "console"}))
}

fn context_data() -> Shape {
    let description =
        "The labels as a list; instead of `context`. No key twice. They are kept and served as `context`.";
    list(named("ContextPair"), description)
        .items(0, CONTEXT_PAIRS_MAX)
        .like(json!([{"key": "appId", "value": "console"}]))
}

fn context_pair() -> Shape {
    object("A label.")
        .must("key", text_up_to(CONTEXT_BYTES_MAX, "Its key.").like("appId"))
        .must("value", text_up_to(CONTEXT_BYTES_MAX, "Its value.").like("console"))
        .closed()
        .like(json!({"key": "appId", "value": "console"}))
}

fn data() -> Shape {
    let description = format!(
        "The payload, kept as it was spelt and held against the type's schema. At most {DATA_DEPTH_MAX} levels deep; no \
        member name twice, no NUL in any text."
    );
    object(&description).open().like(json!({"userId": "user-12345", "email": "user@example.com"}))
}

fn new_batch(bounds: &Bounds) -> Shape {
    let example = examples::new_batch();
    let events = list(
        named("EventInput"),
        "The events. One that is refused gets its own result; the rest stands or falls \
        with it as `atomic` says.",
    );
    object("Events to be published together.")
        .must("events", events.items(1, bounds.batch_max).like(part(&example, "/events")))
        .closed()
        .like(example)
}

fn batch_outcome() -> Shape {
    let example = examples::batch_outcome();
    let count = |description: &str| number(0..=NUMBER_MAX, description);
    let results = list(named("BatchResult"), "One result per event, in the order they were sent.");
    let data = object("The results.")
        .must("results", results.like(part(&example, "/data/results")))
        .like(part(&example, "/data"));
    let meta = object("How many there are of each.")
        .must("total", count("Events in the batch.").like(2))
        .must("succeeded", count("Stored now or before.").like(1))
        .must("failed", count("Refused.").like(1))
        .like(part(&example, "/meta"));
    object("What became of a batch.").must("data", data).must("meta", meta).like(example)
}

fn batch_result() -> Shape {
    let status = "What publishing it alone would have been answered with; 424 where a sibling was refused.";
    object("What became of one event of a batch.")
        .must("index", number(0..=NUMBER_MAX, "Its place in the batch, from 0.").like(0))
        .must("status", number(200..=599, status).like(201))
        .may("payloadMismatch", flag("The first submission's `data` was another; the topic flags it.").like(true))
        .may("deprecated", flag("It was published under a DEPRECATED version of its type's schema.").like(true))
        .may("event", named_as("Event", "The stored event, where it was not refused."))
        .may("error", named_as("Problem", "The refusal, without `instance` and `traceId`."))
        .like(part(&examples::batch_outcome(), "/data/results/0"))
}

fn items(example: &Value) -> Shape {
    list(named("Event"), "The events, in order.").like(part(example, "/items"))
}

fn event_page() -> Shape {
    let example = examples::event_page();
    let next = "How far the read came, matching or not: go on here. For a member of a shared group, how far the group has \
        come.";
    let items = list(named("PolledEvent"), "The events, in order.").like(part(&example, "/items"));
    object("Events of one topic.")
        .must("items", items)
        .must("nextOffset", number(0..=NUMBER_MAX, next).like(12_345))
        .must("tail", number(0..=NUMBER_MAX, "The topic's last sequence.").like(12_345))
        .like(example)
}

fn log_page() -> Shape {
    let example = examples::log_page();
    object("Events of all topics of the default log.")
        .must("items", items(&example))
        .must("nextPosition", number(0..=NUMBER_MAX, "How far the read came: go on here.").like(20_071))
        .must("tail", number(0..=NUMBER_MAX, "The log's last position.").like(20_071))
        .like(example)
}

fn aggregate() -> Shape {
    object("An aggregate: its last sequence and its last event.")
        .must("aggregateSequence", number(1..=NUMBER_MAX, "Its last number.").like(1))
        .must("sequence", number(1..=NUMBER_MAX, "That event's number in the topic.").like(12_345))
        .must(
            "lastEvent",
            named_or_null("Event", "That event; null once retention has removed it.").like(examples::event()),
        )
        .like(examples::aggregate())
}

fn aggregate_events() -> Shape {
    let example = examples::aggregate_events();
    object("Events of one aggregate.")
        .must("items", items(&example))
        .must("nextAfter", number(0..=NUMBER_MAX, "How far the read came: go on here.").like(1))
        .must("aggregateSequence", number(0..=NUMBER_MAX, "The aggregate's last number; 0: there is none.").like(1))
        .like(example)
}
