//! Publishing: one event, or a batch.

use super::App;
use super::body::{self, Limit};
use super::cloudevents;
use super::negotiate::{self, JSON, Sent};
use super::params::Params;
use super::problem::{Answer, Problem};
use super::projections::WaitFor;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use contract::{
    Atomicity, BatchOutcome, Error, Kind, NewEvent, Outcome, ProducerId, Published, Result, Unread, limits,
};
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::Write;

const PRODUCER_ID: HeaderName = HeaderName::from_static("producer-id");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const MISMATCH: HeaderName = HeaderName::from_static("payload-mismatch");
const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
const YES: HeaderValue = HeaderValue::from_static("true");
/// A single event's body: the event, and blanks somebody may have put between its members.
const EVENT_BODY: Limit = Limit { bytes: limits::EVENT_BYTES_MAX + 64 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<App> {
    Router::new().route("/v1/events", post(publish)).route("/v1/events:batch", post(publish_batch))
}

async fn publish(State(app): State<App>, params: Params, headers: HeaderMap, body: Body) -> Answer {
    let sent = negotiate::sent(&headers)?;
    if sent == Sent::CloudEvents {
        return publish_batch(State(app), params, headers, body).await;
    }
    params.only(&["waitFor", "timeout"])?;
    negotiate::expect_json_taken(&headers)?;
    let wait_for = WaitFor::of(&app, &params)?;
    let held = body::take(&app, &headers, body, EVENT_BODY).await?;
    let event = match sent {
        Sent::Json => parse(&held.bytes)?,
        Sent::BinaryCloudEvent => cloudevents::from_headers(&headers, &held.bytes)?,
        Sent::CloudEvent | Sent::CloudEvents => cloudevents::from_structured(&held.bytes)?,
    };
    let producer = producer(&headers)?;
    wait_for.check(&app, &event)?;
    let published = app.events().publish(event, producer.as_ref()).await?;
    drop(held);
    wait_for.applied(&app, std::slice::from_ref(&&published.event)).await?;
    Ok(created(published))
}

async fn publish_batch(State(app): State<App>, params: Params, headers: HeaderMap, body: Body) -> Answer {
    params.only(&["atomic", "waitFor", "timeout"])?;
    negotiate::expect_json_taken(&headers)?;
    let sent = negotiate::sent(&headers)?;
    let atomicity = match params.one("atomic")? {
        None => Atomicity::PerTopic,
        Some("all") => Atomicity::All,
        Some(_) => return Err(Error::invalid("/atomic", "must be `all`, or be left out").into()),
    };
    let wait_for = WaitFor::of(&app, &params)?;
    let limit = Limit { bytes: app.options.batch_bytes_max, too_large: Kind::BatchTooLarge };
    let held = body::take(&app, &headers, body, limit).await?;
    let events = match sent {
        Sent::Json => parse_batch(&held.bytes)?,
        Sent::CloudEvents => cloudevents::from_batch(&held.bytes)?,
        Sent::CloudEvent | Sent::BinaryCloudEvent => return Err(one_event_only().into()),
    };
    if events.is_empty() {
        return Err(Error::invalid("/events", "is empty: a batch has at least one event").into());
    }
    let producer = producer(&headers)?;
    let outcome = app.broker.publish_submitted(events, atomicity, producer.as_ref()).await?;
    drop(held);
    let stored: Vec<_> = outcome.iter().flatten().map(|published| &published.event).collect();
    wait_for.applied(&app, &stored).await?;
    Ok(results(&outcome))
}

/// An event as our JSON spells it.
pub(super) fn parse(bytes: &[u8]) -> Result<NewEvent> {
    body::json(bytes).map_err(|error| match error.violations() {
        [only] if only.pointer == "/sequence" && error.kind() == Kind::Validation => {
            Error::new(Kind::InvalidSequence, "An event's own `sequence` must be a positive integer.")
        }
        _ => error,
    })
}

/// A batch's events; one that cannot be read is refused by itself, the rest of the batch stands.
fn parse_batch(bytes: &[u8]) -> Result<Vec<Result<NewEvent, Unread>>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Whole {
        events: Vec<NewEvent>,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Pieces {
        events: Vec<Box<RawValue>>,
    }
    if !body::is_list(bytes)
        && let Ok(whole) = serde_json::from_slice::<Whole>(bytes)
    {
        return Ok(whole.events.into_iter().map(Ok).collect());
    }
    let pieces: Pieces = body::json(bytes)?;
    let events = pieces.events.iter().map(|piece| {
        let text = piece.get().as_bytes();
        parse(text).map_err(|error| unread(text, error))
    });
    Ok(events.collect())
}

/// Why an event could not be read, and as much of it as its topic can be told from.
pub(super) fn unread(text: &[u8], error: Error) -> Unread {
    #[derive(Default, Deserialize)]
    struct Named {
        #[serde(rename = "type")]
        event_type: Option<String>,
    }
    let named: Named = serde_json::from_slice(text).unwrap_or_default();
    Unread { error, event_type: named.event_type.and_then(|text| text.parse().ok()) }
}

/// Who asks, where the caller says so.
pub(super) fn producer(headers: &HeaderMap) -> Result<Option<ProducerId>> {
    let Some(value) = headers.get(PRODUCER_ID) else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| !text.is_empty() && text.len() <= limits::LABEL_BYTES_MAX);
    let text = text.ok_or_else(|| {
        let detail = format!("The header Producer-Id must have 1 to {} ASCII characters.", limits::LABEL_BYTES_MAX);
        Error::new(Kind::Validation, detail)
    })?;
    Ok(Some(ProducerId(text.to_owned())))
}

fn one_event_only() -> Error {
    let detail = "A single CloudEvent goes to /v1/events; several go here as application/cloudevents-batch+json.";
    Error::new(Kind::UnsupportedMediaType, detail)
}

/// The answer to a published event: its bytes as they are stored.
fn created(published: Published) -> Response {
    let Published { event, outcome, deprecated } = published;
    let location = HeaderValue::from_str(&format!("/v1/events/{}", event.id.hyphenated()));
    let mut response = Response::new(Body::from(event.text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, JSON);
    if let Ok(location) = location {
        headers.insert(LOCATION, location);
    }
    if deprecated {
        headers.insert(DEPRECATION, YES);
    }
    match outcome {
        Outcome::Created => *response.status_mut() = StatusCode::CREATED,
        Outcome::Duplicate { payload_mismatch } => {
            headers.insert(REPLAYED, YES);
            if payload_mismatch {
                headers.insert(MISMATCH, YES);
            }
        }
    }
    response
}

/// The answer to a batch: what became of each event, in the order they were sent.
fn results(outcome: &BatchOutcome) -> Response {
    let size: usize = outcome.iter().map(|result| result.as_ref().map_or(512, |it| it.event.text.len() + 64)).sum();
    let mut body = Vec::with_capacity(size + 128);
    body.extend_from_slice(br#"{"data":{"results":["#);
    for (index, result) in outcome.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        write_result(&mut body, index, result);
    }
    let (total, succeeded) = (outcome.len(), outcome.iter().filter(|result| result.is_ok()).count());
    // Writing to memory cannot fail.
    let _ = write!(body, r#"]}},"meta":{{"total":{total},"succeeded":{succeeded},"failed":{}}}}}"#, total - succeeded);
    let mut response = Response::new(Body::from(Bytes::from(body)));
    *response.status_mut() = StatusCode::MULTI_STATUS;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

fn write_result(body: &mut Vec<u8>, index: usize, result: &Result<Published>) {
    match result {
        Ok(published) => {
            let (status, note) = match published.outcome {
                Outcome::Created => (201, ""),
                Outcome::Duplicate { payload_mismatch: false } => (200, ""),
                Outcome::Duplicate { payload_mismatch: true } => (200, r#","payloadMismatch":true"#),
            };
            let old = if published.deprecated { r#","deprecated":true"# } else { "" };
            let _ = write!(body, r#"{{"index":{index},"status":{status}{note}{old},"event":"#);
            body.extend_from_slice(&published.event.text);
        }
        Err(error) => {
            let problem = Problem::from(error.clone());
            let _ = write!(body, r#"{{"index":{index},"status":{},"error":"#, problem.status().as_u16());
            let _ = serde_json::to_writer(&mut *body, &problem.document(None, None));
        }
    }
    body.push(b'}');
}
