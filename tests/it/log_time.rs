//! The time of a log: it never goes back and always advances, whatever the wall clocks of its brokers do.

use crate::scenario::{check, subject_type_id, topic_id, type_id};
use contract::api::*;
use contract::{
    ClaimAnswer, Kind, NewClaim, NewEvent, NewEventType, NewTopic, PublishOutcome, Sequence, Timestamp, TopicChange,
};
use event_broker::{Broker, Clock, Config, ManualClock};
use log::{Log, MemoryLog};
use proptest::prelude::*;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use tempfile::TempDir;
use uuid::Uuid;

const START: i64 = 1_764_763_200_000;
const SECOND: i64 = 1000;
const HOUR: i64 = 3600 * SECOND;
const DAY: i64 = 24 * HOUR;

/// The clock was one day ahead when the broker was started and an event was stored; then it was corrected.
const A_DAY_AHEAD_ONCE: &str = "
        topic orders window=PT10M                   -> created
        type placed topic=orders                    -> created
        step 86400000
        reopen
        publish placed a id=1                       -> created 1 aggregate 1
        publish placed b                            -> created 2 aggregate 1
        step -86400000
";

fn after_a_day_ahead(text: &str) {
    for restarts in ["", "reopen", "crash", "rebuild"] {
        check(&format!("{A_DAY_AHEAD_ONCE}\n{restarts}\n{text}"));
    }
}

#[test]
fn a_clock_that_was_a_day_ahead_once_stretches_no_lease() {
    after_a_day_ahead(
        "
        claim billing orders/1 lease=PT2S as=a      -> claimed attempt 1 until 86402000
        claim billing orders/1                      -> held until 86402000
        advance 1999
        claim billing orders/1                      -> held until 86400001
        advance 1
        claim billing orders/1 lease=PT2S           -> claimed attempt 2 until 86402000
        done a                                      -> CLAIM_LOST
    ",
    );
}

#[test]
fn a_clock_that_was_a_day_ahead_once_stretches_no_back_off() {
    after_a_day_ahead(
        "
        handler billing attempts=3 backoff=PT5S     -> created PT900S 3 PT5S latest
        claim billing orders/1 as=a                 -> claimed attempt 1 until 87300000
        fail a class=X                              -> failed attempt 1 again 86405000
        claim billing orders/1                      -> held until 86405000
        advance 5000
        claim billing orders/1                      -> claimed attempt 2 until 87300000
    ",
    );
}

#[test]
fn a_clock_that_was_a_day_ahead_once_stretches_no_session_and_no_window() {
    after_a_day_ahead(
        "
        publish placed a id=1                       -> duplicate 1
        consumer c group=g topic=orders session=PT30S -> created
        advance 29999
        session c                                   -> seen 86370001 expires 86400001
        advance 10001
        session c                                   -> NOT_FOUND
        advance 559999
        publish placed a id=1                       -> duplicate 1
        advance 1
        publish placed a id=1                       -> created 3 aggregate 2
    ",
    );
}

#[test]
fn a_clock_that_was_ahead_deletes_nothing_early_and_keeps_nothing_longer() {
    check(
        "
        topic brief retention=P30D                  -> created
        type placed topic=brief                     -> created
        publish placed a                            -> created 1 aggregate 1
        advance 86400000
        step 2678400000
        reopen
        publish placed a                            -> created 2 aggregate 2
        step -2678400000
        expire                                      -> removed 0
        advance 2505600000
        expire                                      -> removed 0
        advance 1
        expire                                      -> removed 1
        advance 86399999
        expire                                      -> removed 0
        advance 1
        expire                                      -> removed 1
    ",
    );
}

/// An event of one subject, with an optional id.
fn event(id: Option<u128>) -> NewEvent {
    let data = RawValue::from_string("{}".to_owned()).unwrap();
    let event = NewEvent::new(type_id("placed").parse().unwrap(), "test", data).about(subject_type_id("order"), "a");
    NewEvent { tenant: Some(Uuid::from_u128(1)), id: id.map(Uuid::from_u128), ..event }
}

async fn register(broker: &Broker, window: &str) {
    let mut topic = NewTopic::new(topic_id("orders"));
    topic.idempotent_retention = Some(window.parse().unwrap());
    broker.register_topic(topic).await.unwrap();
    let mut placed = NewEventType::new(type_id("placed").parse().unwrap());
    placed.topic = Some(topic_id("orders"));
    broker.register_event_type(placed).await.unwrap();
}

async fn claim(broker: &Broker, lease: Option<&str>) -> ClaimAnswer {
    let mut claim = NewClaim::at("billing", topic_id("orders"), Sequence(1));
    claim.lease = lease.map(|lease| lease.parse().unwrap());
    broker.claim(claim, None).await.unwrap().outcome
}

#[tokio::test]
async fn a_broker_whose_clock_is_ahead_claims_and_dies_and_another_takes_over_when_the_lease_ends() {
    for ahead in [600 * SECOND, DAY, 3650 * DAY] {
        let log: Arc<dyn Log> = Arc::new(MemoryLog::shared());
        let (fast, right) = (Arc::new(ManualClock::at(START + ahead)), Arc::new(ManualClock::at(START)));
        let open = |clock: &Arc<ManualClock>| {
            Broker::on_log(Config::default(), Arc::clone(&log), None, Arc::clone(clock) as Arc<dyn Clock>)
        };
        let b = open(&right).await.unwrap();
        register(&b, "PT1H").await;
        let a = open(&fast).await.unwrap();
        a.publish(event(None), None).await.unwrap();
        assert_eq!(claim(&a, Some("PT2S")).await, ClaimAnswer::Claimed);
        a.close().await;
        assert_eq!(claim(&b, None).await, ClaimAnswer::Held);
        right.advance(1999);
        assert_eq!(claim(&b, None).await, ClaimAnswer::Held, "{ahead}");
        right.advance(1);
        assert_eq!(claim(&b, None).await, ClaimAnswer::Claimed, "{ahead}");
    }
}

#[tokio::test]
async fn events_get_later_times_after_the_clock_was_set_back() {
    let clock = Arc::new(ManualClock::at(START));
    let broker = Broker::open_at(Config::default(), clock.clone()).await.unwrap();
    register(&broker, "PT1H").await;
    let mut created = Vec::new();
    for step in [0, 60 * SECOND, -HOUR, -DAY, 0] {
        clock.step(step);
        clock.advance(SECOND);
        created.push(broker.publish(event(None), None).await.unwrap().event.created_at.millis() - START);
    }
    assert_eq!(created, [1000, 62_000, 63_000, 64_000, 65_000]);
}

#[tokio::test]
async fn a_jump_of_the_clock_that_passes_is_not_written() {
    let clock = Arc::new(ManualClock::at(START));
    let broker = Broker::open_at(Config::default(), clock.clone()).await.unwrap();
    register(&broker, "PT1H").await;
    let created = async || broker.publish(event(None), None).await.unwrap().event.created_at.millis() - START;
    clock.step(200 * DAY);
    assert_eq!(created().await, 0);
    assert_eq!(broker.degradations().len(), 1, "{:?}", broker.degradations());
    clock.advance(10 * SECOND);
    clock.step(-200 * DAY);
    assert_eq!(created().await, 10 * SECOND);
    assert!(broker.degradations().is_empty());
    // A suspended machine: after a while the broker accepts the clock's new time.
    clock.step(8 * HOUR);
    assert_eq!(created().await, 10 * SECOND);
    clock.advance(300 * SECOND);
    assert_eq!(created().await, 8 * HOUR + 310 * SECOND);
}

/// A machine started the broker before its clock was set: retention removed every event within a second, without a log
/// line.
#[tokio::test]
async fn a_clock_that_is_ahead_at_the_start_deletes_nothing_and_forgets_no_key() {
    let (folder, clock) = (TempDir::new().unwrap(), Arc::new(ManualClock::at(START)));
    let broker = Broker::open_at(Config::folder(folder.path()), clock.clone()).await.unwrap();
    let mut topic = NewTopic::new(topic_id("orders"));
    topic.retention = Some("P30D".parse().unwrap());
    broker.register_topic(topic).await.unwrap();
    let mut placed = NewEventType::new(type_id("placed").parse().unwrap());
    placed.topic = Some(topic_id("orders"));
    broker.register_event_type(placed).await.unwrap();
    broker.publish(event(Some(7)), None).await.unwrap();
    broker.close().await;
    drop(broker);
    clock.step(3650 * DAY);
    let broker = Broker::open_at(Config::folder(folder.path()), clock.clone()).await.unwrap();
    assert!(broker.degradations().iter().any(|line| line.contains("ahead")), "{:?}", broker.degradations());
    clock.advance(60 * SECOND);
    assert_eq!(broker.expire().await.unwrap(), 0);
    let again = broker.publish(event(Some(7)), None).await.unwrap();
    assert_eq!(again.outcome, PublishOutcome::Duplicate { payload_mismatch: false });
    // The clock was right, and the broker was stopped for ten years.
    clock.advance(300 * SECOND);
    assert_eq!(broker.expire().await.unwrap(), 1);
    assert!(broker.degradations().is_empty(), "{:?}", broker.degradations());
    broker.close().await;
}

#[tokio::test]
async fn a_log_that_is_made_while_the_clock_is_in_doubt_does_not_believe_it_either() {
    let clock = Arc::new(ManualClock::at(START));
    let broker = Broker::open_at(Config::default(), clock.clone()).await.unwrap();
    clock.step(200 * DAY);
    let mut topic = NewTopic::new(topic_id("orders"));
    topic.streaming = serde_json::from_str(r#"{"location": "memory://x"}"#).unwrap();
    broker.register_topic(topic).await.unwrap();
    let mut placed = NewEventType::new(type_id("placed").parse().unwrap());
    placed.topic = Some(topic_id("orders"));
    broker.register_event_type(placed).await.unwrap();
    let created = broker.publish(event(None), None).await.unwrap().event.created_at.millis();
    assert_eq!(created, START);
}

#[tokio::test]
async fn a_checkpoint_written_while_the_clock_was_ahead_forgets_no_key() {
    let (folder, clock) = (TempDir::new().unwrap(), Arc::new(ManualClock::at(START)));
    let broker = Broker::open_at(Config::folder(folder.path()), clock.clone()).await.unwrap();
    register(&broker, "PT1H").await;
    broker.publish(event(Some(7)), None).await.unwrap();
    broker.publish(event(Some(8)), None).await.unwrap();
    clock.step(200 * DAY);
    broker.close().await;
    drop(broker);
    clock.step(-200 * DAY);
    let broker = Broker::open_at(Config::folder(folder.path()), clock).await.unwrap();
    let again = broker.publish(event(Some(7)), None).await.unwrap();
    assert_eq!((again.outcome, again.event.sequence.get()), (PublishOutcome::Duplicate { payload_mismatch: false }, 1));
}

#[tokio::test]
async fn a_window_that_is_raised_revives_no_key_at_any_broker() {
    let (log, clock) = (Arc::new(MemoryLog::shared()), Arc::new(ManualClock::at(START)));
    let state = TempDir::new().unwrap();
    let open = async |folder: Option<&TempDir>| {
        let folder = folder.map(|folder| folder.path().join("state"));
        Broker::on_log(Config::default(), log.clone() as Arc<dyn Log>, folder, clock.clone()).await.unwrap()
    };
    let old = open(Some(&state)).await;
    register(&old, "PT24H").await;
    old.publish(event(Some(7)), None).await.unwrap();
    clock.advance(2 * DAY);
    old.publish(event(Some(8)), None).await.unwrap();
    // The checkpoint drops the first key, which is past its window.
    old.close().await;
    let old = open(Some(&state)).await;
    let change = TopicChange { idempotent_retention: Some(Some("P90D".parse().unwrap())), ..TopicChange::default() };
    old.change_topic(&topic_id("orders"), change).await.unwrap();
    let fresh = open(None).await;
    let (two, one) =
        (fresh.publish(event(Some(8)), None).await.unwrap(), fresh.publish(event(Some(7)), None).await.unwrap());
    assert_eq!(
        (two.outcome, one.outcome),
        (PublishOutcome::Duplicate { payload_mismatch: false }, PublishOutcome::Created)
    );
    assert_eq!(one.event.sequence.get(), 3);
    let again = old.publish(event(Some(7)), None).await.unwrap();
    assert_eq!((again.outcome, again.event.sequence.get()), (PublishOutcome::Duplicate { payload_mismatch: false }, 3));
}

/// One step of a random run.
#[derive(Debug, Clone)]
enum HistoryStep {
    Publish(u128),
    Advance(i64),
    Jump(i64),
    Window(i64),
    Trim,
    /// Opens with the last checkpoint, or from the whole log.
    Reopen(bool),
}

fn step() -> impl Strategy<Value = HistoryStep> {
    prop_oneof![
        8 => (1..6_u128).prop_map(HistoryStep::Publish),
        3 => (0..200_i64).prop_map(|hours| HistoryStep::Advance(hours * HOUR / 4)),
        2 => (-2000..2000_i64).prop_map(|hours| HistoryStep::Jump(hours * HOUR)),
        2 => prop_oneof![Just(1_i64), Just(24), Just(200), Just(2000)].prop_map(HistoryStep::Window),
        1 => Just(HistoryStep::Trim),
        3 => any::<bool>().prop_map(HistoryStep::Reopen),
    ]
}

/// A broker, and what it must reply: a key counts while it has been inside every window in force since it was stored.
struct ModelledBroker {
    log: Arc<MemoryLog>,
    clock: Arc<ManualClock>,
    folder: TempDir,
    broker: Broker,
    window: i64,
    stored: BTreeMap<u128, i64>,
    markers: u128,
}

impl ModelledBroker {
    async fn begin() -> Self {
        let (log, clock) = (Arc::new(MemoryLog::new()), Arc::new(ManualClock::at(START)));
        let folder = TempDir::new().unwrap();
        let broker = Self::open(&log, &clock, &folder).await;
        register(&broker, "PT24H").await;
        Self { log, clock, folder, broker, window: 24 * HOUR, stored: BTreeMap::new(), markers: 1000 }
    }

    async fn open(log: &Arc<MemoryLog>, clock: &Arc<ManualClock>, folder: &TempDir) -> Broker {
        let mut config = Config::default();
        config.maintenance.checkpoint_rows = 3;
        let state = Some(folder.path().join("state"));
        Broker::on_log(config, log.clone() as Arc<dyn Log>, state, clock.clone()).await.unwrap()
    }

    /// The log's time: the time of an event stored just now.
    async fn now(&mut self) -> i64 {
        self.markers += 1;
        let marker = self.broker.publish(event(Some(self.markers)), None).await.unwrap();
        assert_eq!(marker.outcome, PublishOutcome::Created);
        marker.event.created_at.millis()
    }

    async fn run(&mut self, step: &HistoryStep) {
        match step {
            HistoryStep::Publish(id) => self.publish(*id).await,
            HistoryStep::Advance(millis) => self.clock.advance(*millis),
            HistoryStep::Jump(millis) => self.clock.step(*millis),
            HistoryStep::Window(hours) => {
                let now = self.now().await;
                let window = self.window;
                self.stored.retain(|_, time| now - *time < window);
                self.window = hours * HOUR;
                let window = Some(Some(format!("PT{hours}H").parse().unwrap()));
                let change = TopicChange { idempotent_retention: window, ..TopicChange::default() };
                self.broker.change_topic(&topic_id("orders"), change).await.unwrap();
            }
            HistoryStep::Trim => {
                self.broker.trim(&topic_id("orders"), Sequence(u64::MAX)).await.unwrap();
            }
            HistoryStep::Reopen(with_checkpoint) => {
                self.broker.close().await;
                if !with_checkpoint {
                    std::fs::remove_dir_all(self.folder.path().join("state")).unwrap();
                }
                self.broker = Self::open(&self.log, &self.clock, &self.folder).await;
                // Until the clock has proved stable, nothing stored earlier expires by it.
                self.clock.advance(300 * SECOND);
                let held = self.broker.degradations();
                assert!(held.is_empty(), "{held:?}");
            }
        }
    }

    async fn publish(&mut self, id: u128) {
        let now = self.now().await;
        let is_known = self.stored.get(&id).is_some_and(|time| now - time < self.window);
        match self.broker.publish(event(Some(id)), None).await {
            Ok(published) if published.outcome == PublishOutcome::Created => {
                assert!(!is_known, "{id} is stored twice at {}", Timestamp::from_millis(now));
                self.stored.insert(id, now);
            }
            Ok(_) => assert!(is_known, "{id} counts as a duplicate at {}", Timestamp::from_millis(now)),
            Err(error) => assert!(is_known && error.kind() == Kind::Trimmed, "{error}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_checkpoint_equals_the_fold_whatever_clocks_and_windows_do(steps in proptest::collection::vec(step(), 1..50)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut life = ModelledBroker::begin().await;
            for step in &steps {
                life.run(step).await;
            }
        });
    }
}
