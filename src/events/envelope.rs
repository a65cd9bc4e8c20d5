//! The event's JSON, written once: everything the producer sent, with a gap for the members that the log assigns.

use bytes::Bytes;
use contract::{NewEvent, Sequence, Timestamp, TopicId};
use serde::Serialize;
use uuid::Uuid;

/// An event's JSON without its assigned members.
pub(crate) struct EventText {
    /// `{"id":…,"type":…,"topic":…` and then `,"occurredAt":…,…,"data":…}`.
    pub(crate) bytes: Bytes,
    /// Where the assigned members are inserted.
    pub(crate) splice: usize,
}

/// Writes `event` as it is served.
pub(crate) fn write(
    event: &NewEvent,
    id: Uuid,
    topic: &TopicId,
    occurred_at: Timestamp,
    data_version: Option<&str>,
    republish_of: Option<Sequence>,
) -> serde_json::Result<EventText> {
    let mut out = EnvelopeMembers(Vec::with_capacity(640 + event.data.get().len()));
    out.uuid("{\"id\":", id);
    out.put_plain(",\"type\":", event.event_type.as_str());
    out.put_plain(",\"topic\":", topic.as_str());
    let splice = out.0.len();
    out.put(",\"occurredAt\":", &occurred_at)?;
    out.put(",\"source\":", &event.source)?;
    out.put_optional(",\"cloudEventId\":", event.cloud_event_id.as_ref())?;
    out.put_optional(",\"dataContentType\":", event.data_content_type.as_ref())?;
    out.put_optional(",\"subject\":", event.subject.as_ref())?;
    if let Some(subject_type) = &event.subject_type {
        out.put_plain(",\"subjectType\":", subject_type.as_str());
    }
    if let Some(tenant) = event.tenant {
        out.uuid(",\"tenant\":", tenant);
    }
    out.put_optional(",\"dataVersion\":", data_version)?;
    out.put_optional(",\"traceParent\":", event.trace_parent.as_ref())?;
    out.put_optional(",\"correlationId\":", event.correlation_id.as_ref())?;
    out.put_optional(",\"causationId\":", event.causation_id.as_ref())?;
    out.put_optional(",\"messageGroup\":", event.message_group.as_ref())?;
    out.put_optional(",\"deduplicationId\":", event.deduplication_id.as_ref())?;
    out.put_optional(",\"requestId\":", event.request_id.as_ref())?;
    out.put_optional(",\"actor\":", event.actor.as_ref())?;
    out.put_optional(",\"republishOf\":", republish_of.as_ref())?;
    out.put_optional(",\"context\":", Some(&event.context).filter(|context| !context.is_empty()))?;
    // `data` comes last, because people look for it at the end.
    out.text(",\"data\":");
    out.text(event.data.get());
    out.text("}");
    Ok(EventText { bytes: out.0.into(), splice })
}

/// The members of an object. A name includes all text between it and the value before.
struct EnvelopeMembers(Vec<u8>);

impl EnvelopeMembers {
    fn text(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn put(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> serde_json::Result<()> {
        self.text(name);
        serde_json::to_writer(&mut self.0, value)
    }

    fn put_optional(&mut self, name: &str, value: Option<&(impl Serialize + ?Sized)>) -> serde_json::Result<()> {
        value.map_or(Ok(()), |value| self.put(name, value))
    }

    /// A text that needs no escaping, such as an identifier.
    fn put_plain(&mut self, name: &str, text: &str) {
        debug_assert!(text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\'), "{text}");
        for piece in [name, "\"", text, "\""] {
            self.text(piece);
        }
    }

    fn uuid(&mut self, name: &str, id: Uuid) {
        self.put_plain(name, id.hyphenated().encode_lower(&mut Uuid::encode_buffer()));
    }
}
