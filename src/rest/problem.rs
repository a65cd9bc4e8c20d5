//! Refusals as RFC 9457 problem documents.
//!
//! - A handler returns an [`Error`]; the middleware, which knows the path and the trace, writes the document.
//! - A refusal of the HTTP library becomes a problem document too: no response of 400 or more is sent without one.
//! - The caller reads `detail`; what only concerns the operator goes to the log.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use contract::{Error, Kind, Sequence, Violation};
use http::header::{self, HeaderValue};
use http::{Method, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The base of problem types; a type ends with the code.
const TYPE_BASE: &str = "https://errors.hyperspot.com/";
/// The media type of a problem document.
const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Hyper accepts these in a path, but a URI must not contain them (RFC 3986 3.3). What is percent-encoded already is not
/// changed.
const NOT_IN_A_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A refusal that is to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    error: Error,
    status: StatusCode,
    /// The methods that the path has, if the request used another one.
    allow: Option<&'static str>,
}

/// The result of every handler.
pub(crate) type HandlerResult<T = Response> = Result<T, Problem>;

impl Problem {
    /// The problem for a refusal by the HTTP library with this status.
    pub(crate) fn from_status(status: StatusCode, method: &Method) -> Self {
        let (kind, detail) = match status {
            StatusCode::NOT_FOUND => (Kind::NotFound, "There is no resource at this path; /docs lists all paths."),
            StatusCode::METHOD_NOT_ALLOWED => (
                Kind::MethodNotAllowed,
                "This path does not support the method; the `Allow` header lists those it supports.",
            ),
            StatusCode::NOT_ACCEPTABLE => (Kind::NotAcceptable, "None of the accepted media types can be produced."),
            StatusCode::PAYLOAD_TOO_LARGE => (Kind::PayloadTooLarge, "The body is larger than this path allows."),
            StatusCode::UNSUPPORTED_MEDIA_TYPE => (Kind::UnsupportedMediaType, "Send JSON."),
            StatusCode::MISDIRECTED_REQUEST => (
                Kind::Misdirected,
                "This server does not serve the host that the request names; see `server.allowed_hosts`.",
            ),
            StatusCode::URI_TOO_LONG => (Kind::UriTooLong, "The path and query are too long; shorten the query."),
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                (Kind::HeadersTooLarge, "The headers are too large or too many.")
            }
            StatusCode::REQUEST_TIMEOUT => (Kind::RequestTimeout, "The request did not arrive in time; retry it."),
            status if status.is_server_error() => {
                tracing::error!(%status, %method, "a request failed inside the server");
                (Kind::Unavailable, "An internal error occurred; the server's log has the cause under this trace id.")
            }
            _ => (Kind::Malformed, "The request is not valid HTTP for this server."),
        };
        Self { error: Error::new(kind, detail), status, allow: None }
    }

    /// The problem for a method that the path does not support.
    pub(crate) fn not_allowed(allow: &'static str) -> Self {
        Self { allow: Some(allow), ..Self::from_status(StatusCode::METHOD_NOT_ALLOWED, &Method::POST) }
    }

    /// The problem of a document that was stored.
    pub(crate) fn from_document(document: &[u8]) -> Option<Self> {
        let StoredProblem { problem_type, status, detail, errors, actual, earliest } =
            serde_json::from_slice(document).ok()?;
        let code = problem_type.strip_prefix(TYPE_BASE)?;
        let kind = *Kind::ALL.iter().find(|kind| kind.code() == code)?;
        let mut error = Error::new(kind, detail);
        if let Some(actual) = actual {
            error = error.with_actual(actual);
        }
        if let Some(earliest) = earliest {
            error = error.with_earliest(Sequence(earliest));
        }
        let violations: Vec<_> = errors.into_iter().map(|it| Violation::new(it.pointer, it.detail)).collect();
        let error = if violations.is_empty() { error } else { error.with_violations(violations) };
        Some(Self { error, status: StatusCode::from_u16(status).ok()?, allow: None })
    }

    /// The response with its document; `instance` is the path without the query.
    pub(crate) fn respond(&self, instance: &str, trace_id: &str) -> Response {
        let instance = Cow::from(percent_encoding::utf8_percent_encode(instance, NOT_IN_A_PATH));
        let body = serde_json::to_vec(&self.document(Some(&instance), Some(trace_id))).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::CONTENT_TYPE, PROBLEM_JSON);
        if let Some(seconds) = self.retry_after_seconds() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = self.allow {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        response
    }

    /// The document itself; items of a batch leave out the path and the trace, which the response has.
    pub(crate) fn document<'a>(&'a self, instance: Option<&'a str>, trace_id: Option<&'a str>) -> ProblemDocument<'a> {
        let kind = self.error.kind();
        ProblemDocument {
            problem_type: format!("{TYPE_BASE}{}", kind.code()),
            title: kind.title(),
            status: self.status.as_u16(),
            detail: self.error.detail(),
            instance,
            trace_id,
            errors: self.error.violations(),
            actual: self.error.actual(),
            earliest: self.error.earliest().map(contract::Sequence::get),
            resume_offset: self.error.resume_offset().map(contract::Offset::get),
            event_id: self.error.stored().map(|(id, _)| id),
            sequence: self.error.stored().map(|(_, sequence)| sequence.get()),
        }
    }

    /// The error.
    pub(crate) const fn error(&self) -> &Error {
        &self.error
    }

    pub(crate) const fn status(&self) -> StatusCode {
        self.status
    }

    /// After how many seconds to retry, if a retry may help.
    pub(crate) fn retry_after_seconds(&self) -> Option<u32> {
        let default = self.error.kind().is_retryable().then_some(1);
        self.error.retry_after_seconds().or(default)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = StatusCode::from_u16(error.kind().status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { error, status, allow: None }
    }
}

impl IntoResponse for Problem {
    /// An empty response that carries the refusal; the middleware writes the document.
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        response.extensions_mut().insert(self);
        response
    }
}

/// A document as it was stored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredProblem {
    #[serde(rename = "type")]
    problem_type: String,
    status: u16,
    detail: String,
    #[serde(default)]
    errors: Vec<StoredViolation>,
    actual: Option<u64>,
    earliest: Option<u64>,
}

#[derive(Deserialize)]
struct StoredViolation {
    pointer: String,
    detail: String,
}

/// RFC 9457, with our own members.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProblemDocument<'a> {
    #[serde(rename = "type")]
    problem_type: String,
    title: &'static str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [Violation],
    /// The current sequence of the aggregate, or the current checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    actual: Option<u64>,
    /// The first sequence that can be read, and the offset to continue with: the one before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    earliest: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resume_offset: Option<u64>,
    /// The event that is stored in spite of the error, and its sequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<uuid::Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
}
