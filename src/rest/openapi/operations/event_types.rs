//! Event types, and the versions of their schemas.

use crate::rest::openapi::examples::{self, CREATED, OCCURRED_AT, REGISTERED_AT, TOPIC, merged};
use crate::rest::openapi::operation_spec::{BodySpec, JSON, OperationSpec, ResponseSpec, operation};
use crate::rest::openapi::parameters::{optional_query, path};
use crate::rest::openapi::schemas::ids;
use contract::Kind;
use serde_json::{Value, json};
use utoipa::openapi::HttpMethod::{Delete, Get, Post};
use utoipa::openapi::path::Parameter;

pub(super) const TAG: &str = "Event types";

pub(super) fn all() -> Vec<OperationSpec> {
    vec![list(), register(), show(), remove(), archive(), add_version(), show_version(), finalise(), deprecate()]
}

fn id() -> Parameter {
    path("id", ids::id("The event type."), "The event type's id.", CREATED)
}

fn version() -> Parameter {
    path("version", ids::version("Which version."), "Which version.", "1.1")
}

fn list() -> OperationSpec {
    let which = "Types of this id, or matching this pattern.";
    operation(Get, "/v1/event-types", "listEventTypes", "List event types")
        .about("Event types in order of their ids.")
        .parameter(optional_query(
            "type",
            ids::pattern("Which types."),
            which,
            "gts.hyperspot.core.events.type.v1~vendor.*",
        ))
        .parameter(optional_query("topic", ids::topic_id("A topic."), "Types whose events go to this topic.", TOPIC))
        .shared_parameters(&["limit", "cursor"])
        .response(
            200,
            ResponseSpec::json("A page of event types.", "EventTypes", examples::page_of(&examples::event_type())),
        )
        .problems(&[Kind::InvalidType, Kind::NotAcceptable, Kind::Validation])
}

fn register() -> OperationSpec {
    operation(Post, "/v1/event-types", "registerEventType", "Register an event type")
        .about("Registers an event type. The same definition again changes nothing; another one is refused.")
        .body(BodySpec::about("The event type.").of(JSON, "EventTypeInput", examples::new_event_type()))
        .response(201, ResponseSpec::json("Registered now.", "EventType", examples::event_type()).with(&["Location"]))
        .response(200, ResponseSpec::json("The same was registered before.", "EventType", examples::event_type()))
        .problems(&[Kind::InvalidType, Kind::AlreadyExists, Kind::PayloadTooLarge, Kind::Validation])
}

fn show() -> OperationSpec {
    operation(Get, "/v1/event-types/{id}", "getEventType", "Read an event type")
        .about("One event type as it is registered, with its versions.")
        .parameter(id())
        .response(200, ResponseSpec::json("The event type.", "EventType", examples::event_type()))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn archive() -> OperationSpec {
    operation(Post, "/v1/event-types/{id}:archive", "archiveEventType", "Archive an event type")
        .about("Ends an event type: it takes no more events and no more versions. What is stored stays.")
        .parameter(id())
        .response(200, ResponseSpec::json("The event type as it is now.", "EventType", archived()))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::InvalidState, Kind::Validation, Kind::Overloaded])
}

fn remove() -> OperationSpec {
    operation(Delete, "/v1/event-types/{id}", "deleteEventType", "Delete an event type")
        .about(
            "Deletes an archived event type of which no event is stored, in any log; its name may be registered again. 409 \
            while it is not archived, and while there are events of it: these go by the retention of their topics, with \
            `:trim`, or with their topics. All events are looked through. Where that takes longer than a request may, the \
            answer is 503; the same request again goes on where the last one stopped.",
        )
        .parameter(id())
        .response(204, ResponseSpec::about("It is gone."))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::InvalidState, Kind::Validation, Kind::Overloaded])
}

fn archived() -> Value {
    merged(examples::event_type(), json!({"archived": true}))
}

fn add_version() -> OperationSpec {
    operation(Post, "/v1/event-types/{id}/versions", "addVersion", "Add a schema version")
        .about(
            "Adds a version of the type's schema, FINALISING at first. While it is, another definition of the same version \
            takes its place; the same again changes nothing. A minor version must take every event that the one before it \
            takes, or it is refused with what broke.",
        )
        .parameter(id())
        .body(BodySpec::about("The version.").of(JSON, "VersionInput", examples::new_version()))
        .response(201, ResponseSpec::json("Added, or replaced.", "Version", draft()).with(&["Location"]))
        .response(200, ResponseSpec::json("The same was there before.", "Version", draft()))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::InvalidState, Kind::PayloadTooLarge, Kind::Validation])
}

fn draft() -> Value {
    merged(examples::new_version(), json!({"status": "FINALISING", "createdAt": REGISTERED_AT}))
}

fn show_version() -> OperationSpec {
    operation(Get, "/v1/event-types/{id}/versions/{version}", "getVersion", "Read a schema version")
        .about("One version of the type's schema.")
        .parameter(id())
        .parameter(version())
        .response(200, ResponseSpec::json("The version.", "Version", examples::version()))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn finalise() -> OperationSpec {
    on_version(
        operation(
            Post,
            "/v1/event-types/{id}/versions/{version}:finalise",
            "finaliseVersion",
            "Finalise a schema version",
        )
        .about("Makes a FINALISING version CURRENT, and the CURRENT one of the same major DEPRECATED, in one step."),
        examples::version(),
    )
}

fn deprecate() -> OperationSpec {
    let deprecated = merged(examples::version(), json!({"status": "DEPRECATED", "deprecatedAt": OCCURRED_AT}));
    on_version(
        operation(
            Post,
            "/v1/event-types/{id}/versions/{version}:deprecate",
            "deprecateVersion",
            "Deprecate a schema version",
        )
        .about("Makes a CURRENT version DEPRECATED: it is still accepted, and whoever uses it is told to move on."),
        deprecated,
    )
}

fn on_version(operation: OperationSpec, answer: Value) -> OperationSpec {
    operation
        .parameter(id())
        .parameter(version())
        .response(200, ResponseSpec::json("The version as it is now.", "Version", answer))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::InvalidState, Kind::Validation, Kind::Overloaded])
}
