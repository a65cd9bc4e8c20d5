//! What a delivery that ended means: for its job, for the circuit breaker of its target, and for the next report.

use super::{DispatchWorker, task_result};
use crate::delivery::{AttemptOutcome, BreakerChange};
use crate::dispatch::job_results::{FailedJob, job_attempt};
use crate::dispatch::lane::AfterAttempt;
use crate::dispatch::log_lines::{log_expiry, log_failure};
use crate::dispatch::retry::{self, NextStep};
use crate::dispatch::send::{DeliveryResult, JobResult, LaneSource};
use crate::ledger::{DeliveredJob, JobKey, JobSlot};
use crate::subscriptions::{AnnounceTarget, RetrySchedule};
use tokio::task::JoinError;

impl DispatchWorker {
    pub(crate) fn delivery_ended(&mut self, ended: std::result::Result<DeliveryResult, JoinError>) {
        let Some(ended) = task_result(ended) else { return };
        let now = self.clock.now();
        let DeliveryResult { key, job, event, digest, began_at, token, source, target, result } = ended;
        let sequence = job.sequence;
        let id = JobKey { lane: key.lane, sequence };
        self.context.set_in_flight(id, false);
        if job.expires <= began_at {
            self.expiring = self.expiring.saturating_sub(1);
        }
        let subscription = match &source {
            LaneSource::Events { subscription, .. } => Some(subscription.id),
            LaneSource::Tasks => None,
        };
        self.unrecorded += 1;
        let attempt = match result {
            JobResult::Attempted(attempt) => attempt,
            JobResult::Gone => {
                // Retention removed the event before it was delivered.
                self.lane_report(key.lane).gone.push(sequence);
                return self.planner.job_ended(key, sequence, AfterAttempt::Over, now);
            }
            JobResult::Expired => {
                log_expiry(&source, event);
                let next = NextStep::Expired;
                return self.report.failed.push(FailedJob {
                    job: id,
                    subscription,
                    event,
                    digest,
                    attempt: None,
                    next,
                });
            }
        };
        let usual = RetrySchedule::of(None, None);
        let retry = match &source {
            LaneSource::Events { subscription, .. } => &subscription.delivery.retry,
            LaneSource::Tasks => &usual,
        };
        let next = match retry::next_step(retry, job.spent, attempt.outcome, now, self.context.jitter()) {
            NextStep::Later(until) => NextStep::Later(retry::deferred_until(until, self.deferrals(id), now)),
            // A task has no subscription that could pause: it is given up, or it would be sent again at once, for ever.
            NextStep::Gone if subscription.is_none() => NextStep::Dead,
            next => next,
        };
        let is_alive = is_alive(attempt.outcome, attempt.status);
        if let Some(change) = is_alive.and_then(|is_alive| self.planner.record_call(&target, is_alive, now)) {
            tracing::warn!(?change, "the circuit breaker of a target changed");
            self.announce_target(&target, change);
        }
        let number = job.tried.saturating_add(1);
        if next == NextStep::Done {
            let millis = u32::try_from(attempt.duration.as_millis()).unwrap_or(u32::MAX);
            let done = DeliveredJob(sequence, number, began_at, millis, attempt.status.unwrap_or(0));
            self.lane_report(key.lane).done.push(done);
            return self.planner.job_ended(key, sequence, AfterAttempt::Over, now);
        }
        let attempt = job_attempt(&attempt, number, began_at, token);
        log_failure(&source, event, &attempt, next);
        let attempt = Some(attempt);
        self.report.failed.push(FailedJob { job: id, subscription, event, digest, attempt, next });
    }

    /// How many times in a row a job was deferred.
    fn deferrals(&self, job: JobKey) -> u32 {
        let Some(ledger) = self.ledger.upgrade() else { return 0 };
        let slot = ledger.dispatch().lane(job.lane).and_then(|lane| lane.slot(job.sequence));
        match slot {
            Some(JobSlot::Open(row)) => row.deferred.map_or(0, |deferred| deferred.count),
            _ => 0,
        }
    }

    /// Publishes an operations event: a target fails, or has recovered.
    fn announce_target(&self, target: &str, change: BreakerChange) {
        let Some(ledger) = self.context.default.upgrade() else { return };
        let announcement = AnnounceTarget { target: target.to_owned(), is_failing: change == BreakerChange::Failing };
        tokio::spawn(async move {
            if let Err(error) = ledger.submit(announcement).await {
                tracing::warn!(%error, "an operations event about a target could not be stored");
            }
        });
    }
}

/// Whether an attempt shows that its target responds; `None` if the broker itself kept it from being sent.
fn is_alive(outcome: AttemptOutcome, status: Option<u16>) -> Option<bool> {
    match (outcome, status) {
        (AttemptOutcome::Failed { retryable: false } | AttemptOutcome::Deferred { .. }, None) => None,
        (AttemptOutcome::Failed { .. }, status) => Some(status.is_some_and(|status| status < 500)),
        _ => Some(true),
    }
}
