//! Event types, and the versions of their schemas.

use super::ids::{id, subject_type_id, topic_id, version as version_number};
use super::{description_text, list_page};
use crate::rest::openapi::examples::{self, OCCURRED_AT, REGISTERED_AT};
use crate::rest::openapi::member_rules::rule;
use crate::rest::openapi::schema_spec::{
    SchemaSpec, any_text, any_value, boolean, enumeration, list, object, schema_ref, time,
};
use contract::limits::{LABEL_BYTES_MAX, SCHEMA_BYTES_MAX, SUBJECT_BYTES_MAX, SUBJECT_TYPES_MAX, VERSIONS_MAX};
use serde_json::json;

pub(super) fn all() -> Vec<(&'static str, SchemaSpec)> {
    vec![
        ("EventTypeInput", new_event_type()),
        ("EventType", event_type()),
        ("EventTypes", list_page("EventType", "A page of event types.", examples::page_of(&examples::event_type()))),
        ("VersionInput", new_version()),
        ("Version", version()),
    ]
}

fn allowed_subject_types() -> SchemaSpec {
    let one = subject_type_id("A subject type.").example("gts.vendor.tenants.tenant.v1~");
    list(one, "The subject types that its events may have; empty: all.")
        .items(0, SUBJECT_TYPES_MAX)
        .example(json!(["gts.vendor.tenants.tenant.v1~"]))
}

fn subject_ref_template() -> SchemaSpec {
    let description = format!("A template for links to a subject. At most {SUBJECT_BYTES_MAX} bytes as UTF-8.");
    any_text(&description).max_length(SUBJECT_BYTES_MAX).example("/tenants/{tenantId}")
}

fn data_schema() -> SchemaSpec {
    let description = format!(
        "The JSON Schema (draft-07 or 2020-12) of the payload, an object or a boolean. It becomes version 1.0 of the \
            type. Without it and without `versions`, any object is accepted. A schema whose root declares a property \
            `data` describes `subject`, `subjectType` and `data`; any other describes `data` alone. At most \
            {SCHEMA_BYTES_MAX} bytes."
    );
    any_value(&description).example(examples::data_schema())
}

fn schema_target() -> SchemaSpec {
    enumeration(&["event", "data"], "What the schema describes. Default: derived from its properties.").example("event")
}

fn subject_optional() -> SchemaSpec {
    boolean("Whether its events may omit the subject.").example(false)
}

fn tombstone() -> SchemaSpec {
    let description = "Whether its events end their aggregates: with `cleanup: compact`, the whole aggregate is removed \
        after the topic's retention.";
    boolean(description).example(false)
}

fn new_event_type() -> SchemaSpec {
    let versions = "An alternative to `dataSchema`: versions that become CURRENT at once, or DEPRECATED if there is a higher minor \
            version.";
    object("The definition of an event type.")
        .required("id", id("The name of the event type."))
        .optional_nullable(
            "topic",
            topic_id(
                "The topic of its events. Default: determined by the routes of the \
            configuration.",
            ),
        )
        .optional_nullable("description", description_text().example("Event emitted when a new tenant is created"))
        .optional("allowedSubjectTypes", allowed_subject_types())
        .optional_nullable("subjectRefTemplate", subject_ref_template())
        .optional("dataSchema", data_schema())
        .optional(
            "versions",
            list(schema_ref("VersionInput"), versions).items(0, VERSIONS_MAX).example(json!([examples::new_version()])),
        )
        .optional_nullable("schemaTarget", schema_target())
        .optional("subjectOptional", subject_optional())
        .optional("tombstone", tombstone())
        .closed()
        .with_rules([rule().without("dataSchema"), rule().with_empty("versions")])
        .example(examples::new_event_type())
}

fn event_type() -> SchemaSpec {
    let versions = list(
        schema_ref("Version"),
        "Its schema versions, lowest first. Without any, every object is \
        accepted.",
    );
    object("A registered event type.")
        .required("id", id("The name of the event type."))
        .optional("topic", topic_id("The topic of its events."))
        .optional("description", description_text().example("Event emitted when a new tenant is created"))
        .optional("allowedSubjectTypes", allowed_subject_types())
        .optional("subjectRefTemplate", subject_ref_template())
        .optional("dataSchema", data_schema())
        .optional("versions", versions.example(json!([examples::version()])))
        .optional("schemaTarget", schema_target())
        .optional("subjectOptional", subject_optional())
        .optional("tombstone", tombstone())
        .optional("archived", boolean("Whether it is archived and accepts no more events.").example(true))
        .required("createdAt", time("When it was registered.").example(REGISTERED_AT))
        .example(examples::event_type())
}

fn schema_type() -> SchemaSpec {
    let description = "The language of the schema. Under `PROTO`, `data` is the JSON form of one message; under `XSD` it is \
        `{\"xml\": \"…\"}`.";
    enumeration(&["JSON_SCHEMA", "PROTO", "XSD"], description).example("JSON_SCHEMA")
}

fn schema() -> SchemaSpec {
    let description = format!(
        "The schema: with `JSON_SCHEMA` an object or a boolean (or its JSON as a string), otherwise its text. At most \
            {SCHEMA_BYTES_MAX} bytes."
    );
    any_value(&description).example(examples::data_schema())
}

/// A short text that is not empty.
fn label(description: &str) -> SchemaSpec {
    let description = format!("{description} At most {LABEL_BYTES_MAX} bytes as UTF-8.");
    any_text(&description).not_empty().max_length(LABEL_BYTES_MAX)
}

fn mime_type() -> SchemaSpec {
    label("The media type of the payload, for information.").example("application/json")
}

fn message() -> SchemaSpec {
    label("With `PROTO`: the message of `data`. Default: the message that no other message uses, or the last one.")
        .example("TenantCreated")
}

fn schema_text() -> SchemaSpec {
    any_text("Its text.").example("syntax = \"proto3\"; message TenantCreated {}")
}

fn new_version() -> SchemaSpec {
    object("The definition of a schema version.")
        .required("version", version_number("The version.").example("1.1"))
        .required("schemaType", schema_type())
        .required("schema", schema())
        .optional_nullable("mimeType", mime_type())
        .optional_nullable("message", message())
        .closed()
        .with_rules([
            rule().with_word("schemaType", &["JSON_SCHEMA"]).without("message"),
            rule().with_word("schemaType", &["XSD"]).shaped("schema", schema_text()).without("message"),
            rule().with_word("schemaType", &["PROTO"]).shaped("schema", schema_text()),
        ])
        .example(examples::new_version())
}

fn version() -> SchemaSpec {
    let status = "FINALISING: it can still be replaced. CURRENT: events use it by default; at most one per major \
        version. DEPRECATED: it is still accepted.";
    object("A registered schema version.")
        .required("version", version_number("The version.").example("1.1"))
        .required("schemaType", schema_type())
        .required("schema", schema())
        .optional("mimeType", mime_type())
        .optional("message", message())
        .required("status", enumeration(&["FINALISING", "CURRENT", "DEPRECATED"], status).example("CURRENT"))
        .required("createdAt", time("When it was registered.").example(REGISTERED_AT))
        .optional("finalisedAt", time("When it became CURRENT.").example(OCCURRED_AT))
        .optional("deprecatedAt", time("When it became DEPRECATED.").example(OCCURRED_AT))
        .example(examples::version())
}
