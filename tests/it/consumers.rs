//! Consumers and groups: filters, sessions, offsets, and what a restart preserves.

use crate::overload::GatedLog;
use crate::scenario::{check, check_alone, subject_type_id, topic_id, type_id};
use contract::api::*;
use contract::{
    AggregateRead, AggregateSequence, Consumer, EventPage, Kind, NewConsumer, NewEvent, NewEventType, Offset, Position,
    Result, Sequence, Timestamp, limits,
};
use event_broker::ledger::Entry;
use event_broker::{Broker, Clock, Config, ManualClock, StorageConfig};
use log::file::{FileLog, FileLogOptions};
use log::testing::fault_disk::{DiskFault, DiskOperation, FaultDisk};
use log::{Log, MemoryLog, ReadLimit, ReadRange, Record, RecordHeader, TopicNumber};
use serde_json::json;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const EVENTS: &str = r#"
        topic orders                                -> created
        type placed topic=orders                    -> created
        type shipped topic=orders                   -> created
        publish placed a data={"userId":"user-12345"}   -> created 1 aggregate 1
        publish shipped a data={"userId":"user-12345"}  -> created 2 aggregate 2
        publish placed b of=parcel data={"userId":"other"}  -> created 3 aggregate 1
"#;

fn with_events(text: &str) {
    check(&format!("{EVENTS}{text}"));
}

/// If no other broker serves polls, sessions expire with millisecond precision.
fn alone_with_events(text: &str) {
    check_alone(&format!("{EVENTS}{text}"));
}

#[test]
fn a_consumer_reads_its_topic_through_its_filter() {
    with_events(
        "
        consumer all topic=orders                                                        -> created
        consumer placed topic=orders type=gts.hyperspot.core.events.type.v1~vendor.app.placed.v1 -> created
        consumer parcels topic=orders subject-type=gts.vendor.app.parcel.v1~             -> created
        consumer both topic=orders type=gts.hyperspot.* subject-type=gts.vendor.app.order.v1 -> created
        consumer seed topic=orders cel=has(data) && data.userId == 'user-12345'          -> created
        poll all                       -> 1 2 3 next 3 tail 3
        poll all after=1 limit=1       -> 2 next 2 tail 3
        poll placed                    -> 1 3 next 3 tail 3
        poll parcels                   -> 3 next 3 tail 3
        poll both                      -> 1 2 next 3 tail 3
        poll seed                      -> 1 2 next 3 tail 3
        poll seed after=1              -> 2 next 3 tail 3
        poll seed after=2 wait=1       -> next 3 tail 3
        poll all wait=30000            -> 1 2 3 next 3 tail 3
        poll all limit=0               -> VALIDATION_ERROR /limit
        poll all limit=101 wait=1      -> VALIDATION_ERROR /limit
        poll all wait=30001            -> VALIDATION_ERROR /timeout
        poll nobody                    -> NOT_FOUND
        crash
        poll seed                      -> 1 2 next 3 tail 3
    ",
    );
}

#[test]
fn a_consumer_that_breaks_a_rule_is_refused_and_leaves_nothing() {
    let long = "x".repeat(513);
    with_events(&format!(
        "
        consumer c topic=nowhere               -> VALIDATION_ERROR /topic
        consumer c group=(none)                -> VALIDATION_ERROR /consumerGroup
        consumer c group=a(control)b           -> VALIDATION_ERROR /consumerGroup
        consumer c group={long}                -> VALIDATION_ERROR /consumerGroup
        consumer c session=PT0.999S            -> VALIDATION_ERROR /sessionTimeout
        consumer c session=PT86401S            -> VALIDATION_ERROR /sessionTimeout
        consumer c cel=data. ==                -> VALIDATION_ERROR /CEL
        consumer c cel=nonsense == 1           -> VALIDATION_ERROR /CEL
        consumer c group=(none) session=PT0S shared flight=0 cel=( -> VALIDATION_ERROR /consumerGroup /sessionTimeout /maxInFlight /CEL
        consumer c type=hello                  -> INVALID_TYPE
        consumers                              ->
        groups                                 -> end
        consumer least session=PT1S            -> created
        consumer most session=P1D              -> created
        consumers                              -> least most
    "
    ));
}

#[test]
fn a_session_ends_on_time_and_begins_anew_with_every_poll_and_commit() {
    alone_with_events(
        "
        consumer c topic=orders session=PT30S  -> created
        session c                              -> seen 0 expires 30000
        advance 29999
        session c                              -> seen -29999 expires 1
        poll c after=3                         -> next 3 tail 3
        session c                              -> seen 0 expires 30000
        advance 9999
        poll c after=3 wait=1                  -> next 3 tail 3
        session c                              -> seen 0 expires 30000
        advance 29999
        commit c 1                             -> orders 1 of 3 lag 2 by c
        session c                              -> seen 0 expires 30000
        advance 29999
        session c                              -> seen -29999 expires 1
        poll c limit=0                         -> VALIDATION_ERROR /limit
        commit c 4                             -> VALIDATION_ERROR /offset
        session c                              -> seen -29999 expires 1
        advance 1
        session c                              -> NOT_FOUND
        poll c                                 -> NOT_FOUND
        poll c wait=1                          -> NOT_FOUND
        commit c 1                             -> NOT_FOUND
        delete c                               -> NOT_FOUND
        consumers                              ->
        consumers group=g                      ->
        group g                                -> orders 1 of 3 lag 2
        step -2
        session c                              -> NOT_FOUND
    ",
    );
}

#[test]
fn a_session_survives_a_restart_and_lasts_at_most_a_third_longer_for_it() {
    alone_with_events(
        "
        consumer c topic=orders session=PT30S  -> created
        advance 9999
        poll c after=3                         -> next 3 tail 3
        crash
        session c                              -> seen -9999 expires 20001
        advance 30000
        session c                              -> seen -39999 expires -9999
        advance 1
        session c                              -> NOT_FOUND
        consumer c topic=orders session=PT30S  -> created
        advance 10000
        poll c after=3                         -> next 3 tail 3
        crash
        session c                              -> seen 0 expires 30000
        advance 39999
        poll c after=3                         -> next 3 tail 3
        advance 30000
        poll c after=3                         -> NOT_FOUND
    ",
    );
}

#[test]
fn consumers_and_offsets_come_back_from_a_checkpoint_and_from_the_log_alike() {
    with_events(
        "
        topic parcels                          -> created
        consumer a group=one topic=orders session=PT1H cel=has(data) && data.userId == 'other' -> created
        consumer b group=one topic=parcels session=PT1H -> created
        consumer c group=two topic=orders session=PT1H  -> created
        commit a 2                             -> orders 2 of 3 lag 1 by a
        commit c 3                             -> orders 3 of 3 lag 0 by c
        reset two orders 1                     -> orders 1 of 3 lag 2 by c
        reset three parcels earliest           -> parcels 0 of 0 lag 0
        delete c                               -> deleted
        reopen
        group one                              -> orders 2 of 3 lag 1 by a | parcels 0 of 0 lag 0 by b
        group two                              -> orders 1 of 3 lag 2
        groups                                 -> one three two end
        consumers                              -> a b
        poll a                                 -> 3 next 3 tail 3
        rebuild
        group one                              -> orders 2 of 3 lag 1 by a | parcels 0 of 0 lag 0 by b
        group two                              -> orders 1 of 3 lag 2
        groups                                 -> one three two end
        consumers                              -> a b
        poll a                                 -> 3 next 3 tail 3
        crash
        group one                              -> orders 2 of 3 lag 1 by a | parcels 0 of 0 lag 0 by b
        session b                              -> seen 0 expires 3600000
        delete c                               -> NOT_FOUND
    ",
    );
}

#[test]
fn consumers_and_groups_are_listed_in_pages() {
    check(
        "
        consumer a group=one                   -> created
        consumer b group=two                   -> created
        consumer c group=one                   -> created
        consumer d group=three                 -> created
        consumers                              -> a b c d
        consumers limit=1                      -> a b c d
        consumers limit=3                      -> a b c d
        consumers group=one limit=1            -> a c
        consumers group=nobody                 ->
        consumers limit=0                      -> VALIDATION_ERROR /limit
        groups                                 -> one three two end
        groups limit=2                         -> one three more
        groups limit=2 after=three             -> two end
        groups limit=101                       -> VALIDATION_ERROR /limit
        delete d                               -> deleted
        groups                                 -> one two end
        group three                            -> NOT_FOUND
        group two                              -> default 0 of 0 lag 0 by b
    ",
    );
}

#[test]
fn a_commit_moves_forward_only_and_never_beyond_the_tail() {
    with_events(
        "
        consumer slow topic=orders             -> created
        consumer fast topic=orders             -> created
        commit slow 0                          -> orders 0 of 3 lag 3 by fast slow
        commit fast 2                          -> orders 2 of 3 lag 1 by fast slow
        commit slow 1                          -> orders 2 of 3 lag 1 by fast slow
        commit slow 2                          -> orders 2 of 3 lag 1 by fast slow
        commit slow 4                          -> VALIDATION_ERROR /offset
        commit slow 3                          -> orders 3 of 3 lag 0 by fast slow
        publish placed a                       -> created 4 aggregate 3
        group g                                -> orders 3 of 4 lag 1 by fast slow
        commit nobody 1                        -> NOT_FOUND
        delete slow                            -> deleted
        delete slow                            -> NOT_FOUND
        commit slow 4                          -> NOT_FOUND
        delete fast                            -> deleted
        group g                                -> orders 3 of 4 lag 1
    ",
    );
}

#[test]
fn a_group_can_be_moved_anywhere_in_its_topic() {
    check(
        "
        topic orders                           -> created
        type placed topic=orders               -> created
        type other                             -> created
        publish placed a                       -> created 1 aggregate 1
        advance 1000
        publish other a                        -> created 1 aggregate 1
        publish placed a                       -> created 2 aggregate 2
        advance 1000
        publish other a                        -> created 2 aggregate 2
        advance 1000
        publish placed a                       -> created 3 aggregate 3
        advance 1000
        publish other a                        -> created 3 aggregate 3
        group g                                -> NOT_FOUND
        reset g nowhere latest                 -> VALIDATION_ERROR /topic
        reset (none) orders latest             -> VALIDATION_ERROR /consumerGroup
        reset g orders 4                       -> VALIDATION_ERROR /offset
        group g                                -> NOT_FOUND
        reset g orders latest                  -> orders 3 of 3 lag 0
        reset g orders earliest                -> orders 0 of 3 lag 3
        reset g orders 2                       -> orders 2 of 3 lag 1
        reset g orders time=-99999             -> orders 0 of 3 lag 3
        reset g orders time=-4000              -> orders 0 of 3 lag 3
        reset g orders time=-3999              -> orders 1 of 3 lag 2
        reset g orders time=-3000              -> orders 1 of 3 lag 2
        reset g orders time=-2999              -> orders 2 of 3 lag 1
        reset g orders at=2025-12-03T12:00:01.000Z      -> orders 1 of 3 lag 2
        reset g orders at=2025-12-03T12:00:01.000001Z   -> orders 2 of 3 lag 1
        reset g orders time=-2000              -> orders 2 of 3 lag 1
        reset g orders time=-1000              -> orders 2 of 3 lag 1
        reset g orders time=-999               -> orders 3 of 3 lag 0
        reset g orders time=0                  -> orders 3 of 3 lag 0
        reset g orders time=99999              -> orders 3 of 3 lag 0
        consumer c topic=orders                -> created
        commit c 1                             -> orders 3 of 3 lag 0 by c
        reset g orders 0                       -> orders 0 of 3 lag 3 by c
        commit c 1                             -> orders 1 of 3 lag 2 by c
        trim orders 2                          -> removed 2
        group g                                -> orders 1 of 3 lag 1 by c
        poll c after=1                         -> TRIMMED earliest 3
        poll c after=earliest                  -> 3 next 3 tail 3
        poll c after=earliest wait=1           -> 3 next 3 tail 3
        poll c after=latest                    -> next 3 tail 3
        reset g orders earliest                -> orders 2 of 3 lag 1 by c
        reset g orders time=-99999             -> orders 2 of 3 lag 1 by c
        trim orders 3                          -> removed 1
        reset g orders earliest                -> orders 3 of 3 lag 0 by c
        reset g orders time=-99999             -> orders 3 of 3 lag 0 by c
        crash
        group g                                -> orders 3 of 3 lag 0 by c
    ",
    );
}

/// An in-memory broker whose clock the test sets, with access to its log.
struct ManualClockBroker {
    broker: Arc<Broker>,
    clock: Arc<ManualClock>,
    log: Arc<MemoryLog>,
}

impl ManualClockBroker {
    async fn new(config: Config) -> Self {
        let (clock, log) = (Arc::new(ManualClock::at(1_764_763_200_000)), Arc::new(MemoryLog::new()));
        Self::on(log.clone(), log, clock, config).await
    }

    /// A broker on a log that keeps its records in `log`.
    async fn on(outer: Arc<dyn Log>, log: Arc<MemoryLog>, clock: Arc<ManualClock>, config: Config) -> Self {
        let broker = Broker::on_log(config, outer, None, clock.clone()).await.unwrap();
        broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
        Self { broker: Arc::new(broker), clock, log }
    }

    async fn consumer(&self, session: &str) -> Uuid {
        let mut consumer = NewConsumer::new("g", topic_id("default"));
        consumer.session_timeout = Some(session.parse().unwrap());
        self.broker.create_consumer(consumer).await.unwrap().id
    }

    /// Starts a long poll and returns it once it waits.
    async fn waiting_poll(&self, id: Uuid) -> tokio::task::JoinHandle<Result<EventPage>> {
        let broker = self.broker.clone();
        let poll =
            tokio::spawn(async move { broker.wait_as(id, Offset::ZERO.into(), 100, Duration::from_secs(30)).await });
        // Only a waiting poll advances with the clock.
        let waits = async {
            loop {
                self.clock.advance(1);
                if self.broker.consumer(id).await.unwrap().last_seen_at.millis() == self.clock.now() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waits).await.unwrap();
        poll
    }

    async fn publish(&self) {
        let data = RawValue::from_string("{}".to_owned()).unwrap();
        let event = NewEvent::new(type_id("placed").parse().unwrap(), "test", data);
        let mut event = event.about(subject_type_id("order"), "a");
        event.tenant = Some(Uuid::from_u128(1));
        self.broker.publish(event, None).await.unwrap();
    }

    fn aggregate(&self) -> AggregateRead {
        let (subject_type, subject) = (Some(subject_type_id("order")), "a".to_owned());
        AggregateRead { topic: topic_id("default"), subject_type, subject, after: AggregateSequence::ZERO, limit: 1 }
    }

    async fn entries(&self) -> Vec<Record> {
        let limit = ReadLimit { records: usize::MAX, bytes: usize::MAX };
        self.log.read(ReadRange::Topic(TopicNumber::LEDGER, Sequence::ZERO), limit).await.unwrap()
    }

    /// How many times a fact occurs in the log.
    async fn count(&self, fact: &str) -> usize {
        let start = format!(r#"{{"fact":"{fact}","#);
        self.entries().await.iter().filter(|record| record.body.starts_with(start.as_bytes())).count()
    }
}

#[tokio::test]
async fn a_thousand_polls_write_once_in_a_third_of_a_session() {
    let scene = ManualClockBroker::new(Config::default()).await;
    let id = scene.consumer("PT30S").await;
    for _ in 0..1000 {
        scene.clock.advance(30);
        scene.broker.read_as(id, Offset::ZERO.into(), 1).await.unwrap();
    }
    assert_eq!(scene.count("consumerSeen").await, 2);
    scene.clock.advance(60);
    let polls = (0..64).map(|_| {
        let broker = scene.broker.clone();
        tokio::spawn(async move { broker.read_as(id, Offset::ZERO.into(), 1).await })
    });
    for poll in polls.collect::<Vec<_>>() {
        poll.await.unwrap().unwrap();
    }
    assert_eq!(scene.count("consumerSeen").await, 3);
}

#[tokio::test]
async fn commits_under_way_together_never_move_an_offset_back() {
    let (gated, clock) = (Arc::new(GatedLog::new()), Arc::new(ManualClock::at(1_764_763_200_000)));
    let scene = ManualClockBroker::on(gated.clone(), gated.log.clone(), clock, Config::default()).await;
    let id = scene.consumer("PT30S").await;
    for _ in 0..8 {
        scene.publish().await;
    }
    gated.set(false);
    let commit = |offset| {
        let broker = scene.broker.clone();
        tokio::spawn(async move { broker.commit_offset(id, Offset(offset)).await })
    };
    // The highest offset first: the other commits are decided before it is durable.
    let commits: Vec<_> = [7, 3, 9, 5, 8].map(commit).into();
    tokio::task::yield_now().await;
    // The writer has responded, so every earlier request is decided.
    scene.broker.aggregate(scene.aggregate()).await.unwrap();
    gated.set(true);
    for (commit, least) in commits.into_iter().zip([Ok(7), Ok(7), Err(Kind::Validation), Ok(7), Ok(8)]) {
        let answer = commit.await.unwrap();
        let reached = answer.map(|topic| topic.committed_offset.0).map_err(|error| error.kind());
        assert!(reached == least || reached == Ok(8) && least == Ok(7), "{reached:?}");
    }
    assert_eq!(scene.broker.consumer_group("g").await.unwrap().topics[0].committed_offset, Offset(8));
    assert_eq!(scene.count("offsetCommitted").await, 2);
}

#[tokio::test]
async fn a_full_house_refuses_until_somebody_has_expired() {
    let scene = ManualClockBroker::new(Config::default()).await;
    let id = scene.consumer("PT30S").await;
    let one = scene.broker.consumer(id).await.unwrap();
    scene.broker.close().await;
    let tail = *scene.log.tail().borrow();
    let entries = scene.entries().await.len() as u64;
    let others = (1..limits::CONSUMERS_MAX as u64).map(|number| {
        let consumer = Consumer { id: Uuid::from_u128(u128::from(number)), ..one.clone() };
        let header = RecordHeader {
            position: Position(tail.0 + number),
            topic: TopicNumber::LEDGER,
            sequence: Sequence(entries + number),
            time: scene.clock.now(),
            id: 0,
            facets: None,
        };
        Record { header, body: serde_json::to_vec(&Entry::ConsumerCreated { consumer }).unwrap().into() }
    });
    scene.log.append(tail, others.collect()).await.unwrap();
    let broker = Broker::on_log(Config::default(), scene.log.clone(), None, scene.clock.clone()).await.unwrap();
    let scene = ManualClockBroker { broker: Arc::new(broker), ..scene };
    let refusal = scene.broker.create_consumer(NewConsumer::new("g", topic_id("default"))).await.unwrap_err();
    assert_eq!((refusal.kind(), refusal.retry_after_seconds()), (Kind::Overloaded, Some(30)));
    scene.clock.advance(40_000);
    scene.consumer("PT30S").await;
    assert_eq!(scene.count("consumersExpired").await, 1);
    scene.consumer("PT30S").await;
    assert_eq!(scene.count("consumersExpired").await, 1, "there is room for more consumers");
}

#[tokio::test]
async fn consumers_read_on_when_nothing_can_be_written() {
    let (disk, clock) = (FaultDisk::new(), Arc::new(ManualClock::at(1_764_763_200_000)));
    let log = FileLog::open(Arc::new(disk.clone()), FileLogOptions::default()).unwrap();
    let config = Config { storage: StorageConfig::folder("unused"), ..Config::default() };
    let broker = Broker::on_log(config, Arc::new(log), None, clock.clone()).await.unwrap();
    let id = broker.create_consumer(NewConsumer::new("g", topic_id("default"))).await.unwrap().id;
    disk.fail(DiskOperation::Sync, 1, DiskFault::Error(std::io::ErrorKind::Other));
    clock.advance(29_999);
    broker.read_as(id, Offset::ZERO.into(), 1).await.unwrap();
    assert_eq!(broker.failure().unwrap().kind(), Kind::Unavailable);
    clock.advance(29_999);
    broker.read_as(id, Offset::ZERO.into(), 1).await.unwrap();
    assert_eq!(broker.commit_offset(id, Offset(0)).await.unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(broker.delete_consumer(id).await.unwrap_err().kind(), Kind::Unavailable);
    broker.consumer(id).await.unwrap();
}

#[tokio::test]
async fn a_waiting_poll_outlives_its_session_and_begins_it_anew() {
    let mut config = Config::default();
    config.maintenance.retention_check_secs = 0;
    let scene = ManualClockBroker::new(config).await;
    let id = scene.consumer("PT1S").await;
    let poll = scene.waiting_poll(id).await;
    scene.clock.advance(3_600_000);
    assert_eq!(scene.broker.consumer(id).await.unwrap().last_seen_at.millis(), scene.clock.now());
    scene.publish().await;
    assert_eq!(poll.await.unwrap().unwrap().items.len(), 1);
    scene.clock.advance(999);
    assert_eq!(scene.broker.consumer(id).await.unwrap().expires_at.millis(), scene.clock.now() + 1);
    scene.clock.advance(1);
    assert_eq!(scene.broker.consumer(id).await.unwrap_err().kind(), Kind::NotFound);
}

#[tokio::test]
async fn a_caller_that_hangs_up_leaves_a_session_that_runs_out() {
    let scene = ManualClockBroker::new(Config::default()).await;
    let id = scene.consumer("PT1S").await;
    let poll = scene.waiting_poll(id).await;
    scene.clock.advance(5000);
    poll.abort();
    assert!(poll.await.unwrap_err().is_cancelled());
    scene.clock.advance(999);
    scene.broker.consumer(id).await.unwrap();
    scene.clock.advance(1);
    assert_eq!(scene.broker.consumer(id).await.unwrap_err().kind(), Kind::NotFound);
}

#[tokio::test]
async fn a_deleted_consumers_waiting_poll_ends_not_found_at_once() {
    let scene = ManualClockBroker::new(Config::default()).await;
    let id = scene.consumer("P1D").await;
    let poll = scene.waiting_poll(id).await;
    scene.broker.delete_consumer(id).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), poll).await.expect("the poll must end");
    assert_eq!(ended.unwrap().unwrap_err().kind(), Kind::NotFound);
}

#[tokio::test]
async fn expired_consumers_are_cleared_away_by_a_fact_and_waiting_ones_are_not() {
    let mut config = Config::default();
    config.maintenance.retention_check_secs = 0;
    let scene = ManualClockBroker::new(config).await;
    for _ in 0..3 {
        scene.consumer("PT1S").await;
    }
    let waits = scene.consumer("PT1S").await;
    let poll = scene.waiting_poll(waits).await;
    scene.clock.advance(2000);
    let cleared = async {
        while scene.count("consumersExpired").await == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), cleared).await.expect("the background task must run");
    let group = scene.broker.consumer_group("g").await.unwrap();
    assert_eq!(group.topics[0].members.iter().map(|member| member.consumer_id).collect::<Vec<_>>(), [waits]);
    scene.publish().await;
    assert_eq!(poll.await.unwrap().unwrap().items.len(), 1);
}

#[tokio::test]
async fn another_broker_on_the_log_knows_the_same_consumers_and_offsets() {
    let scene = ManualClockBroker::new(Config::default()).await;
    let id = scene.consumer("PT30S").await;
    scene.publish().await;
    let other = Broker::on_log(Config::default(), scene.log.clone(), None, scene.clock.clone()).await.unwrap();
    assert_eq!(other.read_as(id, Offset::ZERO.into(), 100).await.unwrap().items.len(), 1);
    assert_eq!(other.commit_offset(id, Offset(1)).await.unwrap().lag, 0);
    let follows = async {
        while scene.broker.consumer_group("g").await.unwrap().topics[0].committed_offset != Offset(1) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), follows)
        .await
        .expect("the first broker must read the other broker's entries");
    other.delete_consumer(id).await.unwrap();
    let gone = async {
        while scene.broker.consumer(id).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone)
        .await
        .expect("the first broker must read the other broker's entries");
}

#[tokio::test]
async fn a_consumer_looks_as_documented() {
    let request = json!({
        "consumerGroup": "tenant-service-instances",
        "topic": "gts.hx.core.events.topic.v1~",
        "types": [
            "gts.hyperspot.core.events.type.v1~vendor.tenants.tenant_created.v1",
            "gts.hyperspot.core.events.type.v1~vendor.tenants.tenant_updated.v1"
        ],
        "subjectTypes": ["gts.vendor.tenants.tenant.v1~"],
        "CEL": "has(data) && data.userId == 'user-12345'",
        "sessionTimeout": "PT30S"
    });
    let clock = Arc::new(ManualClock::at("2025-12-03T12:05:00Z".parse::<Timestamp>().unwrap().millis()));
    let broker = Broker::open_at(Config::default(), clock).await.unwrap();
    let made = broker.create_consumer(serde_json::from_value(request.clone()).unwrap()).await.unwrap();
    let mut shown = serde_json::to_value(&made).unwrap();
    assert_eq!(serde_json::from_value::<Consumer>(shown.clone()).unwrap(), made);
    let rest = shown.as_object_mut().unwrap();
    for (name, value) in request.as_object().unwrap() {
        assert_eq!(rest.remove(name).as_ref(), Some(value), "{name}");
    }
    assert_eq!(rest.remove("id"), Some(json!(made.id.to_string())));
    let times = json!({
        "distribution": "broadcast",
        "createdAt": "2025-12-03T12:05:00.000Z",
        "lastSeenAt": "2025-12-03T12:05:00.000Z",
        "expiresAt": "2025-12-03T12:05:30.000Z",
    });
    assert_eq!(shown, times);
    let mut unknown = request;
    unknown["surprise"] = json!(1);
    let refusal = serde_json::from_value::<NewConsumer>(unknown).unwrap_err().to_string();
    assert!(refusal.contains("surprise"), "{refusal}");
}
