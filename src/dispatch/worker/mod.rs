//! The worker: carries out what the planner picks, for one log.
//!
//! - It only reads the log until a delivery ends; results are stored in reports.
//! - One worker at a time serves a log: by itself if the log is in files or in memory, by a lease if several brokers
//!   share it. The lease is checked before every delivery.
//! - A failed job returns to the planner when the failure is durable, so every attempt has a higher token.
//! - Deliveries that are in flight when a broker dies are not stored: the next worker sends these jobs again.

mod outcomes;
mod recording;

use super::DispatchContext;
use super::feeder::{PAGE, TopicFeeder};
use super::job_results::{LaneReport, RecordDeliveries};
use super::lane::{AfterAttempt, LaneKey, PlannedJob, PlannerPick};
use super::lease::{LeaseStatus, TakeLease};
use super::log_lines::log_removed_jobs;
use super::planner::Planner;
use super::send::{DeliveryResult, LaneSource, PanicFallback, expire, send_event, send_task};
use crate::clock::LogClock;
use crate::ledger::{JobKey, Ledger, TASKS};
use contract::{Position, Result, Sequence};
use log::TopicNumber;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};
use uuid::Uuid;

/// Pages read before the next deliveries are started.
const PAGES_PER_STEP: usize = 8;
/// Most results that may wait to be recorded; further jobs are not sent.
const UNRECORDED_MAX: usize = 20_000;
/// The wait before a failed report is submitted again, in milliseconds.
const RECORD_RETRY_MILLIS: i64 = 1000;
/// Most jobs that expire at the same time.
const EXPIRING_MAX: usize = 256;
/// How long a stopping broker waits for deliveries in flight.
const FINISH_MAX: Duration = Duration::from_secs(10);
/// The settled offset of a lane is recorded when it is this far behind, although no job ended.
const SETTLED_EVERY: u64 = 4096;
/// All lanes are checked for that after this part of the interval was scanned or appended: there may be thousands.
const CHECKS_PER_INTERVAL: u64 = 4;

pub(crate) struct DispatchWorker {
    pub(super) ledger: Weak<Ledger>,
    /// The log's time.
    pub(super) clock: Arc<LogClock>,
    pub(super) context: Arc<DispatchContext>,
    pub(super) planner: Planner,
    pub(super) feeders: BTreeMap<u32, TopicFeeder>,
    pub(super) sources: HashMap<LaneKey, LaneSource>,
    /// The last entry about each lane that is planned.
    pub(super) known: BTreeMap<Uuid, Position>,
    pub(super) reconciled_at: Option<ReconciledAt>,
    /// Whether a lane must be rebuilt although no entry is newer.
    pub(super) must_reconcile: bool,
    /// Lanes that could not be built.
    pub(super) unbuilt: BTreeMap<Uuid, UnbuiltLane>,
    /// The last task that was offered.
    pub(super) last_task: Sequence,
    pub(crate) deliveries: JoinSet<DeliveryResult>,
    report: RecordDeliveries,
    /// The report that is being appended. Its failed jobs return to the planner when it is durable.
    pub(crate) recording: JoinSet<(RecordDeliveries, Result<()>)>,
    unrecorded: usize,
    /// An append failed: when it is retried. Nothing is sent until it has succeeded.
    record_again_at: Option<i64>,
    /// Whether the limit of open jobs is reached.
    pub(super) is_full: bool,
    /// Expired jobs whose events are being looked up.
    expiring: usize,
    /// Events scanned since all lanes were checked, and the position then.
    scanned_since_check: u64,
    checked_at: Position,
    pub(crate) recorded: HashMap<Uuid, Sequence>,
    /// Jobs that were removed with their events, as far as that was logged, by lane.
    removed_logged: BTreeMap<Uuid, u64>,
    /// Lanes that name a missing pool; the default pool delivers for them.
    pub(super) without_pool: HashMap<Uuid, String>,
    /// The entry that last closed the breaker of each lane's target.
    pub(super) breakers_closed: HashMap<Uuid, Position>,
}

/// What the state was when the plan was last reconciled with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReconciledAt {
    /// The last entry about dispatch in the worker's log.
    pub(super) rows: Position,
    /// The last entry about dispatch in the default log, which has the pools.
    pub(super) pools: Position,
    /// How many replays were running: one that ends writes no entry about dispatch.
    pub(super) replays: usize,
}

/// A lane that could not be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnbuiltLane {
    /// The last entry about the lane when that failed: a newer one may have repaired it.
    pub(super) touched: Position,
    pub(super) retry_at: i64,
}

/// What the worker does after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerStep {
    /// Take another step at once.
    More,
    /// Wait for an event, at most until this time.
    Wait(Option<i64>),
    /// Wait until dispatch is resumed.
    Paused,
    /// The log is gone.
    Over,
}

impl DispatchWorker {
    pub(crate) fn new(ledger: &Arc<Ledger>, context: Arc<DispatchContext>) -> Self {
        Self {
            ledger: Arc::downgrade(ledger),
            clock: Arc::clone(ledger.clock()),
            planner: Planner::with_breakers(&context.breakers),
            context,
            feeders: BTreeMap::new(),
            sources: HashMap::new(),
            known: BTreeMap::new(),
            reconciled_at: None,
            must_reconcile: false,
            unbuilt: BTreeMap::new(),
            last_task: Sequence::ZERO,
            deliveries: JoinSet::new(),
            report: RecordDeliveries::default(),
            recording: JoinSet::new(),
            unrecorded: 0,
            record_again_at: None,
            is_full: false,
            expiring: 0,
            scanned_since_check: 0,
            checked_at: Position::ZERO,
            recorded: HashMap::new(),
            // What was removed before this start is not logged again.
            removed_logged: ledger.dispatch().removed_jobs().clone(),
            without_pool: HashMap::new(),
            breakers_closed: HashMap::new(),
        }
    }

    /// Runs until the log is closed or dropped.
    pub(crate) async fn run(mut self) {
        let Some((mut closing, mut position)) = self.ledger.upgrade().map(|it| (it.closing(), it.position())) else {
            return;
        };
        let Some(mut default_position) = self.context.default.upgrade().map(|it| it.position()) else { return };
        let mut stopping = self.context.stopping.subscribe();
        loop {
            let step = self.step().await;
            let wake = match step {
                WorkerStep::Over => return,
                WorkerStep::More => Some(i64::MIN),
                WorkerStep::Wait(wake) => wake,
                WorkerStep::Paused => None,
            };
            let now = self.clock.now();
            let wait = wake.map(|wake| u64::try_from(wake.saturating_sub(now)).unwrap_or(0));
            let sleep = tokio::time::sleep(Duration::from_millis(wait.unwrap_or(60_000).min(60_000)));
            tokio::select! {
                biased;
                _ = closing.wait_for(|closing| *closing) => return,
                _ = stopping.wait_for(|stopping| *stopping) => break,
                Some(result) = self.deliveries.join_next(), if !self.deliveries.is_empty() => {
                    self.delivery_ended(result);
                    while let Some(more) = self.deliveries.try_join_next() {
                        self.delivery_ended(more);
                    }
                }
                Some(outcome) = self.recording.join_next(), if !self.recording.is_empty() => self.report_recorded(outcome),
                moved = position.changed() => if moved.is_err() { return },
                // The entry that resumes dispatch may be in the default log.
                moved = default_position.changed(), if step == WorkerStep::Paused => if moved.is_err() { return },
                () = sleep => (),
            }
        }
        self.finish().await;
    }

    /// Does everything that can be done now.
    pub(crate) async fn step(&mut self) -> WorkerStep {
        let Some(ledger) = self.ledger.upgrade() else { return WorkerStep::Over };
        let now = ledger.now();
        if ledger.dispatch().is_idle() && self.known.is_empty() {
            return WorkerStep::Wait(None);
        }
        if self.is_paused(&ledger) {
            self.drop_plan();
            self.record(&ledger);
            return WorkerStep::Paused;
        }
        let wake = match self.acquire_lease(&ledger, now).await {
            Ok(LeaseStatus::Held { renew_at }) => renew_at,
            Ok(LeaseStatus::Elsewhere { until }) => {
                self.drop_plan();
                // Results are recorded although another worker makes the next deliveries.
                self.record(&ledger);
                return WorkerStep::Wait(Some(until));
            }
            Err(error) => {
                tracing::debug!(%error, "the dispatch lease could not be taken; this is retried");
                return WorkerStep::Wait(Some(now.saturating_add(1000)));
            }
        };
        match self.work(&ledger, now).await {
            Ok(true) => WorkerStep::More,
            // Waiting jobs cannot be sent before the append succeeds.
            Ok(false) if self.record_again_at.is_some() => WorkerStep::Wait(self.record_again_at),
            Ok(false) => {
                let unbuilt = self.unbuilt.values().map(|lane| lane.retry_at).min();
                WorkerStep::Wait([self.planner.next_time(), wake, unbuilt].into_iter().flatten().min())
            }
            Err(error) => {
                tracing::warn!(%error, "events cannot be read for dispatch; this is retried");
                WorkerStep::Wait(Some(now.saturating_add(1000)))
            }
        }
    }

    async fn work(&mut self, ledger: &Arc<Ledger>, now: i64) -> Result<bool> {
        self.reconcile(ledger, now).await?;
        self.update_rows_left(ledger, now);
        let (mut more, mut failed) = (false, None);
        let registry = ledger.registry();
        let types = self.context.default.upgrade().map_or_else(|| Arc::clone(&registry), |default| default.registry());
        for (number, feeder) in &mut self.feeders {
            let number = TopicNumber(*number);
            let Some(tail) = registry.topic_numbered(number).map(|topic| topic.tail()) else { continue };
            let mut moves = true;
            for _ in 0..PAGES_PER_STEP {
                // A topic that cannot be read delays no other one, and no job that is ready.
                let stepped = feeder.step((ledger, &types), number, tail, &mut self.planner, now).await;
                moves = stepped.unwrap_or_else(|error| {
                    failed = Some(error);
                    false
                });
                if !moves {
                    break;
                }
                self.scanned_since_check += PAGE.records as u64;
            }
            more |= moves;
        }
        more |= self.send(ledger, now);
        self.log_removed(ledger);
        self.report_settled(*ledger.position().borrow());
        self.record(ledger);
        failed.filter(|_| !more).map_or(Ok(more), Err)
    }

    /// Starts the deliveries that may begin. True if a job ended without one, so that more can be read.
    fn send(&mut self, ledger: &Arc<Ledger>, now: i64) -> bool {
        // Read before the lease is checked: so the token is below everything a later owner appends.
        let token = ledger.position().borrow().get();
        let mut made_room = false;
        if self.record_again_at.is_some() {
            // The result could not be recorded either, and the job would be sent again.
            return made_room;
        }
        while self.unrecorded < UNRECORDED_MAX && self.expiring < EXPIRING_MAX && self.holds_lease(ledger, now) {
            match self.planner.next(now) {
                None => break,
                Some(PlannerPick::Expire(key, job)) => made_room |= !self.begin(ledger, (key, job, true), now, token),
                Some(PlannerPick::Send(key, job)) => made_room |= !self.begin(ledger, (key, job, false), now, token),
            }
        }
        made_room
    }

    /// Sends a job or lets it expire. False if the job was ended since it was planned, by a person or by the removal of
    /// its event.
    fn begin(
        &mut self,
        ledger: &Arc<Ledger>,
        (key, job, expires): (LaneKey, PlannedJob, bool),
        now: i64,
        token: u64,
    ) -> bool {
        let is_over = ledger.dispatch().lane(key.lane).is_none_or(|lane| lane.is_ended(job.sequence));
        let Some(source) = self.sources.get(&key).filter(|_| !is_over).cloned() else {
            self.planner.job_ended(key, job.sequence, AfterAttempt::Over, now);
            return false;
        };
        let fallback = PanicFallback::of(key, &job, &source, now, token);
        if expires {
            self.expiring += 1;
            self.deliveries.spawn(fallback.or_panicked(expire(Arc::clone(ledger), key, job, source, now, token)));
            return true;
        }
        self.context.set_in_flight(JobKey { lane: key.lane, sequence: job.sequence }, true);
        let (ledger, context) = (Arc::clone(ledger), Arc::clone(&self.context));
        self.deliveries.spawn(fallback.or_panicked(async move {
            match source {
                LaneSource::Events { subscription, topic, replay } => {
                    send_event(ledger, context, key, job, (subscription, topic, replay), now, token).await
                }
                LaneSource::Tasks => send_task(ledger, context, key, job, now, token).await,
            }
        }));
        true
    }

    fn lane_report(&mut self, lane: Uuid) -> &mut LaneReport {
        self.report.lanes.entry(lane).or_default()
    }

    /// Logs for which subscriptions retention removed events of jobs that waited for another attempt. Nothing else
    /// shows it, because nothing is left of such a job.
    fn log_removed(&mut self, ledger: &Ledger) {
        let rows = ledger.dispatch();
        if *rows.removed_jobs() == self.removed_logged {
            return;
        }
        for (lane, count) in rows.removed_jobs() {
            let jobs = count.saturating_sub(self.removed_logged.get(lane).copied().unwrap_or_default());
            let id = rows.replay(*lane).map_or(*lane, |replay| replay.subscription);
            if let Some(row) = rows.subscription(id).filter(|_| jobs > 0) {
                log_removed_jobs(&row.definition.code, jobs);
            }
        }
        self.removed_logged = rows.removed_jobs().clone();
    }

    /// Adds the lanes to the report whose settled offset is far ahead of the recorded one.
    fn report_settled(&mut self, position: Position) {
        let every = SETTLED_EVERY.max(64 * self.sources.len() as u64);
        let passed = position.get().saturating_sub(self.checked_at.get());
        let candidates: Vec<_> = if self.scanned_since_check.max(passed) >= every / CHECKS_PER_INTERVAL {
            (self.scanned_since_check, self.checked_at) = (0, position);
            self.sources.keys().filter(|key| key.lane != TASKS).copied().collect()
        } else {
            self.feeders.values().flat_map(TopicFeeder::bounded).collect()
        };
        let behind = candidates.iter().filter_map(|key| {
            let settled = self.settled(*key)?;
            let recorded = self.recorded.get(&key.lane).copied().unwrap_or_default();
            // The end of a replay is always recorded.
            let is_end = self.is_end(*key, settled) && recorded < settled;
            (settled.get().saturating_sub(recorded.get()) >= every || is_end).then_some(key.lane)
        });
        for lane in behind.collect::<Vec<_>>() {
            self.lane_report(lane);
        }
    }

    fn is_end(&self, key: LaneKey, settled: Sequence) -> bool {
        let until = |feeder: &TopicFeeder| feeder.until(key);
        self.feeders.values().find_map(until).is_some_and(|until| settled >= until)
    }

    pub(super) fn settled(&self, key: LaneKey) -> Option<Sequence> {
        let scanned = self.feeders.values().find_map(|feeder| feeder.scanned(key));
        self.planner.settled(key, scanned)
    }

    /// Records all results there are, and waits for it.
    pub(super) async fn flush(&mut self, ledger: &Arc<Ledger>) -> Result<()> {
        loop {
            self.record_again_at = None;
            self.record(ledger);
            let Some(outcome) = self.recording.join_next().await else { return Ok(()) };
            let failed = outcome.as_ref().ok().and_then(|(_, outcome)| outcome.as_ref().err().cloned());
            self.report_recorded(outcome);
            if let Some(error) = failed {
                return Err(error);
            }
        }
    }

    /// Waits a while for the deliveries in flight, records their results, and gives up the lease.
    async fn finish(mut self) {
        let deadline = tokio::time::Instant::now() + FINISH_MAX;
        while let Ok(Some(result)) = tokio::time::timeout_at(deadline, self.deliveries.join_next()).await {
            self.delivery_ended(result);
        }
        let Some(ledger) = self.ledger.upgrade() else { return };
        if let Err(error) = self.flush(&ledger).await {
            tracing::warn!(%error, "the results of the last deliveries could not be recorded; they are made again");
        }
        if ledger.log().is_shared() && self.holds_lease(&ledger, ledger.now()) {
            // Another broker need not wait until the lease expires.
            let released = TakeLease { owner: self.context.owner, lease_millis: 0, is_alone: false };
            if let Err(error) = ledger.submit(released).await {
                tracing::debug!(%error, "the dispatch lease could not be given up; it expires");
            }
        }
    }
}

/// The result of a task of the worker; `None` if it was aborted. A task that panicked has left the plan in an unknown
/// state: the worker panics too, which is an incident, and the plan is rebuilt from the log.
fn task_result<T>(task: std::result::Result<T, JoinError>) -> Option<T> {
    match task {
        Ok(result) => Some(result),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}
