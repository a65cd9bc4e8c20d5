//! A request on its way: sent, sent again where that is safe, answered or refused.
//!
//! - A broker is asked directly: proxies named in the environment are not used, and redirects are not followed.
//! - What is full (429) had no effect, and is asked again. What is away (503, or no connection) leaves it open whether
//!   the request had its effect: it is asked again only where a second time comes to the same ([`Repeat`]).
//! - `Retry-After` is kept. One call takes no longer than its total, its waits included.

use crate::problem;
use crate::query::QueryParams;
use crate::retry::{RetryPolicy, jitter};
use bytes::Bytes;
use contract::{Error, Kind, ProducerId, Result, encode_identifier};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, StatusCode, Url};
use serde::Serialize;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

/// A connection must come about within this time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest silence: polls wait half a minute, requests take a minute at most.
const SILENCE_MAX: Duration = Duration::from_secs(75);
/// The longest a call may take beside what it is asked to wait, unless the caller says otherwise.
const TOTAL_DEFAULT: Duration = Duration::from_secs(90);

/// Whether a request may be sent again when it is not known what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RepeatSafety {
    /// A second time comes to the same.
    Freely,
    /// It could have its effect twice.
    Never,
}

/// The way to a broker. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub(crate) struct HttpTransport {
    http: reqwest::Client,
    base: Url,
    pub(crate) retry: RetryPolicy,
    pub(crate) total: Duration,
}

/// A request that is to be sent.
pub(crate) struct HttpRequest {
    request: RequestBuilder,
    repeat: RepeatSafety,
    /// How long the broker is asked to wait before it answers.
    waits: Duration,
}

/// A whole answer that is no refusal.
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl HttpResponse {
    /// Whether a header says `true`.
    pub(crate) fn header_is_true(&self, name: &str) -> bool {
        self.headers.get(name).is_some_and(|value| value == "true")
    }
}

impl HttpRequest {
    /// The same with a body.
    pub(crate) fn json<T: Serialize + ?Sized>(mut self, body: &T) -> Self {
        self.request = self.request.json(body);
        self
    }

    /// The same, by this producer.
    pub(crate) fn by(mut self, producer: Option<&ProducerId>) -> Self {
        if let Some(ProducerId(producer)) = producer {
            self.request = self.request.header("producer-id", producer);
        }
        self
    }

    /// The same under a key of its own: however often it is sent, it has its effect once.
    pub(crate) fn keyed(mut self) -> Self {
        self.request = self.request.header("idempotency-key", Uuid::new_v4().to_string());
        self
    }

    /// The same, not sent again where it may have had its effect.
    pub(crate) const fn once(mut self) -> Self {
        self.repeat = RepeatSafety::Never;
        self
    }

    /// The same, where the broker is asked to wait.
    pub(crate) const fn waiting(mut self, waits: Duration) -> Self {
        self.waits = waits;
        self
    }
}

impl HttpTransport {
    pub(crate) fn new(url: &str) -> Result<Self> {
        let base = Url::parse(url).ok().filter(|base| matches!(base.scheme(), "http" | "https"));
        let base =
            base.ok_or_else(|| Error::invalid("/url", "must be an address that begins with http:// or https://"))?;
        // Who comes second finds it done.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(SILENCE_MAX)
            .user_agent(concat!("event-broker-client/", env!("CARGO_PKG_VERSION")))
            .build();
        let http = http.map_err(|cause| Error::new(Kind::Unavailable, "No client can be made.").with_source(cause))?;
        Ok(Self { http, base, retry: RetryPolicy::default(), total: TOTAL_DEFAULT })
    }

    /// A request that may be sent again.
    pub(crate) fn request(&self, method: Method, path: &[&str], query: &QueryParams) -> HttpRequest {
        let mut url = self.base.clone();
        if let Ok(mut pieces) = url.path_segments_mut() {
            // `pop_if_empty` for addresses that end in a slash.
            pieces.pop_if_empty().extend(["v1"]).extend(path);
        }
        if let Some(encoded) = encode_identifier(url.path(), path, method == Method::POST) {
            url.set_path(&encoded);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        HttpRequest { request: self.http.request(method, url), repeat: RepeatSafety::Freely, waits: Duration::ZERO }
    }

    /// Sends a request until it is answered, refused for good, or tried often and long enough.
    pub(crate) async fn send(&self, HttpRequest { request, repeat, waits }: HttpRequest) -> Result<HttpResponse> {
        let until = Instant::now() + self.total + waits;
        let mut tries = 0;
        loop {
            tries += 1;
            let Some(again) = request.try_clone() else { return self.send_once(request).await };
            let error = match timeout_at(until, self.send_once(again)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_) => return Err(Error::new(Kind::Unavailable, "The broker did not answer in time.")),
            };
            let asked = error.retry_after_seconds().map(|seconds| Duration::from_secs(seconds.into()));
            let wait = self.retry.wait_after(tries, asked, jitter()).filter(|_| may_repeat(error.kind(), repeat));
            let Some(wait) = wait.filter(|wait| Instant::now() + *wait < until) else { return Err(error) };
            tracing::debug!(%error, tries, ?wait, "asking the broker again");
            tokio::time::sleep(wait).await;
        }
    }

    async fn send_once(&self, request: RequestBuilder) -> Result<HttpResponse> {
        let response = request.send().await.map_err(unanswered)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.map_err(unanswered)?;
        if status.is_success() {
            return Ok(HttpResponse { status, headers, body });
        }
        let retry_after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        Err(problem::read(status.as_u16(), &body, retry_after))
    }
}

const fn may_repeat(kind: Kind, repeat: RepeatSafety) -> bool {
    match kind {
        // With a key in flight, it is the first try of the same call that is.
        Kind::Overloaded | Kind::IdempotencyKeyInFlight => true,
        Kind::Unavailable => matches!(repeat, RepeatSafety::Freely),
        _ => false,
    }
}

fn unanswered(cause: reqwest::Error) -> Error {
    if cause.is_builder() {
        let detail = "The request cannot be written: a name in it has characters that no header or address may have.";
        return Error::new(Kind::Validation, detail).with_source(cause);
    }
    let detail = match cause.is_connect() {
        true => "No broker answers at this address.",
        false => "The connection to the broker broke off.",
    };
    Error::new(Kind::Unavailable, detail).with_source(cause)
}
