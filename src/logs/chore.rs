//! Chores: what is done in every log now and then, for as long as the broker is open.
//!
//! - A tick is idempotent. One that fails or is cut short is simply done again by the next.
//! - A chore keeps nothing open: it ends when the logs close or are let go.

use super::Logs;
use crate::ledger::{Ledger, ReclaimPolicy, reclaim_if_due};
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;
use uuid::Uuid;

/// At least this much time lies between two ticks.
const EVERY_MIN: Duration = Duration::from_millis(10);

/// Does `tick` on all ledgers about so often until they are gone or close.
pub(crate) async fn run_periodically<F: Future<Output = ()>>(
    logs: Weak<Logs>,
    every: Duration,
    tick: impl Fn(Vec<Arc<Ledger>>) -> F,
) {
    let Some(mut closing) = logs.upgrade().map(|logs| logs.default_ledger().closing()) else { return };
    let every = every.max(EVERY_MIN);
    loop {
        tokio::select! {
            () = tokio::time::sleep(jittered(every)) => (),
            _ = closing.wait_for(|closing| *closing) => return,
        }
        let Some(ledgers) = logs.upgrade().map(|logs| logs.ledgers()) else { return };
        // A tick that panics is no reason to end what everybody else is doing: the next one begins from what is there.
        if AssertUnwindSafe(tick(ledgers)).catch_unwind().await.is_err() {
            tracing::error!("a chore panicked; it is tried again at its next tick");
        }
    }
}

/// The chore that reclaims the broker's own entries in every log, until the logs are gone or close.
pub(crate) async fn run_reclaiming(logs: Weak<Logs>, every: Duration, policy: ReclaimPolicy) {
    run_periodically(logs, every, |ledgers| async move {
        for ledger in ledgers {
            reclaim_if_due(&ledger, &policy).await;
        }
    })
    .await;
}

/// Up to a tenth more, so that brokers started together do not tick together.
fn jittered(every: Duration) -> Duration {
    let share = u32::from(Uuid::new_v4().as_bytes().first().copied().unwrap_or(0));
    every + every * share / 2560
}
