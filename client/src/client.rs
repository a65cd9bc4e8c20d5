//! The client: [`contract::EventBroker`] over HTTP.
//!
//! - Requests are repeated while the broker is overloaded or unavailable. Reads, and writes without a second effect, are
//!   repeated as they are. Other writes carry an `Idempotency-Key`, the same for all tries of a call, so that a repetition has
//!   no second effect either.
//! - An event is published under an id, so that a repetition does not store a second event.

use crate::connection::ConnectionOptions;
use crate::query;
use crate::response;
use crate::retry::RetryPolicy;
use crate::transport::{HttpRequest, HttpResponse, HttpTransport};
use bytes::Bytes;
use contract::{ClaimOutcome, NewClaim, NewEvent, ProducerId, PublishOutcome, PublishedEvent, Result};
use query::QueryParams;
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;
use std::time::Duration;
use uuid::Uuid;

/// A broker over HTTP. Cheap to clone; clones share their connections. Its methods are those of [`contract::api`].
///
/// ```no_run
/// use contract::api::*;
/// use contract::{TopicId, TopicRead};
/// use event_broker_client::Client;
///
/// # async fn example() -> contract::Result<()> {
/// let client = Client::new("http://127.0.0.1:8087")?;
/// let page = client.read(TopicRead::all(TopicId::parse("gts.hx.core.events.topic.v1~")?)).await?;
/// for event in page.items {
///     println!("{} {}", event.sequence, event.event()?.data);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    transport: HttpTransport,
}

/// Projections that must have applied a published event before the response is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitFor<'a> {
    /// Their names.
    pub projections: &'a [&'a str],
    /// How long, in whole seconds.
    pub timeout: Duration,
}

impl Client {
    /// The broker at `url`: `http://127.0.0.1:8087`, or `https://…` with a certificate that the machine trusts.
    pub fn new(url: &str) -> Result<Self> {
        Self::with_options(url, ConnectionOptions::default())
    }

    /// The same with its own options: an authority to trust, a client certificate.
    ///
    /// ```no_run
    /// use event_broker_client::Client;
    /// use event_broker_client::connection::{ClientTls, ConnectionOptions};
    ///
    /// # fn example() -> contract::Result<()> {
    /// let tls = ClientTls { ca_file: Some("company-ca.pem".into()), ..ClientTls::default() };
    /// let options = ConnectionOptions { tls, ..ConnectionOptions::default() };
    /// let client = Client::with_options("https://events.example.com:8087", options)?;
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_options(url: &str, options: ConnectionOptions) -> Result<Self> {
        Ok(Self { transport: HttpTransport::new(url, options)? })
    }

    /// The same client with another retry policy.
    #[must_use]
    pub const fn retrying(mut self, retry: RetryPolicy) -> Self {
        self.transport.retry = retry;
        self
    }

    /// The same client with another limit on the duration of a call, including all tries and the waits between them. The time
    /// that a call asks the broker to wait is added.
    #[must_use]
    pub const fn within(mut self, total: Duration) -> Self {
        self.transport.total = total;
        self
    }

    /// Publishes one event, and waits until these projections have applied it. With
    /// [`Kind::ProjectionTimeout`](contract::Kind) the event is stored, too.
    pub async fn publish_for(
        &self,
        event: NewEvent,
        producer: Option<&ProducerId>,
        wait_for: &WaitFor<'_>,
    ) -> Result<PublishedEvent> {
        let names = ("waitFor".to_owned(), wait_for.projections.join(","));
        let query = vec![names, query::seconds(wait_for.timeout)];
        self.publish_with(event, producer, &query, wait_for.timeout).await
    }

    pub(crate) async fn publish_with(
        &self,
        mut event: NewEvent,
        producer: Option<&ProducerId>,
        query: &QueryParams,
        waits: Duration,
    ) -> Result<PublishedEvent> {
        let given_id = give_id(&mut event);
        let request = self.request(Method::POST, &["events"], query).json(&event).by(producer).waiting(waits);
        let response = self.transport.send(request).await?;
        let (payload_mismatch, deprecated) =
            (response.header_is_true("payload-mismatch"), response.header_is_true("deprecation"));
        let outcome = match response.status {
            StatusCode::CREATED => PublishOutcome::Created,
            _ => PublishOutcome::Duplicate { payload_mismatch },
        };
        let secret_suspected = response::suspected_pointers(&response.headers);
        let event = response::stored_event(response.body)?;
        let published = PublishedEvent { event, outcome, deprecated, secret_suspected };
        Ok(as_created(published, given_id))
    }

    /// Claims an event without repeating the request. If the response is lost, the claim may exist: the caller must look for
    /// it.
    pub(crate) async fn claim_once(&self, claim: &NewClaim) -> Result<ClaimOutcome> {
        response::parse(
            &self
                .transport
                .send(self.request(Method::POST, &["claims"], &QueryParams::new()).json(claim).once())
                .await?
                .body,
        )
    }

    pub(crate) const fn transport(&self) -> &HttpTransport {
        &self.transport
    }

    pub(crate) fn request(&self, method: Method, path: &[&str], query: &QueryParams) -> HttpRequest {
        self.transport.request(method, path, query)
    }

    pub(crate) async fn send(&self, request: HttpRequest) -> Result<HttpResponse> {
        self.transport.send(request).await
    }

    /// Reads a path as bytes.
    pub(crate) async fn bytes(&self, path: &[&str], query: &QueryParams, waits: Duration) -> Result<Bytes> {
        Ok(self.send(self.request(Method::GET, path, query).waiting(waits)).await?.body)
    }

    /// Reads a path.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &QueryParams) -> Result<T> {
        response::parse(&self.bytes(path, query, Duration::ZERO).await?)
    }

    /// Sends a request, and reads the response.
    pub(crate) async fn send_json<T: DeserializeOwned>(&self, request: HttpRequest) -> Result<T> {
        response::parse(&self.send(request).await?.body)
    }
}

/// Gives an event without an id a new one, and returns it.
pub(crate) fn give_id(event: &mut NewEvent) -> Option<Uuid> {
    let given_id = event.id.is_none().then(Uuid::new_v4);
    event.id = event.id.or(given_id);
    given_id
}

/// Only this call knows an id that was given_id for it: a duplicate of the event was stored by an earlier try of the call.
pub(crate) fn as_created(mut published: PublishedEvent, given_id: Option<Uuid>) -> PublishedEvent {
    if given_id == Some(published.event.id) {
        published.outcome = PublishOutcome::Created;
    }
    published
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_stored_by_an_earlier_try_of_the_same_call_is_new() {
        let text = br#"{"id":"550e8400-e29b-41d4-a716-446655440000","sequence":1,"position":3,
            "createdAt":"2025-12-03T12:05:00.000Z"}"#;
        let event = response::stored_event(Bytes::from_static(text)).unwrap();
        let duplicate = PublishOutcome::Duplicate { payload_mismatch: false };
        let published = PublishedEvent { event, outcome: duplicate, deprecated: false, secret_suspected: Vec::new() };
        for (given_id, outcome) in
            [(None, duplicate), (Some(Uuid::nil()), duplicate), (Some(published.event.id), PublishOutcome::Created)]
        {
            assert_eq!(as_created(published.clone(), given_id).outcome, outcome, "{given_id:?}");
        }
    }
}
