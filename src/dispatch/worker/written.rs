//! Writing the outcomes of deliveries to the log, and what the worker does once they are there, or could not be put there.

use super::{WRITE_AGAIN_MILLIS, Worker, ended};
use crate::dispatch::lane::{Back, LaneKey};
use crate::dispatch::report::{Failed, Report};
use crate::dispatch::retry::Next;
use crate::ledger::{JobKey, JobSlot, JobStanding, Ledger, TASKS};
use contract::{Error, Result, Sequence};
use std::sync::Arc;
use uuid::Uuid;

impl Worker {
    /// Writes down what there is, one report at a time.
    pub(super) fn write(&mut self, ledger: &Arc<Ledger>) {
        let is_later = self.write_again.is_some_and(|at| self.clock.now() < at);
        if self.report.is_empty() || !self.writing.is_empty() || is_later {
            return;
        }
        let mut report = std::mem::take(&mut self.report);
        for (lane, of_lane) in &mut report.lanes {
            let settled = self.settled(LaneKey { lane: *lane, part: 0 }).unwrap_or_default();
            of_lane.through = if *lane == TASKS { Sequence::ZERO } else { settled };
            // What comes of the last deliveries of a lane that is gone is no reason to remember it.
            if self.known.contains_key(lane) {
                self.written.insert(*lane, settled);
            }
        }
        let ledger = Arc::clone(ledger);
        self.writing.spawn(async move {
            let written = ledger.submit(report.clone()).await;
            (report, written)
        });
    }

    pub(crate) fn wrote(&mut self, written: std::result::Result<(Report, Result<()>), tokio::task::JoinError>) {
        let Some((report, written)) = ended(written) else { return };
        let now = self.clock.now();
        if let Err(error) = written {
            return self.keep(report, &error);
        }
        self.write_again = None;
        for (_, lane) in report.lanes {
            self.unwritten = self.unwritten.saturating_sub(lane.done.len() + lane.gone.len());
        }
        for failed in report.failed {
            self.unwritten = self.unwritten.saturating_sub(1);
            let key = self.key_of(failed.job);
            let sequence = failed.job.sequence;
            if !self.is_as_told(&failed) {
                self.planner.ended(key, sequence, Back::Over, now);
                self.rebuild(failed.job.lane);
                continue;
            }
            let back = match failed.next {
                Next::Done => Back::Over,
                Next::Later(until) => {
                    self.planner.deferred(key, sequence, until, now);
                    continue;
                }
                Next::Again(until) => Back::Waits { until, tried: true, counts: true },
                Next::Gone => Back::Waits { until: now, tried: true, counts: false },
                Next::Dead | Next::Expired => Back::Dead,
            };
            self.planner.ended(key, sequence, back, now);
            // What was held up by it may be settled now.
            let written = self.written.get(&key.lane).copied().unwrap_or_default();
            if key.lane != TASKS && self.settled(key).is_some_and(|settled| settled > written) {
                self.lane_report(key.lane);
            }
        }
    }

    /// Whether the log has a job as it was reported. A person may have ended it, or had it tried again, while it was under
    /// way; then the log is right.
    fn is_as_told(&self, failed: &Failed) -> bool {
        let Some(ledger) = self.ledger.upgrade() else { return true };
        let slot = ledger.dispatch().lane(failed.job.lane).and_then(|lane| lane.slot(failed.job.sequence));
        let is_dead = match slot {
            Some(JobSlot::Open(row)) => matches!(row.standing, JobStanding::Dead { .. }),
            Some(JobSlot::Ended(_)) | None => return false,
        };
        is_dead == matches!(failed.next, Next::Dead | Next::Expired)
    }

    /// Has a lane built anew from the log.
    fn rebuild(&mut self, lane: Uuid) {
        if self.known.remove(&lane).is_some() {
            self.must_sync = true;
        }
    }

    /// What could not be written is written with what comes next.
    fn keep(&mut self, report: Report, error: &Error) {
        if self.write_again.is_none() {
            tracing::warn!(%error, "what came of deliveries could not be written; nothing is sent until it is");
        }
        self.write_again = Some(self.clock.now().saturating_add(WRITE_AGAIN_MILLIS));
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
        let known = self.errands.keys().find(|key| key.lane == TASKS && self.planner.is_flying(**key, job.sequence));
        known.copied().unwrap_or(whole)
    }
}
