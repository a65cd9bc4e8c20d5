//! Projections and their checkpoints.

use super::ids::topic_id;
use super::{NUMBER_MAX, list_page};
use crate::rest::openapi::examples::{self, CEL, PROJECTION, at_pointer};
use crate::rest::openapi::member_rules::rule;
use crate::rest::openapi::schema_spec::{SchemaSpec, boolean, number, object, patterned, schema_ref, text, time};
use contract::limits::{CEL_BYTES_MAX, LABEL_BYTES_MAX};
use serde_json::json;

pub(super) fn all() -> Vec<(&'static str, SchemaSpec)> {
    vec![
        ("ProjectionInput", new_projection()),
        ("Projection", projection()),
        ("Projections", list_page("Projection", "A page of projections.", examples::page_of(&examples::projection()))),
        ("Lag", lag()),
        ("CheckpointInput", new_checkpoint()),
        ("ProjectionReset", reset()),
    ]
}

/// A projection's name.
pub(in crate::rest::openapi) fn name() -> SchemaSpec {
    let description = format!("The projection's name: no commas, no colons. At most {LABEL_BYTES_MAX} bytes as UTF-8.");
    patterned(r"^[^\x00-\x1f\x7f-\x9f,:]+$", &description).not_empty().max_length(LABEL_BYTES_MAX).example(PROJECTION)
}

fn filter() -> SchemaSpec {
    let description = format!("A CEL expression: what the view is made of. At most {CEL_BYTES_MAX} bytes as UTF-8.");
    text(&description).not_empty().max_length(CEL_BYTES_MAX).example(CEL)
}

fn of_log() -> SchemaSpec {
    boolean("That it reads all topics of the default log.")
}

fn new_projection() -> SchemaSpec {
    object("A projection as one asks for it: of one topic, or of the whole log.")
        .optional_nullable("topic", topic_id("What it reads; or `log`."))
        .optional("log", of_log().example(json!(true)))
        .optional_nullable("filter", filter())
        .with_rules([rule().with("topic").with_flag("log", false), rule().with_flag("log", true).without("topic")])
        .closed()
        .example(examples::new_projection())
}

fn projection() -> SchemaSpec {
    let example = examples::projection();
    let timed = |name: &str, description: &str| time(description).example(at_pointer(&example, &format!("/{name}")));
    let offset = |description: &str| number(0..=NUMBER_MAX, description);
    object("A projection, and how far it has come.")
        .required("name", name())
        .optional("topic", topic_id("What it reads."))
        .optional("log", of_log().example(json!(true)))
        .optional("filter", filter())
        .required("checkpoint", offset("What its view has applied; 0: nothing so far.").example(12_300))
        .required(
            "generation",
            number(
                1..=NUMBER_MAX,
                "1 at first, one more with every reset. One that is deleted and registered again goes on counting.",
            )
            .example(2),
        )
        .required("start", offset("Where this generation begins.").example(0))
        .required("lag", schema_ref("Lag"))
        .required("createdAt", timed("createdAt", "When it was registered."))
        .required("updatedAt", timed("updatedAt", "When its filter, its checkpoint or its generation last changed."))
        .example(example.clone())
}

fn lag() -> SchemaSpec {
    let count = |description: &str| number(0..=NUMBER_MAX, description);
    let events = "How many numbers lie between checkpoint and tail; of the log, some of them the broker's own.";
    object("How far a view is behind.")
        .required("events", count(events).example(45))
        .required("seconds", count("The age of the oldest event it has not applied; 0 where there is none.").example(3))
        .example(json!({"events": 45, "seconds": 3}))
}

fn new_checkpoint() -> SchemaSpec {
    let offset = |description: &str| number(0..=u64::MAX, description);
    object("How far a view has come.")
        .required("offset", offset("What is applied, durably; not beyond the tail.").example(1))
        .optional_nullable("expected", offset("Where the checkpoint must be; anything else is refused.").example(0))
        .optional_nullable("generation", offset("The generation this is said for; any other is refused.").example(1))
        .closed()
        .example(examples::new_checkpoint())
}

fn reset() -> SchemaSpec {
    object("Where a view is to begin anew.")
        .required("offset", number(0..=u64::MAX, "Behind this; 0: from the beginning. Not beyond the tail.").example(0))
        .closed()
        .example(json!({"offset": 0}))
}
