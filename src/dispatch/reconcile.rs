//! Reconciling: the plan is brought in line with the subscriptions, replays, tasks and pools of the log.
//!
//! - A lane is rebuilt when its definition changed; jobs in flight stay in flight. Decisions about single jobs are
//!   applied by `job_changes`.
//! - Everything here can be rebuilt from the log, so a restart is no special case.

use super::feeder::{LaneReading, group_of};
use super::job_event::group_by_aggregate;
use super::lane::{EventArrival, LaneKey, LaneRules, PlannedJob};
use super::lane_filter::EarlierFilter;
use super::send::LaneSource;
use super::worker::{DispatchWorker, ReconciledAt, UnbuiltLane};
use crate::events::{EventLookup, find_event};
use crate::ledger::{
    DispatchRows, EventDigest, JobRow, JobSlot, JobState, Ledger, SubscriptionRow, TASKS, TaskRow, tag,
};
use crate::subscriptions::{CompiledSubscription, DEFAULT_POOL, pool_of};
use contract::{DispatchMode, Error, Position, Result, Sequence, limits};
use log::TopicNumber;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

/// The wait before a failed build of a lane is retried, in milliseconds.
const BUILD_RETRY_MILLIS: i64 = 10_000;

/// A lane as the log defines it.
struct DesiredLane {
    lane: Uuid,
    touched: Position,
    row: SubscriptionRow,
    /// The last sequence of the replay, and when it was requested.
    replay: Option<(Sequence, i64)>,
}

impl DispatchWorker {
    /// Applies what changed since the last time.
    pub(super) async fn reconcile(&mut self, ledger: &Arc<Ledger>, now: i64) -> Result<()> {
        let Some(default) = self.context.default.upgrade() else { return Ok(()) };
        let (rows, replays) = {
            let rows = ledger.dispatch();
            (rows.version(), rows.replays().count())
        };
        // One lock after the other: the two ledgers may be the same, and a second read lock would deadlock with a
        // waiting writer.
        let pools = default.dispatch().version();
        let seen = ReconciledAt { rows, pools, replays };
        let is_due = self.unbuilt.values().any(|lane| lane.retry_at <= now);
        if self.reconciled_at == Some(seen) && !self.must_reconcile && !is_due {
            return Ok(());
        }
        let is_first = self.reconciled_at.is_none();
        self.take_pools(&default.dispatch(), now);
        self.find_pools();
        // After a start all lanes are built.
        let changed_jobs = self.reconciled_at.map(|last| self.changed_jobs(ledger, last.rows)).unwrap_or_default();
        let (wanted, mut changed) = desired_lanes(&ledger.dispatch(), &self.known);
        changed.retain(|it| {
            self.unbuilt.get(&it.lane).is_none_or(|known| known.retry_at <= now || known.touched != it.touched)
        });
        let over: Vec<_> = self.unbuilt.extract_if(.., |lane, _| !wanted.contains(lane)).collect();
        over.into_iter().for_each(|(lane, _)| self.context.set_unserved(lane, None));
        let gone: Vec<_> =
            self.known.keys().filter(|lane| **lane != TASKS && !wanted.contains(lane)).copied().collect();
        for lane in gone {
            self.forget(lane, now);
        }
        if !changed.is_empty() || !changed_jobs.is_empty() || self.must_build_tasks(ledger) {
            // The plan is rebuilt from the log: results must be recorded first, or delivered jobs would be sent again.
            self.flush(ledger).await?;
        }
        for it in changed {
            match self.build(ledger, &it, is_first, now).await {
                Ok(()) => {
                    self.unbuilt.remove(&it.lane);
                    self.context.set_unserved(it.lane, None);
                    self.known.insert(it.lane, it.touched);
                }
                Err(error) => self.postpone_lane(&it, &error, now),
            }
        }
        self.must_reconcile = false;
        self.apply_job_changes(ledger, changed_jobs, now).await;
        self.reconcile_tasks(ledger, now);
        self.reconciled_at = Some(seen);
        Ok(())
    }

    /// Updates how many more jobs may get a row, and logs when the limit is reached.
    pub(super) fn update_rows_left(&mut self, ledger: &Ledger, now: i64) {
        let (open, most) = (ledger.dispatch().open_jobs(), self.context.config.max_open_jobs as usize);
        let left = most.saturating_sub(open);
        self.planner.set_rows_left(left, ledger.dispatch().lanes_over_share(most), now);
        let is_full = left == 0;
        if is_full && !self.is_full {
            tracing::warn!(
                open,
                most,
                "the limit of open jobs is reached (dispatch.max_open_jobs): jobs that were not attempted yet wait until some end"
            );
        }
        self.is_full = is_full;
    }

    /// Whether a known task changed, so that the lanes of tasks are rebuilt.
    fn must_build_tasks(&self, ledger: &Ledger) -> bool {
        let touched = ledger.dispatch().touched(TASKS);
        touched != Position::ZERO && self.known.get(&TASKS) != Some(&touched)
    }

    fn take_pools(&mut self, rows: &DispatchRows, now: i64) {
        let mut pools: Vec<_> = rows.pools().cloned().collect();
        pools.extend(pool_of(rows, &self.context.config, DEFAULT_POOL).filter(|_| rows.pool(DEFAULT_POOL).is_none()));
        self.planner.set_pools(&pools, now);
    }

    /// The pool of a lane: the one it names, or the default pool if that does not exist. Older versions deleted pools
    /// in use, and no job may wait for ever.
    fn pool_or_default(&mut self, lane: Uuid, pool: String) -> String {
        if self.planner.has_pool(&pool) {
            return pool;
        }
        if self.without_pool.insert(lane, pool.clone()).is_none() {
            tracing::warn!(%lane, pool, "a pool does not exist; the default pool delivers instead");
        }
        DEFAULT_POOL.to_owned()
    }

    /// Lanes whose missing pool exists by now are rebuilt.
    fn find_pools(&mut self) {
        let found = self.without_pool.extract_if(|_, pool| self.planner.has_pool(pool));
        for (lane, _) in found.collect::<Vec<_>>() {
            self.known.remove(&lane);
        }
    }

    fn forget(&mut self, lane: Uuid, now: i64) {
        let key = LaneKey { lane, part: 0 };
        self.context.set_unserved(lane, None);
        self.known.remove(&lane);
        self.without_pool.remove(&lane);
        self.breakers_closed.remove(&lane);
        self.sources.remove(&key);
        self.recorded.remove(&lane);
        self.planner.drop_lane(key, now);
        for feeder in self.feeders.values_mut() {
            feeder.remove(key);
        }
        self.feeders.retain(|_, feeder| !feeder.is_empty());
    }

    /// A lane cannot be built: its secrets cannot be decrypted, or the log cannot be read. It waits, and
    /// no other lane waits for it.
    fn postpone_lane(&mut self, wanted: &DesiredLane, error: &Error, now: i64) {
        let subscription = &wanted.row.definition.code;
        self.forget(wanted.lane, now);
        let retry_at = now.saturating_add(BUILD_RETRY_MILLIS);
        if self.unbuilt.insert(wanted.lane, UnbuiltLane { touched: wanted.touched, retry_at }).is_none() {
            tracing::error!(%error, subscription, "a subscription cannot be served; this is tried again");
        }
        let line = format!("Nothing is delivered to the subscription {subscription}: {}", error.detail());
        self.context.set_unserved(wanted.lane, Some(line));
    }

    async fn build(&mut self, ledger: &Arc<Ledger>, wanted: &DesiredLane, is_first: bool, now: i64) -> Result<()> {
        let key = LaneKey { lane: wanted.lane, part: 0 };
        let subscription = Arc::new(CompiledSubscription::of(&wanted.row, &self.context.vault)?);
        let (through, open, past) = {
            let rows = ledger.dispatch();
            let Some(lane) = rows.lane(wanted.lane) else { return Ok(()) };
            let open: Vec<_> = lane.rows_after(Sequence::ZERO).collect();
            (lane.recorded_through(), open, lane.past_filters().to_vec())
        };
        let mut rules = rules(&subscription, wanted);
        rules.pool = self.pool_or_default(wanted.lane, rules.pool);
        let closed = wanted.row.breaker_closed;
        if self.breakers_closed.insert(wanted.lane, closed).is_some_and(|known| known != closed) {
            self.context.breakers.close(&rules.target);
        }
        if let Some(retried_at) = open.iter().filter_map(|(_, row)| row.aged_from).max() {
            self.context.breakers.request_probe(&rules.target, retried_at, now);
        }
        self.planner.put_lane(key, rules.clone(), through, now);
        self.recorded.insert(wanted.lane, through);
        let topic = TopicNumber(wanted.row.number);
        for (sequence, row) in open {
            let is_dead = matches!(row.standing, JobState::Dead { .. });
            // There may be many, and only in this mode they block their groups.
            if is_dead && subscription.mode != DispatchMode::BlockOnError {
                continue;
            }
            let Some((event, group)) = row_event(ledger, topic, sequence, &row).await? else { continue };
            let group = group.filter(|_| subscription.mode != DispatchMode::Immediate);
            let job = row_job(&rules, &row, sequence, group, event);
            self.planner.offer_row(key, job, is_dead, now);
        }
        let until = wanted.replay.map(|(to, _)| to);
        // A paused lane may be far behind, so it joins no cohort.
        let all_new = is_first && wanted.replay.is_none() && !rules.paused;
        let earlier = EarlierFilter::all(&past, &wanted.row).into();
        let reading = LaneReading { subscription: Arc::clone(&subscription), earlier, until };
        self.feeders.entry(wanted.row.number).or_default().put(key, reading, through, all_new);
        let replay = wanted.replay.map(|_| wanted.lane);
        self.sources.insert(key, LaneSource::Events { subscription, topic, replay });
        Ok(())
    }

    /// Offers the new tasks, or all open ones if one of them changed.
    fn reconcile_tasks(&mut self, ledger: &Ledger, now: i64) {
        let rows = ledger.dispatch();
        let Some(lane) = rows.lane(TASKS) else { return };
        let touched = rows.touched(TASKS);
        if self.known.insert(TASKS, touched) != Some(touched) {
            let old: Vec<_> = self.sources.keys().filter(|key| key.lane == TASKS).copied().collect();
            for key in old {
                self.sources.remove(&key);
                self.planner.drop_lane(key, now);
            }
            self.last_task = Sequence::ZERO;
        }
        for task in rows.tasks_behind(self.last_task) {
            self.last_task = task.number;
            self.offer_task(task, lane.slot(task.number), now);
        }
    }

    /// Offers an open task in the lane of its pool.
    fn offer_task(&mut self, task: &TaskRow, slot: Option<JobSlot>, now: i64) {
        let row = match slot {
            Some(JobSlot::Ended(_)) => return,
            Some(JobSlot::Open(row)) => Some(row),
            None => None,
        };
        if let Some(retried_at) = row.as_ref().and_then(|row| row.aged_from) {
            self.context.breakers.request_probe(&task.task.target, retried_at, now);
        }
        let pool = task.task.pool.clone().unwrap_or_else(|| DEFAULT_POOL.to_owned());
        let pool = self.pool_or_default(TASKS, pool);
        let key = LaneKey { lane: TASKS, part: tag(&pool) };
        if self.sources.insert(key, LaneSource::Tasks).is_none() {
            self.planner.put_lane(key, task_rules(pool), Sequence::ZERO, now);
        }
        let is_dead = row.as_ref().is_some_and(|row| matches!(row.standing, JobState::Dead { .. }));
        self.planner.offer_row(key, task_job(task, row.as_ref()), is_dead, now);
    }
}

/// All lanes that are to be served, and those that changed, in order.
fn desired_lanes(rows: &DispatchRows, known: &BTreeMap<Uuid, Position>) -> (BTreeSet<Uuid>, Vec<DesiredLane>) {
    let (mut all, mut changed) = (BTreeSet::new(), Vec::new());
    let mut want = |lane: Uuid, touched: Position, row: &SubscriptionRow, replay: Option<(Sequence, i64)>| {
        all.insert(lane);
        // Thousands may be unchanged: only the others are copied.
        if known.get(&lane).is_none_or(|known| *known < touched) {
            changed.push(DesiredLane { lane, touched, row: row.clone(), replay });
        }
    };
    for row in rows.subscriptions() {
        want(row.id, rows.touched(row.id), row, None);
    }
    for (id, replay) in rows.replays() {
        let Some(row) = rows.subscription(replay.subscription) else { continue };
        want(id, rows.touched(id).max(rows.touched(row.id)), row, Some((replay.to, replay.at)));
    }
    changed.sort_unstable_by_key(|it| it.lane);
    (all, changed)
}

fn rules(subscription: &CompiledSubscription, wanted: &DesiredLane) -> LaneRules {
    let replay = wanted.replay;
    LaneRules {
        scope: subscription.id,
        pool: subscription.pool.clone(),
        priority: subscription.priority,
        mode: subscription.mode,
        target: subscription.delivery.target.as_str().into(),
        delay_millis: if replay.is_some() { 0 } else { subscription.delay_millis },
        max_age_millis: subscription.max_age_millis,
        ages_from: Some(replay.map_or(wanted.row.created_at, |(_, at)| at)),
        is_replay: replay.is_some(),
        paused: wanted.row.paused.is_some(),
    }
}

fn task_rules(pool: String) -> LaneRules {
    LaneRules {
        scope: TASKS,
        pool,
        priority: 99,
        mode: DispatchMode::BlockOnError,
        target: "".into(),
        delay_millis: 0,
        max_age_millis: i64::MAX,
        ages_from: None,
        is_replay: false,
        paused: false,
    }
}

/// What is known of the event of a job with a row, and its group: what the row keeps, or else what the log says. `None`: the
/// event was removed, and the row of an older version kept nothing.
pub(super) async fn row_event(
    ledger: &Ledger,
    topic: TopicNumber,
    sequence: Sequence,
    row: &JobRow,
) -> Result<Option<(EventArrival, Option<u64>)>> {
    if let Some(EventDigest { arrived, bytes, group }) = &row.digest {
        return Ok(Some((EventArrival { time: *arrived, bytes: *bytes }, group.as_deref().map(tag))));
    }
    Ok(match find_event(ledger, topic, sequence).await? {
        Some(EventLookup::Intact(record)) => {
            let bytes = u32::try_from(record.body.len()).unwrap_or(u32::MAX);
            Some((EventArrival { time: record.header.time, bytes }, group_of(&record.body)))
        }
        Some(EventLookup::Damaged(header)) => {
            let group = group_by_aggregate(ledger, &header).await;
            Some((EventArrival { time: header.time, bytes: 0 }, group.as_deref().map(tag)))
        }
        None => None,
    })
}

pub(super) fn row_job(
    rules: &LaneRules,
    row: &JobRow,
    sequence: Sequence,
    group: Option<u64>,
    event: EventArrival,
) -> PlannedJob {
    let expires = rules.expires(row.aged_from, event.time);
    let due = match row.standing {
        JobState::Waiting { until } => until.min(expires),
        JobState::Dead { .. } => i64::MAX,
    };
    let (spent, tried) = (row.spent, row.tried);
    let mode = if group.is_none() { DispatchMode::Immediate } else { rules.mode };
    PlannedJob {
        sequence,
        group,
        mode,
        due,
        expires,
        has_row: true,
        spent,
        tried,
        target: None,
        awaits_breaker: false,
        event,
        stored: None,
    }
}

/// When a task expires: a day after the time for which it was scheduled, or after a person retried it.
pub(super) fn task_expires(task: &TaskRow, row: Option<&JobRow>) -> i64 {
    let from = row.and_then(|row| row.aged_from).unwrap_or(task.task.scheduled_for.unwrap_or(task.at).max(task.at));
    from.saturating_add(i64::from(limits::JOB_AGE_SECONDS_DEFAULT) * 1000)
}

fn task_job(task: &TaskRow, row: Option<&JobRow>) -> PlannedJob {
    let begins = task.task.scheduled_for.unwrap_or(task.at);
    let due = match row.map(|row| row.standing) {
        Some(JobState::Waiting { until }) => until.max(begins),
        Some(JobState::Dead { .. }) => i64::MAX,
        None => begins,
    };
    let due = due.min(task_expires(task, row));
    let mode = task.task.mode;
    // The mode is part of the group of a task: one mode lets jobs overtake where another does not.
    let group = task.task.message_group.as_ref().map(|group| tag(&format!("{mode:?} {group}")));
    PlannedJob {
        sequence: task.number,
        group,
        mode: if group.is_none() { DispatchMode::Immediate } else { mode },
        due,
        expires: task_expires(task, row),
        has_row: true,
        spent: row.map_or(0, |row| row.spent),
        tried: row.map_or(0, |row| row.tried),
        target: Some(task.task.target.as_str().into()),
        awaits_breaker: false,
        event: EventArrival { time: task.at, bytes: u32::try_from(task.task.payload.len()).unwrap_or(u32::MAX) },
        stored: None,
    }
}
