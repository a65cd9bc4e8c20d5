//! Order: what must be known of an aggregate's other events before one of them may be claimed.
//!
//! - A decision reads no log. What it cannot tell from the state it asks for ([`Need`]); the caller's task reads that, and
//!   has it decided again.
//! - What is read stays true: events never change, and a finished one stays finished. Only what came behind the read may
//!   be missing, and the decision can tell ([`Later::through`]).

use super::claim_decision::ClaimRequest;
use crate::ledger::{ClaimKey, ClaimSlot, ClaimState, DecidedClaims, Decision, GroupKey, Ledger, read_failed};
use contract::{AggregateSequence, ClaimOrder, Error, Kind, Result, Sequence, limits};
use log::{AggregateMark, ReadLimit, ReadRange, RecordHeader};

/// How many later events are read at a time.
const PAGE: ReadLimit = ReadLimit { records: 64, bytes: 4 * limits::EVENT_BYTES_MAX };

/// What was read of an aggregate for one claim.
#[derive(Debug, Clone, Default)]
pub(super) struct AggregateReads {
    pub(super) later: Option<LaterEvents>,
    pub(super) before: Option<PrecedingEvent>,
}

/// Events of the aggregate behind the wanted one.
#[derive(Debug, Clone)]
pub(super) struct LaterEvents {
    sequences: Vec<Sequence>,
    /// All of them up to this sequence of the topic are among those.
    scanned: Sequence,
}

/// The event of the aggregate before the wanted one.
#[derive(Debug, Clone, Copy)]
pub(super) enum PrecedingEvent {
    /// It is there.
    At(Sequence),
    /// Retention has removed it.
    Gone,
}

/// What a decision must know and does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NeededRead {
    Later,
    Before,
}

/// Whether the order lets an event be worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OrderVerdict {
    /// It does.
    Free,
    /// A later one is finished.
    Passed,
    /// The one before is not finished; perhaps it is known when that may be tried.
    Waits(Option<i64>),
    /// That cannot be told yet.
    NeedsRead(NeededRead),
}

/// Whether it is this event's turn.
pub(super) fn order_verdict(request: &ClaimRequest, order: ClaimOrder, decision: &Decision<'_>) -> Result<OrderVerdict> {
    let Some(aggregate) = request.aggregate else { return Ok(OrderVerdict::Free) };
    match order {
        ClaimOrder::Latest => latest(request, aggregate, decision),
        ClaimOrder::Gapless => Ok(gapless(request, aggregate, decision)),
    }
}

/// The state alone tells in the usual cases: nothing came later, or nothing later was finished in the whole topic.
fn latest(request: &ClaimRequest, aggregate: AggregateMark, decision: &Decision<'_>) -> Result<OrderVerdict> {
    let ClaimKey { handler, topic, sequence } = &request.key;
    let is_last = decision.head(aggregate.key)?.is_none_or(|head| head.aggregate_sequence <= aggregate.sequence);
    let claims = decision.claims();
    let highest = claims.highest(handler, *topic);
    if is_last || highest <= *sequence {
        return Ok(OrderVerdict::Free);
    }
    let Some(later) = &request.reads.later else { return Ok(OrderVerdict::NeedsRead(NeededRead::Later)) };
    let is_finished = |sequence: &Sequence| claims.is_finished(&request.sibling(*sequence));
    Ok(match later.sequences.iter().any(is_finished) {
        true => OrderVerdict::Passed,
        false if highest <= later.scanned => OrderVerdict::Free,
        false => OrderVerdict::NeedsRead(NeededRead::Later),
    })
}

fn gapless(request: &ClaimRequest, aggregate: AggregateMark, decision: &Decision<'_>) -> OrderVerdict {
    if aggregate.sequence.get() <= 1 {
        return OrderVerdict::Free;
    }
    match request.reads.before {
        None => OrderVerdict::NeedsRead(NeededRead::Before),
        Some(PrecedingEvent::Gone) => OrderVerdict::Free,
        Some(PrecedingEvent::At(sequence)) => {
            let before = request.sibling(sequence);
            if decision.claims().slot(&before).is_none() && is_committed(request, sequence, decision) {
                return OrderVerdict::Free;
            }
            predecessor_verdict(&before, &decision.claims(), decision.now())
        }
    }
}

/// Whether the group named like the handler has said that an event is dealt with: it began behind it, or was moved there.
fn is_committed(request: &ClaimRequest, sequence: Sequence, decision: &Decision<'_>) -> bool {
    let (group, topic) = (request.key.handler.clone(), request.topic.topic.definition.id.clone());
    decision.consumers().offset(&GroupKey { group, topic }).is_some_and(|offset| Sequence::from(offset) >= sequence)
}

/// Whether the event before is finished, and if not, when it may be tried.
fn predecessor_verdict(before: &ClaimKey, claims: &DecidedClaims<'_>, now: i64) -> OrderVerdict {
    match claims.slot(before) {
        Some(ClaimSlot::Finished(_)) => OrderVerdict::Free,
        Some(ClaimSlot::Open(row)) => match row.standing {
            ClaimState::Live { until: at } | ClaimState::Failed { retry_at: at } if at > now => {
                OrderVerdict::Waits(Some(at))
            }
            _ => OrderVerdict::Waits(None),
        },
        None => OrderVerdict::Waits(None),
    }
}

/// Reads what a decision asked for.
pub(super) async fn read(ledger: &Ledger, request: &mut ClaimRequest, need: NeededRead) -> Result<()> {
    let Some(aggregate) = request.aggregate else { return Ok(()) };
    match need {
        NeededRead::Before => request.reads.before = Some(before(ledger, aggregate).await?),
        NeededRead::Later => request.reads.later = Some(later(ledger, request, aggregate).await?),
    }
    Ok(())
}

async fn before(ledger: &Ledger, aggregate: AggregateMark) -> Result<PrecedingEvent> {
    let request = AggregateSequence(aggregate.sequence.get().saturating_sub(1));
    let after = AggregateSequence(request.get().saturating_sub(1));
    let page =
        ledger.log().headers(ReadRange::Aggregate(aggregate.key, after), ReadLimit { records: 1, bytes: 0 }).await;
    let found = page.map_err(read_failed)?.into_iter().find(|header| number_of(header) == Some(request));
    Ok(found.map_or(PrecedingEvent::Gone, |header| PrecedingEvent::At(header.sequence)))
}

/// Reads on until one that is finished, or until behind everything that is.
async fn later(ledger: &Ledger, request: &ClaimRequest, aggregate: AggregateMark) -> Result<LaterEvents> {
    let ClaimKey { handler, topic, .. } = &request.key;
    let (mut after, mut sequences) = (aggregate.sequence, Vec::new());
    while sequences.len() < limits::SCAN_EVENTS_MAX {
        // Looked at before the log is read: what is at or below it is in the log.
        let tail = request.topic.tail();
        let page = ledger.log().headers(ReadRange::Aggregate(aggregate.key, after), PAGE).await.map_err(read_failed)?;
        // Only an empty page says that nothing is missing up to the tail: how many bytes a short one stands for is not told.
        let Some(last) = page.last() else { return Ok(LaterEvents { sequences, scanned: tail }) };
        let through = last.sequence;
        after = number_of(last).unwrap_or(after);
        let claims = ledger.claims();
        let finished = page.iter().find(|header| claims.is_finished(handler, *topic, header.sequence));
        if let Some(finished) = finished {
            return Ok(LaterEvents { sequences: vec![finished.sequence], scanned: through });
        }
        sequences.extend(page.iter().map(|header| header.sequence));
        if through > claims.highest(handler, *topic) {
            return Ok(LaterEvents { sequences, scanned: through });
        }
    }
    let detail = "Too many later events of this aggregate lie unfinished between finished ones; finish those first.";
    Err(Error::new(Kind::Overloaded, detail).with_retry_after(60))
}

fn number_of(header: &RecordHeader) -> Option<AggregateSequence> {
    Some(header.facets?.aggregate?.sequence)
}
