//! Projections: how far views have come, and waiting for them.

use crate::rest::openapi::Bounds;
use crate::rest::openapi::examples::{self, PROJECTION};
use crate::rest::openapi::operation::{Answer, Body, JSON, Op, op};
use crate::rest::openapi::parameters::{must, path, timeout};
use crate::rest::openapi::schemas::NUMBER_MAX;
use crate::rest::openapi::schemas::projections::name;
use crate::rest::openapi::shape::number;
use contract::Kind;
use serde_json::json;
use utoipa::openapi::HttpMethod::{Delete, Get, Post, Put};
use utoipa::openapi::path::Parameter;

pub(super) const TAG: &str = "Projections";

pub(super) fn all(bounds: &Bounds) -> Vec<Op> {
    vec![put(), list(), show(), remove(), checkpoint(), reset(), wait(bounds)]
}

fn named() -> Parameter {
    path("name", name(), "The projection's name, percent-encoded where it must be.", PROJECTION)
}

fn put() -> Op {
    op(Put, "/v1/projections/{name}", "putProjection", "Register a projection")
        .about(
            "Registers a reader that keeps a view: of one topic, or of the whole default log. A new one stands at 0, in \
            generation 1; one whose name was deleted before, in the generation after its last. The same again changes nothing, and another `filter` takes the place of the one before (reset the \
            projection to rebuild its view); another `topic` is refused.",
        )
        .takes(named())
        .body(Body::about("What it reads.").of(JSON, "ProjectionInput", examples::new_projection()))
        .answers(201, Answer::json("Registered now.", "Projection", examples::projection()).with(&["Location"]))
        .answers(200, Answer::json("Registered before.", "Projection", examples::projection()))
        .refuses(&[Kind::InvalidType, Kind::AlreadyExists, Kind::PayloadTooLarge, Kind::Validation])
}

fn list() -> Op {
    op(Get, "/v1/projections", "listProjections", "List projections")
        .about("Projections in order of their names, each with its lag.")
        .takes_shared(&["limit", "cursor"])
        .answers(200, Answer::json("A page of projections.", "Projections", examples::page_of(&examples::projection())))
        .refuses(&[Kind::NotAcceptable, Kind::Validation])
}

fn show() -> Op {
    op(Get, "/v1/projections/{name}", "getProjection", "Read a projection")
        .about("How far a projection's view has come, how far behind it is, and which generation of it counts.")
        .takes(named())
        .answers(200, Answer::json("The projection.", "Projection", examples::projection()))
        .refuses(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn remove() -> Op {
    op(Delete, "/v1/projections/{name}", "deleteProjection", "Delete a projection")
        .about(
            "Ends a projection; whoever waits for it is told that it is not found. Its view is its owner's business.",
        )
        .takes(named())
        .answers(204, Answer::about("It is gone."))
        .refuses(&[Kind::NotFound, Kind::Validation, Kind::Overloaded])
}

fn checkpoint() -> Op {
    op(Post, "/v1/projections/{name}:checkpoint", "moveCheckpoint", "Move a checkpoint")
        .about(
            "Records how far a view has come: everything up to and with `offset` is applied, and durable there. Never \
            backwards, never beyond the tail. Where the checkpoint is at `offset` already, nothing changes and all is well. \
            Refused with 409, and `actual`, where it would go back, where it is not at `expected`, and where the \
            projection's generation is not the one that is given.",
        )
        .takes(named())
        .body(Body::about("How far it has come.").of(JSON, "CheckpointInput", examples::new_checkpoint()))
        .answers(200, Answer::json("The projection as it is now.", "Projection", examples::projection()))
        .refuses(&[Kind::InvalidOffset, Kind::NotFound, Kind::InvalidState, Kind::PayloadTooLarge, Kind::Validation])
}

fn reset() -> Op {
    op(Post, "/v1/projections/{name}:reset", "resetProjection", "Rebuild a projection")
        .about(
            "Moves the checkpoint anywhere and begins a new generation: the view is to be cleared, and made again of what \
            comes behind `offset`. Whoever still works for the generation before cannot move the checkpoint any more.",
        )
        .takes(named())
        .body(Body::about("Where to begin.").of(JSON, "ProjectionReset", json!({"offset": 0})))
        .answers(200, Answer::json("The projection as it is now.", "Projection", examples::projection()))
        .refuses(&[Kind::InvalidOffset, Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn wait(bounds: &Bounds) -> Op {
    let offset = "Answer once the checkpoint has reached this.";
    op(Get, "/v1/projections/{name}:wait", "waitForProjection", "Wait for a projection")
        .about(
            "Answers as soon as the view has applied everything up to `offset`: what one has just written can be read from \
            it then. Woken by the checkpoint. When the time is up, 504.",
        )
        .takes(named())
        .takes(must("offset", number(0..=NUMBER_MAX, offset), offset, 12_345))
        .takes(timeout(bounds, bounds.wait_default, "How long to wait."))
        .answers(200, Answer::json("It is there.", "Projection", examples::projection()))
        .refuses(&[Kind::InvalidOffset, Kind::NotFound, Kind::NotAcceptable, Kind::Validation, Kind::ProjectionTimeout])
}
