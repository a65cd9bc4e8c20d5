//! How much space the broker's own entries use in the log, and when reclaiming is due.
//!
//! - The counters are part of the folded state, so the log is not scanned for them, and every broker on a shared log
//!   has the same numbers.
//! - Reclaiming rewrites what is still needed. It waits until at least as much was appended as had to be rewritten the
//!   last time, so it never writes more than is appended.
//! - Obsolete entries may hold data that is to be erased. So reclaiming also runs after a time, however little there
//!   is.

use crate::ledger::facts::entry::Entry;
use contract::{Position, Sequence};
use log::RecordHeader;
use serde::{Deserialize, Serialize};

/// On a shared log: a run that appended nothing for this long is considered interrupted, in milliseconds.
const RUN_SILENT_MILLIS_MAX: i64 = 900_000;

/// The space that entries use in the log. Only the bytes of bodies are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryUsage {
    /// Bytes of all entries that are not reclaimed.
    bytes: u64,
    /// Bytes of the stored replies among them.
    answer_bytes: u64,
    /// Bytes that the last run had to write again.
    live_bytes: u64,
    /// When the last run ended, in milliseconds; before the first one, when the first entry was written.
    since: i64,
    /// The entries that can be removed.
    reclaimable: ReclaimableEntries,
    /// A run that has not ended yet.
    run: Option<ReclaimRun>,
}

/// The entries that the last snapshot replaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclaimableEntries {
    /// The last of them.
    pub through: Sequence,
    /// When the snapshot was taken, in milliseconds: no entry is younger.
    pub at: i64,
}

/// A run that has begun and not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct ReclaimRun {
    /// The entry that began it.
    began: Position,
    /// When it last appended something, in milliseconds.
    active_at: i64,
}

/// The settings for when entries are reclaimed.
#[derive(Debug, Clone, Copy)]
pub struct ReclaimPolicy {
    /// Bytes that must have been appended before a run.
    pub bytes_min: u64,
    /// The time after which a run is due whatever was appended, in milliseconds.
    pub within_millis: i64,
    /// The minimum age of entries that are removed, in milliseconds.
    pub keep_millis: i64,
}

impl EntryUsage {
    /// Counts an entry whose body has this many bytes.
    pub(in crate::ledger) fn apply(&mut self, entry: &Entry, header: &RecordHeader, body_bytes: usize) {
        if self.since == 0 {
            self.since = header.time;
        }
        self.bytes = self.bytes.saturating_add(body_bytes as u64);
        match entry {
            Entry::AnswerKept { .. } => self.answer_bytes = self.answer_bytes.saturating_add(body_bytes as u64),
            Entry::SnapshotBegan {} => {
                self.run = Some(ReclaimRun { began: header.position, active_at: header.time });
            }
            Entry::SnapshotPart { snapshot, .. } if self.is_running(*snapshot) => {
                self.run = Some(ReclaimRun { began: *snapshot, active_at: header.time });
            }
            Entry::SnapshotTaken { through, at, reclaimed_bytes, reclaimed_answer_bytes, live_bytes, .. } => {
                self.bytes = self.bytes.saturating_sub(*reclaimed_bytes);
                self.answer_bytes = self.answer_bytes.saturating_sub(*reclaimed_answer_bytes);
                self.live_bytes = *live_bytes;
                self.since = header.time;
                self.reclaimable = ReclaimableEntries { through: *through, at: *at };
                self.run = None;
            }
            _ => (),
        }
    }

    /// Bytes of all entries that are not reclaimed.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the stored replies among them.
    #[must_use]
    pub const fn answer_bytes(&self) -> u64 {
        self.answer_bytes
    }

    /// The entries that can be removed.
    #[must_use]
    pub const fn reclaimable(&self) -> ReclaimableEntries {
        self.reclaimable
    }

    /// Whether a run is due.
    #[must_use]
    pub fn is_due(&self, policy: &ReclaimPolicy, now: i64) -> bool {
        let appended = self.bytes.saturating_sub(self.live_bytes);
        let is_large = appended >= policy.bytes_min.max(self.live_bytes).max(1);
        let has_garbage = appended > 0 || self.answer_bytes > 0;
        is_large || (has_garbage && now.saturating_sub(self.since) >= policy.within_millis)
    }

    /// Whether this run is the one in progress.
    pub(in crate::ledger) fn is_running(&self, began: Position) -> bool {
        self.run.is_some_and(|run| run.began == began)
    }

    /// Whether a run may begin: none is in progress, or the one that is was interrupted.
    pub(in crate::ledger) fn may_begin(&self, now: i64, is_shared: bool, left: Option<Position>) -> bool {
        self.run.is_none_or(|run| {
            !is_shared || Some(run.began) == left || now.saturating_sub(run.active_at) >= RUN_SILENT_MILLIS_MAX
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: ReclaimPolicy = ReclaimPolicy { bytes_min: 100, within_millis: 1000, keep_millis: 0 };

    #[test]
    fn a_run_is_due_by_what_was_appended_and_by_time_if_there_is_garbage() {
        for (bytes, answer_bytes, live_bytes, now, is_due) in [
            (0, 0, 0, 9999, false),
            (99, 0, 0, 999, false),
            (100, 0, 0, 0, true),
            (99, 0, 0, 1000, true),
            // As much as the last run wrote.
            (599, 0, 300, 999, false),
            (600, 0, 300, 999, true),
            // Nothing was appended, but stored replies may have expired.
            (300, 0, 300, 1000, false),
            (300, 10, 300, 1000, true),
        ] {
            let usage = EntryUsage { bytes, answer_bytes, live_bytes, ..EntryUsage::default() };
            assert_eq!(usage.is_due(&POLICY, now), is_due, "{bytes} {answer_bytes} {live_bytes} {now}");
        }
    }

    #[test]
    fn a_run_that_another_broker_began_is_taken_over_when_it_is_silent() {
        let run = ReclaimRun { began: Position(7), active_at: 10 };
        let usage = EntryUsage { run: Some(run), ..EntryUsage::default() };
        assert!(EntryUsage::default().may_begin(0, true, None));
        assert!(!usage.may_begin(10, true, None) && !usage.may_begin(10, true, Some(Position(6))));
        assert!(usage.may_begin(10 + RUN_SILENT_MILLIS_MAX, true, None));
        // The run of this process, and one that ended with the only process of its log.
        assert!(usage.may_begin(10, true, Some(Position(7))) && usage.may_begin(10, false, None));
    }
}
