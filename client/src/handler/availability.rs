//! Whether the broker is there: while it is not, nothing is begun, and everybody can see that.
//!
//! - A pause grows with every time the broker was asked in vain; those who fail during one do not lengthen it.
//! - What was refused in writing is mended by writing: that reading works says nothing of it.

use super::options::RunnerState;
use crate::retry::{RetryPolicy, jitter};
use contract::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// What the broker was asked in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequestKind {
    Reading,
    Writing,
}

#[derive(Debug, Clone, Copy)]
struct BackoffPause {
    tries: u32,
    until: Instant,
    asked: RequestKind,
}

/// Whether the broker is there.
#[derive(Debug)]
pub(super) struct BrokerAvailability {
    retry: RetryPolicy,
    pause: Mutex<Option<BackoffPause>>,
    state: watch::Sender<RunnerState>,
}

/// Whether the same request may fare better later, as it is.
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

    /// The runner was asked to stop.
    pub(super) fn mark_draining(&self) {
        self.state.send_replace(RunnerState::Draining);
    }

    /// Until when nothing is to be begun.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.pause().map(|pause| pause.until).filter(|until| *until > Instant::now())
    }

    /// The broker does not answer, or cannot do what it is asked; answers how long to wait.
    pub(super) fn mark_down(&self, error: &Error, asked: RequestKind) -> Duration {
        let now = Instant::now();
        let mut pause = self.pause();
        if let Some(known) = *pause
            && known.until > now
        {
            return known.until - now;
        }
        let tries = pause.map_or(1, |known| known.tries.saturating_add(1));
        let wanted = error.retry_after_seconds().map(|seconds| Duration::from_secs(seconds.into()));
        let wait = self.retry.wait(tries, wanted, jitter());
        let asked = pause.map_or(asked, |known| known.asked.max(asked));
        *pause = Some(BackoffPause { tries, until: now + wait, asked });
        tracing::warn!(%error, tries, ?wait, "the broker is away: nothing is begun until it is back");
        self.show(RunnerState::Paused(tries));
        wait
    }

    /// The broker did what it was asked.
    pub(super) fn mark_up(&self, asked: RequestKind) {
        let mut pause = self.pause();
        if pause.is_some_and(|known| known.asked <= asked) {
            *pause = None;
            tracing::info!("the broker is back");
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
