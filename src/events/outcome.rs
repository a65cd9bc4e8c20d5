//! The results for the caller of events that were decided.

use super::publish_decision::EventOutcome;
use super::removed::first_stored;
use crate::ledger::Ledger;
use contract::{AggregateSequence, BatchOutcome, PublishOutcome, PublishedEvent, Result, StoredEvent};
use log::Record;

/// What the response says about a submission, besides its outcome.
#[derive(Debug, Clone, Default)]
pub(super) struct SubmissionNotes {
    /// Whether its schema version is deprecated.
    pub(super) deprecated: bool,
    /// The pointers to what looks like a secret.
    pub(super) secret_suspected: Vec<String>,
}

/// The results, with the stored text of new events and of duplicates.
pub(super) async fn outcomes(ledger: &Ledger, items: Vec<Result<EventOutcome>>) -> Result<BatchOutcome> {
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        outcomes.push(match item {
            Ok(EventOutcome::New { record, notes }) => Ok(created_event(record, notes)),
            Ok(EventOutcome::Before { place, payload_mismatch, notes, event }) => {
                let event = match event {
                    Some(event) => event.as_ref().clone(),
                    None => first_stored(ledger, place.topic, place.position).await,
                };
                event.map(|event| duplicate_event(event, payload_mismatch, notes))
            }
            Err(error) => Err(error),
        });
    }
    Ok(outcomes)
}

pub(super) fn created_event(record: Record, notes: SubmissionNotes) -> PublishedEvent {
    let SubmissionNotes { deprecated, secret_suspected } = notes;
    PublishedEvent { event: stored_event(record), outcome: PublishOutcome::Created, deprecated, secret_suspected }
}

pub(super) fn duplicate_event(event: StoredEvent, payload_mismatch: bool, notes: SubmissionNotes) -> PublishedEvent {
    let SubmissionNotes { deprecated, secret_suspected } = notes;
    PublishedEvent { event, outcome: PublishOutcome::Duplicate { payload_mismatch }, deprecated, secret_suspected }
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
