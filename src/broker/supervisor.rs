//! The supervisor: opens a broker again that failed, in the same process.
//!
//! ```text
//!          ┌──── opened ─────┐
//!          ▼                 │
//!        Open ── failed ──▶ Closed ── tried in vain ──▶ wait: 1 s, then twice as long each time, at most 30 s
//!          │                 │ ▲                                   │
//!          │                 │ └───────────────────────────────────┘
//!          │                 └─ cannot be opened by any number of tries: the supervisor ends
//!          └─ while what it knows is right, it can be read from until the wait is over
//! ```
//!
//! - A failed broker is ended as a whole and another one opened from what the log holds: nothing that it knew in memory
//!   survives, and opening is the one way to recover.
//! - Whoever waited on the failed broker is refused. Its log is let go even where somebody still holds the broker.
//! - A broker that fails soon after it was opened waits longer for the next time, so a disk that stays full costs little.

use super::slot::{BrokerOutage, BrokerSlot};
use super::{Broker, OpenError, max_clock_jump};
use crate::clock::{SystemClock, TrustedClock};
use crate::config::{Config, StorageEngine};
use crate::ledger::leaves_state_intact;
use contract::{BoxFuture, Error, Kind};
use log::{Log, LogError, MemoryLog};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(30);
/// A broker that ran for this long before it failed is opened again after the shortest wait.
const STABLE: Duration = Duration::from_secs(60);
/// A failed broker has this long to end.
const END_MAX: Duration = Duration::from_secs(10);
/// After so many openings in vain a new process may do better.
const TRIES_MAX: u32 = 3;
const RETRY_AFTER_SECONDS: u32 = 5;

/// How a broker is opened, each time.
pub type BrokerOpener = Box<dyn Fn() -> BoxFuture<'static, Result<Broker, OpenError>> + Send + Sync>;

/// Opens the broker of a [`BrokerSlot`] again whenever it fails.
pub struct Supervisor {
    slot: Arc<BrokerSlot>,
    open: BrokerOpener,
}

impl Supervisor {
    /// Of the broker in `slot`; `open` opens another one like it.
    #[must_use]
    pub fn new(slot: Arc<BrokerSlot>, open: BrokerOpener) -> Self {
        slot.supervise();
        Self { slot, open }
    }

    /// Works until a broker cannot be opened again whatever is tried; answers why.
    pub async fn run(&self) -> OpenError {
        let mut backoff = ReopenBackoff::default();
        while let Some(broker) = self.slot.broker() {
            let opened_at = Instant::now();
            let failure = broker.failed().await;
            if opened_at.elapsed() >= STABLE {
                backoff = ReopenBackoff::default();
            }
            let wait = backoff.next();
            tracing::warn!(error = %failure, wait = ?wait, "the broker failed; it is opened again");
            if leaves_state_intact(&failure) {
                tokio::time::sleep(wait).await;
                self.end(broker, &failure).await;
            } else {
                self.end(broker, &failure).await;
                tokio::time::sleep(wait).await;
            }
            if let Err(error) = self.reopen(&mut backoff).await {
                return error;
            }
        }
        // Only this supervisor empties the slot, and it fills it again.
        std::future::pending().await
    }

    /// Ends a broker that failed, and lets go of its logs.
    async fn end(&self, broker: Arc<Broker>, failure: &Error) {
        self.slot.close(BrokerOutage { error: failure.clone(), restart_helps: false });
        if tokio::time::timeout(END_MAX, broker.abandon(failure)).await.is_err() {
            tracing::warn!("the failed broker does not end; its log may still be held");
        }
    }

    /// Opens until it works; `Err` where it never will.
    async fn reopen(&self, backoff: &mut ReopenBackoff) -> Result<(), OpenError> {
        let mut tries = 0_u32;
        loop {
            let error = match (self.open)().await {
                Ok(broker) => {
                    tracing::info!("the broker was opened again");
                    self.slot.open(Arc::new(broker));
                    return Ok(());
                }
                Err(error) if is_final(&error) => {
                    tracing::error!(%error, "the broker cannot be opened again");
                    return Err(error);
                }
                Err(error) => error,
            };
            tries = tries.saturating_add(1);
            let wait = backoff.next();
            tracing::error!(%error, tries, wait = ?wait, "the broker could not be opened again yet");
            self.slot.close(outage(&error, tries));
            tokio::time::sleep(wait).await;
        }
    }
}

/// How `serve` opens its broker, each time. A log in memory stays the same one: its events are nowhere else.
#[must_use]
pub fn opener(config: Config) -> BrokerOpener {
    // One for all: a jump of the wall clock that is in doubt is not believed because the broker is opened again.
    let clock = Arc::new(TrustedClock::new(Arc::new(SystemClock), max_clock_jump(&config)));
    let memory = (config.storage.engine == StorageEngine::Memory).then(|| Arc::new(MemoryLog::new()));
    Box::new(move || {
        let (config, memory, clock) = (config.clone(), memory.clone(), Arc::clone(&clock));
        Box::pin(async move {
            match memory {
                Some(log) => Broker::start_on(config, (log as Arc<dyn Log>, super::open_files()), None, clock).await,
                None => Broker::open_with_clock(config, clock).await,
            }
        })
    })
}

/// What callers are told after `tries` openings in vain.
fn outage(error: &OpenError, tries: u32) -> BrokerOutage {
    let is_away = matches!(cause_of(error), Some(LogError::Unavailable(_)));
    let detail = match is_away {
        true => "The log's server cannot be reached; the broker opens the log as soon as it can.".to_owned(),
        false => format!(
            "The broker could not open its log again ({tries} tries so far); its log file says why. It goes on trying."
        ),
    };
    let error = Error::new(Kind::Unavailable, detail).with_retry_after(RETRY_AFTER_SECONDS);
    BrokerOutage { error, restart_helps: !is_away && tries >= TRIES_MAX }
}

/// Whether opening fails however often it is tried: what is stored is damaged, of a newer version, or does not fit the
/// configuration.
fn is_final(error: &OpenError) -> bool {
    match (cause_of(error), error) {
        (Some(cause), _) => {
            matches!(cause, LogError::Damaged(_) | LogError::Unsupported { .. } | LogError::Misnumbered(_))
        }
        (None, OpenError::Declared { error, .. }) => error.kind() != Kind::Unavailable,
        (None, _) => false,
    }
}

/// What the engine said.
fn cause_of(error: &OpenError) -> Option<&LogError> {
    let told = match error {
        OpenError::Log(cause) => return Some(cause),
        OpenError::SideLog(failure) => &failure.error,
        OpenError::Declared { error, .. } => error,
    };
    std::error::Error::source(told).and_then(|cause| cause.downcast_ref())
}

/// How long to wait before the next opening.
#[derive(Default)]
struct ReopenBackoff {
    tries: u32,
}

impl ReopenBackoff {
    /// The next wait: twice as long as the last, less up to a quarter by chance.
    fn next(&mut self) -> Duration {
        let wait = WAIT_MIN.saturating_mul(1 << self.tries.min(16)).min(WAIT_MAX);
        self.tries = self.tries.saturating_add(1);
        let chance = u32::from(Uuid::new_v4().as_bytes().first().copied().unwrap_or(0));
        wait - wait * chance / 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::FileDamage;
    use std::future::poll_fn;
    use std::io;
    use std::task::Poll;

    #[test]
    fn waits_double_to_a_bound_and_differ_by_chance() {
        let mut backoff = ReopenBackoff::default();
        for longest in [1, 2, 4, 8, 16, 30, 30, 30] {
            let (wait, longest) = (backoff.next(), Duration::from_secs(longest));
            assert!(wait <= longest && wait >= longest * 3 / 4, "{wait:?} of {longest:?}");
        }
    }

    #[tokio::test]
    async fn a_broker_that_is_abandoned_while_it_closes_does_not_keep_the_process_from_ending() {
        let broker = Broker::open(Config::default()).await.unwrap();
        assert!(broker.policy.config.dispatch.enabled);
        broker.abandon(&Error::new(Kind::Unavailable, "The disk is full.")).await;
        tokio::time::timeout(Duration::from_secs(5), broker.close()).await.expect("closing ends");
    }

    #[test]
    fn opening_a_folder_again_does_not_hold_up_the_thread_that_answers_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            // The one thread on which disks may be read is busy: nothing is read before it is free.
            let (release, busy) = std::sync::mpsc::channel::<()>();
            let reading = tokio::task::spawn_blocking(move || busy.recv());
            let mut opening = std::pin::pin!(Broker::open(Config::folder(folder.path().join("data"))));
            let asked = poll_fn(|context| Poll::Ready(opening.as_mut().poll(context))).await;
            assert!(asked.is_pending());
            assert!(!folder.path().join("data").exists());
            release.send(()).unwrap();
            reading.await.unwrap().unwrap();
            opening.await.unwrap().close().await;
        });
    }

    #[test]
    fn what_passes_is_tried_again_and_a_restart_is_asked_for_only_where_it_may_help() {
        let io = || Arc::new(io::Error::other("no"));
        let damage = FileDamage { file: "x".into(), offset: 1, reason: "flipped".to_owned() };
        let unsupported = LogError::Unsupported { position: contract::Position(7), reason: "is new".to_owned() };
        for (error, is_last, restart_helps) in [
            (LogError::Io(io()), false, true),
            (LogError::Poisoned(io()), false, true),
            (LogError::Locked("x".into()), false, true),
            (LogError::Unavailable(io()), false, false),
            (LogError::Damaged(damage), true, true),
            (unsupported, true, true),
        ] {
            let error = OpenError::Log(error);
            assert_eq!(is_final(&error), is_last, "{error}");
            assert_eq!(outage(&error, TRIES_MAX).restart_helps, restart_helps, "{error}");
            assert!(!outage(&error, TRIES_MAX - 1).restart_helps, "{error}");
        }
        let declared = |kind| OpenError::declared("topics[0]".to_owned(), Error::new(kind, "no"));
        assert!(is_final(&declared(Kind::Validation)) && !is_final(&declared(Kind::Unavailable)));
    }
}
