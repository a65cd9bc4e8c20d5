//! Event types, and the versions of their schemas.

use crate::rest::openapi::examples::{self, CREATED, OCCURRED_AT, REGISTERED_AT, TOPIC, and};
use crate::rest::openapi::operation::{Answer, Body, JSON, Op, op};
use crate::rest::openapi::parameters::{path, query};
use crate::rest::openapi::schemas::ids;
use contract::Kind;
use serde_json::{Value, json};
use utoipa::openapi::HttpMethod::{Delete, Get, Post};
use utoipa::openapi::path::Parameter;

pub(super) const TAG: &str = "Event types";

pub(super) fn all() -> Vec<Op> {
    vec![list(), register(), show(), remove(), archive(), add_version(), show_version(), finalise(), deprecate()]
}

fn id() -> Parameter {
    path("id", ids::id("The event type."), "The event type's id.", CREATED)
}

fn version() -> Parameter {
    path("version", ids::version("Which version."), "Which version.", "1.1")
}

fn list() -> Op {
    let which = "Types of this id, or matching this pattern.";
    op(Get, "/v1/event-types", "listEventTypes", "List event types")
        .about("Event types in order of their ids.")
        .takes(query("type", ids::pattern("Which types."), which, "gts.hyperspot.core.events.type.v1~vendor.*"))
        .takes(query("topic", ids::topic_id("A topic."), "Types whose events go to this topic.", TOPIC))
        .takes_shared(&["limit", "cursor"])
        .answers(200, Answer::json("A page of event types.", "EventTypes", examples::page_of(&examples::event_type())))
        .refuses(&[Kind::InvalidType, Kind::NotAcceptable, Kind::Validation])
}

fn register() -> Op {
    op(Post, "/v1/event-types", "registerEventType", "Register an event type")
        .about("Registers an event type. The same definition again changes nothing; another one is refused.")
        .body(Body::about("The event type.").of(JSON, "EventTypeInput", examples::new_event_type()))
        .answers(201, Answer::json("Registered now.", "EventType", examples::event_type()).with(&["Location"]))
        .answers(200, Answer::json("The same was registered before.", "EventType", examples::event_type()))
        .refuses(&[Kind::InvalidType, Kind::AlreadyExists, Kind::PayloadTooLarge, Kind::Validation])
}

fn show() -> Op {
    op(Get, "/v1/event-types/{id}", "getEventType", "Read an event type")
        .about("One event type as it is registered, with its versions.")
        .takes(id())
        .answers(200, Answer::json("The event type.", "EventType", examples::event_type()))
        .refuses(&[Kind::InvalidType, Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn archive() -> Op {
    op(Post, "/v1/event-types/{id}:archive", "archiveEventType", "Archive an event type")
        .about("Ends an event type: it takes no more events and no more versions. What is stored stays.")
        .takes(id())
        .answers(200, Answer::json("The event type as it is now.", "EventType", archived()))
        .refuses(&[Kind::InvalidType, Kind::NotFound, Kind::InvalidState, Kind::Validation, Kind::Overloaded])
}

fn remove() -> Op {
    op(Delete, "/v1/event-types/{id}", "deleteEventType", "Delete an event type")
        .about(
            "Deletes an archived event type of which no event is stored, in any log; its name may be registered again. 409 \
            while it is not archived, and while there are events of it: these go by the retention of their topics, with \
            `:trim`, or with their topics. All events are looked through. Where that takes longer than a request may, the \
            answer is 503; the same request again goes on where the last one stopped.",
        )
        .takes(id())
        .answers(204, Answer::about("It is gone."))
        .refuses(&[Kind::InvalidType, Kind::NotFound, Kind::InvalidState, Kind::Validation, Kind::Overloaded])
}

fn archived() -> Value {
    and(examples::event_type(), json!({"archived": true}))
}

fn add_version() -> Op {
    op(Post, "/v1/event-types/{id}/versions", "addVersion", "Add a schema version")
        .about(
            "Adds a version of the type's schema, FINALISING at first. While it is, another definition of the same version \
            takes its place; the same again changes nothing. A minor version must take every event that the one before it \
            takes, or it is refused with what broke.",
        )
        .takes(id())
        .body(Body::about("The version.").of(JSON, "VersionInput", examples::new_version()))
        .answers(201, Answer::json("Added, or replaced.", "Version", draft()).with(&["Location"]))
        .answers(200, Answer::json("The same was there before.", "Version", draft()))
        .refuses(&[Kind::InvalidType, Kind::NotFound, Kind::InvalidState, Kind::PayloadTooLarge, Kind::Validation])
}

fn draft() -> Value {
    and(examples::new_version(), json!({"status": "FINALISING", "createdAt": REGISTERED_AT}))
}

fn show_version() -> Op {
    op(Get, "/v1/event-types/{id}/versions/{version}", "getVersion", "Read a schema version")
        .about("One version of the type's schema.")
        .takes(id())
        .takes(version())
        .answers(200, Answer::json("The version.", "Version", examples::version()))
        .refuses(&[Kind::InvalidType, Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn finalise() -> Op {
    on_version(
        op(Post, "/v1/event-types/{id}/versions/{version}:finalise", "finaliseVersion", "Finalise a schema version")
            .about(
                "Makes a FINALISING version CURRENT, and the CURRENT one of the same major DEPRECATED, in one step.",
            ),
        examples::version(),
    )
}

fn deprecate() -> Op {
    let deprecated = and(examples::version(), json!({"status": "DEPRECATED", "deprecatedAt": OCCURRED_AT}));
    on_version(
        op(Post, "/v1/event-types/{id}/versions/{version}:deprecate", "deprecateVersion", "Deprecate a schema version")
            .about("Makes a CURRENT version DEPRECATED: it is still accepted, and whoever uses it is told to move on."),
        deprecated,
    )
}

fn on_version(operation: Op, answer: Value) -> Op {
    operation
        .takes(id())
        .takes(version())
        .answers(200, Answer::json("The version as it is now.", "Version", answer))
        .refuses(&[Kind::InvalidType, Kind::NotFound, Kind::InvalidState, Kind::Validation, Kind::Overloaded])
}
