//! The results for the caller of events that were decided.

use super::publish_decision::EventOutcome;
use super::removed::first_stored;
use crate::ledger::Ledger;
use contract::{AggregateSequence, BatchOutcome, PublishOutcome, PublishedEvent, Result, StoredEvent};
use log::Record;

/// The results, with the stored text of new events and of duplicates.
pub(super) async fn outcomes(ledger: &Ledger, items: Vec<Result<EventOutcome>>) -> Result<BatchOutcome> {
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        outcomes.push(match item {
            Ok(EventOutcome::New { record, deprecated }) => Ok(created_event(record, deprecated)),
            Ok(EventOutcome::Before { place, payload_mismatch, deprecated, event }) => {
                let event = match event {
                    Some(event) => event.as_ref().clone(),
                    None => first_stored(ledger, place.topic, place.position).await,
                };
                event.map(|event| duplicate_event(event, payload_mismatch, deprecated))
            }
            Err(error) => Err(error),
        });
    }
    Ok(outcomes)
}

pub(super) fn created_event(record: Record, deprecated: bool) -> PublishedEvent {
    PublishedEvent { event: stored_event(record), outcome: PublishOutcome::Created, deprecated }
}

pub(super) const fn duplicate_event(event: StoredEvent, payload_mismatch: bool, deprecated: bool) -> PublishedEvent {
    PublishedEvent { event, outcome: PublishOutcome::Duplicate { payload_mismatch }, deprecated }
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
