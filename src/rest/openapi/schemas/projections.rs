//! Projections and their checkpoints.

use super::ids::topic_id;
use super::{NUMBER_MAX, rows};
use crate::rest::openapi::examples::{self, CEL, PROJECTION, part};
use crate::rest::openapi::rules::rule;
use crate::rest::openapi::shape::{Shape, flag, named, number, object, patterned, text, time};
use contract::limits::{CEL_BYTES_MAX, LABEL_BYTES_MAX};
use serde_json::json;

pub(super) fn all() -> Vec<(&'static str, Shape)> {
    vec![
        ("ProjectionInput", new_projection()),
        ("Projection", projection()),
        ("Projections", rows("Projection", "A page of projections.", examples::page_of(&examples::projection()))),
        ("Lag", lag()),
        ("CheckpointInput", new_checkpoint()),
        ("ProjectionReset", reset()),
    ]
}

/// A projection's name.
pub(in crate::rest::openapi) fn name() -> Shape {
    let description = format!("The projection's name: no commas, no colons. At most {LABEL_BYTES_MAX} bytes as UTF-8.");
    patterned(r"^[^\x00-\x1f\x7f-\x9f,:]+$", &description).not_empty().up_to(LABEL_BYTES_MAX).like(PROJECTION)
}

fn filter() -> Shape {
    let description = format!("A CEL expression: what the view is made of. At most {CEL_BYTES_MAX} bytes as UTF-8.");
    text(&description).not_empty().up_to(CEL_BYTES_MAX).like(CEL)
}

fn of_log() -> Shape {
    flag("That it reads all topics of the default log.")
}

fn new_projection() -> Shape {
    object("A projection as one asks for it: of one topic, or of the whole log.")
        .or_null("topic", topic_id("What it reads; or `log`."))
        .may("log", of_log().like(json!(true)))
        .or_null("filter", filter())
        .ruled([rule().with("topic").with_flag("log", false), rule().with_flag("log", true).without("topic")])
        .closed()
        .like(examples::new_projection())
}

fn projection() -> Shape {
    let example = examples::projection();
    let timed = |name: &str, description: &str| time(description).like(part(&example, &format!("/{name}")));
    let offset = |description: &str| number(0..=NUMBER_MAX, description);
    object("A projection, and how far it has come.")
        .must("name", name())
        .may("topic", topic_id("What it reads."))
        .may("log", of_log().like(json!(true)))
        .may("filter", filter())
        .must("checkpoint", offset("What its view has applied; 0: nothing so far.").like(12_300))
        .must(
            "generation",
            number(
                1..=NUMBER_MAX,
                "1 at first, one more with every reset. One that is deleted and registered again goes on counting.",
            )
            .like(2),
        )
        .must("start", offset("Where this generation begins.").like(0))
        .must("lag", named("Lag"))
        .must("createdAt", timed("createdAt", "When it was registered."))
        .must("updatedAt", timed("updatedAt", "When its filter, its checkpoint or its generation last changed."))
        .like(example.clone())
}

fn lag() -> Shape {
    let count = |description: &str| number(0..=NUMBER_MAX, description);
    let events = "How many numbers lie between checkpoint and tail; of the log, some of them the broker's own.";
    object("How far a view is behind.")
        .must("events", count(events).like(45))
        .must("seconds", count("The age of the oldest event it has not applied; 0 where there is none.").like(3))
        .like(json!({"events": 45, "seconds": 3}))
}

fn new_checkpoint() -> Shape {
    let offset = |description: &str| number(0..=u64::MAX, description);
    object("How far a view has come.")
        .must("offset", offset("What is applied, durably; not beyond the tail.").like(1))
        .or_null("expected", offset("Where the checkpoint must be; anything else is refused.").like(0))
        .or_null("generation", offset("The generation this is said for; any other is refused.").like(1))
        .closed()
        .like(examples::new_checkpoint())
}

fn reset() -> Shape {
    object("Where a view is to begin anew.")
        .must("offset", number(0..=u64::MAX, "Behind this; 0: from the beginning. Not beyond the tail.").like(0))
        .closed()
        .like(json!({"offset": 0}))
}
