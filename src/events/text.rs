//! The event's JSON, written once: everything the producer said, with a place left for what only the log can know.

use bytes::Bytes;
use contract::{Actor, NewEvent, Sequence, Timestamp, TopicId};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use uuid::Uuid;

/// An event's JSON without its assigned members.
pub(crate) struct Text {
    /// `{"id":…,"type":…,"topic":…` and then `,"occurredAt":…,…,"data":…}`.
    pub(crate) bytes: Bytes,
    /// Where the assigned members go.
    pub(crate) splice: usize,
}

/// Members in front of the assigned ones.
#[derive(Serialize)]
struct Front<'a> {
    id: Uuid,
    #[serde(rename = "type")]
    event_type: &'a str,
    topic: &'a str,
}

/// Members behind the assigned ones. `data` comes last: it is what a person scrolls to.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Back<'a> {
    occurred_at: Timestamp,
    source: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_parent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    causation_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_group: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deduplication_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<&'a Actor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    republish_of: Option<Sequence>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    context: &'a BTreeMap<String, String>,
    data: &'a RawValue,
}

/// Writes `event` as it will be served.
pub(crate) fn write(
    event: &NewEvent,
    id: Uuid,
    topic: &TopicId,
    occurred_at: Timestamp,
    data_version: Option<&str>,
    republish_of: Option<Sequence>,
) -> serde_json::Result<Text> {
    let front = Front { id, event_type: event.event_type.as_str(), topic: topic.as_str() };
    let back = Back {
        occurred_at,
        source: &event.source,
        subject: event.subject.as_deref(),
        subject_type: event.subject_type.as_ref().map(|id| id.as_str()),
        tenant: event.tenant,
        data_version,
        trace_parent: event.trace_parent.as_deref(),
        correlation_id: event.correlation_id.as_deref(),
        causation_id: event.causation_id.as_deref(),
        message_group: event.message_group.as_deref(),
        deduplication_id: event.deduplication_id.as_deref(),
        request_id: event.request_id.as_deref(),
        actor: event.actor.as_ref(),
        republish_of,
        context: &event.context,
        data: &event.data,
    };
    let mut bytes = Vec::with_capacity(640 + event.data.get().len());
    serde_json::to_writer(&mut bytes, &front)?;
    // The front's closing brace and the back's opening one become the comma between them.
    let splice = bytes.len() - 1;
    bytes.truncate(splice);
    serde_json::to_writer(&mut bytes, &back)?;
    if let Some(brace) = bytes.get_mut(splice) {
        *brace = b',';
    }
    Ok(Text { bytes: bytes.into(), splice })
}
