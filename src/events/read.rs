//! Reading: a topic, the whole log, one aggregate, one event; now, or as soon as there is something.
//!
//! - A read says how far it looked, so that a sparse filter always moves on.
//! - Waiting is reading again when the tail moves; nothing polls on an interval.
//! - A range that retention has removed is an answer of its own, never a silent later start.

use super::fingerprint;
use super::publish::stored_event;
use crate::filters::{self, Compiled, FilterFailures};
use crate::ledger::{Ledger, TopicEntry, read_failed};
use contract::{
    Aggregate, AggregateEvents, AggregateRead, AggregateSequence, Error, EventPage, LogPage, LogRead, Offset, Read,
    Result, Sequence, StoredEvent, limits,
};
use log::{Find, Limit, Range, Record};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use uuid::Uuid;

/// Most bytes of events in one answer; the first event is always given.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How much a filtered read takes from the log at a time.
const SCAN: Limit = Limit { records: 1024, bytes: 1024 * 1024 };

/// What is there now.
pub(crate) async fn read(ledger: &Ledger, limit_max: usize, read: &Read) -> Result<EventPage> {
    let topic = find_topic(ledger, read)?;
    check_limit(read.limit, limit_max)?;
    let filter = filters::compile(&read.filter)?;
    scan_topic(ledger, &topic, read.offset, read.limit, &filter).await
}

/// What is there now, or as soon as there is something, or nothing when the time is up.
pub(crate) async fn wait(ledger: &Ledger, limit_max: usize, read: &Read, timeout: Duration) -> Result<EventPage> {
    if timeout > Duration::from_secs(limits::WAIT_SECONDS_MAX) {
        let detail = format!("must be between 0 and {} seconds", limits::WAIT_SECONDS_MAX);
        return Err(Error::invalid("/timeout", detail));
    }
    let topic = find_topic(ledger, read)?;
    check_limit(read.limit, limit_max)?;
    let filter = filters::compile(&read.filter)?;
    let deadline = tokio::time::Instant::now() + timeout;
    let mut tail = topic.tail.subscribe();
    let mut offset = read.offset;
    loop {
        tail.borrow_and_update();
        let page = scan_topic(ledger, &topic, offset, read.limit, &filter).await?;
        offset = page.next_offset;
        if !page.items.is_empty() {
            return Ok(page);
        }
        let caught_up = offset >= page.tail;
        if caught_up && !moves_past(ledger, &mut tail, offset, deadline).await {
            return Ok(EventPage { tail: topic.tail().into(), ..page });
        }
        if tokio::time::Instant::now() >= deadline && !caught_up {
            return Ok(page);
        }
    }
}

/// All topics of the log, in global order.
pub(crate) async fn read_log(ledger: &Ledger, limit_max: usize, read: &LogRead) -> Result<LogPage> {
    check_limit(read.limit, limit_max)?;
    let filter = filters::compile(&read.filter)?;
    let tail = *ledger.position().borrow();
    let mut scan = Scan::new(&filter, read.limit);
    let mut after = read.after;
    while after < tail && scan.wants_more() {
        let page = ledger.log().read(Range::All(after), SCAN).await.map_err(read_failed)?;
        // Nothing left below the tail: what was there has been removed.
        let Some(last) = page.last().map(|record| record.header.position) else {
            after = tail;
            break;
        };
        after = scan.take(page, |record| record.header.position).unwrap_or(last);
    }
    Ok(LogPage { items: scan.items, next_position: after, tail })
}

/// The event first stored under this id.
pub(crate) async fn event(ledger: &Ledger, id: Uuid) -> Result<StoredEvent> {
    let header = ledger.log().find(Find::Id(id.as_u128())).await.map_err(read_failed)?;
    let header = header.ok_or_else(|| Error::not_found("event"))?;
    let range = Range::Topic(header.topic, Sequence(header.sequence.0 - 1));
    let page = ledger.log().read(range, Limit { records: 1, bytes: usize::MAX }).await.map_err(read_failed)?;
    page.into_iter().next().map(stored_event).ok_or_else(|| Error::not_found("event"))
}

/// Where an aggregate stands.
pub(crate) async fn aggregate(ledger: &Ledger, read: &AggregateRead) -> Result<Aggregate> {
    let topic = topic_of(ledger, read)?;
    let key = fingerprint::aggregate(&read.topic, Some(&read.subject_type), &read.subject);
    let head = ledger.ask(move |state| state.head(key)).await??;
    let head = head.ok_or_else(|| Error::not_found("aggregate"))?;
    let range = Range::Topic(topic.number, Sequence(head.sequence.0 - 1));
    let last_event = match ledger.log().read(range, Limit { records: 1, bytes: usize::MAX }).await {
        Ok(page) => page.into_iter().next().map(stored_event),
        Err(log::LogError::Trimmed(_)) => None,
        Err(error) => return Err(read_failed(error)),
    };
    Ok(Aggregate { aggregate_sequence: head.aggregate_sequence, sequence: head.sequence, last_event })
}

/// An aggregate's events.
pub(crate) async fn read_aggregate(ledger: &Ledger, limit_max: usize, read: &AggregateRead) -> Result<AggregateEvents> {
    topic_of(ledger, read)?;
    check_limit(read.limit, limit_max)?;
    let key = fingerprint::aggregate(&read.topic, Some(&read.subject_type), &read.subject);
    let head = ledger.ask(move |state| state.head(key)).await??;
    let limit = Limit { records: read.limit, bytes: ANSWER_BYTES_MAX };
    let page = ledger.log().read(Range::Aggregate(key, read.after), limit).await.map_err(read_failed)?;
    let items: Vec<_> = page.into_iter().map(stored_event).collect();
    Ok(AggregateEvents {
        next_after: items.last().map_or(read.after, |event| event.aggregate_sequence),
        aggregate_sequence: head.map_or(AggregateSequence::ZERO, |head| head.aggregate_sequence),
        items,
    })
}

fn find_topic(ledger: &Ledger, read: &Read) -> Result<Arc<TopicEntry>> {
    ledger.registry().topic(&read.topic).cloned().ok_or_else(|| Error::not_found("topic"))
}

fn topic_of(ledger: &Ledger, read: &AggregateRead) -> Result<Arc<TopicEntry>> {
    ledger.registry().topic(&read.topic).cloned().ok_or_else(|| Error::not_found("topic"))
}

fn check_limit(limit: usize, limit_max: usize) -> Result<()> {
    match (1..=limit_max).contains(&limit) {
        true => Ok(()),
        false => Err(Error::invalid("/limit", format!("must be between 1 and {limit_max}"))),
    }
}

async fn scan_topic(
    ledger: &Ledger,
    topic: &TopicEntry,
    offset: Offset,
    limit: usize,
    filter: &Compiled,
) -> Result<EventPage> {
    let tail = Offset::from(topic.tail());
    let mut scan = Scan::new(filter, limit);
    let mut after = offset;
    while after < tail && scan.wants_more() {
        let range = Range::Topic(topic.number, after.into());
        let page = ledger.log().read(range, scan.next_limit()).await.map_err(read_failed)?;
        let Some(last) = page.last().map(|record| record.header.sequence) else { break };
        after = scan.take(page, |record| record.header.sequence).unwrap_or(last).into();
    }
    Ok(EventPage { items: scan.items, next_offset: after, tail })
}

/// Waits until the topic goes past `offset`; `false` when the time is up or the broker closes first.
async fn moves_past(
    ledger: &Ledger,
    tail: &mut watch::Receiver<Sequence>,
    offset: Offset,
    deadline: tokio::time::Instant,
) -> bool {
    let mut closing = ledger.closing();
    tokio::select! {
        moved = tail.wait_for(|tail| Offset::from(*tail) > offset) => moved.is_ok(),
        _ = closing.wait_for(|closing| *closing) => false,
        () = tokio::time::sleep_until(deadline) => false,
    }
}

/// A read on its way through the log.
struct Scan<'a> {
    filter: &'a Compiled,
    limit: usize,
    looked_at: usize,
    bytes: usize,
    items: Vec<StoredEvent>,
}

impl<'a> Scan<'a> {
    fn new(filter: &'a Compiled, limit: usize) -> Self {
        Self { filter, limit, looked_at: 0, bytes: 0, items: Vec::new() }
    }

    fn wants_more(&self) -> bool {
        self.items.len() < self.limit && self.looked_at < limits::SCAN_EVENTS_MAX && self.bytes < ANSWER_BYTES_MAX
    }

    /// Without a filter every record is an item, so no more than the limit is read.
    fn next_limit(&self) -> Limit {
        if self.filter.is_empty() {
            return Limit { records: self.limit - self.items.len(), bytes: ANSWER_BYTES_MAX - self.bytes };
        }
        SCAN
    }

    /// Takes the matching events of a page; answers where it stopped, if that was before the page's end.
    fn take<N>(&mut self, page: Vec<Record>, number: impl Fn(&Record) -> N) -> Option<N> {
        let mut failures = FilterFailures::default();
        let mut stopped = None;
        for record in page {
            if !self.wants_more() {
                return stopped;
            }
            self.looked_at += 1;
            stopped = Some(number(&record));
            let is_event = record.header.facets.is_some();
            if is_event && (self.filter.is_empty() || self.filter.matches(&record, &mut failures)) {
                self.bytes += record.body.len();
                self.items.push(stored_event(record));
            }
        }
        stopped
    }
}
