//! Background tasks that run periodically in every log, for as long as the broker is open.
//!
//! - A tick is idempotent. One that fails or is interrupted is repeated by the next.
//! - A background task keeps no log open: it ends when the logs close or are released.

use super::Logs;
use crate::ledger::{Ledger, ReclaimPolicy, reclaim_if_due};
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;
use uuid::Uuid;

/// The least time between two ticks.
const EVERY_MIN: Duration = Duration::from_millis(10);

/// Runs `tick` on all ledgers at about this interval, until they are released or closed.
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
        // A tick that panics is no reason to end the broker: the next one begins from the durable state.
        if AssertUnwindSafe(tick(ledgers)).catch_unwind().await.is_err() {
            tracing::error!("a background task panicked; it is retried at its next tick");
        }
    }
}

/// Reclaims the broker's own entries in every log periodically, until the logs are released or closed.
pub(crate) async fn run_reclaiming(logs: Weak<Logs>, every: Duration, policy: ReclaimPolicy) {
    run_periodically(logs, every, |ledgers| async move {
        for ledger in ledgers {
            reclaim_if_due(&ledger, &policy).await;
        }
    })
    .await;
}

/// Adds up to a tenth, so that brokers that were started together do not tick together.
fn jittered(every: Duration) -> Duration {
    let share = u32::from(Uuid::new_v4().as_bytes().first().copied().unwrap_or(0));
    every + every * share / 2560
}
