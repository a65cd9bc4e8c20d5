//! Reading: a topic, the log, one aggregate or one event; at once, or when there is something to return.
//!
//! - A read returns how far it scanned, so that a reader with a selective filter always makes progress.
//! - Waiting is reading again when the tail moves; nothing polls at intervals.
//! - A topic is read from the log it lives in; an event is looked up in the default log first, then in the side logs.
//! - A page ends before a damaged event; a read that begins with it is refused with its number and the offset to continue
//!   from.
//! - A range that retention has removed is refused, never skipped silently; only a read from `earliest` begins with the
//!   first event that is left.

use super::fingerprint;
use super::outcome::stored_event;
use super::scan::{EventScan, SCAN};
use super::scan_start::{ScanStart, before};
use crate::filters::{self, CompiledFilter, FilterStats};
use crate::ledger::{AggregateHead, Ledger, RegisteredTopic, read_failed};
use crate::logs::{LocatedTopic, LogRef, Logs, SideLog};
use crate::memory::{reserve_page, shrink_page};
use contract::{
    Aggregate, AggregateEvents, AggregateRead, AggregateSequence, Error, EventPage, Kind, LogPage, LogRead, Offset,
    ReadOffset, Result, Sequence, StoredEvent, TopicId, TopicRead,
};
use log::{LogError, ReadLimit, ReadRange, RecordHeader, RecordQuery, TopicNumber};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use uuid::Uuid;

/// Reads on behalf of callers.
#[derive(Clone, Copy)]
pub(crate) struct EventReader<'a> {
    pub(crate) logs: &'a Logs,
    /// Most events in one response.
    pub(crate) limit_max: usize,
    /// The longest a read may wait.
    pub(crate) wait_max: Duration,
    /// How many events a CEL expression could not be evaluated for.
    pub(crate) filter_failures: &'a AtomicU64,
}

impl EventReader<'_> {
    /// Reads what is there now.
    pub(crate) async fn read(&self, read: &TopicRead) -> Result<EventPage> {
        let found = self.logs.find(&read.topic)?;
        self.check_limit(read.limit)?;
        let filter = filters::compile(&read.filter)?;
        let start = self.start(&found, read.offset).await;
        self.scan_topic(&found, start, read.limit, &filter).await
    }

    /// The same through a filter that is compiled already.
    pub(crate) async fn read_filtered(
        &self,
        topic: &TopicId,
        offset: ReadOffset,
        limit: usize,
        filter: &CompiledFilter,
    ) -> Result<EventPage> {
        let found = self.logs.find(topic)?;
        let start = self.start(&found, offset).await;
        self.scan_topic(&found, start, limit, filter).await
    }

    /// Reads what is there now; if that is nothing, waits for something until the timeout.
    pub(crate) async fn wait(&self, read: &TopicRead, timeout: Duration) -> Result<EventPage> {
        self.check_timeout(timeout)?;
        self.logs.find(&read.topic)?;
        self.check_limit(read.limit)?;
        let filter = filters::compile(&read.filter)?;
        self.wait_filtered(&read.topic, read.offset, read.limit, &filter, timeout).await
    }

    /// The same through a filter that is compiled already.
    pub(crate) async fn wait_filtered(
        &self,
        topic: &TopicId,
        offset: ReadOffset,
        limit: usize,
        filter: &CompiledFilter,
        timeout: Duration,
    ) -> Result<EventPage> {
        let found = self.logs.find(topic)?;
        let deadline = tokio::time::Instant::now() + timeout;
        let mut tail = found.topic.tail.subscribe();
        let mut is_stuck = false;
        let mut start = self.start(&found, offset).await;
        loop {
            let page = self.scan_topic(&found, start, limit, filter).await?;
            if !page.items.is_empty() {
                return Ok(page);
            }
            let moves = page.next_offset > start.after;
            start.after = page.next_offset;
            let ledger = self.logs.ledger(&found.log);
            if !moves && start.after < page.tail && ledger.log().is_shared() {
                // The tail says that there are events, and the log has none. Either the log went back, which the ledger
                // detects, or they can be read after a refresh.
                if std::mem::replace(&mut is_stuck, true) {
                    return Err(tail_went_back());
                }
                ledger.refresh().await?;
                continue;
            }
            // In a log of our own, the events up to the tail were lost to damage: the next event comes after it.
            let caught_up = start.after >= page.tail || !moves;
            let seen = start.after.max(page.tail);
            if caught_up && !wait_past(ledger, &mut tail, seen.into(), deadline).await {
                ledger.check_open()?;
                return Ok(EventPage { tail: found.topic.tail().into(), ..page });
            }
            if !caught_up && tokio::time::Instant::now() >= deadline {
                return Ok(page);
            }
        }
    }

    /// Reads all topics of the default log, in the order of their positions.
    pub(crate) async fn read_log(&self, read: &LogRead) -> Result<LogPage> {
        self.check_limit(read.limit)?;
        let filter = filters::compile(&read.filter)?;
        let ledger = self.logs.default_ledger();
        let tail = *ledger.position().borrow();
        let mut scan = EventScan::new(&filter, read.limit);
        let (mut after, mut is_refreshed) = (read.after, false);
        if after < tail {
            scan.reserve_bytes().await?;
        }
        while after < tail && scan.wants_more() {
            let range = ReadRange::All(after);
            let page = match ledger.log().read_committed(range, SCAN).await {
                // The intact events are returned; the next read begins with the damaged one and is refused.
                Err(LogError::Damaged(_)) if after > read.after => break,
                Err(error) => return Err(unreadable(ledger, range, error).await),
                Ok(page) => page,
            };
            if page.is_empty() && ledger.log().is_shared() && !std::mem::replace(&mut is_refreshed, true) {
                // Either everything up to the tail was removed, or the log went back: refreshing finds out.
                ledger.refresh().await?;
                continue;
            }
            // Nothing is left below the tail: what was there has been removed.
            after = scan.take(page, |record| record.header.position).await.unwrap_or(tail);
        }
        self.count(&scan);
        Ok(LogPage { items: scan.items, next_position: after, tail })
    }

    /// Reads all topics of the default log; if there is nothing, waits for something until the timeout.
    pub(crate) async fn wait_log(&self, read: &LogRead, timeout: Duration) -> Result<LogPage> {
        self.check_timeout(timeout)?;
        let deadline = tokio::time::Instant::now() + timeout;
        let ledger = self.logs.default_ledger();
        let mut tail = ledger.position();
        let mut read = read.clone();
        loop {
            let page = self.read_log(&read).await?;
            read.after = page.next_position;
            let caught_up = read.after >= page.tail;
            if !page.items.is_empty() || tokio::time::Instant::now() >= deadline {
                return Ok(page);
            }
            if caught_up && !wait_past(ledger, &mut tail, page.tail, deadline).await {
                ledger.check_open()?;
                return Ok(page);
            }
        }
    }

    /// Reads the event that was first stored under this id.
    pub(crate) async fn event(&self, id: Uuid) -> Result<StoredEvent> {
        let (place, header) = self.locate(id).await?;
        let event = stored_at(self.logs.ledger(&place), header.topic, header.sequence).await?;
        event.ok_or_else(|| Error::not_found("event"))
    }

    /// Finds the event that was first stored under this id.
    pub(crate) async fn locate(&self, id: Uuid) -> Result<(LogRef, RecordHeader)> {
        let mut missing = Error::not_found("event");
        if let Some(header) = find_id(self.logs.default_ledger(), id).await?
            && !self.logs.default_ledger().registry().is_deleted(header.topic)
        {
            return Ok((LogRef::Default, header));
        }
        for side in self.logs.side_logs() {
            match self.locate_in(&side, id).await {
                Ok(Some(header)) => return Ok((LogRef::Side(side), header)),
                Ok(None) => (),
                // The event may be in that log, or in the next one.
                Err(error) => missing = error,
            }
        }
        Err(missing)
    }

    /// Looks up an event in a side log. Topics that this broker does not know are ignored: a folder may come from another
    /// broker.
    async fn locate_in(&self, side: &SideLog, id: Uuid) -> Result<Option<RecordHeader>> {
        let Some(header) = find_id(&side.ledger, id).await? else { return Ok(None) };
        let registry = side.ledger.registry();
        let topic = registry.topic_numbered(header.topic).map(|topic| &topic.topic.definition.id);
        let known = self.logs.default_ledger().registry();
        let is_ours = topic.and_then(|id| known.placed(id)).is_some_and(|known| known.placed.location == side.location);
        Ok(is_ours.then_some(header))
    }

    /// Reads the last sequence of an aggregate, and its last event.
    pub(crate) async fn aggregate(&self, read: &AggregateRead) -> Result<Aggregate> {
        let found = self.logs.find(&read.topic)?;
        let ledger = self.logs.ledger(&found.log);
        let head = head(ledger, key_of(&found.topic, read)).await?.ok_or_else(|| Error::not_found("aggregate"))?;
        let last_event = stored_at(ledger, found.topic.number, head.sequence).await?;
        Ok(Aggregate { aggregate_sequence: head.aggregate_sequence, sequence: head.sequence, last_event })
    }

    /// Reads the events of an aggregate.
    pub(crate) async fn read_aggregate(&self, read: &AggregateRead) -> Result<AggregateEvents> {
        let found = self.logs.find(&read.topic)?;
        self.check_limit(read.limit)?;
        let ledger = self.logs.ledger(&found.log);
        let key = key_of(&found.topic, read);
        let head = head(ledger, key).await?;
        let range = ReadRange::Aggregate(key, read.after);
        let limit = ReadLimit { records: read.limit, bytes: reserve_page(read.limit).await? };
        let page = match ledger.log().read(range, limit).await {
            Err(error) => return Err(unreadable(ledger, range, error).await),
            Ok(page) => page,
        };
        let items: Vec<_> = page.into_iter().map(stored_event).collect();
        shrink_page(items.iter().map(|event| event.text.len()).sum());
        Ok(AggregateEvents {
            next_after: items.last().map_or(read.after, |event| event.aggregate_sequence),
            aggregate_sequence: head.map_or(AggregateSequence::ZERO, |head| head.aggregate_sequence),
            items,
        })
    }

    /// Refuses a limit above the configured maximum.
    pub(crate) fn check_limit(&self, limit: usize) -> Result<()> {
        match (1..=self.limit_max).contains(&limit) {
            true => Ok(()),
            false => Err(Error::invalid("/limit", format!("must be between 1 and {}", self.limit_max))),
        }
    }

    /// Refuses a timeout above the configured maximum.
    pub(crate) fn check_timeout(&self, timeout: Duration) -> Result<()> {
        match timeout <= self.wait_max {
            true => Ok(()),
            false => {
                Err(Error::invalid("/timeout", format!("must be between 0 and {} seconds", self.wait_max.as_secs())))
            }
        }
    }

    async fn start(&self, found: &LocatedTopic, offset: ReadOffset) -> ScanStart {
        if offset == ReadOffset::Latest {
            // Another broker may have just appended. If the log cannot be reached, the tail known here is at most too
            // early, so the reader gets more events, not fewer.
            if let Err(error) = self.logs.ledger(&found.log).refresh().await {
                tracing::debug!(%error, "the tail was not refreshed before a read from the latest event");
            }
        }
        ScanStart::new(offset, found.topic.tail())
    }

    async fn scan_topic(
        &self,
        found: &LocatedTopic,
        start: ScanStart,
        limit: usize,
        filter: &CompiledFilter,
    ) -> Result<EventPage> {
        let (topic, ledger) = (&found.topic, self.logs.ledger(&found.log));
        topic.check_exists()?;
        let tail = Offset::from(topic.tail());
        let mut scan = EventScan::new(filter, limit);
        let mut after = start.after;
        if after < tail {
            scan.reserve_bytes().await?;
        }
        while after < tail && scan.wants_more() {
            let range = ReadRange::Topic(topic.number, after.into());
            let page = match ledger.log().read(range, scan.next_limit()).await {
                Err(LogError::Trimmed(earliest))
                    if start.skips_removed && scan.items.is_empty() && before(earliest) > after =>
                {
                    after = before(earliest);
                    continue;
                }
                // The events read so far are returned; the next read begins with the damaged event or the gap, and is
                // refused.
                Err(LogError::Damaged(_) | LogError::Trimmed(_)) if after > start.after => break,
                Err(error) => return Err(unreadable(ledger, range, error).await),
                Ok(page) => page,
            };
            let Some(reached) = scan.take(page, |record| record.header.sequence).await else { break };
            after = reached.into();
        }
        self.count(&scan);
        // Removed events count: a tail before them is out of date, because another broker has moved it.
        let tail = if start.skips_removed { tail.max(after) } else { tail };
        Ok(EventPage { items: scan.items, claims: Vec::new(), next_offset: after, tail })
    }

    /// Gives back room that the scan did not use, and counts its failures.
    fn count(&self, scan: &EventScan<'_>) {
        shrink_page(scan.bytes);
        self.count_failures(scan.failures);
    }

    /// Counts events that a filter could not be evaluated for.
    pub(crate) fn count_failures(&self, failures: FilterStats) {
        self.filter_failures.fetch_add(failures.count(), Ordering::Relaxed);
    }
}

async fn head(ledger: &Ledger, key: u128) -> Result<Option<AggregateHead>> {
    ledger.query_rows(move |state| state.head(key)).await
}

async fn find_id(ledger: &Ledger, id: Uuid) -> Result<Option<RecordHeader>> {
    ledger.log().find(RecordQuery::Id(id.as_u128())).await.map_err(read_failed)
}

/// Reads the event with this sequence; `None` if it was removed.
pub(crate) async fn stored_at(ledger: &Ledger, topic: TopicNumber, sequence: Sequence) -> Result<Option<StoredEvent>> {
    let range = ReadRange::Topic(topic, Sequence(sequence.0.saturating_sub(1)));
    match ledger.log().read(range, ReadLimit { records: 1, bytes: 0 }).await {
        Ok(page) => Ok(page.into_iter().next().map(stored_event)),
        Err(LogError::Trimmed(_)) => Ok(None),
        Err(error) => Err(unreadable(ledger, range, error).await),
    }
}

/// The refusal of a read whose range begins with something unreadable. If that is a damaged event, it names the event and
/// the offset to continue from.
pub(super) async fn unreadable(ledger: &Ledger, range: ReadRange, error: LogError) -> Error {
    if !matches!(error, LogError::Damaged(_)) {
        return read_failed(error);
    }
    let header = ledger.log().headers(range, ReadLimit { records: 1, bytes: 0 }).await;
    let header = header.ok().and_then(|headers| headers.first().copied());
    let detail = match (range, header) {
        (ReadRange::Topic(..), Some(RecordHeader { sequence, .. })) => format!(
            "The event with sequence {sequence} is damaged on disk and cannot be read; reading goes on behind it with \
             `offset={sequence}`. The operator can cut it out: stop the broker and run `event-broker repair`."
        ),
        (ReadRange::Aggregate(..), Some(RecordHeader { sequence, facets, .. })) => {
            let number = facets.and_then(|facets| facets.aggregate).map_or(0, |aggregate| aggregate.sequence.get());
            format!(
                "The event with sequence {sequence} is damaged on disk and cannot be read; reading goes on behind it with \
                 `after={number}`. The operator can cut it out: stop the broker and run `event-broker repair`."
            )
        }
        (_, Some(RecordHeader { position, .. })) => format!(
            "The record at position {position} is damaged on disk and cannot be read; reading goes on behind it with \
             `after={position}`. The operator can cut it out: stop the broker and run `event-broker repair`."
        ),
        (_, None) => {
            "What comes next is damaged on disk and cannot be read. The operator can cut it out: stop the broker \
                      and run `event-broker repair`."
                .to_owned()
        }
    };
    tracing::warn!(%error, "a read began with a damaged record");
    Error::new(Kind::Unavailable, detail).with_source(error).with_retry_after(60)
}

fn key_of(topic: &RegisteredTopic, read: &AggregateRead) -> u128 {
    fingerprint::aggregate_in(topic, fingerprint::subject_type_tag(read.subject_type.as_ref()), &read.subject)
}

/// Records below the visible tail are missing.
fn tail_went_back() -> Error {
    let detail = "The log does not hold all of the topic's events any more; it is being opened again.";
    Error::new(Kind::Unavailable, detail).with_retry_after(2)
}

/// Waits until a tail is beyond `seen`; `false` if the time is up or the broker closes first.
async fn wait_past<N: PartialOrd>(
    ledger: &Ledger,
    tail: &mut watch::Receiver<N>,
    seen: N,
    deadline: tokio::time::Instant,
) -> bool {
    let mut closing = ledger.closing();
    tokio::select! {
        moved = tail.wait_for(|tail| *tail > seen) => moved.is_ok(),
        _ = closing.wait_for(|closing| *closing) => false,
        () = tokio::time::sleep_until(deadline) => false,
    }
}
