//! The event of a dead letter: the one that it names, or a copy of it that is still stored.
//!
//! - A republished copy is claimed under its original's sequence, and the letter names that. Retention may have removed the
//!   original since.

use crate::events::stored_at;
use crate::ledger::{Ledger, StoredDeadLetter, read_failed};
use contract::{Result, StoredEvent};
use log::{RecordQuery, TopicNumber};

/// The event of a dead letter; `None` if it is not stored any more.
pub(super) async fn event_of(ledger: &Ledger, letter: &StoredDeadLetter) -> Result<Option<StoredEvent>> {
    let stored = stored_at(ledger, TopicNumber(letter.number), letter.sequence).await?;
    match stored.filter(|event| event.sequence == letter.sequence) {
        // A job is delivered from the place of its own event.
        None if letter.job.is_none() => first_copy(ledger, letter).await,
        stored => Ok(stored),
    }
}

/// The first stored copy of a removed event.
async fn first_copy(ledger: &Ledger, letter: &StoredDeadLetter) -> Result<Option<StoredEvent>> {
    let first = ledger.log().find(RecordQuery::Id(letter.event.as_u128())).await.map_err(read_failed)?;
    let Some(header) = first.filter(|header| header.topic == TopicNumber(letter.number)) else { return Ok(None) };
    let stored = stored_at(ledger, header.topic, header.sequence).await?;
    let is_copy = |event: &StoredEvent| event.event().is_ok_and(|event| event.republish_of == Some(letter.sequence));
    Ok(stored.filter(is_copy))
}
