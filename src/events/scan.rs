//! One read of a topic or of the log: what it takes from the log at a time, and when the response is full.
//!
//! - A response is bounded by its events, by their bytes, by the events that were scanned, and by the steps of CEL.
//! - A filter is work: between pages, and after some milliseconds of CEL, other tasks on the thread get a turn.

use super::outcome::stored_event;
use crate::filters::{CompiledFilter, FilterStats};
use crate::memory::{PAGE_BYTES_MAX, reserve_page};
use contract::{Result, StoredEvent, limits};
use log::{ReadLimit, Record};

/// Most steps of CEL in one answer; about a tenth of a second of work.
const CEL_STEPS_MAX: u64 = 4_000_000;
/// Steps of CEL after which other tasks on this thread get a turn; some milliseconds.
const CEL_STEPS_PER_TURN: u64 = 200_000;
/// How much a filtered read takes from the log at a time.
pub(super) const SCAN: ReadLimit = ReadLimit { records: 1024, bytes: 1024 * 1024 };

/// A read in progress.
pub(super) struct EventScan<'a> {
    filter: &'a CompiledFilter,
    limit: usize,
    scanned: usize,
    pub(super) bytes: usize,
    bytes_max: usize,
    pub(super) items: Vec<StoredEvent>,
    pub(super) failures: FilterStats,
    /// The steps after which the scan lets other tasks run.
    yield_after: u64,
}

impl<'a> EventScan<'a> {
    pub(super) fn new(filter: &'a CompiledFilter, limit: usize) -> Self {
        let failures = FilterStats::default();
        let yield_after = CEL_STEPS_PER_TURN;
        Self {
            filter,
            limit,
            scanned: 0,
            bytes: 0,
            bytes_max: PAGE_BYTES_MAX,
            items: Vec::new(),
            failures,
            yield_after,
        }
    }

    /// Takes room for the page, which may then have no more bytes than there was room for.
    pub(super) async fn reserve_bytes(&mut self) -> Result<()> {
        let bytes = reserve_page(self.limit).await?;
        // Behind a filter, what is looked at is in memory beside what was found.
        self.bytes_max = if self.filter.is_empty() { bytes } else { bytes.saturating_sub(SCAN.bytes).max(1) };
        Ok(())
    }

    pub(super) fn wants_more(&self) -> bool {
        self.items.len() < self.limit
            && self.scanned < limits::SCAN_EVENTS_MAX
            && self.bytes < self.bytes_max
            && self.failures.steps() < CEL_STEPS_MAX
    }

    /// Without a filter every record is an item, so no more than the limit is read.
    pub(super) fn next_limit(&self) -> ReadLimit {
        if self.filter.is_empty() {
            return ReadLimit { records: self.limit - self.items.len(), bytes: self.bytes_max - self.bytes };
        }
        SCAN
    }

    /// Takes the matching events of a page; answers the number of the last record it looked at.
    pub(super) async fn take<N>(&mut self, page: Vec<Record>, number: impl Fn(&Record) -> N) -> Option<N> {
        if !self.filter.is_empty() {
            // Filtering is work: others on this thread get their turn between pages.
            tokio::task::yield_now().await;
        }
        let mut reached = None;
        for record in page {
            if !self.wants_more() {
                break;
            }
            if self.failures.steps() >= self.yield_after {
                self.yield_after = self.failures.steps() + CEL_STEPS_PER_TURN;
                tokio::task::yield_now().await;
            }
            self.scanned += 1;
            reached = Some(number(&record));
            let is_event = record.header.facets.is_some();
            if is_event && (self.filter.is_empty() || self.filter.matches(&record, &mut self.failures)) {
                self.bytes += record.body.len();
                self.items.push(stored_event(record));
            }
        }
        reached
    }
}
