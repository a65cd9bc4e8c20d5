//! Checkpoints: the state as of one position, on disk, so that opening reads only what came after it.
//!
//! - A checkpoint is a cache. Missing or damaged, the state is folded from the whole log instead.
//! - Only what is applied, and therefore durable, goes into one. So a log that ends before its checkpoint has lost
//!   something acknowledged, and is refused. Not so one in a database: there an operator, or a fail-over, decided to go on
//!   with an older copy, and the checkpoint is dropped with a warning.
//! - One that skipped facts of a newer version is not believed by that version.
//! - It is written on a thread of its own; the writer goes on deciding meanwhile.

use super::row_codec::IdempotencyRow;
use super::table::{DiskTables, FoundCheckpoint, WrittenCheckpoint};
use crate::ledger::facts::entry::DICTIONARY;
use crate::ledger::reclaim::log_snapshot::{self, MissingSnapshot};
use crate::ledger::state::LedgerState;
use crate::ledger::state::snapshot::StateSnapshot;
use contract::{Error, Kind, Position, Result, Sequence};
use log::{FileDamage, Log, LogError, ReadLimit, ReadRange, TopicNumber, crash_point};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{Notify, oneshot};

/// Records folded since the last one that make a checkpoint due.
const RECORDS_DUE: u64 = 4 * 1024 * 1024;
/// A checkpoint writes the small state whole, however little of it has changed: it waits for a row for so many bytes of it.
const BYTES_PER_ROW: usize = 10;
/// After a failed checkpoint the next is tried after this long, then after twice as long each time.
const RETRY_MILLIS: i64 = 1000;
const RETRY_MILLIS_MAX: i64 = 60_000;
/// While checkpoints fail, this many times the rows that make one due may be in RAM.
const ROWS_MAX_TIMES: usize = 16;

/// How far a log had come, as its last checkpoint knows it: everything up to there was acknowledged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LastCheckpoint {
    /// The position it was taken at; 0 where there is none.
    pub position: Position,
    /// The last sequence of each topic as of then.
    pub tails: Vec<(TopicNumber, Sequence)>,
    /// How long kept answers lived. Opened for longer, the checkpoint is not believed.
    pub answers_millis: i64,
}

/// The part of a snapshot that says how far its log had come.
#[derive(Deserialize)]
struct CheckpointTails {
    position: Position,
    tails: Vec<Sequence>,
    #[serde(default)]
    answers_millis: i64,
}

/// What the checkpoint in `folder` knows of its log, whoever uses it meanwhile. An error where it cannot be read; then it
/// is not believed either.
pub fn last_checkpoint(folder: &Path) -> io::Result<LastCheckpoint> {
    let Some(payload) = DiskTables::peek(folder)? else { return Ok(LastCheckpoint::default()) };
    let CheckpointTails { position, tails, answers_millis } = serde_json::from_str(payload.get())?;
    Ok(LastCheckpoint { position, tails: (0..).map(TopicNumber).zip(tails).collect(), answers_millis })
}

/// The writer's side of checkpointing.
pub(in crate::ledger) struct CheckpointScheduler {
    on_disk: bool,
    /// Rows in RAM that make one due.
    rows_due: usize,
    /// Bytes of the small state, as of the last one written.
    snapshot_bytes: usize,
    /// Told when one that was begun has ended. A signal of its own, not a message to the writer: whoever waits for the end
    /// of a checkpoint must not depend on room in the writer's inbox.
    ended: Arc<Notify>,
    running: Option<JoinHandle<io::Result<WrittenCheckpoint>>>,
    /// Where the last one was begun.
    position: Position,
    /// While they fail.
    failing: Option<CheckpointFailures>,
    /// Callers that wait for one, each with the position that it must cover.
    requested: Vec<(Position, oneshot::Sender<Result<()>>)>,
}

/// Checkpoints that fail, one after the other.
struct CheckpointFailures {
    count: u32,
    cause: String,
    /// The next one is not tried between these, by the clock; one that is set back does not stretch it.
    since: i64,
    until: i64,
}

impl CheckpointFailures {
    fn is_waiting(&self, now: i64) -> bool {
        (self.since..self.until).contains(&now)
    }
}

impl CheckpointScheduler {
    /// Checkpoints of a state that stands at `position`, and is on disk as far.
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

    /// Whether one is being written.
    pub(in crate::ledger) const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Has one written that covers everything applied so far. `reply` receives the outcome when it is on disk; at once where
    /// there is nothing to write, or while checkpoints fail.
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
        // The caller may have left.
        let _ = reply.send(outcome);
    }

    /// Answers the callers whose checkpoint is written, or all of them if it failed.
    fn answer_requests(&mut self, outcome: Result<(), &str>) {
        let covered = self.position;
        for (wanted, reply) in std::mem::take(&mut self.requested) {
            match outcome {
                Ok(()) if wanted > covered => self.requested.push((wanted, reply)),
                // The caller may have left.
                Ok(()) => _ = reply.send(Ok(())),
                Err(cause) => _ = reply.send(Err(not_written(cause))),
            }
        }
    }

    /// Begins a checkpoint if one is due and none is under way.
    pub(in crate::ledger) fn start_if_due(&mut self, state: &mut LedgerState, now: i64) {
        let rows = state.dirty_rows();
        let records = state.position.0.saturating_sub(self.position.0);
        let is_waiting = self.failing.as_ref().is_some_and(|failing| failing.is_waiting(now));
        if self.running.is_some() || is_waiting || !(self.is_due(rows, records) || !self.requested.is_empty()) {
            return;
        }
        if !self.on_disk {
            // Looking at every row again is worth it only after as many new ones.
            if records >= rows as u64 {
                self.position = state.position;
                state.disk_tables.forget(expire_before(state));
            }
            return;
        }
        let Some(job) = freeze(state) else { return };
        self.position = state.position;
        let ended = self.ended();
        let work = move || {
            // Whatever becomes of it, the writer must hear of it: it starts no other checkpoint until then.
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

    /// Takes over a checkpoint that is done. After a failed one its rows stay in RAM until the next succeeds.
    pub(in crate::ledger) fn collect(&mut self, state: &mut LedgerState, now: i64) {
        match self.running.take().map(JoinHandle::join) {
            Some(Ok(Ok(done))) => {
                self.snapshot_bytes = done.payload_bytes;
                state.disk_tables.install(done);
                self.note(Ok(()), now);
            }
            Some(Ok(Err(error))) => self.note(Err(&error.to_string()), now),
            Some(Err(_)) => self.note(Err("its thread panicked"), now),
            None => (),
        }
    }

    /// Notes how a checkpoint ended. The first failure is logged, and the end of them; the next try is later each time.
    fn note(&mut self, outcome: Result<(), &str>, now: i64) {
        self.answer_requests(outcome);
        let failed = self.failing.take();
        let Err(cause) = outcome else {
            if let Some(CheckpointFailures { count, .. }) = failed {
                tracing::info!(failed = count, "a checkpoint was written again");
            }
            return;
        };
        let is_news = failed.as_ref().is_none_or(|failed| failed.cause != cause);
        if is_news {
            tracing::error!(cause, "a checkpoint of the broker's tables failed; it is tried again");
        }
        let count = failed.map_or(0, |failed| failed.count).saturating_add(1);
        let wait = RETRY_MILLIS.checked_shl(count - 1).unwrap_or(RETRY_MILLIS_MAX).min(RETRY_MILLIS_MAX);
        self.failing =
            Some(CheckpointFailures { count, cause: cause.to_owned(), since: now, until: now.saturating_add(wait) });
    }

    /// What readiness says while checkpoints fail.
    pub(in crate::ledger) fn warning(&self) -> Option<String> {
        let CheckpointFailures { count, cause, .. } = self.failing.as_ref()?;
        Some(format!(
            "The last {count} checkpoints of the broker's tables failed ({cause}). Events are stored as usual, but opening \
             again takes longer; see that the folder `state` can be written to."
        ))
    }

    /// Why nothing more is taken: checkpoints fail, and as much is in RAM as may be.
    pub(in crate::ledger) fn refusal(&self, rows: usize) -> Option<Error> {
        let rows_max = self.rows_due.max(self.snapshot_bytes / BYTES_PER_ROW).saturating_mul(ROWS_MAX_TIMES);
        if self.failing.is_none() || rows < rows_max {
            return None;
        }
        let detail = "The broker's tables cannot be written to disk, and no more of them fits in memory. See that there is \
            room on the volume of the data folder; the broker tries again by itself.";
        Some(Error::new(Kind::Unavailable, detail).with_retry_after(5))
    }

    /// The last checkpoint before the end, written here and now.
    pub(in crate::ledger) fn write_last(&mut self, state: &mut LedgerState, now: i64) {
        self.collect(state, now);
        let is_due = self.on_disk && (self.position < state.position || self.failing.is_some());
        if is_due && let Err(error) = write_now(state) {
            tracing::error!(%error, "the last checkpoint of the broker's tables failed; opening again takes longer");
        }
    }
}

fn not_written(cause: &str) -> Error {
    let detail = format!("A checkpoint of the broker's tables could not be written ({cause}).");
    Error::new(Kind::Unavailable, detail).with_retry_after(5)
}

/// Writes a checkpoint here and now; `false` where there is no folder for it.
pub(in crate::ledger) fn write_now(state: &mut LedgerState) -> io::Result<bool> {
    let Some(job) = freeze(state) else { return Ok(false) };
    state.disk_tables.install(job.run(&crash_point)?);
    Ok(true)
}

/// The state to fold on from: that of the last checkpoint in `folder`, or an empty one where there is none to trust. Where
/// entries behind it were reclaimed, the log's own snapshot says what they did.
pub(in crate::ledger) async fn load(
    log: &dyn Log,
    folder: Option<&Path>,
    answers_millis: i64,
    missing: MissingSnapshot,
) -> Result<LedgerState, LogError> {
    let state = load_checkpoint(log, folder, answers_millis).await?;
    log_snapshot::skip_reclaimed(log, state, folder, missing).await
}

async fn load_checkpoint(log: &dyn Log, folder: Option<&Path>, answers_millis: i64) -> Result<LedgerState, LogError> {
    let empty = |tables| LedgerState { answers_millis, ..LedgerState::new(tables) };
    let Some(folder) = folder else { return Ok(empty(DiskTables::in_memory(stamp))) };
    let (tables, found) = DiskTables::open(folder, stamp)?;
    let FoundCheckpoint::Checkpoint(payload) = found else { return Ok(empty(tables)) };
    let reason = match serde_json::from_str::<StateSnapshot>(payload.get()) {
        Err(_) => "was written by another version",
        Ok(snapshot) if snapshot.needs_dictionary > DICTIONARY => "was written by a newer version",
        Ok(snapshot) if snapshot.lacks_facts() => "skipped facts that its version did not know",
        Ok(snapshot) => match belongs_to(log, &snapshot, folder).await? {
            true if snapshot.answers_millis >= answers_millis => {
                return Ok(LedgerState { answers_millis, ..snapshot.restore(tables) });
            }
            true => "was written while kept answers lived shorter than they do now",
            false => "is not of this log, or nothing shows that it is (the record it was taken at is gone)",
        },
    };
    tracing::warn!(folder = %folder.display(), "the last checkpoint {reason}; folding the log anew");
    drop(tables);
    Ok(start_empty(folder, answers_millis)?)
}

/// The state to fold all of the log on, whatever the folder holds: the way out when the tables turn out to be unreadable.
pub(in crate::ledger) async fn load_without_checkpoint(
    log: &dyn Log,
    folder: &Path,
    answers_millis: i64,
    missing: MissingSnapshot,
) -> Result<LedgerState, LogError> {
    log_snapshot::skip_reclaimed(log, start_empty(folder, answers_millis)?, Some(folder), missing).await
}

fn start_empty(folder: &Path, answers_millis: i64) -> io::Result<LedgerState> {
    Ok(LedgerState { answers_millis, ..LedgerState::new(DiskTables::fresh(folder, stamp)?) })
}

/// Whether this is a checkpoint of this log: whether the log still holds the record that it was taken at.
///
/// Retention may have removed that record since. A log of our own is believed then. A shared one may have been restored from an
/// older copy, written on by others past this position and trimmed: nothing shows that the checkpoint is of its history.
async fn belongs_to(log: &dyn Log, snapshot: &StateSnapshot, folder: &Path) -> Result<bool, LogError> {
    let tail = *log.tail().borrow();
    if snapshot.position > tail && log.is_shared() {
        let missing = snapshot.position.0.saturating_sub(tail.0);
        tracing::warn!(
            checkpoint = snapshot.position.0,
            tail = tail.0,
            missing,
            "the log went back: records that this broker had read are not in the database any more. Going on with what it holds"
        );
        return Ok(false);
    }
    if snapshot.position > tail {
        return Err(LogError::Damaged(FileDamage {
            file: folder.to_owned(),
            offset: 0,
            reason: format!(
                "the checkpoint was taken at position {}, but the log ends at {tail}: acknowledged records are missing",
                snapshot.position
            ),
        }));
    }
    let Some(before) = snapshot.position.0.checked_sub(1) else { return Ok(true) };
    let page = match log.read(ReadRange::All(Position(before)), ReadLimit { records: 1, bytes: 0 }).await {
        // It cannot tell either, and what it did is in the checkpoint.
        Err(LogError::Damaged(damage)) => {
            tracing::warn!(file = %damage.file.display(), offset = damage.offset, reason = damage.reason,
                position = snapshot.position.get(), "the record of the last checkpoint cannot be read");
            return Ok(true);
        }
        read => read?,
    };
    match page.first().filter(|record| record.header.position == snapshot.position) {
        Some(record) => Ok(crc32c::crc32c(&record.body) == snapshot.record_crc),
        None => Ok(!log.is_shared()),
    }
}

fn freeze(state: &mut LedgerState) -> Option<super::table::CheckpointJob> {
    if state.carrying.is_under_way() {
        // It would not have the pieces before it.
        return None;
    }
    let (snapshot, expire_before) = (StateSnapshot::of(state), expire_before(state));
    let payload = move || Ok(RawValue::from_string(serde_json::to_string(&snapshot)?)?);
    state.disk_tables.freeze(Box::new(payload), expire_before)
}

/// Keys from before this are past every topic's window, and that of kept answers, by the time of the last record. Every
/// later decision has a later time, and a window that is raised later revives no key ([`crate::ledger::TopicEntry::remembers`]), so
/// dropping them changes no answer.
fn expire_before(state: &LedgerState) -> i64 {
    let time = state.clock_hold.time_for(i64::MIN, state.time);
    time.saturating_sub(state.registry.longest_window_millis().max(state.answers_millis))
}

/// When a key's life began.
fn stamp(row: &[u8; IdempotencyRow::BYTES]) -> i64 {
    IdempotencyRow::decode(*row).time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_a_checkpoint_is_told_and_can_be_waited_for_without_the_writer() {
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
