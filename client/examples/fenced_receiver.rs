//! A receiver that refuses a stale fencing token.
//!
//! A worker may stall, for example on a suspended machine. Its lease expires and another worker takes over; then the first one
//! resumes without knowing it. Only the receiver can prevent the second effect. Every claim has a fencing token, and a later
//! claim has a higher one. So the receiver stores the highest token per account, and refuses a lower one.
//!
//! ```sh
//! cargo run -p event-broker-client --example fenced_receiver -- http://127.0.0.1:8087
//! ```

use contract::{Claim, FencingToken, StoredEvent, TopicId};
use event_broker_client::Client;
use event_broker_client::handler::{self, HandlerOptions, WorkError};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

const TOPIC: &str = "gts.hx.core.events.topic.v1~vendor.bank.v1";

/// The accounts with their fencing tokens. A receiver with a database stores both in one transaction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Receiver(Arc<Mutex<HashMap<String, Account>>>);

#[derive(Debug, Default)]
struct Account {
    balance: i64,
    /// The highest token so far.
    highest: FencingToken,
    /// The ids of events that were charged: an event is charged once, by any of its attempts.
    counted: HashSet<Uuid>,
}

/// The refusal of a charge: a request with a higher token was received before.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StaleToken(pub(crate) FencingToken);

impl Receiver {
    /// Charges an account for an event, with a token; returns the total of the account.
    pub(crate) fn charge(
        &self,
        account: &str,
        amount: i64,
        event: Uuid,
        token: FencingToken,
    ) -> Result<i64, StaleToken> {
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let account = accounts.entry(account.to_owned()).or_default();
        if token < account.highest {
            return Err(StaleToken(account.highest));
        }
        account.highest = token;
        if account.counted.insert(event) {
            account.balance += amount;
        }
        Ok(account.balance)
    }
}

#[derive(Deserialize)]
struct MoneyMoved {
    account: String,
    amount: i64,
}

/// The work on one event: charges its amount with the claim's token.
pub(crate) async fn work(
    receiver: Receiver,
    event: StoredEvent,
    claim: Claim,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let MoneyMoved { account, amount } = serde_json::from_str(event.event()?.data.get())?;
    match receiver.charge(&account, amount, event.id, claim.token) {
        Ok(_) => Ok(()),
        Err(StaleToken(highest)) => {
            let message = format!("Token {} is behind {highest}: somebody else has taken over.", claim.token);
            Err(WorkError::new("StaleToken", message).into())
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let broker = std::env::args().nth(1).ok_or("usage: fenced_receiver BROKER")?;
    let receiver = Receiver::default();
    let effect = move |event, claim| work(receiver.clone(), event, claim);
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    let topic = TopicId::parse(TOPIC)?;
    Ok(handler::run(Client::new(&broker)?, "charges", topic, HandlerOptions::default(), effect, stop).await?)
}
