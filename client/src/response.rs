//! Reading responses into the contract's types. An event's text is a slice of the response, not a copy.

use crate::event_stream::StreamedEvent;
use crate::problem;
use crate::transport::HttpResponse;
use bytes::Bytes;
use contract::{
    Aggregate, AggregateEvents, AggregateSequence, BatchOutcome, Claim, ClaimOutcome, Error, EventPage, Kind, LogPage,
    NewSecret, Offset, Page, Position, PublishOutcome, PublishedEvent, RegisterOutcome, Result, Sequence, StoredEvent,
    SubscriptionWithSecret, Timestamp,
};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use uuid::Uuid;

/// Reads a response.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(unreadable)
}

/// The envelope of consumers and batches.
#[derive(Deserialize)]
pub(crate) struct DataBody<T> {
    pub(crate) data: T,
}

/// A page of a list; the rows of topics and segments have names of their own.
#[derive(Deserialize)]
pub(crate) struct ListBody<T> {
    #[serde(alias = "topics", alias = "segments")]
    items: Vec<T>,
    page_info: PageInfo,
}

#[derive(Deserialize)]
struct PageInfo {
    next_cursor: Option<String>,
    prev_cursor: Option<String>,
}

impl<T> ListBody<T> {
    pub(crate) fn page(self) -> Result<Page<T>> {
        let PageInfo { next_cursor, prev_cursor } = self.page_info;
        let cursor = |text: Option<String>| text.map(|text| text.parse()).transpose();
        Ok(Page { items: self.items, next: cursor(next_cursor)?, prev: cursor(prev_cursor)? })
    }
}

/// A list that is not paged.
pub(crate) fn items<T: DeserializeOwned>(body: &[u8]) -> Result<Vec<T>> {
    #[derive(Deserialize)]
    struct ItemsBody<T> {
        items: Vec<T>,
    }
    parse::<ItemsBody<T>>(body).map(|list| list.items)
}

/// A subscription with its secret, if the broker made one. A stored reply that is returned again holds no secret.
pub(crate) fn created_subscription(body: &[u8]) -> Result<SubscriptionWithSecret> {
    let (subscription, secret) = (parse(body)?, parse::<NewSecret>(body)?);
    Ok(SubscriptionWithSecret { subscription, secret: (!secret.secret.is_empty()).then_some(secret) })
}

/// The outcome of a registration: created now, or registered before.
pub(crate) fn registered<T: DeserializeOwned>(answer: &HttpResponse) -> Result<RegisterOutcome<T>> {
    let thing = parse(&answer.body)?;
    Ok(if answer.status == StatusCode::CREATED {
        RegisterOutcome::Created(thing)
    } else {
        RegisterOutcome::Unchanged(thing)
    })
}

/// One result of a batch.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BatchItem<'a> {
    status: u16,
    #[serde(borrow, default)]
    event: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(default)]
    payload_mismatch: bool,
    #[serde(default)]
    deprecated: bool,
    #[serde(default)]
    secret_suspected: Vec<String>,
}

/// The results of a batch of events.
pub(crate) fn batch(body: &Bytes) -> Result<BatchOutcome> {
    #[derive(Deserialize)]
    struct BatchResults<'a> {
        #[serde(borrow)]
        results: Vec<BatchItem<'a>>,
    }
    let DataBody { data: BatchResults { results } } = serde_json::from_slice(body).map_err(unreadable)?;
    let published = |one: BatchItem<'_>| {
        let BatchItem { status, event, error, payload_mismatch, deprecated, secret_suspected } = one;
        let Some(event) = event else { return Err(refused(status, error)) };
        let outcome =
            if status == 201 { PublishOutcome::Created } else { PublishOutcome::Duplicate { payload_mismatch } };
        let event = stored_event(body.slice_ref(event.get().as_bytes()))?;
        Ok(PublishedEvent { event, outcome, deprecated, secret_suspected })
    };
    Ok(results.into_iter().map(published).collect())
}

/// The JSON pointers in the header `Secret-Suspected` of a response: where the submission seems to contain a secret.
#[must_use]
pub fn suspected_pointers(headers: &HeaderMap) -> Vec<String> {
    let value = headers.get("secret-suspected").and_then(|value| value.to_str().ok());
    value.map(|value| value.split(", ").map(percent_decoded).collect()).unwrap_or_default()
}

fn percent_decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        let decoded = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(decoded.unwrap_or(*first));
        rest = if decoded.is_some() { behind.get(2..).unwrap_or_default() } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The results of a batch, which must be as many as its items.
pub(crate) fn check_count<T>(results: Vec<T>, items: usize) -> Result<Vec<T>> {
    match results.len() == items {
        true => Ok(results),
        false => {
            let detail = format!("The broker's response has {} results for {items} items.", results.len());
            Err(Error::new(Kind::Unavailable, detail))
        }
    }
}

/// The results of a batch of claims.
pub(crate) fn outcomes(body: &Bytes) -> Result<Vec<Result<ClaimOutcome>>> {
    several(body)
}

/// The results of a batch of completions.
pub(crate) fn claims(body: &Bytes) -> Result<Vec<Result<Claim>>> {
    #[derive(Deserialize)]
    struct CompletedItem {
        claim: Claim,
    }
    let done = several::<CompletedItem>(body)?;
    Ok(done.into_iter().map(|done| Ok(done?.claim)).collect())
}

fn several<T: DeserializeOwned>(body: &Bytes) -> Result<Vec<Result<T>>> {
    #[derive(Deserialize)]
    struct ClaimResults<'a> {
        #[serde(borrow)]
        results: Vec<&'a RawValue>,
    }
    let ClaimResults { results } = serde_json::from_slice(body).map_err(unreadable)?;
    let done = |text: &RawValue| {
        let BatchItem { status, error, .. } = serde_json::from_str(text.get()).map_err(unreadable)?;
        if status == 200 { parse(text.get().as_bytes()) } else { Err(refused(status, error)) }
    };
    Ok(results.into_iter().map(done).collect())
}

fn refused(status: u16, error: Option<&RawValue>) -> Error {
    problem::read(status, error.map_or(b"", |error| error.get().as_bytes()), None)
}

/// The state of an aggregate.
pub(crate) fn aggregate(body: &Bytes) -> Result<Aggregate> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct AggregateBody<'a> {
        aggregate_sequence: AggregateSequence,
        sequence: Sequence,
        #[serde(borrow)]
        last_event: Option<&'a RawValue>,
    }
    let AggregateBody { aggregate_sequence, sequence, last_event } =
        serde_json::from_slice(body).map_err(unreadable)?;
    let last_event = last_event.map(|event| stored_event(body.slice_ref(event.get().as_bytes()))).transpose()?;
    Ok(Aggregate { aggregate_sequence, sequence, last_event })
}

/// A page of an aggregate's events.
pub(crate) fn aggregate_events(body: &Bytes) -> Result<AggregateEvents> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct AggregatePageBody<'a> {
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
        next_after: AggregateSequence,
        aggregate_sequence: AggregateSequence,
    }
    let AggregatePageBody { items, next_after, aggregate_sequence } =
        serde_json::from_slice(body).map_err(unreadable)?;
    Ok(AggregateEvents { items: stored_events(body, &items)?, next_after, aggregate_sequence })
}

/// A page of a topic.
pub(crate) fn event_page(body: &Bytes) -> Result<EventPage> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct EventPageBody<'a> {
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
        next_offset: Offset,
        tail: Offset,
    }
    let EventPageBody { items, next_offset, tail } = serde_json::from_slice(body).map_err(unreadable)?;
    Ok(EventPage { items: stored_events(body, &items)?, claims: claims_of_items(&items), next_offset, tail })
}

/// The claims of events that were assigned to a member of a shared group.
fn claims_of_items(items: &[&RawValue]) -> Vec<Claim> {
    #[derive(Deserialize)]
    struct ClaimedItem {
        claim: Claim,
    }
    let claims = items.iter().map_while(|item| serde_json::from_str::<ClaimedItem>(item.get()).ok());
    claims.map(|handed| handed.claim).collect()
}

/// A page of the default log.
pub(crate) fn log_page(body: &Bytes) -> Result<LogPage> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct LogPageBody<'a> {
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
        next_position: Position,
        tail: Position,
    }
    let LogPageBody { items, next_position, tail } = serde_json::from_slice(body).map_err(unreadable)?;
    Ok(LogPage { items: stored_events(body, &items)?, next_position, tail })
}

fn stored_events(body: &Bytes, items: &[&RawValue]) -> Result<Vec<StoredEvent>> {
    items.iter().map(|item| stored_event(body.slice_ref(item.get().as_bytes()))).collect()
}

/// An event of a stream, with its claim if it was assigned to a member of a shared group.
pub(crate) fn streamed_event(text: Bytes) -> Result<StreamedEvent> {
    #[derive(Deserialize)]
    struct StreamedClaim {
        claim: Option<Claim>,
    }
    let StreamedClaim { claim } = parse(&text)?;
    Ok(StreamedEvent { event: stored_event(text)?, claim })
}

/// An event from its text.
pub(crate) fn stored_event(text: Bytes) -> Result<StoredEvent> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct AssignedMembers {
        position: Position,
        sequence: Sequence,
        #[serde(default)]
        aggregate_sequence: AggregateSequence,
        id: Uuid,
        created_at: Timestamp,
    }
    let AssignedMembers { position, sequence, aggregate_sequence, id, created_at } = parse(&text)?;
    Ok(StoredEvent { position, sequence, aggregate_sequence, id, created_at, text })
}

/// The response is not that of a broker, or of a version that this client does not know.
fn unreadable(error: serde_json::Error) -> Error {
    Error::new(Kind::Unavailable, "The broker's response cannot be read.").with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    #[test]
    fn the_pointers_of_a_header_are_those_of_the_broker() {
        let mut headers = HeaderMap::new();
        assert_eq!(suspected_pointers(&headers), Vec::<String>::new());
        let value = "/data/aws/key, /data/a%2Cb%20%C3%A9%25/x~1y, /data/%";
        headers.insert("secret-suspected", HeaderValue::from_static(value));
        assert_eq!(suspected_pointers(&headers), ["/data/aws/key", "/data/a,b é%/x~1y", "/data/%"]);
    }
}
