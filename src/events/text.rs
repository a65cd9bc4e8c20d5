//! The event's JSON, written once: everything the producer said, with a place left for what only the log can know.

use bytes::Bytes;
use contract::{NewEvent, Sequence, Timestamp, TopicId};
use serde::Serialize;
use uuid::Uuid;

/// An event's JSON without its assigned members.
pub(crate) struct Text {
    /// `{"id":…,"type":…,"topic":…` and then `,"occurredAt":…,…,"data":…}`.
    pub(crate) bytes: Bytes,
    /// Where the assigned members go.
    pub(crate) splice: usize,
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
    let mut out = Members(Vec::with_capacity(640 + event.data.get().len()));
    out.uuid("{\"id\":", id);
    out.plain(",\"type\":", event.event_type.as_str());
    out.plain(",\"topic\":", topic.as_str());
    let splice = out.0.len();
    out.put(",\"occurredAt\":", &occurred_at)?;
    out.put(",\"source\":", &event.source)?;
    out.maybe(",\"cloudEventId\":", event.cloud_event_id.as_ref())?;
    out.maybe(",\"dataContentType\":", event.data_content_type.as_ref())?;
    out.maybe(",\"subject\":", event.subject.as_ref())?;
    if let Some(subject_type) = &event.subject_type {
        out.plain(",\"subjectType\":", subject_type.as_str());
    }
    if let Some(tenant) = event.tenant {
        out.uuid(",\"tenant\":", tenant);
    }
    out.maybe(",\"dataVersion\":", data_version)?;
    out.maybe(",\"traceParent\":", event.trace_parent.as_ref())?;
    out.maybe(",\"correlationId\":", event.correlation_id.as_ref())?;
    out.maybe(",\"causationId\":", event.causation_id.as_ref())?;
    out.maybe(",\"messageGroup\":", event.message_group.as_ref())?;
    out.maybe(",\"deduplicationId\":", event.deduplication_id.as_ref())?;
    out.maybe(",\"requestId\":", event.request_id.as_ref())?;
    out.maybe(",\"actor\":", event.actor.as_ref())?;
    out.maybe(",\"republishOf\":", republish_of.as_ref())?;
    out.maybe(",\"context\":", Some(&event.context).filter(|context| !context.is_empty()))?;
    // Last: it is what a person scrolls to.
    out.text(",\"data\":");
    out.text(event.data.get());
    out.text("}");
    Ok(Text { bytes: out.0.into(), splice })
}

/// An object's members, one behind the other. A name comes with all that stands between it and the value before.
struct Members(Vec<u8>);

impl Members {
    fn text(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn put(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> serde_json::Result<()> {
        self.text(name);
        serde_json::to_writer(&mut self.0, value)
    }

    fn maybe(&mut self, name: &str, value: Option<&(impl Serialize + ?Sized)>) -> serde_json::Result<()> {
        value.map_or(Ok(()), |value| self.put(name, value))
    }

    /// A text without anything to escape: identifiers have none of it.
    fn plain(&mut self, name: &str, text: &str) {
        debug_assert!(text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\'), "{text}");
        for piece in [name, "\"", text, "\""] {
            self.text(piece);
        }
    }

    fn uuid(&mut self, name: &str, id: Uuid) {
        self.plain(name, id.hyphenated().encode_lower(&mut Uuid::encode_buffer()));
    }
}
