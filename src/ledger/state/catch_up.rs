//! Folds the log into the state: at start, and whenever another process appended.
//!
//! A shared log may lose records: its server is replaced by a replica that had not received everything, or it is
//! restored. Other processes may have written past the old tail by the time it is read again. So reading begins with
//! the last record that was applied: it must be there, and be the same.
//!
//! Retention may have removed that record. Then the log is assumed to be the same only while the engine's connection is
//! the one over which the last comparison succeeded: a log cannot be replaced under a connection. Over a new connection
//! nothing proves it, and the state is dropped ([`LogError::Diverged`]) and folded again from what the log holds.

use crate::ledger::disk::checkpoint;
use crate::ledger::reclaim::log_snapshot::MissingSnapshot;
use crate::ledger::state::LedgerState;
use bytes::Bytes;
use contract::{Position, Sequence};
use log::{FileDamage, FollowedPage, Log, LogError, ReadLimit, ReadRange, Record};
use std::path::Path;

/// One record.
const ONE: ReadLimit = ReadLimit { records: 1, bytes: 0 };

/// How much is read at a time while folding.
const PAGE: ReadLimit = ReadLimit { records: 16 * 1024, bytes: 4 * 1024 * 1024 };

/// How often opening restarts because another broker reclaims entries that were to be folded next.
const OPEN_TRIES_MAX: u32 = 8;

/// Folds the whole log. Returns the state, and the position of the checkpoint on disk.
pub(in crate::ledger) async fn fold_log(
    log: &dyn Log,
    folder: Option<&Path>,
    checkpoint_rows: usize,
    answers_millis: i64,
    missing: MissingSnapshot,
) -> Result<(LedgerState, Position), LogError> {
    let mut tries = 1;
    loop {
        match fold_once(log, folder, checkpoint_rows, answers_millis, missing).await {
            Err(LogError::Reclaimed(_)) if tries < OPEN_TRIES_MAX => tries += 1,
            outcome => return outcome,
        }
    }
}

async fn fold_once(
    log: &dyn Log,
    folder: Option<&Path>,
    checkpoint_rows: usize,
    answers_millis: i64,
    missing: MissingSnapshot,
) -> Result<(LedgerState, Position), LogError> {
    let mut state = checkpoint::load(log, folder, answers_millis, missing).await?;
    let mut checkpointed = fold_all(log, &mut state, checkpoint_rows).await?;
    if let (Some(_), Some(folder)) = (state.table_failure.get(), folder) {
        tracing::warn!(folder = %folder.display(), "the broker's tables cannot be read; rebuilding them from the log");
        drop(state);
        state = checkpoint::load_without_checkpoint(log, folder, answers_millis, missing).await?;
        checkpointed = fold_all(log, &mut state, checkpoint_rows).await?;
    }
    Ok((state, checkpointed))
}

/// Folds the rest of the log, and writes checkpoints on the way. Returns the position of the last one.
async fn fold_all(log: &dyn Log, state: &mut LedgerState, checkpoint_rows: usize) -> Result<Position, LogError> {
    let (mut on_disk, mut is_failing) = (state.position(), false);
    catch_up(log, state, |state, _| {
        if state.dirty_rows() < checkpoint_rows {
            return;
        }
        match checkpoint::write_now(state) {
            Ok(true) => on_disk = state.position(),
            Ok(false) => (),
            Err(error) if is_failing => tracing::debug!(%error, "a checkpoint of the broker's tables failed again"),
            Err(error) => {
                is_failing = true;
                tracing::error!(%error, "a checkpoint of the broker's tables failed while the log is folded");
            }
        }
    })
    .await?;
    if !log.is_shared() {
        // Records lost at the end of a repaired log are not there; their positions are not used again.
        state.position = state.position.max(*log.tail().borrow());
    }
    Ok(on_disk)
}

/// Applies every record after the state's position. `folded` is called after each page, with the state as it is then.
///
/// [`LogError::Diverged`] if the log does not hold the last record that was applied, or if nothing shows that it
/// did; [`LogError::Reclaimed`] if entries after it were reclaimed before they were read.
pub(in crate::ledger) async fn catch_up(
    log: &dyn Log,
    state: &mut LedgerState,
    mut folded: impl FnMut(&mut LedgerState, &[Record]),
) -> Result<(), LogError> {
    let is_shared = log.is_shared();
    let mut is_compared = !is_shared || state.position() == Position::ZERO;
    loop {
        let from = state.position().0 - u64::from(!is_compared);
        let page = match log.follow(Position(from), PAGE).await {
            Err(LogError::Damaged(damage)) if is_compared => {
                let records = vec![without_body(log, state, damage).await?];
                FollowedPage { records, connection: state.compared_over }
            }
            read => read?,
        };
        if is_compared && page.connection.is_some() && !is_same_connection(state, &page) {
            // The connection was made again between two pages.
            is_compared = false;
            continue;
        }
        let new = match is_compared {
            true => page.records.as_slice(),
            false => behind_last(log, state, &page).await?,
        };
        if new.is_empty() && is_compared {
            return Ok(());
        }
        is_compared = true;
        state.compared_over = page.connection.or(state.compared_over);
        let applied = new.iter().try_for_each(|record| {
            // No other process reclaims a log that is not shared; a gap there was cut out by a repair.
            if is_shared {
                state.check_gap(&record.header)?;
            }
            state.apply(record)
        });
        if !new.is_empty() {
            folded(state, new);
        }
        applied?;
    }
}

/// Whether a page was read over the connection of the last comparison. Before the first one the state was just loaded,
/// and loading compared it.
fn is_same_connection(state: &LedgerState, page: &FollowedPage) -> bool {
    state.compared_over.is_none_or(|compared_over| page.connection == Some(compared_over))
}

/// The records after the last applied one, of a page that begins with it.
async fn behind_last<'a>(log: &dyn Log, state: &LedgerState, page: &'a FollowedPage) -> Result<&'a [Record], LogError> {
    let diverged = LogError::Diverged(state.position());
    if let Some((first, rest)) = page.records.split_first()
        && first.header.position == state.position()
    {
        return if state.ends_with(first) { Ok(rest) } else { Err(diverged) };
    }
    // The record is not there. Retention may have removed it; then its topic is trimmed.
    let behind = ReadRange::Topic(state.last.topic, Sequence(state.last.sequence.0.saturating_sub(1)));
    match log.read(behind, ONE).await {
        // The topic may also have been trimmed in another history, which never held this record.
        Err(LogError::Trimmed(_)) if !is_same_connection(state, page) => {
            tracing::warn!(
                position = state.position().get(),
                "the last record that was read has been removed, and the connection to the log is a new one: nothing shows \
                 that the log is the same. Its state is built again from what it holds"
            );
            Err(diverged)
        }
        Err(LogError::Trimmed(_)) => Ok(&page.records),
        Ok(_) => Err(diverged),
        Err(error) => Err(error),
    }
}

/// The next record with an empty body, if its own is damaged. An event is folded by its header, so only its readers
/// miss the body; an entry cannot be folded without its body.
async fn without_body(log: &dyn Log, state: &LedgerState, damage: FileDamage) -> Result<Record, LogError> {
    match log.headers(ReadRange::All(state.position()), ONE).await?.first() {
        Some(header) if header.facets.is_some() => {
            tracing::warn!(
                file = %damage.file.display(), offset = damage.offset, reason = damage.reason,
                position = header.position.get(), sequence = header.sequence.get(),
                "an event cannot be read; everything else can"
            );
            Ok(Record { header: *header, body: Bytes::new() })
        }
        _ => Err(LogError::Damaged(damage)),
    }
}
