//! CloudEvents 1.0, in and out: structured, batched and binary.
//!
//! - [`CloudEvent`] maps members to attributes for events that are read; publishing uses the reverse mapping.
//! - An unknown extension is a label in `context`. So is the CloudEvents extension `sequence`: only a text that is written like a
//!   number of the broker, without `sequencetype`, is the event's own `sequence`.
//! - The requirements of the specification are enforced: the four attributes, the alphabet of names, the range of integers, and
//!   the media type of JSON.
//! - An `id` that is not a UUID determines the event's UUID by a fixed rule (`events::cloud_event_id`), and is stored with it.
//! - `data` is not changed.

use super::{body, negotiate};
use crate::events::cloud_event_id;
use contract::{
    Actor, ActorType, AggregateSequence, Claim, CloudEvent, Error, EventTypeId, IdentifierProfile, Kind, MediaType,
    NewEvent, Result, StoredEvent, Timestamp, UnreadableEvent, Violation, limits, under_profile, unquote,
};
use http::HeaderMap;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use uuid::Uuid;

/// A parsed CloudEvent: attributes as text, and the payload.
#[derive(Default)]
struct CloudEventParts {
    attributes: BTreeMap<String, String>,
    data: Option<Box<RawValue>>,
}

/// One CloudEvent as JSON.
pub(super) fn from_structured(profile: IdentifierProfile, bytes: &[u8]) -> Result<NewEvent> {
    event_under_profile(profile, structured_parts(bytes)?)
}

/// Several CloudEvents as a JSON array; one that cannot be parsed is refused alone.
pub(super) fn from_batch(profile: IdentifierProfile, bytes: &[u8]) -> Result<Vec<Result<NewEvent, UnreadableEvent>>> {
    let pieces: Vec<Box<RawValue>> = body::any_json(profile, bytes)?;
    let events = pieces.iter().map(|piece| {
        let parts = structured_parts(piece.get().as_bytes());
        let named = parts.as_ref().ok().and_then(|parts| parts.attributes.get("type")?.parse().ok());
        parts
            .and_then(|parts| event_under_profile(profile, parts))
            .map_err(|error| UnreadableEvent { error, event_type: named })
    });
    Ok(events.collect())
}

/// A CloudEvent whose attributes are headers and whose payload is the body.
pub(super) fn from_headers(profile: IdentifierProfile, headers: &HeaderMap, bytes: &[u8]) -> Result<NewEvent> {
    let mut parts = CloudEventParts::default();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix("ce-") else { continue };
        check_name(name)?;
        match name {
            "data" => return Err(Error::invalid("/data", "must be the body in binary mode, not a header")),
            "datacontenttype" => {
                return Err(Error::invalid("/datacontenttype", "must be the header Content-Type in binary mode"));
            }
            _ => (),
        }
        let text = value.to_str().ok().and_then(header_text);
        let text = text.ok_or_else(|| Error::invalid(format!("/{name}"), "is not percent-encoded UTF-8"))?;
        if parts.attributes.insert(name.to_owned(), text).is_some() {
            return Err(Error::invalid(format!("/{name}"), "occurs more than once"));
        }
    }
    parts.attributes.insert("datacontenttype".to_owned(), negotiate::media_text(headers).to_owned());
    parts.data = Some(body::any_json(profile, bytes)?);
    event_under_profile(profile, parts)
}

/// The decoded value of a header (HTTP binding 3.1.3.2): a quoted string is unescaped, then percent-decoded once.
fn header_text(value: &str) -> Option<String> {
    let unquoted = unquote(value);
    let text = percent_decode_str(unquoted.as_deref().unwrap_or(value)).decode_utf8().ok()?;
    Some(text.into_owned())
}

/// Names of attributes have only lower-case letters and digits.
fn check_name(name: &str) -> Result<()> {
    match !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
        true => Ok(()),
        false => {
            let detail = "is not the name of an attribute: only lower-case letters and digits are allowed";
            Err(Error::invalid(format!("/{}", body::pointer_token(name)), detail))
        }
    }
}

/// Attributes that must be text.
const TEXTS: [&str; 8] = ["specversion", "id", "source", "type", "subject", "time", "dataschema", "datacontenttype"];

/// An attribute's value as text; `None` if it is null, which is the same as absent.
fn attribute_text(name: &str, value: &RawValue) -> Result<Option<String>> {
    let refused = |detail| Err(Error::invalid(format!("/{name}"), detail));
    let whole = |number: f64| number.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number);
    match serde_json::from_str::<Value>(value.get()) {
        Ok(Value::Null) => Ok(None),
        Ok(Value::String(text)) => Ok(Some(text)),
        Ok(_) if TEXTS.contains(&name) => refused("must be text"),
        Ok(Value::Bool(flag)) => Ok(Some(flag.to_string())),
        Ok(Value::Number(number)) => match number.as_f64().filter(|number| whole(*number)) {
            Some(number) => Ok(Some(format!("{number:.0}"))),
            None => refused("must be an integer of 32 bits, or text"),
        },
        _ => refused("must be text, an integer of 32 bits or a boolean"),
    }
}

fn structured_parts(bytes: &[u8]) -> Result<CloudEventParts> {
    let members: BTreeMap<String, Box<RawValue>> = body::json(IdentifierProfile::Relaxed, bytes)?;
    let mut parts = CloudEventParts::default();
    for (name, value) in members {
        match name.as_str() {
            "data" => parts.data = Some(value),
            "data_base64" => {
                return Err(Error::invalid("/data_base64", "is not supported: send `data` as JSON"));
            }
            _ => {
                check_name(&name)?;
                if let Some(text) = attribute_text(&name, &value)? {
                    parts.attributes.insert(name, text);
                }
            }
        }
    }
    Ok(parts)
}

/// The event of these attributes, with identifiers of `profile`.
fn event_under_profile(profile: IdentifierProfile, parts: CloudEventParts) -> Result<NewEvent> {
    under_profile(profile, || event_from_attributes(parts))
}

fn event_from_attributes(parts: CloudEventParts) -> Result<NewEvent> {
    let CloudEventParts { mut attributes, data } = parts;
    let sequence = own_sequence(&mut attributes);
    let mut take = |name: &str| attributes.remove(name);
    if take("specversion").as_deref() != Some("1.0") {
        return Err(Error::invalid("/specversion", "must be 1.0, as text"));
    }
    let content_type = content_type_of(take("datacontenttype"))?;
    let missing = |name: &str| Error::invalid(format!("/{name}"), "is missing");
    let event_type = take("type").ok_or_else(|| missing("type"))?.parse()?;
    let mut event = NewEvent::new(
        event_type,
        take("source").ok_or_else(|| missing("source"))?,
        data.ok_or_else(|| missing("data"))?,
    );
    (event.id, event.cloud_event_id) = ids_of(&event.source, take("id").ok_or_else(|| missing("id"))?)?;
    event.data_content_type = content_type;
    event.occurred_at = parsed::<Timestamp>("time", take("time"), "must be an RFC 3339 time")?;
    event.subject = take("subject");
    event.topic = take("topic").map(|topic| topic.parse()).transpose()?;
    event.subject_type = take("subjecttype").map(|subject_type| subject_type.parse()).transpose()?;
    event.tenant = parsed("tenant", take("tenant"), "must be a UUID")?;
    event.sequence = parsed("sequence", sequence, "")
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
    event.data_version = version_of(&event.event_type, take("dataschema"))?;
    event.context = labels(take("context"))?;
    event.context.append(&mut attributes);
    Ok(event)
}

/// The broker's id of a CloudEvent, and the original id if that is another text.
fn ids_of(source: &str, text: String) -> Result<(Option<Uuid>, Option<String>)> {
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

/// The `sequence` that the event must get. CloudEvents has an extension of that name for the producer's own order; that one is a
/// label like other extensions.
fn own_sequence(attributes: &mut BTreeMap<String, String>) -> Option<String> {
    let is_ours = |text: &String| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_padded = digits.starts_with('0') && digits.len() > 1;
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) && !is_padded
    };
    let has_type = attributes.contains_key("sequencetype");
    attributes.get("sequence").is_some_and(|text| !has_type && is_ours(text)).then(|| attributes.remove("sequence"))?
}

/// The media type of `data`, if it is not plain JSON. It must be a JSON type in UTF-8.
fn content_type_of(text: Option<String>) -> Result<Option<String>> {
    let Some(text) = text.filter(|text| text != CloudEvent::JSON) else { return Ok(None) };
    let refused = |detail: String| Err(Error::invalid("/datacontenttype", detail));
    match MediaType::parse(&text) {
        _ if text.len() > limits::LABEL_BYTES_MAX => {
            refused(format!("is longer than {} bytes", limits::LABEL_BYTES_MAX))
        }
        None => refused("must be a media type, such as application/json".to_owned()),
        Some(media) if !media.is_json() => {
            refused("must be JSON: application/json, or one that ends in +json".to_owned())
        }
        Some(media) if !media.is_utf8() => refused("must be in UTF-8".to_owned()),
        Some(_) => Ok(Some(text)),
    }
}

/// The version in `gts://{type}#{version}`.
fn version_of(event_type: &EventTypeId, schema: Option<String>) -> Result<Option<String>> {
    let Some(schema) = schema else { return Ok(None) };
    match schema.strip_prefix(CloudEvent::SCHEMA_SCHEME).map(|schema| schema.split_once('#')) {
        // A type can be written in several ways.
        Some(Some((named, _))) if named.parse().ok().as_ref() != Some(event_type) => {
            Err(Error::invalid("/dataschema", "names another type than `type`"))
        }
        Some(Some((_, version))) if !version.is_empty() => Ok(Some(version.to_owned())),
        _ => Err(Error::invalid("/dataschema", "must be gts://{type}#{dataVersion} or absent")),
    }
}

fn actor_of(actor_type: Option<&str>, id: Option<String>) -> Result<Option<Actor>> {
    let (actor_type, id) = match (actor_type, id) {
        (Some(actor_type), Some(id)) => (actor_type, id),
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(Error::invalid("/actorid", "is missing; `actortype` requires it")),
        (None, Some(_)) => return Err(Error::invalid("/actortype", "is missing; `actorid` requires it")),
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
    body::json(IdentifierProfile::Relaxed, text.as_bytes()).map_err(|_| {
        let violation = Violation::new("/context", "must be a JSON object of strings, as text");
        Error::new(Kind::Validation, violation.detail.clone()).with_violations(vec![violation])
    })
}

/// One stored event, structured.
pub(super) fn structured(event: &StoredEvent) -> Result<Vec<u8>> {
    serde_json::to_vec(&CloudEvent::from(event.event()?)).map_err(serialization_error)
}

/// Several stored events as a JSON array, each with its claim where it has one.
pub(super) fn batch(events: &[StoredEvent], claims: &[Claim]) -> Result<Vec<u8>> {
    let outgoing = |(index, event): (usize, &StoredEvent)| {
        event.event().map(|event| CloudEvent::from(event).with_claim(claims.get(index).cloned()))
    };
    let events = events.iter().enumerate().map(outgoing).collect::<Result<Vec<_>>>()?;
    serde_json::to_vec(&events).map_err(serialization_error)
}

fn serialization_error(error: serde_json::Error) -> Error {
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
        let event = from_structured(IdentifierProfile::Relaxed, TEXT.as_bytes()).unwrap();
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
            (r#""specversion":"1.0""#, r#""specversion":1.0"#, "/specversion"),
            (r#""id":"550e8400-e29b-41d4-a716-446655440000","#, "", "/id"),
            (r#""appid":"web""#, r#""Appid":"web""#, "/Appid"),
            (r#""appid":"web""#, r#""app-id":"web""#, "/app-id"),
            (r#""appid":"web""#, r#""appid":1.5"#, "/appid"),
            (r#""appid":"web""#, r#""appid":2147483648"#, "/appid"),
            (r#""appid":"web""#, r#""datacontenttype":"notjson""#, "/datacontenttype"),
            (r#""appid":"web""#, r#""datacontenttype":"text/x-json-but-not""#, "/datacontenttype"),
            (r#""appid":"web""#, r#""datacontenttype":"application/json; charset=iso-8859-1""#, "/datacontenttype"),
            ("gts://gts.vendor.orders", "gts://gts.vendor.other", "/dataschema"),
        ] {
            let error = from_structured(IdentifierProfile::Relaxed, TEXT.replace(from, to).as_bytes()).unwrap_err();
            let pointers: Vec<_> = error.violations().iter().map(|violation| violation.pointer.as_str()).collect();
            assert_eq!(pointers, [pointer]);
        }
    }

    #[test]
    fn a_producers_own_sequence_is_a_label_and_ours_is_a_number() {
        for (attributes, own, label) in [
            (r#""sequence":"7""#, Some(7), None),
            (r#""sequence":7"#, Some(7), None),
            (r#""sequence":"0000001""#, None, Some("0000001")),
            (r#""sequence":"a-7""#, None, Some("a-7")),
            (r#""sequence":"7","sequencetype":"Integer""#, None, Some("7")),
        ] {
            let text = TEXT.replace(r#""appid":"web""#, attributes);
            let event = from_structured(IdentifierProfile::Relaxed, text.as_bytes()).unwrap();
            assert_eq!(
                (event.sequence, event.context.get("sequence").map(String::as_str)),
                (own, label),
                "{attributes}"
            );
        }
        let error = from_structured(
            IdentifierProfile::Relaxed,
            TEXT.replace(r#""appid":"web""#, r#""sequence":"99999999999999999999""#).as_bytes(),
        );
        assert_eq!(error.unwrap_err().kind(), Kind::InvalidSequence);
    }

    #[test]
    fn a_data_schema_names_the_type_in_any_spelling_of_it() {
        for (named, schema) in [
            ("gts.vendor.orders.order.placed.v1", "gts.vendor.orders.order.placed.v1~"),
            ("gts.vendor.orders.order.placed.v1~", "gts.vendor.orders.order.placed.v1"),
        ] {
            let version = version_of(&named.parse().unwrap(), Some(format!("gts://{schema}#1.0"))).unwrap();
            assert_eq!(version.as_deref(), Some("1.0"), "{named} {schema}");
        }
        for schema in ["gts.vendor.orders.order.placed.v2~", "gts.vendor.orders.order", "", "Order Placed"] {
            let named = "gts.vendor.orders.order.placed.v1".parse().unwrap();
            assert!(version_of(&named, Some(format!("gts://{schema}#1.0"))).is_err(), "{schema}");
        }
    }

    #[test]
    fn integers_of_32_bits_are_labels() {
        for (spelt, text) in
            [("2147483647", "2147483647"), ("-2147483648", "-2147483648"), ("5.0", "5"), ("true", "true")]
        {
            let event =
                from_structured(IdentifierProfile::Relaxed, TEXT.replace(r#""web""#, spelt).as_bytes()).unwrap();
            assert_eq!(event.context["appid"], text);
        }
    }
}
