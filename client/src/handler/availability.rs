//! Whether the broker is available: while it is not, no work is started, and the runner's state says so.
//!
//! - The pause grows with every failed try; requests that fail during a pause do not lengthen it.
//! - A pause after a failed write ends only with a successful write: a successful read does not prove that writes work.

use super::options::RunnerState;
use crate::retry::{RetryPolicy, jitter};
use contract::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The kind of a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequestKind {
    Reading,
    Writing,
}

#[derive(Debug, Clone, Copy)]
struct BackoffPause {
    tries: u32,
    until: Instant,
    kind: RequestKind,
}

/// Whether the broker is available.
#[derive(Debug)]
pub(super) struct BrokerAvailability {
    retry: RetryPolicy,
    pause: Mutex<Option<BackoffPause>>,
    state: watch::Sender<RunnerState>,
}

/// Whether the same request may succeed later.
pub(super) const fn is_passing(error: &Error) -> bool {
    let kind = error.kind();
    kind.is_retryable() && !kind.had_effect()
}

impl BrokerAvailability {
    pub(super) fn new(retry: RetryPolicy) -> Self {
        Self { retry, pause: Mutex::default(), state: watch::Sender::new(RunnerState::Running) }
    }

    pub(super) fn state(&self) -> watch::Receiver<RunnerState> {
        self.state.subscribe()
    }

    /// The runner received the stop signal.
    pub(super) fn mark_draining(&self) {
        self.state.send_replace(RunnerState::Draining);
    }

    /// Until when no work is started.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.pause().map(|pause| pause.until).filter(|until| *until > Instant::now())
    }

    /// Records that the broker is unavailable; returns how long to wait.
    pub(super) fn mark_down(&self, error: &Error, kind: RequestKind) -> Duration {
        let now = Instant::now();
        let mut pause = self.pause();
        if let Some(known) = *pause
            && known.until > now
        {
            return known.until - now;
        }
        let tries = pause.map_or(1, |known| known.tries.saturating_add(1));
        let retry_after = error.retry_after_seconds().map(|seconds| Duration::from_secs(seconds.into()));
        let wait = self.retry.wait(tries, retry_after, jitter());
        let kind = pause.map_or(kind, |known| known.kind.max(kind));
        *pause = Some(BackoffPause { tries, until: now + wait, kind });
        tracing::warn!(%error, tries, ?wait, "the broker is unavailable: no work is started until it is available again");
        self.show(RunnerState::Paused(tries));
        wait
    }

    /// Records a successful request.
    pub(super) fn mark_up(&self, kind: RequestKind) {
        let mut pause = self.pause();
        if pause.is_some_and(|known| known.kind <= kind) {
            *pause = None;
            tracing::info!("the broker is available again");
            self.show(RunnerState::Running);
        }
    }

    fn show(&self, state: RunnerState) {
        self.state.send_if_modified(|known| {
            let changes = *known != RunnerState::Draining && *known != state;
            if changes {
                *known = state;
            }
            changes
        });
    }

    fn pause(&self) -> MutexGuard<'_, Option<BackoffPause>> {
        self.pause.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
