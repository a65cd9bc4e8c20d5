//! The worker: carries out what the planner says, for one log.
//!
//! - It is only a reader of the log, until something came of a delivery.
//! - One worker at a time has a log: alone with a file or in memory, by a lease where several brokers share it. Before
//!   every delivery the lease is looked at again.
//! - A job that failed goes back to the planner when that is durable; so every attempt has a higher token.
//! - What was under way when a broker died was never written down: whoever comes next sends it again.

mod written;

use super::Context;
use super::breaker::Turned;
use super::lane::{Back, Job, LaneKey, Pick};
use super::lease::TakeLease;
use super::log_lines::{log_expiry, log_failure};
use super::planner::Planner;
use super::report::{Failed, LaneReport, Report, recorded};
use super::retry::{self, Next};
use super::scan::{PAGE, Reading, Walk};
use super::sending::{Broken, Came, Errand, Landed, expire, send_event, send_task};
use crate::clock::LogClock;
use crate::delivery::Outcome;
use crate::ledger::{DoneJob, JobKey, JobSlot, Ledger, TASKS};
use crate::subscriptions::{Retry, Tell, Terms};
use contract::{Position, Result, Sequence};
use log::TopicNumber;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};
use uuid::Uuid;

/// Pages read before deliveries get their turn.
const PAGES_PER_TURN: usize = 8;
/// What may be delivered and not written down yet; more waits.
const UNWRITTEN_MAX: usize = 20_000;
/// After a report could not be written, it is tried again after this long, in milliseconds.
const WRITE_AGAIN_MILLIS: i64 = 1000;
/// Jobs that expire at a time; more wait.
const EXPIRING_MAX: usize = 256;
/// How long deliveries that are under way are waited for when the broker stops.
const FINISH_MAX: Duration = Duration::from_secs(10);
/// A lane that came this far without a word is written down.
const SETTLED_EVERY: u64 = 4096;
/// All lanes are looked at after this part of that was walked or passed: there may be thousands.
const LOOKS: u64 = 4;

pub(crate) struct Worker {
    pub(super) ledger: Weak<Ledger>,
    /// The log's time.
    pub(super) clock: Arc<LogClock>,
    pub(super) context: Arc<Context>,
    pub(super) planner: Planner,
    pub(super) walks: BTreeMap<u32, Walk>,
    pub(super) errands: HashMap<LaneKey, Errand>,
    /// What each lane was last seen as.
    pub(super) known: BTreeMap<Uuid, Position>,
    pub(super) seen: Option<(Position, Position, usize)>,
    /// Whether a lane must be built anew though nothing was said about it.
    pub(super) must_sync: bool,
    /// Lanes that could not be built, and when that is tried again.
    pub(super) unbuilt: BTreeMap<Uuid, i64>,
    /// The last task taken in.
    pub(super) last_task: Sequence,
    pub(crate) flights: JoinSet<Landed>,
    report: Report,
    /// Being written: its failures go back to the planner when it is.
    pub(crate) writing: JoinSet<(Report, Result<()>)>,
    unwritten: usize,
    /// Writing failed: it is tried again then, and nothing is sent before it has worked.
    write_again: Option<i64>,
    /// Whether no more jobs may become rows.
    pub(super) is_full: bool,
    /// Jobs whose events are looked up because they expired.
    expiring: usize,
    /// What was walked since all lanes were looked at, and the position then.
    walked: u64,
    looked_at: Position,
    pub(crate) written: HashMap<Uuid, Sequence>,
    /// Lanes that name a pool which does not exist; the default one delivers in its place.
    pub(super) without_pool: HashMap<Uuid, String>,
    /// The entry that last closed the breaker of each lane's target.
    pub(super) breakers_closed: HashMap<Uuid, Position>,
}

/// What a turn came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Take another at once.
    More,
    /// Nothing to do until something happens, or until then.
    Wait(Option<i64>),
    /// Nothing may be delivered until dispatch is resumed.
    Paused,
    /// The log is gone.
    Over,
}

impl Worker {
    pub(crate) fn new(ledger: &Arc<Ledger>, context: Arc<Context>) -> Self {
        Self {
            ledger: Arc::downgrade(ledger),
            clock: Arc::clone(ledger.clock()),
            planner: Planner::sharing(&context.breakers),
            context,
            walks: BTreeMap::new(),
            errands: HashMap::new(),
            known: BTreeMap::new(),
            seen: None,
            must_sync: false,
            unbuilt: BTreeMap::new(),
            last_task: Sequence::ZERO,
            flights: JoinSet::new(),
            report: Report::default(),
            writing: JoinSet::new(),
            unwritten: 0,
            write_again: None,
            is_full: false,
            expiring: 0,
            walked: 0,
            looked_at: Position::ZERO,
            written: HashMap::new(),
            without_pool: HashMap::new(),
            breakers_closed: HashMap::new(),
        }
    }

    /// Works until the log closes or is let go.
    pub(crate) async fn run(mut self) {
        let Some((mut closing, mut position)) = self.ledger.upgrade().map(|it| (it.closing(), it.position())) else {
            return;
        };
        let Some(mut default_position) = self.context.default.upgrade().map(|it| it.position()) else { return };
        let mut stopping = self.context.stopping.subscribe();
        loop {
            let turn = self.turn().await;
            let wake = match turn {
                Turn::Over => return,
                Turn::More => Some(i64::MIN),
                Turn::Wait(wake) => wake,
                Turn::Paused => None,
            };
            let now = self.clock.now();
            let wait = wake.map(|wake| u64::try_from(wake.saturating_sub(now)).unwrap_or(0));
            let sleep = tokio::time::sleep(Duration::from_millis(wait.unwrap_or(60_000).min(60_000)));
            tokio::select! {
                biased;
                _ = closing.wait_for(|closing| *closing) => return,
                _ = stopping.wait_for(|stopping| *stopping) => break,
                Some(landed) = self.flights.join_next(), if !self.flights.is_empty() => {
                    self.landed(landed);
                    while let Some(more) = self.flights.try_join_next() {
                        self.landed(more);
                    }
                }
                Some(written) = self.writing.join_next(), if !self.writing.is_empty() => self.wrote(written),
                moved = position.changed() => if moved.is_err() { return },
                // The entry that resumes dispatch may be the default log's.
                moved = default_position.changed(), if turn == Turn::Paused => if moved.is_err() { return },
                () = sleep => (),
            }
        }
        self.finish().await;
    }

    /// Does what can be done now.
    pub(crate) async fn turn(&mut self) -> Turn {
        let Some(ledger) = self.ledger.upgrade() else { return Turn::Over };
        let now = ledger.now();
        if ledger.dispatch().is_idle() && self.known.is_empty() {
            return Turn::Wait(None);
        }
        if self.is_paused(&ledger) {
            self.let_go();
            self.write(&ledger);
            return Turn::Paused;
        }
        let wake = match self.hold(&ledger, now).await {
            Ok(Ok(renew)) => renew,
            Ok(Err(until)) => {
                self.let_go();
                // What came of deliveries is so, whoever makes the next ones.
                self.write(&ledger);
                return Turn::Wait(Some(until));
            }
            Err(_) => return Turn::Wait(Some(now.saturating_add(1000))),
        };
        match self.work(&ledger, now).await {
            Ok(true) => Turn::More,
            // What waits in the planner cannot be sent before writing works.
            Ok(false) if self.write_again.is_some() => Turn::Wait(self.write_again),
            Ok(false) => {
                let unbuilt = self.unbuilt.values().min().copied();
                Turn::Wait([self.planner.next_time(), wake, unbuilt].into_iter().flatten().min())
            }
            Err(error) => {
                tracing::warn!(%error, "jobs cannot be read at the moment");
                Turn::Wait(Some(now.saturating_add(1000)))
            }
        }
    }

    async fn work(&mut self, ledger: &Arc<Ledger>, now: i64) -> Result<bool> {
        self.sync(ledger, now).await?;
        self.make_room(ledger, now);
        let (mut more, mut failed) = (false, None);
        let registry = ledger.registry();
        for (number, walk) in &mut self.walks {
            let number = TopicNumber(*number);
            let Some(tail) = registry.topic_numbered(number).map(|topic| topic.tail()) else { continue };
            let mut moves = true;
            for _ in 0..PAGES_PER_TURN {
                // A topic that cannot be read holds up no other, nor what is ready to be sent.
                let stepped = walk.step(ledger, number, tail, &mut self.planner, now).await;
                moves = stepped.unwrap_or_else(|error| {
                    failed = Some(error);
                    false
                });
                if !moves {
                    break;
                }
                self.walked += PAGE.records as u64;
            }
            more |= moves;
        }
        more |= self.send(ledger, now);
        self.note_settled(*ledger.position().borrow());
        self.write(ledger);
        failed.filter(|_| !more).map_or(Ok(more), Err)
    }

    /// Sends what may go; whether something ended without that, and made room for what is not read yet.
    fn send(&mut self, ledger: &Arc<Ledger>, now: i64) -> bool {
        // Read before the lease is looked at: so it is below whatever a later owner writes.
        let token = ledger.position().borrow().get();
        let mut made_room = false;
        if self.write_again.is_some() {
            // What came of it could not be written either, and it would be sent once more.
            return made_room;
        }
        while self.unwritten < UNWRITTEN_MAX && self.expiring < EXPIRING_MAX && self.holds(ledger, now) {
            match self.planner.next(now) {
                None => break,
                Some(Pick::Expire(key, job)) => made_room |= !self.begin(ledger, (key, job, true), now, token),
                Some(Pick::Send(key, job)) => made_room |= !self.begin(ledger, (key, job, false), now, token),
            }
        }
        made_room
    }

    /// Sends a job, or lets it expire; not one that a person, or the end of its event, has ended since it was planned.
    fn begin(&mut self, ledger: &Arc<Ledger>, (key, job, expires): (LaneKey, Job, bool), now: i64, token: u64) -> bool {
        let is_over = ledger.dispatch().lane(key.lane).is_none_or(|lane| lane.is_over(job.sequence));
        let Some(errand) = self.errands.get(&key).filter(|_| !is_over).cloned() else {
            self.planner.ended(key, job.sequence, Back::Over, now);
            return false;
        };
        let broken = Broken::of(key, &job, &errand, now, token);
        if expires {
            self.expiring += 1;
            self.flights.spawn(broken.unless(expire(Arc::clone(ledger), key, job, errand, now, token)));
            return true;
        }
        self.context.flying(JobKey { lane: key.lane, sequence: job.sequence }, true);
        let (ledger, context) = (Arc::clone(ledger), Arc::clone(&self.context));
        self.flights.spawn(broken.unless(async move {
            match errand {
                Errand::Events { terms, topic, replay } => {
                    send_event(ledger, context, key, job, (terms, topic, replay), now, token).await
                }
                Errand::Tasks => send_task(ledger, context, key, job, now, token).await,
            }
        }));
        true
    }

    pub(crate) fn landed(&mut self, landed: std::result::Result<Landed, JoinError>) {
        let Some(landed) = ended(landed) else { return };
        let now = self.clock.now();
        let Landed { key, job, event, began_at, token, errand, target, came } = landed;
        let sequence = job.sequence;
        let id = JobKey { lane: key.lane, sequence };
        self.context.flying(id, false);
        if job.expires <= began_at {
            self.expiring = self.expiring.saturating_sub(1);
        }
        let subscription = match &errand {
            Errand::Events { terms, .. } => Some(terms.id),
            Errand::Tasks => None,
        };
        self.unwritten += 1;
        let attempt = match came {
            Came::Attempted(attempt) => attempt,
            Came::Gone => {
                // Retention was faster.
                self.lane_report(key.lane).gone.push(sequence);
                return self.planner.ended(key, sequence, Back::Over, now);
            }
            Came::Expired => {
                log_expiry(&errand, event);
                let next = Next::Expired;
                return self.report.failed.push(Failed { job: id, subscription, event, attempt: None, next });
            }
        };
        let usual = Retry::of(None, None);
        let retry = match &errand {
            Errand::Events { terms, .. } => &terms.way.retry,
            Errand::Tasks => &usual,
        };
        let next = match retry::next(retry, job.spent, attempt.outcome, now, self.context.jitter()) {
            Next::Later(until) => Next::Later(retry::deferred_until(until, self.deferrals(id), now)),
            next => next,
        };
        let is_alive = is_alive(attempt.outcome, attempt.status);
        if let Some(turned) = is_alive.and_then(|is_alive| self.planner.noted(&target, is_alive, now)) {
            tracing::warn!(?turned, "a target's standing has changed");
            self.tell(&target, turned);
        }
        let number = job.tried.saturating_add(1);
        if next == Next::Done {
            let millis = u32::try_from(attempt.duration.as_millis()).unwrap_or(u32::MAX);
            let done = DoneJob(sequence, number, began_at, millis, attempt.status.unwrap_or(0));
            self.lane_report(key.lane).done.push(done);
            return self.planner.ended(key, sequence, Back::Over, now);
        }
        let attempt = recorded(&attempt, number, began_at, token);
        log_failure(&errand, event, &attempt, next);
        let attempt = Some(attempt);
        self.report.failed.push(Failed { job: id, subscription, event, attempt, next });
    }

    /// How often a job was put off in a row.
    fn deferrals(&self, job: JobKey) -> u32 {
        let Some(ledger) = self.ledger.upgrade() else { return 0 };
        let slot = ledger.dispatch().lane(job.lane).and_then(|lane| lane.slot(job.sequence));
        match slot {
            Some(JobSlot::Open(row)) => row.deferred.map_or(0, |deferred| deferred.count),
            _ => 0,
        }
    }

    /// Whoever listens hears that a target fails, or does not any more.
    fn tell(&self, target: &str, turned: Turned) {
        let Some(ledger) = self.context.default.upgrade() else { return };
        let tell = Tell { target: target.to_owned(), is_failing: turned == Turned::Failing };
        tokio::spawn(async move {
            if let Err(error) = ledger.submit(tell).await {
                tracing::warn!(%error, "nobody could be told that a target's standing has changed");
            }
        });
    }

    fn lane_report(&mut self, lane: Uuid) -> &mut LaneReport {
        self.report.lanes.entry(lane).or_default()
    }

    /// Lanes that came far without a word are worth one.
    fn note_settled(&mut self, position: Position) {
        let every = SETTLED_EVERY.max(64 * self.errands.len() as u64);
        let passed = position.get().saturating_sub(self.looked_at.get());
        let candidates: Vec<_> = if self.walked.max(passed) >= every / LOOKS {
            (self.walked, self.looked_at) = (0, position);
            self.errands.keys().filter(|key| key.lane != TASKS).copied().collect()
        } else {
            self.walks.values().flat_map(Walk::bounded).collect()
        };
        let far = candidates.iter().filter_map(|key| {
            let settled = self.settled(*key)?;
            let written = self.written.get(&key.lane).copied().unwrap_or_default();
            // The end of a replay is worth a word in any case.
            let is_end = self.is_end(*key, settled) && written < settled;
            (settled.get().saturating_sub(written.get()) >= every || is_end).then_some(key.lane)
        });
        for lane in far.collect::<Vec<_>>() {
            self.lane_report(lane);
        }
    }

    fn is_end(&self, key: LaneKey, settled: Sequence) -> bool {
        let until = |walk: &Walk| walk.until(key);
        self.walks.values().find_map(until).is_some_and(|until| settled >= until)
    }

    pub(super) fn settled(&self, key: LaneKey) -> Option<Sequence> {
        let reached = self.walks.values().find_map(|walk| walk.reached(key));
        self.planner.settled(key, reached)
    }

    /// Writes everything down that came of deliveries so far.
    pub(super) async fn flush(&mut self, ledger: &Arc<Ledger>) -> Result<()> {
        loop {
            self.write_again = None;
            self.write(ledger);
            let Some(written) = self.writing.join_next().await else { return Ok(()) };
            let failed = written.as_ref().ok().and_then(|(_, written)| written.as_ref().err().cloned());
            self.wrote(written);
            if let Some(error) = failed {
                return Err(error);
            }
        }
    }

    /// Begins nothing more, waits a while for what is under way, and leaves the log to others.
    async fn finish(mut self) {
        let deadline = tokio::time::Instant::now() + FINISH_MAX;
        while let Ok(Some(landed)) = tokio::time::timeout_at(deadline, self.flights.join_next()).await {
            self.landed(landed);
        }
        let Some(ledger) = self.ledger.upgrade() else { return };
        if let Err(error) = self.flush(&ledger).await {
            tracing::warn!(%error, "what came of the last deliveries could not be written; they are made again");
        }
        if ledger.log().is_shared() && self.holds(&ledger, ledger.now()) {
            // Nobody has to wait for the lease to end.
            let _ = ledger.submit(TakeLease { owner: self.context.owner, lease_millis: 0, is_alone: false }).await;
        }
    }
}

/// What a task of the worker's came to; nothing where it was ended from outside. One that panicked has left the plan half
/// done: the worker panics too, which is an incident, and the plan is made again from the log.
fn ended<T>(task: std::result::Result<T, JoinError>) -> Option<T> {
    match task.map_err(JoinError::try_into_panic) {
        Ok(came) => Some(came),
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_)) => None,
    }
}

/// Whether an attempt shows its target alive; nothing where it did not get there for a reason of our own.
fn is_alive(outcome: Outcome, status: Option<u16>) -> Option<bool> {
    match (outcome, status) {
        (Outcome::Failed { retryable: false } | Outcome::Deferred { .. }, None) => None,
        (Outcome::Failed { .. }, status) => Some(status.is_some_and(|status| status < 500)),
        _ => Some(true),
    }
}

/// What a lane reads.
pub(super) fn reading(terms: &Arc<Terms>, until: Option<Sequence>) -> Reading {
    Reading { terms: Arc::clone(terms), until }
}
