//! CloudEvents 1.0, in and out: structured, batched and binary.
//!
//! - Which member is which attribute is said by [`CloudEvent`], for the way out; the way in is its mirror.
//! - An extension we do not know is a label in `context`.
//! - An `id` that is no UUID gives ours by a fixed rule (`events::cloud_event_id`) and is kept beside it.
//! - `data` passes through as it was spelt.

use super::body;
use crate::events::cloud_event_id;
use contract::{
    Actor, ActorType, AggregateSequence, Claim, CloudEvent, Error, Kind, NewEvent, Profile, Result, StoredEvent,
    Timestamp, Unread, Violation, limits, under_profile,
};
use http::HeaderMap;
use percent_encoding::percent_decode_str;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use uuid::Uuid;

/// A CloudEvent taken apart: attributes as text, and the payload.
#[derive(Default)]
struct Parts {
    attributes: BTreeMap<String, String>,
    data: Option<Box<RawValue>>,
}

/// One CloudEvent as JSON.
pub(super) fn from_structured(profile: Profile, bytes: &[u8]) -> Result<NewEvent> {
    event(profile, structured_parts(bytes)?)
}

/// Several CloudEvents as a JSON array; one that cannot be read is refused by itself.
pub(super) fn from_batch(profile: Profile, bytes: &[u8]) -> Result<Vec<Result<NewEvent, Unread>>> {
    let pieces: Vec<Box<RawValue>> = body::any_json(profile, bytes)?;
    let events = pieces.iter().map(|piece| {
        let parts = structured_parts(piece.get().as_bytes());
        let named = parts.as_ref().ok().and_then(|parts| parts.attributes.get("type")?.parse().ok());
        parts.and_then(|parts| event(profile, parts)).map_err(|error| Unread { error, event_type: named })
    });
    Ok(events.collect())
}

/// A CloudEvent whose attributes are headers and whose payload is the body.
pub(super) fn from_headers(profile: Profile, headers: &HeaderMap, bytes: &[u8]) -> Result<NewEvent> {
    let mut parts = Parts::default();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix("ce-") else { continue };
        let text = value.to_str().ok().and_then(|text| percent_decode_str(text).decode_utf8().ok());
        let text = text.ok_or_else(|| Error::invalid(format!("/{name}"), "is not percent-encoded UTF-8"))?;
        if parts.attributes.insert(name.to_owned(), text.into_owned()).is_some() {
            return Err(Error::invalid(format!("/{name}"), "is given more than once"));
        }
    }
    parts.data = Some(body::any_json(profile, bytes)?);
    event(profile, parts)
}

fn structured_parts(bytes: &[u8]) -> Result<Parts> {
    let members: BTreeMap<String, Box<RawValue>> = body::json(Profile::Relaxed, bytes)?;
    let mut parts = Parts::default();
    for (name, value) in members {
        match name.as_str() {
            "data" => parts.data = Some(value),
            "data_base64" => {
                return Err(Error::invalid("/data_base64", "binary data is not taken: send `data` as JSON"));
            }
            _ => {
                let text = match serde_json::from_str::<serde_json::Value>(value.get()) {
                    Ok(serde_json::Value::String(text)) => text,
                    Ok(serde_json::Value::Number(number)) => number.to_string(),
                    Ok(serde_json::Value::Bool(flag)) => flag.to_string(),
                    Ok(serde_json::Value::Null) => continue,
                    _ => return Err(Error::invalid(format!("/{name}"), "must be text, a number or a boolean")),
                };
                parts.attributes.insert(name, text);
            }
        }
    }
    Ok(parts)
}

/// Our event, from its attributes, with identifiers held to `profile`.
fn event(profile: Profile, parts: Parts) -> Result<NewEvent> {
    under_profile(profile, || attributed(parts))
}

fn attributed(parts: Parts) -> Result<NewEvent> {
    let Parts { mut attributes, data } = parts;
    let mut take = |name: &str| attributes.remove(name);
    if take("specversion").as_deref() != Some("1.0") {
        return Err(Error::invalid("/specversion", "must be 1.0"));
    }
    if take("datacontenttype").is_some_and(|media| !media.to_ascii_lowercase().contains("json")) {
        return Err(Error::invalid("/datacontenttype", "must be JSON"));
    }
    let missing = |name: &str| Error::invalid(format!("/{name}"), "is missing");
    let event_type = take("type").ok_or_else(|| missing("type"))?.parse()?;
    let mut event = NewEvent::new(
        event_type,
        take("source").ok_or_else(|| missing("source"))?,
        data.ok_or_else(|| missing("data"))?,
    );
    (event.id, event.cloud_event_id) = ids_of(&event.source, take("id"))?;
    event.occurred_at = parsed::<Timestamp>("time", take("time"), "must be an RFC 3339 time")?;
    event.subject = take("subject");
    event.data_version = version_of(take("dataschema"))?;
    event.topic = take("topic").map(|topic| topic.parse()).transpose()?;
    event.subject_type = take("subjecttype").map(|subject_type| subject_type.parse()).transpose()?;
    event.tenant = parsed("tenant", take("tenant"), "must be a UUID")?;
    event.sequence = parsed("sequence", take("sequence"), "")
        .map_err(|_| Error::new(Kind::InvalidSequence, "An event's own `sequence` must be a positive integer."))?;
    let expected = take("expectedaggregatesequence");
    event.expected_aggregate_sequence =
        parsed("expectedaggregatesequence", expected, "must be a whole number")?.map(AggregateSequence);
    event.trace_parent = take("traceparent");
    event.correlation_id = take("correlationid");
    event.causation_id = take("causationid");
    event.message_group = take("messagegroup");
    event.deduplication_id = take("deduplicationid");
    event.request_id = take("requestid");
    event.actor = actor_of(take("actortype").as_deref(), take("actorid"))?;
    event.context = labels(take("context"))?;
    event.context.append(&mut attributes);
    Ok(event)
}

/// Our id of a CloudEvent, and its own where that is another text.
fn ids_of(source: &str, id: Option<String>) -> Result<(Option<Uuid>, Option<String>)> {
    let Some(text) = id else { return Ok((None, None)) };
    if !(1..=limits::LABEL_BYTES_MAX).contains(&text.len()) || text.contains('\0') {
        let detail = format!("must have 1 to {} bytes, none of them NUL", limits::LABEL_BYTES_MAX);
        return Err(Error::invalid("/id", detail));
    }
    let id = cloud_event_id::id_of(source, &text);
    let is_usual = text == *id.hyphenated().encode_lower(&mut Uuid::encode_buffer());
    Ok((Some(id), (!is_usual).then_some(text)))
}

fn parsed<T: std::str::FromStr>(name: &str, text: Option<String>, must: &str) -> Result<Option<T>> {
    text.map(|text| text.parse().map_err(|_| Error::invalid(format!("/{name}"), must))).transpose()
}

/// `gts://{type}#{version}` names a version; any other schema is the producer's own business and not kept.
fn version_of(schema: Option<String>) -> Result<Option<String>> {
    let Some(schema) = schema else { return Ok(None) };
    match schema.strip_prefix(CloudEvent::SCHEMA_SCHEME).map(|schema| schema.split_once('#')) {
        Some(Some((_, version))) if !version.is_empty() => Ok(Some(version.to_owned())),
        _ => Err(Error::invalid("/dataschema", "must be gts://{type}#{dataVersion}, or be left out")),
    }
}

fn actor_of(actor_type: Option<&str>, id: Option<String>) -> Result<Option<Actor>> {
    let (actor_type, id) = match (actor_type, id) {
        (Some(actor_type), Some(id)) => (actor_type, id),
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(Error::invalid("/actorid", "is missing beside `actortype`")),
        (None, Some(_)) => return Err(Error::invalid("/actortype", "is missing beside `actorid`")),
    };
    let actor_type = match actor_type {
        "user" => ActorType::User,
        "service_principal" => ActorType::ServicePrincipal,
        "system" => ActorType::System,
        _ => return Err(Error::invalid("/actortype", "must be user, service_principal or system")),
    };
    Ok(Some(Actor { actor_type, id }))
}

fn labels(text: Option<String>) -> Result<BTreeMap<String, String>> {
    let Some(text) = text else { return Ok(BTreeMap::new()) };
    body::json(Profile::Relaxed, text.as_bytes()).map_err(|_| {
        let violation = Violation::new("/context", "must be a JSON object of strings, as text");
        Error::new(Kind::Validation, violation.detail.clone()).with_violations(vec![violation])
    })
}

/// One stored event, structured.
pub(super) fn structured(event: &StoredEvent) -> Result<Vec<u8>> {
    serde_json::to_vec(&CloudEvent::from(event.event()?)).map_err(not_written)
}

/// Several stored events as a JSON array, each with its claim where it has one.
pub(super) fn batch(events: &[StoredEvent], claims: &[Claim]) -> Result<Vec<u8>> {
    let outgoing = |(index, event): (usize, &StoredEvent)| {
        event.event().map(|event| CloudEvent::from(event).with_claim(claims.get(index).cloned()))
    };
    let events = events.iter().enumerate().map(outgoing).collect::<Result<Vec<_>>>()?;
    serde_json::to_vec(&events).map_err(not_written)
}

fn not_written(error: serde_json::Error) -> Error {
    Error::new(Kind::Unavailable, "A stored event could not be written as a CloudEvent.").with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"specversion":"1.0","id":"550e8400-e29b-41d4-a716-446655440000","source":"shop",
        "type":"gts.vendor.orders.order_placed.v1","subject":"o-1","subjecttype":"gts.vendor.orders.order.v1~",
        "time":"2025-12-03T12:01:59.829Z","dataschema":"gts://gts.vendor.orders.order_placed.v1#1.0",
        "tenant":"a1b2c3d4-e5f6-7890-abcd-ef1234567890","correlationid":"c-1","actortype":"user","actorid":"u-1",
        "appid":"web","context":"{\"Region\":\"eu\"}","data":{"total": 1.50}}"#;

    #[test]
    fn a_cloud_event_becomes_ours_member_by_member() {
        let event = from_structured(Profile::Relaxed, TEXT.as_bytes()).unwrap();
        assert_eq!(event.id.unwrap().to_string(), "550e8400-e29b-41d4-a716-446655440000");
        assert_eq!(event.data_version.as_deref(), Some("1.0"));
        assert_eq!(event.correlation_id.as_deref(), Some("c-1"));
        assert_eq!(event.actor.unwrap().id, "u-1");
        let labels = event.context.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>();
        assert_eq!(labels, ["Region=eu", "appid=web"]);
        assert_eq!(event.data.get(), r#"{"total": 1.50}"#);
    }

    #[test]
    fn a_cloud_event_that_is_none_is_refused_by_pointer() {
        for (from, to, pointer) in [
            (r#""specversion":"1.0","#, "", "/specversion"),
            (r#""source":"shop","#, "", "/source"),
            ("550e8400-e29b-41d4-a716-446655440000", "", "/id"),
            ("2025-12-03T", "2025-12-03 ", "/time"),
            ("gts://", "http://", "/dataschema"),
            (r#""appid":"web""#, r#""appid":{}"#, "/appid"),
            (r#""data":{"total": 1.50}"#, r#""data_base64":"AA==""#, "/data_base64"),
        ] {
            let error = from_structured(Profile::Relaxed, TEXT.replace(from, to).as_bytes()).unwrap_err();
            let pointers: Vec<_> = error.violations().iter().map(|violation| violation.pointer.as_str()).collect();
            assert_eq!(pointers, [pointer]);
        }
    }
}
