//! The scan: the topic is read after what was scanned, through the group's filter, a page at a time.
//!
//! - One poll scans for all; a poll that waits for the lock finds what the one before has found.
//! - A damaged event is found by its header, and given up when it is its turn: it is a dead letter of the group's handler, and
//!   the group goes on with other aggregates.
//! - Events that the filter does not match, removed events and copies of finished events are passed.

use super::group::SharedGroup;
use super::poll::SharedPoll;
use crate::events::{TopicScanPage, original_of, read_page, type_by_header};
use crate::filters::FilterStats;
use crate::memory::{reserve_page, shrink_page};
use contract::{Position, Result, Sequence, limits};
use log::{ReadLimit, Record, RecordHeader};

/// How much is read at a time.
const PAGE: ReadLimit = ReadLimit { records: 1024, bytes: 1024 * 1024 };
/// Two events this close are read at once, with those between them.
const NEAR: u64 = 32;

/// Where the scan continues.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ScanPoint {
    generation: Option<Position>,
    scanned: Sequence,
}

/// The events that a member is offered.
pub(super) struct FetchedEvents {
    pub(super) records: Vec<Record>,
    /// Those that cannot be handed out.
    pub(super) damaged: Vec<RecordHeader>,
}

/// What the backlog needs to know of a record.
struct ScannedEvent {
    sequence: Sequence,
    aggregate: Option<u128>,
    is_taken: bool,
    /// The sequence that identifies it: its original's, if it is a copy.
    key: Sequence,
}

impl SharedGroup {
    /// Scans until so many events are ready, or everything is scanned.
    pub(super) async fn scan_further(&self, poll: &SharedPoll<'_>, enough: usize) -> Result<()> {
        let mut examined = 0;
        while examined < limits::SCAN_EVENTS_MAX && self.next_point(poll, enough).is_some() {
            let _scanning = self.scan_lock.lock().await;
            let Some(point) = self.next_point(poll, enough) else { return Ok(()) };
            match self.scan_page(poll, point).await {
                Ok(count) => examined += count,
                // What was found before is handed out first; the error is returned once nothing is ready.
                Err(error)
                    if self
                        .refreshed_backlog(poll.ledger, poll.ledger.now())
                        .is_some_and(|backlog| backlog.ready() > 0) =>
                {
                    tracing::debug!(%error, group = self.name, "the scan failed; events found before are handed out first");
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Where to continue; `None` if enough is ready, or everything is scanned.
    fn next_point(&self, poll: &SharedPoll<'_>, enough: usize) -> Option<ScanPoint> {
        let backlog = self.refreshed_backlog(poll.ledger, poll.ledger.now())?;
        let is_enough = backlog.ready() >= enough || backlog.scanned() >= poll.topic.tail();
        let is_full = backlog.len() >= limits::GROUP_BACKLOG_MAX || backlog.has_passed_much();
        (!is_enough && !is_full).then(|| ScanPoint { generation: backlog.generation(), scanned: backlog.scanned() })
    }

    /// Adds a page to the backlog; returns how many events were examined.
    async fn scan_page(&self, poll: &SharedPoll<'_>, point: ScanPoint) -> Result<usize> {
        // Loaded before the log is read: what is at or below it is in the log, or removed.
        let tail = poll.topic.tail();
        let page = read_page(poll.ledger, poll.topic.number, &mut point.scanned.clone(), PAGE).await?;
        tokio::task::yield_now().await;
        let mut failures = FilterStats::default();
        let (mut seen, reached) = match &page {
            TopicScanPage::Intact(page) => {
                let seen = page.iter().map(|record| poll.inspect(record, &mut failures)).collect::<Vec<_>>();
                (seen, page.last().map_or(tail, |record| record.header.sequence.min(tail)))
            }
            TopicScanPage::Damaged(header) => (vec![poll.inspect_damaged(header)], header.sequence.min(tail)),
        };
        let examined = seen.len().max(1);
        seen.retain(|event| event.sequence <= tail);
        poll.reader.count_failures(failures);
        self.ingest(poll, point, &seen, reached);
        Ok(examined)
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
        let Some(progress) = claims.group_progress(name, number) else { return };
        let look = self.availability(&claims, now);
        for ScannedEvent { sequence, aggregate, is_taken, key } in seen {
            backlog.pass_through(Sequence(sequence.get() - 1));
            // Older versions claimed a copy by its own sequence.
            if progress.is_past(*sequence) || claims.is_finished(name, number, *sequence) {
                backlog.skip(*sequence);
            } else if !is_taken || claims.is_finished(name, number, *key) {
                backlog.pass_through(*sequence);
            } else {
                backlog.add(*sequence, (*key, *aggregate), &look);
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
            key: original_of(record).unwrap_or(record.header.sequence),
        }
    }

    /// A damaged event is one of the group's if its header does not say otherwise. What it is a copy of is not known.
    fn inspect_damaged(&self, header: &RecordHeader) -> ScannedEvent {
        let event_type = type_by_header(&self.reader.logs.default_ledger().registry(), header);
        ScannedEvent {
            sequence: header.sequence,
            aggregate: header.facets.and_then(|facets| Some(facets.aggregate?.key)),
            is_taken: self.filter.is_empty() || self.filter.may_match(header, event_type.as_deref()),
            key: header.sequence,
        }
    }

    /// The records of these events, in order, as many as fit in a response; removed ones are left out. And those of them
    /// that are damaged.
    pub(super) async fn fetch(&self, sequences: &[Sequence]) -> Result<FetchedEvents> {
        let (mut records, mut damaged) = (Vec::with_capacity(sequences.len()), Vec::new());
        let (mut bytes, bytes_max) = (0, reserve_page(sequences.len()).await?);
        for run in sequences.chunk_by(|one, next| next.get() - one.get() <= NEAR) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let mut after = Sequence(first.get().saturating_sub(1));
            while after < *last && bytes < bytes_max {
                let most = usize::try_from(last.get() - after.get()).unwrap_or(usize::MAX);
                let limit = ReadLimit { records: most, bytes: bytes_max - bytes };
                let page = match read_page(self.ledger, self.topic.number, &mut after, limit).await? {
                    TopicScanPage::Intact(page) => page,
                    TopicScanPage::Damaged(header) => {
                        after = header.sequence;
                        damaged.extend(run.binary_search(&after).is_ok().then_some(header));
                        continue;
                    }
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
        Ok(FetchedEvents { records, damaged })
    }
}
