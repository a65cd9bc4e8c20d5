//! The `data` of large events while their request waits for the writer: held once, as a part of the prepared text.
//!
//! - The text of an event has its `data` in it. The event as it came in is needed again only if it has to be prepared again,
//!   which is rare; until then a copy of a large `data` is not kept.
//! - Small events keep theirs: nothing is allocated or copied for them.

use super::prepare::{PreparedEvent, PublishRefusal};
use super::publish::SubmittedEvent;
use bytes::Bytes;
use contract::{Error, Kind, Result};
use serde_json::value::RawValue;

/// From this size on, `data` is released.
const LARGE_BYTES: usize = 16 * 1024;

/// What was released of a request.
pub(super) struct ReleasedData(Vec<ReleasedEvent>);

struct ReleasedEvent {
    index: usize,
    /// Its text, up to the end of `data`; it shares the bytes that wait for the writer.
    text: Bytes,
    data_bytes: usize,
}

impl ReleasedData {
    /// Drops the `data` of large events whose text is in `items`.
    pub(super) fn release(events: &mut [SubmittedEvent], items: &[Result<PreparedEvent, PublishRefusal>]) -> Self {
        let release =
            |(index, (event, item)): (usize, (&mut SubmittedEvent, &Result<PreparedEvent, PublishRefusal>))| {
                let (Ok(event), Ok(prepared)) = (event, item) else { return None };
                let data_bytes = event.data.get().len();
                if data_bytes < LARGE_BYTES {
                    return None;
                }
                // `data` is the text's last member.
                let text = &prepared.draft.text;
                let text = text.slice(..text.len().saturating_sub(1));
                if !text.ends_with(event.data.get().as_bytes()) {
                    return None;
                }
                event.data = RawValue::NULL.to_owned();
                Some(ReleasedEvent { index, text, data_bytes })
            };
        Self(events.iter_mut().zip(items).enumerate().filter_map(release).collect())
    }

    /// Puts it back, for the events to be prepared again.
    pub(super) fn restore(self, events: &mut [SubmittedEvent]) -> Result<()> {
        for ReleasedEvent { index, text, data_bytes } in self.0 {
            let data = text.get(text.len() - data_bytes..).and_then(|data| std::str::from_utf8(data).ok());
            let data = data.and_then(|data| RawValue::from_string(data.to_owned()).ok()).ok_or_else(lost)?;
            if let Some(Ok(event)) = events.get_mut(index) {
                event.data = data;
            }
        }
        Ok(())
    }
}

#[cold]
fn lost() -> Error {
    Error::new(Kind::Unavailable, "The event could not be prepared again; send it once more.")
}
