//! The request of a delivery: the event in its format, and the headers.
//!
//! - The envelope and `data` are the stored bytes or a slice of them, never serialised again. CloudEvents are made from
//!   them.
//! - The broker's headers are set after the custom ones and replace them.
//! - Text that a header cannot carry is percent-encoded, by the CloudEvents binding for HTTP.

use super::credentials::{AuthMethod, ClientIdentity};
use super::failure::{DeliveryFailure, ErrorClass};
use super::headers::CustomHeaders;
use super::signature::{WebhookSecret, signature};
use super::target::DeliveryTarget;
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

/// Everything an attempt needs.
#[derive(Debug)]
pub(crate) struct DeliveryRequest<'a> {
    pub(crate) target: &'a DeliveryTarget,
    pub(crate) payload: DeliveryPayload,
    /// Secrets that sign; empty: the delivery is not signed.
    pub(crate) signing: &'a [WebhookSecret],
    pub(crate) auth: &'a AuthMethod,
    /// The client certificate for an encrypted target.
    pub(crate) identity: Option<&'a ClientIdentity>,
    pub(crate) headers: &'a CustomHeaders,
    /// The time-out from resolving the name to the last byte of the response.
    pub(crate) timeout: Duration,
    /// `webhook-id`: the event's id (a task's job id), the same at every attempt.
    pub(crate) id: &'a str,
    /// `webhook-timestamp`: now.
    pub(crate) at: Timestamp,
    /// The number of the attempt, from 1.
    pub(crate) attempt: u32,
    /// The code of the subscription; `None` for a task.
    pub(crate) subscription: Option<&'a str>,
    pub(crate) topic: Option<&'a str>,
    pub(crate) sequence: Option<Sequence>,
    /// The replay that this delivery belongs to.
    pub(crate) replay: Option<Uuid>,
    /// The fencing token: it grows with every attempt of the job, so a receiver can refuse an older one.
    pub(crate) token: Option<u64>,
    /// The event's W3C trace context.
    pub(crate) trace_parent: Option<&'a str>,
}

/// What to deliver.
#[derive(Debug, Clone)]
pub(crate) enum DeliveryPayload {
    /// A stored event.
    Event {
        /// Its stored text.
        text: Bytes,
        format: EventFormat,
    },
    /// The payload of a task: the JSON that was submitted.
    Task(Bytes),
}

/// The format of a delivered event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventFormat {
    /// The broker's envelope.
    Envelope,
    /// `data` alone.
    DataOnly,
    /// A CloudEvent as JSON.
    CloudEventsStructured,
    /// A CloudEvent with its attributes in headers.
    CloudEventsBinary,
}

/// A body with its headers.
struct RenderedBody {
    body: Bytes,
    media: HeaderValue,
    headers: HeaderMap,
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const CLOUD_EVENT: HeaderValue = HeaderValue::from_static("application/cloudevents+json; charset=utf-8");

/// Characters that the CloudEvents binding for HTTP escapes, in addition to everything beyond ASCII.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// The request of a delivery.
pub(super) fn request(
    delivery: &DeliveryRequest<'_>,
    authorization: Option<&HeaderValue>,
    user_agent: &HeaderValue,
) -> Result<Request<Full<Bytes>>, DeliveryFailure> {
    let RenderedBody { body, media, headers } = render(&delivery.payload)?;
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

fn render(payload: &DeliveryPayload) -> Result<RenderedBody, DeliveryFailure> {
    let plain = |body: Bytes, media| RenderedBody { body, media, headers: HeaderMap::new() };
    let (text, shape) = match payload {
        DeliveryPayload::Task(json) => return Ok(plain(json.clone(), JSON)),
        DeliveryPayload::Event { text, format: shape } => (text, shape),
    };
    Ok(match shape {
        EventFormat::Envelope => plain(text.clone(), JSON),
        EventFormat::DataOnly => plain(data_of(text)?, JSON),
        EventFormat::CloudEventsStructured => {
            let event = serde_json::to_vec(&cloud_event(text)?).map_err(|_| payload_failure(UNREADABLE))?;
            plain(event.into(), CLOUD_EVENT)
        }
        EventFormat::CloudEventsBinary => {
            let event = cloud_event(text)?;
            let media = HeaderValue::from_str(event.data_content_type()).map_err(|_| payload_failure(UNREADABLE))?;
            RenderedBody { body: data_of(text)?, media, headers: attributes(&event)? }
        }
    })
}

const UNREADABLE: &str = "The stored event cannot be put into the subscription's format.";

/// `data` as it is in the stored text.
fn data_of(text: &Bytes) -> Result<Bytes, DeliveryFailure> {
    #[derive(Deserialize)]
    struct DataMember<'a> {
        #[serde(borrow)]
        data: &'a RawValue,
    }
    let envelope: DataMember<'_> = serde_json::from_slice(text).map_err(|_| payload_failure(UNREADABLE))?;
    Ok(text.slice_ref(envelope.data.get().as_bytes()))
}

fn cloud_event(text: &[u8]) -> Result<CloudEvent, DeliveryFailure> {
    serde_json::from_slice::<Event>(text).map(CloudEvent::from).map_err(|_| payload_failure(UNREADABLE))
}

/// Attributes as headers. `datacontenttype` is the content type.
fn attributes(event: &CloudEvent) -> Result<HeaderMap, DeliveryFailure> {
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

fn payload_failure(message: &str) -> DeliveryFailure {
    DeliveryFailure::new(ErrorClass::Payload, message).for_good()
}
