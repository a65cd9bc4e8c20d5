//! Retention that fails: other topics are not affected, nothing is written repeatedly, and the error names the cause.

use crate::damage;
use crate::scenario::{subject_type_id, topic_id, type_id};
use contract::api::*;
use contract::{BoxFuture, Kind, NewEvent, NewEventType, NewTopic, Offset, Position, Sequence, TopicRead, TrimRequest};
use event_broker::{Broker, Config, ManualClock};
use log::{Log, LogError, MemoryLog, Record, TopicNumber};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use uuid::Uuid;

/// A log that is not allowed to remove records, or cannot remove those of one topic.
#[derive(Default)]
struct UntrimmableLog {
    log: MemoryLog,
    forbids: AtomicBool,
    /// The topic whose records it cannot remove; 0: none.
    fails_in: AtomicU32,
    /// The time of the simulated server.
    server_time: Mutex<Option<i64>>,
}

impl Log for UntrimmableLog {
    fn append(&self, after: Position, batch: Vec<Record>) -> BoxFuture<'_, Result<(), LogError>> {
        self.log.append(after, batch)
    }

    fn tail(&self) -> tokio::sync::watch::Receiver<Position> {
        self.log.tail()
    }

    fn find(&self, what: log::RecordQuery) -> BoxFuture<'_, Result<Option<log::RecordHeader>, LogError>> {
        self.log.find(what)
    }

    fn segments(&self, topic: TopicNumber) -> BoxFuture<'_, Result<Vec<contract::Segment>, LogError>> {
        self.log.segments(topic)
    }

    fn remove(&self, topic: TopicNumber, through: Sequence) -> BoxFuture<'_, Result<(), LogError>> {
        if self.fails_in.load(Ordering::Relaxed) == topic.0 {
            return Box::pin(async { Err(LogError::Io(Arc::new(io::Error::other("the disk is gone")))) });
        }
        self.log.remove(topic, through)
    }

    fn may_remove(&self) -> BoxFuture<'_, Result<Option<i64>, LogError>> {
        Box::pin(async {
            match self.forbids.load(Ordering::Relaxed) {
                true => Err(LogError::Forbidden("the role app may not delete.".to_owned())),
                false => Ok(*self.server_time.lock().unwrap()),
            }
        })
    }

    log::forward_read!();
}

struct RetentionFixture {
    log: Arc<UntrimmableLog>,
    clock: Arc<ManualClock>,
    broker: Broker,
}

impl RetentionFixture {
    /// Topics `one` and `two` with an event each, which are past their retention.
    async fn new() -> Self {
        let (log, clock) = (Arc::new(UntrimmableLog::default()), Arc::new(ManualClock::at(1_764_763_200_000)));
        let broker = Broker::on_log(Config::default(), log.clone() as Arc<dyn Log>, None, clock.clone()).await.unwrap();
        for name in ["one", "two"] {
            let mut topic = NewTopic::new(topic_id(name));
            topic.retention = Some("PT1H".parse().unwrap());
            broker.register_topic(topic).await.unwrap();
            let mut event_type = NewEventType::new(type_id(name).parse().unwrap());
            event_type.topic = Some(topic_id(name));
            broker.register_event_type(event_type).await.unwrap();
            let data = serde_json::value::to_raw_value(&serde_json::json!({})).unwrap();
            let event = NewEvent::new(type_id(name).parse().unwrap(), "test", data);
            let event = NewEvent { tenant: Some(Uuid::from_u128(1)), ..event.about(subject_type_id("order"), "a") };
            broker.publish(event, None).await.unwrap();
        }
        clock.advance(3_600_001);
        Self { log, clock, broker }
    }

    fn tail(&self) -> Position {
        *self.log.tail().borrow()
    }

    async fn is_gone(&self, topic: &str) -> bool {
        self.broker.read(TopicRead::all(topic_id(topic))).await.is_err_and(|error| error.kind() == Kind::Trimmed)
    }
}

#[tokio::test]
async fn a_topic_that_cannot_be_trimmed_keeps_no_other_from_it_and_is_written_down_once() {
    let scene = RetentionFixture::new().await;
    // The default topic has number 1.
    scene.log.fails_in.store(2, Ordering::Relaxed);
    assert_eq!(scene.broker.expire().await.unwrap_err().kind(), Kind::Unavailable);
    assert!(!scene.is_gone("one").await && scene.is_gone("two").await);
    let degradations = scene.broker.degradations();
    assert!(degradations.len() == 1 && degradations[0].contains("vendor.one.v1"), "{degradations:?}");
    assert!(degradations[0].contains("the disk is gone"), "{degradations:?}");
    let tail = scene.tail();
    for _ in 0..3 {
        scene.clock.advance(60_000);
        scene.broker.expire().await.unwrap_err();
    }
    assert_eq!(scene.tail(), tail, "an entry that was carried over is not carried over again");
    scene.log.fails_in.store(0, Ordering::Relaxed);
    assert_eq!(scene.broker.expire().await.unwrap(), 1);
    assert!(scene.is_gone("one").await && scene.broker.degradations().is_empty());
    assert_eq!(scene.tail(), tail);
}

#[tokio::test]
async fn a_deleted_topic_whose_events_cannot_be_removed_keeps_no_other_from_being_expired() {
    let scene = RetentionFixture::new().await;
    scene.log.fails_in.store(2, Ordering::Relaxed);
    scene.broker.delete_topic(&topic_id("one"), false).await.unwrap();
    assert_eq!(scene.broker.expire().await.unwrap_err().kind(), Kind::Unavailable);
    assert!(scene.is_gone("two").await);
    let degradations = scene.broker.degradations();
    assert_eq!(degradations.len(), 1, "{degradations:?}");
    assert!(
        degradations[0].contains("deleted topics") && degradations[0].contains("the disk is gone"),
        "{degradations:?}"
    );
    scene.log.fails_in.store(0, Ordering::Relaxed);
    scene.broker.expire().await.unwrap();
    assert!(scene.broker.degradations().is_empty());
    let events = scene.log.segments(TopicNumber(2)).await.unwrap();
    assert!(events.is_empty(), "{events:?}");
}

/// A failed trim had recorded that the events were trimmed, and the deletion relied on it: the events were never
/// removed.
#[tokio::test]
async fn a_topic_that_is_deleted_after_a_trim_that_failed_loses_its_events() {
    let scene = RetentionFixture::new().await;
    scene.log.fails_in.store(2, Ordering::Relaxed);
    let trim = TrimRequest { through: Some(Sequence(1)), ..TrimRequest::default() };
    assert_eq!(scene.broker.trim_topic(&topic_id("one"), trim).await.unwrap_err().kind(), Kind::Unavailable);
    scene.broker.delete_topic(&topic_id("one"), true).await.unwrap();
    scene.log.fails_in.store(0, Ordering::Relaxed);
    scene.broker.expire().await.unwrap();
    let events = scene.log.segments(TopicNumber(2)).await.unwrap();
    assert!(events.is_empty(), "{events:?}");
    let tail = scene.tail();
    scene.broker.expire().await.unwrap();
    assert_eq!(scene.tail(), tail, "and the entry is written once");
}

#[tokio::test]
async fn where_nothing_may_be_removed_nothing_is_written_and_what_is_missing_is_told() {
    let scene = RetentionFixture::new().await;
    scene.log.forbids.store(true, Ordering::Relaxed);
    let tail = scene.tail();
    for _ in 0..3 {
        let refused = scene.broker.expire().await.unwrap_err();
        assert_eq!(refused.kind(), Kind::InvalidState);
        assert_eq!(refused.detail(), "Events cannot be removed: the role app may not delete.");
    }
    let degradations = scene.broker.degradations();
    assert_eq!(degradations, ["Retention of the log fails: Events cannot be removed: the role app may not delete."]);
    let trim = TrimRequest { through: Some(Sequence(1)), ..TrimRequest::default() };
    let refused = scene.broker.trim_topic(&topic_id("one"), trim).await.unwrap_err();
    assert_eq!((refused.kind(), refused.detail().contains("the role app")), (Kind::InvalidState, true));
    assert_eq!(scene.tail(), tail);
    scene.log.forbids.store(false, Ordering::Relaxed);
    assert_eq!(scene.broker.expire().await.unwrap(), 2);
    assert!(scene.broker.degradations().is_empty());
}

/// This broker's clock is a month ahead: it would remove events that are still within their retention.
#[tokio::test]
async fn a_broker_whose_clock_is_ahead_of_the_servers_removes_nothing_that_is_young_there() {
    let scene = RetentionFixture::new().await;
    *scene.log.server_time.lock().unwrap() = Some(1_764_763_200_000 + 3_600_000);
    assert_eq!(scene.broker.expire().await.unwrap(), 0);
    *scene.log.server_time.lock().unwrap() = Some(1_764_763_200_000 + 3_600_001);
    assert_eq!(scene.broker.expire().await.unwrap(), 2);
}

/// The header of an event says what outlives the event, so a damaged body is no reason to keep it or its neighbours.
#[tokio::test]
async fn a_flipped_bit_in_what_goes_does_not_stop_trimming() {
    let folder = damage::filled().await;
    damage::spoil(folder.path(), 25);
    let broker = damage::open(folder.path()).await;
    assert_eq!(broker.trim(&topic_id("default"), Sequence(40)).await.unwrap(), 40);
    let page = broker.read(TopicRead::all(topic_id("default")).after(Offset(40))).await.unwrap();
    assert_eq!(page.items.len(), 20);
    let next = broker.publish(damage::event(61), None).await.unwrap().event;
    assert_eq!((next.sequence.0, next.aggregate_sequence.0), (61, 9), "numbers are not reused");
}

#[tokio::test]
async fn no_snapshot_is_written_where_entries_may_not_be_removed() {
    let scene = RetentionFixture::new().await;
    scene.log.forbids.store(true, Ordering::Relaxed);
    let tail = *scene.log.tail().borrow();
    for _ in 0..2 {
        let refused = scene.broker.reclaim_now().await.unwrap_err();
        assert_eq!(refused.kind(), Kind::InvalidState, "{refused}");
    }
    assert_eq!(*scene.log.tail().borrow(), tail, "something was written");
    let degraded = scene.broker.degradations();
    let reply = "The log default: Reclaiming the broker's own entries fails, so the log grows: Entries cannot be removed: the \
        role app may not delete.";
    assert!(degraded.iter().any(|line| line == reply), "{degraded:?}");
}
