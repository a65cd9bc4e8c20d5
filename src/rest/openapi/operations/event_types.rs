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
    path("version", ids::version("The version."), "The version.", "1.1")
}

fn list() -> OperationSpec {
    let which = "Types of this id, or matching this pattern.";
    let goes_to = "Types whose events go to this topic, or to one that matches this pattern.";
    operation(Get, "/v1/event-types", "listEventTypes", "List event types")
        .about("Event types, sorted by id. A page has at most 2 MiB.")
        .parameter(optional_query(
            "type",
            ids::pattern("A type, or a pattern."),
            which,
            "gts.hyperspot.core.events.type.v1~vendor.*",
        ))
        .parameter(optional_query("topic", ids::pattern("A topic, or a pattern."), goes_to, TOPIC))
        .paged("A page of event types.", "EventTypes", examples::page_of(&examples::event_type()))
        .problems(&[Kind::InvalidType])
}

fn register() -> OperationSpec {
    operation(Post, "/v1/event-types", "registerEventType", "Register an event type")
        .about(
            "Registers an event type. Registering the same definition again changes nothing; a different one is \
            refused.",
        )
        .body(BodySpec::about("The event type.").of(JSON, "EventTypeInput", examples::new_event_type()))
        .response(201, ResponseSpec::json("Registered.", "EventType", examples::event_type()).with(&["Location"]))
        .response(
            200,
            ResponseSpec::json(
                "It was registered before with the same definition.",
                "EventType",
                examples::event_type(),
            ),
        )
        .problems(&[Kind::InvalidType, Kind::AlreadyExists, Kind::PayloadTooLarge, Kind::Validation])
}

fn show() -> OperationSpec {
    operation(Get, "/v1/event-types/{id}", "getEventType", "Read an event type")
        .about("One event type, with its versions.")
        .parameter(id())
        .shown("The event type.", "EventType", examples::event_type())
        .problems(&[Kind::InvalidType])
}

fn archive() -> OperationSpec {
    operation(Post, "/v1/event-types/{id}:archive", "archiveEventType", "Archive an event type")
        .about("Archives an event type: it accepts no more events and no more versions. Stored events stay.")
        .parameter(id())
        .response(200, ResponseSpec::json("The event type after the change.", "EventType", archived()))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::InvalidState, Kind::Validation, Kind::Overloaded])
}

fn remove() -> OperationSpec {
    operation(Delete, "/v1/event-types/{id}", "deleteEventType", "Delete an event type")
        .about(
            "Deletes an archived event type of which no event is stored in any log. The name can be registered again. \
                409 while it is not archived, and while there are events of it: they are removed by retention, by \
                `:trim`, or with their topics. All events are searched. If that takes longer than a request may, the \
                response is 503; repeating the request continues the search.",
        )
        .parameter(id())
        .response(204, ResponseSpec::about("Deleted."))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::InvalidState, Kind::Validation, Kind::Overloaded])
}

fn archived() -> Value {
    merged(examples::event_type(), json!({"archived": true}))
}

fn add_version() -> OperationSpec {
    operation(Post, "/v1/event-types/{id}/versions", "addVersion", "Add a schema version")
        .about(
            "Adds a version of the type's schema, with the status FINALISING. In this status another definition of the \
                version replaces it; the same definition again changes nothing. A minor version must accept every event \
                that the previous one accepts; otherwise it is refused, with the incompatibilities.",
        )
        .parameter(id())
        .body(BodySpec::about("The version.").of(JSON, "VersionInput", examples::new_version()))
        .response(201, ResponseSpec::json("Added or replaced.", "Version", draft()).with(&["Location"]))
        .response(200, ResponseSpec::json("It existed before with the same definition.", "Version", draft()))
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
        .shown("The version.", "Version", examples::version())
        .problems(&[Kind::InvalidType])
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
        .about(
            "Makes a CURRENT version DEPRECATED: it is still accepted, and responses to publishers have the header \
            `Deprecation`.",
        ),
        deprecated,
    )
}

fn on_version(operation: OperationSpec, answer: Value) -> OperationSpec {
    operation
        .parameter(id())
        .parameter(version())
        .response(200, ResponseSpec::json("The version after the change.", "Version", answer))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::InvalidState, Kind::Validation, Kind::Overloaded])
}
