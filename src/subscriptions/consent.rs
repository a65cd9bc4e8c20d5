//! Consent of receivers: a subscription with `handshake` is created only if its receiver agrees.

use super::{CompiledSubscription, Subscriptions};
use crate::delivery::{ConsentAnswer, ConsentRequest};
use contract::{Error, Result};

impl Subscriptions<'_> {
    /// Refuses a receiver that does not consent, and a pool whose rate is higher than it allows.
    pub(super) async fn check_consent(&self, subscription: &CompiledSubscription) -> Result<()> {
        let rate_per_minute = self.pool(&subscription.pool)?.rate_per_minute;
        let question = ConsentRequest {
            target: &subscription.delivery.target,
            auth: &subscription.delivery.auth,
            identity: subscription.delivery.identity.as_ref(),
            headers: &subscription.delivery.headers,
            timeout: subscription.delivery.timeout,
            origin: &self.context.rules.config.dispatch.origin,
            rate_per_minute,
        };
        match self.deliver.request_consent(question).await {
            ConsentAnswer::Granted { rate_per_minute: None } => Ok(()),
            ConsentAnswer::Granted { rate_per_minute: Some(allowed) } => match rate_per_minute {
                Some(rate) if rate <= allowed => Ok(()),
                _ => {
                    let detail = format!(
                        "is faster than the receiver allows: name one with a `ratePerMinute` of at most {allowed}"
                    );
                    Err(Error::invalid("/pool", detail))
                }
            },
            ConsentAnswer::Withheld { status } => {
                let detail = format!(
                    "responded with {status} and without `WebHook-Allowed-Origin`: the receiver must consent, or leave `handshake` out"
                );
                Err(Error::invalid("/target", detail))
            }
            ConsentAnswer::Unreachable(failure) => {
                Err(Error::invalid("/target", format!("could not be asked for its consent: {}", failure.message)))
            }
        }
    }
}
