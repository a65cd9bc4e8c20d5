//! The retention chore: applies retention in every log at intervals, and keeps track of failures.
//!
//! - A topic that fails does not affect the others, nor does a deleted topic whose events cannot be removed.
//! - A failure is logged when it begins, when its reason changes and when it ends, not at every tick; meanwhile
//!   `/readyz` shows it.
//! - Failing work is retried at growing intervals.

use super::deletion::finish_deletions;
use super::retention::{RetentionRun, expire, tombstones};
use super::unused_logs::close_unused;
use crate::ledger::{Ledger, LogLocation};
use crate::logs::{Logs, run_periodically};
use contract::{Result, TopicId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Most ticks that pass between two tries.
const WAIT_TICKS_MAX: u32 = 60;

/// Runs until the logs are dropped or closed.
pub(crate) async fn run_retention(
    logs: Weak<Logs>,
    failures: Arc<RetentionFailures>,
    every: Duration,
    default_age: Option<i64>,
) {
    let kept = Weak::clone(&logs);
    run_periodically(logs, every, |_| {
        let (failures, logs) = (Arc::clone(&failures), kept.upgrade());
        async move {
            let Some(logs) = logs else { return };
            if failures.is_due(&RetentionWork::Deletions) {
                failures.note(&RetentionWork::Deletions, &finish_deletions(&logs).await);
            }
            if failures.is_due(&RetentionWork::UnusedLogs) {
                failures.note(&RetentionWork::UnusedLogs, &close_unused(&logs).await);
            }
            let ledgers = logs.housed_ledgers();
            failures.forget_closed_logs(&ledgers);
            drop(logs);
            note_server_times(&ledgers).await;
            let tombstones = ledgers.first().map(|(_, ledger)| tombstones(&ledger.registry())).unwrap_or_default();
            let expiring = RetentionRun { default_age, tombstones: &tombstones, failures: &failures };
            for (home, ledger) in ledgers {
                // The failure is recorded, and retried by a later tick.
                let _ = expire(&ledger, home.as_ref(), &expiring).await;
            }
        }
    })
    .await;
}

/// Compares this machine's clock with those of the engines' servers.
async fn note_server_times(ledgers: &[(Option<LogLocation>, Arc<Ledger>)]) {
    for (_, ledger) in ledgers {
        match ledger.log().server_time().await {
            Ok(Some(time)) => ledger.clock().note_server_time(time),
            Ok(None) => (),
            // The server cannot be reached, which is reported elsewhere.
            Err(error) => tracing::debug!(%error, "the clock of the log's server was not read"),
        }
    }
}

/// Work that can fail independently.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RetentionWork {
    /// All retention in a log; the default log if no location is named.
    Log(Option<LogLocation>),
    /// The events of a log's deleted topics.
    DeletedTopics(Option<LogLocation>),
    /// Deletions of topics in other logs that were cut short.
    Deletions,
    /// Erasing and closing logs whose topics are deleted.
    UnusedLogs,
    /// One topic.
    Topic(TopicId),
}

impl fmt::Display for RetentionWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(None) => f.write_str("Retention of the log"),
            Self::Log(Some(home)) => write!(f, "Retention of the log {}", home.public_name()),
            Self::DeletedTopics(None) => f.write_str("Removal of the events of deleted topics"),
            Self::DeletedTopics(Some(home)) => {
                write!(f, "Removal of the events of deleted topics in the log {}", home.public_name())
            }
            Self::Deletions => f.write_str("Deletion of topics in logs of their own"),
            Self::UnusedLogs => f.write_str("Erasing logs whose topics are deleted"),
            Self::Topic(topic) => write!(f, "Retention of {topic}"),
        }
    }
}

/// The work that failed when it was last tried.
#[derive(Default)]
pub(crate) struct RetentionFailures(Mutex<BTreeMap<RetentionWork, FailingTopic>>);

/// One kind of work that fails.
struct FailingTopic {
    reason: String,
    /// Ticks to wait after a failure; doubled each time.
    wait: u32,
    /// Ticks that are left to wait.
    left: u32,
}

impl RetentionFailures {
    /// One sentence per failure.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lock().iter().map(|(work, failing)| format!("{work} fails: {}", failing.reason)).collect()
    }

    /// Forgets a deleted topic.
    pub(crate) fn forget(&self, topic: &TopicId) {
        self.lock().remove(&RetentionWork::Topic(topic.clone()));
    }

    /// Forgets logs that are closed.
    fn forget_closed_logs(&self, open: &[(Option<LogLocation>, Arc<Ledger>)]) {
        let is_open = |home: &Option<LogLocation>| open.iter().any(|(it, _)| it == home);
        self.lock().retain(|work, _| match work {
            RetentionWork::Log(home) | RetentionWork::DeletedTopics(home) => is_open(home),
            RetentionWork::Deletions | RetentionWork::UnusedLogs | RetentionWork::Topic(_) => true,
        });
    }

    /// Ends all waiting: a request by an operator is tried at once.
    pub(crate) fn try_all(&self) {
        self.lock().values_mut().for_each(|failing| failing.left = 0);
    }

    /// Whether this work is to be tried at this tick.
    pub(super) fn is_due(&self, work: &RetentionWork) -> bool {
        let mut failures = self.lock();
        let Some(failing) = failures.get_mut(work) else { return true };
        let is_due = failing.left == 0;
        failing.left = failing.left.saturating_sub(1);
        is_due
    }

    /// Records the outcome of a try.
    pub(super) fn note<T>(&self, work: &RetentionWork, outcome: &Result<T>) {
        let mut failures = self.lock();
        let Err(error) = outcome else {
            if failures.remove(work).is_some() {
                tracing::info!("{work} works again");
            }
            return;
        };
        let cause = std::error::Error::source(error).map(|cause| format!(" ({cause})")).unwrap_or_default();
        let reason = format!("{}{cause}", error.detail());
        let known = failures.get(work);
        if known.is_none_or(|known| known.reason != reason) {
            tracing::warn!(%reason, "{work} fails; it is retried at growing intervals");
        }
        let wait = known.map_or(1, |known| known.wait.saturating_mul(2).min(WAIT_TICKS_MAX));
        failures.insert(work.clone(), FailingTopic { reason, wait, left: wait });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RetentionWork, FailingTopic>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{Error, Kind};

    #[test]
    fn what_fails_is_tried_less_and_less_often_until_it_works() {
        let failures = RetentionFailures::default();
        let topic: TopicId = "gts.hx.core.events.topic.v1~".parse().unwrap();
        let work = RetentionWork::Topic(topic.clone());
        let fail = || failures.note::<()>(&work, &Err(Error::new(Kind::Unavailable, "The disk is gone.")));
        let mut tried = Vec::new();
        for tick in 0..40 {
            if failures.is_due(&work) {
                tried.push(tick);
                fail();
            }
            assert!(failures.is_due(&RetentionWork::Log(None)), "nothing else waits");
        }
        assert_eq!(tried, [0, 2, 5, 10, 19, 36]);
        assert_eq!(failures.lines(), [format!("Retention of {topic} fails: The disk is gone.")]);
        failures.try_all();
        assert!(failures.is_due(&work));
        failures.note(&work, &Ok(3));
        assert!(failures.lines().is_empty() && failures.is_due(&work));
    }
}
