//! Events that were stored once and may be removed by now: what is there, and what is told of one that is not.

use super::outcome::stored_event;
use super::scan_start::before_earliest;
use crate::ledger::{Ledger, read_failed};
use contract::{Error, Kind, Position, Result, Sequence, StoredEvent};
use log::{ReadLimit, ReadRange, TopicNumber};

/// The event that a topic was given first under some key, at `position`.
pub(super) async fn first_stored(ledger: &Ledger, topic: TopicNumber, position: Position) -> Result<StoredEvent> {
    let range = ReadRange::All(Position(position.0 - 1));
    let one = ReadLimit { records: 1, bytes: usize::MAX };
    let page = ledger.log().read_committed(range, one).await.map_err(read_failed)?;
    match page.into_iter().next() {
        Some(record) if record.header.position == position => Ok(stored_event(record)),
        _ => {
            let detail = "This event was stored before, and retention has removed it since; it is not stored again.";
            Err(removed(ledger, topic, detail).await)
        }
    }
}

/// The refusal of something that needs an event which retention has removed, with where the topic begins by now.
pub(crate) async fn removed(ledger: &Ledger, topic: TopicNumber, detail: &'static str) -> Error {
    let error = Error::new(Kind::Trimmed, detail);
    match before_earliest(ledger, topic).await {
        Ok(offset) => error.with_earliest(Sequence::from(offset).next()),
        Err(unreadable) => error.with_source(unreadable),
    }
}
