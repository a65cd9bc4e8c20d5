//! An outage of a log's server: appends in flight are resolved after it, and new requests are refused during it.

use crate::scenario::{subject_type_id, topic_id, type_id};
use contract::api::*;
use contract::{BoxFuture, Kind, NewEvent, NewEventType, Position, PublishOutcome, Sequence, TopicRead};
use contract::{ClaimAnswer, ClaimError, ClaimFailure, Completion, NewClaim, NewHandler};
use event_broker::{Broker, Config, SystemClock};
use log::testing::in_time;
use log::{Log, LogError, MemoryLog, ReadLimit, ReadRange, Record, RecordHeader, TopicNumber};
use serde_json::value::RawValue;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use uuid::Uuid;

/// The outcome of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AppendFate {
    /// The append succeeds.
    Stored,
    /// The connection breaks before the server has read the records.
    Lost,
    /// The server stores the records, and the connection breaks before it can reply.
    StoredUnsaid,
    /// As `Lost`, and another broker appends first.
    Overtaken,
}

/// A memory log behind a simulated connection.
struct FlakyServer {
    log: MemoryLog,
    fates: Mutex<Vec<AppendFate>>,
    /// The number of reads that fail before the server is reachable again.
    away: AtomicU32,
    /// The number of appends started.
    begun: watch::Sender<u32>,
    /// An append waits for one of these permits.
    may_end: Semaphore,
}

fn cut() -> LogError {
    LogError::Unavailable(Arc::new(io::Error::from(io::ErrorKind::ConnectionReset)))
}

impl FlakyServer {
    fn fate(&self) -> AppendFate {
        self.fates.lock().unwrap().pop().unwrap_or(AppendFate::Stored)
    }

    fn is_away(&self) -> bool {
        self.away.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }

    /// Another broker's entry at the tail.
    async fn overtake(&self, after: Position, like: &Record) {
        let other =
            serde_json::json!({"fact": "offsetCommitted", "group": "g", "topic": topic_id("default"), "offset": 0});
        let sequence = self
            .log
            .read(ReadRange::Topic(TopicNumber::LEDGER, Sequence(0)), ReadLimit { records: 1000, bytes: 1 << 20 });
        let sequence = Sequence(sequence.await.unwrap().last().unwrap().header.sequence.0 + 1);
        let header = RecordHeader {
            position: Position(after.0 + 1),
            topic: TopicNumber::LEDGER,
            sequence,
            time: like.header.time,
            id: 0,
            facets: None,
        };
        self.log.append(after, vec![Record { header, body: other.to_string().into() }]).await.unwrap();
    }
}

impl Log for FlakyServer {
    fn append(&self, after: Position, batch: Vec<Record>) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            self.begun.send_modify(|begun| *begun += 1);
            self.may_end.acquire().await.unwrap().forget();
            match self.fate() {
                AppendFate::Stored => return self.log.append(after, batch).await,
                AppendFate::StoredUnsaid => self.log.append(after, batch).await?,
                AppendFate::Overtaken => self.overtake(after, &batch[0]).await,
                AppendFate::Lost => (),
            }
            Err(cut())
        })
    }

    fn read(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<Record>, LogError>> {
        if self.is_away() {
            return Box::pin(async { Err(cut()) });
        }
        self.log.read(range, limit)
    }

    fn blocks(&self) -> bool {
        false
    }

    log::forward_rest!();
}

async fn broker() -> (Broker, Arc<FlakyServer>) {
    let server = Arc::new(FlakyServer {
        log: MemoryLog::new(),
        fates: Mutex::default(),
        away: AtomicU32::new(0),
        begun: watch::Sender::new(0),
        may_end: Semaphore::new(Semaphore::MAX_PERMITS),
    });
    let log = Arc::clone(&server) as Arc<dyn Log>;
    let broker = Broker::on_log(Config::default(), log, None, Arc::new(SystemClock)).await.unwrap();
    broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    (broker, server)
}

fn event(id: u128) -> NewEvent {
    let data = RawValue::from_string(r#"{"n":1}"#.to_owned()).unwrap();
    let mut event = NewEvent::new(type_id("placed").parse().unwrap(), "test", data);
    event.tenant = Some(Uuid::from_u128(1));
    event.id = Some(Uuid::from_u128(id));
    event.about(subject_type_id("order"), "o-1")
}

async fn stored(broker: &Broker) -> Vec<u128> {
    let page = broker.read(TopicRead::all(topic_id("default"))).await.unwrap();
    page.items.iter().map(|event| event.id.as_u128()).collect()
}

#[tokio::test]
async fn an_append_cut_off_half_way_is_settled_by_what_is_stored() {
    for (fates, away) in [
        (vec![AppendFate::Lost], 0),
        (vec![AppendFate::Lost], 3),
        (vec![AppendFate::StoredUnsaid], 0),
        (vec![AppendFate::StoredUnsaid], 3),
        (vec![AppendFate::Overtaken], 1),
        (vec![AppendFate::StoredUnsaid, AppendFate::Lost, AppendFate::Overtaken, AppendFate::Lost], 0),
    ] {
        let (broker, server) = broker().await;
        broker.publish(event(1), None).await.unwrap();
        server.fates.lock().unwrap().clone_from(&fates);
        server.away.store(away, Ordering::SeqCst);
        let published = broker.publish(event(2), None).await.unwrap();
        assert_eq!(published.outcome, PublishOutcome::Created, "{fates:?}");
        assert_eq!(published.event.aggregate_sequence.0, 2, "{fates:?}");
        let again = broker.publish(event(2), None).await.unwrap();
        assert_eq!(again.outcome, PublishOutcome::Duplicate { payload_mismatch: false }, "{fates:?}");
        assert_eq!(again.event, published.event, "{fates:?}");
        assert_eq!(stored(&broker).await, [1, 2], "{fates:?}");
        assert!(broker.failure().is_none(), "{fates:?}");
        broker.close().await;
    }
}

#[tokio::test]
async fn two_appends_cut_off_half_way_are_settled_by_what_is_stored() {
    for fates in [
        [AppendFate::StoredUnsaid, AppendFate::StoredUnsaid],
        [AppendFate::StoredUnsaid, AppendFate::Lost],
        [AppendFate::Lost, AppendFate::Lost],
        [AppendFate::Overtaken, AppendFate::Lost],
        [AppendFate::Stored, AppendFate::StoredUnsaid],
        [AppendFate::Stored, AppendFate::Lost],
    ] {
        let (broker, server) = broker().await;
        let broker = Arc::new(broker);
        let mut begun = server.begun.subscribe();
        let before = *begun.borrow();
        server.may_end.forget_permits(Semaphore::MAX_PERMITS);
        let mut publishing = JoinSet::new();
        let mut publish = |ids: std::ops::RangeInclusive<u128>| {
            for id in ids {
                let broker = Arc::clone(&broker);
                publishing.spawn(async move { broker.publish(event(id), None).await });
            }
        };
        publish(1..=1);
        in_time(begun.wait_for(|begun| *begun == before + 1)).await.unwrap();
        publish(2..=3);
        server.may_end.add_permits(1);
        in_time(begun.wait_for(|begun| *begun >= before + 2)).await.unwrap();
        publish(4..=6);
        // The append was started before the preceding one ended.
        in_time(begun.wait_for(|begun| *begun == before + 3)).await.unwrap();
        server.fates.lock().unwrap().extend(fates.iter().rev());
        server.may_end.add_permits(1000);
        for published in in_time(publishing.join_all()).await {
            assert_eq!(published.unwrap().outcome, PublishOutcome::Created, "{fates:?}");
        }
        let mut stored = stored(&broker).await;
        stored.sort_unstable();
        assert_eq!(stored, [1, 2, 3, 4, 5, 6], "{fates:?}");
        assert!(broker.failure().is_none(), "{fates:?}");
        broker.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_server_is_away_new_requests_are_refused_and_afterwards_taken() {
    let (broker, server) = broker().await;
    let broker = Arc::new(broker);
    server.away.store(u32::MAX, Ordering::SeqCst);
    server.fates.lock().unwrap().push(AppendFate::Lost);
    let under_way = {
        let broker = Arc::clone(&broker);
        tokio::spawn(async move { broker.publish(event(1), None).await })
    };
    while broker.failure().is_none() {
        tokio::task::yield_now().await;
    }
    let refused = broker.publish(event(2), None).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Unavailable);
    assert!(refused.retry_after_seconds().is_some());
    server.away.store(0, Ordering::SeqCst);
    assert_eq!(under_way.await.unwrap().unwrap().outcome, PublishOutcome::Created);
    assert!(broker.failure().is_none());
    assert_eq!(broker.publish(event(3), None).await.unwrap().outcome, PublishOutcome::Created);
    assert_eq!(stored(&broker).await, [1, 3]);
    broker.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_server_is_away_nobody_gets_or_ends_a_claim_and_afterwards_it_goes_on() {
    let (broker, server) = broker().await;
    let broker = Arc::new(broker);
    for id in 1..=2 {
        broker.publish(event(id), None).await.unwrap();
    }
    let claim = |sequence| NewClaim::at("billing", topic_id("default"), Sequence(sequence));
    let held = broker.claim(claim(1), None).await.unwrap().claim.unwrap();
    server.away.store(u32::MAX, Ordering::SeqCst);
    server.fates.lock().unwrap().push(AppendFate::Lost);
    let under_way = {
        let broker = Arc::clone(&broker);
        tokio::spawn(async move { broker.publish(event(3), None).await })
    };
    while broker.failure().is_none() {
        tokio::task::yield_now().await;
    }
    let failure = ClaimFailure { token: held.token, error: ClaimError::new("X", "y"), retryable: None };
    for refused in [
        broker.claim(claim(2), None).await.map(drop),
        broker.heartbeat(&held.id, held.token).await.map(drop),
        broker.complete_claim(&held.id, Completion::of(held.token), None).await.map(drop),
        broker.fail_claim(&held.id, failure).await.map(drop),
        broker.put_handler("billing", NewHandler::default()).await.map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), Kind::Unavailable);
        assert!(refused.retry_after_seconds().is_some());
    }
    server.away.store(0, Ordering::SeqCst);
    under_way.await.unwrap().unwrap();
    broker.complete_claim(&held.id, Completion::of(held.token), None).await.unwrap();
    assert_eq!(broker.claim(claim(1), None).await.unwrap().outcome, ClaimAnswer::Done);
    assert_eq!(broker.claim(claim(3), None).await.unwrap().outcome, ClaimAnswer::Claimed);
    broker.close().await;
}
