//! The reply to a writing request: a response that can be sent, and stored to be replayed.
//!
//! - The whole body is in memory. It knows the positions of stored events in it, so that a stored reply need not copy them.
//! - Decisions are stored: 2xx, and 4xx except temporary errors and errors in the form of the request.
//! - A problem is stored without path and trace: the request that it is replayed to has its own.

use super::negotiate::JSON;
use super::problem::Problem;
use crate::idempotency::ReplayedReply;
use crate::ledger::{ReplyPiece, StoredReply};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use contract::{Error, Kind, Position, StoredEvent};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use serde::Serialize;

/// Marks a replayed response.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// The value of headers that are either present or absent.
pub(crate) const HEADER_TRUE: HeaderValue = HeaderValue::from_static("true");

/// A reply.
pub(crate) struct Reply {
    response: http::Response<Bytes>,
    /// The stored events in the body, in their order.
    events: Vec<EventSpan>,
    /// Whether a retry may get another reply.
    transient: bool,
}

/// A stored event in a body.
pub(crate) struct EventSpan {
    pub(crate) at: usize,
    pub(crate) bytes: usize,
    pub(crate) position: Position,
}

impl Reply {
    /// 204.
    pub(crate) fn no_content(_: &()) -> Self {
        Self::new(StatusCode::NO_CONTENT, Bytes::new())
    }

    /// 200 with a resource.
    pub(crate) fn ok<T: Serialize>(thing: &T) -> Self {
        match serde_json::to_vec(thing) {
            Ok(body) => Self::new(StatusCode::OK, body.into()).with_header(CONTENT_TYPE, JSON),
            Err(_) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, Bytes::new()),
        }
    }

    /// 201 with a resource and its location.
    pub(crate) fn created<T: Serialize>(thing: &T, location: &str) -> Self {
        let mut reply = Self::ok(thing);
        if reply.response.status().is_success() {
            *reply.response.status_mut() = StatusCode::CREATED;
        }
        match HeaderValue::from_str(location) {
            Ok(location) => reply.with_header(LOCATION, location),
            Err(_) => reply,
        }
    }

    /// A stored event, with its stored text.
    pub(crate) fn event(status: StatusCode, event: &StoredEvent) -> Self {
        let mark = EventSpan { at: 0, bytes: event.text.len(), position: event.position };
        Self { events: vec![mark], ..Self::new(status, event.text.clone()).with_header(CONTENT_TYPE, JSON) }
    }

    /// A body with stored events in it.
    pub(crate) fn results(status: StatusCode, body: Vec<u8>, events: Vec<EventSpan>) -> Self {
        Self { events, ..Self::new(status, body.into()).with_header(CONTENT_TYPE, JSON) }
    }

    /// The same with a header.
    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.response.headers_mut().insert(name, value);
        self
    }

    /// The same, but it is not stored: a retry is executed again.
    pub(crate) const fn without_storing(mut self) -> Self {
        self.transient = true;
        self
    }

    fn new(status: StatusCode, body: Bytes) -> Self {
        let mut response = http::Response::new(body);
        *response.status_mut() = status;
        Self { response, events: Vec::new(), transient: false }
    }

    /// The stored form; events are named by their positions in the same log.
    pub(crate) fn to_stored(&self) -> Option<StoredReply> {
        self.to_stored_with(self.events.iter().map(|span| ReplyPiece::Event(span.position)).collect())
    }

    /// The stored form of a reply that several logs have decided: its events are named by `names`, in their order.
    pub(crate) fn to_stored_with(&self, names: Vec<ReplyPiece>) -> Option<StoredReply> {
        debug_assert_eq!(names.len(), self.events.len(), "every event has a name");
        let body = self.response.body();
        let (mut pieces, mut from) = (Vec::new(), 0);
        for (EventSpan { at, bytes, .. }, name) in self.events.iter().zip(names) {
            pieces.extend(text(body.get(from..*at)?)?);
            pieces.push(name);
            from = at + bytes;
        }
        pieces.extend(text(body.get(from..)?)?);
        self.stored_with_body(pieces)
    }

    /// The stored events in it: their positions and texts.
    pub(crate) fn stored_events(&self) -> Vec<(Position, Bytes)> {
        let body = self.response.body();
        self.events.iter().map(|span| (span.position, body.slice(span.at..span.at + span.bytes))).collect()
    }

    fn stored_with_body(&self, body: Vec<ReplyPiece>) -> Option<StoredReply> {
        let header = |(name, value): (&HeaderName, &HeaderValue)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        };
        let headers = self.response.headers().iter().filter_map(header).collect();
        let status = self.response.status();
        (is_final(status) && !self.transient).then(|| StoredReply { status: status.as_u16(), headers, body })
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        self.response.map(Body::from)
    }
}

impl Problem {
    /// The stored form of a refusal.
    pub(crate) fn to_stored(&self) -> Option<StoredReply> {
        let body = serde_json::to_string(&self.document(None, None)).ok()?;
        let status = self.status();
        is_final(status).then(|| StoredReply {
            status: status.as_u16(),
            headers: Vec::new(),
            body: vec![ReplyPiece::Text(body)],
        })
    }
}

/// A piece of text; `Some(None)` if it is empty, `None` if it is not UTF-8.
fn text(bytes: &[u8]) -> Option<Option<ReplyPiece>> {
    let text = std::str::from_utf8(bytes).ok()?;
    Some((!text.is_empty()).then(|| ReplyPiece::Text(text.to_owned())))
}

/// Whether a retry of the same request would get the same status.
pub(crate) fn is_final(status: StatusCode) -> bool {
    match status.as_u16() {
        401 | 403 | 405 | 406 | 408 | 413 | 415 | 421 | 429 => false,
        200..=299 | 400..=499 => true,
        _ => false,
    }
}

/// The response of an earlier request, replayed.
pub(crate) fn replay_response(ReplayedReply { status, headers, body }: ReplayedReply) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = match status.is_client_error() {
        true => Problem::from_document(&body).unwrap_or_else(unreadable).into_response(),
        false => Response::new(Body::from(body)),
    };
    *response.status_mut() = status;
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response.headers_mut().insert(REPLAYED, HEADER_TRUE);
    response
}

fn unreadable() -> Problem {
    Error::new(Kind::Unavailable, "A stored reply could not be read; see the server's log.").into()
}
