//! Chores: what is done now and then for as long as a ledger is open.
//!
//! - A tick is idempotent. One that fails or is cut short is simply done again by the next.
//! - A chore keeps nothing open: it ends when the ledger closes or is let go.

use super::Ledger;
use std::sync::{Arc, Weak};
use std::time::Duration;
use uuid::Uuid;

/// At least this much time lies between two ticks.
const EVERY_MIN: Duration = Duration::from_millis(10);

/// Does `tick` about so often until the ledger is gone or closes.
pub async fn keep<F: Future<Output = ()>>(ledger: Weak<Ledger>, every: Duration, tick: impl Fn(Arc<Ledger>) -> F) {
    let Some(mut closing) = ledger.upgrade().map(|ledger| ledger.closing()) else { return };
    let every = every.max(EVERY_MIN);
    loop {
        tokio::select! {
            () = tokio::time::sleep(jittered(every)) => (),
            _ = closing.wait_for(|closing| *closing) => return,
        }
        let Some(ledger) = ledger.upgrade() else { return };
        tick(ledger).await;
    }
}

/// Up to a tenth more, so that brokers started together do not tick together.
fn jittered(every: Duration) -> Duration {
    let share = u32::from(Uuid::new_v4().as_bytes().first().copied().unwrap_or(0));
    every + every * share / 2560
}
