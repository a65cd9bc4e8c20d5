//! How a handler's runner works, and how it stands.

use crate::retry::RetryPolicy;
use contract::{ClaimOrder, IdPattern, IsoDuration, limits};
use std::time::Duration;

/// How a runner works. What is said of claims here beats what the broker holds for the handler.
#[derive(Debug, Clone)]
pub struct HandlerOptions {
    /// Most events worked on at a time, each of another aggregate.
    pub parallel: usize,
    /// How long a claim holds without a heartbeat; the handler's when absent. Heartbeats come at a third of it.
    pub lease: Option<IsoDuration>,
    /// What order events of one aggregate keep. When absent, a runner that works on every event of the topic asks for
    /// `gapless`, so that none is passed over. One with a filter leaves it to the handler, since `gapless` would wait for
    /// events that the filter does not take; so does [`once`](super::once), for the same reason.
    pub order: Option<ClaimOrder>,
    /// Who does the work, for people. Each runner adds something of its own.
    pub owner: String,
    /// Event types the handler wants; empty: any.
    pub types: Vec<IdPattern>,
    /// Subject types it wants; empty: any.
    pub subject_types: Vec<IdPattern>,
    /// A CEL expression over the event's members: which events it wants.
    pub filter: Option<String>,
    /// Where a handler begins that has committed nothing yet.
    pub start: StartPosition,
    /// How several runners of the handler divide the work.
    pub division: WorkDivision,
    /// Where more events than this wait for their turn in memory, no more are read; a page of them may come on top.
    pub window_events: usize,
    /// Most events that wait for their turn; those beyond the window are known by their numbers only.
    pub waiting_max: usize,
    /// How long an event that may not be claimed yet waits before it is asked for again, where the broker does not know.
    pub recheck: Duration,
    /// How often work that a person has redriven is looked for, behind what was read already.
    pub sweep: Duration,
    /// What is being worked on has this long when the runner is asked to stop; then it is handed back.
    pub drain: Duration,
    /// The waits while the broker is away; how often does not count.
    pub pause: RetryPolicy,
}

impl Default for HandlerOptions {
    fn default() -> Self {
        Self {
            parallel: 16,
            lease: None,
            order: None,
            owner: "worker".to_owned(),
            types: Vec::new(),
            subject_types: Vec::new(),
            filter: None,
            start: StartPosition::Earliest,
            division: WorkDivision::ByClaim,
            window_events: 10 * limits::READ_EVENTS_MAX,
            waiting_max: 100_000,
            recheck: Duration::from_secs(5),
            sweep: Duration::from_secs(10),
            drain: Duration::from_secs(30),
            pause: RetryPolicy {
                tries_max: u32::MAX,
                first_wait: Duration::from_millis(100),
                wait_max: Duration::from_secs(10),
            },
        }
    }
}

impl HandlerOptions {
    /// The order that the claims of a runner ask for; the handler's when absent.
    pub(super) fn runner_order(&self) -> Option<ClaimOrder> {
        let takes_all = self.types.is_empty() && self.subject_types.is_empty() && self.filter.is_none();
        self.order.or(takes_all.then_some(ClaimOrder::Gapless))
    }
}

/// Where a handler begins that has committed nothing yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartPosition {
    /// At the topic's first event.
    Earliest,
    /// Behind the topic's last event.
    Latest,
}

/// How several runners of one handler divide the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkDivision {
    /// Each reads the topic, and claims decide who works on which event. `lease` and `order` may be said here.
    ByClaim,
    /// They are members of a shared group, named like the handler: the broker hands each event to one of them, already
    /// claimed. Lease and attempts are those the broker holds for the handler.
    ByGroup,
}

/// How a runner stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunnerState {
    /// It works, or waits for events.
    Running,
    /// The broker is away: nothing is begun. So often it was asked since.
    Paused(u32),
    /// It was asked to stop, and finishes what it is at.
    Draining,
}
