//! Dispatch in a decision: durable rows with the overlay of what was decided since.

use super::fold::DispatchFold;
use super::lane::JobSlot;
use super::{DispatchLease, DispatchRows, JobKey, ReplayRow, SubscriptionRow, TaskRow};
use crate::ledger::decide::overlay_map::OverlayMap;
use crate::ledger::state::table::{DecidedTable, OverlayWriter, overlay_of};
use contract::{Error, PauseDetails, Pool, Result, Sequence, limits};
use std::collections::BTreeSet;
use uuid::Uuid;

/// What was decided about dispatch and is not durable yet.
#[derive(Default)]
pub struct DispatchOverlay {
    subscriptions: OverlayMap<Uuid, SubscriptionRow>,
    codes: OverlayMap<String, Uuid>,
    slots: OverlayMap<JobKey, JobSlot>,
    pools: OverlayMap<String, Pool>,
    tasks: OverlayMap<Uuid, TaskRow>,
    last_task: OverlayMap<(), Sequence>,
    replays: OverlayMap<Uuid, ReplayRow>,
    lease: OverlayMap<(), DispatchLease>,
    paused: OverlayMap<(), PauseDetails>,
}

overlay_of!(DispatchOverlay { subscriptions, codes, slots, pools, tasks, last_task, replays, lease, paused });

impl DispatchOverlay {
    fn subscription(&self, durable: &DispatchRows, id: Uuid) -> Option<SubscriptionRow> {
        match self.subscriptions.get(&id) {
            Some(decided) => decided.cloned(),
            None => durable.subscription(id).cloned(),
        }
    }

    fn slot(&self, durable: &DispatchRows, key: JobKey) -> Option<JobSlot> {
        match self.slots.get(&key) {
            Some(decided) => decided.cloned(),
            None => durable.slot(key),
        }
    }

    fn next_task(&self, durable: &DispatchRows) -> Sequence {
        let decided = self.last_task.get(&()).flatten().copied().unwrap_or_default();
        durable.next_task().max(decided.next())
    }
}

impl DispatchFold for OverlayWriter<'_, DispatchRows> {
    fn known(&self, id: Uuid) -> Option<SubscriptionRow> {
        self.overlay.subscription(self.durable, id)
    }

    fn put_subscription(&mut self, row: SubscriptionRow, _: Option<Sequence>) {
        self.overlay.codes.set(self.at, row.definition.code.clone(), Some(row.id));
        self.overlay.subscriptions.set(self.at, row.id, Some(row));
    }

    fn drop_subscription(&mut self, row: &SubscriptionRow) {
        self.overlay.codes.set(self.at, row.definition.code.clone(), None);
        self.overlay.subscriptions.set(self.at, row.id, None);
    }

    fn slot(&self, key: JobKey) -> Option<JobSlot> {
        self.overlay.slot(self.durable, key)
    }

    fn put_slot(&mut self, key: JobKey, slot: JobSlot) {
        self.overlay.slots.set(self.at, key, Some(slot));
    }

    fn put_pool(&mut self, code: &str, pool: Option<Pool>) {
        self.overlay.pools.set(self.at, code.to_owned(), pool);
    }

    fn next_task(&self) -> Sequence {
        self.overlay.next_task(self.durable)
    }

    fn put_task(&mut self, row: TaskRow) {
        self.overlay.last_task.set(self.at, (), Some(row.number));
        self.overlay.tasks.set(self.at, row.id, Some(row));
    }

    fn put_replay(&mut self, id: Uuid, row: ReplayRow, _: Sequence) {
        self.overlay.replays.set(self.at, id, Some(row));
    }

    fn put_lease(&mut self, lease: DispatchLease) {
        self.overlay.lease.set(self.at, (), Some(lease));
    }

    fn put_pause(&mut self, pause: Option<PauseDetails>) {
        self.overlay.paused.set(self.at, (), pause);
    }
}

/// Dispatch in a decision: durable or decided.
pub type DecidedDispatch<'a> = DecidedTable<'a, DispatchRows>;

impl DecidedDispatch<'_> {
    /// A subscription.
    pub fn subscription_row(&self, id: Uuid) -> Result<SubscriptionRow> {
        self.overlay.subscription(&self.durable, id).ok_or_else(|| Error::not_found("subscription"))
    }

    /// The subscription with this code.
    #[must_use]
    pub fn by_code(&self, code: &str) -> Option<Uuid> {
        match self.overlay.codes.get(&code.to_owned()) {
            Some(decided) => decided.copied(),
            None => self.durable.by_code(code).map(|row| row.id),
        }
    }

    /// The subscriptions to a topic.
    #[must_use]
    pub fn of_topic(&self, number: u32) -> Vec<SubscriptionRow> {
        let durable = self.durable.subscriptions().filter(|row| self.overlay.subscriptions.get(&row.id).is_none());
        let decided = self.overlay.subscriptions.iter().map(|(_, row)| row);
        durable.chain(decided).filter(|row| row.number == number).cloned().collect()
    }

    /// The state of a job.
    #[must_use]
    pub fn slot(&self, key: JobKey) -> Option<JobSlot> {
        self.overlay.slot(&self.durable, key)
    }

    /// A pool.
    #[must_use]
    pub fn pool(&self, code: &str) -> Option<Pool> {
        match self.overlay.pools.get(&code.to_owned()) {
            Some(decided) => decided.cloned(),
            None => self.durable.pool(code).cloned(),
        }
    }

    /// The users of a pool: the codes of subscriptions, and the number of open tasks.
    #[must_use]
    pub fn pool_users(&self, pool: &str) -> (BTreeSet<String>, usize) {
        let decided = self.overlay.subscriptions.iter().map(|(_, row)| row);
        let durable = self.durable.subscriptions().filter(|row| self.overlay.subscriptions.get(&row.id).is_none());
        let subscriptions = durable.chain(decided).filter(|row| row.definition.pool.as_deref() == Some(pool));
        let is_open = |row: &&TaskRow| {
            let key = JobKey { lane: super::TASKS, sequence: row.number };
            row.task.pool.as_deref() == Some(pool) && !matches!(self.slot(key), Some(JobSlot::Ended(_)))
        };
        let durable = self.durable.tasks().filter(|row| self.overlay.tasks.get(&row.id).is_none());
        let tasks = durable.chain(self.overlay.tasks.iter().map(|(_, row)| row)).filter(is_open).count();
        (subscriptions.map(|row| row.definition.code.clone()).collect(), tasks)
    }

    /// A task.
    #[must_use]
    pub fn task(&self, id: Uuid) -> Option<TaskRow> {
        match self.overlay.tasks.get(&id) {
            Some(decided) => decided.cloned(),
            None => self.durable.task(id).cloned(),
        }
    }

    /// Whether a lane exists: of a subscription, an unfinished replay, or the tasks.
    #[must_use]
    pub fn has_lane(&self, lane: Uuid) -> bool {
        let replays_of = |id: Uuid| match self.overlay.replays.get(&lane) {
            Some(decided) => decided.is_some_and(|row| row.subscription == id),
            None => self.durable.replay(lane).is_some_and(|row| row.subscription == id),
        };
        lane == super::TASKS
            || self.subscription_row(lane).is_ok()
            || self.durable.replay(lane).is_some_and(|row| self.subscription_row(row.subscription).is_ok())
            || self.overlay.replays.get(&lane).flatten().is_some_and(|row| replays_of(row.subscription))
    }

    /// The dispatch lease.
    #[must_use]
    pub fn lease(&self) -> Option<DispatchLease> {
        self.overlay.lease.get(&()).flatten().copied().or_else(|| self.durable.lease())
    }

    /// Whether dispatch is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        match self.overlay.paused.get(&()) {
            Some(decided) => decided.is_some(),
            None => self.durable.paused().is_some(),
        }
    }

    /// Whether there may be one more subscription. Decided ones that are not durable yet do not count.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.durable.subscriptions.len() < limits::SUBSCRIPTIONS_MAX
    }

    /// The same for pools.
    #[must_use]
    pub fn has_room_for_pools(&self) -> bool {
        self.durable.pools.len() < limits::POOLS_MAX
    }

    /// The same for tasks that are not over. `bytes` is the size of the new one; tasks that are not durable yet count.
    #[must_use]
    pub fn has_room_for_task(&self, bytes: usize) -> bool {
        let pending: usize = self.overlay.tasks.iter().map(|(_, row)| row.task.bytes()).sum();
        self.durable.tasks.len().saturating_sub(self.durable.tasks_over.len()) < limits::TASKS_MAX
            && self.durable.task_bytes + pending + bytes <= limits::TASKS_BYTES_MAX
    }

    /// The same for replays of a subscription.
    #[must_use]
    pub fn has_room_for_replays(&self, subscription: Uuid) -> bool {
        // A settled replay no longer runs, although dead letters of it may be open.
        let runs = |id: &Uuid, row: &ReplayRow| {
            row.subscription == subscription
                && self.durable.lanes.get(id).is_some_and(|lane| lane.recorded_through() < row.to)
        };
        self.durable.replays.iter().filter(|(id, row)| runs(id, row)).count() < limits::REPLAYS_MAX
    }
}
