//! The events that are published: about 450 bytes as stored, each with an id, a subject and validated data.

use crate::{Outcome, usage};
use contract::api::*;
use contract::{EventTypeId, NewEvent, NewEventType, NewTopic, SubjectTypeId, TopicId};
use event_broker::Broker;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

const TOPIC: &str = "gts.hx.core.events.topic.v1~acme.orders.v1";
const EVENT_TYPE: &str = "gts.acme.shop.order_placed.v1";
const SUBJECT_TYPE: &str = "gts.acme.shop.order.v1";

/// Which aggregates the events speak of.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Aggregates {
    /// Each of its own.
    Distinct,
    /// These many, in no order.
    Among(u64),
}

/// Makes events by number: the same number is the same event.
#[derive(Debug, Clone)]
pub(crate) struct Maker {
    event_type: EventTypeId,
    subject_type: SubjectTypeId,
    tenant: Uuid,
    aggregates: Aggregates,
}

impl Maker {
    pub(crate) fn new(aggregates: Aggregates) -> Outcome<Self> {
        Ok(Self {
            event_type: EventTypeId::parse(EVENT_TYPE)?,
            subject_type: SubjectTypeId::parse(SUBJECT_TYPE)?,
            tenant: Uuid::from_u128(0x0192_7c3e_5a4b_7d6e_8f90_a1b2_c3d4_e5f6),
            aggregates,
        })
    }

    pub(crate) fn event(&self, number: u64) -> Outcome<NewEvent> {
        let subject = match self.aggregates {
            Aggregates::Distinct => number,
            Aggregates::Among(count) => mixed(number) % count,
        };
        let (by, amount) = (number % 10_007, number % 997);
        let data = format!(r#"{{"by":{by},"amount":{amount}.95,"currency":"EUR"}}"#);
        let mut event = NewEvent::new(self.event_type.clone(), "shop", RawValue::from_string(data)?)
            .about(self.subject_type.clone(), subject.to_string());
        event.id = Some(Uuid::from_u64_pair(mixed(number), mixed(!number)));
        event.tenant = Some(self.tenant);
        Ok(event)
    }
}

pub(crate) fn topic() -> Outcome<TopicId> {
    Ok(TopicId::parse(TOPIC)?)
}

/// Registers the topic and the type; again is no change.
pub(crate) async fn register(broker: &Broker) -> Outcome {
    broker.register_topic(NewTopic::new(topic()?)).await?;
    let mut event_type = NewEventType::new(EventTypeId::parse(EVENT_TYPE)?);
    event_type.topic = Some(topic()?);
    event_type.data_schema = Some(serde_json::json!({
        "type": "object",
        "properties": {
            "by": {"type": "integer", "minimum": 0},
            "amount": {"type": "number", "minimum": 0},
            "currency": {"enum": ["EUR", "USD", "GBP"]}
        },
        "required": ["by", "amount", "currency"]
    }));
    broker.register_event_type(event_type).await?;
    Ok(())
}

/// Seconds of processor time it takes to make a million events: part of every figure of processor time.
pub(crate) fn making_seconds() -> Outcome<f64> {
    const COUNT: u64 = 200_000;
    let maker = Maker::new(Aggregates::Among(100_000))?;
    let before = usage::cpu_time();
    for number in 0..COUNT {
        std::hint::black_box(maker.event(number)?);
    }
    Ok(usage::cpu_time().saturating_sub(before).as_secs_f64() * 1e6 / COUNT as f64)
}

/// A number that looks like any other (SplitMix64); different for different ones.
pub(crate) fn mixed(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
