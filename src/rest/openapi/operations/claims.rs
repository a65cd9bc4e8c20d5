//! Claims and handlers.

use crate::rest::openapi::examples::claims::{self as examples, CLAIM_ID, HANDLER};
use crate::rest::openapi::examples::page_of;
use crate::rest::openapi::operation_spec::{BodySpec, JSON, OperationSpec, ResponseSpec, operation};
use crate::rest::openapi::parameters::{path, required_query};
use crate::rest::openapi::schema_spec::{any_of, any_text, schema_ref};
use crate::rest::openapi::schemas::claims::{claim_id, handler_name};
use contract::Kind;
use serde_json::json;
use utoipa::openapi::HttpMethod::{Delete, Get, Post, Put};
use utoipa::openapi::path::Parameter;

pub(super) const TAG: &str = "Claims";

pub(super) fn all() -> Vec<OperationSpec> {
    vec![
        take(),
        complete_several(),
        list(),
        show(),
        heartbeat(),
        complete(),
        fail(),
        release(),
        put_handler(),
        list_handlers(),
        show_handler(),
        delete_handler(),
    ]
}

fn id() -> Parameter {
    path("id", claim_id(), "The claim's id.", CLAIM_ID)
}

fn name() -> Parameter {
    path("name", handler_name("The handler."), "The handler's name, percent-encoded if necessary.", HANDLER)
}

fn take() -> OperationSpec {
    let request = any_of([schema_ref("ClaimInput"), schema_ref("ClaimsInput")], "One claim, or several.")
        .example(examples::new_claim());
    let answered =
        any_of([schema_ref("ClaimOutcome"), schema_ref("ClaimOutcomes")], "The result, or the result of each.")
            .example(examples::outcome());
    operation(Post, "/v1/claims", "claimEvent", "Claim an event")
        .about(
            "Claims an event for a handler, for the time of a lease, or returns why it cannot be claimed: `done` (it is \
                finished, or was discarded), `stale` (a later event of its aggregate is finished, and the order is \
                `latest`), `held` (another worker has it, it waits for its back-off or its predecessor, or it is a dead \
                letter; `retryAt` tells when to retry if that is known). The first request gets the claim, whichever \
                broker it is sent to. The fencing `token` grows with every claim, so that systems that the work writes \
                to can refuse an older one. Every claim counts as an attempt, also one that takes over an expired lease. \
                With `{\"claims\": […]}` several events are claimed in one decision, each with its own result.",
        )
        .shared_parameters(&["Producer-Id"])
        .body(BodySpec::about("The claim, or up to 100 of them.").shaped(JSON, request, examples::new_claim()))
        .response(200, ResponseSpec::about("The result.").shaped(JSON, answered, examples::outcome()))
        .problems(&[
            Kind::InvalidType,
            Kind::BatchTooLarge,
            Kind::NotFound,
            Kind::Trimmed,
            Kind::PayloadTooLarge,
            Kind::Validation,
        ])
}

fn complete_several() -> OperationSpec {
    let example = json!({"claims": [{"id": CLAIM_ID, "token": 20_072, "offset": 12_345}]});
    operation(Post, "/v1/claims:done", "completeClaims", "Finish several claims")
        .about("Finishes several claims in one decision. Each is independent of the others and has its own result.")
        .shared_parameters(&["Producer-Id"])
        .body(BodySpec::about("Up to 100 completions.").of(JSON, "ClaimCompletions", example))
        .response(200, ResponseSpec::json("The result of each.", "CompletionResults", examples::completed()))
        .problems(&[Kind::InvalidType, Kind::BatchTooLarge, Kind::PayloadTooLarge, Kind::Validation])
}

fn list() -> OperationSpec {
    let which = "Claims of this handler.";
    operation(Get, "/v1/claims", "listClaims", "List open claims")
        .about("Claims of a handler that are not finished (in flight, failed, dead), sorted by topic and sequence.")
        .parameter(required_query("handler", any_text(which), which, HANDLER))
        .paged("A page of claims.", "Claims", page_of(&examples::failed()))
}

fn show() -> OperationSpec {
    operation(Get, "/v1/claims/{id}", "getClaim", "Read an open claim")
        .about("One claim that is not finished.")
        .parameter(id())
        .shown("The claim.", "Claim", examples::claim())
}

fn heartbeat() -> OperationSpec {
    operation(Post, "/v1/claims/{id}:heartbeat", "heartbeatClaim", "Send a heartbeat")
        .about(
            "Restarts the lease of a claim. Send a heartbeat in the interval `heartbeat` of the claim: at least three \
                times per lease. Refused with 409 once another worker has taken the claim over.",
        )
        .parameter(id())
        .body(BodySpec::about("The holder of the claim.").of(JSON, "Heartbeat", json!({"token": 20_072})))
        .response(200, ResponseSpec::json("The claim after the change.", "Claim", examples::claim()))
        .problems(&[Kind::NotFound, Kind::ClaimLost, Kind::PayloadTooLarge, Kind::Validation])
}

fn complete() -> OperationSpec {
    operation(Post, "/v1/claims/{id}:done", "completeClaim", "Finish a claim")
        .about(
            "Finishes a claim: the work is done. Produced events and the group's offset are stored with it in one \
                append, or nothing is stored. If a produced event is refused, the response is its problem, with its \
                index under `/events`, and the claim stays in flight. The offset is not moved past an event that the \
                handler has claimed but neither finished nor given up: `openSequence` in the response names it, and \
                `committedOffset` is the offset that was committed. Repeating the request with the same token has no \
                further effect. It is accepted after the lease has expired, unless another worker has claimed the event \
                since.",
        )
        .parameter(id())
        .shared_parameters(&["Producer-Id"])
        .body(BodySpec::about("The completion.").of(JSON, "Completion", json!({"token": 20_072, "offset": 12_345})))
        .response(200, ResponseSpec::json("The finished claim.", "Claim", examples::done()))
        .problems(&[
            Kind::InvalidType,
            Kind::InvalidSequence,
            Kind::BatchTooLarge,
            Kind::NotFound,
            Kind::SequenceExists,
            Kind::ExpectedSequence,
            Kind::EventIdReuse,
            Kind::ClaimLost,
            Kind::PayloadTooLarge,
            Kind::Validation,
        ])
}

fn fail() -> OperationSpec {
    let example = json!({"token": 20_072, "error": examples::error()});
    operation(Post, "/v1/claims/{id}:fail", "failClaim", "Fail a claim")
        .about(
            "Reports that the attempt failed. The event can be claimed again after a back-off that doubles with every \
                failure. After the handler's `maxAttempts`, or at once with `retryable: false`, it becomes a dead \
                letter.",
        )
        .parameter(id())
        .body(BodySpec::about("The failure.").of(JSON, "Failure", example))
        .response(200, ResponseSpec::json("The claim after the change.", "Claim", examples::failed()))
        .problems(&[Kind::NotFound, Kind::ClaimLost, Kind::PayloadTooLarge, Kind::Validation])
}

fn release() -> OperationSpec {
    operation(Post, "/v1/claims/{id}:release", "releaseClaim", "Release a claim")
        .about(
            "Releases a claim without having worked on the event: it can be claimed again at once, and no attempt is \
                counted. The token is no longer valid, so repeating the request is refused with 409. The claims of a \
                member of a shared group are released when the consumer is deleted; when its session expires, the \
                attempts count.",
        )
        .parameter(id())
        .body(BodySpec::about("The holder of the claim.").of(JSON, "Heartbeat", json!({"token": 20_072})))
        .response(200, ResponseSpec::json("The claim after the change.", "Claim", examples::released()))
        .problems(&[Kind::NotFound, Kind::ClaimLost, Kind::PayloadTooLarge, Kind::Validation])
}

fn delete_handler() -> OperationSpec {
    operation(Delete, "/v1/handlers/{name}", "deleteHandler", "Delete a handler")
        .about(
            "Deletes a handler with its policy, its open claims and its record of finished events. Its open dead letters \
                are discarded. The name can be used again from scratch: events that it has done can be done again. The \
                offsets of the shared group with its name are deleted, too; refused with 409 while such a group has live \
                members.",
        )
        .parameter(name())
        .response(204, ResponseSpec::about("Deleted."))
        .problems(&[Kind::NotFound, Kind::InvalidState, Kind::Validation, Kind::Overloaded])
}

fn put_handler() -> OperationSpec {
    operation(Put, "/v1/handlers/{name}", "putHandler", "Set a handler's policy")
        .about(
            "Sets the policy of a handler and replaces the previous one. A handler without a policy has the broker's \
                defaults.",
        )
        .parameter(name())
        .body(BodySpec::about("The policy.").of(JSON, "HandlerInput", examples::new_handler()))
        .response(201, ResponseSpec::json("Created.", "Handler", examples::handler()).with(&["Location"]))
        .response(200, ResponseSpec::json("Replaced, or unchanged.", "Handler", examples::handler()))
        .problems(&[Kind::PayloadTooLarge, Kind::Validation])
}

fn list_handlers() -> OperationSpec {
    operation(Get, "/v1/handlers", "listHandlers", "List handlers")
        .about("Handlers with a policy or with claims, sorted by name.")
        .paged("A page of handlers.", "Handlers", page_of(&examples::handler()))
}

fn show_handler() -> OperationSpec {
    operation(Get, "/v1/handlers/{name}", "getHandler", "Read a handler")
        .about("One handler, with its policy, its events in flight, failures, dead letters and lag.")
        .parameter(name())
        .shown("The handler.", "Handler", examples::handler())
}
