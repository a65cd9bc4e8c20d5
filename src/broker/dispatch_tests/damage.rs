//! A damaged event under dispatch: its own lanes wait for a repair, nobody else notices.

use super::{TYPE, World};
use contract::{BoxFuture, EventBroker, NewEvent, NewEventType, NewTopic, Position, Segment, Sequence};
use log::{Damage, Find, Header, Limit, Log, LogError, MemoryLog, Range, Record, TopicNumber};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tokio::sync::watch;

/// Memory in which one event of a topic cannot be read; number 0: all can.
#[derive(Default)]
struct Spoilt {
    log: MemoryLog,
    topic: AtomicU32,
    sequence: AtomicU64,
}

impl Log for Spoilt {
    fn append(&self, after: Position, batch: Vec<Record>) -> BoxFuture<'_, Result<(), LogError>> {
        self.log.append(after, batch)
    }

    fn read(&self, range: Range, mut limit: Limit) -> BoxFuture<'_, Result<Vec<Record>, LogError>> {
        let damaged = self.sequence.load(Ordering::Relaxed);
        if let Range::Topic(topic, after) = range
            && topic.0 == self.topic.load(Ordering::Relaxed)
            && damaged > after.get()
        {
            limit.records = limit.records.min((damaged - after.get() - 1) as usize);
            if limit.records == 0 {
                let damage = Damage { file: "segment".into(), offset: 64, reason: "spoilt".to_owned() };
                return Box::pin(async { Err(LogError::Damaged(damage)) });
            }
        }
        self.log.read(range, limit)
    }

    fn tail(&self) -> watch::Receiver<Position> {
        self.log.tail()
    }

    fn find(&self, what: Find) -> BoxFuture<'_, Result<Option<Header>, LogError>> {
        self.log.find(what)
    }

    fn segments(&self, topic: TopicNumber) -> BoxFuture<'_, Result<Vec<Segment>, LogError>> {
        self.log.segments(topic)
    }

    fn remove(&self, topic: TopicNumber, through: Sequence) -> BoxFuture<'_, Result<(), LogError>> {
        self.log.remove(topic, through)
    }
}

#[tokio::test]
async fn a_damaged_event_holds_up_its_own_topic_alone() {
    let log = Arc::new(Spoilt::default());
    let mut world = World::new(Arc::clone(&log) as Arc<dyn Log>).await;
    let spoilt = "gts.hx.core.events.topic.v1~vendor.spoilt.v1";
    log.topic.store(world.broker.default_ledger().registry().next_topic_number(), Ordering::Relaxed);
    world.broker.register_topic(NewTopic::new(spoilt.parse().unwrap())).await.unwrap();
    let mut made = NewEventType::new(format!("{TYPE}.made_there.v1").parse().unwrap());
    made.topic = Some(spoilt.parse().unwrap());
    world.broker.register_event_type(made).await.unwrap();
    world.ask(&format!("subscribe first topic={spoilt}")).await.unwrap();
    world.ask("subscribe mail").await.unwrap();
    for subject in ["a", "b", "c"] {
        let data = RawValue::from_string("{}".to_owned()).unwrap();
        let mut event = NewEvent::new(format!("{TYPE}.made_there.v1").parse().unwrap(), "test", data);
        event.subject = Some(subject.to_owned());
        world.broker.publish(event, None).await.unwrap();
    }
    world.ask("publish a b").await.unwrap();
    log.sequence.store(2, Ordering::Relaxed);
    let mut sent: Vec<_> = world.run().await.split(' ').map(str::to_owned).collect();
    sent.sort();
    assert_eq!(sent, ["first/1:200", "mail/1:200", "mail/2:200"], "what is before the damage, and what is elsewhere");
    // Repaired.
    log.sequence.store(0, Ordering::Relaxed);
    world.clock.advance(1000);
    assert_eq!(world.run().await, "first/2:200 first/3:200");
}
