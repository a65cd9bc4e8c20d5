//! Problems in the document: statuses, codes and their meanings.
//!
//! - The codes are those of `Kind`; a kind without a meaning does not compile.
//! - A response that several operations share is defined once, named by its codes.

use super::headers;
use super::schema_spec::schema_ref;
use contract::Kind;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::openapi::example::{Example, ExampleBuilder};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};

/// The media type of a problem.
const PROBLEM_JSON: &str = "application/problem+json";
/// The base of problem types.
pub(super) const TYPE_BASE: &str = "https://errors.hyperspot.com/";
/// The trace of the examples.
pub(super) const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// The refusals of every request.
pub(super) const EVERYWHERE: [Kind; 7] = [
    Kind::Malformed,
    Kind::MethodNotAllowed,
    Kind::Misdirected,
    // Connections, waiting requests and large responses are limited.
    Kind::Overloaded,
    Kind::Unavailable,
    Kind::UriTooLong,
    Kind::HeadersTooLarge,
];

/// The refusals of every request that changes something.
pub(super) const WHEN_CHANGING: [Kind; 1] = [Kind::Forbidden];

/// The refusals of every request with a body.
pub(super) const WITH_A_BODY: [Kind; 4] =
    [Kind::RequestTimeout, Kind::UnsupportedMediaType, Kind::Overloaded, Kind::NotImplemented];

/// The refusals of every request that may have an `Idempotency-Key`.
pub(super) const UNDER_A_KEY: [Kind; 3] = [Kind::IdempotencyKeyReuse, Kind::IdempotencyKeyInFlight, Kind::Validation];

/// A problem document as the server writes it.
fn document(kind: Kind, instance: &str) -> Value {
    let mut problem = json!({
        "type": format!("{TYPE_BASE}{}", kind.code()),
        "title": kind.title(),
        "status": kind.status(),
        "detail": detail(kind),
        "instance": instance,
        "traceId": TRACE_ID,
    });
    let more = match kind {
        Kind::Validation => ("errors", json!([{"pointer": "/data/email", "detail": "must have the format 'email'"}])),
        Kind::ExpectedSequence => ("actual", json!(4)),
        Kind::Trimmed => ("earliest", json!(10_001)),
        _ => return problem,
    };
    if let Some(members) = problem.as_object_mut() {
        members.insert(more.0.to_owned(), more.1);
        if kind == Kind::Trimmed {
            members.insert("resumeOffset".to_owned(), json!(10_000));
        }
    }
    problem
}

/// Responses that operations share, by name.
#[derive(Default)]
pub(super) struct SharedResponses(BTreeMap<String, Response>);

impl SharedResponses {
    /// The responses of these refusals by status, as references to shared ones.
    pub(super) fn responses(&mut self, refusals: &BTreeSet<Kind>) -> Vec<(u16, Ref)> {
        let mut by_status: BTreeMap<u16, Vec<Kind>> = BTreeMap::new();
        for kind in refusals {
            by_status.entry(kind.status()).or_default().push(*kind);
        }
        by_status.into_iter().map(|(status, refusals)| (status, self.share(&refusals))).collect()
    }

    fn share(&mut self, refusals: &[Kind]) -> Ref {
        let name = refusals.iter().map(|kind| format!("{kind:?}")).collect::<Vec<_>>().join(".");
        self.0.entry(name.clone()).or_insert_with(|| response(refusals));
        Ref::from_response_name(name)
    }

    pub(super) fn into_responses(self) -> impl Iterator<Item = (String, Response)> {
        self.0.into_iter()
    }
}

fn response(refusals: &[Kind]) -> Response {
    let lines = refusals.iter().map(|kind| format!("`{}`: {}", kind.code(), meaning(*kind)));
    let description = match refusals {
        [_] => lines.collect::<String>(),
        _ => lines.map(|line| format!("- {line}\n")).collect(),
    };
    let examples = refusals.iter().map(|kind| (kind.code(), example(*kind)));
    let content = ContentBuilder::new().schema(Some(schema_ref("Problem"))).examples_from_iter(examples).build();
    let mut response = headers::on_every(ResponseBuilder::new().description(description.trim_end()));
    if refusals.iter().any(|kind| kind.is_retryable()) {
        response = response.header_ref("Retry-After", headers::reference("Retry-After"));
    }
    // Those that are stored under an `Idempotency-Key`.
    if refusals.iter().any(|kind| matches!(kind.status(), 400 | 404 | 409 | 410 | 422)) {
        response = response.header_ref("Idempotent-Replayed", headers::reference("Idempotent-Replayed"));
    }
    if refusals.contains(&Kind::MethodNotAllowed) {
        response = response.header_ref("Allow", headers::reference("Allow"));
    }
    response.content(PROBLEM_JSON, content).build()
}

fn example(kind: Kind) -> RefOr<Example> {
    let instance = if kind == Kind::InvalidOffset { "/v1/events:poll" } else { "/v1/events" };
    ExampleBuilder::new().summary(kind.title()).value(Some(document(kind, instance))).into()
}

/// The example of the schema.
pub(super) fn sample() -> Value {
    document(Kind::InvalidOffset, "/v1/events:poll")
}

/// The table of codes.
pub(super) fn table() -> String {
    let row = |kind: &Kind| {
        let again = if kind.is_retryable() { "yes" } else { "" };
        format!("| `{}` | {} | {again} | {} |\n", kind.code(), kind.status(), meaning(*kind))
    };
    let rows = Kind::ALL.iter().map(row).collect::<String>();
    format!("| code | status | retry | meaning |\n|---|---|---|---|\n{rows}")
}

/// The meaning of a kind.
const fn meaning(kind: Kind) -> &'static str {
    match kind {
        Kind::InvalidType => "An identifier is neither a code nor a GTS identifier (or, for a filter, not a pattern).",
        Kind::InvalidOffset => "`offset` is missing, negative, or neither a whole number nor `earliest` or `latest`.",
        Kind::InvalidSequence => "An event's own `sequence` is not a positive integer, or would leave a gap.",
        Kind::BatchTooLarge => "A batch has too many events or bytes.",
        Kind::Malformed => "The request is not valid HTTP, JSON or UTF-8.",
        Kind::Unauthenticated => "Credentials are missing or unknown. This version does not authenticate callers.",
        Kind::Forbidden => {
            "The request would change something and comes from a web page of another origin that is not in \
                `server.cors.allowed_origins`; or the caller has no permission, which does not occur in this version, \
                because it does not authenticate callers."
        }
        Kind::NotFound => {
            "The event, topic, type, version, consumer (or it has expired), group, claim, handler, dead letter, \
                projection or path does not exist."
        }
        Kind::MethodNotAllowed => "The path does not support the method; `Allow` lists those it supports.",
        Kind::NotAcceptable => "None of the accepted media types can be produced.",
        Kind::RequestTimeout => "The request did not arrive in time; retry it.",
        Kind::SequenceExists => "An event's own `sequence` already exists.",
        Kind::ExpectedSequence => {
            "Conflict: the aggregate's last sequence is `actual`, not `expectedAggregateSequence`."
        }
        Kind::EventIdReuse => {
            "The idempotency key was used with different `data`, and the topic has `onPayloadMismatch: \
            reject`."
        }
        Kind::AlreadyExists => "Another definition is registered under the name.",
        Kind::ClaimLost => "The token is no longer valid for the claim.",
        Kind::InvalidState => "The action is not possible in the resource's status.",
        Kind::IdempotencyKeyReuse => "The `Idempotency-Key` was used for another request.",
        Kind::IdempotencyKeyInFlight => "The first request with the `Idempotency-Key` is still running.",
        Kind::Trimmed => {
            "The requested events were removed by retention; continue with `resumeOffset` as the offset. `earliest` is \
                the first sequence that can be read."
        }
        Kind::PayloadTooLarge => "The body, or one event of it, is too large.",
        Kind::UriTooLong => "The path and the query together are too long; shorten the query.",
        Kind::UnsupportedMediaType => "The path does not support the media type or the encoding of the body.",
        Kind::Misdirected => {
            "The request names a host (`Host`, `:authority`) that this server does not serve: neither a loopback name, \
                nor the address it listens on, nor in `server.allowed_hosts`."
        }
        Kind::Validation => "The request is invalid; `errors` lists the places and reasons.",
        Kind::BatchAborted => "Another event of the same atomic unit was refused, so this one was not stored.",
        Kind::Overloaded => "A limit is reached; retry after `Retry-After` seconds.",
        Kind::HeadersTooLarge => "The headers are too large or too many.",
        Kind::NotImplemented => "The body has a transfer coding other than `chunked`.",
        Kind::Unavailable => {
            "The log cannot be written, its volume has too little free space, or the server is overloaded or shutting \
                down."
        }
        Kind::ProjectionTimeout => {
            "A projection did not reach the offset in time. A published event is stored \
            nevertheless."
        }
    }
}

/// An example of a detail; the meaning where there is no better one.
const fn detail(kind: Kind) -> &'static str {
    match kind {
        Kind::InvalidType => "Every GTS segment ends in a version, `v1` or `v1.2`, without leading zeros.",
        Kind::InvalidOffset => {
            "`offset` must be a whole number, 0 or more (the last sequence you have seen, 0 for none), or `earliest` or \
            `latest`."
        }
        Kind::InvalidSequence => "The sequence would leave a gap in the topic.",
        Kind::BatchTooLarge => "A batch may hold 100 events; split it.",
        Kind::Malformed => "The body is not JSON: look at column 17.",
        Kind::NotFound => "No such event.",
        Kind::NotAcceptable => "Accept application/json.",
        Kind::ExpectedSequence => {
            "The aggregate has newer events; read it again and retry. `actual` is its last aggregateSequence."
        }
        Kind::AlreadyExists => {
            "An event type of this name is registered with another `dataSchema`. A registered type does not change: register \
            another name, or add a schema as a new version (POST /v1/event-types/{id}/versions)."
        }
        Kind::InvalidState => "This version is finalised and never changes; add a higher one.",
        Kind::Trimmed => {
            "The requested part of the topic has been removed by retention; continue with `resumeOffset` as the offset. \
                `earliest` is the first sequence that can be read."
        }
        Kind::PayloadTooLarge => "The body may have at most 1114112 bytes.",
        Kind::UnsupportedMediaType => "Send application/json.",
        Kind::Validation => "The event does not match its type's schema; see `errors`.",
        Kind::Overloaded => "The server holds its maximum of request bodies; retry shortly.",
        Kind::Unavailable => {
            "The disk is full (no space left on device). Free space on the volume of the data folder; the broker reopens \
                the log by itself."
        }
        kind => meaning(kind),
    }
}
