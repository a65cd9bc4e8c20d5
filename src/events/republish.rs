//! Republishing: storing a copy of a stored event.
//!
//! - A copy has the id of the first event and names its sequence (`republishOf`). It has no idempotency key: it is never
//!   a duplicate, and a retry of the first submission still gets the first event.
//! - It is not validated again, since it was valid by the rules of its time. An event that was removed since it was read
//!   is not stored again: its type may have been deleted.
//! - In a topic that keeps the latest event of each aggregate, it is a new event with an id of its own, caused by the
//!   last one.

use super::envelope;
use crate::ledger::{Command, Decision, EventDraft, RegisteredTopic};
use contract::{Error, Event, Kind, NewEvent, Result, Sequence};
use log::Record;
use serde::Deserialize;
use std::sync::Arc;
use uuid::Uuid;

/// The sequence of the event that a record is a copy of, if it is one.
pub(crate) fn original_of(record: &Record) -> Option<Sequence> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct RepublishMember {
        republish_of: Option<Sequence>,
    }
    // Copies have no idempotency key, so most events need not be parsed.
    record.header.facets.filter(|facets| facets.idempotency.is_none())?;
    serde_json::from_slice::<RepublishMember>(&record.body).ok()?.republish_of
}

/// How an event is stored again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RepublishAs {
    /// As the same event.
    Same,
    /// As the latest state of its aggregate, if it still is.
    State,
}

/// Stores copies of events of one topic.
pub(crate) struct RepublishEvents {
    topic: Arc<RegisteredTopic>,
    items: Vec<RepublishItem>,
}

struct RepublishItem {
    draft: EventDraft,
    /// The sequence of the event.
    sequence: Sequence,
    /// Whether it must still be the last event of its aggregate.
    must_be_last: bool,
}

impl RepublishEvents {
    /// Prepares copies of these records.
    pub(crate) fn of(topic: &Arc<RegisteredTopic>, records: &[Record], how: RepublishAs) -> Result<Self> {
        let items = records.iter().filter_map(|record| item(topic, record, how).transpose());
        Ok(Self { topic: Arc::clone(topic), items: items.collect::<Result<_>>()? })
    }
}

fn item(topic: &RegisteredTopic, record: &Record, how: RepublishAs) -> Result<Option<RepublishItem>> {
    let Some(facets) = record.header.facets else { return Ok(None) };
    let unreadable = |error| {
        Error::new(Kind::Unavailable, "A stored event could not be read; see the server's log.").with_source(error)
    };
    let stored: Event = serde_json::from_slice(&record.body).map_err(unreadable)?;
    let first = stored.republish_of.unwrap_or(stored.sequence);
    let (id, occurred_at, version) = (stored.id, stored.occurred_at, stored.data_version.clone());
    let mut event = NewEvent::from(stored);
    let (id, republish_of) = match how {
        RepublishAs::Same => (id, Some(first)),
        RepublishAs::State => {
            event.causation_id = Some(id.to_string());
            event.cloud_event_id = None;
            (Uuid::new_v4(), None)
        }
    };
    let name = &topic.topic.definition.id;
    let written =
        envelope::write(&event, id, name, occurred_at, version.as_deref(), republish_of).map_err(unreadable)?;
    let draft = EventDraft {
        topic: topic.number,
        id: id.as_u128(),
        type_tag: facets.type_tag,
        subject_type_tag: facets.subject_type_tag,
        tenant: facets.tenant,
        aggregate: facets.aggregate.map(|mark| mark.key),
        idempotency: None,
        text: written.bytes,
        splice: written.splice,
    };
    Ok(Some(RepublishItem { draft, sequence: record.header.sequence, must_be_last: how == RepublishAs::State }))
}

impl Command for RepublishEvents {
    /// How many were stored.
    type Answer = u64;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<u64> {
        if decision.registry().topic_numbered(self.topic.number).is_none() {
            return Err(Error::not_found("topic"));
        }
        let mut count = 0;
        let trimmed = decision.durable().trimmed(self.topic.number);
        for RepublishItem { draft, sequence, must_be_last } in &self.items {
            if *sequence <= trimmed || *must_be_last && !is_last(draft.aggregate, *sequence, decision)? {
                continue;
            }
            decision.add_event(draft)?;
            count += 1;
        }
        Ok(count)
    }

    fn bytes(&self) -> usize {
        self.items.iter().map(|item| item.draft.text.len() + size_of::<RepublishItem>()).sum()
    }
}

/// Whether the event with this sequence is the last of its aggregate; `false` without an aggregate.
fn is_last(aggregate: Option<u128>, sequence: Sequence, decision: &Decision<'_>) -> Result<bool> {
    let Some(key) = aggregate else { return Ok(false) };
    Ok(decision.head(key)?.is_some_and(|head| head.sequence == sequence))
}
