//! A broker to ask: [`contract::EventBroker`] over HTTP.
//!
//! - Reads, and writes that come to the same when they are repeated, are repeated while the broker is full or away.
//!   Other writes carry an `Idempotency-Key` of their call, which stays over its tries, so that they too are repeated
//!   and have their effect once.
//! - An event is published under an id, so that publishing it again is no second event.

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

/// A broker, asked over HTTP. Cheap to clone; clones share their connections. What it can be asked is
/// [`contract::EventBroker`].
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

/// Projections that a published event must have reached before the answer comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitFor<'a> {
    /// Their names.
    pub projections: &'a [&'a str],
    /// How long, in whole seconds.
    pub timeout: Duration,
}

impl Client {
    /// The broker at `url`: `http://127.0.0.1:8087`.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self { transport: HttpTransport::new(url)? })
    }

    /// The same, tried so often and after such waits.
    #[must_use]
    pub const fn retrying(mut self, retry: RetryPolicy) -> Self {
        self.transport.retry = retry;
        self
    }

    /// The same, where one call takes this long at most, its tries and the waits between them included; beside what it
    /// asks the broker to wait.
    #[must_use]
    pub const fn within(mut self, total: Duration) -> Self {
        self.transport.total = total;
        self
    }

    /// Publishes one event, answered once these projections have applied it.
    /// [`Kind::ProjectionTimeout`](contract::Kind) means that it is stored all the same.
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
        let made = give_id(&mut event);
        let ask = self.request(Method::POST, &["events"], query).json(&event).by(producer).waiting(waits);
        let answer = self.transport.send(ask).await?;
        let (payload_mismatch, deprecated) =
            (answer.header_is_true("payload-mismatch"), answer.header_is_true("deprecation"));
        let outcome = match answer.status {
            StatusCode::CREATED => PublishOutcome::Created,
            _ => PublishOutcome::Duplicate { payload_mismatch },
        };
        let published = PublishedEvent { event: response::stored_event(answer.body)?, outcome, deprecated };
        Ok(as_created(published, made))
    }

    /// Claims an event. Where the answer is lost the claim may be there: whoever asks must find out.
    pub(crate) async fn claim_once(&self, claim: &NewClaim) -> Result<ClaimOutcome> {
        response::parse(
            &self
                .transport
                .send(self.request(Method::POST, &["claims"], &QueryParams::new()).json(claim).once())
                .await?
                .body,
        )
    }

    pub(crate) fn request(&self, method: Method, path: &[&str], query: &QueryParams) -> HttpRequest {
        self.transport.request(method, path, query)
    }

    pub(crate) async fn send(&self, ask: HttpRequest) -> Result<HttpResponse> {
        self.transport.send(ask).await
    }

    /// What is at this path, as bytes.
    pub(crate) async fn bytes(&self, path: &[&str], query: &QueryParams, waits: Duration) -> Result<Bytes> {
        Ok(self.send(self.request(Method::GET, path, query).waiting(waits)).await?.body)
    }

    /// What is at this path.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &QueryParams) -> Result<T> {
        response::parse(&self.bytes(path, query, Duration::ZERO).await?)
    }

    /// What came of it.
    pub(crate) async fn send_json<T: DeserializeOwned>(&self, ask: HttpRequest) -> Result<T> {
        response::parse(&self.send(ask).await?.body)
    }
}

/// The id that an event is given because it has none.
pub(crate) fn give_id(event: &mut NewEvent) -> Option<Uuid> {
    let made = event.id.is_none().then(Uuid::new_v4);
    event.id = event.id.or(made);
    made
}

/// Nobody else knows an id that was made for this call: the event it repeats was stored by one of its own tries.
pub(crate) fn as_created(mut published: PublishedEvent, made: Option<Uuid>) -> PublishedEvent {
    if made == Some(published.event.id) {
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
        let published = PublishedEvent { event, outcome: duplicate, deprecated: false };
        for (made, outcome) in
            [(None, duplicate), (Some(Uuid::nil()), duplicate), (Some(published.event.id), PublishOutcome::Created)]
        {
            assert_eq!(as_created(published.clone(), made).outcome, outcome, "{made:?}");
        }
    }
}
