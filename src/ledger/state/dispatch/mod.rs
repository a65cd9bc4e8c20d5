//! Subscriptions, their jobs, tasks, replays and pools, as the log tells them.
//!
//! - One fold ([`fold`]) for both the durable rows and the layer of what is not durable yet.
//! - A job is a number in a [`Lane`]: of a subscription or a replay the event's sequence, of the tasks their own. Nothing
//!   is written when an event is published; only what deviates, and what is over.
//! - Who dispatches is a lease in the log itself; its position, and every later one, fences what is sent.
//!
//! What is sent when is `dispatch`' business.

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

/// Decisions about single jobs that are remembered for whoever plans them.
const JOB_CHANGES_KEPT: usize = 1024;

/// Which job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobKey {
    /// The subscription, the replay, or [`TASKS`].
    pub lane: Uuid,
    /// The event's number in its topic, or the task's.
    pub sequence: Sequence,
}

/// A subscription as the log has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionRow {
    /// Its id.
    pub id: Uuid,
    /// The topic's number in its log.
    pub number: u32,
    /// What it is, without secrets.
    pub definition: Arc<NewSubscription>,
    /// Its secrets, sealed.
    pub sealed: Option<String>,
    /// How it is authorised, in one word.
    pub auth_type: Option<String>,
    /// Why it does not deliver, if it does not.
    pub paused: Option<PauseDetails>,
    /// When it was made, in milliseconds.
    pub created_at: i64,
    /// When it was last changed, in milliseconds.
    pub updated_at: i64,
    /// The entry that last said something about it.
    pub version: Position,
    /// The entry that last closed its target's breaker.
    #[serde(default)]
    pub breaker_closed: Position,
}

/// A replay as the log has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayRow {
    /// Whose.
    pub subscription: Uuid,
    /// The last sequence.
    pub to: Sequence,
    /// When it was ordered, in milliseconds.
    pub at: i64,
}

/// A task as the log has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredTask {
    /// What it is about.
    pub code: String,
    /// Where it goes.
    pub target: String,
    /// What is posted. Text, so that it stays as it was spelt.
    pub payload: String,
    /// Its group.
    pub message_group: Option<String>,
    /// What order that keeps.
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
    /// What it is.
    pub task: Arc<StoredTask>,
    /// When it was asked for, in milliseconds.
    pub at: i64,
}

/// Who dispatches a log's jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DispatchLease {
    /// Which process.
    pub owner: Uuid,
    /// Until when, in milliseconds.
    pub until: i64,
    /// The entry that said so.
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
    /// Why nothing of this log is delivered, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paused: Option<PauseDetails>,
    /// The last entry that changed something else than progress: by lane, and over all.
    touched: BTreeMap<Uuid, Position>,
    version: Position,
    /// The last jobs about which a person decided something, each with the entry; not written down.
    #[serde(skip)]
    job_changes: VecDeque<(Position, JobKey)>,
    /// Jobs of each lane that waited for another attempt when their events were removed, since the log was opened.
    #[serde(skip)]
    removed_jobs: BTreeMap<Uuid, u64>,
    /// Open jobs of all lanes; counted, not written down.
    #[serde(skip)]
    open_jobs: usize,
    /// Bytes of all tasks; counted, not written down.
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

    /// How far a lane has come.
    #[must_use]
    pub fn lane(&self, id: Uuid) -> Option<&LaneProgress> {
        self.lanes.get(&id)
    }

    /// A replay.
    #[must_use]
    pub fn replay(&self, id: Uuid) -> Option<&ReplayRow> {
        self.replays.get(&id)
    }

    /// Replays that are not over, in order of their ids.
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

    /// Tasks in the order they were asked for.
    pub fn tasks(&self) -> impl DoubleEndedIterator<Item = &TaskRow> {
        self.numbers.values().filter_map(|id| self.tasks.get(id))
    }

    /// Those behind a number.
    pub fn tasks_behind(&self, number: Sequence) -> impl Iterator<Item = &TaskRow> {
        self.numbers.range(number.next()..).filter_map(|(_, id)| self.tasks.get(id))
    }

    /// How many jobs failed and wait, or were given up, in all lanes.
    #[must_use]
    pub const fn open_jobs(&self) -> usize {
        self.open_jobs
    }

    /// Lanes that have as many open jobs as they may, where at most `most` may be open altogether.
    #[must_use]
    pub fn lanes_over_share(&self, most: usize) -> HashSet<Uuid> {
        // Below its share of all of them no lane has too many, so thousands need not be looked at.
        if self.open_jobs < three_quarters(most) {
            return HashSet::new();
        }
        self.lanes.keys().filter(|lane| self.is_over_share(**lane, most)).copied().collect()
    }

    /// Whether a lane has as many open jobs as it may: three quarters of what the others leave it, unless it is the only
    /// one. So whoever fails for ever does not keep the others from delivering.
    #[must_use]
    pub fn is_over_share(&self, lane: Uuid, most: usize) -> bool {
        let open = self.lanes.get(&lane).map_or(0, LaneProgress::open_count);
        let left_by_others = most.saturating_sub(self.open_jobs.saturating_sub(open));
        self.lanes.len() > 1 && open > 0 && open >= three_quarters(left_by_others)
    }

    /// Who dispatches.
    #[must_use]
    pub const fn lease(&self) -> Option<DispatchLease> {
        self.lease
    }

    /// Why nothing of this log is delivered, if so.
    #[must_use]
    pub const fn paused(&self) -> Option<&PauseDetails> {
        self.paused.as_ref()
    }

    /// The last entry that changed something else than progress.
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

    /// The jobs about which a person decided something behind an entry, with the entry of each. Those that are forgotten have
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
