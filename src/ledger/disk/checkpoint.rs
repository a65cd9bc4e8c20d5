//! Checkpoints: the state as of one position, on disk, so that opening folds only the records after it.
//!
//! - A checkpoint is a cache. If it is missing or damaged, the whole log is folded instead.
//! - A checkpoint contains only what is applied, and therefore durable. So a log that ends before its checkpoint has
//!   lost acknowledged records, and is refused. A log in a database is not refused: there an operator, or a fail-over,
//!   chose to continue with an older copy, and the checkpoint is dropped with a warning.
//! - A checkpoint of an older version that skipped facts which this version knows is not used.
//!
//! When a checkpoint is written is decided by [`crate::ledger::writer::checkpoints`].

use super::row_codec::IdempotencyRow;
use super::table::{CheckpointJob, DiskTables, FoundCheckpoint};
use crate::ledger::facts::entry::DICTIONARY;
use crate::ledger::reclaim::log_snapshot::{self, MissingSnapshot};
use crate::ledger::state::LedgerState;
use crate::ledger::state::snapshot::StateSnapshot;
use contract::{Position, Sequence};
use log::{FileDamage, Log, LogError, ReadLimit, ReadRange, TopicNumber, crash_point};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io;
use std::path::Path;

/// The part of a log that its last checkpoint shows to be acknowledged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LastCheckpoint {
    /// The position of the checkpoint; 0 if there is none.
    pub position: Position,
    /// The last sequence of each topic at that position.
    pub tails: Vec<(TopicNumber, Sequence)>,
    /// The lifetime of stored replies. A ledger that is opened with a longer one does not use the checkpoint.
    pub answers_millis: i64,
}

/// The members of a snapshot that show what was acknowledged.
#[derive(Deserialize)]
struct CheckpointTails {
    position: Position,
    tails: Vec<Sequence>,
    #[serde(default)]
    answers_millis: i64,
}

/// Reads what the checkpoint in `folder` shows to be acknowledged, also while the folder is in use. An error if the
/// checkpoint cannot be read; then opening does not use it, either.
pub fn last_checkpoint(folder: &Path) -> io::Result<LastCheckpoint> {
    let Some(payload) = DiskTables::peek(folder)? else { return Ok(LastCheckpoint::default()) };
    let CheckpointTails { position, tails, answers_millis } = serde_json::from_str(payload.get())?;
    Ok(LastCheckpoint { position, tails: (0..).map(TopicNumber).zip(tails).collect(), answers_millis })
}

/// Writes a checkpoint on this thread; `false` if there is no folder for it.
pub(in crate::ledger) fn write_now(state: &mut LedgerState) -> io::Result<bool> {
    let Some(job) = freeze(state) else { return Ok(false) };
    state.disk_tables.install(job.run(&crash_point)?);
    Ok(true)
}

/// The state to continue folding from: that of the last checkpoint in `folder`, or an empty one if there is no valid
/// one. If entries after it were reclaimed, the snapshot in the log replaces them.
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
        Err(error) => format!("is damaged, or was written by another version ({error})"),
        Ok(snapshot) if snapshot.needs_dictionary > DICTIONARY => "was written by a newer version".to_owned(),
        Ok(snapshot) if snapshot.lacks_facts() => "skipped facts that its version did not know".to_owned(),
        Ok(snapshot) if !snapshot.is_whole() => "lacks members of its topics".to_owned(),
        Ok(snapshot) => match belongs_to(log, &snapshot, folder).await? {
            true if snapshot.answers_millis >= answers_millis => {
                return Ok(LedgerState { answers_millis, ..snapshot.restore(tables) });
            }
            true => "was written with a shorter lifetime of stored replies".to_owned(),
            false => "is not of this log, or nothing shows that it is (its last record was removed)".to_owned(),
        },
    };
    tracing::warn!(folder = %folder.display(), "the last checkpoint {reason}; the whole log is folded");
    drop(tables);
    Ok(start_empty(folder, answers_millis)?)
}

/// The state to fold the whole log on, whatever the folder holds. Used if the tables turn out to be unreadable.
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

/// Whether this is a checkpoint of this log: whether the log still holds the last record of the checkpoint.
///
/// Retention may have removed that record since. For a log that is not shared, the checkpoint is used then. A shared
/// log may have been restored from an older copy, continued by other processes past this position and trimmed: nothing
/// shows that the checkpoint belongs to its history.
async fn belongs_to(log: &dyn Log, snapshot: &StateSnapshot, folder: &Path) -> Result<bool, LogError> {
    let tail = *log.tail().borrow();
    if snapshot.position > tail && log.is_shared() {
        let missing = snapshot.position.0.saturating_sub(tail.0);
        tracing::warn!(
            checkpoint = snapshot.position.0,
            tail = tail.0,
            missing,
            "records that this broker had read are no longer in the database: it was replaced by an older copy. The broker continues with what it holds"
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
        // The record cannot be compared, and its effect is in the checkpoint.
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

/// Freezes the tables and the small state for a checkpoint; `None` if none can be taken at this moment.
pub(in crate::ledger) fn freeze(state: &mut LedgerState) -> Option<CheckpointJob> {
    if state.carrying.is_under_way() {
        // The checkpoint would lack the pieces that were read already.
        return None;
    }
    let (snapshot, expire_before) = (StateSnapshot::of(state), expire_before(state));
    let payload = move || Ok(RawValue::from_string(serde_json::to_string(&snapshot)?)?);
    state.disk_tables.freeze(Box::new(payload), expire_before)
}

/// Idempotency keys from before this are outside of every topic's window, and of that of stored replies, by the time of
/// the last record. Every later decision has a later time, and a window that is raised later revives no key
/// ([`crate::ledger::RegisteredTopic::remembers`]), so dropping them changes no response.
pub(in crate::ledger) fn expire_before(state: &LedgerState) -> i64 {
    let time = state.clock_hold.time_for(i64::MIN, state.time);
    time.saturating_sub(state.registry.longest_window_millis().max(state.answers_millis))
}

/// When an idempotency key was stored.
pub(in crate::ledger) fn stamp(row: &[u8; IdempotencyRow::BYTES]) -> i64 {
    IdempotencyRow::decode(*row).time
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::state::bitmap::StoredBitmap;
    use log::MemoryLog;
    use serde_json::{Value, json};

    /// The time of the checkpoints below; a state without a checkpoint has another.
    const TIME: i64 = 77;

    /// The state that is restored from a checkpoint with this payload.
    async fn restored(payload: &Value) -> LedgerState {
        let folder = tempfile::tempdir().unwrap();
        let mut state = start_empty(folder.path(), 0).unwrap();
        let text = payload.to_string();
        let payload = move || Ok(RawValue::from_string(text.clone())?);
        let job = state.disk_tables.freeze(Box::new(payload), 0).unwrap();
        state.disk_tables.install(job.run(&crash_point).unwrap());
        drop(state);
        load_checkpoint(&MemoryLog::new(), Some(folder.path()), 0).await.unwrap()
    }

    fn is_replaced(state: &LedgerState) -> bool {
        state.tables.dead_letters().is_replaced("mail", 1, Sequence(3))
    }

    #[tokio::test]
    async fn a_checkpoint_with_a_damaged_bitmap_is_refused_and_the_log_is_folded() {
        let bits = serde_json::to_value(StoredBitmap([3].into_iter().collect())).unwrap();
        let mut payload =
            serde_json::to_value(StateSnapshot::of(&LedgerState::new(DiskTables::in_memory(stamp)))).unwrap();
        payload["time"] = TIME.into();
        payload["parts"]["letters"]["replaced"] = json!([{"subscription": "mail", "topic": 1, "sequences": bits}]);
        let state = restored(&payload).await;
        assert_eq!((state.time, is_replaced(&state)), (TIME, true));
        // The number of parts at the beginning is 0 instead of 1.
        let damaged = bits.as_str().unwrap().strip_prefix("AQ").map(|rest| format!("AA{rest}")).unwrap();
        payload["parts"]["letters"]["replaced"][0]["sequences"] = damaged.into();
        assert_ne!(restored(&payload).await.time, TIME, "the checkpoint was used, and the set was empty");
    }

    #[tokio::test]
    async fn a_checkpoint_that_lacks_members_of_topics_is_refused() {
        let mut payload =
            serde_json::to_value(StateSnapshot::of(&LedgerState::new(DiskTables::in_memory(stamp)))).unwrap();
        payload["time"] = TIME.into();
        payload["forgotten_through"] = json!([7]);
        assert_ne!(restored(&payload).await.time, TIME, "the checkpoint was used");
    }
}
