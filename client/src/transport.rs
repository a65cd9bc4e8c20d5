//! A typed call: sent, repeated if that is safe, and returned as a response or a [`contract::Error`].
//!
//! - [`RetrySchedule`] decides whether a request is repeated.
//! - One call takes no longer than its total, including the waits.

use crate::connection::{BrokerConnection, ConnectionOptions, RequestFailure};
use crate::problem;
use crate::query::QueryParams;
use crate::retry::RetryPolicy;
use crate::retry_schedule::{RequestRetry, RetrySchedule, TOTAL_DEFAULT};
use bytes::Bytes;
use contract::{Error, Kind, ProducerId, Result};
use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde::Serialize;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

/// A connection with the limits of a call. Cheap to clone; clones share their sockets.
#[derive(Debug, Clone)]
pub(crate) struct HttpTransport {
    pub(crate) connection: BrokerConnection,
    pub(crate) retry: RetryPolicy,
    pub(crate) total: Duration,
}

/// A request to be sent.
pub(crate) struct HttpRequest {
    request: RequestBuilder,
    repeat: RequestRetry,
    /// How long the broker may wait before it responds.
    waits: Duration,
}

/// A complete successful response.
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

    /// The same on behalf of a producer.
    pub(crate) fn by(mut self, producer: Option<&ProducerId>) -> Self {
        if let Some(ProducerId(producer)) = producer {
            self.request = self.request.header("producer-id", producer);
        }
        self
    }

    /// The same under an idempotency key: however often it is sent, it has its effect once.
    pub(crate) fn keyed(mut self) -> Self {
        self.request = self.request.header("idempotency-key", Uuid::new_v4().to_string());
        self
    }

    /// The same, not repeated if it may have had its effect.
    pub(crate) const fn once(mut self) -> Self {
        self.repeat = RequestRetry::Never;
        self
    }

    /// The same with a time that the broker may wait.
    pub(crate) const fn waiting(mut self, waits: Duration) -> Self {
        self.waits = waits;
        self
    }
}

impl HttpTransport {
    pub(crate) fn new(url: &str, options: ConnectionOptions) -> Result<Self> {
        let connection = BrokerConnection::new(url, options)?;
        Ok(Self { connection, retry: RetryPolicy::default(), total: TOTAL_DEFAULT })
    }

    /// A request that may be repeated.
    pub(crate) fn request(&self, method: Method, path: &[&str], query: &QueryParams) -> HttpRequest {
        let request = self.connection.request(method, path, query);
        HttpRequest { request, repeat: RequestRetry::Freely, waits: Duration::ZERO }
    }

    /// Sends a request until it succeeds, is refused for good, or has been tried often or long enough.
    pub(crate) async fn send(&self, HttpRequest { request, repeat, waits }: HttpRequest) -> Result<HttpResponse> {
        let until = Instant::now() + self.total + waits;
        let send = |request| async move {
            let sent = timeout_at(until, self.receive(request)).await;
            sent.unwrap_or(Err(RequestFailure::TimedOut))
        };
        let schedule = RetrySchedule::new(self.retry, repeat, until);
        self.connection.attempt(request, send, schedule).await.map_err(error_of)
    }

    /// The schedule of a call that has no second effect.
    pub(crate) fn schedule(&self) -> RetrySchedule {
        RetrySchedule::new(self.retry, RequestRetry::Freely, Instant::now() + self.total)
    }

    /// Sends a request once, and receives the whole response.
    async fn receive(&self, request: RequestBuilder) -> Result<HttpResponse, RequestFailure> {
        let response = self.connection.send(request).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.map_err(RequestFailure::of)?;
        Ok(HttpResponse { status, headers, body })
    }
}

pub(crate) fn error_of(failure: RequestFailure) -> Error {
    match failure {
        RequestFailure::Unwritable(cause) => {
            let detail =
                "The request cannot be written: a name in it has characters that no header or address may have.";
            Error::new(Kind::Validation, detail).with_source(cause)
        }
        RequestFailure::Unreachable(cause) => {
            Error::new(Kind::Unavailable, "No broker answers at this address.").with_source(cause)
        }
        RequestFailure::Untrusted(fault, cause) => {
            let detail = format!("There is no trusted connection to the broker: {fault}.");
            Error::new(Kind::Unavailable, detail).with_source(cause)
        }
        RequestFailure::Broken(cause) => {
            Error::new(Kind::Unavailable, "The connection to the broker broke off.").with_source(cause)
        }
        RequestFailure::TimedOut => Error::new(Kind::Unavailable, "The broker did not answer in time."),
        RequestFailure::Refused(refused) => {
            let retry_after = refused.retry_after.and_then(|seconds| u32::try_from(seconds).ok());
            problem::read(refused.status, &refused.body, retry_after)
        }
    }
}
