//! Order: which other events of an aggregate must be known before one of them can be claimed.
//!
//! - A decision does not read the log. If the state is not sufficient it requests a read ([`NeededRead`]); the caller's task
//!   reads, and the claim is decided again.
//! - What was read stays true: events never change, and a finished one stays finished. Only later events may be missing, and
//!   the decision can tell ([`LaterEvents::scanned`]).
//! - A republished copy is the same event as its original, and has the original's place in the order. If retention has removed
//!   the original, the copy has its own place.

use super::claim_decision::ClaimRequest;
use crate::events::original_of;
use crate::ledger::{ClaimKey, ClaimSlot, ClaimState, DecidedClaims, Decision, GroupKey, Ledger, read_failed};
use contract::{AggregateSequence, ClaimOrder, Error, Kind, Result, Sequence, limits};
use log::{AggregateMark, LogError, ReadLimit, ReadRange, RecordHeader};
use std::collections::HashMap;

/// How many events of an aggregate are read at a time.
const PAGE: ReadLimit = ReadLimit { records: 64, bytes: 4 * limits::EVENT_BYTES_MAX };

/// What was read of an aggregate for one claim.
#[derive(Debug, Clone, Default)]
pub(super) struct AggregateReads {
    pub(super) later: Option<LaterEvents>,
    pub(super) preceding: Option<Vec<AggregateEvent>>,
}

/// Events of the aggregate after the requested one.
#[derive(Debug, Clone)]
pub(super) struct LaterEvents {
    /// The sequences that identify them.
    keys: Vec<Sequence>,
    /// All of them up to this sequence of the topic are in `keys`.
    scanned: Sequence,
}

/// An event of an aggregate.
#[derive(Debug, Clone, Copy)]
pub(super) struct AggregateEvent {
    /// Where it is stored.
    sequence: Sequence,
    number: AggregateSequence,
    /// The sequence that identifies it: its original's, if it is a copy.
    key: Sequence,
}

impl AggregateEvent {
    fn of(header: &RecordHeader) -> Option<Self> {
        let number = header.facets?.aggregate?.sequence;
        Some(Self { sequence: header.sequence, number, key: header.sequence })
    }

    fn is_copy(&self) -> bool {
        self.key != self.sequence
    }
}

/// What a decision needs to know and does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NeededRead {
    Later,
    Preceding,
}

/// Whether the order allows an event to be worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OrderVerdict {
    /// It does.
    Free,
    /// A later event is finished.
    Overtaken,
    /// A preceding event is not finished; the time is when that one can be tried again, if it is known.
    Waits(Option<i64>),
    /// The state is not sufficient.
    NeedsRead(NeededRead),
}

/// Whether the order allows this event to be worked on now.
pub(super) fn order_verdict(
    request: &ClaimRequest,
    order: ClaimOrder,
    decision: &Decision<'_>,
) -> Result<OrderVerdict> {
    let Some(aggregate) = request.aggregate else { return Ok(OrderVerdict::Free) };
    match order {
        ClaimOrder::Latest => latest(request, aggregate, decision),
        ClaimOrder::Gapless => Ok(gapless(request, aggregate, decision)),
    }
}

/// The state alone is sufficient in the usual cases: the event is the last of its aggregate, or nothing later in the whole
/// topic is finished.
fn latest(request: &ClaimRequest, aggregate: AggregateMark, decision: &Decision<'_>) -> Result<OrderVerdict> {
    let ClaimKey { handler, topic, sequence } = &request.key;
    let is_last = !request.is_original_removed
        && decision.head(aggregate.key)?.is_none_or(|head| head.aggregate_sequence <= aggregate.sequence);
    let claims = decision.claims();
    let highest = claims.highest(handler, *topic);
    if is_last || highest <= *sequence {
        return Ok(OrderVerdict::Free);
    }
    let Some(later) = &request.reads.later else { return Ok(OrderVerdict::NeedsRead(NeededRead::Later)) };
    let is_finished = |key: &Sequence| claims.is_finished(&request.sibling(*key));
    Ok(match later.keys.iter().any(is_finished) {
        true => OrderVerdict::Overtaken,
        false if highest <= later.scanned => OrderVerdict::Free,
        false => OrderVerdict::NeedsRead(NeededRead::Later),
    })
}

fn gapless(request: &ClaimRequest, aggregate: AggregateMark, decision: &Decision<'_>) -> OrderVerdict {
    if aggregate.sequence.get() <= 1 {
        return OrderVerdict::Free;
    }
    let Some(preceding) = &request.reads.preceding else { return OrderVerdict::NeedsRead(NeededRead::Preceding) };
    let verdicts = preceding.iter().map(|event| preceding_verdict(request, *event, decision));
    verdicts.fold(OrderVerdict::Free, |worst, verdict| if worst == OrderVerdict::Free { verdict } else { worst })
}

/// Whether a preceding event is finished or committed, and if not, when it can be tried again.
fn preceding_verdict(request: &ClaimRequest, event: AggregateEvent, decision: &Decision<'_>) -> OrderVerdict {
    let (key, claims) = (request.sibling(event.key), decision.claims());
    // Retention may have removed it since it was read.
    let is_removed = event.sequence <= decision.durable().trimmed(request.topic.number);
    match claims.slot(&key) {
        None if is_removed => OrderVerdict::Free,
        None if is_committed(request, event.sequence, decision) => OrderVerdict::Free,
        Some(ClaimSlot::Finished(_)) => OrderVerdict::Free,
        None if is_finished_in_place(request, event, &claims) => OrderVerdict::Free,
        None => OrderVerdict::Waits(None),
        Some(ClaimSlot::Open(row)) => match row.standing {
            ClaimState::Live { until: at } | ClaimState::Failed { retry_at: at } if at > decision.now() => {
                OrderVerdict::Waits(Some(at))
            }
            _ => OrderVerdict::Waits(None),
        },
    }
}

/// Shared groups of older versions claimed a copy by its own sequence.
fn is_finished_in_place(request: &ClaimRequest, event: AggregateEvent, claims: &DecidedClaims<'_>) -> bool {
    event.is_copy() && claims.is_finished(&request.sibling(event.sequence))
}

/// Whether the group named like the handler has committed an event: it started after it, or was moved there.
fn is_committed(request: &ClaimRequest, sequence: Sequence, decision: &Decision<'_>) -> bool {
    let (group, topic) = (request.key.handler.clone(), request.topic.topic.definition.id.clone());
    decision.consumers().offset(&GroupKey { group, topic }).is_some_and(|offset| Sequence::from(offset) >= sequence)
}

/// Reads what a decision needs.
pub(super) async fn read(ledger: &Ledger, request: &mut ClaimRequest, need: NeededRead) -> Result<()> {
    let Some(aggregate) = request.aggregate else { return Ok(()) };
    match need {
        NeededRead::Preceding => request.reads.preceding = Some(preceding(ledger, request, aggregate).await?),
        NeededRead::Later => request.reads.later = Some(later(ledger, request, aggregate).await?),
    }
    Ok(())
}

/// The place of an original in its aggregate; `None` if it is not stored any more, or has no aggregate.
pub(super) async fn original_mark(ledger: &Ledger, request: &ClaimRequest) -> Result<Option<AggregateMark>> {
    let original = request.key.sequence;
    let range = ReadRange::Topic(request.topic.number, Sequence(original.get().saturating_sub(1)));
    let page = match ledger.log().headers(range, ReadLimit { records: 1, bytes: 0 }).await {
        Err(LogError::Trimmed(_)) => return Ok(None),
        page => page.map_err(read_failed)?,
    };
    let header = page.first().filter(|header| header.sequence == original);
    Ok(header.and_then(|header| header.facets?.aggregate))
}

/// The events that must be finished before the requested one: the one stored before it, and if that is a copy, also those
/// before it, back to the first that is not a copy. Copies that are finished are left out.
async fn preceding(ledger: &Ledger, request: &ClaimRequest, aggregate: AggregateMark) -> Result<Vec<AggregateEvent>> {
    let ClaimKey { handler, topic, .. } = &request.key;
    let (mut through, mut window, mut found) = (aggregate.sequence.get().saturating_sub(1), 1, Vec::new());
    let end = through;
    while through > 0 {
        let after = through.saturating_sub(window);
        let mut events = range(ledger, aggregate.key, (after, through)).await?;
        while let Some(event) = events.pop() {
            if event.number.get() != through {
                // What lies between was removed.
                return Ok(found);
            }
            if !event.is_copy() {
                found.push(event);
                return Ok(found);
            }
            if !ledger.claims().is_finished(handler, *topic, event.key) {
                found.push(event);
            }
            through -= 1;
        }
        if through > after {
            return Ok(found);
        }
        if end - through >= limits::SCAN_EVENTS_MAX as u64 {
            return Err(too_many(
                "Too many republished events of this aggregate lie before this one; commit an offset.",
            ));
        }
        window = PAGE.records as u64;
    }
    Ok(found)
}

/// Events of an aggregate after one number up to another, in order.
async fn range(ledger: &Ledger, aggregate: u128, (after, through): (u64, u64)) -> Result<Vec<AggregateEvent>> {
    let (mut after, mut found) = (after, Vec::new());
    while after < through {
        let records = usize::try_from(through - after).unwrap_or(PAGE.records).min(PAGE.records);
        let page = page_after(ledger, aggregate, AggregateSequence(after), records, true).await?;
        let Some(last) = page.last() else { break };
        after = last.number.get();
        found.extend(page.into_iter().filter(|event| event.number.get() <= through));
    }
    Ok(found)
}

/// Reads until an event that is finished, or until after all finished events of the topic.
async fn later(ledger: &Ledger, request: &ClaimRequest, aggregate: AggregateMark) -> Result<LaterEvents> {
    let ClaimKey { handler, topic, sequence } = &request.key;
    // Where an event belongs whose original is removed, only the sequences say: all stored events with a higher one are later.
    let mut after = if request.is_original_removed { AggregateSequence(0) } else { aggregate.sequence };
    let (mut keys, mut examined) = (Vec::new(), 0);
    while examined < limits::SCAN_EVENTS_MAX {
        // Loaded before the log is read: what is at or below it is in the log.
        let tail = request.topic.tail();
        // A copy of a later event adds nothing as long as the requested event is stored: the later one is stored, too.
        let page = page_after(ledger, aggregate.key, after, PAGE.records, request.is_original_removed).await?;
        // Only an empty page says that nothing is missing up to the tail: a short one may have reached its limit of bytes.
        let Some(last) = page.last() else { return Ok(LaterEvents { keys, scanned: tail }) };
        let through = last.sequence;
        (after, examined) = (last.number, examined + page.len());
        let claims = ledger.claims();
        let later = page.iter().map(|event| event.key).filter(|key| key > sequence);
        if let Some(finished) = later.clone().find(|key| claims.is_finished(handler, *topic, *key)) {
            return Ok(LaterEvents { keys: vec![finished], scanned: through });
        }
        keys.extend(later);
        if through > claims.highest(handler, *topic) {
            return Ok(LaterEvents { keys, scanned: through });
        }
    }
    Err(too_many("Too many later events of this aggregate lie unfinished between finished ones; finish those first."))
}

/// The next events of an aggregate. Only if copies are to be recognised, the bodies of events without an idempotency key are
/// read; a damaged one is taken for an original.
async fn page_after(
    ledger: &Ledger,
    aggregate: u128,
    after: AggregateSequence,
    records: usize,
    recognises_copies: bool,
) -> Result<Vec<AggregateEvent>> {
    let limit = ReadLimit { records, ..PAGE };
    let headers = ledger.log().headers(ReadRange::Aggregate(aggregate, after), limit).await.map_err(read_failed)?;
    let mut events: Vec<_> = headers.iter().filter_map(AggregateEvent::of).collect();
    let may_be_copy = |header: &RecordHeader| header.facets.is_some_and(|facets| facets.idempotency.is_none());
    if !recognises_copies || !headers.iter().any(may_be_copy) {
        return Ok(events);
    }
    let mut originals = HashMap::new();
    let mut unread = events.as_slice();
    while let Some(first) = unread.first() {
        let before = AggregateSequence(first.number.get().saturating_sub(1));
        let limit = ReadLimit { records: unread.len(), ..PAGE };
        let read = match ledger.log().read(ReadRange::Aggregate(aggregate, before), limit).await {
            Err(LogError::Damaged(_)) => 1,
            page => {
                let page = page.map_err(read_failed)?;
                originals.extend(page.iter().filter_map(|record| Some((record.header.sequence, original_of(record)?))));
                page.len().max(1)
            }
        };
        unread = unread.get(read..).unwrap_or_default();
    }
    for event in &mut events {
        event.key = originals.get(&event.sequence).copied().unwrap_or(event.sequence);
    }
    Ok(events)
}

fn too_many(detail: &'static str) -> Error {
    Error::new(Kind::Overloaded, detail).with_retry_after(60)
}
