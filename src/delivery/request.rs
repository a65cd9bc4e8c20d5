//! What is sent: the event in the format asked for, and the headers around it.
//!
//! - The envelope and `data` are the stored bytes, a slice of them and never printed anew. CloudEvents are made from them.
//! - Our headers come after the subscription's own, and stand whatever those say.
//! - A text that a header cannot carry is percent-encoded, as the CloudEvents binding for HTTP says.

use super::credentials::{Auth, Identity};
use super::failure::{ErrorClass, Failure};
use super::headers::OwnHeaders;
use super::secret::{Secret, signature};
use super::target::Target;
use bytes::Bytes;
use contract::{CloudEvent, Event, Sequence, Timestamp};
use http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::Full;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Duration;
use uuid::Uuid;

/// One attempt to deliver, with everything it needs.
#[derive(Debug)]
pub(crate) struct Delivery<'a> {
    pub(crate) target: &'a Target,
    pub(crate) payload: Payload,
    /// Every one signs; none: the delivery is not signed.
    pub(crate) signing: &'a [Secret],
    pub(crate) auth: &'a Auth,
    /// Shown to an encrypted target.
    pub(crate) identity: Option<&'a Identity>,
    pub(crate) headers: &'a OwnHeaders,
    /// For everything, from resolving the name to the last byte of the answer.
    pub(crate) timeout: Duration,
    /// `webhook-id`: the event's id (a task's job id), the same at every attempt.
    pub(crate) id: &'a str,
    /// `webhook-timestamp`: now.
    pub(crate) at: Timestamp,
    /// From 1.
    pub(crate) attempt: u32,
    /// The subscription's code; a task has none.
    pub(crate) subscription: Option<&'a str>,
    pub(crate) topic: Option<&'a str>,
    pub(crate) sequence: Option<Sequence>,
    /// The replay that had an event delivered once more.
    pub(crate) replay: Option<Uuid>,
    /// Grows with every attempt of the job: a receiver that has seen a higher one can refuse.
    pub(crate) token: Option<u64>,
    /// The event's W3C trace context.
    pub(crate) trace_parent: Option<&'a str>,
}

/// What to deliver.
#[derive(Debug, Clone)]
pub(crate) enum Payload {
    /// A stored event.
    Event {
        /// Its text as the log keeps it.
        text: Bytes,
        shape: Shape,
    },
    /// The payload of a task: JSON as it was given.
    Task(Bytes),
}

/// What an event is sent as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Our envelope.
    Envelope,
    /// `data` alone.
    DataOnly,
    /// A CloudEvent as JSON.
    CloudEventsStructured,
    /// A CloudEvent with its attributes in headers.
    CloudEventsBinary,
}

/// A body with what is said about it.
struct Rendered {
    body: Bytes,
    media: HeaderValue,
    headers: HeaderMap,
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const CLOUD_EVENT: HeaderValue = HeaderValue::from_static("application/cloudevents+json; charset=utf-8");

/// What the CloudEvents binding for HTTP has escaped, besides everything beyond ASCII.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// The request of a delivery.
pub(super) fn request(
    delivery: &Delivery<'_>,
    authorization: Option<&HeaderValue>,
    user_agent: &HeaderValue,
) -> Result<Request<Full<Bytes>>, Failure> {
    let Rendered { body, media, headers } = render(&delivery.payload)?;
    let mut request = Request::post(delivery.target.uri().clone())
        .body(Full::new(body.clone()))
        .map_err(|_| payload_failure("The request cannot be written."))?;
    let sent = request.headers_mut();
    sent.extend(delivery.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
    sent.extend(headers);
    sent.insert(CONTENT_TYPE, media);
    sent.insert(USER_AGENT, user_agent.clone());
    if let Some(authorization) = authorization {
        sent.insert(AUTHORIZATION, authorization.clone());
    }
    let seconds = delivery.at.millis().div_euclid(1000);
    let ours = [
        ("webhook-id", Some(delivery.id.to_owned())),
        ("webhook-timestamp", Some(seconds.to_string())),
        ("webhook-signature", signature(delivery.signing, delivery.id, seconds, &body)),
        ("event-broker-attempt", Some(delivery.attempt.to_string())),
        ("event-broker-subscription", delivery.subscription.map(escape)),
        ("event-broker-topic", delivery.topic.map(escape)),
        ("event-broker-sequence", delivery.sequence.map(|sequence| sequence.to_string())),
        ("event-broker-replay", delivery.replay.map(|replay| replay.to_string())),
        ("event-broker-token", delivery.token.map(|token| token.to_string())),
        ("traceparent", delivery.trace_parent.map(escape)),
    ];
    for (name, text) in ours {
        let Some(text) = text else { continue };
        let value = HeaderValue::from_str(&text).map_err(|_| payload_failure("An id cannot be sent in a header."))?;
        sent.insert(HeaderName::from_static(name), value);
    }
    Ok(request)
}

fn render(payload: &Payload) -> Result<Rendered, Failure> {
    let plain = |body: Bytes, media| Rendered { body, media, headers: HeaderMap::new() };
    let (text, shape) = match payload {
        Payload::Task(json) => return Ok(plain(json.clone(), JSON)),
        Payload::Event { text, shape } => (text, shape),
    };
    Ok(match shape {
        Shape::Envelope => plain(text.clone(), JSON),
        Shape::DataOnly => plain(data_of(text)?, JSON),
        Shape::CloudEventsStructured => {
            let event = serde_json::to_vec(&cloud_event(text)?).map_err(|_| payload_failure(UNREADABLE))?;
            plain(event.into(), CLOUD_EVENT)
        }
        Shape::CloudEventsBinary => {
            let event = cloud_event(text)?;
            let media = HeaderValue::from_str(event.data_content_type()).map_err(|_| payload_failure(UNREADABLE))?;
            Rendered { body: data_of(text)?, media, headers: attributes(&event)? }
        }
    })
}

const UNREADABLE: &str = "The stored event cannot be put into the subscription's format.";

/// `data` as it stands in the stored text.
fn data_of(text: &Bytes) -> Result<Bytes, Failure> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        data: &'a RawValue,
    }
    let envelope: Envelope<'_> = serde_json::from_slice(text).map_err(|_| payload_failure(UNREADABLE))?;
    Ok(text.slice_ref(envelope.data.get().as_bytes()))
}

fn cloud_event(text: &[u8]) -> Result<CloudEvent, Failure> {
    serde_json::from_slice::<Event>(text).map(CloudEvent::from).map_err(|_| payload_failure(UNREADABLE))
}

/// Attributes as headers. `datacontenttype` is the content type.
fn attributes(event: &CloudEvent) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    for (name, text) in event.attributes() {
        if name == "datacontenttype" {
            continue;
        }
        let name = HeaderName::from_bytes(format!("ce-{name}").as_bytes()).ok();
        let value = HeaderValue::from_str(&escape(&text)).ok();
        let (Some(name), Some(value)) = (name, value) else { return Err(payload_failure(UNREADABLE)) };
        headers.insert(name, value);
    }
    Ok(headers)
}

fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

fn payload_failure(message: &str) -> Failure {
    Failure::new(ErrorClass::Payload, message).for_good()
}
