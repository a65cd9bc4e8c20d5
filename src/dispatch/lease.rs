//! The dispatch lease: one worker at a time may deliver the jobs of a log, until the lease expires or is given up.
//!
//! - It is an entry of the log, so all brokers agree who holds it. If no other broker can open the log, it does not
//!   expire.

use super::worker::DispatchWorker;
use crate::ledger::{Command, Decision, DispatchFact, DispatchLease, Entry, Ledger};
use contract::Result;
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

/// Who holds the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseStatus {
    /// This worker, until it must renew the lease; `None`: it does not expire.
    Held { renew_at: Option<i64> },
    /// Another broker, until then.
    Elsewhere { until: i64 },
}

impl DispatchWorker {
    /// Whether this worker holds the lease, so that deliveries may start.
    pub(super) fn holds_lease(&self, ledger: &Ledger, now: i64) -> bool {
        ledger.dispatch().lease().is_some_and(|lease| lease.owner == self.context.owner && lease.until > now)
    }

    /// Acquires or renews the lease.
    pub(super) async fn acquire_lease(&self, ledger: &Arc<Ledger>, now: i64) -> Result<LeaseStatus> {
        let is_alone = !ledger.log().is_shared();
        let (owner, lease_millis) = (self.context.owner, self.context.lease_millis);
        let renewed_at = |lease: DispatchLease| lease.until.saturating_sub(lease_millis / 3 * 2);
        for _ in 0..2 {
            let lease = ledger.dispatch().lease();
            match lease {
                Some(lease) if lease.owner == owner => {
                    let renew_at = renewed_at(lease);
                    if is_alone || now < renew_at {
                        return Ok(LeaseStatus::Held { renew_at: (!is_alone).then_some(renew_at) });
                    }
                }
                Some(lease) if lease.until > now && !is_alone => {
                    return Ok(LeaseStatus::Elsewhere { until: lease.until });
                }
                _ => (),
            }
            ledger.submit(TakeLease { owner, lease_millis, is_alone }).await?;
        }
        let lease = ledger.dispatch().lease();
        Ok(match lease {
            Some(lease) if lease.owner == owner => LeaseStatus::Held { renew_at: Some(renewed_at(lease)) },
            Some(lease) => LeaseStatus::Elsewhere { until: lease.until.max(now + 1) },
            None => LeaseStatus::Elsewhere { until: now.saturating_add(lease_millis) },
        })
    }

    /// Another broker holds the lease, or dispatch is paused: drops the plan.
    pub(super) fn drop_plan(&mut self) {
        let lanes: BTreeSet<_> = self.planner.lanes().collect();
        let now = self.clock.now();
        lanes.into_iter().for_each(|key| self.planner.drop_lane(key, now));
        self.feeders.clear();
        self.sources.clear();
        self.known.clear();
        self.recorded.clear();
        let unbuilt = std::mem::take(&mut self.unbuilt);
        unbuilt.into_keys().for_each(|lane| self.context.set_unserved(lane, None));
        self.reconciled_at = None;
    }
}

/// Acquires or renews the lease, unless another worker holds it.
pub(super) struct TakeLease {
    pub(super) owner: Uuid,
    pub(super) lease_millis: i64,
    /// No other broker can open the log: an earlier holder is gone.
    pub(super) is_alone: bool,
}

impl Command for TakeLease {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        let now = decision.now();
        let held = decision.dispatch().lease().filter(|lease| lease.owner != self.owner && lease.until > now);
        if held.is_some() && !self.is_alone {
            return Ok(());
        }
        let until = if self.is_alone { i64::MAX } else { now.saturating_add(self.lease_millis) };
        decision.add_entry(Entry::Dispatch { what: DispatchFact::DispatchTaken { owner: self.owner, until } })?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        0
    }
}
