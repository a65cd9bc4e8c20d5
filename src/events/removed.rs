//! Events that may have been removed since they were stored: reading them, and the refusal if they are gone.

use super::outcome::stored_event;
use super::scan_start::before_earliest;
use crate::ledger::{Ledger, read_failed};
use contract::{Error, Kind, Position, Result, Sequence, StoredEvent};
use log::{ReadLimit, ReadRange, TopicNumber};

/// Reads the event at `position`, which was stored first under some key.
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

/// The refusal of a request that needs a removed event; it names the first sequence that the topic still has.
pub(crate) async fn removed(ledger: &Ledger, topic: TopicNumber, detail: &'static str) -> Error {
    let error = Error::new(Kind::Trimmed, detail);
    match before_earliest(ledger, topic).await {
        Ok(offset) => error.with_earliest(Sequence::from(offset).next()),
        Err(unreadable) => error.with_source(unreadable),
    }
}
