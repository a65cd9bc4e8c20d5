//! Schemas: what the contract's types look like on the wire.
//!
//! - One function per schema, beside its siblings; limits come from `contract::limits` or from what is in force.
//! - What a request may hold is closed; what an answer holds may grow, so answers are open.
//! - The tests hold every contract type against its schema, and every example too.

pub(super) mod claims;
mod cloud_events;
mod consumers;
mod credentials;
pub(super) mod dead_letters;
mod event_types;
mod events;
pub(super) mod ids;
mod pools;
pub(super) mod projections;
pub(super) mod subscriptions;
mod topics;

use super::Bounds;
use super::examples::{self, part};
use super::problems::{self, TRACE_ID, TYPE_BASE};
use super::shape::{Shape, any_text, either, list, named, number, object, patterned, text, uuid, word};
use contract::{Kind, limits};
use serde_json::json;

/// The largest number the broker counts to on the wire.
pub(super) const NUMBER_MAX: u64 = i64::MAX as u64;

/// Every schema with its name.
pub(super) fn all(bounds: &Bounds) -> Vec<(&'static str, Shape)> {
    let mut schemas = vec![
        ("Problem", problem()),
        ("Violation", violation()),
        ("PageInfo", page_info(bounds)),
        ("Health", health()),
        ("Document", document()),
        ("ReadOffset", read_offset()),
    ];
    schemas.extend(events::all(bounds));
    schemas.extend(cloud_events::all());
    schemas.extend(topics::all());
    schemas.extend(event_types::all());
    schemas.extend(consumers::all());
    schemas.extend(claims::all());
    schemas.extend(dead_letters::all());
    schemas.extend(projections::all());
    schemas.extend(subscriptions::all());
    schemas.extend(pools::all());
    schemas
}

fn problem() -> Shape {
    let types: Vec<_> = Kind::ALL.iter().map(|kind| format!("{TYPE_BASE}{}", kind.code())).collect();
    let types: Vec<_> = types.iter().map(String::as_str).collect();
    let sample = problems::sample();
    object("A refusal, as RFC 9457 has it.")
        .must("type", word(&types, "Which refusal it is; its last part is the code.").like(part(&sample, "/type")))
        .must("title", text("A short title, the same for every refusal of the code.").like("Invalid offset"))
        .must("status", number(400..=599, "The HTTP status.").like(400))
        .must("detail", text("What to do about it. Submitted values are never quoted.").like(part(&sample, "/detail")))
        .may("instance", any_text("The path of the request, without the query.").like("/v1/events:poll"))
        .may("traceId", patterned("^[0-9a-f]{32}$", "The same as `X-Trace-Id`.").like(TRACE_ID))
        .may(
            "errors",
            list(named("Violation"), "Every single reason.").items(1, limits::VIOLATIONS_MAX).like(json!([
                {"pointer": "/data/email", "detail": "must have the format 'email'"},
            ])),
        )
        .may("actual", number(0..=NUMBER_MAX, "The aggregate's last sequence (EVENT_BROKER_EXPECTED_SEQUENCE), or the checkpoint (EVENT_BROKER_INVALID_STATE).").like(4))
        .may("eventId", uuid("The event that is stored all the same (EVENT_BROKER_PROJECTION_TIMEOUT).").like(examples::EVENT_ID))
        .may("sequence", number(1..=NUMBER_MAX, "Its number in its topic (EVENT_BROKER_PROJECTION_TIMEOUT).").like(12_346))
        .may("earliest", number(1..=NUMBER_MAX, "The first sequence that can be read (EVENT_BROKER_TRIMMED).").like(10_001))
        .may("resumeOffset", number(0..=NUMBER_MAX, "The offset to go on with: `earliest` less one (EVENT_BROKER_TRIMMED).").like(10_000))
        .like(sample)
}

fn read_offset() -> Shape {
    let number = number(0..=NUMBER_MAX, "Behind this number; 0: from the beginning.").like(12_345);
    let end = word(&["earliest", "latest"], "Before the first event that is still there, or behind the last.");
    either([number, end.like("earliest")], "Where a read starts: a number, or one of the two ends.").like(12_345)
}

fn violation() -> Shape {
    object("One reason among several why a request was refused.")
        .must(
            "pointer",
            any_text("JSON pointer from the event (or the body, or the query) to the place.").like("/data/email"),
        )
        .must("detail", any_text("What is wrong there.").like("must have the format 'email'"))
        .like(json!({"pointer": "/data/email", "detail": "must have the format 'email'"}))
}

fn page_info(bounds: &Bounds) -> Shape {
    let cursor = |description: &str| text(description).like(examples::CURSOR);
    object("Where the neighbouring pages of a list are.")
        .must_or_null("next_cursor", cursor("`cursor` of the next page; null on the last one."))
        .must_or_null("prev_cursor", cursor("`cursor` of the page before; null on the first one."))
        .must("limit", number(1..=bounds.limit_max, "Most rows of a page.").like(20))
        .like(examples::page_info())
}

fn health() -> Shape {
    let status = word(&["ok", "ready"], "`ok`: the process lives; `ready`: it can be asked for work.").like("ok");
    let line = text("What an operator should look at.").like("Retention of the log fails: …");
    object("How the process is.")
        .must("status", status)
        .may(
            "degraded",
            list(line, "What does not work though requests are served; absent where there is nothing.").like(json!([])),
        )
        .like(json!({"status": "ok"}))
}

fn document() -> Shape {
    let info = object("What it describes.").open().like(json!({"title": "Event Broker", "version": "0.1.0"}));
    object("An OpenAPI document.")
        .must("openapi", patterned(r"^3\.1\.\d+$", "Which OpenAPI.").like("3.1.0"))
        .must("info", info)
        .must("paths", object("The operations by path.").open().like(json!({})))
        .open()
        .like(json!({"openapi": "3.1.0", "info": {"title": "Event Broker", "version": "0.1.0"}, "paths": {}}))
}

/// A list of rows with the cursors to the pages around them.
fn rows(row: &str, description: &str, example: serde_json::Value) -> Shape {
    object(description)
        .must("items", list(named(row), "The rows of this page, in order.").like(part(&example, "/items")))
        .must("page_info", named("PageInfo"))
        .like(example)
}

/// Words for people.
fn for_people() -> Shape {
    let description = format!("For people. At most {} characters.", limits::DESCRIPTION_CHARS_MAX);
    any_text(&description).up_to(limits::DESCRIPTION_CHARS_MAX).like("User-related events")
}
