//! A stored event as a CloudEvent 1.0: its attributes as text, and `data` as it was spelt.
//!
//! - `type`, `source` and `subject` are the event's; `time` is `occurredAt`; `dataschema` is `gts://{type}#{dataVersion}`.
//! - `id` is the event's id, or the original id of an event that was received as a CloudEvent with an id of another form.
//! - `datacontenttype` is as it was received. `sequence` is the broker's; a producer's own is one of the labels in `context`.
//! - The other members are extension attributes in lower case. A label of `context` that may be an attribute is one; the
//!   other labels are one attribute, `context`, as JSON.
//! - Every attribute is text: the broker's numbers do not fit the format's integers, which have 32 bits.
//!
//! The serialised form is the structured mode. For the binary mode the sender writes [`CloudEvent::attributes`] as
//! headers.

use crate::{Claim, Event};
use serde::Serialize;
use serde::ser::SerializeMap;
use serde_json::value::{RawValue, to_raw_value};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A stored event as a CloudEvent.
#[derive(Debug, Clone)]
pub struct CloudEvent {
    event: Event,
    claim: Option<Claim>,
}

impl CloudEvent {
    /// The beginning of a `dataschema`; the type follows, then `#` and the version.
    pub const SCHEMA_SCHEME: &'static str = "gts://";
    /// The default media type of `data`.
    pub const JSON: &'static str = "application/json";

    /// The same with the claim of its reader.
    #[must_use]
    pub fn with_claim(self, claim: Option<Claim>) -> Self {
        Self { claim, ..self }
    }

    /// Every attribute with its text, `specversion` first, including `datacontenttype`.
    #[must_use]
    pub fn attributes(&self) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
        let mut attributes: Vec<_> =
            self.members().into_iter().filter_map(|(name, text)| Some((Cow::from(name), text?))).collect();
        let (plain, rest): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.event.context.iter().partition(|(key, _)| is_attribute(key));
        attributes.extend(plain.into_iter().map(|(key, value)| (Cow::from(key), Cow::from(value))));
        // A map of text always has a JSON form.
        if let Some(rest) = to_raw_value(&rest).ok().filter(|_| !rest.is_empty()) {
            attributes.push(("context".into(), rest.get().to_owned().into()));
        }
        attributes
    }

    /// The media type of the payload: as it was received, or JSON.
    #[must_use]
    pub fn data_content_type(&self) -> &str {
        self.event.data_content_type.as_deref().unwrap_or(Self::JSON)
    }

    /// The payload, as it was spelt.
    #[must_use]
    pub fn data(&self) -> &RawValue {
        &self.event.data
    }

    /// The event's members under the names of their attributes.
    fn members(&self) -> [(&'static str, Option<Cow<'_, str>>); 28] {
        let (event, claim) = (&self.event, self.claim.as_ref());
        let own = |text: String| Some(Cow::from(text));
        let given = |text: &'_ Option<String>| text.clone().map(Cow::from);
        let schema = |version| format!("{}{}#{version}", Self::SCHEMA_SCHEME, event.event_type);
        [
            ("specversion", Some("1.0".into())),
            ("id", event.cloud_event_id.as_deref().map(Cow::from).or_else(|| own(event.id.to_string()))),
            ("source", Some(event.source.as_str().into())),
            ("type", Some(event.event_type.as_str().into())),
            ("time", own(event.occurred_at.to_string())),
            ("datacontenttype", Some(self.data_content_type().into())),
            ("dataschema", event.data_version.as_ref().and_then(|version| own(schema(version)))),
            ("topic", Some(event.topic.as_str().into())),
            ("sequence", own(event.sequence.to_string())),
            ("position", own(event.position.to_string())),
            ("createdat", own(event.created_at.to_string())),
            ("subject", given(&event.subject)),
            ("subjecttype", event.subject_type.as_ref().map(|id| id.as_str().into())),
            ("aggregatesequence", event.aggregate_sequence.and_then(|sequence| own(sequence.to_string()))),
            ("tenant", event.tenant.and_then(|tenant| own(tenant.to_string()))),
            ("traceparent", given(&event.trace_parent)),
            ("correlationid", given(&event.correlation_id)),
            ("causationid", given(&event.causation_id)),
            ("messagegroup", given(&event.message_group)),
            ("deduplicationid", given(&event.deduplication_id)),
            ("requestid", given(&event.request_id)),
            ("actorid", event.actor.as_ref().map(|actor| actor.id.as_str().into())),
            ("actortype", event.actor.as_ref().map(|actor| actor.actor_type.as_str().into())),
            ("republishof", event.republish_of.and_then(|sequence| own(sequence.to_string()))),
            ("claimid", claim.map(|claim| claim.id.as_str().into())),
            ("claimtoken", claim.and_then(|claim| own(claim.token.to_string()))),
            ("claimattempt", claim.and_then(|claim| own(claim.attempt.to_string()))),
            ("claimleaseexpiresat", claim.and_then(|claim| own(claim.lease_expires_at?.to_string()))),
        ]
    }
}

impl From<Event> for CloudEvent {
    fn from(event: Event) -> Self {
        Self { event, claim: None }
    }
}

impl Serialize for CloudEvent {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, text) in self.attributes() {
            map.serialize_entry(&name, &text)?;
        }
        map.serialize_entry("data", self.data())?;
        map.end()
    }
}

/// Attributes that a label must not replace.
const TAKEN: &str = " specversion id source type subject time dataschema datacontenttype data topic subjecttype tenant \
    sequence aggregatesequence position createdat expectedaggregatesequence traceparent correlationid causationid \
    messagegroup deduplicationid requestid actortype actorid context republishof claimid claimtoken claimattempt \
    claimleaseexpiresat ";

/// Whether a label's key may be an attribute's name.
fn is_attribute(key: &str) -> bool {
    (1..=20).contains(&key.len())
        && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        && !TAKEN.contains(&format!(" {key} "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"id":"550e8400-e29b-41d4-a716-446655440000","type":"gts.vendor.orders.order_placed.v1",
        "topic":"gts.hx.core.events.topic.v1~","sequence":7,"aggregateSequence":2,"position":9,
        "occurredAt":"2025-12-03T12:01:59.829Z","createdAt":"2025-12-03T12:02:00.000Z","source":"shop","subject":"o-1",
        "dataVersion":"1.0","actor":{"type":"service_principal","id":"u-1"},
        "context":{"appid":"web","Region":"eu","id":"mine"},"data":{"total": 1.50}}"#;

    fn event() -> CloudEvent {
        CloudEvent::from(serde_json::from_str::<Event>(TEXT).unwrap())
    }

    #[test]
    fn labels_become_attributes_where_they_may_and_never_pass_for_ours() {
        let event = event();
        let attributes: BTreeMap<_, _> = event.attributes().into_iter().collect();
        for (name, text) in [
            ("id", "550e8400-e29b-41d4-a716-446655440000"),
            ("sequence", "7"),
            ("dataschema", "gts://gts.vendor.orders.order_placed.v1#1.0"),
            ("actortype", "service_principal"),
            ("appid", "web"),
            ("context", r#"{"Region":"eu","id":"mine"}"#),
        ] {
            assert_eq!(attributes.get(name).map(AsRef::as_ref), Some(text), "{name}");
        }
        assert!(!attributes.contains_key("tenant"));
    }

    #[test]
    fn an_event_that_came_under_an_id_of_its_own_goes_out_under_it() {
        let text = TEXT.replacen(r#""type":"#, r#""cloudEventId":"A234-1234","type":"#, 1);
        let event = CloudEvent::from(serde_json::from_str::<Event>(&text).unwrap());
        let attributes: BTreeMap<_, _> = event.attributes().into_iter().collect();
        assert_eq!(attributes.get("id").map(AsRef::as_ref), Some("A234-1234"));
        assert!(!attributes.contains_key("cloudeventid"));
    }

    #[test]
    fn the_structured_form_spells_data_as_it_came() {
        let text = serde_json::to_string(&event()).unwrap();
        assert!(text.starts_with(r#"{"specversion":"1.0","id":"#), "{text}");
        assert!(text.ends_with(r#""data":{"total": 1.50}}"#), "{text}");
    }
}
