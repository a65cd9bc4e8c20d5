//! A receiver that refuses a stale fencing token.
//!
//! A worker may stall: a long pause, a machine that sleeps. Its lease ends, somebody else takes over, and then it wakes and
//! goes on where it was, for it does not know. Nothing on its side can help; the receiver can. Every claim has a token, and
//! a later one has a higher one. So the receiver keeps, per account, the highest token it has seen, and refuses less.
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

/// Accounts that are charged, with what fences them. One that lives longer than a program keeps all of it together, in one
/// transaction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Receiver(Arc<Mutex<HashMap<String, Account>>>);

#[derive(Debug, Default)]
struct Account {
    balance: i64,
    /// The highest token that was here.
    highest: FencingToken,
    /// What was counted: an event comes once, by whichever attempt.
    counted: HashSet<Uuid>,
}

/// Why a charge was not taken: somebody with a higher token was here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StaleToken(pub(crate) FencingToken);

impl Receiver {
    /// Charges an account, for an event, on behalf of whoever holds the token; answers what was charged in all.
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

/// The work on one event: what it says is charged, under the claim's token.
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
