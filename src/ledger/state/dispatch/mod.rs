//! The state of dispatch: subscriptions, their jobs, tasks, replays and pools.
//!
//! - One fold ([`fold`]) for both the durable rows and the overlay of what is decided but not durable yet.
//! - A job is a number in a lane ([`LaneProgress`]): in the lane of a subscription or a replay the event's sequence, in
//!   the lane of tasks their own number. Nothing is stored when an event is published; only deviations and ends of jobs
//!   are.
//! - The right to dispatch is a lease in the log; its position, and every later one, is the fencing token of
//!   deliveries.
//!
//! Which job is sent when is the business of `dispatch`.

mod fold;
mod history;
mod lane;
mod overlay;
#[cfg(test)]
mod tests;

use fold::DispatchFold;
pub use history::{JobInterest, KnownJob, PastFilter};
pub use lane::{JobEnd, JobRow, JobSlot, JobState, LaneProgress};
pub use overlay::DecidedDispatch;
pub(in crate::ledger) use overlay::DispatchOverlay;

use crate::ledger::facts::entry::Entry;
use crate::ledger::state::table::{OverlayWriter, StateTable};
use contract::{DispatchMode, FencingToken, NewSubscription, PauseDetails, Pool, Position, Sequence};
use log::RecordHeader;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use uuid::Uuid;

/// The lane of tasks.
pub const TASKS: Uuid = Uuid::nil();

/// Decisions about single jobs that are kept for the worker.
const JOB_CHANGES_KEPT: usize = 1024;

/// The key of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobKey {
    /// The subscription, the replay, or [`TASKS`].
    pub lane: Uuid,
    /// The event's number in its topic, or the task's.
    pub sequence: Sequence,
}

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionRow {
    /// Its id.
    pub id: Uuid,
    /// The topic's number in its log.
    pub number: u32,
    /// Its definition, without secrets.
    pub definition: Arc<NewSubscription>,
    /// Its secrets, sealed.
    pub sealed: Option<String>,
    /// The kind of its `auth`.
    pub auth_type: Option<String>,
    /// Since when and why it is paused.
    pub paused: Option<PauseDetails>,
    /// When it was created, in milliseconds.
    pub created_at: i64,
    /// When it was last changed, in milliseconds.
    pub updated_at: i64,
    /// The entry that last changed it.
    pub version: Position,
    /// The entry that last closed its target's breaker.
    #[serde(default)]
    pub breaker_closed: Position,
}

/// A replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayRow {
    /// Its subscription.
    pub subscription: Uuid,
    /// The last sequence.
    pub to: Sequence,
    /// When it was requested, in milliseconds.
    pub at: i64,
}

/// A task, as it was submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredTask {
    /// Its code, given by the caller.
    pub code: String,
    /// Its URL.
    pub target: String,
    /// Its payload, as the submitted text.
    pub payload: String,
    /// Its message group.
    pub message_group: Option<String>,
    /// The order within the group.
    pub mode: DispatchMode,
    /// Its pool.
    pub pool: Option<String>,
    /// Not before this, in milliseconds.
    pub scheduled_for: Option<i64>,
}

impl StoredTask {
    /// The bytes of its payload and target, which have no fixed size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.payload.len() + self.target.len()
    }
}

/// A task with its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskRow {
    /// Its id.
    pub id: Uuid,
    /// Its number in the lane of tasks.
    pub number: Sequence,
    /// Its definition.
    pub task: Arc<StoredTask>,
    /// When it was created, in milliseconds.
    pub at: i64,
}

/// The dispatch lease of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DispatchLease {
    /// The process that holds it.
    pub owner: Uuid,
    /// When it expires, in milliseconds.
    pub until: i64,
    /// The position of its entry.
    pub token: FencingToken,
}

/// Everything about dispatch in one log.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DispatchRows {
    subscriptions: BTreeMap<Uuid, SubscriptionRow>,
    codes: BTreeMap<String, Uuid>,
    lanes: BTreeMap<Uuid, LaneProgress>,
    replays: BTreeMap<Uuid, ReplayRow>,
    pools: BTreeMap<String, Pool>,
    tasks: BTreeMap<Uuid, TaskRow>,
    numbers: BTreeMap<Sequence, Uuid>,
    tasks_over: VecDeque<Uuid>,
    last_task: Sequence,
    lease: Option<DispatchLease>,
    /// Since when and why dispatch is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paused: Option<PauseDetails>,
    /// The last entry that changed more than progress: by lane, and overall.
    touched: BTreeMap<Uuid, Position>,
    version: Position,
    /// The last jobs about which a person decided something, each with its entry; not stored.
    #[serde(skip)]
    job_changes: VecDeque<(Position, JobKey)>,
    /// Jobs of each lane that waited for another attempt when their events were removed, since the log was opened.
    #[serde(skip)]
    removed_jobs: BTreeMap<Uuid, u64>,
    /// Open jobs of all lanes; counted, not stored.
    #[serde(skip)]
    open_jobs: usize,
    /// Bytes of all tasks; counted, not stored.
    #[serde(skip)]
    task_bytes: usize,
}

impl DispatchRows {
    /// A subscription by its id.
    #[must_use]
    pub fn subscription(&self, id: Uuid) -> Option<&SubscriptionRow> {
        self.subscriptions.get(&id)
    }

    /// A subscription by its code.
    #[must_use]
    pub fn by_code(&self, code: &str) -> Option<&SubscriptionRow> {
        self.subscriptions.get(self.codes.get(code)?)
    }

    /// Subscriptions in order of their ids.
    pub fn subscriptions(&self) -> impl DoubleEndedIterator<Item = &SubscriptionRow> {
        self.subscriptions.values()
    }

    /// The progress of a lane.
    #[must_use]
    pub fn lane(&self, id: Uuid) -> Option<&LaneProgress> {
        self.lanes.get(&id)
    }

    /// A replay.
    #[must_use]
    pub fn replay(&self, id: Uuid) -> Option<&ReplayRow> {
        self.replays.get(&id)
    }

    /// Replays that are not finished, in order of their ids.
    pub fn replays(&self) -> impl Iterator<Item = (Uuid, &ReplayRow)> {
        self.replays.iter().map(|(id, row)| (*id, row))
    }

    /// A pool.
    #[must_use]
    pub fn pool(&self, code: &str) -> Option<&Pool> {
        self.pools.get(code)
    }

    /// Pools in order of their codes.
    pub fn pools(&self) -> impl DoubleEndedIterator<Item = &Pool> {
        self.pools.values()
    }

    /// A task.
    #[must_use]
    pub fn task(&self, id: Uuid) -> Option<&TaskRow> {
        self.tasks.get(&id)
    }

    /// A task by its number.
    #[must_use]
    pub fn task_numbered(&self, number: Sequence) -> Option<&TaskRow> {
        self.tasks.get(self.numbers.get(&number)?)
    }

    /// Tasks in the order of their creation.
    pub fn tasks(&self) -> impl DoubleEndedIterator<Item = &TaskRow> {
        self.numbers.values().filter_map(|id| self.tasks.get(id))
    }

    /// Tasks after a number.
    pub fn tasks_behind(&self, number: Sequence) -> impl Iterator<Item = &TaskRow> {
        self.numbers.range(number.next()..).filter_map(|(_, id)| self.tasks.get(id))
    }

    /// How many jobs failed and wait, or were given up, in all lanes.
    #[must_use]
    pub const fn open_jobs(&self) -> usize {
        self.open_jobs
    }

    /// Lanes that have their share of open jobs, if at most `most` may be open in the log.
    #[must_use]
    pub fn lanes_over_share(&self, most: usize) -> HashSet<Uuid> {
        // While all of them together are below the smallest share, thousands of lanes need not be checked.
        if self.open_jobs < three_quarters(most) {
            return HashSet::new();
        }
        self.lanes.keys().filter(|lane| self.is_over_share(**lane, most)).copied().collect()
    }

    /// Whether a lane has its share of open jobs: three quarters of what the others leave, unless it is the only lane.
    /// So a receiver that always fails does not keep the others from delivering.
    #[must_use]
    pub fn is_over_share(&self, lane: Uuid, most: usize) -> bool {
        let open = self.lanes.get(&lane).map_or(0, LaneProgress::open_count);
        let left_by_others = most.saturating_sub(self.open_jobs.saturating_sub(open));
        self.lanes.len() > 1 && open > 0 && open >= three_quarters(left_by_others)
    }

    /// The dispatch lease.
    #[must_use]
    pub const fn lease(&self) -> Option<DispatchLease> {
        self.lease
    }

    /// Why nothing of this log is delivered, if so.
    #[must_use]
    pub const fn paused(&self) -> Option<&PauseDetails> {
        self.paused.as_ref()
    }

    /// The last entry that changed more than progress.
    #[must_use]
    pub const fn version(&self) -> Position {
        self.version
    }

    /// The same for one lane.
    #[must_use]
    pub fn touched(&self, lane: Uuid) -> Position {
        self.touched.get(&lane).copied().unwrap_or_default()
    }

    /// How many jobs of each lane waited for another attempt when their events were removed, since the log was opened.
    #[must_use]
    pub const fn removed_jobs(&self) -> &BTreeMap<Uuid, u64> {
        &self.removed_jobs
    }

    /// The jobs about which a person decided something after an entry, each with its entry. Dropped ones have
    /// [`Self::touched`] their lanes.
    pub fn job_changes(&self, after: Position) -> impl Iterator<Item = (Position, JobKey)> {
        self.job_changes.iter().rev().take_while(move |(at, _)| *at > after).copied()
    }

    /// Whether there is, or was, anything to dispatch.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.subscriptions.is_empty() && self.numbers.is_empty()
    }
}

impl StateTable for DispatchRows {
    type Overlay = DispatchOverlay;
    type Snapshot = Self;

    fn apply(&mut self, entry: &Entry, header: &RecordHeader) {
        DispatchFold::apply(self, entry, header);
    }

    fn decide(&self, overlay: &mut DispatchOverlay, entry: &Entry, header: &RecordHeader) {
        OverlayWriter { durable: self, overlay, at: header.position }.apply(entry, header);
    }

    fn snapshot(&self) -> Self {
        self.clone()
    }

    fn restore(mut snapshot: Self) -> Self {
        snapshot.open_jobs = snapshot.lanes.values().map(LaneProgress::open_count).sum();
        snapshot.task_bytes = snapshot.tasks.values().map(|row| row.task.bytes()).sum();
        snapshot
    }
}

/// Three quarters, rounded up.
const fn three_quarters(count: usize) -> usize {
    count - count / 4
}
