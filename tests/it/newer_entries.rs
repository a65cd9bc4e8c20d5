//! Facts of a newer version: the ledger stops at them and names them; it does not ignore them.

use crate::scenario::{topic_id, type_id};
use contract::api::*;
use contract::{NewEventType, NewTopic, Position};
use event_broker::{Broker, Config, SystemClock};
use log::file::{FileLog, FileLogOptions};
use log::{Log, MemoryLog, ReadLimit, ReadRange, Record, RecordHeader, TopicNumber};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// Writes a fact in the form of a newer broker.
async fn write(log: &dyn Log, fact: &Value) {
    let all =
        log.read(ReadRange::All(Position::ZERO), ReadLimit { records: usize::MAX, bytes: usize::MAX }).await.unwrap();
    let tail = all.last().unwrap().header;
    let entries = all.iter().filter(|record| record.header.topic == TopicNumber::LEDGER);
    let sequence = entries.last().unwrap().header.sequence.next();
    let header = RecordHeader { position: tail.position.next(), topic: TopicNumber::LEDGER, sequence, ..tail };
    let header = RecordHeader { id: 0, facets: None, ..header };
    log.append(tail.position, vec![Record { header, body: fact.to_string().into() }]).await.unwrap();
}

async fn open(log: &Arc<MemoryLog>) -> Result<Broker, String> {
    let log = Arc::clone(log) as Arc<dyn Log>;
    Broker::on_log(Config::default(), log, None, Arc::new(SystemClock)).await.map_err(|error| error.to_string())
}

fn topic_of_the_future() -> Value {
    json!({"fact": "topicRegistered", "number": 2, "topic": {"id": topic_id("tiered"), "cleanup": "tiered"}})
}

#[tokio::test]
async fn a_fact_that_cannot_be_read_stops_the_broker_and_gives_no_number_twice() {
    for (fact, named) in [
        (topic_of_the_future(), "`topicRegistered`"),
        (json!({"fact": "topicMirrored", "number": 2}), "`topicMirrored`"),
        (json!({"fact": "dispatch", "what": {"kind": "warped"}}), "`dispatch`"),
        (json!({"fact": "topicMirrored", "ignorable": false}), "`topicMirrored`"),
        (json!({"fact": "dictionaryRaised", "dictionary": 99, "by": "7.1.0"}), "version 7.1.0"),
    ] {
        let log = Arc::new(MemoryLog::shared());
        let (broker, other) = (open(&log).await.unwrap(), open(&log).await.unwrap());
        write(log.as_ref(), &fact).await;
        let tail = *log.tail().borrow();
        // A running broker stops, and a broker that opens the log refuses.
        let refused = broker.register_topic(NewTopic::new(topic_id("next"))).await.unwrap_err();
        assert!(refused.detail().contains(named), "{refused}");
        assert!(refused.detail().contains(&format!("position {tail}")), "{refused}");
        assert!(broker.failure().is_some());
        let refusal = open(&log).await.err().unwrap();
        assert!(refusal.contains(named) && refusal.contains(&format!("position {tail}")), "{refusal}");
        assert_eq!(*log.tail().borrow(), tail, "a record follows it");
        drop(other);
    }
}

#[tokio::test]
async fn a_fact_that_may_be_ignored_is() {
    let log = Arc::new(MemoryLog::shared());
    let broker = open(&log).await.unwrap();
    write(log.as_ref(), &json!({"fact": "weatherNoted", "ignorable": true, "sun": 3})).await;
    write(log.as_ref(), &json!({"fact": "dictionaryRaised", "dictionary": 1, "by": "0.1.0"})).await;
    broker.register_topic(NewTopic::new(topic_id("next"))).await.unwrap();
    assert!(broker.failure().is_none());
}

/// Opens the folder's log as a newer broker, writes a fact, and closes the log.
async fn write_in(folder: &Path, fact: &Value) {
    let log = FileLog::open_folder(folder, FileLogOptions::default()).unwrap();
    write(&log, fact).await;
}

#[tokio::test]
async fn a_checkpoint_says_that_facts_were_skipped_and_by_which_dictionary() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::open(Config::folder(folder.path())).await.unwrap();
    broker.close().await;
    drop(broker);
    write_in(folder.path(), &json!({"fact": "weatherNoted", "ignorable": true})).await;
    let broker = Broker::open(Config::folder(folder.path())).await.unwrap();
    broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    broker.close().await;
    drop(broker);
    let manifest = std::fs::read_to_string(folder.path().join("state/manifest.json")).unwrap();
    assert!(manifest.contains(r#""has_skipped":true"#) && manifest.contains(r#""dictionary":2"#), "{manifest}");
}
