//! Side logs whose last topic was deleted: the bytes of their events are erased, and the logs are closed.
//!
//! ```text
//!  default log    TopicDeleted (the last one there) ──────────────────────────────────────▶ LogErased
//!  its own log             └──▶ events removed ──▶ entries reclaimed ──▶ erased ──▶ closed ────┘
//! ```
//!
//! - A log in files is listed in the default log's registry from the first of these entries to the last, so erasing is
//!   resumed after a restart: the log is opened for it, and closed again.
//! - A log that is not erased yet stays open, and keeps its place. The retention chore retries it.
//! - A topic that is placed in such a log again makes it a log like any other.

use super::deletion::remove_deleted;
use super::placing::run_to_completion;
use super::retention::erase;
use crate::ledger::{Command, Decision, Entry, Ledger, LogLocation, reclaim_before_close};
use crate::logs::Logs;
use contract::Result;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Erases and closes every side log that no topic is placed in. Returns the first failure.
pub(super) async fn close_unused(logs: &Arc<Logs>) -> Result<()> {
    if unused(logs).is_empty() {
        return Ok(());
    }
    let logs = Arc::clone(logs);
    run_to_completion(async move {
        // A topic may be about to be placed in a log: it is, under this lock.
        let _turn = logs.lock_placement().await;
        let mut outcome = Ok(());
        for location in unused(&logs) {
            outcome = outcome.and(erase_and_close(&logs, &location).await);
        }
        outcome
    })
    .await
}

/// The same when the broker is opened. A failure does not keep it from opening: the retention chore retries it.
pub(crate) async fn close_unused_logs(logs: &Arc<Logs>) {
    if let Err(error) = close_unused(logs).await {
        tracing::warn!(%error, "a log whose topics are deleted could not be erased yet; this is retried");
    }
}

/// Open logs that no topic is placed in, and those that are not erased yet.
fn unused(logs: &Logs) -> BTreeSet<LogLocation> {
    let open = logs.side_logs().into_iter().map(|side| side.location.clone());
    let unused = open.filter(|location| !logs.is_used(location));
    unused.chain(logs.default_ledger().registry().unerased_logs().iter().cloned()).collect()
}

async fn erase_and_close(logs: &Logs, location: &LogLocation) -> Result<()> {
    let default = logs.default_ledger();
    let is_unerased = default.registry().unerased_logs().contains(location);
    if let Some(side) = logs.reopen_unused(location).await? {
        if is_unerased && side.is_in_files() {
            erase_all(&side.ledger).await?;
        }
        logs.close_unused(&side).await;
    }
    match is_unerased {
        true => default.submit(RecordErased(location.clone())).await,
        false => Ok(()),
    }
}

/// Erases the events of deleted topics, and what the log's entries hold about them.
async fn erase_all(ledger: &Ledger) -> Result<()> {
    remove_deleted(ledger).await?;
    reclaim_before_close(ledger).await?;
    erase(ledger, true).await
}

/// In the default log: a log without topics is erased.
struct RecordErased(LogLocation);

impl Command for RecordErased {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        if decision.registry().unerased_logs().contains(&self.0) {
            decision.add_entry(Entry::LogErased { location: self.0.clone() })?;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        0
    }
}
