//! The supervisor: reopens a failed broker in the same process.
//!
//! ```text
//!          ┌──── opened ─────┐
//!          ▼                 │
//!        Open ── failed ──▶ Closed ── opening failed ─▶ wait: 1 s, then twice as long each time, at most 30 s
//!          │                 │ ▲                                   │
//!          │                 │ └───────────────────────────────────┘
//!          │                 └─ cannot be opened by any number of tries: the supervisor ends
//!          └─ while what it knows is right, it can be read from until the wait is over
//! ```
//!
//! - A failed broker is ended completely, and another one is opened from the log: nothing that was only in memory survives,
//!   and opening is the only way to recover.
//! - Requests that wait on the failed broker are refused. Its log is closed even if the broker is still referenced.
//! - After a broker that fails soon after its opening the wait is longer, so a disk that stays full costs little.

use super::declarations::DeclarationPolicy;
use super::slot::{BrokerOutage, BrokerSlot};
use super::{Broker, OpenError, max_clock_jump};
use crate::clock::{SystemClock, TrustedClock};
use crate::config::{Config, StorageEngine};
use crate::ledger::leaves_state_intact;
use contract::{BoxFuture, Error, Kind};
use log::{Log, LogError, MemoryLog};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(30);
/// A broker that ran for this long before it failed is reopened after the shortest wait.
const STABLE: Duration = Duration::from_secs(60);
/// How long ending a failed broker may take.
const END_MAX: Duration = Duration::from_secs(10);
/// After this many failed openings a restart of the process may be needed.
const TRIES_MAX: u32 = 3;
const RETRY_AFTER_SECONDS: u32 = 5;

/// Opens a broker.
pub type BrokerOpener = Box<dyn Fn() -> BoxFuture<'static, Result<Broker, OpenError>> + Send + Sync>;

/// Reopens the broker of a [`BrokerSlot`] whenever it fails.
pub struct Supervisor {
    slot: Arc<BrokerSlot>,
    open: BrokerOpener,
}

impl Supervisor {
    /// A supervisor of the broker in `slot`; `open` opens its successor.
    #[must_use]
    pub fn new(slot: Arc<BrokerSlot>, open: BrokerOpener) -> Self {
        slot.supervise();
        Self { slot, open }
    }

    /// Works until a broker cannot be reopened by any number of tries; returns the reason.
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
        // Only this supervisor empties the slot, and it always fills it again.
        std::future::pending().await
    }

    /// Ends a failed broker, and closes its logs.
    async fn end(&self, broker: Arc<Broker>, failure: &Error) {
        self.slot.close(BrokerOutage { error: failure.clone(), restart_helps: false });
        if tokio::time::timeout(END_MAX, broker.abandon(failure)).await.is_err() {
            tracing::warn!("the failed broker does not end; its log may still be held");
        }
    }

    /// Opens until it succeeds; `Err` if it never will.
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

/// How `serve` opens its broker. A log in memory is kept: its events are nowhere else. Once a broker was open, a refused
/// declaration does not keep it from being opened again.
#[must_use]
pub fn opener(config: Config) -> BrokerOpener {
    // One clock for all openings: reopening the broker must not confirm a doubtful jump of the wall clock.
    let clock = Arc::new(TrustedClock::new(Arc::new(SystemClock), max_clock_jump(&config)));
    let memory = (config.storage.engine == StorageEngine::Memory).then(|| Arc::new(MemoryLog::new()));
    let was_open = Arc::new(AtomicBool::new(false));
    Box::new(move || {
        let (config, memory, clock) = (config.clone(), memory.clone(), Arc::clone(&clock));
        let was_open = Arc::clone(&was_open);
        Box::pin(async move {
            let declarations = match was_open.load(Ordering::Relaxed) {
                true => DeclarationPolicy::Logged,
                false => DeclarationPolicy::Required,
            };
            let broker = match memory {
                Some(log) => {
                    let log = (log as Arc<dyn Log>, super::open_files());
                    Broker::start_on(config, log, None, clock, declarations).await?
                }
                None => Broker::open_with_clock(config, clock, declarations).await?,
            };
            was_open.store(true, Ordering::Relaxed);
            Ok(broker)
        })
    })
}

/// The error of requests after `tries` failed openings.
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

/// Whether opening fails however often it is tried: the stored data is damaged, of a newer version, or does not fit the
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

/// The error of the engine.
fn cause_of(error: &OpenError) -> Option<&LogError> {
    let told = match error {
        OpenError::Log(cause) => return Some(cause),
        OpenError::SideLog(failure) => &failure.error,
        OpenError::Declared { error, .. } => error,
    };
    std::error::Error::source(told).and_then(|cause| cause.downcast_ref())
}

/// The wait before the next opening.
#[derive(Default)]
struct ReopenBackoff {
    tries: u32,
}

impl ReopenBackoff {
    /// The next wait: twice as long as the last, minus up to a quarter at random.
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
            // The only thread for blocking reads is busy: nothing is read before it is free.
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
