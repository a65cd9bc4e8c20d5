//! The `data` of large events, held once while their request waits for the writer: as a part of the prepared text.
//!
//! - The text of an event contains its `data`. The submitted event is needed again only if it must be prepared again,
//!   which is rare; until then no copy of a large `data` is held.
//! - Small events keep their `data`: nothing is allocated or copied for them.

use super::prepare::{PreparedEvent, PublishRefusal};
use super::publish::SubmittedEvent;
use bytes::Bytes;
use contract::{Error, Kind, Result};
use serde_json::value::RawValue;

/// The smallest `data` that is released, in bytes.
const LARGE_BYTES: usize = 16 * 1024;

/// The released `data` of a request.
pub(super) struct ReleasedData(Vec<ReleasedEvent>);

struct ReleasedEvent {
    index: usize,
    /// Its text, up to the end of `data`; it shares its bytes with the command that waits for the writer.
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

    /// Restores the `data`, so that the events can be prepared again.
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
    Error::new(Kind::Unavailable, "The event could not be prepared again; send it again.")
}
