//! Answers, read into the contract's types. An event's text is a piece of the answer's bytes, not a copy.

use bytes::Bytes;
use contract::{
    AggregateSequence, Claim, Error, EventPage, Kind, LogPage, Offset, Position, Result, Sequence, StoredEvent,
    Timestamp,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use uuid::Uuid;

/// A whole answer.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(unreadable)
}

/// A page of a topic.
pub(crate) fn event_page(body: &Bytes) -> Result<EventPage> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Page<'a> {
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
        next_offset: Offset,
        tail: Offset,
    }
    let Page { items, next_offset, tail } = serde_json::from_slice(body).map_err(unreadable)?;
    Ok(EventPage { items: stored_events(body, &items)?, claims: claims(&items), next_offset, tail })
}

/// The claims to events that were handed to a member of a group.
fn claims(items: &[&RawValue]) -> Vec<Claim> {
    #[derive(Deserialize)]
    struct Handed {
        claim: Claim,
    }
    let claims = items.iter().map_while(|item| serde_json::from_str::<Handed>(item.get()).ok());
    claims.map(|handed| handed.claim).collect()
}

/// A page of the log.
pub(crate) fn log_page(body: &Bytes) -> Result<LogPage> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Page<'a> {
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
        next_position: Position,
        tail: Position,
    }
    let Page { items, next_position, tail } = serde_json::from_slice(body).map_err(unreadable)?;
    Ok(LogPage { items: stored_events(body, &items)?, next_position, tail })
}

fn stored_events(body: &Bytes, items: &[&RawValue]) -> Result<Vec<StoredEvent>> {
    items.iter().map(|item| stored_event(body.slice_ref(item.get().as_bytes()))).collect()
}

/// One event, by its text.
pub(crate) fn stored_event(text: Bytes) -> Result<StoredEvent> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Assigned {
        position: Position,
        sequence: Sequence,
        #[serde(default)]
        aggregate_sequence: AggregateSequence,
        id: Uuid,
        created_at: Timestamp,
    }
    let Assigned { position, sequence, aggregate_sequence, id, created_at } = parse(&text)?;
    Ok(StoredEvent { position, sequence, aggregate_sequence, id, created_at, text })
}

/// Not the broker's answer, or one of a broker this client does not know.
fn unreadable(error: serde_json::Error) -> Error {
    Error::new(Kind::Unavailable, "The broker's answer cannot be read.").with_source(error)
}
