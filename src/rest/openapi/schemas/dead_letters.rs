//! Dead letters.

use super::claims::{handler_name, optional, reason};
use super::ids::topic_id;
use super::{NUMBER_MAX, rows};
use crate::rest::openapi::examples::claims::{self as examples, LETTER_ID};
use crate::rest::openapi::examples::{EVENT_ID, page_of, part};
use crate::rest::openapi::shape::{Shape, any_text, flag, list, named, named_as, number, object, time, uuid, word};
use contract::limits::REASON_BYTES_MAX;
use serde_json::json;

pub(super) fn all() -> Vec<(&'static str, Shape)> {
    vec![
        ("DeadLetter", letter()),
        ("DeadLetters", rows("DeadLetter", "A page of dead letters.", page_of(&examples::letter()))),
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
pub(in crate::rest::openapi) fn source() -> Shape {
    word(&["handler", "subscription"], "Whose work it is.").like("handler")
}

fn letter() -> Shape {
    let example = examples::letter();
    let tries = "Every try, the last ones where there were very many.";
    object("Work given up.")
        .must("id", uuid("Made by the broker.").like(LETTER_ID))
        .must("source", source())
        .must("name", handler_name("The handler, or the subscription."))
        .must("service", handler_name("The same again."))
        .must("status", word(&["open", "redriven", "discarded"], "Whether somebody has dealt with it.").like("open"))
        .must("exc_class", any_text("The class of the last failure.").like("TimeoutError"))
        .must("exc_msg", any_text("What it said.").like(part(&example, "/exc_msg")))
        .must("original_topic", topic_id("The event's topic."))
        .must("sequence", number(1..=NUMBER_MAX, "The event's number there.").like(12_345))
        .must("event_id", uuid("The event.").like(EVENT_ID))
        .may("correlation_id", any_text("The event's `correlationId`.").like("signup-7f3a"))
        .must("attempts", list(named("Attempt"), tries).like(part(&example, "/attempts")))
        .must("createdAt", time("When it was given up.").like(part(&example, "/createdAt")))
        .may("resolution", named_as("Resolution", "Who dealt with it, when and why."))
        .may("event", named_as("Event", "The event itself; absent once retention has removed it."))
        .like(example)
}

fn resolution() -> Shape {
    let new = "The event that was published in the place of the old one.";
    object("How somebody dealt with a dead letter.")
        .must("at", time("When.").like("2025-12-03T13:00:00.000Z"))
        .must("by", any_text("Who: the caller's `Producer-Id`.").like("console"))
        .may("reason", reason(REASON_BYTES_MAX))
        .may("newEventId", uuid(new).like("78d4c214-f688-43d7-9b1c-164ea146cda0"))
        .like(examples::resolution())
}

fn summary() -> Shape {
    let items = list(named("LetterCount"), "By source, name and topic.");
    object("How many dead letters are open, and whose they are.")
        .must("count", number(0..=NUMBER_MAX, "All of them.").like(2))
        .must("items", items.like(json!([examples::letter_count()])))
        .like(examples::letter_summary())
}

fn count() -> Shape {
    let example = examples::letter_count();
    object("How many dead letters one handler or subscription has in one topic.")
        .must("source", source())
        .must("name", handler_name("The handler, or the subscription."))
        .must("original_topic", topic_id("The topic."))
        .must("count", number(1..=NUMBER_MAX, "How many.").like(2))
        .must("oldest", time("When the oldest was given up.").like(part(&example, "/oldest")))
        .must("newest", time("When the newest was given up.").like(part(&example, "/newest")))
        .like(example)
}

fn dry_run(description: &str) -> Shape {
    flag(description).like(true)
}

fn redrive() -> Shape {
    let example = examples::redrive();
    let changes = "What is to be different: then a new event takes the place of the old one.";
    object("The order to try again.")
        .may("override", optional("RedriveOverride", changes, part(&example, "/override")))
        .or_null("reason", reason(REASON_BYTES_MAX))
        .may("dryRun", dry_run("Only look whether it could be done."))
        .closed()
        .like(example)
}

fn changes() -> Shape {
    let example = part(&examples::redrive(), "/override");
    let data = "The new event's payload, held against its type's schema; the old one's when absent.";
    object("What is to be different.")
        .or_null("data", object(data).open().like(part(&example, "/data")))
        .may("newEventId", flag("A new event even where the payload stays.").like(false))
        .closed()
        .like(example)
}

fn discard() -> Shape {
    object("That work need not be done.")
        .must("reason", reason(REASON_BYTES_MAX).not_empty())
        .closed()
        .like(json!({"reason": "the tenant is gone"}))
}

fn which(description: &str) -> Shape {
    object(description)
        .or_null("source", source())
        .or_null("name", any_text("Of this handler or subscription.").like("billing"))
        .or_null("topic", topic_id("Of this topic's events."))
        .may("dryRun", dry_run("Only count."))
        .closed()
        .like(examples::letter_order())
}

fn order() -> Shape {
    which("Which dead letters are meant, and why; what is absent does not narrow.")
        .or_null("reason", reason(REASON_BYTES_MAX))
}

fn discard_order() -> Shape {
    which("Which dead letters are let be, and why; what is absent does not narrow.")
        .must("reason", reason(REASON_BYTES_MAX).not_empty())
}

fn dealt_with() -> Shape {
    object("How many dead letters were dealt with, or would be.")
        .must("count", number(0..=NUMBER_MAX, "How many.").like(2))
        .may(
            "skipped",
            number(
                1..=NUMBER_MAX,
                "How many more are meant that cannot be redriven and stay open: their events are not stored any more or are \
                damaged, or their subscription was deleted.",
            )
            .like(1),
        )
        .like(json!({"count": 2}))
}
