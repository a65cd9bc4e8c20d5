//! Claims, and the handlers whose work they are.

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
    path("name", handler_name("The handler."), "The handler's name, percent-encoded where it must be.", HANDLER)
}

fn take() -> OperationSpec {
    let request = any_of([schema_ref("ClaimInput"), schema_ref("ClaimsInput")], "One claim, or several.")
        .example(examples::new_claim());
    let answered = any_of([schema_ref("ClaimOutcome"), schema_ref("ClaimOutcomes")], "What became of it, or of each.")
        .example(examples::outcome());
    operation(Post, "/v1/claims", "claimEvent", "Claim an event")
        .about(
            "Takes an event for a handler, for the time of a lease, or says why not: `done` (it is finished, or was \
            discarded), `stale` (a later event of its aggregate is finished, and the order is `latest`), `held` (somebody \
            is at it, it waits for its next attempt or its predecessor, or it is a dead letter; `retryAt` says when to come \
            back where that is known). Whoever asks first gets it, whichever broker he asks; the `token` grows with every \
            claim, so that whatever the work touches can refuse an older one. Every claim is an attempt, take-overs too. \
            With `{\"claims\": […]}` several are taken in one decision, each with its own result.",
        )
        .shared_parameters(&["Producer-Id"])
        .body(BodySpec::about("The claim, or up to 100 of them.").shaped(JSON, request, examples::new_claim()))
        .response(200, ResponseSpec::about("What became of it.").shaped(JSON, answered, examples::outcome()))
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
        .about("Ends several claims in one decision. Each is whole by itself, and has its own result.")
        .shared_parameters(&["Producer-Id"])
        .body(BodySpec::about("Up to 100 completions.").of(JSON, "ClaimCompletions", example))
        .response(200, ResponseSpec::json("What became of each.", "CompletionResults", examples::completed()))
        .problems(&[Kind::InvalidType, Kind::BatchTooLarge, Kind::PayloadTooLarge, Kind::Validation])
}

fn list() -> OperationSpec {
    let which = "Claims of this handler.";
    operation(Get, "/v1/claims", "listClaims", "List open claims")
        .about("Claims of a handler that are not finished: live, failed and waiting, dead; by topic and sequence.")
        .parameter(required_query("handler", any_text(which), which, HANDLER))
        .shared_parameters(&["limit", "cursor"])
        .response(200, ResponseSpec::json("A page of claims.", "Claims", page_of(&examples::failed())))
        .problems(&[Kind::NotAcceptable, Kind::Validation])
}

fn show() -> OperationSpec {
    operation(Get, "/v1/claims/{id}", "getClaim", "Read an open claim")
        .about("One claim that is not finished.")
        .parameter(id())
        .response(200, ResponseSpec::json("The claim.", "Claim", examples::claim()))
        .problems(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn heartbeat() -> OperationSpec {
    operation(Post, "/v1/claims/{id}:heartbeat", "heartbeatClaim", "Keep a claim")
        .about(
            "Begins the claim's lease anew. Send one as often as `heartbeat` in the claim says: at least three times in a \
            lease. Refused with 409 once somebody else has taken it.",
        )
        .parameter(id())
        .body(BodySpec::about("Who is still at it.").of(JSON, "Heartbeat", json!({"token": 20_072})))
        .response(200, ResponseSpec::json("The claim as it is now.", "Claim", examples::claim()))
        .problems(&[Kind::NotFound, Kind::ClaimLost, Kind::PayloadTooLarge, Kind::Validation])
}

fn complete() -> OperationSpec {
    operation(Post, "/v1/claims/{id}:done", "completeClaim", "Finish a claim")
        .about(
            "Says that the work is done, once and for all. Events it has produced and the group's offset are stored with \
            it in one append: all of it, or nothing. A produced event that is refused answers its own problem, at its place \
            under `/events`, and the claim stays held. The offset is not moved over an event that the handler has begun and \
            neither finished nor given up: then `openSequence` in the answer names it, and `committedOffset` says how far the \
            group has come. Said again with the same token it does nothing twice. After the lease \
            it is still taken, unless somebody else has claimed the event since.",
        )
        .parameter(id())
        .shared_parameters(&["Producer-Id"])
        .body(BodySpec::about("Done, and what came of it.").of(JSON, "Completion", json!({"token": 20_072, "offset": 12_345})))
        .response(200, ResponseSpec::json("The claim, done.", "Claim", examples::done()))
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
    operation(Post, "/v1/claims/{id}:fail", "failClaim", "Give a claim back")
        .about(
            "Says that the attempt failed. The event may be claimed again after a wait that doubles with every failure; \
            after the handler's `maxAttempts`, or at once with `retryable: false`, it is a dead letter.",
        )
        .parameter(id())
        .body(BodySpec::about("Why.").of(JSON, "Failure", example))
        .response(200, ResponseSpec::json("The claim as it is now.", "Claim", examples::failed()))
        .problems(&[Kind::NotFound, Kind::ClaimLost, Kind::PayloadTooLarge, Kind::Validation])
}

fn release() -> OperationSpec {
    operation(Post, "/v1/claims/{id}:release", "releaseClaim", "Give a claim back, unfinished")
        .about(
            "Gives a claim back without having worked on the event: it may be claimed again at once, and no attempt is spent. \
            The token holds no longer, so saying it again is refused with 409. What a member of a shared group holds is \
            released when the consumer is deleted; when its session ends, the attempts count.",
        )
        .parameter(id())
        .body(BodySpec::about("Whose claim.").of(JSON, "Heartbeat", json!({"token": 20_072})))
        .response(200, ResponseSpec::json("The claim as it is now.", "Claim", examples::released()))
        .problems(&[Kind::NotFound, Kind::ClaimLost, Kind::PayloadTooLarge, Kind::Validation])
}

fn delete_handler() -> OperationSpec {
    operation(Delete, "/v1/handlers/{name}", "deleteHandler", "Delete a handler")
        .about(
            "Deletes a handler: its policy, its open claims, and what it has finished. Its open dead letters are closed, as \
            discarded. The name begins anew: what it has done may be done again. Where the shared group of its name divides \
            a topic, the group's offset there goes, too; refused with 409 while such a group has live members.",
        )
        .parameter(name())
        .response(204, ResponseSpec::about("It is gone."))
        .problems(&[Kind::NotFound, Kind::InvalidState, Kind::Validation, Kind::Overloaded])
}

fn put_handler() -> OperationSpec {
    operation(Put, "/v1/handlers/{name}", "putHandler", "Say how a handler works")
        .about(
            "Says how a handler's work is to be tried; it takes the place of what was said before. A handler nobody has put \
            works with the broker's defaults.",
        )
        .parameter(name())
        .body(BodySpec::about("How.").of(JSON, "HandlerInput", examples::new_handler()))
        .response(201, ResponseSpec::json("Said for the first time.", "Handler", examples::handler()).with(&["Location"]))
        .response(200, ResponseSpec::json("Said again, or anew.", "Handler", examples::handler()))
        .problems(&[Kind::PayloadTooLarge, Kind::Validation])
}

fn list_handlers() -> OperationSpec {
    operation(Get, "/v1/handlers", "listHandlers", "List handlers")
        .about("Handlers in order of their names: those that were put, and those that have claimed something.")
        .shared_parameters(&["limit", "cursor"])
        .response(200, ResponseSpec::json("A page of handlers.", "Handlers", page_of(&examples::handler())))
        .problems(&[Kind::NotAcceptable, Kind::Validation])
}

fn show_handler() -> OperationSpec {
    operation(Get, "/v1/handlers/{name}", "getHandler", "Read a handler")
        .about("What holds for a handler, what it is at, what failed, what it has given up, and how far behind it is.")
        .parameter(name())
        .response(200, ResponseSpec::json("The handler.", "Handler", examples::handler()))
        .problems(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}
