//! One event, from its turn to what came of it: claimed, worked on, said to the broker.
//!
//! ```text
//!   turn ──▶ claim ──▶ claimed ──▶ the work, under heartbeats ──▶ done | failed
//!              │                        └── lost, or not kept alive: cancelled, and asked for again
//!              ├──▶ done, stale ──▶ settled
//!              ├──▶ held ──▶ again when the broker says so
//!              └──▶ no answer ──▶ again when the broker is back; a claim that was given meanwhile is found by its owner
//! ```
//!
//! - A claim counts from before it was asked for, on this machine's own clock: it never seems to live longer than it does.

use super::effect::Handle;
use super::lanes::Waiting;
use super::once::Worked;
use super::options::Options;
use super::progress::Progress;
use super::weather::{Asked, Weather, is_passing};
use crate::client::Client;
use crate::retry::Retry;
use contract::{
    Claim, ClaimAnswer, ClaimStatus, Error, EventBroker, Kind, NewClaim, Offset, Read, Result as Answered, StoredEvent,
    Timestamp, TopicId, limits,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

/// The runner waits by itself.
const ONCE: Retry = Retry { tries_max: 1, first_wait: Duration::ZERO, wait_max: Duration::ZERO };
/// What is asked of the broker is answered within this time, or the broker is away.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// The first wait for an event that is held; it doubles.
const HELD_MIN: Duration = Duration::from_millis(20);
/// The longest wait for an event that is held.
const HELD_MAX: Duration = Duration::from_secs(30);
/// Pages of open claims that are searched for one's own.
const PAGES_MAX: usize = 50;

/// A claim, and until when it surely holds.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) claim: Claim,
    pub(super) until: Instant,
}

/// How the work on an event ended.
pub(super) enum Ended {
    /// For good.
    Settled(Worked),
    /// It may be asked for again after so long.
    Again(Duration),
    /// It waits for its predecessor or for a person; nobody knows how long.
    Blocked,
    /// The broker is away.
    Away(Error),
    /// The broker refuses, and would again.
    Refused(Error),
}

/// What all work of one handler in one topic shares.
pub(super) struct Desk {
    pub(super) client: Client,
    pub(super) name: String,
    pub(super) topic: TopicId,
    /// Nobody else has this name.
    pub(super) owner: String,
    pub(super) options: Options,
    pub(super) effect: Arc<dyn Handle>,
    pub(super) weather: Weather,
    pub(super) interrupt: watch::Sender<bool>,
    progress: Mutex<Progress>,
}

impl Desk {
    pub(super) fn new(client: Client, name: String, topic: TopicId, options: Options, effect: Arc<dyn Handle>) -> Self {
        let id = Uuid::new_v4().simple().to_string();
        let owner = format!("{}-{}-{}", options.owner, std::process::id(), id.get(..8).unwrap_or(&id));
        Self {
            client: client.retrying(ONCE).within(ANSWER_MAX),
            name,
            topic,
            owner,
            effect,
            weather: Weather::new(options.pause),
            interrupt: watch::Sender::new(false),
            progress: Mutex::default(),
            options,
        }
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends when nothing may take longer.
    pub(super) async fn interrupted(&self) {
        // The sender lives as long as `self`.
        let _ = self.interrupt.subscribe().wait_for(|is_time| *is_time).await;
    }

    /// Works on an event whose turn it is.
    pub(super) async fn work(&self, waiting: &mut Waiting) -> Ended {
        match self.begin(waiting).await {
            Ok((_, taken)) if Instant::now() >= taken.until => Ended::Again(Duration::ZERO),
            Ok((event, taken)) => self.attend(event, taken).await,
            Err(ended) => ended,
        }
    }

    async fn begin(&self, waiting: &mut Waiting) -> Result<(StoredEvent, Taken), Ended> {
        let event = match &waiting.event {
            Some(event) => event.clone(),
            None => self.fetch(waiting.sequence.get()).await?,
        };
        waiting.event = Some(event.clone());
        let taken = match waiting.taken.take() {
            Some(taken) => self.surely_live(taken).await?,
            None => self.take(waiting).await?,
        };
        (waiting.in_doubt, waiting.held) = (false, 0);
        Ok((event, taken))
    }

    /// Reads an event again.
    pub(super) async fn fetch(&self, sequence: u64) -> Result<StoredEvent, Ended> {
        let mut read = Read::all(self.topic.clone()).after(Offset(sequence.saturating_sub(1)));
        read.limit = 1;
        let page = match self.client.read(read).await {
            Ok(page) => page,
            Err(error) if is_passing(&error) => return Err(self.away(error, Asked::Reading)),
            Err(error) if matches!(error.kind(), Kind::Trimmed) => return Err(Ended::Settled(Worked::Gone)),
            Err(error) => return Err(Ended::Refused(error)),
        };
        let found = page.items.into_iter().find(|event| event.sequence.get() == sequence);
        found.ok_or(Ended::Settled(Worked::Gone))
    }

    async fn take(&self, waiting: &mut Waiting) -> Result<Taken, Ended> {
        let mut wanted = NewClaim::at(&self.name, self.topic.clone(), waiting.sequence).owned_by(&self.owner);
        (wanted.lease, wanted.order) = (self.options.lease.clone(), self.options.order);
        let asked = Instant::now();
        let outcome = match self.client.take(&wanted).await {
            Ok(outcome) => outcome,
            Err(error) if is_passing(&error) => {
                waiting.in_doubt = true;
                return Err(self.away(error, Asked::Writing));
            }
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Trimmed) => {
                return Err(Ended::Settled(Worked::Gone));
            }
            Err(error) => return Err(Ended::Refused(error)),
        };
        self.weather.fair(Asked::Writing);
        match (outcome.outcome, outcome.claim) {
            (ClaimAnswer::Claimed, Some(claim)) => Ok(Taken { until: asked + claim.lease.std_duration(), claim }),
            (ClaimAnswer::Done, _) => Err(Ended::Settled(Worked::AlreadyDone)),
            (ClaimAnswer::Stale, _) => Err(Ended::Settled(Worked::Stale)),
            (ClaimAnswer::Claimed | ClaimAnswer::Held, _) => {
                if waiting.in_doubt
                    && let Some(taken) = self.found_again(waiting).await?
                {
                    return Ok(taken);
                }
                waiting.held = waiting.held.saturating_add(1);
                Err(held(outcome.retry_at, waiting.held))
            }
        }
    }

    /// The claim that was given without our knowing, begun anew.
    async fn found_again(&self, waiting: &Waiting) -> Result<Option<Taken>, Ended> {
        let is_ours = |claim: &Claim| {
            let is_live = claim.status == ClaimStatus::Claimed && claim.owner == self.owner;
            is_live && claim.sequence == waiting.sequence && claim.topic == self.topic
        };
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let page = self.client.open_claims(&self.name, cursor.as_ref(), limits::READ_EVENTS_MAX).await;
            let page = page.map_err(|error| self.away(error, Asked::Reading))?;
            if let Some(claim) = page.items.into_iter().find(is_ours) {
                return self.begin_anew(claim).await;
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        Ok(None)
    }

    /// A claim that came with its event, begun anew where it may not last for long.
    async fn surely_live(&self, taken: Taken) -> Result<Taken, Ended> {
        if Instant::now() + taken.claim.lease.std_duration() / 2 < taken.until {
            return Ok(taken);
        }
        self.begin_anew(taken.claim).await?.ok_or(Ended::Again(Duration::ZERO))
    }

    async fn begin_anew(&self, claim: Claim) -> Result<Option<Taken>, Ended> {
        let asked = Instant::now();
        match self.client.heartbeat(&claim.id, claim.token).await {
            Ok(claim) => Ok(Some(Taken { until: asked + claim.lease.std_duration(), claim })),
            Err(error) if is_passing(&error) => Err(self.away(error, Asked::Writing)),
            Err(_) => Ok(None),
        }
    }

    pub(super) fn away(&self, error: Error, asked: Asked) -> Ended {
        if !is_passing(&error) {
            return Ended::Refused(error);
        }
        self.weather.away(&error, asked);
        Ended::Away(error)
    }

    /// Asks the broker until it answers, or nothing may take longer.
    pub(super) async fn patiently<T, F>(&self, ask: impl Fn() -> F) -> Answered<T>
    where
        F: Future<Output = Answered<T>>,
    {
        loop {
            let error = match ask().await {
                Ok(answer) => {
                    self.weather.fair(Asked::Writing);
                    return Ok(answer);
                }
                Err(error) if is_passing(&error) => error,
                Err(error) => return Err(error),
            };
            let wait = self.weather.away(&error, Asked::Writing);
            tokio::select! {
                () = tokio::time::sleep(wait) => (),
                () = self.interrupted() => return Err(error),
            }
        }
    }
}

/// How long until then, by this machine's clock; 0 where it seems to be past.
pub(super) fn time_until(at: Timestamp) -> Duration {
    Duration::from_millis(at.millis().saturating_sub(now().millis()).try_into().unwrap_or(0))
}

/// When to ask again for an event that was held so many times in a row: when the broker says so, or sooner, for whoever
/// has it may be done long before its lease is over.
fn held(at: Option<Timestamp>, times: u32) -> Ended {
    let Some(at) = at else { return Ended::Blocked };
    let doubled = HELD_MIN.saturating_mul(1 << times.saturating_sub(1).min(16)).min(HELD_MAX);
    Ended::Again(match time_until(at) {
        // Clocks may disagree.
        Duration::ZERO => doubled,
        until => until.min(doubled),
    })
}

/// The time, to compare with what the broker says.
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
            Ended::Again(wait) => wait.as_millis(),
            _ => panic!("it is known when"),
        };
        assert_eq!([millis(900_000, 1), millis(900_000, 2), millis(900_000, 5)], [20, 40, 320]);
        assert_eq!(millis(900_000, 60), 30_000);
        assert!((80..=100).contains(&millis(100, 9)));
        assert_eq!(millis(-60_000, 3), 80);
        assert!(matches!(held(None, 1), Ended::Blocked));
    }
}
