//! Asking a receiver first, where its subscription wants that: without its consent there is no subscription.

use super::{Subscriptions, Terms};
use crate::delivery::{Consent, Question};
use contract::{Error, Result};

impl Subscriptions<'_> {
    /// Refuses a receiver that does not consent, and a pool that is faster than it allows.
    pub(super) async fn check_consent(&self, terms: &Terms) -> Result<()> {
        let rate_per_minute = self.pool(&terms.pool)?.rate_per_minute;
        let question = Question {
            target: &terms.way.target,
            auth: &terms.way.auth,
            identity: terms.way.identity.as_ref(),
            headers: &terms.way.headers,
            timeout: terms.way.timeout,
            origin: &self.policy.config.dispatch.origin,
            rate_per_minute,
        };
        match self.context.deliver.ask(question).await {
            Consent::Granted { rate_per_minute: None } => Ok(()),
            Consent::Granted { rate_per_minute: Some(allowed) } => match rate_per_minute {
                Some(rate) if rate <= allowed => Ok(()),
                _ => {
                    let detail = format!(
                        "is faster than the receiver allows: name one with a `ratePerMinute` of at most {allowed}"
                    );
                    Err(Error::invalid("/pool", detail))
                }
            },
            Consent::Withheld { status } => {
                let detail = format!(
                    "answered {status} without `WebHook-Allowed-Origin`: the receiver must consent, or leave `handshake` out"
                );
                Err(Error::invalid("/target", detail))
            }
            Consent::Unreachable(failure) => {
                Err(Error::invalid("/target", format!("could not be asked for its consent: {}", failure.message)))
            }
        }
    }
}
