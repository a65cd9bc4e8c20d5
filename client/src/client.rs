//! A broker to ask: typed calls, named as in [`contract::EventBroker`].
//!
//! - It is asked directly: proxies named in the environment are not used, and redirects are not followed.
//! - Reads, and writes that come to the same when they are repeated, are repeated where the broker is full (429) or away
//!   (503, or no connection). What could have its effect twice is sent again only where it surely had none (429).
//! - An event is published under an id, so that publishing it again is no second event.

use crate::answer;
use crate::problem;
use crate::query;
use crate::retry::{Retry, jitter};
use bytes::Bytes;
use contract::{
    Error, EventPage, Kind, LogPage, LogRead, NewCheckpoint, NewEvent, NewProjection, Offset, Outcome, ProducerId,
    Projection, Published, Read, Registered, Result,
};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, StatusCode, Url};
use std::time::Duration;
use uuid::Uuid;

/// A connection must come about within this time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest silence: polls wait half a minute, requests take a minute at most.
const SILENCE_MAX: Duration = Duration::from_secs(75);

/// A broker, asked over HTTP. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    retry: Retry,
}

/// Projections that a published event must have reached before the answer comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitFor<'a> {
    /// Their names.
    pub projections: &'a [&'a str],
    /// How long, in whole seconds.
    pub timeout: Duration,
}

/// Whether a request may be sent again when it is not known what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Freely,
    Never,
}

/// A whole answer that is no refusal.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Client {
    /// The broker at `url`: `http://127.0.0.1:8087`.
    pub fn new(url: &str) -> Result<Self> {
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
        Ok(Self { http, base, retry: Retry::default() })
    }

    /// The same, tried so often and after such waits.
    #[must_use]
    pub const fn retrying(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Publishes one event. Without an id it is given one, under which it can be tried again.
    pub async fn publish(&self, event: NewEvent, producer: Option<&ProducerId>) -> Result<Published> {
        self.publish_with(event, producer, &[]).await
    }

    /// The same, answered once these projections have applied the event. [`Kind::ProjectionTimeout`] means that it is
    /// stored all the same.
    pub async fn publish_for(
        &self,
        event: NewEvent,
        producer: Option<&ProducerId>,
        wait_for: &WaitFor<'_>,
    ) -> Result<Published> {
        let names = ("waitFor".to_owned(), wait_for.projections.join(","));
        self.publish_with(event, producer, &[names, query::seconds(wait_for.timeout)]).await
    }

    async fn publish_with(
        &self,
        mut event: NewEvent,
        producer: Option<&ProducerId>,
        query: &[(String, String)],
    ) -> Result<Published> {
        event.id.get_or_insert_with(Uuid::new_v4);
        let mut request = self.request(Method::POST, &["events"], query).json(&event);
        if let Some(ProducerId(producer)) = producer {
            request = request.header("producer-id", producer);
        }
        let Answer { status, headers, body } = self.send(request, Repeat::Freely).await?;
        let is_told = |name: &str| headers.get(name).is_some_and(|value| value == "true");
        let outcome = match status {
            StatusCode::CREATED => Outcome::Created,
            _ => Outcome::Duplicate { payload_mismatch: is_told("payload-mismatch") },
        };
        Ok(Published { event: answer::stored_event(body)?, outcome, deprecated: is_told("deprecation") })
    }

    /// What is there now.
    pub async fn read(&self, read: &Read) -> Result<EventPage> {
        answer::event_page(&self.get(&["events"], &query::of_read(read, None)).await?)
    }

    /// What is there now, or as soon as there is something, or nothing when the time (in whole seconds) is up.
    pub async fn wait(&self, read: &Read, timeout: Duration) -> Result<EventPage> {
        answer::event_page(&self.get(&["events:poll"], &query::of_read(read, Some(timeout))).await?)
    }

    /// All topics of the default log, in global order.
    pub async fn read_log(&self, read: &LogRead) -> Result<LogPage> {
        self.wait_log(read, Duration::ZERO).await
    }

    /// The same, or as soon as there is something, or nothing when the time (in whole seconds) is up.
    pub async fn wait_log(&self, read: &LogRead, timeout: Duration) -> Result<LogPage> {
        answer::log_page(&self.get(&["log"], &query::of_log_read(read, timeout)).await?)
    }

    /// Registers a projection, or gives it another filter.
    pub async fn put_projection(&self, name: &str, projection: &NewProjection) -> Result<Registered<Projection>> {
        let request = self.request(Method::PUT, &["projections", name], &[]).json(projection);
        let Answer { status, body, .. } = self.send(request, Repeat::Freely).await?;
        let projection = answer::parse(&body)?;
        Ok(if status == StatusCode::CREATED {
            Registered::Created(projection)
        } else {
            Registered::Unchanged(projection)
        })
    }

    /// One projection.
    pub async fn projection(&self, name: &str) -> Result<Projection> {
        answer::parse(&self.get(&["projections", name], &[]).await?)
    }

    /// Records how far a projection's view has come.
    pub async fn move_checkpoint(&self, name: &str, to: NewCheckpoint) -> Result<Projection> {
        let path = ["projections", &format!("{name}:checkpoint")];
        let request = self.request(Method::POST, &path, &[]).json(&to);
        answer::parse(&self.send(request, Repeat::Freely).await?.body)
    }

    /// Begins a projection's next generation behind `offset`.
    pub async fn reset_projection(&self, name: &str, offset: Offset) -> Result<Projection> {
        let path = ["projections", &format!("{name}:reset")];
        let request = self.request(Method::POST, &path, &[]).json(&serde_json::json!({"offset": offset}));
        // A second one would begin yet another generation.
        answer::parse(&self.send(request, Repeat::Never).await?.body)
    }

    /// The projection once its checkpoint has reached `offset`.
    pub async fn wait_for_projection(&self, name: &str, offset: Offset, timeout: Duration) -> Result<Projection> {
        let query = [("offset".to_owned(), offset.to_string()), query::seconds(timeout)];
        answer::parse(&self.get(&["projections", &format!("{name}:wait")], &query).await?)
    }

    async fn get(&self, path: &[&str], query: &[(String, String)]) -> Result<Bytes> {
        Ok(self.send(self.request(Method::GET, path, query), Repeat::Freely).await?.body)
    }

    fn request(&self, method: Method, path: &[&str], query: &[(String, String)]) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut pieces) = url.path_segments_mut() {
            // `pop_if_empty` for addresses that end in a slash.
            pieces.pop_if_empty().extend(["v1"]).extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.http.request(method, url)
    }

    /// Sends a request until it is answered, refused for good, or tried often enough.
    async fn send(&self, request: RequestBuilder, repeat: Repeat) -> Result<Answer> {
        let mut tries = 0;
        loop {
            tries += 1;
            let Some(again) = request.try_clone() else { return self.send_once(request).await };
            let error = match self.send_once(again).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let is_passing = match error.kind() {
                Kind::Overloaded => true,
                Kind::Unavailable => repeat == Repeat::Freely,
                _ => false,
            };
            let asked = error.retry_after_seconds().map(|seconds| Duration::from_secs(seconds.into()));
            let wait = self.retry.wait_after(tries, asked, jitter()).filter(|_| is_passing);
            let Some(wait) = wait else { return Err(error) };
            tracing::debug!(%error, tries, ?wait, "asking the broker again");
            tokio::time::sleep(wait).await;
        }
    }

    async fn send_once(&self, request: RequestBuilder) -> Result<Answer> {
        let response = request.send().await.map_err(unanswered)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.map_err(unanswered)?;
        if status.is_success() {
            return Ok(Answer { status, headers, body });
        }
        let retry_after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        Err(problem::read(status.as_u16(), &body, retry_after))
    }
}

fn unanswered(cause: reqwest::Error) -> Error {
    let detail = match cause.is_connect() {
        true => "No broker answers at this address.",
        false => "The connection to the broker broke off.",
    };
    Error::new(Kind::Unavailable, detail).with_source(cause)
}
