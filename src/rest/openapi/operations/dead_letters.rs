//! Dead letters.

use crate::rest::openapi::examples::claims::{self as examples, HANDLER, LETTER_ID};
use crate::rest::openapi::examples::{TOPIC, page_of};
use crate::rest::openapi::operation_spec::{BodySpec, JSON, OperationSpec, ResponseSpec, operation};
use crate::rest::openapi::parameters::{optional_query, path};
use crate::rest::openapi::schema_spec::{any_text, enumeration, uuid};
use crate::rest::openapi::schemas::dead_letters::source;
use crate::rest::openapi::schemas::ids::topic_id;
use contract::Kind;
use serde_json::json;
use utoipa::openapi::HttpMethod::{Get, Post};
use utoipa::openapi::path::Parameter;

pub(super) const TAG: &str = "Dead letters";

pub(super) fn all() -> Vec<OperationSpec> {
    vec![list(), summary(), show(), redrive(), discard(), redrive_all(), discard_all()]
}

fn id() -> Parameter {
    path("id", uuid("The dead letter."), "The dead letter's id. An invalid UUID is not found.", LETTER_ID)
}

fn list() -> OperationSpec {
    let (name, topic) = ("Only of this handler or subscription.", "Only of events of this topic.");
    let status = "`open` (default): unresolved ones. `all`: also the last resolved ones.";
    operation(Get, "/v1/dead-letters", "listDeadLetters", "List dead letters")
        .about("Dead letters, the oldest first, each with its event and its attempts.")
        .parameter(optional_query("source", source(), "The source.", "handler"))
        .parameter(optional_query("name", any_text(name), name, HANDLER))
        .parameter(optional_query("topic", topic_id(topic), topic, TOPIC))
        .parameter(optional_query("status", enumeration(&["open", "all"], status), status, "all"))
        .paged("A page of dead letters.", "DeadLetters", page_of(&examples::letter()))
        .problems(&[Kind::InvalidType])
}

fn summary() -> OperationSpec {
    operation(Get, "/v1/dead-letters/summary", "summariseDeadLetters", "Count dead letters")
        .about("The number of open dead letters, by source, name and topic.")
        .response(200, ResponseSpec::json("The counts.", "LetterSummary", examples::letter_summary()))
        .problems(&[Kind::NotAcceptable, Kind::Validation])
}

fn show() -> OperationSpec {
    operation(Get, "/v1/dead-letters/{id}", "getDeadLetter", "Read a dead letter")
        .about("One dead letter. The last resolved ones are remembered.")
        .parameter(id())
        .shown("The dead letter.", "DeadLetter", examples::letter())
}

fn redrive() -> OperationSpec {
    operation(Post, "/v1/dead-letters/{id}:redrive", "redriveDeadLetter", "Redrive a dead letter")
        .about(
            "Makes the event available again, with new attempts, even if later events of its aggregate are finished. It \
                keeps its id. With `override` a corrected event is appended at the end of the topic, under a new id and \
                with the old one as its cause, in the same append: every reader receives it. The original stays, and \
                counts as done for the handler or subscription whose letter it was. With `dryRun` nothing is changed, \
                and the response tells whether a redrive is possible.",
        )
        .parameter(id())
        .shared_parameters(&["Producer-Id"])
        .body(BodySpec::about("The change.").or_none().of(JSON, "Redrive", examples::redrive()))
        .response(200, ResponseSpec::json("The dead letter after the change.", "DeadLetter", examples::letter()))
        .problems(&[
            Kind::NotFound,
            Kind::EventIdReuse,
            Kind::InvalidState,
            Kind::Trimmed,
            Kind::PayloadTooLarge,
            Kind::Validation,
        ])
}

fn discard() -> OperationSpec {
    operation(Post, "/v1/dead-letters/{id}:discard", "discardDeadLetter", "Discard a dead letter")
        .about("Decides that the work need not be done. The event counts as done.")
        .parameter(id())
        .shared_parameters(&["Producer-Id"])
        .body(BodySpec::about("The reason.").of(JSON, "Discard", json!({"reason": "the tenant is gone"})))
        .response(200, ResponseSpec::json("The dead letter after the change.", "DeadLetter", examples::letter()))
        .problems(&[Kind::NotFound, Kind::InvalidState, Kind::PayloadTooLarge, Kind::Validation])
}

fn redrive_all() -> OperationSpec {
    operation(Post, "/v1/dead-letters:redrive", "redriveDeadLetters", "Redrive many dead letters")
        .about(
            "Redrives every matching open dead letter. Those whose events are no longer stored or are damaged, or whose \
                subscription was deleted, stay open and are counted in `skipped`. With `dryRun` they are only counted.",
        )
        .shared_parameters(&["Producer-Id"])
        .body(BodySpec::about("The dead letters.").or_none().of(JSON, "LetterOrder", examples::letter_order()))
        .response(200, ResponseSpec::json("The number.", "LettersDealtWith", json!({"count": 2})))
        .problems(&[Kind::InvalidType, Kind::PayloadTooLarge, Kind::Validation])
}

fn discard_all() -> OperationSpec {
    operation(Post, "/v1/dead-letters:discard", "discardDeadLetters", "Discard many dead letters")
        .about("Discards every matching open dead letter; a `reason` is required. With `dryRun` they are only counted.")
        .shared_parameters(&["Producer-Id"])
        .body(BodySpec::about("The dead letters, and the reason.").of(JSON, "LetterDiscard", examples::letter_order()))
        .response(200, ResponseSpec::json("The number.", "LettersDealtWith", json!({"count": 2})))
        .problems(&[Kind::InvalidType, Kind::PayloadTooLarge, Kind::Validation])
}
