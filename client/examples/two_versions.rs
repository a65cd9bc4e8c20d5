//! A projection during a rolling upgrade: producers of two versions, one view.
//!
//! `money_moved` has its amount in one form before the upgrade and in another form after it:
//!
//! ```text
//!   dataVersion 1.0   {"account": "a", "amount": "12.50"}      decimal text
//!   dataVersion 2.0   {"account": "a", "cents": 1250}          a whole number
//! ```
//!
//! - For some time both versions are published, in any order. The view accepts the current version and the one before it, with
//!   the same result for the same amount.
//! - An event of any other version stops the projection with an error that names it, and nothing is lost. A program that knows
//!   the version continues where this one stopped.
//! - The view is in memory, so it is rebuilt from all events whenever the program starts.
//!
//! ```sh
//! cargo run -p event-broker-client --example two_versions -- http://127.0.0.1:8087
//! ```

use contract::{NewProjection, StoredEvent};
use event_broker_client::Client;
use event_broker_client::projection::{Checkpoint, ProjectionRunner, ProjectionView};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) const TOPIC: &str = "gts.hx.core.events.topic.v1~vendor.bank.v1";

/// Balances in cents, by account.
#[derive(Debug, Clone, Default)]
pub(crate) struct Balances {
    cents: Arc<Mutex<BTreeMap<String, i64>>>,
    /// The view in memory is empty at the start, so it keeps its own checkpoint in memory too.
    at: Checkpoint,
}

/// The data of an event, independent of its version.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MoneyMoved {
    pub(crate) account: String,
    pub(crate) cents: i64,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl MoneyMoved {
    /// Reads an event in the version in which it was published.
    pub(crate) fn read(version: Option<&str>, data: &str) -> Result<Self, Failure> {
        #[derive(Deserialize)]
        struct Decimal {
            account: String,
            amount: String,
        }
        #[derive(Deserialize)]
        struct Cents {
            account: String,
            cents: i64,
        }
        match version {
            Some("2.0") => {
                let Cents { account, cents } = serde_json::from_str(data)?;
                Ok(Self { account, cents })
            }
            Some("1.0") => {
                let Decimal { account, amount } = serde_json::from_str(data)?;
                Ok(Self { account, cents: in_cents(&amount).ok_or("the amount is no decimal number")? })
            }
            other => Err(format!("this program does not know version {} of money_moved", other.unwrap_or("?")).into()),
        }
    }
}

/// `-12.50` as -1250.
fn in_cents(amount: &str) -> Option<i64> {
    let (sign, digits) = amount.strip_prefix('-').map_or((1, amount), |digits| (-1, digits));
    let (whole, fraction) = digits.split_once('.')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() != 2 {
        return None;
    }
    Some(sign * (whole.parse::<i64>().ok()?.checked_mul(100)? + fraction.parse::<i64>().ok()?))
}

impl Balances {
    /// The current balances.
    pub(crate) fn all(&self) -> BTreeMap<String, i64> {
        self.cents.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ProjectionView for Balances {
    type Error = Failure;

    async fn apply(&mut self, event: &StoredEvent, at: Checkpoint) -> Result<(), Failure> {
        let event = event.event()?;
        let MoneyMoved { account, cents } = MoneyMoved::read(event.data_version.as_deref(), event.data.get())?;
        *self.cents.lock().unwrap_or_else(PoisonError::into_inner).entry(account).or_default() += cents;
        self.at = at;
        Ok(())
    }

    async fn checkpoint(&mut self) -> Result<Option<Checkpoint>, Failure> {
        Ok(Some(self.at))
    }

    async fn clear(&mut self, start: Checkpoint) -> Result<(), Failure> {
        self.cents.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.at = start;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let broker = std::env::args().nth(1).ok_or("usage: two_versions BROKER")?;
    let (balances, definition) = (Balances::default(), NewProjection::of_topic(TOPIC.parse()?));
    let mut runner = ProjectionRunner::new(Client::new(&broker)?, "balances", definition, balances.clone());
    let stop = async {
        // If signals cannot be received, the program can only be killed, which does no harm here.
        let _ = tokio::signal::ctrl_c().await;
    };
    runner.run(stop).await.map_err(|stopped| stopped.to_string())?;
    for (account, cents) in balances.all() {
        tracing::info!(account, cents, "balance");
    }
    Ok(())
}
