//! Flipped bits under the whole broker: what is intact is served, what is not is named, and nothing else suffers.

use crate::scenario::{subject_type_id, topic_id, type_id};
use contract::{EventBroker, Kind, NewEvent, NewEventType, Outcome, Read};
use event_broker::{Broker, Config};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use uuid::Uuid;

const EVENTS: u128 = 60;

pub(crate) fn event(id: u128) -> NewEvent {
    let data = serde_json::value::to_raw_value(&serde_json::json!({"text": "x".repeat(300)})).unwrap();
    let event_type = type_id("placed").parse().unwrap();
    let mut event = NewEvent::new(event_type, "test", data).about(subject_type_id("order"), (id % 7).to_string());
    event.id = Some(Uuid::from_u128(id));
    event.tenant = Some(Uuid::from_u128(1));
    event
}

/// Segments of about ten events.
fn config(folder: &Path) -> Config {
    let mut config = Config::folder(folder);
    config.storage.segment_bytes = 8 * 1024;
    config
}

pub(crate) async fn open(folder: &Path) -> Broker {
    Broker::open(config(folder)).await.unwrap()
}

/// A folder with events 1 to 60, closed cleanly.
pub(crate) async fn filled() -> TempDir {
    let folder = TempDir::new().unwrap();
    let broker = open(folder.path()).await;
    broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    for id in 1..=EVENTS {
        broker.publish(event(id), None).await.unwrap();
    }
    broker.close().await;
    folder
}

/// Where an event's body lies: its file and an offset inside the body.
fn body_of(folder: &Path, id: u128) -> (PathBuf, usize) {
    let wanted = Uuid::from_u128(id).to_string();
    let files = fs::read_dir(folder.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let found = files.filter(|path| path.extension().is_some_and(|ending| ending == "log")).find_map(|path| {
        let bytes = fs::read(&path).unwrap();
        let at = bytes.windows(wanted.len()).position(|window| window == wanted.as_bytes())?;
        Some((path, at))
    });
    found.unwrap()
}

/// Flips one bit of an event's body.
pub(crate) fn spoil(folder: &Path, id: u128) {
    let (path, at) = body_of(folder, id);
    let mut bytes = fs::read(&path).unwrap();
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
}

/// The fold needs an event's header, which is intact; only who reads the event itself misses something.
#[tokio::test]
async fn a_bad_body_does_not_keep_a_broker_without_tables_from_opening() {
    let folder = filled().await;
    spoil(folder.path(), 25);
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    let broker = open(folder.path()).await;
    let mut first_pages = Read::all(topic_id("default"));
    first_pages.limit = 24;
    assert_eq!(broker.read(first_pages).await.unwrap().items.len(), 24);
    assert_eq!(broker.event(Uuid::from_u128(25)).await.unwrap_err().kind(), Kind::Unavailable);
    let again = broker.publish(event(24), None).await.unwrap();
    assert_eq!(again.outcome, Outcome::Duplicate { payload_mismatch: false });
    let next = broker.publish(event(EVENTS + 1), None).await.unwrap().event;
    assert_eq!((u128::from(next.sequence.0), next.aggregate_sequence.0), (61, 9), "its numbers are taken");
}
