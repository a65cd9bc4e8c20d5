//! What a caller is answered for events that were decided.

use super::publish::Stored;
use super::removed::first_stored;
use crate::ledger::Ledger;
use contract::{AggregateSequence, BatchOutcome, Outcome, Published, Result, StoredEvent};
use log::Record;

/// What the caller is told, with the stored event's text for new ones and old ones alike.
pub(super) async fn outcomes(ledger: &Ledger, items: Vec<Result<Stored>>) -> Result<BatchOutcome> {
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        outcomes.push(match item {
            Ok(Stored::New { record, deprecated }) => Ok(created(record, deprecated)),
            Ok(Stored::Before { place, payload_mismatch, deprecated, event }) => {
                let event = match event {
                    Some(event) => event.as_ref().clone(),
                    None => first_stored(ledger, place.topic, place.position).await,
                };
                event.map(|event| repeated(event, payload_mismatch, deprecated))
            }
            Err(error) => Err(error),
        });
    }
    Ok(outcomes)
}

pub(super) fn created(record: Record, deprecated: bool) -> Published {
    Published { event: stored_event(record), outcome: Outcome::Created, deprecated }
}

pub(super) const fn repeated(event: StoredEvent, payload_mismatch: bool, deprecated: bool) -> Published {
    Published { event, outcome: Outcome::Duplicate { payload_mismatch }, deprecated }
}

/// The contract's view of a record.
pub(crate) fn stored_event(record: Record) -> StoredEvent {
    let header = record.header;
    let aggregate = header.facets.and_then(|facets| facets.aggregate);
    StoredEvent {
        position: header.position,
        sequence: header.sequence,
        aggregate_sequence: aggregate.map_or(AggregateSequence::ZERO, |aggregate| aggregate.sequence),
        id: uuid::Uuid::from_u128(header.id),
        created_at: contract::Timestamp::from_millis(header.time),
        text: record.body,
    }
}
