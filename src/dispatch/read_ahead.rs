//! Read-ahead: whether more jobs of a lane may wait in memory.

use super::lane::{LaneKey, LanePlan};
use super::planner::Planner;
use contract::limits::JOBS_AHEAD_MAX;

/// Most jobs of a lane that wait in memory for a place in their pool: this many, or this multiple of its concurrency.
const AHEAD: usize = 1024;
const AHEAD_OF_POOL: usize = 4;

impl Planner {
    /// Whether one more job of a lane may be offered.
    pub(crate) fn has_room(&self, key: LaneKey, now: i64) -> bool {
        self.has_room_of(key, 1, now)
    }

    /// Whether enough of a lane was sent that reading for it alone is worth it.
    pub(crate) fn has_much_room(&self, key: LaneKey, now: i64) -> bool {
        self.has_room_of(key, 2, now)
    }

    fn has_room_of(&self, key: LaneKey, part: usize, now: i64) -> bool {
        let Some(lane) = self.lanes.get(&key).filter(|_| self.may_read(key)) else { return false };
        // Jobs for a target with an open breaker only wait; one job is enough for the probe.
        let again = self.breakers.retry_at(&lane.rules.target, now);
        if again.zip(lane.due.keys().next()).is_some_and(|(again, (due, _))| *due <= again) {
            return false;
        }
        let concurrency = self.pools.get(&lane.rules.pool).map_or(1, |pool| pool.concurrency);
        lane.has_room(AHEAD.max(AHEAD_OF_POOL * concurrency as usize) / part, self.waiting_share(lane), now)
    }

    /// How many jobs of an ordered lane may wait behind others of their groups: of what the other lanes leave of the budget of
    /// the log three quarters, or all if it is the only lane. So many blocked groups do not fill the memory, and one
    /// subscription does not take all of it.
    fn waiting_share(&self, lane: &LanePlan) -> u64 {
        let others = self.fresh_jobs.saturating_sub(lane.fresh.len());
        let left = (JOBS_AHEAD_MAX as u64).saturating_sub(others);
        if self.lanes.len() <= 1 { left } else { left - left / 4 }
    }

    /// Whether more of a lane may be read. Jobs that cannot get a row need not wait in memory.
    fn may_read(&self, key: LaneKey) -> bool {
        self.rows_left > 0 && !self.full.contains(&key.lane)
    }
}
