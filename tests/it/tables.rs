//! The tables are a cache: if lost or damaged, they are rebuilt from the log, and no reply changes.

use crate::scenario::{subject_type_id, topic_id, type_id};
use contract::api::*;
use contract::{Kind, NewEvent, NewEventType, PublishOutcome, TopicRead};
use event_broker::{Broker, Config};
use std::path::Path;
use tempfile::TempDir;
use uuid::Uuid;

const EVENTS: u128 = 300;

fn event(id: u128) -> NewEvent {
    let data = serde_json::value::to_raw_value(&serde_json::json!({})).unwrap();
    let event_type = type_id("placed").parse().unwrap();
    let mut event = NewEvent::new(event_type, "test", data).about(subject_type_id("order"), id.to_string());
    event.id = Some(Uuid::from_u128(id));
    event.tenant = Some(Uuid::from_u128(1));
    event
}

async fn publish_and_close(folder: &Path) {
    let broker = Broker::open(Config::folder(folder)).await.unwrap();
    broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    for id in 1..=EVENTS {
        broker.publish(event(id), None).await.unwrap();
    }
    broker.close().await;
}

/// Publishes everything again; returns `Err` with the refusal, if any.
async fn all_are_known(broker: &Broker) -> Result<(), Kind> {
    for id in 1..=EVENTS {
        let published = broker.publish(event(id), None).await.map_err(|error| error.kind())?;
        assert_eq!(published.outcome, PublishOutcome::Duplicate { payload_mismatch: false }, "event {id}");
        assert_eq!(u128::from(published.event.sequence.0), id);
    }
    Ok(())
}

fn run_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(folder.join("state")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|ending| ending == "run")).collect()
}

#[tokio::test]
async fn a_damaged_table_stops_the_broker_and_is_rebuilt_when_it_opens_again() {
    let folder = TempDir::new().unwrap();
    publish_and_close(folder.path()).await;
    for file in run_files(folder.path()) {
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[200] ^= 1;
        std::fs::write(&file, bytes).unwrap();
    }
    let broker = Broker::open(Config::folder(folder.path())).await.unwrap();
    assert_eq!(all_are_known(&broker).await, Err(Kind::Unavailable));
    assert_eq!(broker.failure().unwrap().kind(), Kind::Unavailable);
    assert_eq!(broker.read(TopicRead::all(topic_id("default"))).await.unwrap().items.len(), 100, "reads must continue");
    broker.close().await;
    drop(broker);
    let broker = Broker::open(Config::folder(folder.path())).await.unwrap();
    assert_eq!(all_are_known(&broker).await, Ok(()));
}

#[tokio::test]
async fn a_log_that_ends_before_its_checkpoint_is_refused() {
    let (long, short) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    publish_and_close(long.path()).await;
    let broker = Broker::open(Config::folder(short.path())).await.unwrap();
    broker.close().await;
    drop(broker);
    std::fs::remove_dir_all(short.path().join("state")).unwrap();
    std::fs::rename(long.path().join("state"), short.path().join("state")).unwrap();
    let refusal = Broker::open(Config::folder(short.path())).await.err().unwrap().to_string();
    assert!(refusal.contains("acknowledged records are missing"), "{refusal}");
}

#[tokio::test]
async fn a_checkpoint_of_another_log_is_not_believed() {
    let (one, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    publish_and_close(one.path()).await;
    publish_and_close(other.path()).await;
    let broker = Broker::open(Config::folder(other.path())).await.unwrap();
    let stored = broker.publish(event(EVENTS + 1), None).await.unwrap().event;
    broker.close().await;
    drop(broker);
    // The other log is longer by one event; its tables are replaced with those of the first log.
    std::fs::remove_dir_all(other.path().join("state")).unwrap();
    std::fs::rename(one.path().join("state"), other.path().join("state")).unwrap();
    let broker = Broker::open(Config::folder(other.path())).await.unwrap();
    assert_eq!(all_are_known(&broker).await, Ok(()));
    let again = broker.publish(event(EVENTS + 1), None).await.unwrap();
    assert_eq!(again.event, stored);
}

#[tokio::test]
async fn a_second_broker_on_the_folder_is_refused_clearly() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::open(Config::folder(folder.path())).await.unwrap();
    let refusal = Broker::open(Config::folder(folder.path())).await.err().unwrap().to_string();
    assert!(refusal.contains("another process has") && refusal.contains("one data folder, one broker"), "{refusal}");
    drop(broker);
}
