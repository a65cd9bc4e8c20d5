//! When checkpoints are written, and what happens while they fail.
//!
//! - A checkpoint is written on a thread of its own; the writer continues to decide meanwhile.
//! - One checkpoint is written at a time. A failed one is retried at growing intervals; its rows stay in RAM.

use crate::ledger::disk::checkpoint::{expire_before, freeze, write_now};
use crate::ledger::disk::table::WrittenCheckpoint;
use crate::ledger::state::LedgerState;
use contract::{Error, Kind, Position, Result};
use log::crash_point;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{Notify, oneshot};

/// Records folded since the last checkpoint that make the next one due.
const RECORDS_DUE: u64 = 4 * 1024 * 1024;
/// A checkpoint writes the complete small state, however little of it has changed. So for each of these bytes of small
/// state it waits for one more row.
const BYTES_PER_ROW: usize = 10;
/// The wait after a failed checkpoint; it doubles with every failure.
const RETRY_MILLIS: i64 = 1000;
const RETRY_MILLIS_MAX: i64 = 60_000;
/// While checkpoints fail, this many times the rows that make one due may be in RAM.
const ROWS_MAX_TIMES: usize = 16;

/// Starts and collects the checkpoints of one ledger.
pub(in crate::ledger) struct CheckpointScheduler {
    on_disk: bool,
    /// Rows in RAM that make a checkpoint due.
    rows_due: usize,
    /// Bytes of the small state in the last checkpoint.
    snapshot_bytes: usize,
    /// Notified when a checkpoint has ended. A signal of its own, not a message to the writer: the end of a checkpoint
    /// must not depend on space in the writer's inbox.
    ended: Arc<Notify>,
    running: Option<JoinHandle<io::Result<WrittenCheckpoint>>>,
    /// The position of the last checkpoint that was begun.
    position: Position,
    /// Set while checkpoints fail.
    failing: Option<CheckpointFailures>,
    /// Callers that wait for a checkpoint, each with the position that it must cover.
    requested: Vec<(Position, oneshot::Sender<Result<()>>)>,
}

/// Consecutive failures of checkpoints.
struct CheckpointFailures {
    count: u32,
    cause: String,
    /// The next checkpoint is not tried between these times; a clock that is set back does not extend the wait.
    since: i64,
    until: i64,
}

impl CheckpointFailures {
    fn is_waiting(&self, now: i64) -> bool {
        (self.since..self.until).contains(&now)
    }
}

impl CheckpointScheduler {
    /// A scheduler for a state whose checkpoint on disk is at `position`.
    pub(in crate::ledger) fn new(on_disk: bool, rows_due: usize, position: Position) -> Self {
        Self {
            on_disk,
            rows_due,
            snapshot_bytes: 0,
            ended: Arc::default(),
            running: None,
            position,
            failing: None,
            requested: Vec::new(),
        }
    }

    /// Notified when a checkpoint has ended and can be collected.
    pub(in crate::ledger) fn ended(&self) -> Arc<Notify> {
        Arc::clone(&self.ended)
    }

    /// Whether a checkpoint is being written.
    pub(in crate::ledger) const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Requests a checkpoint that covers everything applied so far. `reply` receives the result when it is on disk; at
    /// once if there is nothing to write, or while checkpoints fail.
    pub(in crate::ledger) fn request(&mut self, state: &mut LedgerState, now: i64, reply: oneshot::Sender<Result<()>>) {
        let is_covered = self.running.is_none() && self.failing.is_none() && self.position >= state.position;
        let outcome = match &self.failing {
            _ if !self.on_disk || is_covered => Ok(()),
            Some(failing) if failing.is_waiting(now) => Err(not_written(&failing.cause)),
            _ => {
                self.requested.push((state.position, reply));
                return self.start_if_due(state, now);
            }
        };
        // The caller may have disconnected.
        let _ = reply.send(outcome);
    }

    /// Answers the callers whose checkpoint is written, or all of them if it failed.
    fn answer_requests(&mut self, outcome: Result<(), &str>) {
        let covered = self.position;
        for (wanted, reply) in std::mem::take(&mut self.requested) {
            match outcome {
                Ok(()) if wanted > covered => self.requested.push((wanted, reply)),
                // The caller may have disconnected.
                Ok(()) => _ = reply.send(Ok(())),
                Err(cause) => _ = reply.send(Err(not_written(cause))),
            }
        }
    }

    /// Begins a checkpoint if one is due and none is being written.
    pub(in crate::ledger) fn start_if_due(&mut self, state: &mut LedgerState, now: i64) {
        let rows = state.dirty_rows();
        let records = state.position.0.saturating_sub(self.position.0);
        let is_waiting = self.failing.as_ref().is_some_and(|failing| failing.is_waiting(now));
        let is_wanted = self.is_due(rows, records) || !self.requested.is_empty();
        if self.running.is_some() || is_waiting || !is_wanted {
            return;
        }
        if !self.on_disk {
            // Visiting every row pays off only after as many new ones.
            if records >= rows as u64 {
                self.position = state.position;
                state.disk_tables.forget(expire_before(state));
            }
            return;
        }
        let Some(job) = freeze(state) else {
            return self.answer_requests(Err("the state is being replaced piece by piece"));
        };
        self.position = state.position;
        let ended = self.ended();
        let work = move || {
            // The writer must be notified in every case: it starts no other checkpoint until then.
            let run = std::panic::AssertUnwindSafe(move || job.run(&crash_point));
            let outcome =
                std::panic::catch_unwind(run).unwrap_or_else(|_| Err(io::Error::other("its thread panicked")));
            ended.notify_one();
            outcome
        };
        match std::thread::Builder::new().name("event-broker-checkpoint".to_owned()).spawn(work) {
            Ok(running) => self.running = Some(running),
            Err(error) => self.note(Err(&error.to_string()), now),
        }
    }

    fn is_due(&self, rows: usize, records: u64) -> bool {
        rows >= self.rows_due.max(self.snapshot_bytes / BYTES_PER_ROW) || records >= RECORDS_DUE
    }

    /// Installs a checkpoint that has ended. After a failed one its rows stay in RAM until the next succeeds.
    pub(in crate::ledger) fn collect(&mut self, state: &mut LedgerState, now: i64) {
        let Some(running) = self.running.take() else { return };
        match running.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked"))) {
            Ok(done) => {
                self.snapshot_bytes = done.payload_bytes;
                state.disk_tables.install(done);
                self.note(Ok(()), now);
            }
            Err(error) => self.note(Err(&error.to_string()), now),
        }
    }

    /// Notes the result of a checkpoint. The first failure is logged, and the end of the failures.
    fn note(&mut self, outcome: Result<(), &str>, now: i64) {
        self.answer_requests(outcome);
        let failed = self.failing.take();
        let Err(cause) = outcome else {
            if let Some(CheckpointFailures { count, .. }) = failed {
                tracing::info!(failed = count, "checkpoints are written again");
            }
            return;
        };
        let is_news = failed.as_ref().is_none_or(|failed| failed.cause != cause);
        if is_news {
            tracing::error!(cause, "a checkpoint of the broker's tables failed; it is retried");
        }
        let count = failed.map_or(0, |failed| failed.count).saturating_add(1);
        let wait = retry_wait(count);
        self.failing =
            Some(CheckpointFailures { count, cause: cause.to_owned(), since: now, until: now.saturating_add(wait) });
    }

    /// The warning in `/readyz` while checkpoints fail.
    pub(in crate::ledger) fn warning(&self) -> Option<String> {
        let CheckpointFailures { count, cause, .. } = self.failing.as_ref()?;
        Some(format!(
            "The last {count} checkpoints of the broker's tables failed ({cause}). Events are stored as usual, but opening \
             again takes longer; make sure that the folder `state` can be written to."
        ))
    }

    /// The refusal of commands while checkpoints fail and the limit of rows in RAM is reached.
    pub(in crate::ledger) fn refusal(&self, rows: usize) -> Option<Error> {
        let rows_max = self.rows_due.max(self.snapshot_bytes / BYTES_PER_ROW).saturating_mul(ROWS_MAX_TIMES);
        if self.failing.is_none() || rows < rows_max {
            return None;
        }
        let detail = "The broker's tables cannot be written to disk, and no more of them fits in memory. Make sure that \
            there is space on the volume of the data folder; the broker retries by itself.";
        Some(Error::new(Kind::Unavailable, detail).with_retry_after(5))
    }

    /// Writes the last checkpoint before the ledger ends, on this thread.
    pub(in crate::ledger) fn write_last(&mut self, state: &mut LedgerState, now: i64) {
        self.collect(state, now);
        let is_due = self.on_disk && (self.position < state.position || self.failing.is_some());
        if is_due && let Err(error) = write_now(state) {
            tracing::error!(%error, "the last checkpoint of the broker's tables failed; opening again takes longer");
        }
    }
}

/// The wait after this many failures in a row, in milliseconds: it doubles up to a maximum.
fn retry_wait(failures: u32) -> i64 {
    // A larger shift would push bits out of the number.
    let doublings = failures.saturating_sub(1).min(RETRY_MILLIS_MAX.ilog2());
    (1_i64 << doublings).saturating_mul(RETRY_MILLIS).min(RETRY_MILLIS_MAX)
}

fn not_written(cause: &str) -> Error {
    let detail = format!("A checkpoint of the broker's tables could not be written ({cause}).");
    Error::new(Kind::Unavailable, detail).with_retry_after(5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::disk::checkpoint::{last_checkpoint, stamp};
    use crate::ledger::disk::table::DiskTables;

    #[tokio::test]
    async fn the_end_of_a_checkpoint_is_notified_without_the_writer() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = LedgerState {
            position: Position(1),
            ..LedgerState::new(DiskTables::open(folder.path(), stamp).unwrap().0)
        };
        let mut checkpoints = CheckpointScheduler::new(true, 0, Position::ZERO);
        checkpoints.start_if_due(&mut state, 0);
        assert!(checkpoints.is_running());
        checkpoints.ended().notified().await;
        checkpoints.collect(&mut state, 0);
        assert!(!checkpoints.is_running() && checkpoints.warning().is_none());
        assert_eq!(last_checkpoint(folder.path()).unwrap().position, Position(1));
    }

    /// The shift lost its bits: after 55 failures the wait was negative, and checkpoints were retried without a pause.
    #[test]
    fn the_wait_after_a_failed_checkpoint_never_falls() {
        let waits: Vec<_> = (1..200).map(retry_wait).chain([retry_wait(u32::MAX)]).collect();
        assert!(waits.is_sorted(), "{waits:?}");
        assert_eq!((waits[0], waits[1], waits[199]), (RETRY_MILLIS, 2 * RETRY_MILLIS, RETRY_MILLIS_MAX));
    }

    #[test]
    fn many_failures_in_a_row_are_counted_and_the_next_try_is_a_wait_away() {
        let mut checkpoints = CheckpointScheduler::new(true, 0, Position::ZERO);
        for failure in 1..=100 {
            checkpoints.note(Err("the disk is gone"), 7);
            let failing = checkpoints.failing.as_ref().unwrap();
            assert!(failing.is_waiting(7 + RETRY_MILLIS - 1), "after {failure} failures");
            assert!(!failing.is_waiting(7 + RETRY_MILLIS_MAX), "after {failure} failures");
        }
    }

    #[test]
    fn a_checkpoint_is_due_by_its_rows_by_a_large_small_state_later_and_by_records_in_any_case() {
        let mut checkpoints = CheckpointScheduler::new(true, 100, Position::ZERO);
        for (snapshot_bytes, rows, records, is_due) in [
            (0, 99, 0, false),
            (0, 100, 0, true),
            (100 * BYTES_PER_ROW, 100, 0, true),
            (101 * BYTES_PER_ROW, 100, 0, false),
            (101 * BYTES_PER_ROW, 101, 0, true),
            (usize::MAX, 0, RECORDS_DUE - 1, false),
            (usize::MAX, 0, RECORDS_DUE, true),
        ] {
            checkpoints.snapshot_bytes = snapshot_bytes;
            assert_eq!(checkpoints.is_due(rows, records), is_due, "{snapshot_bytes} {rows} {records}");
        }
    }
}
