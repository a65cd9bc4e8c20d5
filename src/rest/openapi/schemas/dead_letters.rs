//! Dead letters.

use super::claims::{handler_name, optional, reason};
use super::ids::topic_id;
use super::{NUMBER_MAX, list_page};
use crate::rest::openapi::examples::claims::{self as examples, LETTER_ID};
use crate::rest::openapi::examples::{EVENT_ID, at_pointer, page_of};
use crate::rest::openapi::schema_spec::{
    SchemaSpec, any_text, boolean, described_ref, enumeration, list, number, object, schema_ref, time, uuid,
};
use contract::limits::REASON_BYTES_MAX;
use serde_json::json;

pub(super) fn all() -> Vec<(&'static str, SchemaSpec)> {
    vec![
        ("DeadLetter", letter()),
        ("DeadLetters", list_page("DeadLetter", "A page of dead letters.", page_of(&examples::letter()))),
        ("Resolution", resolution()),
        ("LetterSummary", summary()),
        ("LetterCount", count()),
        ("Redrive", redrive()),
        ("RedriveOverride", changes()),
        ("Discard", discard()),
        ("LetterOrder", order()),
        ("LetterDiscard", discard_order()),
        ("LettersDealtWith", dealt_with()),
    ]
}

/// The source of a dead letter.
pub(in crate::rest::openapi) fn source() -> SchemaSpec {
    enumeration(&["handler", "subscription"], "Whether a handler or a subscription gave up the event.")
        .example("handler")
}

fn letter() -> SchemaSpec {
    let tries = "The attempts; of very many, the last ones.";
    object("A dead letter.")
        .required("id", uuid("Assigned by the broker.").example(LETTER_ID))
        .required("source", source())
        .required("name", handler_name("The handler or the subscription."))
        .required("service", handler_name("The same as `name`."))
        .required("status", enumeration(&["open", "redriven", "discarded"], "Whether it was resolved.").example("open"))
        .required("exc_class", any_text("The class of the last failure.").example("TimeoutError"))
        .required("exc_msg", any_text("The message of the last failure."))
        .required("original_topic", topic_id("The event's topic."))
        .required("sequence", number(1..=NUMBER_MAX, "The event's sequence.").example(12_345))
        .required("event_id", uuid("The event.").example(EVENT_ID))
        .optional("correlation_id", any_text("The event's `correlationId`.").example("signup-7f3a"))
        .required("attempts", list(schema_ref("Attempt"), tries))
        .required("createdAt", time("When it became a dead letter."))
        .optional("resolution", described_ref("Resolution", "Who resolved it, when and why."))
        .optional("event", described_ref("Event", "The event; absent if it cannot be read."))
        .optional("eventError", event_error())
        .example(examples::letter())
}

/// Why there is no event.
pub(super) fn event_error() -> SchemaSpec {
    any_text("Why the event cannot be read: it is damaged on disk, or was removed.")
        .example("The event was removed from the topic.")
}

fn resolution() -> SchemaSpec {
    let new = "The corrected event.";
    object("How a dead letter was resolved.")
        .required("at", time("When it was resolved.").example("2025-12-03T13:00:00.000Z"))
        .required("by", any_text("The caller's `Producer-Id`.").example("console"))
        .optional("reason", reason(REASON_BYTES_MAX))
        .optional("newEventId", uuid(new).example("78d4c214-f688-43d7-9b1c-164ea146cda0"))
        .example(examples::resolution())
}

fn summary() -> SchemaSpec {
    let items = list(schema_ref("LetterCount"), "One row per source, name and topic.");
    object("The number of open dead letters, by source, name and topic.")
        .required("count", number(0..=NUMBER_MAX, "The total.").example(2))
        .required("items", items.example(json!([examples::letter_count()])))
        .example(examples::letter_summary())
}

fn count() -> SchemaSpec {
    object("The number of open dead letters of one handler or subscription in one topic.")
        .required("source", source())
        .required("name", handler_name("The handler or the subscription."))
        .required("original_topic", topic_id("The topic."))
        .required("count", number(1..=NUMBER_MAX, "The number.").example(2))
        .required("oldest", time("When the oldest became a dead letter."))
        .required("newest", time("When the newest became a dead letter."))
        .example(examples::letter_count())
}

fn dry_run(description: &str) -> SchemaSpec {
    boolean(description).example(true)
}

fn redrive() -> SchemaSpec {
    let example = examples::redrive();
    let changes = "Changes of the event. With them, a corrected event is appended and replaces the original for this \
        handler or subscription.";
    object("A redrive.")
        .optional("override", optional("RedriveOverride", changes, at_pointer(&example, "/override")))
        .optional_nullable("reason", reason(REASON_BYTES_MAX))
        .optional("dryRun", dry_run("Only check whether it is possible."))
        .closed()
        .example(example)
}

fn changes() -> SchemaSpec {
    let data = "The payload of the new event, validated against its type's schema. Default: the original payload.";
    object("The changes.")
        .optional_nullable("data", object(data).open())
        .optional("newEventId", boolean("Whether to append a new event even with the same payload.").example(false))
        .closed()
        .example(at_pointer(&examples::redrive(), "/override"))
}

fn discard() -> SchemaSpec {
    object("A discard: the work need not be done.")
        .required("reason", reason(REASON_BYTES_MAX).not_empty())
        .closed()
        .example(json!({"reason": "the tenant is gone"}))
}

fn which(description: &str) -> SchemaSpec {
    object(description)
        .optional_nullable("source", source())
        .optional_nullable("name", any_text("Only of this handler or subscription.").example("billing"))
        .optional_nullable("topic", topic_id("Only of events of this topic."))
        .optional("dryRun", dry_run("Only count them."))
        .closed()
        .example(examples::letter_order())
}

fn order() -> SchemaSpec {
    which("The dead letters to redrive, and the reason. Absent members match all.")
        .optional_nullable("reason", reason(REASON_BYTES_MAX))
}

fn discard_order() -> SchemaSpec {
    which("The dead letters to discard, and the reason. Absent members match all.")
        .required("reason", reason(REASON_BYTES_MAX).not_empty())
}

fn dealt_with() -> SchemaSpec {
    object("The number of dead letters that were resolved, or would be.")
        .required("count", number(0..=NUMBER_MAX, "The number.").example(2))
        .optional(
            "skipped",
            number(
                1..=NUMBER_MAX,
                "The number of matching dead letters that cannot be redriven and stay open: their events are no longer \
                    stored or are damaged, or their subscription was deleted.",
            )
            .example(1),
        )
        .example(json!({"count": 2}))
}
