//! A database outage: refusals name the cause, no acknowledged event is lost, and recovery needs no operator.

use super::{Database, TYPES, register, start, whole_log};
use crate::http::{client, event};
use log_postgres::testing::{ServerOptions, ShutdownMode};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;

const PUBLISHERS: usize = 16;

/// The results of the publishers so far.
#[derive(Default)]
struct OutageTally {
    acknowledged: AtomicU64,
    refused: AtomicU64,
    /// The publishers stop when this many events are acknowledged.
    enough: AtomicU64,
}

/// Publishes one event after the other until there are enough, each until it is stored; returns their ids.
async fn publish_on(http: Client, url: String, tally: Arc<OutageTally>) -> Vec<String> {
    let mut stored = Vec::new();
    while tally.acknowledged.load(Ordering::SeqCst) < tally.enough.load(Ordering::SeqCst) {
        let mut event = event(TYPES[0], "s");
        let id = Uuid::new_v4().to_string();
        event["id"] = json!(id);
        loop {
            let response = http.post(format!("{url}/v1/events")).json(&event).send().await.unwrap();
            let status = response.status();
            if status.is_success() {
                break;
            }
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{:?}", response.text().await);
            assert!(response.headers().contains_key("retry-after"));
            tally.refused.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
        }
        tally.acknowledged.fetch_add(1, Ordering::SeqCst);
        stored.push(id);
    }
    stored
}

/// Waits until the counter has grown by `by`.
async fn more(count: &AtomicU64, by: u64) {
    let wanted = count.load(Ordering::SeqCst) + by;
    while count.load(Ordering::SeqCst) < wanted {
        tokio::task::yield_now().await;
    }
}

async fn readiness(url: &str) -> StatusCode {
    client().get(format!("{url}/readyz")).send().await.unwrap().status()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_is_stopped_and_its_connections_are_cut_under_load() {
    let database = Database::start_with(ServerOptions { fsync: true, ..ServerOptions::default() });
    let address = database.create_database();
    let server = start(&address);
    register(&server).await;
    let tally = Arc::new(OutageTally { enough: AtomicU64::new(u64::MAX), ..OutageTally::default() });
    let publishers: Vec<_> =
        (0..PUBLISHERS).map(|_| tokio::spawn(publish_on(client(), server.url.clone(), Arc::clone(&tally)))).collect();
    for _ in 0..6 {
        more(&tally.acknowledged, 40).await;
        tokio::task::block_in_place(|| database.kill_connections_to(&address));
    }
    for how in [ShutdownMode::Fast, ShutdownMode::Immediate] {
        more(&tally.acknowledged, 40).await;
        tokio::task::block_in_place(|| database.stop(how));
        more(&tally.refused, 20).await;
        assert_eq!(readiness(&server.url).await, StatusCode::SERVICE_UNAVAILABLE);
        tokio::task::block_in_place(|| database.start_again());
        more(&tally.acknowledged, 40).await;
        assert_eq!(readiness(&server.url).await, StatusCode::OK);
    }
    tally.enough.store(0, Ordering::SeqCst);
    let mut acknowledged = HashSet::new();
    for publisher in publishers {
        acknowledged.extend(publisher.await.unwrap());
    }
    let log = whole_log(&server.url).await;
    let stored: Vec<&str> = log.iter().map(|event| event["id"].as_str().unwrap()).collect();
    assert_eq!(stored.len(), acknowledged.len(), "lost or stored twice");
    assert!(stored.iter().all(|id| acknowledged.contains(*id)));
    let sequences: Vec<&Value> = log.iter().map(|event| &event["sequence"]).collect();
    assert!(sequences.iter().zip(1..).all(|(sequence, wanted)| **sequence == json!(wanted)));
}
