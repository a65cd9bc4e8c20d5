//! Event types, and the versions of their schemas.

use super::ids::{id, subject_type_id, topic_id, version as version_number};
use super::{for_people, rows};
use crate::rest::openapi::examples::{self, OCCURRED_AT, REGISTERED_AT};
use crate::rest::openapi::rules::rule;
use crate::rest::openapi::shape::{Shape, any_text, anything, flag, list, named, object, time, word};
use contract::limits::{LABEL_BYTES_MAX, SCHEMA_BYTES_MAX, SUBJECT_BYTES_MAX, SUBJECT_TYPES_MAX, VERSIONS_MAX};
use serde_json::json;

pub(super) fn all() -> Vec<(&'static str, Shape)> {
    vec![
        ("EventTypeInput", new_event_type()),
        ("EventType", event_type()),
        ("EventTypes", rows("EventType", "A page of event types.", examples::page_of(&examples::event_type()))),
        ("VersionInput", new_version()),
        ("Version", version()),
    ]
}

fn allowed_subject_types() -> Shape {
    let one = subject_type_id("A subject type.").like("gts.vendor.tenants.tenant.v1~");
    list(one, "What its events may speak of; empty: anything.")
        .items(0, SUBJECT_TYPES_MAX)
        .like(json!(["gts.vendor.tenants.tenant.v1~"]))
}

fn subject_ref_template() -> Shape {
    let description = format!("How a subject is written as a link. At most {SUBJECT_BYTES_MAX} bytes as UTF-8.");
    any_text(&description).up_to(SUBJECT_BYTES_MAX).like("/tenants/{tenantId}")
}

fn data_schema() -> Shape {
    let description = format!(
        "JSON Schema (draft-07 or 2020-12) of the payload, an object or a boolean: version 1.0 of the type; absent, and no `versions`: any object. \
        A schema whose root declares a property `data` describes `subject`, `subjectType` and `data`, any other `data` \
        alone. At most {SCHEMA_BYTES_MAX} bytes."
    );
    anything(&description).like(examples::data_schema())
}

fn schema_target() -> Shape {
    word(&["event", "data"], "What the schema describes; absent: told by its shape.").like("event")
}

fn subject_optional() -> Shape {
    flag("Whether its events may have no subject.").like(false)
}

fn tombstone() -> Shape {
    let description = "Whether its events end what they speak of: where `cleanup` is `compact` the aggregate goes with them \
        once the topic's retention is over.";
    flag(description).like(false)
}

fn new_event_type() -> Shape {
    let versions =
        "Instead of `dataSchema`: versions that are CURRENT at once, or DEPRECATED where there is a higher minor.";
    object("An event type as one asks for it.")
        .must("id", id("Its name."))
        .or_null("topic", topic_id("The topic its events go to; absent: the configuration's routes decide."))
        .or_null("description", for_people().like("Event emitted when a new tenant is created"))
        .may("allowedSubjectTypes", allowed_subject_types())
        .or_null("subjectRefTemplate", subject_ref_template())
        .may("dataSchema", data_schema())
        .may(
            "versions",
            list(named("VersionInput"), versions).items(0, VERSIONS_MAX).like(json!([examples::new_version()])),
        )
        .or_null("schemaTarget", schema_target())
        .may("subjectOptional", subject_optional())
        .may("tombstone", tombstone())
        .closed()
        .ruled([rule().without("dataSchema"), rule().with_empty("versions")])
        .like(examples::new_event_type())
}

fn event_type() -> Shape {
    let versions = list(named("Version"), "Its schema versions, lowest first; none: any object.");
    object("A registered event type.")
        .must("id", id("Its name."))
        .may("topic", topic_id("The topic its events go to."))
        .may("description", for_people().like("Event emitted when a new tenant is created"))
        .may("allowedSubjectTypes", allowed_subject_types())
        .may("subjectRefTemplate", subject_ref_template())
        .may("dataSchema", data_schema())
        .may("versions", versions.like(json!([examples::version()])))
        .may("schemaTarget", schema_target())
        .may("subjectOptional", subject_optional())
        .may("tombstone", tombstone())
        .may("archived", flag("Whether it takes no more events.").like(true))
        .must("createdAt", time("When it was registered.").like(REGISTERED_AT))
        .like(examples::event_type())
}

fn schema_type() -> Shape {
    let description = "The language of the schema. Under `PROTO`, `data` is the JSON form of one message; under `XSD` it is \
        `{\"xml\": \"…\"}`.";
    word(&["JSON_SCHEMA", "PROTO", "XSD"], description).like("JSON_SCHEMA")
}

fn schema() -> Shape {
    let description = format!(
        "The schema: for `JSON_SCHEMA` an object or a boolean (or its JSON as text), else its text. At most \
        {SCHEMA_BYTES_MAX} bytes."
    );
    anything(&description).like(examples::data_schema())
}

/// A short text that is not empty.
fn label(description: &str) -> Shape {
    let description = format!("{description} At most {LABEL_BYTES_MAX} bytes as UTF-8.");
    any_text(&description).not_empty().up_to(LABEL_BYTES_MAX)
}

fn mime_type() -> Shape {
    label("The media type of what the schema describes, for people and programs that ask.").like("application/json")
}

fn message() -> Shape {
    label("For `PROTO`: the message that `data` is; absent: the one that no other message uses, or the last.")
        .like("TenantCreated")
}

fn schema_text() -> Shape {
    any_text("Its text.").like("syntax = \"proto3\"; message TenantCreated {}")
}

fn new_version() -> Shape {
    object("A schema version as one asks for it.")
        .must("version", version_number("Which version.").like("1.1"))
        .must("schemaType", schema_type())
        .must("schema", schema())
        .or_null("mimeType", mime_type())
        .or_null("message", message())
        .closed()
        .ruled([
            rule().with_word("schemaType", &["JSON_SCHEMA"]).without("message"),
            rule().with_word("schemaType", &["XSD"]).shaped("schema", schema_text()).without("message"),
            rule().with_word("schemaType", &["PROTO"]).shaped("schema", schema_text()),
        ])
        .like(examples::new_version())
}

fn version() -> Shape {
    let status = "FINALISING may still be replaced; CURRENT is what events are published under, at most one per major; \
        DEPRECATED is still accepted.";
    object("A registered schema version.")
        .must("version", version_number("Which version.").like("1.1"))
        .must("schemaType", schema_type())
        .must("schema", schema())
        .may("mimeType", mime_type())
        .may("message", message())
        .must("status", word(&["FINALISING", "CURRENT", "DEPRECATED"], status).like("CURRENT"))
        .must("createdAt", time("When it was registered.").like(REGISTERED_AT))
        .may("finalisedAt", time("When it became CURRENT.").like(OCCURRED_AT))
        .may("deprecatedAt", time("When it became DEPRECATED.").like(OCCURRED_AT))
        .like(examples::version())
}
