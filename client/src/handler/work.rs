//! One event, from the lane to its end: claimed, worked on, reported to the broker.
//!
//! ```text
//!   turn ──▶ claim ──▶ claimed ──▶ the work, under heartbeats ──▶ done | failed
//!              │                        └── lost, or not kept alive: cancelled, and claimed again
//!              ├──▶ done, stale ──▶ settled
//!              ├──▶ held ──▶ again when the broker says so
//!              └──▶ no response ──▶ again when the broker is available; a claim that was made meanwhile is found by its owner
//! ```
//!
//! - A lease is counted from before the request, by this machine's clock: it never seems to last longer than it does.

use super::availability::{BrokerAvailability, RequestKind, is_passing};
use super::event_handler::EventHandler;
use super::lanes::WaitingEvent;
use super::once::WorkOutcome;
use super::options::HandlerOptions;
use super::progress::OffsetProgress;
use crate::client::Client;
use crate::retry::RetryPolicy;
use contract::api::*;
use contract::{
    Claim, ClaimAnswer, ClaimStatus, Error, Kind, NewClaim, Offset, Result as Answered, StoredEvent, Timestamp,
    TopicId, TopicRead, limits,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

/// The runner itself waits and retries.
const ONCE: RetryPolicy = RetryPolicy { tries_max: 1, first_wait: Duration::ZERO, wait_max: Duration::ZERO };
/// A request without a response within this time means that the broker is unavailable.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// The first wait for an event that is held; it doubles.
const HELD_MIN: Duration = Duration::from_millis(20);
/// The longest wait for an event that is held.
const HELD_MAX: Duration = Duration::from_secs(30);
/// Pages of open claims that are searched for the worker's own.
const PAGES_MAX: usize = 50;

/// A claim, and until when it is certainly live.
#[derive(Debug)]
pub(super) struct HeldClaim {
    pub(super) claim: Claim,
    pub(super) until: Instant,
}

/// How the work on an event ended.
pub(super) enum WorkEnd {
    /// It needs no more work.
    Settled(WorkOutcome),
    /// It may be claimed again after this time.
    Again(Duration),
    /// It waits for its predecessor or for an operator, for an unknown time.
    Blocked,
    /// The broker is unavailable.
    Unavailable(Error),
    /// The broker refuses for good.
    Refused(Error),
}

/// What all work of one handler in one topic has in common.
pub(super) struct WorkerContext {
    pub(super) client: Client,
    pub(super) name: String,
    pub(super) topic: TopicId,
    /// No other worker has this name.
    pub(super) owner: String,
    pub(super) options: HandlerOptions,
    pub(super) effect: Arc<dyn EventHandler>,
    pub(super) availability: BrokerAvailability,
    pub(super) interrupt: watch::Sender<bool>,
    progress: Mutex<OffsetProgress>,
}

impl WorkerContext {
    pub(super) fn new(
        client: Client,
        name: String,
        topic: TopicId,
        options: HandlerOptions,
        effect: Arc<dyn EventHandler>,
    ) -> Self {
        let id = Uuid::new_v4().simple().to_string();
        let owner = format!("{}-{}-{}", options.owner, std::process::id(), id.get(..8).unwrap_or(&id));
        Self {
            client: client.retrying(ONCE).within(ANSWER_MAX),
            name,
            topic,
            owner,
            effect,
            availability: BrokerAvailability::new(options.pause),
            interrupt: watch::Sender::new(false),
            progress: Mutex::default(),
            options,
        }
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, OffsetProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the time for draining is over.
    pub(super) async fn interrupted(&self) {
        // The sender lives as long as `self`.
        let _ = self.interrupt.subscribe().wait_for(|is_time| *is_time).await;
    }

    /// Claims an event and works on it.
    pub(super) async fn work(&self, waiting: &mut WaitingEvent) -> WorkEnd {
        match self.begin(waiting).await {
            Ok((_, taken)) if Instant::now() >= taken.until => WorkEnd::Again(Duration::ZERO),
            Ok((event, taken)) => self.work_under_claim(event, taken).await,
            Err(ended) => ended,
        }
    }

    async fn begin(&self, waiting: &mut WaitingEvent) -> Result<(StoredEvent, HeldClaim), WorkEnd> {
        let event = match &waiting.event {
            Some(event) => event.clone(),
            None => self.fetch(waiting.sequence.get()).await?,
        };
        waiting.event = Some(event.clone());
        let held_claim = match waiting.taken.take() {
            Some(held_claim) => self.ensure_live(held_claim).await?,
            None => self.claim(waiting).await?,
        };
        (waiting.in_doubt, waiting.held) = (false, 0);
        Ok((event, held_claim))
    }

    /// Reads an event again.
    pub(super) async fn fetch(&self, sequence: u64) -> Result<StoredEvent, WorkEnd> {
        let mut read = TopicRead::all(self.topic.clone()).after(Offset(sequence.saturating_sub(1)));
        read.limit = 1;
        let page = match self.client.read(read).await {
            Ok(page) => page,
            Err(error) if is_passing(&error) => return Err(self.unavailable(error, RequestKind::Reading)),
            Err(error) if matches!(error.kind(), Kind::Trimmed) => return Err(WorkEnd::Settled(WorkOutcome::Gone)),
            Err(error) => return Err(WorkEnd::Refused(error)),
        };
        let found = page.items.into_iter().find(|event| event.sequence.get() == sequence);
        found.ok_or(WorkEnd::Settled(WorkOutcome::Gone))
    }

    async fn claim(&self, waiting: &mut WaitingEvent) -> Result<HeldClaim, WorkEnd> {
        let mut new_claim = NewClaim::at(&self.name, self.topic.clone(), waiting.sequence).owned_by(&self.owner);
        (new_claim.lease, new_claim.order) = (self.options.lease.clone(), self.options.order);
        let sent_at = Instant::now();
        let outcome = match self.client.claim_once(&new_claim).await {
            Ok(outcome) => outcome,
            Err(error) if is_passing(&error) => {
                waiting.in_doubt = true;
                return Err(self.unavailable(error, RequestKind::Writing));
            }
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Trimmed) => {
                return Err(WorkEnd::Settled(WorkOutcome::Gone));
            }
            Err(error) => return Err(WorkEnd::Refused(error)),
        };
        self.availability.mark_up(RequestKind::Writing);
        match (outcome.outcome, outcome.claim) {
            (ClaimAnswer::Claimed, Some(claim)) => Ok(HeldClaim { until: sent_at + claim.lease.std_duration(), claim }),
            (ClaimAnswer::Done, _) => Err(WorkEnd::Settled(WorkOutcome::AlreadyDone)),
            (ClaimAnswer::Stale, _) => Err(WorkEnd::Settled(WorkOutcome::Stale)),
            (ClaimAnswer::Claimed | ClaimAnswer::Held, _) => {
                if waiting.in_doubt
                    && let Some(held_claim) = self.find_lost_claim(waiting).await?
                {
                    return Ok(held_claim);
                }
                waiting.held = waiting.held.saturating_add(1);
                Err(held(outcome.retry_at, waiting.held))
            }
        }
    }

    /// The claim of a request whose response was lost, with its lease restarted.
    async fn find_lost_claim(&self, waiting: &WaitingEvent) -> Result<Option<HeldClaim>, WorkEnd> {
        let is_ours = |claim: &Claim| {
            let is_live = claim.status == ClaimStatus::Claimed && claim.owner == self.owner;
            is_live && claim.sequence == waiting.sequence && claim.topic == self.topic
        };
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let page = self.client.open_claims(&self.name, cursor.as_ref(), limits::READ_EVENTS_MAX).await;
            let page = page.map_err(|error| self.unavailable(error, RequestKind::Reading))?;
            if let Some(claim) = page.items.into_iter().find(is_ours) {
                return self.renew_claim(claim).await;
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        Ok(None)
    }

    /// A claim that arrived with its event, with its lease restarted if less than half of it is left.
    async fn ensure_live(&self, held_claim: HeldClaim) -> Result<HeldClaim, WorkEnd> {
        if Instant::now() + held_claim.claim.lease.std_duration() / 2 < held_claim.until {
            return Ok(held_claim);
        }
        self.renew_claim(held_claim.claim).await?.ok_or(WorkEnd::Again(Duration::ZERO))
    }

    async fn renew_claim(&self, claim: Claim) -> Result<Option<HeldClaim>, WorkEnd> {
        let sent_at = Instant::now();
        match self.client.heartbeat(&claim.id, claim.token).await {
            Ok(claim) => Ok(Some(HeldClaim { until: sent_at + claim.lease.std_duration(), claim })),
            Err(error) if is_passing(&error) => Err(self.unavailable(error, RequestKind::Writing)),
            Err(_) => Ok(None),
        }
    }

    pub(super) fn unavailable(&self, error: Error, kind: RequestKind) -> WorkEnd {
        if !is_passing(&error) {
            return WorkEnd::Refused(error);
        }
        self.availability.mark_down(&error, kind);
        WorkEnd::Unavailable(error)
    }

    /// Repeats a request until the broker responds or the time for draining is over.
    pub(super) async fn retry_until_response<T, F>(&self, send: impl Fn() -> F) -> Answered<T>
    where
        F: Future<Output = Answered<T>>,
    {
        loop {
            let error = match send().await {
                Ok(answer) => {
                    self.availability.mark_up(RequestKind::Writing);
                    return Ok(answer);
                }
                Err(error) if is_passing(&error) => error,
                Err(error) => return Err(error),
            };
            let wait = self.availability.mark_down(&error, RequestKind::Writing);
            tokio::select! {
                () = tokio::time::sleep(wait) => (),
                () = self.interrupted() => return Err(error),
            }
        }
    }
}

/// The time until then by this machine's clock; 0 if it is past.
pub(super) fn time_until(at: Timestamp) -> Duration {
    Duration::from_millis(at.millis().saturating_sub(now().millis()).try_into().unwrap_or(0))
}

/// When to claim again an event that was held this many times in a row: when the broker says so, or sooner, since the other
/// worker may finish long before its lease expires.
fn held(at: Option<Timestamp>, times: u32) -> WorkEnd {
    let Some(at) = at else { return WorkEnd::Blocked };
    let doubled = HELD_MIN.saturating_mul(1 << times.saturating_sub(1).min(16)).min(HELD_MAX);
    WorkEnd::Again(match time_until(at) {
        // The clocks may differ.
        Duration::ZERO => doubled,
        until => until.min(doubled),
    })
}

/// The current time, to compare with times of the broker.
pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_asked_for_when_the_broker_says_so_or_sooner() {
        let millis = |ahead: i64, times| match held(Some(Timestamp::from_millis(now().millis() + ahead)), times) {
            WorkEnd::Again(wait) => wait.as_millis(),
            _ => panic!("it is known when"),
        };
        assert_eq!([millis(900_000, 1), millis(900_000, 2), millis(900_000, 5)], [20, 40, 320]);
        assert_eq!(millis(900_000, 60), 30_000);
        assert!((80..=100).contains(&millis(100, 9)));
        assert_eq!(millis(-60_000, 3), 80);
        assert!(matches!(held(None, 1), WorkEnd::Blocked));
    }
}
