//! A shared log that is rolled back below running brokers: a fail-over to a replica that had not received everything,
//! or a restore from a backup.
//!
//! A broker that has read records that no longer exist detects this, returns nothing more from the log, and blocks no
//! caller.

use crate::scenario::{subject_type_id, topic_id, type_id};
use contract::api::*;
use contract::{BoxFuture, Kind, NewEvent, NewEventType, Offset, Position, PublishOutcome, TopicRead};
use event_broker::{Broker, Config, SystemClock};
use log::testing::{NO_LIMIT, in_time};
use log::{
    FollowedPage, Log, LogError, MemoryLog, ReadLimit, ReadRange, Record, RecordHeader, RecordQuery, TopicNumber,
};
use serde_json::value::RawValue;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::watch;
use uuid::Uuid;

/// A log in memory that several brokers share and that can be rolled back.
struct FallibleLog {
    log: RwLock<Arc<MemoryLog>>,
    tail: watch::Sender<Position>,
    /// The number of the connection; it grows by one with every rollback of the log.
    connection: AtomicU64,
    appends: AtomicU64,
    reads: AtomicU64,
    /// Reads return nothing after this position.
    reads_end: AtomicU64,
    /// The next call of the function with this name panics.
    panics: Mutex<Option<&'static str>>,
}

impl FallibleLog {
    fn new() -> Arc<Self> {
        let (log, tail) = (RwLock::new(Arc::new(MemoryLog::shared())), watch::Sender::new(Position::ZERO));
        let (appends, reads, reads_end) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(u64::MAX));
        let connection = AtomicU64::new(1);
        Arc::new(Self { log, tail, connection, appends, reads, reads_end, panics: Mutex::default() })
    }

    fn panic_if_told(&self, call: &'static str) {
        let is_told = self.panics.lock().unwrap().take_if(|reply| *reply == call).is_some();
        assert!(!is_told, "the test requested this panic");
    }

    fn now(&self) -> Arc<MemoryLog> {
        Arc::clone(&self.log.read().unwrap())
    }

    /// Removes everything after `end` without notice to the brokers.
    async fn go_back(&self, end: Position) {
        let mut records = self.now().read(ReadRange::All(Position::ZERO), NO_LIMIT).await.unwrap();
        records.retain(|record| record.header.position <= end);
        let older = MemoryLog::shared();
        older.append(Position::ZERO, records).await.unwrap();
        *self.log.write().unwrap() = Arc::new(older);
        self.connection.fetch_add(1, Ordering::SeqCst);
    }

    /// Reads the tail and notifies its watchers, as happens once a second.
    fn look(&self) {
        let tail = *self.now().tail().borrow();
        self.tail.send_replace(tail);
    }
}

impl Log for FallibleLog {
    fn append(&self, after: Position, batch: Vec<Record>) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            self.appends.fetch_add(1, Ordering::SeqCst);
            self.panic_if_told("append");
            let outcome = self.now().append(after, batch).await;
            if outcome.is_ok() {
                self.look();
            }
            outcome
        })
    }

    fn read(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<Record>, LogError>> {
        Box::pin(async move {
            self.reads.fetch_add(1, Ordering::SeqCst);
            self.panic_if_told("read");
            let mut page = self.now().read(range, limit).await?;
            page.retain(|record| record.header.position.0 <= self.reads_end.load(Ordering::SeqCst));
            Ok(page)
        })
    }

    fn follow(&self, after: Position, limit: ReadLimit) -> BoxFuture<'_, Result<FollowedPage, LogError>> {
        Box::pin(async move {
            let records = self.read(ReadRange::All(after), limit).await?;
            Ok(FollowedPage { records, connection: Some(self.connection.load(Ordering::SeqCst)) })
        })
    }

    fn tail(&self) -> watch::Receiver<Position> {
        self.tail.subscribe()
    }

    fn find(&self, what: RecordQuery) -> BoxFuture<'_, Result<Option<RecordHeader>, LogError>> {
        Box::pin(async move { self.now().find(what).await })
    }

    fn segments(&self, topic: TopicNumber) -> BoxFuture<'_, Result<Vec<contract::Segment>, LogError>> {
        Box::pin(async move { self.now().segments(topic).await })
    }

    fn remove(&self, topic: TopicNumber, through: contract::Sequence) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move { self.now().remove(topic, through).await })
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn blocks(&self) -> bool {
        false
    }
}

async fn open(log: &Arc<FallibleLog>) -> Broker {
    let log = Arc::clone(log) as Arc<dyn Log>;
    let broker = Broker::on_log(Config::default(), log, None, Arc::new(SystemClock)).await.unwrap();
    broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    broker
}

fn event(id: u128) -> NewEvent {
    let data = RawValue::from_string(r#"{"n":1}"#.to_owned()).unwrap();
    let mut event = NewEvent::new(type_id("placed").parse().unwrap(), "test", data);
    event.tenant = Some(Uuid::from_u128(1));
    event.id = Some(Uuid::from_u128(id));
    event.about(subject_type_id("order"), "o-1")
}

/// Publishes these events; returns the tail of the log afterwards.
async fn publish(broker: &Broker, log: &FallibleLog, ids: std::ops::RangeInclusive<u128>) -> Position {
    for id in ids {
        let published = in_time(broker.publish(event(id), None)).await.unwrap();
        assert_eq!(published.outcome, PublishOutcome::Created, "event {id}");
    }
    *log.now().tail().borrow()
}

/// Waits until the broker has read this many events.
async fn has_read(broker: &Broker, count: u64) {
    in_time(async {
        while broker.read(TopicRead::all(topic_id("default"))).await.unwrap().tail < Offset(count) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Waits until the broker reports a failure.
async fn fails(broker: &Broker) {
    let noticed = async {
        while broker.failure().is_none() {
            tokio::task::yield_now().await;
        }
    };
    in_time(noticed).await;
    let failure = broker.failure().unwrap();
    assert!(failure.detail().starts_with("The database does not hold everything any more"), "{failure}");
}

#[tokio::test]
async fn a_busy_broker_does_not_append_again_and_again_to_a_log_that_went_back() {
    let log = FallibleLog::new();
    let broker = open(&log).await;
    let end = publish(&broker, &log, 1..=2).await;
    publish(&broker, &log, 3..=9).await;
    log.go_back(end).await;
    let before = log.appends.load(Ordering::SeqCst);
    let refused = in_time(broker.publish(event(10), None)).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Unavailable);
    fails(&broker).await;
    assert!(log.appends.load(Ordering::SeqCst) - before <= 2);
    // No caller is blocked, and a reopened broker continues after the records that exist.
    let other = open(&log).await;
    let published = in_time(other.publish(event(3), None)).await.unwrap();
    assert_eq!((published.outcome, published.event.sequence.0), (PublishOutcome::Created, 3));
}

#[tokio::test]
async fn a_broker_that_cannot_read_what_others_wrote_does_not_append_again_and_again() {
    let log = FallibleLog::new();
    let broker = open(&log).await;
    let end = publish(&broker, &log, 1..=3).await;
    // A read connection that still leads to the old server.
    log.reads_end.store(end.0, Ordering::SeqCst);
    let other = open(&log).await;
    publish(&other, &log, 4..=4).await;
    let before = log.appends.load(Ordering::SeqCst);
    let refusal = in_time(broker.publish(event(5), None)).await.unwrap_err();
    assert_eq!(refusal.kind(), Kind::Unavailable, "{refusal}");
    let appends = log.appends.load(Ordering::SeqCst) - before;
    assert!(appends < 200, "{appends} appends");
    log.reads_end.store(u64::MAX, Ordering::SeqCst);
    while broker.publish(event(5), None).await.is_err() {
        tokio::task::yield_now().await;
    }
    assert!(broker.incident().is_none());
}

#[tokio::test]
async fn an_idle_broker_does_not_answer_a_repetition_from_a_record_that_is_gone() {
    for more in [1, 2, 5] {
        let log = FallibleLog::new();
        let (idle, other) = (open(&log).await, open(&log).await);
        let end = publish(&idle, &log, 1..=2).await;
        publish(&idle, &log, 3..=4).await;
        log.go_back(end).await;
        // Another broker on the replica: its log is shorter than what the idle one has read, as long, and longer.
        drop(other);
        let other = open(&log).await;
        publish(&other, &log, 101..=100 + more).await;
        let repeated = in_time(idle.publish(event(3), None)).await;
        assert_eq!(repeated.map(|it| it.outcome).map_err(|error| error.kind()), Err(Kind::Unavailable), "{more} more");
        fails(&idle).await;
        assert_eq!(publish(&other, &log, 3..=3).await, *log.now().tail().borrow());
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_broker_that_nobody_asks_notices_too() {
    for more in [0, 1, 2, 5] {
        let log = FallibleLog::new();
        let idle = open(&log).await;
        let end = publish(&idle, &log, 1..=2).await;
        publish(&idle, &log, 3..=4).await;
        log.go_back(end).await;
        let other = open(&log).await;
        publish(&other, &log, 101..=100 + more).await;
        for _ in 0..100 {
            tokio::time::advance(Duration::from_millis(100)).await;
            tokio::task::yield_now().await;
        }
        fails(&idle).await;
        assert!(other.failure().is_none(), "{more} more");
    }
}

#[tokio::test]
async fn a_poll_beyond_the_new_end_does_not_spin() {
    let log = FallibleLog::new();
    let broker = open(&log).await;
    let end = publish(&broker, &log, 1..=2).await;
    publish(&broker, &log, 3..=9).await;
    log.go_back(end).await;
    let before = log.reads.load(Ordering::SeqCst);
    let read = TopicRead::all(topic_id("default")).after(Offset(5));
    let ended = in_time(broker.wait(read, Duration::from_secs(25))).await.unwrap_err();
    assert_eq!(ended.kind(), Kind::Unavailable);
    assert!(log.reads.load(Ordering::SeqCst) - before < 10);
}

#[tokio::test]
async fn what_retention_removed_did_not_go_back() {
    let log = FallibleLog::new();
    let (broker, other) = (open(&log).await, open(&log).await);
    publish(&broker, &log, 1..=5).await;
    // The other broker's last record no longer exists at its next read.
    has_read(&other, 5).await;
    log.now().remove(TopicNumber(1), contract::Sequence(5)).await.unwrap();
    publish(&broker, &log, 6..=7).await;
    assert_eq!(in_time(other.publish(event(7), None)).await.unwrap().event.sequence.0, 7);
    assert!(broker.failure().is_none() && other.failure().is_none());
}

/// No response contains a lost event, in any lookup: aggregate, duplicate, next number.
async fn knows_nothing_of_the_lost(broker: &Broker, lost: u128) {
    let published = in_time(broker.publish(event(lost), None)).await.unwrap();
    assert_eq!(published.outcome, PublishOutcome::Created, "the id is new in this log");
    assert_eq!(published.event.aggregate_sequence.0, 21, "the sequence follows those of the new history");
}

/// Stores other events than the lost ones, and trims them: the last record of the lost history can then no longer be
/// compared.
async fn write_past_and_trim(log: &Arc<FallibleLog>, ids: std::ops::RangeInclusive<u128>) {
    let other = open(log).await;
    let count = u64::try_from(ids.clone().count()).unwrap();
    publish(&other, log, ids).await;
    let tail = in_time(other.read(TopicRead::all(topic_id("default")))).await.unwrap().tail.0;
    assert_eq!(tail, count + 2);
    assert!(in_time(other.trim(&topic_id("default"), contract::Sequence(tail))).await.unwrap() > 0);
}

/// The broker served a lost aggregate, and reported a lost event as a duplicate, permanently.
#[tokio::test]
async fn a_checkpoint_whose_record_was_removed_from_another_history_is_dropped() {
    let (log, folder) = (FallibleLog::new(), TempDir::new().unwrap());
    let open_in = |log: &Arc<FallibleLog>| {
        let log = Arc::clone(log) as Arc<dyn Log>;
        Broker::on_log(Config::default(), log, Some(folder.path().join("state")), Arc::new(SystemClock))
    };
    let broker = open_in(&log).await.unwrap();
    broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    let end = publish(&broker, &log, 1..=2).await;
    publish(&broker, &log, 3..=9).await;
    broker.close().await;
    drop(broker);
    log.go_back(end).await;
    log.look();
    write_past_and_trim(&log, 101..=118).await;
    let broker = open_in(&log).await.unwrap();
    knows_nothing_of_the_lost(&broker, 9).await;
    broker.close().await;
}

/// The same, with a broker that was disconnected during the rollback.
#[tokio::test]
async fn a_broker_whose_last_record_was_removed_from_another_history_does_not_go_on() {
    let log = FallibleLog::new();
    let idle = open(&log).await;
    let end = publish(&idle, &log, 1..=2).await;
    publish(&idle, &log, 3..=9).await;
    log.go_back(end).await;
    log.tail.send_replace(end);
    write_past_and_trim(&log, 101..=118).await;
    let refused = in_time(idle.publish(event(9), None)).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Unavailable);
    fails(&idle).await;
    knows_nothing_of_the_lost(&open(&log).await, 9).await;
}

#[tokio::test]
async fn a_checkpoint_of_records_that_are_gone_is_dropped_where_the_log_is_shared() {
    let (log, folder) = (FallibleLog::new(), TempDir::new().unwrap());
    let open_in = |log: &Arc<FallibleLog>| {
        let log = Arc::clone(log) as Arc<dyn Log>;
        Broker::on_log(Config::default(), log, Some(folder.path().join("state")), Arc::new(SystemClock))
    };
    let broker = open_in(&log).await.unwrap();
    broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    let end = publish(&broker, &log, 1..=2).await;
    publish(&broker, &log, 3..=9).await;
    broker.close().await;
    drop(broker);
    log.go_back(end).await;
    log.look();
    let broker = open_in(&log).await.unwrap();
    publish(&broker, &log, 3..=3).await;
    let again = broker.publish(event(2), None).await.unwrap();
    assert_eq!(again.outcome, PublishOutcome::Duplicate { payload_mismatch: false });
    broker.close().await;
}

#[tokio::test]
async fn a_panic_of_the_appender_or_the_writer_is_noticed_and_another_broker_goes_on() {
    for call in ["append", "read"] {
        let log = FallibleLog::new();
        let (broker, other) = (open(&log).await, open(&log).await);
        publish(&broker, &log, 1..=2).await;
        has_read(&other, 2).await;
        if call == "read" {
            // The writer reads the records of another broker.
            *log.panics.lock().unwrap() = Some(call);
            publish(&other, &log, 3..=3).await;
            in_time(broker.failed()).await;
        }
        *log.panics.lock().unwrap() = (call == "append").then_some(call);
        let refused = in_time(broker.publish(event(4), None)).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Unavailable, "{call}");
        let incident = in_time(broker.failed()).await;
        assert!(broker.failure().is_some(), "{call}: {incident}");
        assert_eq!(in_time(broker.publish(event(5), None)).await.unwrap_err().kind(), Kind::Unavailable);
        in_time(broker.abandon(&incident)).await;
        publish(&other, &log, 4..=4).await;
    }
}
