//! The progress and the failures of reclaiming in one log, as far as this process knows them and the log does not.
//!
//! - A failure is logged when it begins, when its reason changes and when it ends; in between `/readyz` shows it.
//! - A failed run is retried at growing intervals.

use contract::{Error, Position, Sequence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The most ticks between two tries.
const WAIT_TICKS_MAX: u32 = 60;

/// The progress and the last failure of reclaiming in this process.
#[derive(Debug)]
pub(in crate::ledger) struct ReclaimMemo {
    known: Mutex<ReclaimProgress>,
    /// The permit of the one run in progress.
    turn: Semaphore,
}

impl Default for ReclaimMemo {
    fn default() -> Self {
        Self { known: Mutex::default(), turn: Semaphore::new(1) }
    }
}

#[derive(Debug, Default)]
struct ReclaimProgress {
    /// The run that this process began last.
    began: Position,
    /// Entries up to here are removed.
    removed_through: Sequence,
    failing: Option<ReclaimFailure>,
}

#[derive(Debug)]
struct ReclaimFailure {
    reason: String,
    /// Ticks that pass after each failure: doubled each time.
    wait: u32,
    /// Ticks that remain until the next try.
    left: u32,
}

impl ReclaimMemo {
    /// The permit for a run; `None` while another run is in progress.
    pub(super) fn try_start(&self) -> Option<SemaphorePermit<'_>> {
        self.turn.try_acquire().ok()
    }

    /// The permit for a run, once no other run is in progress.
    pub(super) async fn start(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.turn.acquire().await.ok()
    }

    pub(super) fn began(&self) -> Position {
        self.lock().began
    }

    pub(super) fn note_began(&self, began: Position) {
        self.lock().began = began;
    }

    pub(super) fn removed_through(&self) -> Sequence {
        self.lock().removed_through
    }

    pub(super) fn note_removed(&self, through: Sequence) {
        self.lock().removed_through = through;
    }

    /// Whether a run is to be tried at this tick.
    pub(super) fn is_due(&self) -> bool {
        let mut known = self.lock();
        let Some(failing) = &mut known.failing else { return true };
        let is_due = failing.left == 0;
        failing.left = failing.left.saturating_sub(1);
        is_due
    }

    /// Notes the result of a run.
    pub(super) fn note(&self, error: Option<&Error>) {
        let mut known = self.lock();
        let failed = known.failing.take();
        let Some(error) = error else {
            if failed.is_some() {
                tracing::info!("reclaiming the broker's own entries works again");
            }
            return;
        };
        let cause = std::error::Error::source(error).map(|cause| format!(" ({cause})")).unwrap_or_default();
        let reason = format!("{}{cause}", error.detail());
        if failed.as_ref().is_none_or(|failed| failed.reason != reason) {
            tracing::warn!(%reason, "reclaiming the broker's own entries fails; it is retried at growing intervals");
        }
        let wait = failed.map_or(1, |failed| failed.wait.saturating_mul(2).min(WAIT_TICKS_MAX));
        known.failing = Some(ReclaimFailure { reason, wait, left: wait });
    }

    /// The warning in `/readyz` while reclaiming fails.
    pub(in crate::ledger) fn warning(&self) -> Option<String> {
        let reason = self.lock().failing.as_ref()?.reason.clone();
        Some(format!("Reclaiming the broker's own entries fails, so the log grows: {reason}"))
    }

    fn lock(&self) -> MutexGuard<'_, ReclaimProgress> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::Kind;

    #[test]
    fn what_fails_is_shown_and_tried_less_and_less_often_until_it_works() {
        let memo = ReclaimMemo::default();
        let error = Error::new(Kind::Unavailable, "The disk is gone.");
        let mut tried = Vec::new();
        for tick in 0..40 {
            if memo.is_due() {
                tried.push(tick);
                memo.note(Some(&error));
            }
        }
        assert_eq!(tried, [0, 2, 5, 10, 19, 36]);
        assert!(memo.warning().unwrap().ends_with("so the log grows: The disk is gone."));
        memo.note(None);
        assert!(memo.warning().is_none() && memo.is_due());
    }
}
