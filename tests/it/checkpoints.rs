//! Checkpoints that fail: the failure is reported, each retry waits longer, and memory stays bounded.

use crate::scenario::{subject_type_id, type_id};
use contract::api::*;
use contract::{Kind, NewEvent, NewEventType};
use event_broker::config::Config;
use event_broker::{Broker, ManualClock};
use log::testing::in_time;
use serde_json::value::RawValue;
use std::sync::Arc;
use tempfile::TempDir;
use uuid::Uuid;

const ROWS: usize = 10;

async fn publish(broker: &Broker, id: u128) -> Result<(), Kind> {
    let data = RawValue::from_string("{}".to_owned()).unwrap();
    let event = NewEvent::new(type_id("placed").parse().unwrap(), "test", data);
    let mut event = event.about(subject_type_id("order"), id.to_string());
    event.id = Some(Uuid::from_u128(id));
    event.tenant = Some(Uuid::from_u128(1));
    let published = broker.publish(event, None).await.map(drop).map_err(|error| error.kind());
    assert!(matches!(published, Ok(()) | Err(Kind::Unavailable)), "{published:?}");
    published
}

#[tokio::test]
async fn failing_checkpoints_are_told_bound_memory_and_end_when_the_folder_is_back() {
    let folder = TempDir::new().unwrap();
    let mut config = Config::folder(folder.path());
    config.maintenance.checkpoint_rows = ROWS;
    let clock = Arc::new(ManualClock::at(1_764_763_200_000));
    let broker = Broker::open_at(config, Arc::clone(&clock) as Arc<_>).await.unwrap();
    broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    let state = folder.path().join("state");
    std::fs::remove_dir_all(&state).unwrap();
    let mut ids = 1..;
    let refused = async {
        while publish(&broker, ids.next().unwrap()).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    in_time(refused).await;
    let stored = ids.start - 2;
    // Each event has one row for its key and one for its aggregate.
    assert!(stored * 2 >= 16 * ROWS as u128, "only {stored} events were stored before the refusal");
    assert!(broker.failure().is_none(), "a failed checkpoint does not stop the broker");
    let [warning] = &broker.degradations()[..] else { panic!("no warning") };
    assert!(warning.starts_with("The log default: The last 1 checkpoints"), "{warning}");
    // The folder exists again; the next attempt runs when its back-off has expired.
    std::fs::create_dir(&state).unwrap();
    clock.advance(60_000);
    let taken = async {
        while publish(&broker, ids.next().unwrap()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    in_time(taken).await;
    assert!(broker.degradations().is_empty());
    broker.close().await;
}
