//! How a writing method reaches the broker: it chooses what the broker must have read before.
//!
//! - When several brokers write to the log, a broker's state may lack what another one has acknowledged. A decision is
//!   compared with the log, but what a method reads before it (the end of a range, the rows that match) is not.
//! - The broker itself is private here, so no method can omit the choice.

use crate::broker::Broker;
use contract::Result;

/// A broker's writing methods, for callers that send a request again under the same `Idempotency-Key`.
#[derive(Clone, Copy)]
pub(crate) struct BrokerWrites<'a>(&'a Broker);

impl Broker {
    /// The writing methods, with replies to store.
    pub(crate) const fn writes(&self) -> BrokerWrites<'_> {
        BrokerWrites(self)
    }
}

impl<'a> BrokerWrites<'a> {
    /// The broker, after it has read everything that other brokers acknowledged before this call: the default choice.
    pub(super) async fn refreshed(self) -> Result<&'a Broker> {
        self.0.refresh().await?;
        Ok(self.0)
    }

    /// Runs a frequent method that depends on the named thing alone: [`Broker::with_refresh`].
    pub(super) async fn with_refresh<T, F: Future<Output = Result<T>>>(
        self,
        ask: impl Fn(&'a Broker) -> F,
    ) -> Result<T> {
        self.0.with_refresh(|| ask(self.0)).await
    }

    /// The broker as it is, for a frequent method that only its decision can refuse, or that refreshes by itself before it
    /// refuses.
    pub(super) const fn unrefreshed(self) -> &'a Broker {
        self.0
    }
}
