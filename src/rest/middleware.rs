//! The edge: what happens to every request before its handler, and to every answer after it.
//!
//! - Every answer carries `X-Trace-Id`, the trace of an incoming `traceparent` or a new one.
//! - Every refusal leaves as a problem document, whoever made it.
//! - Heads that are too large are refused here, where they can be refused politely.
//! - Hosts and origins that the server does not know are refused here, before anything is looked up (`browser_policy`).
//! - A request that takes too long is given up, except where waiting is what was asked for.

use super::address_limiter::PeerAddress;
use super::connection_timer::ConnectionTimer;
use super::head_meter::BodyReading;
use super::parked::{ParkingContext, ParkingSlot};
use super::problem::Problem;
use super::response_budget::{self, BodyReservation};
use super::{HttpFrontend, ServerState, body_drain, custom_methods, request_head};
use crate::memory::on_behalf_of;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use contract::{Error, Kind};
use http::header::{HeaderName, HeaderValue, ORIGIN};
use http::uri::{PathAndQuery, Uri};
use http::{Method, Request, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;
use tower::Service as _;
use uuid::Uuid;

const TRACE_ID: HeaderName = HeaderName::from_static("x-trace-id");
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
/// Longest path and query, in bytes: room for the longest filter, percent-encoded.
const URI_BYTES_MAX: usize = 16 * 1024;

/// A trace and our place in it.
struct RequestTrace {
    id: TraceIdDigits,
    span: Uuid,
}

/// Thirty-two hexadecimal digits.
type TraceIdDigits = [u8; 32];

/// Answers one request.
pub(crate) async fn handle(
    frontend: Arc<HttpFrontend>,
    peer: PeerAddress,
    parking: Option<ParkingSlot>,
    (request, reading): (Request<Incoming>, Option<BodyReading>),
) -> Result<Response, Infallible> {
    let began = Instant::now();
    // Over HTTP/2 every request has its own task, and so its own alarm.
    let alarm = parking.as_ref().map_or_else(ConnectionTimer::default, |parking| parking.timer().clone());
    let trace = RequestTrace::of(request.headers().get(&TRACE_PARENT));
    let method = request.method().clone();
    let uri = request.uri().clone();
    let origin = request.headers().get(ORIGIN).cloned();
    let mut response = match normalise(&frontend, body_drain::DrainedBody::wrap(request, &frontend.options, reading)) {
        Err(problem) => {
            // What an earlier poll of this connection left behind must not answer the next one: that may be another caller's.
            parking.iter().for_each(ParkingSlot::clear);
            problem.respond(uri.path(), trace.id())
        }
        Ok(mut request) => {
            let waits = may_wait(request.method(), request.uri());
            let parking = parking.filter(|_| waits);
            if waits {
                request.extensions_mut().insert(ParkingContext::new(parking.as_ref(), peer.address, uri.clone()));
            }
            let body_room = may_be_large(request.body()).then(BodyReservation::default);
            if let Some(body_room) = &body_room {
                request.extensions_mut().insert(body_room.clone());
            }
            let mut router = frontend.router();
            let mut answer = pin!(on_behalf_of(Arc::clone(&peer.usage), router.call(request)));
            let response = match waits {
                true => {
                    let response = answer.await;
                    parking.iter().for_each(ParkingSlot::clear);
                    response
                }
                false => match alarm.timeout(frontend.options.request_timeout, answer.as_mut()).await {
                    Some(response) => response,
                    None => Ok(axum::response::IntoResponse::into_response(request_timed_out())),
                },
            };
            match response {
                Ok(response) => {
                    match response_budget::with_reservation((&frontend, &peer.usage), &method, body_room, response) {
                        Ok(response) => write_problem(response, &method, uri.path(), trace.id()),
                        Err(problem) => problem.respond(uri.path(), trace.id()),
                    }
                }
                Err(never) => match never {},
            }
        }
    };
    frontend.browsers.add_cors_headers(origin, &mut response);
    tracing::debug!(
        target: "event_broker::access", %method, path = uri.path(), status = response.status().as_u16(),
        micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX), trace = trace.id(), "request"
    );
    Ok(trace.add_headers(response))
}

/// Whether a body may need room beyond what a connection has anyway.
fn may_be_large(body: &Body) -> bool {
    body.size_hint().upper().is_none_or(|bytes| bytes >= response_budget::LARGE_RESPONSE_BYTES as u64)
}

/// Requests that are allowed to take as long as their caller wants: those of the routes that wait, and no others.
fn may_wait(method: &Method, uri: &Uri) -> bool {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    match uri.path() {
        "/v1/events:poll" | "/v1/events:stream" | "/v1/log" => reads,
        "/v1/events:import" => *method == Method::POST,
        "/v1/events" | "/v1/events:batch" => {
            *method == Method::POST && uri.query().is_some_and(|query| query.contains("waitFor="))
        }
        path => reads && path.starts_with("/v1/projections/") && path.ends_with(":wait"),
    }
}

/// Refuses a head that is too large, breaks the rules of HTTP/1.1 or is not for this server, and reads `%3A` as the colon of a verb, but for
/// identifiers, which may have colons of their own.
fn normalise(common: &ServerState, mut request: Request<Body>) -> Result<Request<Body>, Problem> {
    let target = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    if target.len() > URI_BYTES_MAX {
        return Err(Problem::from_status(StatusCode::URI_TOO_LONG, request.method()));
    }
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
    if headers > common.options.header_bytes_max {
        return Err(Problem::from_status(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, request.method()));
    }
    request_head::check(&request)?;
    common.browsers.check(&request)?;
    let path = request.uri().path();
    if path.contains("%3A") || path.contains("%3a") {
        let path = custom_methods::with_plain_colons(path);
        let target = match request.uri().query() {
            Some(query) => format!("{path}?{query}"),
            None => path,
        };
        if let Ok(uri) = target.parse::<Uri>() {
            *request.uri_mut() = uri;
        }
    }
    Ok(request)
}

/// Writes the problem document of a refused request.
fn write_problem(mut response: Response, method: &http::Method, path: &str, trace_id: &str) -> Response {
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let problem = match response.extensions_mut().remove::<Problem>() {
        Some(problem) => problem,
        None => Problem::from_status(status, method),
    };
    // A view that is slow is no failure of this server, nor is a coding it does not know.
    let is_callers = matches!(problem.error().kind(), Kind::ProjectionTimeout | Kind::NotImplemented);
    if status.is_server_error() && !is_callers {
        let source = std::error::Error::source(problem.error()).map(ToString::to_string);
        tracing::error!(%method, path, trace = trace_id, error = %problem.error(), source, "a request failed");
    }
    let mut answer = problem.respond(path, trace_id);
    // What the refusal brought along, `Allow` above all.
    for (name, value) in response.headers() {
        if !answer.headers().contains_key(name) && name != http::header::CONTENT_LENGTH {
            answer.headers_mut().append(name.clone(), value.clone());
        }
    }
    answer
}

fn request_timed_out() -> Problem {
    let detail = "The request took too long and was given up. Whether it was carried out is not known: repeat it \
        with the same id, and it happens once.";
    Error::new(Kind::Unavailable, detail).into()
}

impl RequestTrace {
    /// The trace the caller names, or a new one.
    fn of(parent: Option<&HeaderValue>) -> Self {
        let named = parent.and_then(|parent| trace_id(parent.to_str().ok()?)?.as_bytes().try_into().ok());
        Self { id: named.unwrap_or_else(|| digits(Uuid::new_v4())), span: Uuid::new_v4() }
    }

    /// Its name.
    fn id(&self) -> &str {
        std::str::from_utf8(&self.id).unwrap_or_default()
    }

    fn add_headers(&self, mut response: Response) -> Response {
        let span = digits(self.span);
        let pieces: [&[u8]; 5] = [b"00-", &self.id, b"-", span.get(..16).unwrap_or_default(), b"-01"];
        if let Ok(parent) = HeaderValue::from_maybe_shared(Bytes::from(pieces.concat())) {
            response.headers_mut().insert(TRACE_PARENT, parent);
        }
        if let Ok(id) = HeaderValue::from_bytes(&self.id) {
            response.headers_mut().insert(TRACE_ID, id);
        }
        response
    }
}

fn digits(uuid: Uuid) -> TraceIdDigits {
    let mut digits = [0; 32];
    uuid.simple().encode_lower(&mut digits);
    digits
}

/// The trace id of a W3C `traceparent`, if it is one.
fn trace_id(parent: &str) -> Option<&str> {
    let mut parts = parent.trim().split('-');
    let (version, id, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let known = hex(version, 2) && version != "ff" && (version != "00" || parts.next().is_none());
    let meant =
        hex(id, 32) && hex(span, 16) && hex(flags, 2) && [id, span].iter().all(|text| text.bytes().any(|b| b != b'0'));
    (known && meant).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_of_routes_that_wait_have_no_deadline() {
        for (method, target, waits) in [
            (Method::GET, "/v1/events:poll?topic=a", true),
            (Method::GET, "/v1/events:stream", true),
            (Method::GET, "/v1/log?timeout=30", true),
            (Method::GET, "/v1/projections/view:wait?offset=1", true),
            (Method::POST, "/v1/events:import", true),
            (Method::POST, "/v1/events?waitFor=view", true),
            (Method::POST, "/v1/events:batch?atomic=all&waitFor=view", true),
            (Method::POST, "/v1/events", false),
            (Method::GET, "/v1/events?waitFor=view", false),
            (Method::POST, "/v1/topics?waitFor=1", false),
            (Method::POST, "/v1/event-types/a:poll", false),
            (Method::PUT, "/v1/projections/view:wait", false),
            (Method::POST, "/v1/log", false),
        ] {
            assert_eq!(may_wait(&method, &Uri::from_static(target)), waits, "{method} {target}");
        }
    }

    #[test]
    fn only_a_whole_traceparent_names_a_trace() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(trace_id(&format!("00-{id}-00f067aa0ba902b7-01")), Some(id));
        assert_eq!(trace_id(&format!("01-{id}-00f067aa0ba902b7-01-later")), Some(id));
        for text in ["", "00", "00-0-0-0", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"] {
            assert_eq!(trace_id(text), None, "{text}");
        }
        assert_eq!(trace_id("00-00000000000000000000000000000000-00f067aa0ba902b7-01"), None);
        assert_eq!(trace_id(&format!("00-{id}-00f067aa0ba902b7-01-more")), None);
    }
}
