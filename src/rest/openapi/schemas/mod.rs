//! Schemas: the JSON form of the contract's types.
//!
//! - One function per schema. Limits come from `contract::limits` or from the configuration.
//! - Schemas of requests are closed. Schemas of responses are open, because later versions may add members.
//! - Tests validate every contract type and every example against its schema.

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

use super::DocumentLimits;
use super::examples;
use super::problems::{self, TRACE_ID, TYPE_BASE};
use super::schema_spec::{
    SchemaSpec, any_of, any_text, enumeration, list, number, object, patterned, schema_ref, text, uuid,
};
use contract::{Kind, limits};
use serde_json::json;

/// The largest number in JSON.
pub(super) const NUMBER_MAX: u64 = i64::MAX as u64;

/// Every schema with its name.
pub(super) fn all(bounds: &DocumentLimits) -> Vec<(&'static str, SchemaSpec)> {
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

fn problem() -> SchemaSpec {
    let types: Vec<_> = Kind::ALL.iter().map(|kind| format!("{TYPE_BASE}{}", kind.code())).collect();
    let types: Vec<_> = types.iter().map(String::as_str).collect();
    let sample = problems::sample();
    object("A problem document (RFC 9457).")
        .required("type", enumeration(&types, "The type of the problem; its last part is the code."))
        .required("title", text("A short title, the same for every problem with the code.").example("Invalid offset"))
        .required("status", number(400..=599, "The HTTP status.").example(400))
        .required("detail", text("What is wrong and what to do. Submitted values are never quoted."))
        .optional("instance", any_text("The path of the request, without the query.").example("/v1/events:poll"))
        .optional("traceId", patterned("^[0-9a-f]{32}$", "The same as `X-Trace-Id`.").example(TRACE_ID))
        .optional(
            "errors",
            list(schema_ref("Violation"), "All reasons.").items(1, limits::VIOLATIONS_MAX).example(json!([
                {"pointer": "/data/email", "detail": "must have the format 'email'"},
            ])),
        )
        .optional("actual", number(0..=NUMBER_MAX, "The aggregate's last sequence (EVENT_BROKER_EXPECTED_SEQUENCE), or the checkpoint (EVENT_BROKER_INVALID_STATE).").example(4))
        .optional("eventId", uuid("The event, which is stored nevertheless (EVENT_BROKER_PROJECTION_TIMEOUT).").example(examples::EVENT_ID))
        .optional("sequence", number(1..=NUMBER_MAX, "The sequence of that event (EVENT_BROKER_PROJECTION_TIMEOUT).").example(12_346))
        .optional("earliest", number(1..=NUMBER_MAX, "The first sequence that can be read (EVENT_BROKER_TRIMMED).").example(10_001))
        .optional("resumeOffset", number(0..=NUMBER_MAX, "The offset to continue with: `earliest` minus 1 \
            (EVENT_BROKER_TRIMMED).").example(10_000))
        .example(sample)
}

fn read_offset() -> SchemaSpec {
    let number = number(0..=NUMBER_MAX, "After this sequence; 0: from the beginning.").example(12_345);
    let end = enumeration(
        &["earliest", "latest"],
        "`earliest`: before the first stored event. `latest`: after the last \
        one.",
    );
    any_of([number, end.example("earliest")], "The start of a read: a number, or an end of the topic.").example(12_345)
}

fn violation() -> SchemaSpec {
    object("One reason of a refusal.")
        .required(
            "pointer",
            any_text("The JSON pointer to the invalid value: in the event, the body or the query.")
                .example("/data/email"),
        )
        .required("detail", any_text("What is wrong with it.").example("must have the format 'email'"))
        .example(json!({"pointer": "/data/email", "detail": "must have the format 'email'"}))
}

fn page_info(bounds: &DocumentLimits) -> SchemaSpec {
    let cursor = |description: &str| text(description).example(examples::CURSOR);
    object("The cursors of the neighbouring pages.")
        .required_nullable("next_cursor", cursor("`cursor` of the next page; null on the last one."))
        .required_nullable("prev_cursor", cursor("`cursor` of the previous page; null on the first one."))
        .required("limit", number(1..=bounds.limit_max, "Most rows of a page.").example(20))
        .example(examples::page_info())
}

fn health() -> SchemaSpec {
    let status =
        enumeration(&["ok", "ready"], "`ok`: the process is alive. `ready`: it can take requests.").example("ok");
    let line = text("A warning.").example("Retention of the log fails: …");
    object("The health of the process.")
        .required("status", status)
        .optional(
            "degraded",
            list(line, "What does not work although requests are served; absent if there is nothing.")
                .example(json!([])),
        )
        .example(json!({"status": "ok"}))
}

fn document() -> SchemaSpec {
    let info = object("The title and version.").open().example(json!({"title": "Event Broker", "version": "0.1.0"}));
    object("An OpenAPI document.")
        .required("openapi", patterned(r"^3\.1\.\d+$", "The version of OpenAPI.").example("3.1.0"))
        .required("info", info)
        .required("paths", object("The operations by path.").open().example(json!({})))
        .open()
        .example(json!({"openapi": "3.1.0", "info": {"title": "Event Broker", "version": "0.1.0"}, "paths": {}}))
}

/// A list of rows with the cursors of the neighbouring pages.
fn list_page(row: &str, description: &str, example: serde_json::Value) -> SchemaSpec {
    object(description)
        .required("items", list(schema_ref(row), "The rows of this page, in order."))
        .required("page_info", schema_ref("PageInfo"))
        .example(example)
}

/// A description.
fn description_text() -> SchemaSpec {
    let description = format!("A description, for information. At most {} characters.", limits::DESCRIPTION_CHARS_MAX);
    any_text(&description).max_length(limits::DESCRIPTION_CHARS_MAX).example("User-related events")
}
