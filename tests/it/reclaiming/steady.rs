//! A day of steady load, with the clock of the test and real files.

use crate::scenario::{subject_type_id, topic_id, type_id};
use contract::{Completion, EventBroker, NewClaim, NewEvent, NewEventType, NewTopic, Sequence, TopicId};
use event_broker::{Broker, Config, ManualClock};
use serde_json::value::RawValue;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const ROUND_MILLIS: i64 = 300_000;
const ROUNDS: u64 = 288;
const EVENTS: u64 = 12;

/// Bytes of all files in a folder and below, but for what is set aside for a full disk.
fn bytes_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let entries = entries.filter(|entry| entry.file_name() != "reserve");
    // The file engine takes files away meanwhile.
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_of(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}

async fn publish(broker: &Broker, number: u64) {
    let data = RawValue::from_string(format!(r#"{{"n":"{}"}}"#, "x".repeat(200))).unwrap();
    let event = NewEvent::new(type_id("placed").parse().unwrap(), "test", data);
    let mut event = event.about(subject_type_id("order"), (number % 50).to_string());
    event.tenant = Some(uuid::Uuid::from_u128(1));
    broker.publish(event, None).await.unwrap();
}

async fn handle(broker: &Broker, topic: &TopicId, sequence: u64) {
    let claim = NewClaim::at("billing", topic.clone(), Sequence(sequence));
    let claim = broker.claim(claim, None).await.unwrap().claim.unwrap();
    broker.complete_claim(&claim.id, Completion::of(claim.token), None).await.unwrap();
}

/// The sizes of the folder over a day, round by round.
async fn live_a_day(folder: &Path, reclaims: bool) -> Vec<u64> {
    let clock = Arc::new(ManualClock::at(1_764_763_200_000));
    let mut config = Config::folder(folder);
    config.storage.segment_bytes = 16 * 1024;
    config.maintenance.reclaim_bytes = 32 * 1024;
    let broker = Broker::open_at(config, Arc::clone(&clock) as Arc<_>).await.unwrap();
    let topic = topic_id("orders");
    let mut definition = NewTopic::new(topic.clone());
    definition.retention = Some("PT15M".parse().unwrap());
    broker.register_topic(definition).await.unwrap();
    let mut event_type = NewEventType::new(type_id("placed").parse().unwrap());
    event_type.topic = Some(topic.clone());
    broker.register_event_type(event_type).await.unwrap();
    let mut sizes = Vec::new();
    for number in 0..ROUNDS * EVENTS {
        publish(&broker, number).await;
        handle(&broker, &topic, number + 1).await;
        if number % EVENTS == EVENTS - 1 {
            clock.advance(ROUND_MILLIS);
            broker.expire().await.unwrap();
            if reclaims {
                broker.reclaim().await.unwrap();
            }
            sizes.push(bytes_of(folder));
        }
    }
    broker.close().await;
    sizes
}

fn average(sizes: &[u64]) -> u64 {
    sizes.iter().sum::<u64>() / sizes.len() as u64
}

#[tokio::test]
async fn a_day_of_steady_load_does_not_make_the_folder_larger() {
    let folder = TempDir::new().unwrap();
    let sizes = live_a_day(folder.path(), true).await;
    // The keeper gives space back a little later, so single sizes mean little.
    let (morning, evening) = (average(&sizes[72..144]), average(&sizes[216..]));
    assert!(evening < morning * 5 / 4, "from {morning} to {evening} bytes: {sizes:?}");
    // Without it the folder grows all day: what is measured is what is reclaimed.
    let folder = TempDir::new().unwrap();
    let grown = live_a_day(folder.path(), false).await;
    let (morning, evening_grown) = (average(&grown[72..144]), average(&grown[216..]));
    assert!(evening_grown > morning * 3 / 2 && evening_grown > 3 * evening, "{morning} {evening_grown} {evening}");
}
