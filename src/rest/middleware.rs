//! The middleware: what happens to every request before its handler, and to every response after it.
//!
//! - Every response carries `X-Trace-Id`: the trace of the request's `traceparent`, or a new one.
//! - Every refusal is sent as a problem document, whether a handler, the router or hyper made it.
//! - Heads that are too large are refused here, where a problem document can still be sent.
//! - Hosts and origins that the server does not know are refused here, before the request reaches a route (`browser_policy`).
//! - A request that takes too long is abandoned, unless its route waits (`request_context`).

use super::address_limiter::PeerAddress;
use super::connection_timer::ConnectionTimer;
use super::head_meter::BodyReading;
use super::parked::ParkingSlot;
use super::problem::Problem;
use super::request_context::RequestContext;
use super::response_budget::{self, SendBudget, SharedReservation};
use super::{HttpFrontend, ServerState, body_drain, custom_methods, request_head};
use crate::memory::on_behalf_of;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use contract::{Error, Kind};
use http::header::{ACCEPT_ENCODING, HeaderName, HeaderValue, ORIGIN};
use http::uri::{PathAndQuery, Uri};
use http::{Request, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;
use tower::Service as _;
use uuid::Uuid;

const TRACE_ID: HeaderName = HeaderName::from_static("x-trace-id");
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
/// Longest path and query, in bytes: enough for the longest filter, percent-encoded.
const URI_BYTES_MAX: usize = 16 * 1024;

/// A trace, and this server's span in it.
struct RequestTrace {
    id: TraceIdDigits,
    span: Uuid,
}

/// Thirty-two hexadecimal digits.
type TraceIdDigits = [u8; 32];

/// Where a request comes from.
pub(crate) struct RequestSource {
    pub(crate) peer: PeerAddress,
    /// The slot of its HTTP/1 connection.
    pub(crate) parking: Option<ParkingSlot>,
    /// Its body over HTTP/1, until it has been read.
    pub(crate) reading: Option<BodyReading>,
    /// The connection had no room for it.
    pub(crate) refusal: Option<Error>,
}

/// Serves one request.
pub(crate) async fn handle(
    frontend: Arc<HttpFrontend>,
    source: RequestSource,
    request: Request<Incoming>,
) -> Result<Response, Infallible> {
    let began = Instant::now();
    let RequestSource { peer, parking, reading, refusal } = source;
    let trace = RequestTrace::of(request.headers().get(&TRACE_PARENT));
    let method = request.method().clone();
    let uri = request.uri().clone();
    let origin = request.headers().get(ORIGIN).cloned();
    let request = body_drain::DrainedBody::wrap(request, &frontend.options, reading);
    let request = match refusal {
        Some(refusal) => Err(Problem::from(refusal)),
        None => normalise(&frontend, request),
    };
    let response = match request {
        Ok(request) => {
            let context = RequestContext::new(parking.clone(), peer.address, uri.clone());
            route(&frontend, &peer, context, request).await
        }
        Err(problem) => Err(problem),
    };
    // What an earlier poll of this connection left behind must not reach the next one, which may be another caller's.
    parking.iter().for_each(ParkingSlot::clear);
    let mut response = match response {
        Ok(response) => write_problem(response, &method, uri.path(), trace.id()),
        Err(problem) => problem.respond(uri.path(), trace.id()),
    };
    frontend.browsers.add_cors_headers(origin, &mut response);
    tracing::debug!(
        target: "event_broker::access", %method, path = uri.path(), status = response.status().as_u16(),
        micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX), trace = trace.id(), "request"
    );
    Ok(trace.add_headers(response))
}

/// Calls the handler of the request's route, within the time that a request may take, and reserves memory for its response.
async fn route(
    frontend: &HttpFrontend,
    peer: &PeerAddress,
    context: RequestContext,
    mut request: Request<Body>,
) -> Result<Response, Problem> {
    // Over HTTP/2 every request has a task of its own, and so a timer of its own.
    let timer = context.parking().map_or_else(ConnectionTimer::default, |parking| parking.timer().clone());
    let method = request.method().clone();
    request.extensions_mut().insert(context.clone());
    let compressor = request.headers().contains_key(ACCEPT_ENCODING).then(SharedReservation::default);
    let body = may_be_large(request.body()).then(SharedReservation::default);
    if let Some(body) = &body {
        request.extensions_mut().insert(body.clone());
    }
    let mut router = frontend.router();
    let handler = response_budget::with_compressor(compressor.clone(), router.call(request));
    let response = on_behalf_of(Arc::clone(&peer.usage), handler);
    let applies = || !context.may_take_long();
    let response = match timer.timeout_while(frontend.options.request_timeout, applies, response).await {
        Some(Ok(response)) => response,
        Some(Err(never)) => match never {},
        None => request_timed_out().into_response(),
    };
    let is_http2 = context.parking().is_none();
    SendBudget { server: frontend, usage: &peer.usage, is_http2, body, compressor }.hold(&method, response)
}

/// Whether a body may need room beyond what a connection has anyway.
fn may_be_large(body: &Body) -> bool {
    body.size_hint().upper().is_none_or(|bytes| bytes >= response_budget::LARGE_RESPONSE_BYTES as u64)
}

/// Refuses a head that is too large, breaks the rules of HTTP/1.1 or is for another host. Decodes `%3A` to the colon of a
/// custom method, except in names, which may contain colons of their own.
fn normalise(server: &ServerState, mut request: Request<Body>) -> Result<Request<Body>, Problem> {
    let target = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    if target.len() > URI_BYTES_MAX {
        return Err(Problem::from_status(StatusCode::URI_TOO_LONG, request.method()));
    }
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
    if headers > server.options.header_bytes_max {
        return Err(Problem::from_status(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, request.method()));
    }
    request_head::check(&request)?;
    server.browsers.check(&request)?;
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
    // A slow view is not a failure of this server, and neither is an unknown transfer coding.
    let is_expected = matches!(problem.error().kind(), Kind::ProjectionTimeout | Kind::NotImplemented);
    if status.is_server_error() && !is_expected {
        let source = std::error::Error::source(problem.error()).map(ToString::to_string);
        tracing::error!(%method, path, trace = trace_id, error = %problem.error(), source, "a request failed");
    }
    let mut refusal = problem.respond(path, trace_id);
    // Headers that the refusal had set, such as `Allow`.
    for (name, value) in response.headers() {
        if !refusal.headers().contains_key(name) && name != http::header::CONTENT_LENGTH {
            refusal.headers_mut().append(name.clone(), value.clone());
        }
    }
    refusal
}

fn request_timed_out() -> Problem {
    let detail = "The request took too long and was abandoned. It may have been executed: retry it with the same id, \
        and it is executed once.";
    Error::new(Kind::Unavailable, detail).into()
}

impl RequestTrace {
    /// The trace of the request, or a new one.
    fn of(parent: Option<&HeaderValue>) -> Self {
        let named = parent.and_then(|parent| trace_id(parent.to_str().ok()?)?.as_bytes().try_into().ok());
        Self { id: named.unwrap_or_else(|| digits(Uuid::new_v4())), span: Uuid::new_v4() }
    }

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

/// The trace id of a W3C `traceparent`; `None` if it is not valid.
fn trace_id(parent: &str) -> Option<&str> {
    let mut parts = parent.trim().split('-');
    let (version, id, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_known = hex(version, 2) && version != "ff" && (version != "00" || parts.next().is_none());
    let is_valid =
        hex(id, 32) && hex(span, 16) && hex(flags, 2) && [id, span].iter().all(|text| text.bytes().any(|b| b != b'0'));
    (is_known && is_valid).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_traceparent_names_a_trace() {
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
