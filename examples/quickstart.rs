//! A program that embeds a broker: it registers, publishes, reads, follows and reopens.
//!
//! Run it twice: the second run reads what the first one stored.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use contract::api::*;
use contract::{NewEvent, NewEventType, NewTopic, Offset, PublishOutcome, TopicRead};
use event_broker::{Broker, Config};
use serde_json::value::RawValue;
use std::error::Error;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let broker = Broker::open(Config::folder("./data")).await?;

    let topic: contract::TopicId = "gts.hx.core.events.topic.v1~vendor.orders.v1".parse()?;
    broker.register_topic(NewTopic::new(topic.clone())).await?;
    let mut placed = NewEventType::new("gts.hx.core.events.type.v1~vendor.orders.order_placed.v1".parse()?);
    placed.topic = Some(topic.clone());
    placed.data_schema = Some(serde_json::json!({
        "type": "object",
        "properties": {"total": {"type": "number", "minimum": 0}},
        "required": ["total"]
    }));
    broker.register_event_type(placed.clone()).await?;

    let data = RawValue::from_string(r#"{"total": 99.90}"#.to_owned())?;
    let mut event =
        NewEvent::new(placed.id.clone(), "quickstart", data).about("gts.vendor.orders.order.v1".parse()?, "order-789");
    event.tenant = Some("a1b2c3d4-e5f6-7890-abcd-ef1234567890".parse()?);
    event.id = Some("550e8400-e29b-41d4-a716-446655440000".parse()?);
    for _ in 0..2 {
        let published = broker.publish(event.clone(), None).await?;
        let word = if published.outcome == PublishOutcome::Created { "stored" } else { "known already" };
        println!("{word}: {}", std::str::from_utf8(&published.event.text)?);
    }

    let mut wrong = event.clone();
    wrong.id = None;
    wrong.data = RawValue::from_string(r#"{"total": "much"}"#.to_owned())?;
    if let Err(refusal) = broker.publish(wrong, None).await {
        println!("refused: {refusal}");
    }

    let mut read = TopicRead::all(topic);
    read.filter.cel = Some("has(data) && data.total > 50.0".to_owned());
    let page = broker.wait(read.after(Offset::ZERO), Duration::from_secs(5)).await?;
    println!("read: {} event(s), next offset {}, tail {}", page.items.len(), page.next_offset, page.tail);

    broker.close().await;
    Ok(())
}
