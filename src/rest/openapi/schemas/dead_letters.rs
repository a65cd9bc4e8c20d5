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

/// Whose work was given up.
pub(in crate::rest::openapi) fn source() -> SchemaSpec {
    enumeration(&["handler", "subscription"], "Whose work it is.").example("handler")
}

fn letter() -> SchemaSpec {
    let example = examples::letter();
    let tries = "Every try, the last ones where there were very many.";
    object("Work given up.")
        .required("id", uuid("Made by the broker.").example(LETTER_ID))
        .required("source", source())
        .required("name", handler_name("The handler, or the subscription."))
        .required("service", handler_name("The same again."))
        .required(
            "status",
            enumeration(&["open", "redriven", "discarded"], "Whether somebody has dealt with it.").example("open"),
        )
        .required("exc_class", any_text("The class of the last failure.").example("TimeoutError"))
        .required("exc_msg", any_text("What it said.").example(at_pointer(&example, "/exc_msg")))
        .required("original_topic", topic_id("The event's topic."))
        .required("sequence", number(1..=NUMBER_MAX, "The event's number there.").example(12_345))
        .required("event_id", uuid("The event.").example(EVENT_ID))
        .optional("correlation_id", any_text("The event's `correlationId`.").example("signup-7f3a"))
        .required("attempts", list(schema_ref("Attempt"), tries).example(at_pointer(&example, "/attempts")))
        .required("createdAt", time("When it was given up.").example(at_pointer(&example, "/createdAt")))
        .optional("resolution", described_ref("Resolution", "Who dealt with it, when and why."))
        .optional("event", described_ref("Event", "The event itself; absent once retention has removed it."))
        .example(example)
}

fn resolution() -> SchemaSpec {
    let new = "The event that was published in the place of the old one.";
    object("How somebody dealt with a dead letter.")
        .required("at", time("When.").example("2025-12-03T13:00:00.000Z"))
        .required("by", any_text("Who: the caller's `Producer-Id`.").example("console"))
        .optional("reason", reason(REASON_BYTES_MAX))
        .optional("newEventId", uuid(new).example("78d4c214-f688-43d7-9b1c-164ea146cda0"))
        .example(examples::resolution())
}

fn summary() -> SchemaSpec {
    let items = list(schema_ref("LetterCount"), "By source, name and topic.");
    object("How many dead letters are open, and whose they are.")
        .required("count", number(0..=NUMBER_MAX, "All of them.").example(2))
        .required("items", items.example(json!([examples::letter_count()])))
        .example(examples::letter_summary())
}

fn count() -> SchemaSpec {
    let example = examples::letter_count();
    object("How many dead letters one handler or subscription has in one topic.")
        .required("source", source())
        .required("name", handler_name("The handler, or the subscription."))
        .required("original_topic", topic_id("The topic."))
        .required("count", number(1..=NUMBER_MAX, "How many.").example(2))
        .required("oldest", time("When the oldest was given up.").example(at_pointer(&example, "/oldest")))
        .required("newest", time("When the newest was given up.").example(at_pointer(&example, "/newest")))
        .example(example)
}

fn dry_run(description: &str) -> SchemaSpec {
    boolean(description).example(true)
}

fn redrive() -> SchemaSpec {
    let example = examples::redrive();
    let changes = "What is to be different: then a new event takes the place of the old one.";
    object("The order to try again.")
        .optional("override", optional("RedriveOverride", changes, at_pointer(&example, "/override")))
        .optional_nullable("reason", reason(REASON_BYTES_MAX))
        .optional("dryRun", dry_run("Only look whether it could be done."))
        .closed()
        .example(example)
}

fn changes() -> SchemaSpec {
    let example = at_pointer(&examples::redrive(), "/override");
    let data = "The new event's payload, held against its type's schema; the old one's when absent.";
    object("What is to be different.")
        .optional_nullable("data", object(data).open().example(at_pointer(&example, "/data")))
        .optional("newEventId", boolean("A new event even where the payload stays.").example(false))
        .closed()
        .example(example)
}

fn discard() -> SchemaSpec {
    object("That work need not be done.")
        .required("reason", reason(REASON_BYTES_MAX).not_empty())
        .closed()
        .example(json!({"reason": "the tenant is gone"}))
}

fn which(description: &str) -> SchemaSpec {
    object(description)
        .optional_nullable("source", source())
        .optional_nullable("name", any_text("Of this handler or subscription.").example("billing"))
        .optional_nullable("topic", topic_id("Of this topic's events."))
        .optional("dryRun", dry_run("Only count."))
        .closed()
        .example(examples::letter_order())
}

fn order() -> SchemaSpec {
    which("Which dead letters are meant, and why; what is absent does not narrow.")
        .optional_nullable("reason", reason(REASON_BYTES_MAX))
}

fn discard_order() -> SchemaSpec {
    which("Which dead letters are let be, and why; what is absent does not narrow.")
        .required("reason", reason(REASON_BYTES_MAX).not_empty())
}

fn dealt_with() -> SchemaSpec {
    object("How many dead letters were dealt with, or would be.")
        .required("count", number(0..=NUMBER_MAX, "How many.").example(2))
        .optional(
            "skipped",
            number(
                1..=NUMBER_MAX,
                "How many more are meant that cannot be redriven and stay open: their events are not stored any more or are \
                damaged, or their subscription was deleted.",
            )
            .example(1),
        )
        .example(json!({"count": 2}))
}
