//! Headers of responses.
//!
//! A header is defined once in the components, and referenced by responses.

use super::problems::TRACE_ID;
use super::schema_spec::{SchemaSpec, enumeration, number, patterned, text};
use serde_json::{Value, json};
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::{Ref, ResponseBuilder};

/// The header of this name.
pub(super) fn reference(name: &str) -> Ref {
    Ref::new(format!("#/components/headers/{name}"))
}

/// The response with the headers of every response.
pub(super) fn on_every(response: ResponseBuilder) -> ResponseBuilder {
    ["X-Trace-Id", "traceparent"]
        .into_iter()
        .fold(response, |response, name| response.header_ref(name, reference(name)))
}

/// All headers.
pub(super) fn all() -> Vec<(&'static str, Header)> {
    let trace_parent = format!("00-{TRACE_ID}-00f067aa0ba902b7-01");
    let location = "The path of the resource.";
    vec![
        header("X-Trace-Id", "The trace: that of the request's `traceparent`, or a new one.", json!(TRACE_ID), |it| {
            patterned("^[0-9a-f]{32}$", it)
        }),
        header("traceparent", "The trace and the server's span, in the W3C format.", json!(trace_parent), |it| {
            patterned("^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$", it)
        }),
        header("Location", location, json!("/v1/events/550e8400-e29b-41d4-a716-446655440000"), text),
        header("Idempotent-Replayed", REPLAYED, json!("true"), true_header),
        header(
            "Payload-Mismatch",
            "The `data` of the first submission was different; the topic flags this.",
            json!("true"),
            true_header,
        ),
        header("Deprecation", DEPRECATION, json!("true"), true_header),
        header("Secret-Suspected", SUSPECTED, json!("/data/aws/key, /context/note"), text),
        header("Retry-After", "Seconds after which to retry.", json!(1), |it| number(0..=86_400, it)),
        header("Allow", "The methods that the path supports.", json!("GET, HEAD"), text),
        header("Next-Offset", "The offset to continue with.", json!(12_345), |it| number(0..=MAX, it)),
        header("Tail", "The last sequence, or position.", json!(12_345), |it| number(0..=MAX, it)),
        header("ETag", "Changes with the document.", json!("W/\"5f1c2a9be0d34c77\""), text),
        header("Cache-Control", "Whether the response may be cached.", json!("no-cache"), text),
        header("Content-Security-Policy", "What the page may load: nothing from other servers.", json!(POLICY), text),
    ]
}

const MAX: u64 = i64::MAX as u64;
const POLICY: &str = "default-src 'none'; script-src 'self'";
const REPLAYED: &str = "The response is the stored event of a duplicate, or the stored response of an earlier request \
    with this `Idempotency-Key`.";
const DEPRECATION: &str = "Present if the event was published under a DEPRECATED version of its type's schema. Use the \
    CURRENT one.";

const SUSPECTED: &str = "JSON pointers to what looks like a secret in the request, separated by `, `. Control characters, blanks, \
    quotation marks, `%`, `,` and characters outside ASCII are percent-encoded. The topic flags this (`secrets: flag`).";

fn true_header(description: &str) -> SchemaSpec {
    enumeration(&["true"], description)
}

fn header(
    name: &'static str,
    description: &str,
    example: Value,
    shape: impl FnOnce(&str) -> SchemaSpec,
) -> (&'static str, Header) {
    let shape = shape(description).example(example.clone());
    let header = HeaderBuilder::new().description(Some(description)).schema(Some(shape)).example(Some(example));
    (name, header.build())
}
