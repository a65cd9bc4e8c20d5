//! Projections: their checkpoints, and waiting for them.

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
    path("name", name(), "The projection's name, percent-encoded if necessary.", PROJECTION)
}

fn put() -> OperationSpec {
    operation(Put, "/v1/projections/{name}", "putProjection", "Register a projection")
        .about(
            "Registers a reader that keeps a view: of one topic, or of the whole default log. A new projection has \
                checkpoint 0 and generation 1; one with a name that was deleted before continues with the next \
                generation. The same definition again changes nothing. A different `filter` replaces the previous one \
                (reset the projection to rebuild its view); a different `topic` is refused.",
        )
        .parameter(named())
        .body(BodySpec::about("The definition.").of(JSON, "ProjectionInput", examples::new_projection()))
        .response(201, ResponseSpec::json("Registered.", "Projection", examples::projection()).with(&["Location"]))
        .response(200, ResponseSpec::json("It was registered before.", "Projection", examples::projection()))
        .problems(&[Kind::InvalidType, Kind::AlreadyExists, Kind::PayloadTooLarge, Kind::Validation])
}

fn list() -> OperationSpec {
    operation(Get, "/v1/projections", "listProjections", "List projections")
        .about("Projections, sorted by name, each with its lag.")
        .paged("A page of projections.", "Projections", examples::page_of(&examples::projection()))
}

fn show() -> OperationSpec {
    operation(Get, "/v1/projections/{name}", "getProjection", "Read a projection")
        .about("One projection, with its checkpoint, lag and generation.")
        .parameter(named())
        .shown("The projection.", "Projection", examples::projection())
}

fn remove() -> OperationSpec {
    operation(Delete, "/v1/projections/{name}", "deleteProjection", "Delete a projection")
        .about("Deletes a projection; requests that wait for it end with 404. The broker does not change its view.")
        .parameter(named())
        .response(204, ResponseSpec::about("Deleted."))
        .problems(&[Kind::NotFound, Kind::Validation, Kind::Overloaded])
}

fn checkpoint() -> OperationSpec {
    operation(Post, "/v1/projections/{name}:checkpoint", "moveCheckpoint", "Move a checkpoint")
        .about(
            "Moves the checkpoint: the view has applied everything up to and including `offset`, durably. It never moves \
                back and never beyond the tail. If the checkpoint is already `offset`, nothing changes, and the response \
                is 200. Refused with 409, with the checkpoint in `actual`, if it would move back, if it is not \
                `expected`, or if the projection's generation is not `generation`.",
        )
        .parameter(named())
        .body(BodySpec::about("The checkpoint.").of(JSON, "CheckpointInput", examples::new_checkpoint()))
        .response(200, ResponseSpec::json("The projection after the change.", "Projection", examples::projection()))
        .problems(&[Kind::InvalidOffset, Kind::NotFound, Kind::InvalidState, Kind::PayloadTooLarge, Kind::Validation])
}

fn reset() -> OperationSpec {
    operation(Post, "/v1/projections/{name}:reset", "resetProjection", "Rebuild a projection")
        .about(
            "Moves the checkpoint to any offset and starts a new generation: the view must be cleared and rebuilt from \
                the events after `offset`. Workers of the previous generation can no longer move the checkpoint.",
        )
        .parameter(named())
        .body(BodySpec::about("The start.").of(JSON, "ProjectionReset", json!({"offset": 0})))
        .response(200, ResponseSpec::json("The projection after the change.", "Projection", examples::projection()))
        .problems(&[Kind::InvalidOffset, Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn wait(bounds: &DocumentLimits) -> OperationSpec {
    let offset = "The offset to wait for.";
    operation(Get, "/v1/projections/{name}:wait", "waitForProjection", "Wait for a projection")
        .about(
            "Returns as soon as the view has applied everything up to `offset`, so that a caller can read from it what \
                it has just written. 504 when the time-out has passed.",
        )
        .parameter(named())
        .parameter(required_query("offset", number(0..=NUMBER_MAX, offset), offset, 12_345))
        .parameter(timeout(bounds, bounds.wait_default, "How long to wait."))
        .shown("The checkpoint has reached the offset.", "Projection", examples::projection())
        .problems(&[Kind::InvalidOffset, Kind::ProjectionTimeout])
}
