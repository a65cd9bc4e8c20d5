//! Reclaiming the broker's own entries, log by log.

use super::Broker;
use crate::ledger::{ReclaimPolicy, ReclaimReport, reclaim};
use contract::Result;

impl Broker {
    /// Reclaims the broker's own entries in every log where that is due; returns a report for each, the default log first.
    pub async fn reclaim(&self) -> Result<Vec<ReclaimReport>> {
        self.reclaim_by(&self.reclaim_policy()).await
    }

    /// The same now, however few of them there are.
    pub async fn reclaim_now(&self) -> Result<Vec<ReclaimReport>> {
        self.reclaim_by(&ReclaimPolicy { within_millis: 0, ..self.reclaim_policy() }).await
    }

    async fn reclaim_by(&self, policy: &ReclaimPolicy) -> Result<Vec<ReclaimReport>> {
        let mut reclaimed = Vec::new();
        for ledger in self.logs.ledgers() {
            reclaimed.push(reclaim(&ledger, policy).await?);
        }
        Ok(reclaimed)
    }

    pub(super) fn reclaim_policy(&self) -> ReclaimPolicy {
        let maintenance = &self.policy.config.maintenance;
        let millis = |seconds: u64| i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX);
        ReclaimPolicy {
            bytes_min: maintenance.reclaim_bytes,
            within_millis: millis(maintenance.erase_within_secs),
            keep_millis: millis(maintenance.reclaim_after_secs),
        }
    }
}
