//! Recording: results of deliveries are appended to the log, and the plan is updated when they are durable or the
//! append failed.

use super::{DispatchWorker, RECORD_RETRY_MILLIS, task_result};
use crate::dispatch::job_results::{FailedJob, RecordDeliveries};
use crate::dispatch::lane::{AfterAttempt, LaneKey};
use crate::dispatch::retry::NextStep;
use crate::ledger::{JobKey, JobSlot, JobState, Ledger, TASKS};
use contract::{Error, Result, Sequence};
use std::sync::Arc;
use uuid::Uuid;

impl DispatchWorker {
    /// Submits the report, unless one is being appended.
    pub(super) fn record(&mut self, ledger: &Arc<Ledger>) {
        let is_later = self.record_again_at.is_some_and(|at| self.clock.now() < at);
        if self.report.is_empty() || !self.recording.is_empty() || is_later {
            return;
        }
        let mut report = std::mem::take(&mut self.report);
        for (lane, of_lane) in &mut report.lanes {
            let settled = self.settled(LaneKey { lane: *lane, part: 0 }).unwrap_or_default();
            let before = self.recorded.get(lane).copied().unwrap_or_default();
            debug_assert!(
                *lane == TASKS || settled == Sequence::ZERO || settled >= before,
                "a settled offset moved back"
            );
            of_lane.settled = if *lane == TASKS { Sequence::ZERO } else { settled };
            // Late results of a lane that was deleted must not bring it back.
            if self.known.contains_key(lane) {
                self.recorded.insert(*lane, settled);
            }
        }
        let ledger = Arc::clone(ledger);
        self.recording.spawn(async move {
            let outcome = ledger.submit(report.clone()).await;
            (report, outcome)
        });
    }

    pub(crate) fn report_recorded(
        &mut self,
        outcome: std::result::Result<(RecordDeliveries, Result<()>), tokio::task::JoinError>,
    ) {
        let Some((report, outcome)) = task_result(outcome) else { return };
        let now = self.clock.now();
        if let Err(error) = outcome {
            return self.merge_unrecorded(report, &error);
        }
        self.record_again_at = None;
        for (_, lane) in report.lanes {
            self.unrecorded = self.unrecorded.saturating_sub(lane.done.len() + lane.gone.len());
        }
        for failed in report.failed {
            self.unrecorded = self.unrecorded.saturating_sub(1);
            let key = self.key_of(failed.job);
            let sequence = failed.job.sequence;
            if !self.is_as_reported(&failed) {
                self.planner.job_ended(key, sequence, AfterAttempt::Over, now);
                self.rebuild(failed.job.lane);
                continue;
            }
            let back = match failed.next {
                NextStep::Done => AfterAttempt::Over,
                NextStep::Later(until) => {
                    self.planner.deferred(key, sequence, until, now);
                    continue;
                }
                NextStep::Again(until) => AfterAttempt::Waits { until, tried: true, counts: true },
                NextStep::Gone => AfterAttempt::Waits { until: now, tried: true, counts: false },
                NextStep::Dead | NextStep::Expired => AfterAttempt::Dead,
            };
            self.planner.job_ended(key, sequence, back, now);
            // The settled offset may have moved.
            let recorded = self.recorded.get(&key.lane).copied().unwrap_or_default();
            if key.lane != TASKS && self.settled(key).is_some_and(|settled| settled > recorded) {
                self.lane_report(key.lane);
            }
        }
    }

    /// Whether the log agrees with the report about a job. A person may have ended or retried it while it was in
    /// flight; then the log is right.
    fn is_as_reported(&self, failed: &FailedJob) -> bool {
        let Some(ledger) = self.ledger.upgrade() else { return true };
        let slot = ledger.dispatch().lane(failed.job.lane).and_then(|lane| lane.slot(failed.job.sequence));
        let is_dead = match slot {
            Some(JobSlot::Open(row)) => matches!(row.standing, JobState::Dead { .. }),
            Some(JobSlot::Ended(_)) | None => return false,
        };
        is_dead == matches!(failed.next, NextStep::Dead | NextStep::Expired)
    }

    /// Has a lane rebuilt from the log.
    fn rebuild(&mut self, lane: Uuid) {
        if self.known.remove(&lane).is_some() {
            self.must_reconcile = true;
        }
    }

    /// Results that could not be recorded become part of the next report.
    fn merge_unrecorded(&mut self, report: RecordDeliveries, error: &Error) {
        if self.record_again_at.is_none() {
            tracing::warn!(%error, "results of deliveries could not be recorded; nothing is sent until they are");
        }
        self.record_again_at = Some(self.clock.now().saturating_add(RECORD_RETRY_MILLIS));
        for (lane, of_lane) in report.lanes {
            let kept = self.lane_report(lane);
            kept.done.extend(of_lane.done);
            kept.gone.extend(of_lane.gone);
        }
        self.report.failed.extend(report.failed);
    }

    fn key_of(&self, job: JobKey) -> LaneKey {
        let whole = LaneKey { lane: job.lane, part: 0 };
        if job.lane != TASKS {
            return whole;
        }
        let known = self.sources.keys().find(|key| key.lane == TASKS && self.planner.is_in_flight(**key, job.sequence));
        known.copied().unwrap_or(whole)
    }
}
