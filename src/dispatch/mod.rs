//! Dispatch: what is sent when, and what comes of it.
//!
//! ```text
//!   log ──▶ scan (who wants it?) ──▶ planner (whose turn is it?) ──▶ delivery ──▶ retry (what now?) ──▶ report ──▶ log
//!    └────▶ sync (subscriptions, jobs with a story, pools) ─────▲
//! ```
//!
//! - An event and its jobs are one fact: a job is written down only when something came of it. So an acknowledged event
//!   cannot lack its jobs, and nothing has to be repaired.
//! - Choosing is apart from doing: the planner and the retry table are pure, the worker carries out.
//! - Publishing is not slowed: the worker reads the log like anybody else, and a log without subscriptions is not read.
//!
//! How one attempt is made is `delivery`'s business, what subscriptions are `subscriptions`'.

mod actions;
mod blocked_groups;
mod feeder;
mod in_flight_bytes;
mod job_changes;
mod job_list;
mod job_list_builder;
mod job_view;
mod jobs;
mod lane;
mod lane_filter;
mod lease;
mod log_lines;
mod message_groups;
mod pausing;
mod picks;
mod planner;
mod pool_queue;
mod pools;
mod read_ahead;
mod reconcile;
mod report;
mod retry;
mod send;
mod test_delivery;
#[cfg(test)]
mod tests;
mod waiting_jobs;
pub(crate) mod worker;

pub(crate) use actions::JobAction;
pub(crate) use jobs::DispatchJobs;
pub use pausing::pause_dispatch;
pub(crate) use pausing::{pause_of, resume_dispatch};
pub(crate) use report::attempts_of;
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

/// How often logs that topics have opened since are looked for.
const NEW_LOGS_EVERY: Duration = Duration::from_millis(500);
/// Subscriptions that cannot be served, named in the readiness report.
const UNSERVED_LISTED: usize = 5;

/// What the workers of a broker share.
pub(crate) struct DispatchContext {
    pub(crate) deliver: Arc<dyn Deliver>,
    /// What receivers are told as the time of a delivery. When something is due is each log's own time.
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) vault: Arc<SecretVault>,
    pub(crate) config: config::DispatchConfig,
    /// Pools are the default log's.
    pub(crate) default: Weak<Ledger>,
    /// Which process this is.
    pub(crate) owner: Uuid,
    pub(crate) lease_millis: i64,
    /// Whether waits differ by chance.
    pub(crate) jitters: bool,
    pub(crate) breakers: CircuitBreakers,
    test_deliveries: test_delivery::TestDeliveryLimiter,
    in_flight: Mutex<HashSet<JobKey>>,
    /// Lanes whose jobs cannot be served, each with a line that says why.
    unserved: Mutex<BTreeMap<Uuid, String>>,
    /// Whether deliveries are to end.
    stopping: watch::Sender<bool>,
    /// Whether there are any.
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
            test_deliveries: test_delivery::TestDeliveryLimiter::default(),
            in_flight: Mutex::default(),
            unserved: Mutex::default(),
            stopping: watch::Sender::new(false),
            running: watch::Sender::new(false),
        }
    }

    /// No delivery begins any more; those under way are waited for a while.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Waits until none is under way.
    pub(crate) async fn stopped(&self) {
        self.stop();
        // The sender is ours: it cannot be gone.
        let _ = self.running.subscribe().wait_for(|running| !running).await;
    }

    /// Notes that the jobs of a lane cannot be served, and why; or that they are served again.
    fn set_unserved(&self, lane: Uuid, reason: Option<String>) {
        let mut unserved = self.unserved.lock().unwrap_or_else(PoisonError::into_inner);
        match reason {
            Some(reason) => drop(unserved.insert(lane, reason)),
            None => drop(unserved.remove(&lane)),
        }
    }

    /// One line for each subscription whose jobs cannot be served, the first ones.
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

    /// Notes that a job is under way, or is not any more.
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

/// Starts a worker for every log there is and will be; they end with the logs, or when they are told to stop.
///
/// A worker that panics is an incident: the broker is opened again, and what the worker knew is rebuilt.
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

/// Held while workers run. However they end (by themselves, by a panic, because the broker is abandoned), whoever waits for
/// their end hears of it.
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
mod planner_model;
