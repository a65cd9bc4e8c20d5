//! The sweep: finds events at or below the read offset that were redriven, or whose worker has died.

use super::work::{WorkerContext, now};
use contract::api::*;
use contract::{Claim, ClaimStatus, Cursor, Sequence, limits};

/// Pages per sweep; the next sweep continues from there.
const PAGES_MAX: usize = 10;

/// The result of a sweep.
pub(super) struct SweepResult {
    pub(super) sequences: Vec<Sequence>,
    /// Where the next sweep continues; at the beginning when absent.
    pub(super) next: Option<Cursor>,
}

impl WorkerContext {
    /// The sequences of open claims that may be claimed again, at or below the read offset.
    pub(super) async fn sweep(&self, from: Option<Cursor>) -> SweepResult {
        let mut swept = SweepResult { sequences: Vec::new(), next: from };
        for _ in 0..PAGES_MAX {
            let page = self.client.open_claims(&self.name, swept.next.as_ref(), limits::READ_EVENTS_MAX).await;
            let Ok(page) = page else { break };
            let free = page.items.iter().filter(|claim| claim.topic == self.topic && is_free(claim));
            swept.sequences.extend(free.map(|claim| claim.sequence));
            swept.next = page.next;
            if swept.next.is_none() {
                break;
            }
        }
        swept.sequences.retain(|sequence| self.progress().is_passed(*sequence));
        swept
    }
}

fn is_free(claim: &Claim) -> bool {
    match claim.status {
        ClaimStatus::Redriven | ClaimStatus::Released => true,
        ClaimStatus::Failed => claim.retry_at.is_none_or(|at| at <= now()),
        ClaimStatus::Claimed => claim.lease_expires_at.is_some_and(|at| at <= now()),
        ClaimStatus::Dead | ClaimStatus::Done => false,
    }
}
