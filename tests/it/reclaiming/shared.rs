//! Several brokers on one log: one reclaims, the others continue; one that has fallen too far behind is opened again.

use crate::scenario::{topic_id, type_id};
use contract::api::*;
use contract::{NewEventType, NewTopic, Sequence};
use event_broker::{Broker, Config, ManualClock, StorageConfig};
use log::{Log, LogError, MemoryLog, ReadLimit, ReadRange, TopicNumber};
use log_postgres::testing::TestServer as PostgreSql;
use std::sync::Arc;
use tempfile::TempDir;

const START: i64 = 1_764_763_200_000;

fn config() -> Config {
    let mut config = Config::default();
    config.maintenance.reclaim_after_secs = 0;
    config
}

async fn open(log: &Arc<MemoryLog>, clock: &Arc<ManualClock>) -> Broker {
    let (log, clock) = (Arc::clone(log) as Arc<dyn Log>, Arc::clone(clock) as Arc<_>);
    Broker::on_log(config(), log, None, clock).await.unwrap()
}

async fn register(broker: &Broker, name: &str) {
    broker.register_topic(NewTopic::new(topic_id(name))).await.unwrap();
}

#[tokio::test]
async fn brokers_on_one_log_reclaim_one_at_a_time_and_all_go_on() {
    let (log, clock) = (Arc::new(MemoryLog::shared()), Arc::new(ManualClock::at(START)));
    let (one, two) = (open(&log, &clock).await, open(&log, &clock).await);
    for number in 0..20 {
        register(if number % 2 == 0 { &one } else { &two }, &format!("t{number}")).await;
    }
    let (first, second) = tokio::join!(one.reclaim_now(), two.reclaim_now());
    for outcome in [first, second] {
        assert!(outcome.is_ok(), "{outcome:?}");
    }
    register(&two, "more").await;
    register(&one, "most").await;
    assert!(one.failure().is_none() && two.failure().is_none());
    let three = open(&log, &clock).await;
    assert_eq!(three.topics(None, None, 100).await.unwrap().items.len(), 23);
    for broker in [one, two, three] {
        broker.close().await;
    }
}

/// The first entry in a log.
async fn earliest(log: &dyn Log) -> Sequence {
    match log.headers(ReadRange::Topic(TopicNumber::LEDGER, Sequence::ZERO), ReadLimit { records: 1, bytes: 0 }).await {
        Err(LogError::Trimmed(earliest)) => earliest,
        page => page.unwrap()[0].sequence,
    }
}

#[tokio::test]
async fn a_database_holds_what_is_needed_and_its_brokers_agree_on_it() {
    let url = PostgreSql::shared().create_database();
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let clock = Arc::new(ManualClock::at(START));
    let open = async |folder: &TempDir| {
        let storage = StorageConfig::database(&url, folder.path());
        Broker::open_at(Config { storage, ..config() }, Arc::clone(&clock) as Arc<_>).await.unwrap()
    };
    let (one, two) = (open(&folders[0]).await, open(&folders[1]).await);
    for number in 0..10 {
        register(&one, &format!("t{number}")).await;
        two.register_event_type(NewEventType::new(type_id(&format!("made{number}")).parse().unwrap())).await.unwrap();
    }
    let reclaimed = one.reclaim_now().await.unwrap();
    assert!(reclaimed[0].removed_through > Sequence(20), "{reclaimed:?}");
    register(&two, "more").await;
    // One broker restarts with its checkpoint, one without, and both have the same state.
    one.close().await;
    two.close().await;
    drop((one, two));
    std::fs::remove_dir_all(folders[1].path()).unwrap();
    std::fs::create_dir(folders[1].path()).unwrap();
    for folder in &folders {
        let broker = open(folder).await;
        assert_eq!(broker.topics(None, None, 100).await.unwrap().items.len(), 12);
        assert_eq!(broker.event_types(None, None, None, 100).await.unwrap().items.len(), 10);
        broker.close().await;
    }
}

#[tokio::test]
async fn a_log_whose_snapshot_is_missing_is_damaged_and_says_so() {
    let (log, clock) = (Arc::new(MemoryLog::new()), Arc::new(ManualClock::at(START)));
    let broker = open(&log, &clock).await;
    register(&broker, "t").await;
    broker.close().await;
    log.remove(TopicNumber::LEDGER, Sequence(1)).await.unwrap();
    assert_eq!(earliest(log.as_ref()).await, Sequence(2));
    let refused = Broker::on_log(config(), Arc::clone(&log) as Arc<dyn Log>, None, clock).await.err().unwrap();
    let refused = refused.to_string();
    assert!(refused.contains("begin with 2") && refused.contains("no complete snapshot"), "{refused}");
}
