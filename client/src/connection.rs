//! The connection to a broker: requests as bytes, used by [`Client`](crate::Client) and the command line.
//!
//! - The broker is called directly: proxies named in the environment are not used, and redirects are not followed.
//! - Paths are built piece by piece, so that no name in them needs encoding by the caller.
//! - With `https` the broker proves its name with a certificate; a failure says what is wrong with it ([`TlsFault`]).
//! - A failure says whether the broker was reached, whether the connection broke off (the request may have had its effect),
//!   or what the broker refused.
//! - Requests are repeated by one rule ([`RetrySchedule`]); whether a repetition is safe is the caller's knowledge.

pub use crate::import_report::ReportLines;
use crate::path::encode_identifier;
pub use crate::response::suspected_pointers;
pub use crate::retry_schedule::{RequestRetry, RetrySchedule};
pub use crate::tls::{ClientTls, TlsFault};
pub use crate::topic_stream::{StreamPart, TopicStream};
use bytes::Bytes;
use contract::{Error, Kind, ReadOffset, Result};
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, Url};
use std::time::Duration;

/// A connection must be established within this time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest silence: streams send something every 15 s, polls wait 30 s, other requests take 60 s at most.
pub const SILENCE_MAX: Duration = Duration::from_secs(75);

/// How a program connects to a broker.
#[derive(Debug, Clone)]
pub struct ConnectionOptions {
    /// The `User-Agent` of every request.
    pub user_agent: String,
    /// The longest time in which nothing arrives; without it a request may take as long as its body needs.
    pub silence_max: Option<Duration>,
    /// Whom it trusts, and its own certificate.
    pub tls: ClientTls,
}

/// A connection to one broker. Cheap to clone; clones share their sockets.
#[derive(Debug, Clone)]
pub struct BrokerConnection {
    http: reqwest::Client,
    base: Url,
    options: ConnectionOptions,
}

/// Why there is no successful response.
#[derive(Debug)]
pub enum RequestFailure {
    /// The request cannot be written: a name in it has characters that no header or address may have.
    Unwritable(reqwest::Error),
    /// No broker answers at this address; the request was not sent.
    Unreachable(reqwest::Error),
    /// There is no encrypted connection that can be trusted; the request had no effect.
    Untrusted(TlsFault, reqwest::Error),
    /// The connection broke off: the request may have had its effect.
    Broken(reqwest::Error),
    /// The broker, or something before it, answered with an error status.
    Refused(RefusedResponse),
    /// The caller's time ended before the response came.
    TimedOut,
}

/// A response with an error status.
#[derive(Debug, Clone)]
pub struct RefusedResponse {
    /// The status.
    pub status: u16,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u64>,
    /// The body: a problem document, if a broker wrote it.
    pub body: Bytes,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        let user_agent = concat!("event-broker-client/", env!("CARGO_PKG_VERSION")).to_owned();
        Self { user_agent, silence_max: Some(SILENCE_MAX), tls: ClientTls::default() }
    }
}

impl BrokerConnection {
    /// A connection to the broker at `url`. Nothing is sent yet; files of TLS are read.
    pub fn new(url: &str, options: ConnectionOptions) -> Result<Self> {
        let misused = |reason: String| Error::invalid("/url", reason);
        let base = Url::parse(url).map_err(|cause| misused(cause.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || base.cannot_be_a_base() {
            return Err(misused("must begin with http:// or https://".to_owned()));
        }
        // The second call in a process finds a provider installed, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(options.user_agent.clone());
        if let Some(silence_max) = options.silence_max {
            http = http.read_timeout(silence_max);
        }
        http = options.tls.apply(http, base.scheme() == "https")?;
        let failed = |cause| Error::new(Kind::Unavailable, "The HTTP client cannot start.").with_source(cause);
        Ok(Self { http: http.build().map_err(failed)?, base, options })
    }

    /// A connection to the same broker without a limit on silence: a request takes as long as its body needs.
    pub fn without_silence_limit(&self) -> Result<Self> {
        Self::new(self.base.as_str(), ConnectionOptions { silence_max: None, ..self.options.clone() })
    }

    /// A request to the path of these pieces below `/v1`, with these parameters.
    pub fn request(&self, method: Method, path: &[&str], query: &[(String, String)]) -> RequestBuilder {
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
        self.http.request(method, url)
    }

    /// Sends a request once. A response with an error status is a failure.
    pub async fn send(&self, request: RequestBuilder) -> Result<Response, RequestFailure> {
        let response = request.send().await.map_err(RequestFailure::of)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = retry_after(response.headers());
        // A refusal whose body does not arrive is still a refusal.
        let body = response.bytes().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "the body of a refusal did not arrive");
            Bytes::new()
        });
        Err(RequestFailure::Refused(RefusedResponse { status: status.as_u16(), retry_after, body }))
    }

    /// Makes an attempt with a request, and repeats it as the schedule says. A request whose body is a stream cannot be sent
    /// twice: it is attempted once.
    pub async fn attempt<T, F>(
        &self,
        request: RequestBuilder,
        send: impl Fn(RequestBuilder) -> F,
        mut schedule: RetrySchedule,
    ) -> Result<T, RequestFailure>
    where
        F: Future<Output = Result<T, RequestFailure>>,
    {
        loop {
            let Some(again) = request.try_clone() else { return send(request).await };
            let failure = match send(again).await {
                Ok(response) => return Ok(response),
                Err(failure) => failure,
            };
            let Some(wait) = schedule.wait_after(&failure) else { return Err(failure) };
            tracing::debug!(?failure, ?wait, "repeating the request");
            tokio::time::sleep(wait).await;
        }
    }

    /// Follows a topic: opens a stream of its events after this offset. `query` has the topic or the consumer, and filters.
    pub async fn follow(
        &self,
        query: Vec<(String, String)>,
        offset: ReadOffset,
        schedule: RetrySchedule,
    ) -> Result<TopicStream, RequestFailure> {
        TopicStream::open(self.clone(), query, offset, schedule).await
    }

    /// Sends NDJSON of any length to be imported. The report arrives while the body is sent. Use a connection
    /// [without a limit on silence](Self::without_silence_limit), or a body that never pauses.
    pub async fn import(&self, lines: impl Into<reqwest::Body>) -> Result<ReportLines, RequestFailure> {
        let request = self.request(Method::POST, &["events:import"], &[]);
        let request = request.header(CONTENT_TYPE, "application/x-ndjson").body(lines);
        Ok(ReportLines::of(self.send(request).await?))
    }

    /// The broker's address, without a user name or password.
    pub fn address(&self) -> String {
        self.base.origin().ascii_serialization()
    }
}

impl RequestFailure {
    /// What an error of the HTTP client means.
    pub fn of(error: reqwest::Error) -> Self {
        if error.is_builder() {
            Self::Unwritable(error)
        } else if let Some(fault) = TlsFault::of(&error) {
            Self::Untrusted(fault, error)
        } else if error.is_connect() {
            Self::Unreachable(error)
        } else {
            Self::Broken(error)
        }
    }
}

/// `Retry-After` in whole seconds.
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}
