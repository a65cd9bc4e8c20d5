//! Which requests of web pages this server accepts from a browser.
//!
//! - Every `Host` (and `:authority`, and the authority of an absolute target) must name a host that this server serves. A page
//!   whose DNS name was rebound to this server's address sends its own name, and is refused (421).
//! - A request that changes something and comes from a page of another origin is refused (403), unless the origin is in
//!   `server.cors.allowed_origins`. `Origin` and `Sec-Fetch-Site` tell the page's origin; a page cannot forge them.
//!   Reads with `consumer_id` count as changes: they extend its session, and in a shared group they take claims.
//! - A browser's body must have a `Content-Type` (415): one without needs no preflight, and would be parsed as JSON.
//! - All of this is decided from the head, before the body is read and before the request reaches a route.
//!
//! Programs that are not browsers send neither `Origin` nor `Sec-Fetch-Site`, and only need a `Host`. What a page of another
//! origin may read is the browser's decision, by the headers of [`BrowserPolicy::cors`].

use super::problem::Problem;
use super::query_params::QueryParams;
use crate::config::{HostPattern, WebAuthority, WebHost, WebOrigin};
use axum::response::Response;
use contract::{Error, Kind};
use http::header::{self, ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN, VARY};
use http::{HeaderMap, Method, Request, Uri};
use http_body::Body;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tower_http::cors::{AllowOrigin, CorsLayer};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// How long a browser may cache the response to a preflight request.
const PREFLIGHT_AGE: Duration = Duration::from_secs(600);
/// The query parameter that makes a read change something.
const CONSUMER_ID: &str = "consumer_id";

/// Request headers that pages of allowed origins may set: those that the server reads.
const REQUEST_HEADERS: [&str; 31] = [
    "accept",
    "acting-tenant",
    "authorization",
    "content-type",
    "idempotency-key",
    "if-none-match",
    "last-event-id",
    "producer-id",
    "traceparent",
    "tracestate",
    // A CloudEvent in binary mode; extension attributes go into `ce-context`.
    "ce-actorid",
    "ce-actortype",
    "ce-causationid",
    "ce-context",
    "ce-correlationid",
    "ce-dataschema",
    "ce-deduplicationid",
    "ce-expectedaggregatesequence",
    "ce-id",
    "ce-messagegroup",
    "ce-requestid",
    "ce-sequence",
    "ce-source",
    "ce-specversion",
    "ce-subject",
    "ce-subjecttype",
    "ce-tenant",
    "ce-time",
    "ce-topic",
    "ce-traceparent",
    "ce-type",
];

/// Response headers that pages of allowed origins may read.
const RESPONSE_HEADERS: [&str; 14] = [
    "allow",
    "content-encoding",
    "deprecation",
    "etag",
    "idempotent-replayed",
    "location",
    "next-offset",
    "payload-mismatch",
    "retry-after",
    "secret-suspected",
    "tail",
    "traceparent",
    "www-authenticate",
    "x-trace-id",
];

/// The hosts that the server serves, and the origins whose pages may call it.
#[derive(Debug)]
pub(crate) struct BrowserPolicy {
    listen: Option<IpAddr>,
    hosts: Vec<HostPattern>,
    origins: Arc<[WebOrigin]>,
}

/// What caused a request, according to the browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestInitiator {
    /// No page, or a page of this server.
    Own,
    /// A page of an allowed origin.
    Allowed,
    /// Any other page.
    Foreign,
}

impl BrowserPolicy {
    /// For a server that listens on `listen`. Invalid hosts and origins are left out; the configuration refuses them.
    pub(crate) fn new(listen: Option<IpAddr>, hosts: &[String], origins: &[String]) -> Self {
        Self {
            listen: listen.map(|address| address.to_canonical()),
            hosts: hosts.iter().filter_map(|host| HostPattern::parse(host).ok()).collect(),
            origins: origins.iter().filter_map(|origin| WebOrigin::parse(origin)).collect(),
        }
    }

    /// Refuses a request that a browser must not send to this server.
    pub(crate) fn check<B: Body>(&self, request: &Request<B>) -> Result<(), Problem> {
        self.check_host(request)?;
        let headers = request.headers();
        if !headers.contains_key(ORIGIN) && !headers.contains_key(SEC_FETCH_SITE) {
            return Ok(());
        }
        if is_mutating(request.method(), request.uri()) && self.initiator(request) == RequestInitiator::Foreign {
            let detail = "A web page of another origin must not send this request. Send it from the server's own pages, or add \
                the page's origin to `server.cors.allowed_origins`.";
            return Err(Error::new(Kind::Forbidden, detail).into());
        }
        if has_body(request) && !headers.contains_key(CONTENT_TYPE) {
            let detail = "A request of a browser with a body needs a `Content-Type`, such as application/json.";
            return Err(Error::new(Kind::UnsupportedMediaType, detail).into());
        }
        Ok(())
    }

    fn check_host<B>(&self, request: &Request<B>) -> Result<(), Problem> {
        // A proxy and this server must not disagree about the host of a request, so every host that it names must be allowed.
        let target = request.uri().authority().map(|authority| authority.as_str());
        let named = request.headers().get_all(HOST).iter().map(|host| host.to_str().unwrap_or_default());
        // Only HTTP/1.0, or HTTP/2 without an authority, has none; no browser sends such a request.
        if target.into_iter().chain(named).all(|authority| self.serves(authority)) {
            return Ok(());
        }
        let detail = "This server does not serve the host that the request names in `Host` (`:authority` over HTTP/2). Use a \
            loopback name or the address that it listens on, or add the host to `server.allowed_hosts`.";
        Err(Error::new(Kind::Misdirected, detail).into())
    }

    fn serves(&self, authority: &str) -> bool {
        let Some(WebAuthority { host, .. }) = WebAuthority::parse(authority) else { return false };
        let is_listened_on = match host {
            // A browser does not resolve an address, so a page cannot rebind it.
            WebHost::Address(address) => self.listen.is_some_and(|listen| listen == address || listen.is_unspecified()),
            WebHost::Name(_) => false,
        };
        host.is_loopback() || is_listened_on || self.hosts.iter().any(|allowed| allowed.matches(&host))
    }

    fn initiator<B>(&self, request: &Request<B>) -> RequestInitiator {
        let headers = request.headers();
        let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
        // `same-site` is another port or another name of the same site, and as foreign as any other page.
        let is_cross_origin = sites.any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"));
        let origins = headers.get_all(ORIGIN).iter().map(|origin| WebOrigin::parse(origin.to_str().ok()?));
        let Some(origins) = origins.collect::<Option<Vec<_>>>() else { return RequestInitiator::Foreign };
        if !origins.is_empty() && origins.iter().all(|origin| self.origins.contains(origin)) {
            return RequestInitiator::Allowed;
        }
        let authority = authority(request.uri(), headers);
        let is_own = |origin: &WebOrigin| authority.is_some_and(|authority| origin.is_at(&authority));
        match !is_cross_origin && origins.iter().all(is_own) {
            true => RequestInitiator::Own,
            false => RequestInitiator::Foreign,
        }
    }

    /// Whether pages of this origin may call.
    fn allows(&self, origin: &HeaderValue) -> bool {
        let origin = origin.to_str().ok().and_then(WebOrigin::parse);
        origin.is_some_and(|origin| self.origins.contains(&origin))
    }

    /// The CORS headers: which pages may call, and which headers they may send and read. `None`: no origin is allowed.
    pub(crate) fn cors(self: &Arc<Self>) -> Option<CorsLayer> {
        if self.origins.is_empty() {
            return None;
        }
        let policy = Arc::clone(self);
        let cors = CorsLayer::new()
            .allow_origin(AllowOrigin::predicate(move |origin, _| policy.allows(origin)))
            .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
            .allow_headers(REQUEST_HEADERS.map(HeaderName::from_static))
            .expose_headers(RESPONSE_HEADERS.map(HeaderName::from_static));
        Some(cors.max_age(PREFLIGHT_AGE))
    }

    /// Lets a page of an allowed origin read a refusal by the middleware.
    pub(crate) fn add_cors_headers(&self, origin: Option<HeaderValue>, response: &mut Response) {
        let Some(origin) = origin.filter(|origin| self.allows(origin)) else { return };
        let headers = response.headers_mut();
        if !headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.append(VARY, HeaderValue::from_static("origin"));
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("retry-after,x-trace-id"));
        }
    }
}

/// The authority of a request.
fn authority<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<WebAuthority<'a>> {
    let host = || headers.get(HOST).and_then(|host| host.to_str().ok());
    uri.authority().map(|authority| authority.as_str()).or_else(host).and_then(WebAuthority::parse)
}

fn is_mutating(method: &Method, uri: &Uri) -> bool {
    if ![Method::GET, Method::HEAD, Method::OPTIONS].contains(method) {
        return true;
    }
    // An invalid query is refused by the handler.
    let params = uri.query().and_then(|query| QueryParams::parse(query).ok()).unwrap_or_default();
    params.pairs().any(|(name, _)| name == CONSUMER_ID)
}

fn has_body<B: Body>(request: &Request<B>) -> bool {
    let is_empty = request.headers().get(header::CONTENT_LENGTH).is_some_and(|length| length == "0");
    !is_empty && !request.body().is_end_stream()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status for a request with these headers; 200: it is accepted.
    fn status(policy: &BrowserPolicy, method: &str, target: &str, headers: &[(&str, &str)], body: &'static str) -> u16 {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(axum::body::Body::from(body)).unwrap();
        policy.check(&request).map_or_else(|problem| problem.status().as_u16(), |()| 200)
    }

    fn policy(listen: &str) -> BrowserPolicy {
        let hosts = ["broker.example".to_owned(), "*.cluster.local".to_owned()];
        BrowserPolicy::new(Some(listen.parse().unwrap()), &hosts, &["https://console.example".to_owned()])
    }

    #[test]
    fn a_server_serves_loopback_names_its_address_and_allowed_hosts() {
        for (listen, host, expected) in [
            ("127.0.0.1", "127.0.0.1:8087", 200),
            ("127.0.0.1", "localhost:1", 200),
            ("127.0.0.1", "LocalHost", 200),
            ("127.0.0.1", "console.localhost:8087", 200),
            ("127.0.0.1", "[::1]:8087", 200),
            ("127.0.0.1", "broker.example:443", 200),
            ("127.0.0.1", "events.default.svc.cluster.local", 200),
            ("127.0.0.1", "cluster.local", 421),
            ("127.0.0.1", "evil.example:8087", 421),
            ("127.0.0.1", "localhost.evil.example", 421),
            ("127.0.0.1", "127.0.0.1.evil.example", 421),
            ("127.0.0.1", "192.0.2.7:8087", 421),
            ("127.0.0.1", "0.0.0.0:8087", 421),
            ("127.0.0.1", "", 421),
            ("192.0.2.7", "192.0.2.7:8087", 200),
            ("192.0.2.7", "localhost:8087", 200),
            ("192.0.2.7", "192.0.2.8:8087", 421),
            ("0.0.0.0", "10.42.0.17:8087", 200),
            ("::", "10.42.0.17:8087", 200),
            ("::", "[fd00::17]:8087", 200),
            ("0.0.0.0", "evil.example:8087", 421),
        ] {
            assert_eq!(status(&policy(listen), "GET", "/healthz", &[("host", host)], ""), expected, "{listen} {host}");
        }
    }

    #[test]
    fn every_host_that_a_request_names_must_be_allowed() {
        let policy = policy("127.0.0.1");
        for (target, host, expected) in [
            ("http://localhost/healthz", "localhost", 200),
            ("http://evil.example/healthz", "localhost", 421),
            ("http://localhost/healthz", "evil.example", 421),
            ("http://u@localhost/healthz", "localhost", 421),
        ] {
            assert_eq!(status(&policy, "GET", target, &[("host", host)], ""), expected, "{target} {host}");
        }
        assert_eq!(status(&policy, "GET", "/healthz", &[], ""), 200, "HTTP/1.0 needs no host");
    }

    #[test]
    fn pages_of_other_origins_change_nothing() {
        let policy = policy("127.0.0.1");
        const OWN: &str = "http://127.0.0.1:8087";
        let all: [(&[(&str, &str)], u16); 17] = [
            (&[], 200),
            (&[("origin", OWN)], 200),
            (&[("origin", OWN), ("sec-fetch-site", "same-origin")], 200),
            (&[("sec-fetch-site", "same-origin")], 200),
            (&[("sec-fetch-site", "none")], 200),
            (&[("origin", "https://127.0.0.1:8087")], 200),
            (&[("origin", "https://console.example")], 200),
            (&[("origin", "https://console.example"), ("sec-fetch-site", "cross-site")], 200),
            (&[("origin", "https://evil.example")], 403),
            (&[("origin", "http://console.example")], 403),
            (&[("origin", "https://console.example:8443")], 403),
            (&[("origin", "http://127.0.0.1:9000")], 403),
            (&[("origin", "http://localhost:8087")], 403),
            (&[("origin", "null")], 403),
            (&[("origin", OWN), ("origin", "https://evil.example")], 403),
            (&[("sec-fetch-site", "cross-site")], 403),
            (&[("sec-fetch-site", "same-site"), ("origin", OWN)], 403),
        ];
        for (headers, expected) in all {
            let headers = [&[("host", "127.0.0.1:8087")], headers].concat();
            for method in ["POST", "PUT", "PATCH", "DELETE", "BREW"] {
                assert_eq!(status(&policy, method, "/v1/topics", &headers, ""), expected, "{method} {headers:?}");
            }
            for method in ["GET", "HEAD", "OPTIONS"] {
                assert_eq!(status(&policy, method, "/v1/topics?topic=consumer_id", &headers, ""), 200, "{headers:?}");
                for query in ["consumer_id=1", "a=b&consumer%5Fid=1", "consumer_id"] {
                    let target = format!("/v1/events:poll?{query}");
                    assert_eq!(status(&policy, method, &target, &headers, ""), expected, "{target} {headers:?}");
                }
            }
        }
    }

    #[test]
    fn a_body_of_a_browser_says_what_it_is() {
        let policy = policy("127.0.0.1");
        const OWN: (&str, &str) = ("origin", "http://localhost");
        for (headers, body, expected) in [
            (&[][..], "{}", 200),
            (&[OWN], "{}", 415),
            (&[("sec-fetch-site", "same-origin")], "{}", 415),
            (&[OWN, ("content-type", "application/json")], "{}", 200),
            (&[OWN], "", 200),
            (&[("origin", "https://console.example")], "{}", 415),
        ] {
            let headers = [&[("host", "localhost")], headers].concat();
            assert_eq!(status(&policy, "POST", "/v1/events", &headers, body), expected, "{headers:?}");
        }
    }
}
