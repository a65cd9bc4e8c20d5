//! Decisions of a person about single jobs, applied to the plan: each job is taken out and, if it is still open, put in again.
//!
//! - Nothing else of the lane is planned again, so a script that retries or cancels many jobs one by one costs other
//!   subscriptions nothing.
//! - A job in flight stays as it is: when it ends, the log is compared with what was planned.

use super::lane::LaneKey;
use super::message_groups::MessageGroup;
use super::planner::Planner;
use super::reconcile::{row_event, row_job};
use super::send::LaneSource;
use super::worker::DispatchWorker;
use crate::ledger::{JobKey, JobSlot, JobState, Ledger, TASKS};
use contract::{DispatchMode, Position, Result, Sequence};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

/// More changes of one lane at a time are a reason to rebuild the whole lane.
const CHANGES_MAX: usize = 64;

/// The changed jobs of a lane, and the last entry about one of them.
pub(super) type LaneChanges = (Position, BTreeSet<Sequence>);

impl DispatchWorker {
    /// The jobs that were changed after an entry, by lane. A lane with many is rebuilt instead, and is not among them.
    pub(super) fn changed_jobs(&mut self, ledger: &Ledger, after: Position) -> BTreeMap<Uuid, LaneChanges> {
        let mut lanes = BTreeMap::<Uuid, LaneChanges>::new();
        for (at, JobKey { lane, sequence }) in ledger.dispatch().job_changes(after) {
            let (last, jobs) = lanes.entry(lane).or_default();
            *last = at.max(*last);
            jobs.insert(sequence);
        }
        let many: Vec<_> = lanes.extract_if(.., |_, (_, jobs)| jobs.len() > CHANGES_MAX).collect();
        for (lane, _) in many {
            self.known.remove(&lane);
        }
        lanes
    }

    /// Applies the changes of jobs to the lanes that are planned.
    pub(super) async fn apply_job_changes(
        &mut self,
        ledger: &Arc<Ledger>,
        lanes: BTreeMap<Uuid, LaneChanges>,
        now: i64,
    ) {
        for (lane, (at, jobs)) in lanes {
            // One that is not known was built just now, or cannot be.
            let Some(known) = self.known.get(&lane).copied().filter(|known| *known < at) else { continue };
            let key = LaneKey { lane, part: 0 };
            self.planner.remove_jobs(key, &jobs, now);
            for sequence in jobs {
                if let Err(error) = self.offer_changed(ledger, key, sequence, now).await {
                    tracing::warn!(%error, %lane, %sequence, "a changed job cannot be planned alone; its lane is rebuilt");
                    self.known.remove(&lane);
                    self.must_reconcile = true;
                    break;
                }
            }
            if let Some(entry) = self.known.get_mut(&lane) {
                *entry = known.max(at);
            }
        }
    }

    /// Plans a job as the log has it, if it is open.
    async fn offer_changed(&mut self, ledger: &Ledger, key: LaneKey, sequence: Sequence, now: i64) -> Result<()> {
        debug_assert!(key.lane != TASKS, "changes of tasks are planned by their own lanes");
        let slot = ledger.dispatch().lane(key.lane).and_then(|lane| lane.slot(sequence));
        let Some(JobSlot::Open(row)) = slot else { return Ok(()) };
        let Some(LaneSource::Events { topic, .. }) = self.sources.get(&key) else { return Ok(()) };
        let (topic, is_dead) = (*topic, matches!(row.standing, JobState::Dead { .. }));
        let Some((event, group)) = row_event(ledger, topic, sequence, &row).await? else { return Ok(()) };
        let Some(rules) = self.planner.rules(key).cloned() else { return Ok(()) };
        if let Some(retried_at) = row.aged_from {
            self.context.breakers.request_probe(&rules.target, retried_at, now);
        }
        if !is_dead || rules.mode == DispatchMode::BlockOnError {
            let group = group.filter(|_| rules.mode != DispatchMode::Immediate);
            self.planner.offer_row(key, row_job(&rules, &row, sequence, group, event), is_dead, now);
        }
        Ok(())
    }
}

impl Planner {
    /// Takes jobs out of the plan, wherever they wait; those in flight stay.
    pub(super) fn remove_jobs(&mut self, key: LaneKey, jobs: &BTreeSet<Sequence>, now: i64) {
        let is_waiting = |sequence: &&Sequence| !self.in_flight.contains_key(&(key, **sequence));
        let jobs: BTreeSet<_> = jobs.iter().filter(is_waiting).copied().collect();
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        lane.due.retain(|(_, sequence), _| !jobs.contains(sequence));
        lane.parked.retain(|sequence, _| !jobs.contains(sequence));
        lane.ages.retain(|(_, sequence), _| !jobs.contains(sequence));
        for sequence in &jobs {
            self.fresh_jobs -= u64::from(lane.fresh.remove(sequence.get()));
            let cached = lane.cached.remove(sequence);
            self.cached = self.cached.saturating_sub(cached.map_or(0, |event| event.text.len()));
        }
        let scope = lane.rules.scope;
        let holds_any = |group: &MessageGroup| jobs.iter().any(|job| group.contains((key, *job)));
        let groups = self.groups.get(&scope).into_iter().flatten().filter(|(_, group)| holds_any(group));
        for group in groups.map(|(group, _)| *group).collect::<Vec<_>>() {
            let mut held = Vec::new();
            if let Some(group) = self.group_of(scope, group) {
                jobs.iter().for_each(|job| held.extend(group.remove((key, *job))));
            }
            self.put_held(held, now);
            self.promote(scope, group, now);
        }
        self.queue(key, now);
    }
}
