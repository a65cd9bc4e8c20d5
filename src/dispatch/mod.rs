//! Dispatch: which job is delivered when, and what its result means.
//!
//! ```text
//!                           ┌────────────────────────────── the log ───────────────────────────────────┐
//!                           │ events of a topic             entries about subscriptions, jobs, pools   │
//!                           └──────┬───────────────────────────────┬──────────────────────────────▲────┘
//!                     read, match  │                 rows of jobs, │ definitions                  │ one append
//!                                  ▼                               ▼                              │ per report
//!                       feeder (scanned)                 reconcile, job_changes                   │
//!                                  └───────── offer ─────┬─────────┘                              │
//!  planner (pure)                                        ▼                                        │
//!    message group: one job at a time ──▶ lane: by due time ──▶ pool: by priority, rate, share    │
//!                                                                          │ picks                │
//!  worker                                                                  ▼                      │
//!    lease ──▶ send ──▶ delivery (HTTP) ──▶ outcomes ──▶ retry (pure: what next?) ──▶ report ─────┘
//!                                                                                    (settled, recorded)
//!    after the append: a failed job goes back to the planner, a given-up one is a dead letter
//! ```
//!
//! - An event and its jobs are one fact: a job is stored only when it deviates (a row: it failed, was deferred or was given
//!   up) or when it is done. So an acknowledged event cannot lack its jobs, and nothing has to be repaired.
//! - Choosing is separate from doing: the planner and the retry table are pure, the worker carries out.
//! - Publishing is not slowed: the worker is a reader of the log, and a log without subscriptions is not read.
//! - Three words say how far a lane is: *scanned* (events read for it), *settled* (up to there every job is done or has a
//!   row), *recorded* (the settled offset that is stored in the log).
//!
//! How one attempt is made is the business of `delivery`; what subscriptions are, of `subscriptions`.

mod actions;
mod blocked_groups;
mod delivery_test;
mod dispatch_pause;
mod feeder;
mod feeder_page;
mod in_flight_bytes;
mod job_changes;
mod job_event;
mod job_list;
mod job_list_builder;
mod job_results;
mod job_view;
mod jobs;
mod lane;
mod lane_filter;
mod lease;
mod log_lines;
mod message_groups;
mod picks;
mod planner;
mod pool_queue;
mod pools;
mod read_ahead;
mod reconcile;
mod retry;
mod send;
mod waiting_jobs;
pub(crate) mod worker;

pub(crate) use actions::JobAction;
pub use dispatch_pause::pause_dispatch;
pub(crate) use dispatch_pause::{pause_of, resume_dispatch};
pub(crate) use job_results::attempts_of;
pub(crate) use jobs::DispatchJobs;
pub(crate) use worker::DispatchWorker;

use crate::clock::Clock;
use crate::config;
use crate::delivery::{CircuitBreakers, Deliver};
use crate::ledger::{IncidentReporter, JobKey, Ledger};
use crate::logs::Logs;
use crate::subscriptions::SecretVault;
use contract::Sequence;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use uuid::Uuid;

/// How often the worker list is compared with the open logs: topics may open new ones.
const NEW_LOGS_EVERY: Duration = Duration::from_millis(500);
/// Most subscriptions named in the readiness report because they cannot be served.
const UNSERVED_LISTED: usize = 5;

/// What the workers of a broker share.
pub(crate) struct DispatchContext {
    pub(crate) deliver: Arc<dyn Deliver>,
    /// The wall clock, for the timestamp of a delivery. Due times are compared with the time of each log.
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) vault: Arc<SecretVault>,
    pub(crate) config: config::DispatchConfig,
    /// The default log: it holds the pools.
    pub(crate) default: Weak<Ledger>,
    /// The id of this process in leases.
    pub(crate) owner: Uuid,
    pub(crate) lease_millis: i64,
    /// Whether waits are changed at random.
    pub(crate) jitters: bool,
    pub(crate) breakers: CircuitBreakers,
    test_deliveries: delivery_test::TestDeliveryLimiter,
    in_flight: Mutex<HashSet<JobKey>>,
    /// Lanes whose jobs cannot be served, each with a line that gives the reason.
    unserved: Mutex<BTreeMap<Uuid, String>>,
    /// True once deliveries must end.
    stopping: watch::Sender<bool>,
    /// True while workers run.
    running: watch::Sender<bool>,
}

impl DispatchContext {
    pub(crate) fn new(
        deliver: Arc<dyn Deliver>,
        clock: Arc<dyn Clock>,
        vault: Arc<SecretVault>,
        config: config::DispatchConfig,
        default: &Arc<Ledger>,
    ) -> Self {
        let lease_millis = i64::try_from(config.lease_secs).unwrap_or(15).saturating_mul(1000);
        Self {
            deliver,
            clock,
            vault,
            config,
            default: Arc::downgrade(default),
            owner: Uuid::new_v4(),
            lease_millis,
            jitters: true,
            breakers: CircuitBreakers::default(),
            test_deliveries: delivery_test::TestDeliveryLimiter::default(),
            in_flight: Mutex::default(),
            unserved: Mutex::default(),
            stopping: watch::Sender::new(false),
            running: watch::Sender::new(false),
        }
    }

    /// Starts no more deliveries. Workers wait a while for those in flight.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Waits until no worker runs.
    pub(crate) async fn stopped(&self) {
        self.stop();
        // The sender is a field of `self`, so this cannot fail.
        let _ = self.running.subscribe().wait_for(|running| !running).await;
    }

    /// Stores why the jobs of a lane cannot be served; `None`: they are served again.
    fn set_unserved(&self, lane: Uuid, reason: Option<String>) {
        let mut unserved = self.unserved.lock().unwrap_or_else(PoisonError::into_inner);
        match reason {
            Some(reason) => drop(unserved.insert(lane, reason)),
            None => drop(unserved.remove(&lane)),
        }
    }

    /// One line for each subscription whose jobs cannot be served, at most [`UNSERVED_LISTED`].
    pub(crate) fn degradations(&self) -> Vec<String> {
        let unserved = self.unserved.lock().unwrap_or_else(PoisonError::into_inner);
        // A subscription and its replays have the same line.
        let lines: BTreeSet<_> = unserved.values().collect();
        lines.into_iter().take(UNSERVED_LISTED).cloned().collect()
    }

    /// A random number from -1 to 1.
    fn jitter(&self) -> f64 {
        let [high, low, ..] = *Uuid::new_v4().as_bytes();
        let random = f64::from(u16::from_be_bytes([high, low])) / f64::from(u16::MAX);
        if self.jitters { random * 2.0 - 1.0 } else { 0.0 }
    }

    /// Notes whether a job is in flight.
    fn set_in_flight(&self, job: JobKey, is_so: bool) {
        let mut in_flight = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        match is_so {
            true => in_flight.insert(job),
            false => in_flight.remove(&job),
        };
    }

    /// The jobs of a lane that this process is delivering, in order.
    fn in_flight_of_lane(&self, lane: Uuid) -> Vec<Sequence> {
        let in_flight = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<_> = in_flight.iter().filter(|job| job.lane == lane).map(|job| job.sequence).collect();
        found.sort_unstable();
        found
    }

    /// Whether this process is delivering a job.
    pub(crate) fn is_in_flight(&self, job: JobKey) -> bool {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner).contains(&job)
    }
}

/// Starts a worker for every open log and for logs that are opened later. They end with the logs, or on
/// [`DispatchContext::stop`].
///
/// A worker that panics is an incident: the broker is reopened, and the plan is rebuilt from the log.
pub(crate) fn start(
    logs: Weak<Logs>,
    context: Arc<DispatchContext>,
    incidents: &Arc<IncidentReporter>,
) -> JoinHandle<()> {
    let running = RunningGuard::hold(&context);
    let reports = Arc::clone(incidents);
    incidents.spawn("dispatch", async move {
        let _running = running;
        let mut workers = JoinSet::new();
        keep_dispatching(logs, &context, &mut workers, &reports).await;
        while let Some(ended) = workers.join_next().await {
            reports.ended("dispatch worker", ended);
        }
    })
}

/// Held while workers run. When it is dropped (the workers ended, one panicked, or the broker was abandoned),
/// [`DispatchContext::stopped`] returns.
struct RunningGuard(Arc<DispatchContext>);

impl RunningGuard {
    fn hold(context: &Arc<DispatchContext>) -> Self {
        context.running.send_replace(true);
        Self(Arc::clone(context))
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.running.send_replace(false);
    }
}

async fn keep_dispatching(
    logs: Weak<Logs>,
    context: &Arc<DispatchContext>,
    workers: &mut JoinSet<()>,
    incidents: &IncidentReporter,
) {
    let mut known: Vec<Weak<Ledger>> = Vec::new();
    let mut stopping = context.stopping.subscribe();
    loop {
        let Some((ledgers, mut closing)) = logs.upgrade().map(|it| (it.ledgers(), it.default_ledger().closing()))
        else {
            return;
        };
        for ledger in ledgers {
            let ledger_ref = Arc::downgrade(&ledger);
            if !known.iter().any(|it| it.ptr_eq(&ledger_ref)) {
                workers.spawn(DispatchWorker::new(&ledger, Arc::clone(context)).run());
                known.push(ledger_ref);
            }
        }
        known.retain(|it| it.strong_count() > 0);
        tokio::select! {
            () = tokio::time::sleep(NEW_LOGS_EVERY) => (),
            _ = closing.wait_for(|closing| *closing) => return,
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        while let Some(ended) = workers.try_join_next() {
            incidents.ended("dispatch worker", ended);
        }
    }
}

#[cfg(test)]
mod tests;
