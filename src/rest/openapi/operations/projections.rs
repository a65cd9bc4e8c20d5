//! Projections: how far views have come, and waiting for them.

use crate::rest::openapi::DocumentLimits;
use crate::rest::openapi::examples::{self, PROJECTION};
use crate::rest::openapi::operation_spec::{BodySpec, JSON, OperationSpec, ResponseSpec, operation};
use crate::rest::openapi::parameters::{path, required_query, timeout};
use crate::rest::openapi::schema_spec::number;
use crate::rest::openapi::schemas::NUMBER_MAX;
use crate::rest::openapi::schemas::projections::name;
use contract::Kind;
use serde_json::json;
use utoipa::openapi::HttpMethod::{Delete, Get, Post, Put};
use utoipa::openapi::path::Parameter;

pub(super) const TAG: &str = "Projections";

pub(super) fn all(bounds: &DocumentLimits) -> Vec<OperationSpec> {
    vec![put(), list(), show(), remove(), checkpoint(), reset(), wait(bounds)]
}

fn named() -> Parameter {
    path("name", name(), "The projection's name, percent-encoded where it must be.", PROJECTION)
}

fn put() -> OperationSpec {
    operation(Put, "/v1/projections/{name}", "putProjection", "Register a projection")
        .about(
            "Registers a reader that keeps a view: of one topic, or of the whole default log. A new one stands at 0, in \
            generation 1; one whose name was deleted before, in the generation after its last. The same again changes nothing, and another `filter` takes the place of the one before (reset the \
            projection to rebuild its view); another `topic` is refused.",
        )
        .parameter(named())
        .body(BodySpec::about("What it reads.").of(JSON, "ProjectionInput", examples::new_projection()))
        .response(201, ResponseSpec::json("Registered now.", "Projection", examples::projection()).with(&["Location"]))
        .response(200, ResponseSpec::json("Registered before.", "Projection", examples::projection()))
        .problems(&[Kind::InvalidType, Kind::AlreadyExists, Kind::PayloadTooLarge, Kind::Validation])
}

fn list() -> OperationSpec {
    operation(Get, "/v1/projections", "listProjections", "List projections")
        .about("Projections in order of their names, each with its lag.")
        .shared_parameters(&["limit", "cursor"])
        .response(
            200,
            ResponseSpec::json("A page of projections.", "Projections", examples::page_of(&examples::projection())),
        )
        .problems(&[Kind::NotAcceptable, Kind::Validation])
}

fn show() -> OperationSpec {
    operation(Get, "/v1/projections/{name}", "getProjection", "Read a projection")
        .about("How far a projection's view has come, how far behind it is, and which generation of it counts.")
        .parameter(named())
        .response(200, ResponseSpec::json("The projection.", "Projection", examples::projection()))
        .problems(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn remove() -> OperationSpec {
    operation(Delete, "/v1/projections/{name}", "deleteProjection", "Delete a projection")
        .about(
            "Ends a projection; whoever waits for it is told that it is not found. Its view is its owner's business.",
        )
        .parameter(named())
        .response(204, ResponseSpec::about("It is gone."))
        .problems(&[Kind::NotFound, Kind::Validation, Kind::Overloaded])
}

fn checkpoint() -> OperationSpec {
    operation(Post, "/v1/projections/{name}:checkpoint", "moveCheckpoint", "Move a checkpoint")
        .about(
            "Records how far a view has come: everything up to and with `offset` is applied, and durable there. Never \
            backwards, never beyond the tail. Where the checkpoint is at `offset` already, nothing changes and all is well. \
            Refused with 409, and `actual`, where it would go back, where it is not at `expected`, and where the \
            projection's generation is not the one that is given.",
        )
        .parameter(named())
        .body(BodySpec::about("How far it has come.").of(JSON, "CheckpointInput", examples::new_checkpoint()))
        .response(200, ResponseSpec::json("The projection as it is now.", "Projection", examples::projection()))
        .problems(&[Kind::InvalidOffset, Kind::NotFound, Kind::InvalidState, Kind::PayloadTooLarge, Kind::Validation])
}

fn reset() -> OperationSpec {
    operation(Post, "/v1/projections/{name}:reset", "resetProjection", "Rebuild a projection")
        .about(
            "Moves the checkpoint anywhere and begins a new generation: the view is to be cleared, and made again of what \
            comes behind `offset`. Whoever still works for the generation before cannot move the checkpoint any more.",
        )
        .parameter(named())
        .body(BodySpec::about("Where to begin.").of(JSON, "ProjectionReset", json!({"offset": 0})))
        .response(200, ResponseSpec::json("The projection as it is now.", "Projection", examples::projection()))
        .problems(&[Kind::InvalidOffset, Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn wait(bounds: &DocumentLimits) -> OperationSpec {
    let offset = "Answer once the checkpoint has reached this.";
    operation(Get, "/v1/projections/{name}:wait", "waitForProjection", "Wait for a projection")
        .about(
            "Answers as soon as the view has applied everything up to `offset`: what one has just written can be read from \
            it then. Woken by the checkpoint. When the time is up, 504.",
        )
        .parameter(named())
        .parameter(required_query("offset", number(0..=NUMBER_MAX, offset), offset, 12_345))
        .parameter(timeout(bounds, bounds.wait_default, "How long to wait."))
        .response(200, ResponseSpec::json("It is there.", "Projection", examples::projection()))
        .problems(&[Kind::InvalidOffset, Kind::NotFound, Kind::NotAcceptable, Kind::Validation, Kind::ProjectionTimeout])
}
