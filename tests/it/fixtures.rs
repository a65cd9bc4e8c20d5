//! Data folders written by earlier versions still open with the same contents.
//!
//! `tests/fixtures/v1` was written by `examples/quickstart.rs`: one topic, one type, one event.

use crate::scenario::copy_folder;
use contract::api::*;
use contract::{NewEvent, PublishOutcome, Timestamp, TopicRead};
use event_broker::{Broker, Config, ManualClock};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const WRITTEN_AT: &str = "2026-11-15T22:48:00Z";

/// A copy of a fixture, because opening a folder writes to it.
fn fixture(name: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    copy_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name), folder.path()).unwrap();
    folder
}

#[tokio::test]
async fn a_folder_of_format_1_opens_with_and_without_its_tables() {
    for tables in [true, false] {
        let folder = fixture("v1");
        if !tables {
            std::fs::remove_dir_all(folder.path().join("state")).unwrap();
        }
        assert!(log::file::verify(folder.path(), contract::Position::ZERO, |_| ()).unwrap().damages.is_empty());
        // One hour after the fixture was written.
        let clock = Arc::new(ManualClock::at(WRITTEN_AT.parse::<Timestamp>().unwrap().millis() + 3_600_000));
        let broker = Broker::open_at(Config::folder(folder.path()), clock).await.unwrap();
        let topic = "gts.hx.core.events.topic.v1~vendor.orders.v1".parse().unwrap();
        let page = broker.read(TopicRead::all(topic)).await.unwrap();
        let stored = page.items.first().unwrap().clone();
        let event = stored.event().unwrap();
        assert_eq!(page.items.len(), 1);
        assert_eq!(event.data.get(), r#"{"total": 99.90}"#);
        assert_eq!((stored.sequence.0, stored.aggregate_sequence.0, stored.position.0), (1, 1, 4));
        assert_eq!(broker.event(event.id).await.unwrap(), stored);
        // Its idempotency key is still remembered, and its aggregate continues counting.
        let mut again = NewEvent::new(event.event_type, event.source, event.data);
        (again.id, again.tenant) = (Some(event.id), event.tenant);
        (again.subject, again.subject_type) = (event.subject, event.subject_type);
        let known = broker.publish(again.clone(), None).await.unwrap();
        assert_eq!(known.outcome, PublishOutcome::Duplicate { payload_mismatch: false });
        again.id = None;
        assert_eq!(broker.publish(again, None).await.unwrap().event.aggregate_sequence.0, 2);
    }
}
