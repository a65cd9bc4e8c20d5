//! What the worker does once the outcomes of deliveries are in the log, or could not be put there.

use super::Worker;
use crate::dispatch::lane::{Back, LaneKey};
use crate::dispatch::report::Report;
use crate::dispatch::retry::Next;
use crate::ledger::{JobKey, TASKS};
use contract::{Error, Result};

impl Worker {
    pub(crate) fn wrote(&mut self, written: std::result::Result<(Report, Result<()>), tokio::task::JoinError>) {
        let Ok((report, written)) = written else { return };
        let now = self.clock.now();
        if let Err(error) = written {
            return self.keep(report, &error);
        }
        for (_, lane) in report.lanes {
            self.unwritten = self.unwritten.saturating_sub(lane.done.len() + lane.gone.len());
        }
        for failed in report.failed {
            self.unwritten = self.unwritten.saturating_sub(1);
            let key = self.key_of(failed.job);
            let sequence = failed.job.sequence;
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

    /// What could not be written is written with what comes next.
    fn keep(&mut self, report: Report, error: &Error) {
        tracing::warn!(%error, "what came of deliveries could not be written; it is tried again");
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
