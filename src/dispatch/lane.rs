//! A lane in the planner: what holds for it, and its jobs.

use super::groups::Group;
use bytes::Bytes;
use contract::{DispatchMode, Sequence};
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use uuid::Uuid;

/// A lane as the planner knows it: the tasks are one lane per pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct LaneKey {
    pub(crate) lane: Uuid,
    pub(crate) part: u64,
}

/// What holds for a lane.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) pool: String,
    pub(crate) priority: u32,
    pub(crate) ordered: bool,
    pub(crate) target: Arc<str>,
    pub(crate) delay_millis: i64,
    pub(crate) max_age_millis: i64,
    /// Since when jobs age, if not since their events arrived.
    pub(crate) ages_from: Option<i64>,
    /// Only so many of the pool's deliveries: one in this many.
    pub(crate) share: Option<u32>,
}

/// A job on its way.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) sequence: Sequence,
    pub(crate) group: Option<u64>,
    pub(crate) mode: DispatchMode,
    pub(crate) due: i64,
    pub(crate) expires: i64,
    /// Whether the log knows of it.
    pub(crate) has_row: bool,
    /// Attempts that count, and all of them.
    pub(crate) spent: u32,
    pub(crate) tried: u32,
    /// Where it goes, if not where its lane does.
    pub(crate) target: Option<Arc<str>>,
    /// The event, when it is sent, if it was at hand.
    pub(crate) stored: Option<Stored>,
}

/// An event to send.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) id: Uuid,
    pub(crate) text: Bytes,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Pick {
    /// Deliver this.
    Send(LaneKey, Job),
    /// This grew too old.
    Expire(LaneKey, Sequence),
}

/// How a job that was under way came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Back {
    /// It is over.
    Over,
    /// It waits.
    Waits {
        /// Until then.
        until: i64,
        /// Whether it was tried, and the log knows of it.
        tried: bool,
        /// Whether that cost an attempt.
        counts: bool,
    },
    /// It is given up.
    Dead,
}

/// A lane with its jobs.
pub(super) struct LanePlan {
    pub(super) rules: Rules,
    pub(super) due: BTreeMap<(i64, Sequence), Job>,
    pub(super) groups: HashMap<u64, Group>,
    /// Jobs without a story that are not over.
    pub(super) fresh: RoaringTreemap,
    /// Their events, as many as there is room for, until they are sent.
    pub(super) at_hand: HashMap<Sequence, Stored>,
    pub(super) scanned: Sequence,
    pub(super) flying: u32,
    pub(super) last_turn: u64,
    pub(super) queued: Queued,
}

/// Where a lane waits for its next turn.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Queued {
    No,
    Ready(u32, u64),
    Timer(i64),
}

/// A job not tried yet.
pub(crate) struct Offer {
    pub(crate) sequence: Sequence,
    pub(crate) group: Option<u64>,
    pub(crate) mode: DispatchMode,
    /// When its event arrived.
    pub(crate) time: i64,
    pub(crate) stored: Option<Stored>,
}

impl Rules {
    /// A job not tried yet, whose event arrived at `time`.
    pub(super) fn fresh(&self, sequence: Sequence, group: Option<u64>, mode: DispatchMode, time: i64) -> Job {
        let expires = self.expires(time);
        let due = time.saturating_add(self.delay_millis).min(expires);
        Job { sequence, group, mode, due, expires, has_row: false, spent: 0, tried: 0, target: None, stored: None }
    }

    /// When a job grows too old.
    pub(crate) fn expires(&self, time: i64) -> i64 {
        self.ages_from.unwrap_or(time).saturating_add(self.max_age_millis)
    }
}

impl LanePlan {
    pub(super) fn put_due(&mut self, job: Job) {
        self.due.insert((job.due, job.sequence), job);
    }

    /// A lane that was looked through so far.
    pub(super) fn new(rules: Rules, through: Sequence) -> Self {
        Self {
            rules,
            due: BTreeMap::new(),
            groups: HashMap::new(),
            fresh: RoaringTreemap::new(),
            at_hand: HashMap::new(),
            scanned: through,
            flying: 0,
            last_turn: 0,
            queued: Queued::No,
        }
    }
}
