//! Trying a subscription out: one signed delivery of a made-up event, of which nothing is stored.

use super::jobs::Jobs;
use super::report::recorded;
use super::sending::delivery_by;
use crate::delivery::{Delivery, Payload};
use crate::ledger::SubscriptionRow;
use crate::subscriptions::Terms;
use contract::{JobAttempt, Result, Timestamp};
use serde_json::json;
use uuid::Uuid;

/// The type of events that are made up.
const TEST_TYPE: &str = "gts.hyperspot.core.events.type.v1~hx.broker.test.v1";

impl Jobs<'_> {
    /// Sends a made-up event; answers what came of it.
    pub(crate) async fn test(&self, row: &SubscriptionRow) -> Result<JobAttempt> {
        let (now, id) = (self.logs.default_ledger().now(), Uuid::new_v4());
        let terms = Terms::of(row, self.vault)?;
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
        let (id, signing) = (id.to_string(), terms.signing(now));
        let payload = Payload::Event { text: event.to_string().into_bytes().into(), shape: terms.way.shape };
        let delivery = Delivery {
            signing: &signing,
            subscription: Some(&terms.code),
            topic: Some(&terms.topic),
            ..delivery_by(&terms.way, payload, &id, self.context.clock.now())
        };
        let attempt = self.context.deliver.deliver(delivery).await;
        Ok(recorded(&attempt, 1, now, 0))
    }
}
