//! Log lines about deliveries, for operators.
//!
//! A response's text and a target's address may contain secrets: neither is logged.

use super::retry::NextStep;
use super::send::LaneSource;
use contract::{JobAttempt, Timestamp};
use uuid::Uuid;

/// A delivery failed, was deferred, or the job was given up.
pub(super) fn log_failure(source: &LaneSource, event: Uuid, attempt: &JobAttempt, next: NextStep) {
    let (subscription, attempts, status) = (source.code(), attempt.number, attempt.status);
    let reason = attempt.error.as_ref().map_or("", |error| error.class.as_str());
    match next {
        NextStep::Again(at) => {
            let next_try = Timestamp::from_millis(at).to_string();
            tracing::info!(subscription, %event, attempt = attempts, status, reason, next_try, "a delivery failed");
        }
        NextStep::Later(until) => {
            let next_try = Timestamp::from_millis(until).to_string();
            tracing::debug!(subscription, %event, attempt = attempts, status, next_try, "a delivery was deferred");
        }
        NextStep::Gone => {
            let message = "the receiver is gone (410); the subscription is paused";
            tracing::info!(subscription, %event, attempt = attempts, status, message);
        }
        _ => {
            let message = "a delivery failed and the job is given up";
            tracing::info!(subscription, %event, attempt = attempts, status, reason, message);
        }
    }
}

/// Jobs that waited for another attempt were removed with their events.
pub(super) fn log_removed_jobs(subscription: &str, jobs: u64) {
    tracing::warn!(
        subscription,
        jobs,
        "retention removed the events of jobs that waited for another attempt; they are never delivered"
    );
}

/// A job reached its maximum age.
pub(super) fn log_expiry(source: &LaneSource, event: Uuid) {
    tracing::info!(subscription = source.code(), %event, "a job reached its maximum age and is given up");
}
