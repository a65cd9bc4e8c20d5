//! Dispatch as a whole, paused and resumed.
//!
//! - The pause is an entry of the log, so it survives restarts and every broker of a shared log knows it.
//! - `event-broker restore` pauses every log it restores. While the default log is paused no log delivers anything; a side
//!   log can also be paused alone.
//! - Resuming writes to every log that is paused, the default one last: a resume that fails in between leaves dispatch
//!   paused and can be repeated.

use super::worker::DispatchWorker;
use crate::ledger::{Command, Decision, DispatchFact, Entry, Ledger, ReplyRecorder};
use crate::logs::Logs;
use contract::{PauseDetails, Result};
use std::sync::Arc;

/// Pauses the dispatch of a log: nothing of it is delivered until it is resumed.
pub async fn pause_dispatch(ledger: &Ledger, by: &str, reason: &str) -> Result<()> {
    ledger.submit(PauseDispatch { by: by.to_owned(), reason: reason.to_owned() }).await
}

/// Resumes the dispatch of all logs; changes nothing if none is paused.
pub(crate) async fn resume_dispatch(logs: &Logs, by: &str, recorder: ReplyRecorder<()>) -> Result<()> {
    let default = logs.default_ledger();
    let resume = || ResumeDispatch { by: by.to_owned() };
    let mut was_paused = false;
    for ledger in logs.ledgers() {
        if !Arc::ptr_eq(&ledger, default) && ledger.dispatch().paused().is_some() {
            was_paused |= ledger.submit(resume()).await?;
        }
    }
    was_paused |= default.submit_recording(resume(), recorder.map_answer(|_: &bool| Some(Ok(())))).await?;
    if was_paused {
        tracing::info!(by, "dispatch was resumed");
    }
    Ok(())
}

/// Why nothing is delivered, or nothing of a side log.
pub(crate) fn pause_of(logs: &Logs) -> Option<PauseDetails> {
    logs.ledgers().iter().find_map(|ledger| ledger.dispatch().paused().cloned())
}

impl DispatchWorker {
    /// Whether nothing of this log is delivered: this log or the default log is paused.
    pub(super) fn is_paused(&self, ledger: &Ledger) -> bool {
        // One lock after the other: the two may be the same ledger, and a second read lock could deadlock.
        let is_paused = ledger.dispatch().paused().is_some();
        is_paused || self.context.default.upgrade().is_some_and(|default| default.dispatch().paused().is_some())
    }
}

struct PauseDispatch {
    by: String,
    reason: String,
}

impl Command for PauseDispatch {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        if !decision.dispatch().is_paused() {
            let what = DispatchFact::DispatchPaused { by: self.by.clone(), reason: Some(self.reason.clone()) };
            decision.add_entry(Entry::Dispatch { what })?;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.by.len() + self.reason.len()
    }
}

struct ResumeDispatch {
    by: String,
}

impl Command for ResumeDispatch {
    /// Whether it was paused.
    type Answer = bool;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<bool> {
        let is_paused = decision.dispatch().is_paused();
        if is_paused {
            decision.add_entry(Entry::Dispatch { what: DispatchFact::DispatchResumed { by: self.by.clone() } })?;
        }
        Ok(is_paused)
    }

    fn bytes(&self) -> usize {
        self.by.len()
    }
}
