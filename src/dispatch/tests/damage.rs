//! A damaged event: the lanes of its topic wait for a repair, others are not affected.

use super::{DispatchFixture, TYPE};
use crate::clock::Clock;
use crate::dispatch::worker::WorkerStep;
use contract::api::*;
use contract::{BoxFuture, NewEvent, NewEventType, NewTopic, Position};
use log::{FileDamage, Log, LogError, MemoryLog, ReadLimit, ReadRange, Record};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A log in memory in which one event of a topic cannot be read; number 0: all can.
#[derive(Default)]
struct DamagedLog {
    log: MemoryLog,
    topic: AtomicU32,
    sequence: AtomicU64,
    /// Whether appends fail.
    is_full: AtomicBool,
}

impl Log for DamagedLog {
    log::forward_rest!();

    fn append(&self, after: Position, batch: Vec<Record>) -> BoxFuture<'_, Result<(), LogError>> {
        if self.is_full.load(Ordering::Relaxed) {
            let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Box::pin(async { Err(LogError::Poisoned(Arc::new(full))) });
        }
        self.log.append(after, batch)
    }

    fn read(&self, range: ReadRange, mut limit: ReadLimit) -> BoxFuture<'_, Result<Vec<Record>, LogError>> {
        let damaged = self.sequence.load(Ordering::Relaxed);
        if let ReadRange::Topic(topic, after) = range
            && topic.0 == self.topic.load(Ordering::Relaxed)
            && damaged > after.get()
        {
            limit.records = limit.records.min((damaged - after.get() - 1) as usize);
            if limit.records == 0 {
                let damage = FileDamage { file: "segment".into(), offset: 64, reason: "spoilt".to_owned() };
                return Box::pin(async { Err(LogError::Damaged(damage)) });
            }
        }
        self.log.read(range, limit)
    }
}

const SPOILT: &str = "gts.hx.core.events.topic.v1~vendor.spoilt.v1";

/// A fixture with subscription `first` to a topic that can be damaged, with events 1 to 3, and `mail` to another topic.
async fn world(log: &Arc<DamagedLog>, options: &str) -> DispatchFixture {
    let mut world = DispatchFixture::new(Arc::clone(log) as Arc<dyn Log>).await;
    let spoilt = SPOILT;
    log.topic.store(world.broker.default_ledger().registry().next_topic_number(), Ordering::Relaxed);
    world.broker.register_topic(NewTopic::new(spoilt.parse().unwrap())).await.unwrap();
    let mut made = NewEventType::new(format!("{TYPE}.made_there.v1").parse().unwrap());
    made.topic = Some(spoilt.parse().unwrap());
    world.broker.register_event_type(made).await.unwrap();
    world.ask(&format!("subscribe first topic={spoilt} {options}")).await.unwrap();
    world.ask("subscribe mail").await.unwrap();
    for subject in ["a", "b", "c"] {
        let data = RawValue::from_string("{}".to_owned()).unwrap();
        let mut event = NewEvent::new(format!("{TYPE}.made_there.v1").parse().unwrap(), "test", data);
        event.subject = Some(subject.to_owned());
        world.broker.publish(event, None).await.unwrap();
    }
    world
}

#[tokio::test]
async fn a_damaged_event_holds_up_its_own_topic_alone() {
    let log = Arc::new(DamagedLog::default());
    let mut world = world(&log, "").await;
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

#[tokio::test]
async fn what_cannot_be_written_is_tried_again_after_a_while_and_nothing_is_sent_meanwhile() {
    let log = Arc::new(DamagedLog::default());
    let mut world = DispatchFixture::new(Arc::clone(&log) as Arc<dyn Log>).await;
    world.run_line(1, "subscribe mail").await;
    world.run_line(2, "publish a").await;
    assert_eq!(world.land().await, "mail/1:200");
    world.run_line(3, "publish b").await;
    log.is_full.store(true, Ordering::Relaxed);
    world.worker.step().await;
    let written = world.worker.recording.join_next().await.unwrap();
    world.worker.report_recorded(written);
    for _ in 0..3 {
        let WorkerStep::Wait(Some(until)) = world.worker.step().await else { panic!("it waits") };
        assert_eq!(until - world.clock.now(), 1000);
        assert!(world.worker.recording.is_empty());
    }
    let sent = world.worker.deliveries.len();
    world.clock.advance(1000);
    world.worker.step().await;
    assert_eq!((world.worker.recording.len(), world.worker.deliveries.len()), (1, sent));
}

/// Building a lane read the events of its open jobs. One that could not be read stopped every lane of the log.
#[tokio::test]
async fn a_damaged_event_of_a_failed_job_holds_up_its_own_lane_alone() {
    let log = Arc::new(DamagedLog::default());
    let mut world = world(&log, "mode=BLOCK_ON_ERROR").await;
    world.ask("answer first/1 500").await.unwrap();
    assert_eq!(world.ask("run-sorted").await.unwrap(), "first/1:500 first/2:200 first/3:200");
    log.sequence.store(1, Ordering::Relaxed);
    world.ask("restart").await.unwrap();
    world.ask("publish a b").await.unwrap();
    assert_eq!(world.ask("run-sorted").await.unwrap(), "mail/1:200 mail/2:200");
    world.clock.advance(60_000);
    assert_eq!(world.run().await, "", "it cannot be read yet");
    // Repaired.
    log.sequence.store(0, Ordering::Relaxed);
    world.clock.advance(60_000);
    assert_eq!(world.run().await, "first/1:200");
}

/// Each failed look-up of the event was recorded and repeated at once.
#[tokio::test]
async fn a_job_that_expires_and_whose_event_cannot_be_read_fills_no_log() {
    let log = Arc::new(DamagedLog::default());
    let mut world = world(&log, "age=10").await;
    world.ask("pause first").await.unwrap();
    world.run().await;
    log.sequence.store(2, Ordering::Relaxed);
    world.clock.advance(10_000);
    let before = world.broker.default_ledger().position().borrow().get();
    for _ in 0..200 {
        world.ask("land").await.unwrap();
        while let Some(written) = world.worker.recording.join_next().await {
            world.worker.report_recorded(written);
        }
    }
    let written = world.broker.default_ledger().position().borrow().get() - before;
    assert!(written < 20, "{written} entries");
}
