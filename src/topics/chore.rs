//! The retention chore: expires in every log now and then, and remembers what it could not do.
//!
//! - A topic that fails keeps no other from being expired.
//! - A failure is logged when it begins, when its reason changes and when it ends, not at every tick; `/readyz` shows it in
//!   between.
//! - What fails is tried again less and less often.

use super::retention::{Expiring, expire, tombstones};
use crate::logs::{Logs, keep};
use contract::{Result, TopicId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Most ticks that pass between two tries.
const WAIT_TICKS_MAX: u32 = 60;

/// Does it until the logs are gone or close.
pub(crate) async fn keep_expiring(
    logs: Weak<Logs>,
    failures: Arc<RetentionFailures>,
    every: Duration,
    default_age: Option<i64>,
) {
    keep(logs, every, |ledgers| {
        let failures = Arc::clone(&failures);
        async move {
            let tombstones = ledgers.first().map(|ledger| tombstones(&ledger.registry())).unwrap_or_default();
            let expiring = Expiring { default_age, tombstones: &tombstones, failures: &failures };
            for ledger in ledgers {
                // Noted among the failures, and tried again by a later tick.
                let _ = expire(&ledger, &expiring).await;
            }
        }
    })
    .await;
}

/// What retention could not do when it was last tried.
#[derive(Default)]
pub(crate) struct RetentionFailures(Mutex<BTreeMap<Option<TopicId>, Failing>>);

/// One topic that retention fails on, or, where none is named, the log.
struct Failing {
    reason: String,
    /// Ticks that pass after each failure: doubled each time.
    wait: u32,
    /// Ticks that still have to.
    left: u32,
}

impl RetentionFailures {
    /// One sentence for each.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lock()
            .iter()
            .map(|(topic, failing)| format!("Retention of {} fails: {}", name(topic.as_ref()), failing.reason))
            .collect()
    }

    /// Forgets a topic that is gone.
    pub(crate) fn forget(&self, topic: &TopicId) {
        self.lock().remove(&Some(topic.clone()));
    }

    /// Forgets how long to wait: whoever asks by hand wants it tried.
    pub(crate) fn try_all(&self) {
        self.lock().values_mut().for_each(|failing| failing.left = 0);
    }

    /// Whether a topic, or the log, is to be tried at this tick.
    pub(super) fn is_due(&self, topic: Option<&TopicId>) -> bool {
        let mut failures = self.lock();
        let Some(failing) = failures.get_mut(&topic.cloned()) else { return true };
        let is_due = failing.left == 0;
        failing.left = failing.left.saturating_sub(1);
        is_due
    }

    /// Notes what a try came to.
    pub(super) fn note<T>(&self, topic: Option<&TopicId>, outcome: &Result<T>) {
        let mut failures = self.lock();
        let Err(error) = outcome else {
            if failures.remove(&topic.cloned()).is_some() {
                tracing::info!("retention of {} works again", name(topic));
            }
            return;
        };
        let cause = std::error::Error::source(error).map(|cause| format!(" ({cause})")).unwrap_or_default();
        let reason = format!("{}{cause}", error.detail());
        let known = failures.get(&topic.cloned());
        if known.is_none_or(|known| known.reason != reason) {
            tracing::warn!(%reason, "retention of {} fails; it is tried again less and less often", name(topic));
        }
        let wait = known.map_or(1, |known| known.wait.saturating_mul(2).min(WAIT_TICKS_MAX));
        failures.insert(topic.cloned(), Failing { reason, wait, left: wait });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Option<TopicId>, Failing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(topic: Option<&TopicId>) -> String {
    topic.map_or_else(|| "the log".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{Error, Kind};

    #[test]
    fn what_fails_is_tried_less_and_less_often_until_it_works() {
        let failures = RetentionFailures::default();
        let topic: TopicId = "gts.hx.core.events.topic.v1~".parse().unwrap();
        let fail = || failures.note::<()>(Some(&topic), &Err(Error::new(Kind::Unavailable, "The disk is gone.")));
        let mut tried = Vec::new();
        for tick in 0..40 {
            if failures.is_due(Some(&topic)) {
                tried.push(tick);
                fail();
            }
            assert!(failures.is_due(None), "nothing else waits");
        }
        assert_eq!(tried, [0, 2, 5, 10, 19, 36]);
        assert_eq!(failures.lines(), [format!("Retention of {topic} fails: The disk is gone.")]);
        failures.try_all();
        assert!(failures.is_due(Some(&topic)));
        failures.note(Some(&topic), &Ok(3));
        assert!(failures.lines().is_empty() && failures.is_due(Some(&topic)));
    }
}
