//! Test deliveries: one signed delivery of a made-up event to a subscription. Nothing of it is stored.

use super::job_results::job_attempt;
use super::jobs::DispatchJobs;
use super::send::unsigned_delivery;
use crate::delivery::{DeliveryPayload, DeliveryRequest};
use crate::ledger::SubscriptionRow;
use crate::subscriptions::CompiledSubscription;
use contract::{Error, JobAttempt, Kind, Result, Timestamp};
use serde_json::json;
use std::sync::{Mutex, PoisonError};
use uuid::Uuid;

/// The type of the made-up event.
const TEST_TYPE: &str = "gts.hyperspot.core.events.type.v1~hx.broker.test.v1";

/// Test deliveries that may follow each other at once, and the time after which one more is allowed. The rates of pools
/// do not apply to them.
const TRIES_AT_ONCE: i64 = 30;
const TRY_MILLIS: i64 = 1000;

/// Limits the rate of test deliveries over all subscriptions.
#[derive(Debug, Default)]
pub(super) struct TestDeliveryLimiter {
    /// When the allowance is full again, in milliseconds.
    free_at: Mutex<i64>,
}

impl TestDeliveryLimiter {
    /// Takes one, or refuses with the seconds until the next one.
    fn take(&self, now: i64) -> Result<()> {
        let mut paid_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let next = (*paid_at).max(now) + TRY_MILLIS;
        let over = next - now - TRIES_AT_ONCE * TRY_MILLIS;
        if over > 0 {
            let detail = "Too many test deliveries; one per second is allowed, and a few more at a time.";
            let wait = u32::try_from(over.div_euclid(1000) + 1).unwrap_or(1);
            return Err(Error::new(Kind::Overloaded, detail).with_retry_after(wait));
        }
        *paid_at = next;
        Ok(())
    }
}

impl DispatchJobs<'_> {
    /// Sends a made-up event; returns the attempt.
    pub(crate) async fn test(&self, row: &SubscriptionRow) -> Result<JobAttempt> {
        self.context.test_deliveries.take(self.logs.default_ledger().now())?;
        let (now, id) = (self.logs.default_ledger().now(), Uuid::new_v4());
        let compiled = CompiledSubscription::of(row, self.vault)?;
        let at = Timestamp::from_millis(now);
        let event = json!({
            "id": id,
            "type": TEST_TYPE,
            "topic": row.definition.topic,
            "occurredAt": at,
            "source": "event-broker",
            "data": {"test": true},
            "sequence": 0,
            "position": 0,
            "createdAt": at,
        });
        let (id, signing) = (id.to_string(), compiled.signing(now));
        let payload =
            DeliveryPayload::Event { text: event.to_string().into_bytes().into(), format: compiled.delivery.format };
        let delivery = DeliveryRequest {
            signing: &signing,
            subscription: Some(&compiled.code),
            topic: Some(&compiled.topic),
            ..unsigned_delivery(&compiled.delivery, payload, &id, self.context.clock.now())
        };
        let attempt = self.context.deliver.deliver(delivery).await;
        Ok(job_attempt(&attempt, 1, now, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_are_bounded_and_come_back_with_time() {
        let trials = TestDeliveryLimiter::default();
        let now = 1_000_000;
        for number in 0..TRIES_AT_ONCE {
            assert!(trials.take(now).is_ok(), "{number}");
        }
        let refused = trials.take(now).unwrap_err();
        assert_eq!((refused.kind(), refused.retry_after_seconds()), (Kind::Overloaded, Some(2)));
        assert!(trials.take(now + TRY_MILLIS).is_ok());
        assert!(trials.take(now + TRY_MILLIS).is_err());
    }
}
