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
    path("id", uuid("The dead letter."), "The dead letter's id. One that is no UUID is not found.", LETTER_ID)
}

fn list() -> OperationSpec {
    let (name, topic) = ("Of this handler or subscription.", "Of this topic's events.");
    let status = "`open` (also when absent): those nobody has dealt with; `all`: the last others too.";
    operation(Get, "/v1/dead-letters", "listDeadLetters", "List dead letters")
        .about("Dead letters in the order they were given up, each with its event and everything that was tried.")
        .parameter(optional_query("source", source(), "Whose work was given up.", "handler"))
        .parameter(optional_query("name", any_text(name), name, HANDLER))
        .parameter(optional_query("topic", topic_id(topic), topic, TOPIC))
        .parameter(optional_query("status", enumeration(&["open", "all"], status), status, "all"))
        .shared_parameters(&["limit", "cursor"])
        .response(200, ResponseSpec::json("A page of dead letters.", "DeadLetters", page_of(&examples::letter())))
        .problems(&[Kind::InvalidType, Kind::NotAcceptable, Kind::Validation])
}

fn summary() -> OperationSpec {
    operation(Get, "/v1/dead-letters/summary", "summariseDeadLetters", "Count dead letters")
        .about("How many dead letters are open, by source, name and topic.")
        .response(200, ResponseSpec::json("The counts.", "LetterSummary", examples::letter_summary()))
        .problems(&[Kind::NotAcceptable, Kind::Validation])
}

fn show() -> OperationSpec {
    operation(Get, "/v1/dead-letters/{id}", "getDeadLetter", "Read a dead letter")
        .about("One dead letter. Those dealt with are remembered for a while.")
        .parameter(id())
        .response(200, ResponseSpec::json("The dead letter.", "DeadLetter", examples::letter()))
        .problems(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn redrive() -> OperationSpec {
    operation(Post, "/v1/dead-letters/{id}:redrive", "redriveDeadLetter", "Redrive a dead letter")
        .about(
            "Lets the event be claimed again, its attempts begun anew, also where later events of its aggregate are \
            finished. It keeps its identity. With `override` a corrected event is appended at the end of the topic, under a new \
            id and with the old one as its cause, in the same append: every reader receives it. The original stays, and counts as \
            done for the handler or subscription whose letter it was. With `dryRun` nothing is \
            changed, and the answer says whether it could be.",
        )
        .parameter(id())
        .shared_parameters(&["Producer-Id"])
        .body(BodySpec::about("What is to be different.").or_none().of(JSON, "Redrive", examples::redrive()))
        .response(200, ResponseSpec::json("The dead letter as it is now.", "DeadLetter", examples::letter()))
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
        .about("Decides that the work need not be done: the event counts as done from then on.")
        .parameter(id())
        .shared_parameters(&["Producer-Id"])
        .body(BodySpec::about("Why.").of(JSON, "Discard", json!({"reason": "the tenant is gone"})))
        .response(200, ResponseSpec::json("The dead letter as it is now.", "DeadLetter", examples::letter()))
        .problems(&[Kind::NotFound, Kind::InvalidState, Kind::PayloadTooLarge, Kind::Validation])
}

fn redrive_all() -> OperationSpec {
    operation(Post, "/v1/dead-letters:redrive", "redriveDeadLetters", "Redrive many dead letters")
        .about(
            "Redrives every open dead letter that is meant. Those whose events are not stored any more or are damaged, or \
            whose subscription was deleted, stay open and are counted in `skipped`. With `dryRun` it only counts.",
        )
        .shared_parameters(&["Producer-Id"])
        .body(BodySpec::about("Which.").or_none().of(JSON, "LetterOrder", examples::letter_order()))
        .response(200, ResponseSpec::json("How many.", "LettersDealtWith", json!({"count": 2})))
        .problems(&[Kind::InvalidType, Kind::PayloadTooLarge, Kind::Validation])
}

fn discard_all() -> OperationSpec {
    operation(Post, "/v1/dead-letters:discard", "discardDeadLetters", "Let many be")
        .about("Discards every open dead letter that is meant; needs a `reason`. With `dryRun` it only counts them.")
        .shared_parameters(&["Producer-Id"])
        .body(BodySpec::about("Which, and why.").of(JSON, "LetterDiscard", examples::letter_order()))
        .response(200, ResponseSpec::json("How many.", "LettersDealtWith", json!({"count": 2})))
        .problems(&[Kind::InvalidType, Kind::PayloadTooLarge, Kind::Validation])
}
