//! Projections and their checkpoints.

use super::ids::topic_id;
use super::{NUMBER_MAX, list_page};
use crate::rest::openapi::examples::{self, CEL, PROJECTION};
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
    let description = format!(
        "The name of the projection, without commas and colons. At most {LABEL_BYTES_MAX} bytes as \
        UTF-8."
    );
    patterned(r"^[^\x00-\x1f\x7f-\x9f,:]+$", &description).not_empty().max_length(LABEL_BYTES_MAX).example(PROJECTION)
}

fn filter() -> SchemaSpec {
    let description =
        format!("A CEL expression: the events that the view uses. At most {CEL_BYTES_MAX} bytes as UTF-8.");
    text(&description).not_empty().max_length(CEL_BYTES_MAX).example(CEL)
}

fn of_log() -> SchemaSpec {
    boolean("Whether it reads all topics of the default log.")
}

fn new_projection() -> SchemaSpec {
    object("The definition of a projection: of one topic, or of the whole log.")
        .optional_nullable("topic", topic_id("The topic that it reads. Alternative: `log`."))
        .optional("log", of_log().example(json!(true)))
        .optional_nullable("filter", filter())
        .with_rules([rule().with("topic").with_flag("log", false), rule().with_flag("log", true).without("topic")])
        .closed()
        .example(examples::new_projection())
}

fn projection() -> SchemaSpec {
    let offset = |description: &str| number(0..=NUMBER_MAX, description);
    object("A projection, with its checkpoint.")
        .required("name", name())
        .optional("topic", topic_id("The topic that it reads."))
        .optional("log", of_log().example(json!(true)))
        .optional("filter", filter())
        .required(
            "checkpoint",
            offset("The last sequence that its view has applied (position, with `log`); 0: none yet.").example(12_300),
        )
        .required(
            "generation",
            number(
                1..=NUMBER_MAX,
                "1 at first, incremented by every reset. A projection that is deleted and registered again continues \
                    with the next number.",
            )
            .example(2),
        )
        .required("start", offset("The offset at which this generation started.").example(0))
        .required("lag", schema_ref("Lag"))
        .required("createdAt", time("When it was registered."))
        .required("updatedAt", time("When its filter, its checkpoint or its generation last changed."))
        .example(examples::projection())
}

fn lag() -> SchemaSpec {
    let count = |description: &str| number(0..=NUMBER_MAX, description);
    let events = "The distance from the checkpoint to the tail. With `log`, it includes the broker's own entries.";
    object("How far the view is behind the tail.")
        .required("events", count(events).example(45))
        .required(
            "seconds",
            count("The age of the oldest event that it has not applied; 0 if there is none.").example(3),
        )
        .example(json!({"events": 45, "seconds": 3}))
}

fn new_checkpoint() -> SchemaSpec {
    let offset = |description: &str| number(0..=u64::MAX, description);
    object("A new checkpoint.")
        .required(
            "offset",
            offset(
                "The last sequence (with `log`: position) that the view has applied durably; at most \
            the tail.",
            )
            .example(1),
        )
        .optional_nullable("expected", offset("The checkpoint that is expected now; any other is refused.").example(0))
        .optional_nullable(
            "generation",
            offset("The generation that is expected now; any other is refused.").example(1),
        )
        .closed()
        .example(examples::new_checkpoint())
}

fn reset() -> SchemaSpec {
    object("The start of a new generation.")
        .required(
            "offset",
            number(
                0..=u64::MAX,
                "The generation starts after this sequence (with `log`: position); 0: \
            at the beginning. At most the tail.",
            )
            .example(0),
        )
        .closed()
        .example(json!({"offset": 0}))
}
