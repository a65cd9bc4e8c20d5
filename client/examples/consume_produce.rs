//! Consume, process, produce: each event leads to another event, exactly once.
//!
//! The produced event, the completion and the offset are one append in the broker. Whenever the program is killed, either all
//! of them are stored or none is, and then the work is done again. The program needs no id of its own and no other storage.
//!
//! ```sh
//! cargo run -p event-broker-client --example consume_produce -- http://127.0.0.1:8087
//! ```

use contract::{Claim, EventTypeId, NewEvent, StoredEvent, TopicId};
use event_broker_client::Client;
use event_broker_client::handler::{self, HandlerOptions};
use serde::Deserialize;
use serde_json::json;
use std::error::Error;

const TOPIC: &str = "gts.hx.core.events.topic.v1~vendor.bank.v1";
/// The produced event type. Register it with a topic of its own, in the same log.
pub(crate) const NOTED: &str = "gts.hyperspot.core.events.type.v1~vendor.bank.move_noted.v1";

#[derive(Deserialize)]
struct MoneyMoved {
    account: String,
    amount: i64,
}

/// The work on one event: a note to the account's owner.
pub(crate) async fn note(event: StoredEvent, _claim: Claim) -> Result<NewEvent, Box<dyn Error + Send + Sync>> {
    let event = event.event()?;
    let MoneyMoved { account, amount } = serde_json::from_str(event.data.get())?;
    let text = if amount < 0 { "Money has left your account." } else { "Money has come to your account." };
    let data = serde_json::value::to_raw_value(&json!({"account": account, "text": text}))?;
    let mut note = NewEvent::new(EventTypeId::parse(NOTED)?, "notes", data);
    note.subject = Some(account);
    note.tenant = event.tenant;
    note.correlation_id = event.correlation_id;
    note.causation_id = Some(event.id.to_string());
    Ok(note)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let broker = std::env::args().nth(1).ok_or("usage: consume_produce BROKER")?;
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    let topic = TopicId::parse(TOPIC)?;
    Ok(handler::run(Client::new(&broker)?, "notes", topic, HandlerOptions::default(), note, stop).await?)
}
