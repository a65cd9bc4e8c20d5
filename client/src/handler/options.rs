//! The options of a handler's runner, and its state.

use crate::retry::RetryPolicy;
use contract::{ClaimOrder, IdPattern, IsoDuration, limits};
use std::time::Duration;

/// The options of a runner. Options about claims override the handler's policy in the broker.
#[derive(Debug, Clone)]
pub struct HandlerOptions {
    /// How many events are worked on at the same time, each of another aggregate.
    pub parallel: usize,
    /// The lease of a claim; that of the handler's policy when absent. Heartbeats are sent at a third of it.
    pub lease: Option<IsoDuration>,
    /// The order of events of one aggregate. When absent, a runner that works on every event of the topic uses `gapless`, so
    /// that no event is skipped. A runner with a filter uses the order of the handler's policy, since `gapless` would wait for
    /// events that the filter excludes; so does [`once`](super::once), for the same reason.
    pub order: Option<ClaimOrder>,
    /// The owner of the claims, for people. Each runner appends a suffix of its own.
    pub owner: String,
    /// Only events of these types; empty: all.
    pub types: Vec<IdPattern>,
    /// Only events about subjects of these types; empty: all.
    pub subject_types: Vec<IdPattern>,
    /// Only events for which this CEL expression is true.
    pub filter: Option<String>,
    /// Where a handler without a committed offset starts.
    pub start: StartPosition,
    /// How the runners of the handler divide the work.
    pub division: WorkDivision,
    /// When this many events wait in memory, no more are read; one more page may be added.
    pub window_events: usize,
    /// How many events may wait; of those beyond the window only the sequences are kept.
    pub waiting_max: usize,
    /// When to try again to claim an event that is held, if the broker does not say when.
    pub recheck: Duration,
    /// The interval at which the runner looks for redriven or abandoned events that it has read past.
    pub sweep: Duration,
    /// How long work in flight may take after the stop signal; then its claim is released.
    pub drain: Duration,
    /// The waits while the broker is unavailable. The number of tries is not limited.
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
    /// The order in the claims of a runner; that of the handler's policy when absent.
    pub(super) fn runner_order(&self) -> Option<ClaimOrder> {
        let takes_all = self.types.is_empty() && self.subject_types.is_empty() && self.filter.is_none();
        self.order.or(takes_all.then_some(ClaimOrder::Gapless))
    }
}

/// Where a handler without a committed offset starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartPosition {
    /// At the topic's first stored event.
    Earliest,
    /// After the topic's last event. The runner commits that offset, so that a restart resumes there.
    Latest,
}

/// How several runners of one handler divide the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkDivision {
    /// Each runner reads the topic, and claims decide which of them works on an event. `lease` and `order` may be set here.
    ByClaim,
    /// They are members of a shared group with the handler's name: the broker assigns each event to one of them, already
    /// claimed. Lease and attempts are those of the handler's policy.
    ByGroup,
}

/// The state of a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunnerState {
    /// It works, or waits for events.
    Running,
    /// The broker is unavailable: no work is started. The number of tries since then.
    Paused(u32),
    /// It received the stop signal, and finishes the work in flight.
    Draining,
}
