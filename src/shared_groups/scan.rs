//! Looking for work: the topic is read behind what was looked at, through the group's filter, a page at a time.
//!
//! - One poll looks for all; who waits for its turn finds what the one before has found.
//! - What the filter does not take, what is gone, and copies of what the group has or will have anyway, are passed.

use super::group::SharedGroup;
use super::poll::SharedPoll;
use crate::events::{original_of, unreadable};
use crate::filters::FilterStats;
use crate::ledger::read_failed;
use crate::memory::{reserve_page, shrink_page};
use contract::{Position, Result, Sequence, limits};
use log::{LogError, ReadLimit, ReadRange, Record};

/// How much is read at a time.
const PAGE: ReadLimit = ReadLimit { records: 1024, bytes: 1024 * 1024 };
/// Two events this close are read at once, with what lies between.
const NEAR: u64 = 32;

/// Where looking goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ScanPoint {
    generation: Option<Position>,
    scanned: Sequence,
}

/// A record, as far as the backlog wants to know it.
struct ScannedEvent {
    sequence: Sequence,
    aggregate: Option<u128>,
    is_taken: bool,
    original: Option<Sequence>,
}

impl SharedGroup {
    /// Looks further until so many events are ready, or there is nothing to look at.
    pub(super) async fn scan_further(&self, poll: &SharedPoll<'_>, enough: usize) -> Result<()> {
        let mut looked_at = 0;
        while looked_at < limits::SCAN_EVENTS_MAX && self.next_point(poll, enough).is_some() {
            let _turn = self.turn.lock().await;
            let Some(point) = self.next_point(poll, enough) else { return Ok(()) };
            match self.scan_page(poll, point).await {
                Ok(looked) => looked_at += looked,
                // What was found before is handed out; once that is done, the damage is told.
                Err(_)
                    if self
                        .refreshed_backlog(poll.ledger, poll.ledger.now())
                        .is_some_and(|backlog| backlog.ready() > 0) =>
                {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Where to look next; `None` where there is enough, or nothing behind it.
    fn next_point(&self, poll: &SharedPoll<'_>, enough: usize) -> Option<ScanPoint> {
        let backlog = self.refreshed_backlog(poll.ledger, poll.ledger.now())?;
        let is_enough = backlog.ready() >= enough || backlog.scanned() >= poll.topic.tail();
        let is_full = backlog.len() >= limits::GROUP_BACKLOG_MAX || backlog.has_passed_much();
        (!is_enough && !is_full).then(|| ScanPoint { generation: backlog.generation(), scanned: backlog.scanned() })
    }

    /// Takes a page into the backlog; answers how much was looked at.
    async fn scan_page(&self, poll: &SharedPoll<'_>, point: ScanPoint) -> Result<usize> {
        // Looked at before the log is read: what is at or below it is in the log, or gone.
        let tail = poll.topic.tail();
        let (page, reached) =
            match poll.ledger.log().read(ReadRange::Topic(poll.topic.number, point.scanned), PAGE).await {
                Ok(page) => {
                    let reached = page.last().map_or(tail, |record| record.header.sequence.min(tail));
                    (page, reached)
                }
                Err(LogError::Trimmed(earliest)) => (Vec::new(), Sequence(earliest.get().saturating_sub(1)).min(tail)),
                Err(error) => {
                    return Err(
                        unreadable(poll.ledger, ReadRange::Topic(poll.topic.number, point.scanned), error).await
                    );
                }
            };
        tokio::task::yield_now().await;
        let mut failures = FilterStats::default();
        let there = page.iter().filter(|record| record.header.sequence <= tail);
        let seen: Vec<_> = there.map(|record| poll.inspect(record, &mut failures)).collect();
        poll.reader.count_failures(failures);
        self.ingest(poll, point, &seen, reached);
        Ok(page.len().max(1))
    }

    fn ingest(&self, poll: &SharedPoll<'_>, point: ScanPoint, seen: &[ScannedEvent], reached: Sequence) {
        let now = poll.ledger.now();
        let Some(mut backlog) = self.refreshed_backlog(poll.ledger, now) else { return };
        // The group may have been moved while the log was read.
        if point != (ScanPoint { generation: backlog.generation(), scanned: backlog.scanned() }) {
            return;
        }
        let claims = poll.ledger.claims();
        let (name, number) = (&poll.consumer.consumer_group, poll.topic.number.0);
        let Some(division) = claims.group_progress(name, number) else { return };
        let look = self.availability(&claims, now);
        for ScannedEvent { sequence, aggregate, is_taken, original } in seen {
            backlog.pass_through(Sequence(sequence.get() - 1));
            let is_known =
                |original: &Sequence| claims.is_finished(name, number, *original) || backlog.is_pending(*original);
            if division.is_past(*sequence) || claims.is_finished(name, number, *sequence) {
                backlog.skip(*sequence);
            } else if !is_taken || original.as_ref().is_some_and(is_known) {
                backlog.pass_through(*sequence);
            } else {
                backlog.add(*sequence, *aggregate, &look);
            }
        }
        backlog.pass_through(reached);
    }
}

impl SharedPoll<'_> {
    fn inspect(&self, record: &Record, failures: &mut FilterStats) -> ScannedEvent {
        ScannedEvent {
            sequence: record.header.sequence,
            aggregate: record.header.facets.and_then(|facets| Some(facets.aggregate?.key)),
            is_taken: self.filter.is_empty() || self.filter.matches(record, failures),
            original: original_of(record),
        }
    }

    /// The records of these events, in order, as many as fit in an answer; those that are gone are left out.
    pub(super) async fn fetch(&self, sequences: &[Sequence]) -> Result<Vec<Record>> {
        let mut records = Vec::with_capacity(sequences.len());
        let (mut bytes, bytes_max) = (0, reserve_page(sequences.len()).await?);
        for run in sequences.chunk_by(|one, next| next.get() - one.get() <= NEAR) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let mut after = Sequence(first.get().saturating_sub(1));
            while after < *last && bytes < bytes_max {
                let most = usize::try_from(last.get() - after.get()).unwrap_or(usize::MAX);
                let limit = ReadLimit { records: most, bytes: bytes_max - bytes };
                let page = match self.ledger.log().read(ReadRange::Topic(self.topic.number, after), limit).await {
                    Err(LogError::Trimmed(_)) => break,
                    Err(LogError::Damaged(_)) if !records.is_empty() => return Ok(records),
                    page => page.map_err(read_failed)?,
                };
                let Some(reached) = page.last().map(|record| record.header.sequence) else { break };
                after = reached;
                let wanted = page.into_iter().filter(|record| run.binary_search(&record.header.sequence).is_ok());
                for record in wanted {
                    bytes += record.body.len();
                    records.push(record);
                }
            }
        }
        shrink_page(bytes);
        Ok(records)
    }
}
