//! Refusals in the document: which statuses, which codes, what each means.
//!
//! - The table of codes is `Kind`'s; a kind without its meaning here does not compile.
//! - A response that several operations share stands once, named by its codes.

use super::headers;
use super::schema_spec::schema_ref;
use contract::Kind;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::openapi::example::{Example, ExampleBuilder};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};

/// The media type of a problem.
const PROBLEM_JSON: &str = "application/problem+json";
/// Where the codes are explained.
pub(super) const TYPE_BASE: &str = "https://errors.hyperspot.com/";
/// The trace of the examples.
pub(super) const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// What every request can be refused with.
pub(super) const EVERYWHERE: [Kind; 7] = [
    Kind::Malformed,
    Kind::MethodNotAllowed,
    Kind::Misdirected,
    // Connections, waiting requests and large answers have their limits.
    Kind::Overloaded,
    Kind::Unavailable,
    Kind::UriTooLong,
    Kind::HeadersTooLarge,
];

/// What every request that changes something can be refused with.
pub(super) const WHEN_CHANGING: [Kind; 1] = [Kind::Forbidden];

/// What every request with a body can be refused with.
pub(super) const WITH_A_BODY: [Kind; 4] =
    [Kind::RequestTimeout, Kind::UnsupportedMediaType, Kind::Overloaded, Kind::NotImplemented];

/// What every request that may have an `Idempotency-Key` can be refused with.
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

/// Responses that stand once, under their names.
#[derive(Default)]
pub(super) struct SharedResponses(BTreeMap<String, Response>);

impl SharedResponses {
    /// The responses to these refusals by status, each a reference to the one that is shared.
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
    // Those that are kept under an `Idempotency-Key`.
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

/// A problem as the schema shows it.
pub(super) fn sample() -> Value {
    document(Kind::InvalidOffset, "/v1/events:poll")
}

/// The table of codes, for people.
pub(super) fn table() -> String {
    let row = |kind: &Kind| {
        let again = if kind.is_retryable() { "yes" } else { "" };
        format!("| `{}` | {} | {again} | {} |\n", kind.code(), kind.status(), meaning(*kind))
    };
    let rows = Kind::ALL.iter().map(row).collect::<String>();
    format!("| code | status | try again | when |\n|---|---|---|---|\n{rows}")
}

/// What a kind means, for the table.
const fn meaning(kind: Kind) -> &'static str {
    match kind {
        Kind::InvalidType => "An identifier is neither a code nor a GTS identifier (or, for a filter, not a pattern).",
        Kind::InvalidOffset => "`offset` is missing, negative, or neither a whole number nor `earliest` or `latest`.",
        Kind::InvalidSequence => "An event's own `sequence` is not a positive integer, or would leave a gap.",
        Kind::BatchTooLarge => "A batch has more events or more bytes than it may.",
        Kind::Malformed => "The request is not HTTP, JSON or UTF-8 that can be read.",
        Kind::Unauthenticated => {
            "There are no credentials, or unknown ones. This version does not authenticate callers."
        }
        Kind::Forbidden => {
            "A web page of another origin, which is not in `server.cors.allowed_origins`, tries to change something; or \
            the caller is not allowed to do this, which does not occur while this version does not authenticate callers."
        }
        Kind::NotFound => {
            "There is no such event, topic, type, version, consumer (or it expired), group, claim, handler, \
            dead letter, projection or path."
        }
        Kind::MethodNotAllowed => "The path does not take that method; `Allow` says which it takes.",
        Kind::NotAcceptable => "None of the accepted media types can be produced.",
        Kind::RequestTimeout => "The request did not arrive in time; send it again.",
        Kind::SequenceExists => "An event's own `sequence` is taken.",
        Kind::ExpectedSequence => {
            "Conflict: the aggregate's last sequence is `actual`, not `expectedAggregateSequence`."
        }
        Kind::EventIdReuse => "The idempotency key came before with other `data`, and the topic says `reject`.",
        Kind::AlreadyExists => "Something else is registered under that name.",
        Kind::ClaimLost => "The token no longer holds the claim.",
        Kind::InvalidState => "The verb does not fit the status of what it is meant for.",
        Kind::IdempotencyKeyReuse => "The `Idempotency-Key` came before with another request.",
        Kind::IdempotencyKeyInFlight => "The first request with that `Idempotency-Key` is still running.",
        Kind::Trimmed => {
            "What was asked for was removed by retention; go on with `resumeOffset` as the offset. `earliest` is the first \
            sequence that can be read."
        }
        Kind::PayloadTooLarge => "The body, or one event of it, is too large.",
        Kind::UriTooLong => "The path and the query together are too long; shorten the query.",
        Kind::UnsupportedMediaType => "The body's media type or encoding is not one this path takes.",
        Kind::Misdirected => {
            "The request names a host (`Host`, `:authority`) that this server does not answer for: neither a loopback name, \
            nor the address it listens on, nor in `server.allowed_hosts`."
        }
        Kind::Validation => "The request does not fit the rules; `errors` says where and why.",
        Kind::BatchAborted => "Another event of the same atomic unit was refused, so this one was not written.",
        Kind::Overloaded => "A limit is reached; come back after `Retry-After` seconds.",
        Kind::HeadersTooLarge => "The headers are too large or too many.",
        Kind::NotImplemented => "The body has a transfer coding other than `chunked`.",
        Kind::Unavailable => {
            "The log cannot be written, or its volume has too little free space, or the server is full, shutting down or too \
            slow."
        }
        Kind::ProjectionTimeout => "A projection did not get there in time; a published event is stored all the same.",
    }
}

/// What a problem of a kind may say; its meaning where nothing better is here.
const fn detail(kind: Kind) -> &'static str {
    match kind {
        Kind::InvalidType => "Every GTS segment ends in a version, `v1` or `v1.2`, without leading zeros.",
        Kind::InvalidOffset => {
            "`offset` must be a whole number, 0 or more (the last sequence you have seen, 0 for none), or `earliest` or \
            `latest`."
        }
        Kind::InvalidSequence => "That sequence would leave a gap in the topic.",
        Kind::BatchTooLarge => "A batch may hold 100 events; split it.",
        Kind::Malformed => "The body is not JSON: look at column 17.",
        Kind::NotFound => "No such event.",
        Kind::NotAcceptable => "Accept application/json.",
        Kind::ExpectedSequence => {
            "The aggregate has moved on; read it again and decide anew. `actual` is its last aggregateSequence."
        }
        Kind::AlreadyExists => {
            "An event type of this name is registered with another `dataSchema`. A registered type does not change: register \
            another name, or add a schema as a new version (POST /v1/event-types/{id}/versions)."
        }
        Kind::InvalidState => "This version is finalised and never changes; add a higher one.",
        Kind::Trimmed => {
            "That part of the topic has been removed by retention; go on with `resumeOffset` as the offset. `earliest` is \
            the first sequence that can be read."
        }
        Kind::PayloadTooLarge => "The body may have at most 1114112 bytes.",
        Kind::UnsupportedMediaType => "Send application/json.",
        Kind::Validation => "The event does not match its type's schema; see `errors`.",
        Kind::Overloaded => "The server holds as many request bodies as it may; come back shortly.",
        Kind::Unavailable => {
            "The disk is full (no space left on device). Free space on the volume of the data folder; the broker opens the \
            log again by itself."
        }
        kind => meaning(kind),
    }
}
