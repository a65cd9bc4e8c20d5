//! Publishing: one event, or a batch.

use super::AppState;
use super::body::{self, BodyLimit};
use super::cloudevents;
use super::idempotency::idempotent_publish;
use super::negotiate::{self, RequestFormat};
use super::problem::{HandlerResult, Problem};
use super::projections::ProjectionWait;
use super::reply::{EventSpan, HEADER_TRUE, REPLAYED, Reply};
use super::request::{ApiRequest, BodyLimitFn};
use axum::Router;
use axum::routing::post;
use contract::{
    Atomicity, BatchOutcome, Error, IdentifierProfile, Kind, NewEvent, ProducerId, PublishOutcome, PublishedEvent,
    Result, UnreadableEvent, Violation, limits, under_profile,
};
use http::header::{HeaderName, HeaderValue, InvalidHeaderValue, LOCATION};
use http::{HeaderMap, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::Write;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

const PRODUCER_ID: HeaderName = HeaderName::from_static("producer-id");
const MISMATCH: HeaderName = HeaderName::from_static("payload-mismatch");
const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
const SUSPECTED: HeaderName = HeaderName::from_static("secret-suspected");
/// Longest value of `Secret-Suspected`: clients bound the head of a response.
const SUSPECTED_BYTES_MAX: usize = 2048;
/// The body of a batch.
const BATCH_BODY: BodyLimitFn =
    |app, _| BodyLimit { bytes: app.options.batch_bytes_max, too_large: Kind::BatchTooLarge };
/// The body of a single event: the event, and white space between its members.
const EVENT_BODY: BodyLimitFn = |app, headers| match negotiate::is_cloud_events(headers) {
    true => BATCH_BODY(app, headers),
    false => BodyLimit { bytes: limits::EVENT_BYTES_MAX + 64 * 1024, too_large: Kind::PayloadTooLarge },
};

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/events", post(idempotent_publish(EVENT_BODY, publish)))
        .route("/v1/events:batch", post(idempotent_publish(BATCH_BODY, publish_batch)))
}

async fn publish(mut request: ApiRequest) -> HandlerResult<Reply> {
    let sent = negotiate::request_format(request.headers())?;
    if sent == RequestFormat::CloudEvents {
        // Boxed, so that the future of a single event stays small.
        return Box::pin(publish_batch(request)).await;
    }
    request.allow_params(&["waitFor", "timeout"])?.check_accepts_json()?;
    let mut wait_for = ProjectionWait::of(&request).await?;
    let body = request.bytes().await?;
    let profile = request.app.profile();
    // Boxed: it is moved several times, and every future on its way would reserve memory for it.
    let event = Box::new(match sent {
        RequestFormat::Json => parse(profile, &body)?,
        RequestFormat::BinaryCloudEvent => cloudevents::from_headers(profile, request.headers(), &body)?,
        RequestFormat::CloudEvent | RequestFormat::CloudEvents => cloudevents::from_structured(profile, &body)?,
    });
    drop(body);
    request.release_bytes();
    let producer = producer(request.headers())?;
    wait_for.check(&request, &event).await?;
    let publish = async |recorder| {
        let published = request.writes().publish(event, producer.as_ref(), recorder).await?;
        wait_for.wait_applied(&request.app, &[&published.event]).await?;
        Ok(published)
    };
    request.respond_with(published_reply, publish).await
}

async fn publish_batch(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&["atomic", "waitFor", "timeout"])?.check_accepts_json()?;
    let sent = negotiate::request_format(request.headers())?;
    let atomicity = match request.params.one("atomic")? {
        None => Atomicity::PerTopic,
        Some("all") => Atomicity::All,
        Some(_) => return Err(Error::invalid("/atomic", "must be `all` or absent").into()),
    };
    let wait_for = ProjectionWait::of(&request).await?;
    let body = request.bytes().await?;
    let events = match sent {
        RequestFormat::Json => parse_batch(request.app.profile(), &body)?,
        RequestFormat::CloudEvents => cloudevents::from_batch(request.app.profile(), &body)?,
        RequestFormat::CloudEvent | RequestFormat::BinaryCloudEvent => return Err(one_event_only().into()),
    };
    drop(body);
    request.release_bytes();
    if events.is_empty() {
        return Err(Error::invalid("/events", "is empty; a batch needs at least one event").into());
    }
    let producer = producer(request.headers())?;
    let publish = async |recorder| {
        let outcome = request.writes().publish_batch(events, atomicity, producer.as_ref(), recorder).await?;
        let stored: Vec<_> = outcome.iter().flatten().map(|published| &published.event).collect();
        wait_for.wait_applied(&request.app, &stored).await?;
        Ok(outcome)
    };
    request.respond_with(batch_reply, publish).await
}

/// An event as our JSON spells it.
pub(super) fn parse(profile: IdentifierProfile, bytes: &[u8]) -> Result<NewEvent> {
    body::json(profile, bytes).map_err(|error| match error.violations() {
        [only] if only.pointer == "/sequence" && error.kind() == Kind::Validation => {
            Error::new(Kind::InvalidSequence, "An event's own `sequence` must be a positive integer.")
        }
        _ => error,
    })
}

/// The events of a batch; one that cannot be parsed is refused alone.
fn parse_batch(profile: IdentifierProfile, bytes: &[u8]) -> Result<Vec<Result<NewEvent, UnreadableEvent>>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ParsedBatch {
        events: Vec<NewEvent>,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct RawBatch {
        events: Vec<Box<RawValue>>,
    }
    if !body::is_list(bytes)
        && let Ok(whole) = under_profile(profile, || serde_json::from_slice::<ParsedBatch>(bytes))
    {
        return Ok(whole.events.into_iter().map(Ok).collect());
    }
    let pieces: RawBatch = body::json(profile, bytes)?;
    let events = pieces.events.iter().map(|piece| {
        let text = piece.get().as_bytes();
        parse(profile, text).map_err(|error| unreadable_event(text, error))
    });
    Ok(events.collect())
}

/// The error of an event that could not be parsed, and its type, which determines its topic.
pub(super) fn unreadable_event(text: &[u8], error: Error) -> UnreadableEvent {
    #[derive(Default, Deserialize)]
    struct EventTypeMember {
        #[serde(rename = "type")]
        event_type: Option<String>,
    }
    let named: EventTypeMember = serde_json::from_slice(text).unwrap_or_default();
    UnreadableEvent { error, event_type: named.event_type.and_then(|text| text.parse().ok()) }
}

/// The producer that the request names.
pub(super) fn producer(headers: &HeaderMap) -> Result<Option<ProducerId>> {
    let Some(value) = headers.get(PRODUCER_ID) else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| !text.is_empty() && text.len() <= limits::LABEL_BYTES_MAX);
    let text = text.ok_or_else(|| {
        let detail = format!("The header Producer-Id must have 1 to {} ASCII characters.", limits::LABEL_BYTES_MAX);
        let violation = Violation::new("/Producer-Id", detail.clone());
        Error::new(Kind::Validation, detail).with_violations(vec![violation])
    })?;
    Ok(Some(ProducerId(text.to_owned())))
}

fn one_event_only() -> Error {
    let detail =
        "Send a single CloudEvent to /v1/events, and several to this path as application/cloudevents-batch+json.";
    Error::new(Kind::UnsupportedMediaType, detail)
}

/// The reply to a published event: its stored text.
fn published_reply(published: &PublishedEvent) -> Reply {
    let PublishedEvent { event, outcome, deprecated, secret_suspected } = published;
    let status = match outcome {
        PublishOutcome::Created => StatusCode::CREATED,
        PublishOutcome::Duplicate { .. } => StatusCode::OK,
    };
    let mut reply = Reply::event(status, event);
    if let Ok(location) = location(event.id) {
        reply = reply.with_header(LOCATION, location);
    }
    if *deprecated {
        reply = reply.with_header(DEPRECATION, HEADER_TRUE);
    }
    reply = with_suspected(reply, secret_suspected);
    match outcome {
        PublishOutcome::Created => reply,
        PublishOutcome::Duplicate { payload_mismatch: false } => reply.with_header(REPLAYED, HEADER_TRUE),
        PublishOutcome::Duplicate { payload_mismatch: true } => {
            reply.with_header(REPLAYED, HEADER_TRUE).with_header(MISMATCH, HEADER_TRUE)
        }
    }
}

/// The reply with the header `Secret-Suspected`, if something is suspected.
pub(super) fn with_suspected(reply: Reply, pointers: &[String]) -> Reply {
    match suspected_header(pointers) {
        Some(value) => reply.with_header(SUSPECTED, value),
        None => reply,
    }
}

/// JSON pointers as a header: characters that a list in a header cannot have are percent-encoded.
fn suspected_header(pointers: &[String]) -> Option<HeaderValue> {
    const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%').add(b',');
    let mut text = String::new();
    for pointer in pointers {
        let encoded = utf8_percent_encode(pointer, ENCODED).to_string();
        if text.len() + encoded.len() > SUSPECTED_BYTES_MAX {
            break;
        }
        let separator = if text.is_empty() { "" } else { ", " };
        text.push_str(separator);
        text.push_str(&encoded);
    }
    HeaderValue::try_from(text).ok().filter(|value| !value.is_empty())
}

/// The path of an event.
fn location(id: Uuid) -> std::result::Result<HeaderValue, InvalidHeaderValue> {
    let mut path = *b"/v1/events/00000000-0000-0000-0000-000000000000";
    if let Some(place) = path.last_chunk_mut::<{ Hyphenated::LENGTH }>() {
        id.hyphenated().encode_lower(place);
    }
    HeaderValue::from_bytes(&path)
}

/// The reply to a batch: the result of each event, in the order of the request.
fn batch_reply(outcome: &BatchOutcome) -> Reply {
    let size: usize = outcome.iter().map(|result| result.as_ref().map_or(512, |it| it.event.text.len() + 64)).sum();
    let (mut body, mut events) = (Vec::with_capacity(size + 128), Vec::with_capacity(outcome.len()));
    body.extend_from_slice(br#"{"data":{"results":["#);
    for (index, result) in outcome.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        events.extend(write_result(&mut body, index, result));
    }
    let (total, succeeded) = (outcome.len(), outcome.iter().filter(|result| result.is_ok()).count());
    // Writing to memory cannot fail.
    let _ = write!(body, r#"]}},"meta":{{"total":{total},"succeeded":{succeeded},"failed":{}}}}}"#, total - succeeded);
    let reply = Reply::results(StatusCode::MULTI_STATUS, body, events);
    // Where nothing was stored, an event that may fare better the next time is tried again under the same key. Where
    // something was, the key has had its effect, and what is left of the batch takes another.
    let may_pass = |result: &Result<PublishedEvent>| result.as_ref().is_err_and(|error| error.kind().is_retryable());
    match succeeded == 0 && outcome.iter().any(may_pass) {
        true => reply.without_storing(),
        false => reply,
    }
}

/// Writes one result; returns the place of its event in the body.
fn write_result(body: &mut Vec<u8>, index: usize, result: &Result<PublishedEvent>) -> Option<EventSpan> {
    let mark = match result {
        Ok(published) => {
            let (status, note) = match published.outcome {
                PublishOutcome::Created => (201, ""),
                PublishOutcome::Duplicate { payload_mismatch: false } => (200, ""),
                PublishOutcome::Duplicate { payload_mismatch: true } => (200, r#","payloadMismatch":true"#),
            };
            let old = if published.deprecated { r#","deprecated":true"# } else { "" };
            let _ = write!(body, r#"{{"index":{index},"status":{status}{note}{old}"#);
            if !published.secret_suspected.is_empty() {
                body.extend_from_slice(br#","secretSuspected":"#);
                let _ = serde_json::to_writer(&mut *body, &published.secret_suspected);
            }
            body.extend_from_slice(br#","event":"#);
            let event = &published.event;
            let mark = EventSpan { at: body.len(), bytes: event.text.len(), position: event.position };
            body.extend_from_slice(&event.text);
            Some(mark)
        }
        Err(error) => {
            let problem = Problem::from(error.clone());
            let _ = write!(body, r#"{{"index":{index},"status":{},"error":"#, problem.status().as_u16());
            let _ = serde_json::to_writer(&mut *body, &problem.document(None, None));
            None
        }
    };
    body.push(b'}');
    mark
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{AggregateSequence, Position, Sequence, StoredEvent, Timestamp};

    fn stored() -> Result<PublishedEvent> {
        let event = StoredEvent {
            position: Position(9),
            sequence: Sequence(1),
            aggregate_sequence: AggregateSequence(1),
            id: uuid::Uuid::nil(),
            created_at: Timestamp::from_millis(0),
            text: bytes::Bytes::from_static(br#"{"an":"event"}"#),
        };
        Ok(PublishedEvent { event, outcome: PublishOutcome::Created, deprecated: false, secret_suspected: Vec::new() })
    }

    #[test]
    fn a_batch_is_stored_if_any_event_of_it_was_or_all_errors_are_final() {
        let temporary = || Err(Error::new(Kind::Unavailable, "Later."));
        let final_one = || Err(Error::not_found("topic"));
        for (outcome, is_stored) in [
            (vec![stored(), final_one()], true),
            (vec![final_one(), final_one()], true),
            (vec![stored(), temporary()], true),
            (vec![final_one(), temporary()], false),
        ] {
            assert_eq!(batch_reply(&outcome).to_stored().is_some(), is_stored, "{outcome:?}");
        }
    }

    #[test]
    fn stored_events_are_named_and_not_repeated_in_what_is_kept() {
        use crate::ledger::ReplyPiece;
        let reply = batch_reply(&vec![stored(), stored()]);
        let pieces = reply.to_stored().unwrap().body;
        let events = pieces.iter().filter(|piece| **piece == ReplyPiece::Event(Position(9))).count();
        assert!(events == 2 && !format!("{pieces:?}").contains("an"), "{pieces:?}");
        assert!(reply.stored_events().iter().all(|(at, text)| *at == Position(9) && text == r#"{"an":"event"}"#));
        // Events of several logs have names of their own.
        let names = vec![ReplyPiece::Event(Position(7)), ReplyPiece::Event(Position(8))];
        let named = reply.to_stored_with(names.clone()).unwrap().body;
        assert!(names.iter().all(|name| named.contains(name)) && !format!("{named:?}").contains("an"), "{named:?}");
    }
}
