//! Topics in their own logs: where their data is, what they keep, and how a crash or failure of one log affects the
//! others.

mod deletion;

use crate::scenario::{check_alone, subject_type_id, topic_id, type_id};
use contract::api::*;
use contract::{
    Atomicity, Kind, LogRead, NewEvent, NewEventType, NewTopic, Position, RegisterOutcome, Result, Sequence,
    StoredEvent, Timestamp, Topic, TopicId, TopicRead,
};
use event_broker::ledger::{Command, Decision, Entry, Ledger, LogLocation, TopicPlacement};
use event_broker::{Broker, Config, LogClock, ManualClock, OpenError, StorageConfig, TrustedClock};
use log::file::{FileLog, FileLogOptions, FolderLock};
use serde_json::value::RawValue;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uuid::Uuid;

/// A topic registered as in the example of the HTTP contract.
const SAMPLE: &str = r#"{"id":"gts.hx.core.events.topic.v1~vendor.users.v1","description":"User-related events","streaming":{"type":"file","location":"file://var/lib/hyperspot/events","retention":"PT30D"}}"#;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(1_764_763_200_000))
}

fn log_clock() -> LogClock {
    LogClock::new(Arc::new(TrustedClock::new(clock(), Duration::from_secs(300))))
}

async fn open(config: Config) -> Broker {
    Broker::open_at(config, clock()).await.unwrap()
}

fn in_memory(data: &Path) -> Config {
    let mut config = Config::default();
    data.clone_into(&mut config.storage.path);
    config
}

fn topic(name: &str, streaming: &str) -> NewTopic {
    NewTopic { streaming: serde_json::from_str(streaming).unwrap(), ..NewTopic::new(topic_id(name)) }
}

/// Registers a topic, and an event type of the same name for it.
async fn register(broker: &Broker, topic: NewTopic) -> Result<RegisterOutcome<Topic>> {
    let registered = broker.register_topic(topic.clone()).await?;
    let name = topic.id.as_str().rsplit('.').nth(1).unwrap().to_owned();
    let mut event_type = NewEventType::new(type_id(&name).parse().unwrap());
    event_type.topic = Some(topic.id);
    broker.register_event_type(event_type).await?;
    Ok(registered)
}

fn event(name: &str, id: u128) -> NewEvent {
    let data = RawValue::from_string("{}".to_owned()).unwrap();
    let mut event = NewEvent::new(type_id(name).parse().unwrap(), "test", data).about(subject_type_id("order"), "a");
    (event.id, event.tenant) = (Some(Uuid::from_u128(id)), Some(Uuid::from_u128(1)));
    event
}

async fn publish(broker: &Broker, name: &str, id: u128) -> Result<StoredEvent> {
    Ok(broker.publish(event(name, id), None).await?.event)
}

async fn sequences(broker: &Broker, topic: &TopicId) -> Vec<u64> {
    let page = broker.read(TopicRead::all(topic.clone())).await.unwrap();
    page.items.iter().map(|event| event.sequence.0).collect()
}

async fn locations(broker: &Broker, name: &str) -> Vec<String> {
    let segments = broker.segments(&topic_id(name)).await.unwrap().segments;
    segments.into_iter().map(|segment| segment.location).collect()
}

#[tokio::test]
async fn the_documented_sample_topic_works_whatever_the_default_log_is() {
    for is_file in [true, false] {
        let folder = TempDir::new().unwrap();
        let config = || if is_file { Config::folder(folder.path()) } else { in_memory(folder.path()) };
        let sample: NewTopic = serde_json::from_str(SAMPLE).unwrap();
        let broker = open(config()).await;
        assert!(matches!(register(&broker, sample.clone()).await.unwrap(), RegisterOutcome::Created(_)));
        assert_eq!(publish(&broker, "users", 1).await.unwrap().sequence, Sequence(1));
        let shown = broker.topic(&sample.id).await.unwrap();
        assert_eq!(serde_json::to_string(&shown.definition).unwrap(), SAMPLE);
        let place = folder.path().canonicalize().unwrap().join("logs/var/lib/hyperspot/events/log");
        let there = locations(&broker, "users").await;
        // The response does not contain the location on this machine.
        assert_eq!(there, ["file://log/00000000000000000001.1.log"]);
        assert!(place.join("00000000000000000001.1.log").exists());
        broker.close().await;
        drop(broker);
        let later = clock();
        later.advance(60_000);
        let broker = Broker::open_at(config(), later).await.unwrap();
        // A memory log has lost the topic; a topic's log on disk has not.
        let again = register(&broker, sample.clone()).await.unwrap();
        assert_eq!(matches!(again, RegisterOutcome::Unchanged(_)), is_file);
        assert_eq!(again.into_inner(), shown);
        assert_eq!(sequences(&broker, &sample.id).await, [1]);
        assert_eq!(publish(&broker, "users", 2).await.unwrap().sequence, Sequence(2));
        broker.close().await;
    }
}

#[test]
fn a_topic_in_files_of_its_own_keeps_every_promise_of_the_default_log() {
    check_alone(
        r#"
        topic orders window=PT1H streaming={"type":"file","location":"file://a/b"} -> created
        topic orders window=PT1H streaming={"type":"file","location":"file://a/b"} -> unchanged
        topic orders window=PT1H streaming={"type":"file","location":"a/b"} -> ALREADY_EXISTS
        topic orders window=PT1H                  -> ALREADY_EXISTS
        topic zebra                               -> created
        type placed topic=orders                  -> created
        publish placed a id=1 data={"n":1}        -> created 1 aggregate 1
        publish placed a id=1                     -> duplicate 1
        publish placed a expected=1               -> created 2 aggregate 2
        publish placed a expected=1               -> EXPECTED_SEQUENCE actual 2
        publish placed b sequence=3               -> created 3 aggregate 1
        read orders                               -> 1 2 3 next 3 tail 3
        read orders after=3 wait=20               -> next 3 tail 3
        log                                       ->
        event 1                                   -> 1 {"n":1}
        event 2                                   -> NOT_FOUND
        aggregate orders a                        -> 2 at 2 there
        history orders a                          -> 1@1 2@2 next 2 of 2
        segments orders                           -> 1 to 3 amount 3
        change orders description=new             -> new
        topics                                    -> gts.hx.core.events.topic.v1~ gts.hx.core.events.topic.v1~vendor.orders.v1 gts.hx.core.events.topic.v1~vendor.zebra.v1 end
        topics pattern=gts.hx.core.events.topic.v1~vendor.* limit=1 -> gts.hx.core.events.topic.v1~vendor.orders.v1 more
        crash
        publish placed a id=1                     -> duplicate 1
        read orders                               -> 1 2 3 next 3 tail 3
        change orders                             -> new
        rebuild
        publish placed a id=1                     -> duplicate 1
        publish placed a expected=2               -> created 4 aggregate 3
        advance 3600000
        publish placed c id=1                     -> created 5 aggregate 1
        publish placed a id=1                     -> created 6 aggregate 4
        reopen
        read orders after=4                       -> 5 6 next 6 tail 6
        change orders window=P400D                -> VALIDATION_ERROR /idempotentRetention
    "#,
    );
}

#[test]
fn retention_runs_in_every_log() {
    check_alone(
        r#"
        topic brief window=PT10M streaming={"location":"file://brief","retention":"PT1H"} -> created
        topic long streaming={"location":"file://brief"} -> created
        type placed topic=brief                     -> created
        type kept topic=long                        -> created
        publish placed a id=1                       -> created 1 aggregate 1
        publish placed a id=2                       -> created 2 aggregate 2
        publish kept a id=3                         -> created 1 aggregate 1
        advance 3600001
        expire                                      -> removed 2
        read brief                                  -> TRIMMED earliest 3
        read long                                   -> 1 next 1 tail 1
        rebuild
        read brief                                  -> TRIMMED earliest 3
        aggregate brief a                           -> 2 at 2 gone
        publish placed a expected=2                 -> created 3 aggregate 3
        trim brief 9                                -> removed 1
        crash
        publish placed a                            -> created 4 aggregate 4
        read brief after=3                          -> 4 next 4 tail 4
        trim nowhere 9                              -> NOT_FOUND
    "#,
    );
}

#[test]
fn a_memory_log_begins_again_behind_every_sequence_it_may_have_given() {
    check_alone(
        r#"
        topic brief streaming={"type":"memory","location":"x"} -> created
        topic other streaming={"type":"memory","location":"x"} -> created
        type placed topic=brief                     -> created
        type shipped topic=other                    -> created
        publish placed a id=1                       -> created 1 aggregate 1
        publish placed a id=1                       -> duplicate 1
        publish shipped a                           -> created 1 aggregate 1
        change brief description=kept               -> kept
        reopen
        topic brief streaming={"type":"memory","location":"x"} description=kept -> unchanged
        read brief                                  -> TRIMMED earliest 1099511627777
        read brief after=1 wait=1000                -> TRIMMED earliest 1099511627777
        read brief after=1099511627776              -> next 1099511627776 tail 1099511627776
        segments brief                              -> none
        event 1                                     -> NOT_FOUND
        aggregate brief a                           -> NOT_FOUND
        expire                                      -> removed 0
        publish placed a expected=1                 -> EXPECTED_SEQUENCE actual 0
        publish placed a id=1                       -> created 1099511627777 aggregate 1
        publish shipped a                           -> created 1099511627777 aggregate 1
        topic later streaming={"type":"memory","location":"x"} -> created
        read later                                  -> next 0 tail 0
        crash
        publish placed a id=1                       -> created 2199023255553 aggregate 1
        read other                                  -> TRIMMED earliest 2199023255553
        change brief                                -> kept
    "#,
    );
}

#[test]
fn locations_that_lie_within_each_other_are_refused_and_equal_ones_share_a_log() {
    check_alone(
        r#"
        topic a streaming={"type":"file","location":"file://x/y"}   -> created
        topic b streaming={"type":"file","location":"./x//y/"}      -> created
        topic c streaming={"type":"file","location":"file://x"}     -> VALIDATION_ERROR /streaming/location
        topic c streaming={"type":"file","location":"file://x/y/z"} -> VALIDATION_ERROR /streaming/location
        topic c streaming={"type":"file","location":"file://x/yy"}  -> created
        type in_a topic=a                                           -> created
        type in_b topic=b                                           -> created
        type in_c topic=c                                           -> created
        batch-all in_a s ; in_b s                                   -> created 1 aggregate 1 | created 1 aggregate 1
        batch-all in_a s ; in_c s                                   -> VALIDATION_ERROR /events/1
        reopen
        read a                                                      -> 1 next 1 tail 1
        read b                                                      -> 1 next 1 tail 1
        read c                                                      -> next 0 tail 0
    "#,
    );
}

#[test]
fn a_batch_over_several_logs_is_decided_by_each_of_them() {
    check_alone(
        r#"
        topic here                                              -> created
        topic there streaming={"location":"file://there"}       -> created
        topic beside streaming={"location":"file://there"}      -> created
        topic gone streaming={"location":"memory://gone"}       -> created
        type in_here topic=here                                 -> created
        type in_there topic=there                               -> created
        type in_beside topic=beside                             -> created
        type in_gone topic=gone                                 -> created
        batch in_there a id=1 ; in_here a ; in_gone a ; nobody a ; in_there a ; in_here b -> created 1 aggregate 1 | created 1 aggregate 1 | created 1 aggregate 1 | VALIDATION_ERROR /type | created 2 aggregate 2 | created 2 aggregate 1
        batch in_there a id=1 ; in_here a expected=9 ; in_beside a ; in_here c ; in_there b -> duplicate 1 | EXPECTED_SEQUENCE actual 1 | created 1 aggregate 1 | BATCH_ABORTED | created 3 aggregate 1
        batch in_there a source= ; in_here d ; in_there b ; in_beside b -> VALIDATION_ERROR /source | created 3 aggregate 1 | BATCH_ABORTED | created 2 aggregate 1
        batch-all in_here a ; nobody a ; in_there a ; in_here a ; in_gone a -> VALIDATION_ERROR /events/2 /events/4
        batch-all in_there a ; in_beside a                      -> created 4 aggregate 3 | created 3 aggregate 2
        batch-all in_there a expected=1 ; in_beside a           -> EXPECTED_SEQUENCE actual 3 | BATCH_ABORTED
        read here                                               -> 1 2 3 next 3 tail 3
        read there                                              -> 1 2 3 4 next 4 tail 4
        read gone                                               -> 1 next 1 tail 1
        log                                                     -> here/1 here/2 here/3
        crash
        read there                                              -> 1 2 3 4 next 4 tail 4
    "#,
    );
}

#[tokio::test]
async fn absolute_locations_lie_where_the_configuration_allows_and_nowhere_else() {
    let root = TempDir::new().unwrap();
    let at = |path: &str| root.path().canonicalize().unwrap().join(path).display().to_string();
    let named = |path: &str| format!(r#"{{"type":"file","location":"file://{}"}}"#, at(path));
    let data = root.path().join("data");
    let config = || {
        let mut config = Config::folder(&data);
        config.storage.locations = vec![root.path().join("allowed")];
        config
    };
    let broker = open(config()).await;
    // A path of the data folder that is guessed right gets the refusal of any other.
    let refusal = register(&broker, topic("refused", &named("none/x"))).await.unwrap_err();
    for refused in ["other", "allowed2/x", "data/log", "data/logs", "data", "data/logs/near"] {
        let error = register(&broker, topic("refused", &named(refused))).await.unwrap_err();
        assert_eq!((error.detail(), error.violations()), (refusal.detail(), refusal.violations()), "{refused}");
        assert_eq!((error.kind(), error.violations()[0].pointer.as_str()), (Kind::Validation, "/streaming/location"));
        assert!(!error.to_string().contains(&at("")), "the response quotes the value");
        assert!(broker.topic(&topic_id("refused")).await.is_err());
    }
    assert!(!root.path().join("other").exists() && !root.path().join("data/logs").exists());
    register(&broker, topic("far", &named("allowed/far"))).await.unwrap();
    register(&broker, topic("near", r#"{"location":"near"}"#)).await.unwrap();
    register(&broker, topic("near_too", r#"{"location":"file://near"}"#)).await.unwrap();
    register(&broker, topic("home", "true")).await.unwrap();
    for (name, place) in [("far", "allowed/far/log"), ("near", "data/logs/near/log"), ("home", "data/log")] {
        publish(&broker, name, 1).await.unwrap();
        let segment = locations(&broker, name).await.remove(0);
        let file = segment.strip_prefix("file://log/").unwrap_or_else(|| panic!("{name}: {segment}"));
        assert!(root.path().join(place).join(file).exists(), "{name}");
    }
    assert!(broker.publish_batch(vec![event("near", 5), event("near_too", 6)], Atomicity::All, None).await.is_ok());
    // Only the events in the default log have its order.
    let page = broker.read_log(LogRead { after: Position::ZERO, limit: 9, filter: Default::default() }).await.unwrap();
    assert_eq!(page.items.len(), 1);
    broker.close().await;
    drop(broker);
    // If an operator removes a folder from the configuration, the error names the topics in it.
    let error = Broker::open(Config::folder(&data)).await.err().unwrap();
    assert!(error.to_string().contains(&format!("file://{}", at("allowed/far"))), "{error}");
    let broker = open(config()).await;
    assert_eq!(sequences(&broker, &topic_id("far")).await, [1]);
    broker.close().await;
}

#[tokio::test]
async fn without_a_data_folder_a_relative_location_is_refused_with_what_to_do() {
    let broker = open(Config::default()).await;
    for streaming in [r#"{"type":"file"}"#, r#"{"location":"file://a"}"#] {
        let error = register(&broker, topic("a", streaming)).await.unwrap_err();
        assert_eq!(error.violations()[0].pointer, "/streaming/location");
        assert!(error.violations()[0].detail.contains("configure one"));
    }
}

#[tokio::test]
async fn a_log_that_does_not_open_leaves_no_topic_behind() {
    let folder = TempDir::new().unwrap();
    let broker = open(Config::folder(folder.path())).await;
    let side = topic("side", r#"{"location":"side"}"#);
    let another = FolderLock::acquire(&folder.path().join("logs/side")).unwrap();
    let error = broker.register_topic(side.clone()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert_eq!(broker.topic(&side.id).await.unwrap_err().kind(), Kind::NotFound);
    assert!(broker.failures().is_empty());
    drop(another);
    assert!(matches!(broker.register_topic(side).await.unwrap(), RegisterOutcome::Created(_)));
    broker.close().await;
}

#[tokio::test]
async fn a_broker_has_only_so_many_logs() {
    let broker = open(Config::default()).await;
    let named = |number: usize| topic(&format!("t{number}"), &format!(r#"{{"location":"memory://{number}"}}"#));
    for number in 0..contract::limits::LOGS_MAX {
        broker.register_topic(named(number)).await.unwrap();
    }
    assert_eq!(broker.register_topic(named(1000)).await.unwrap_err().kind(), Kind::Overloaded);
    assert!(matches!(broker.register_topic(named(0)).await.unwrap(), RegisterOutcome::Unchanged(_)));
    broker.close().await;
}

/// Writes one fact without checking its meaning.
struct AppendNote(Entry);

impl Command for AppendNote {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        decision.add_entry(self.0.clone()).map(drop)
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// The state left by a broker that crashes after the default log has recorded the topic and before the topic's own log
/// has.
async fn placed_only(folder: &Path, topic: NewTopic, numbered: bool) {
    let log = Arc::new(FileLog::open_folder(folder, FileLogOptions::default()).unwrap());
    let ledger = Ledger::open(log, log_clock(), Some(folder.join("state")), 1000, 0, Arc::default()).await.unwrap();
    let topic = Topic { definition: topic, created_at: Timestamp::from_millis(1_764_763_200_000) };
    let home = LogLocation::DataFolder("side".to_owned());
    let placed =
        TopicPlacement { topic, location: home, floor: Sequence::ZERO, numbered, deleting: false, forced: false };
    ledger.submit(AppendNote(Entry::TopicPlaced { placed })).await.unwrap();
    ledger.close().await;
}

#[tokio::test]
async fn a_crash_between_the_two_logs_is_repaired_when_the_broker_is_opened() {
    let folder = TempDir::new().unwrap();
    let side = topic("side", r#"{"location":"side"}"#);
    placed_only(folder.path(), side.clone(), false).await;
    for expected in [1, 2] {
        let broker = open(Config::folder(folder.path())).await;
        assert!(matches!(register(&broker, side.clone()).await.unwrap(), RegisterOutcome::Unchanged(_)));
        assert_eq!(publish(&broker, "side", expected).await.unwrap().sequence.0, u64::try_from(expected).unwrap());
        broker.close().await;
    }
    // The same for a crash after the topic's own log has recorded the topic and before the default log's second record.
    placed_only(folder.path(), side.clone(), false).await;
    let broker = open(Config::folder(folder.path())).await;
    assert_eq!(publish(&broker, "side", 3).await.unwrap().sequence, Sequence(3));
    broker.close().await;
    drop(broker);
    // From then on the topic's own log must contain it.
    std::fs::remove_dir_all(folder.path().join("logs")).unwrap();
    let Err(OpenError::SideLog(failure)) = Broker::open(Config::folder(folder.path())).await else { panic!("opened") };
    assert_eq!((failure.log.as_str(), failure.error.kind()), ("file://side", Kind::Unavailable));
}

#[tokio::test]
async fn a_log_that_lost_its_topics_or_is_damaged_keeps_the_broker_from_opening_and_is_named() {
    let folder = TempDir::new().unwrap();
    placed_only(folder.path(), topic("side", r#"{"location":"side"}"#), true).await;
    let error = Broker::open(Config::folder(folder.path())).await.err().unwrap().to_string();
    assert!(error.contains("file://side") && error.contains("mounted"), "{error}");

    let folder = TempDir::new().unwrap();
    let broker = open(Config::folder(folder.path())).await;
    register(&broker, topic("side", r#"{"location":"side"}"#)).await.unwrap();
    for id in 1..5 {
        publish(&broker, "side", id).await.unwrap();
    }
    broker.close().await;
    drop(broker);
    let segment = folder.path().join("logs/side/log/00000000000000000001.1.log");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[400] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let error = Broker::open(Config::folder(folder.path())).await.err().unwrap().to_string();
    assert!(error.contains("file://side") && error.contains("at offset"), "{error}");
    let mut verify = std::process::Command::new(env!("CARGO_BIN_EXE_event-broker"));
    let output = verify.args(["verify", "--data"]).arg(folder.path()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("0 damaged") && said.contains("logs/side/log/00000000000000000001.1.log at offset"),
        "{said}"
    );
}

#[tokio::test]
async fn a_change_that_only_the_default_log_has_reaches_the_topics_own_log_at_the_next_start() {
    let folder = TempDir::new().unwrap();
    let side = topic("side", r#"{"location":"side"}"#);
    let broker = open(Config::folder(folder.path())).await;
    register(&broker, side.clone()).await.unwrap();
    publish(&broker, "side", 1).await.unwrap();
    broker.close().await;
    drop(broker);
    let changed = NewTopic { retention: Some("PT1H".parse().unwrap()), ..side };
    placed_only(folder.path(), changed, true).await;
    let clock = clock();
    let broker = Broker::open_at(Config::folder(folder.path()), clock.clone()).await.unwrap();
    clock.advance(3_600_001);
    assert_eq!(broker.expire().await.unwrap(), 1);
    broker.close().await;
}

#[tokio::test]
async fn a_side_log_that_fails_takes_nothing_else_with_it() {
    let folder = TempDir::new().unwrap();
    let config = || Config {
        storage: StorageConfig { segment_bytes: 2000, ..StorageConfig::folder(folder.path()) },
        ..Config::default()
    };
    let broker = open(config()).await;
    register(&broker, topic("side", r#"{"location":"side"}"#)).await.unwrap();
    register(&broker, topic("main", "true")).await.unwrap();
    publish(&broker, "side", 1).await.unwrap();
    // Without its folder the log cannot start its next segment.
    let (there, away) = (folder.path().join("logs/side/log"), folder.path().join("logs/side/away"));
    std::fs::rename(&there, &away).unwrap();
    let mut kept = 1;
    let error = loop {
        match publish(&broker, "side", kept + 1).await {
            Ok(_) => kept += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((error.kind(), error.retry_after_seconds()), (Kind::Unavailable, Some(5)));
    assert!(broker.failure().is_none());
    let failures = broker.failures();
    assert_eq!((failures.len(), failures[0].log.as_str()), (1, "file://side"));
    publish(&broker, "main", 1).await.unwrap();
    let both = vec![event("side", 900), event("main", 901)];
    let outcomes = broker.publish_batch(both, Atomicity::PerTopic, None).await.unwrap();
    assert_eq!(outcomes[0].as_ref().unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(outcomes[1].as_ref().unwrap().event.sequence, Sequence(2));
    broker.close().await;
    drop(broker);
    std::fs::rename(&away, &there).unwrap();
    let broker = open(config()).await;
    assert!(broker.failures().is_empty());
    assert_eq!(sequences(&broker, &topic_id("side")).await.len() as u128, kept);
    broker.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_registrations_at_once_open_a_log_once_and_agree_on_each_topic() {
    let folder = TempDir::new().unwrap();
    let broker = Arc::new(open(Config::folder(folder.path())).await);
    let callers = (0..24).map(|number| {
        let broker = Arc::clone(&broker);
        let name = format!("t{}", number % 4);
        tokio::spawn(async move { broker.register_topic(topic(&name, r#"{"location":"shared"}"#)).await.unwrap() })
    });
    let mut created = 0;
    for caller in callers.collect::<Vec<_>>() {
        created += usize::from(matches!(caller.await.unwrap(), RegisterOutcome::Created(_)));
    }
    assert_eq!(created, 4);
    let changes = (0..24).map(|number| {
        let broker = Arc::clone(&broker);
        let change = contract::TopicChange { description: Some(Some(number.to_string())), ..Default::default() };
        tokio::spawn(async move { broker.change_topic(&topic_id("t0"), change).await.unwrap() })
    });
    for change in changes.collect::<Vec<_>>() {
        change.await.unwrap();
    }
    let shown = broker.topic(&topic_id("t0")).await.unwrap();
    broker.close().await;
    drop(broker);
    // The broker shows what the topic's own log contains.
    let log = Arc::new(FileLog::open_folder(&folder.path().join("logs/shared"), FileLogOptions::default()).unwrap());
    let ledger = Ledger::open(log, log_clock(), None, 1000, 0, Arc::default()).await.unwrap();
    assert_eq!(ledger.registry().topic(&topic_id("t0")).unwrap().topic, shown);
    assert_eq!(ledger.registry().topics().count(), 4);
}

#[tokio::test]
async fn a_folder_from_before_shows_only_topics_that_are_registered_again() {
    let folder = TempDir::new().unwrap();
    let broker = open(in_memory(folder.path())).await;
    for (name, id) in [("one", 1), ("two", 2)] {
        register(&broker, topic(name, r#"{"type":"file"}"#)).await.unwrap();
        publish(&broker, name, id).await.unwrap();
    }
    assert!(folder.path().join("logs/default/log").is_dir());
    broker.close().await;
    drop(broker);
    let broker = open(in_memory(folder.path())).await;
    register(&broker, topic("one", r#"{"type":"file"}"#)).await.unwrap();
    assert_eq!(broker.event(Uuid::from_u128(1)).await.unwrap().sequence, Sequence(1));
    assert_eq!(broker.event(Uuid::from_u128(2)).await.unwrap_err().kind(), Kind::NotFound);
    assert_eq!(broker.read(TopicRead::all(topic_id("two"))).await.unwrap_err().kind(), Kind::NotFound);
    // Registered again with another definition, the topic keeps its events.
    let mut two = topic("two", r#"{"type":"file"}"#);
    two.description = Some("another".to_owned());
    register(&broker, two).await.unwrap();
    assert_eq!(publish(&broker, "two", 2).await.unwrap().sequence, Sequence(1));
    assert_eq!(publish(&broker, "two", 3).await.unwrap().sequence, Sequence(2));
    broker.close().await;
}

#[tokio::test]
async fn declared_topics_find_their_logs_at_every_start() {
    let folder = TempDir::new().unwrap();
    let declared = |retention: &str| {
        let mut side = topic("side", r#"{"location":"side"}"#);
        side.retention = Some(retention.parse().unwrap());
        Config { topics: vec![side], ..Config::folder(folder.path()) }
    };
    for (start, retention) in ["P1D", "P1D", "P2D"].into_iter().enumerate() {
        let broker = open(declared(retention)).await;
        let shown = broker.topic(&topic_id("side")).await.unwrap().definition;
        assert_eq!(shown.retention, Some(retention.parse().unwrap()));
        let mut placed = NewEventType::new(type_id("side").parse().unwrap());
        placed.topic = Some(topic_id("side"));
        broker.register_event_type(placed).await.unwrap();
        assert_eq!(publish(&broker, "side", start as u128).await.unwrap().sequence.0, start as u64 + 1);
        broker.close().await;
    }
}

#[tokio::test]
async fn a_waiting_reader_is_woken_by_its_own_log_and_sent_home_when_the_broker_closes() {
    let folder = TempDir::new().unwrap();
    let broker = Arc::new(open(Config::folder(folder.path())).await);
    register(&broker, topic("side", r#"{"type":"memory"}"#)).await.unwrap();
    let wait = |after: u64| {
        let broker = Arc::clone(&broker);
        let read = TopicRead::all(topic_id("side")).after(Sequence(after));
        tokio::spawn(async move { broker.wait(read, Duration::from_secs(30)).await.unwrap() })
    };
    let waiting = wait(0);
    tokio::task::yield_now().await;
    publish(&broker, "side", 1).await.unwrap();
    assert_eq!(waiting.await.unwrap().items.len(), 1);
    let waiting = wait(1);
    tokio::task::yield_now().await;
    broker.close().await;
    let page =
        tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("closing ends a waiting poll").unwrap();
    assert!(page.items.is_empty());
}

#[tokio::test]
async fn the_retention_chore_looks_at_side_logs_too() {
    let clock = clock();
    let folder = TempDir::new().unwrap();
    let mut config = Config::folder(folder.path());
    config.maintenance.retention_check_secs = 0;
    let broker = Broker::open_at(config, clock.clone()).await.unwrap();
    let mut brief = topic("brief", r#"{"location":"brief"}"#);
    brief.retention = Some("PT1H".parse().unwrap());
    register(&broker, brief).await.unwrap();
    publish(&broker, "brief", 1).await.unwrap();
    clock.advance(3_600_001);
    let gone = async {
        while broker.read(TopicRead::all(topic_id("brief"))).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("the background task must run");
}
