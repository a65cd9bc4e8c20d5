//! Fail-over to a standby that had not received everything: every broker detects it, and continues with what the
//! standby has.

use super::{Database, TYPES, register, start, whole_log};
use crate::http::{Server, event};
use log::testing::in_time;
use log_postgres::testing::ShutdownMode;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::spawn_blocking;
use uuid::Uuid;

async fn post(server: &Server, id: Uuid, n: u64) -> (StatusCode, Value) {
    let mut event = event(TYPES[0], "s");
    (event["id"], event["data"]) = (json!(id), json!({"n": n}));
    server.post("/v1/events", &event).await
}

/// Publishes this event until it is stored; it must not be treated as a duplicate.
async fn store(server: &Server, id: Uuid, n: u64) {
    let stored = async {
        loop {
            match post(server, id, n).await {
                (StatusCode::CREATED, _) => return,
                (StatusCode::SERVICE_UNAVAILABLE, _) => (),
                (status, answer) => panic!("{status} {answer}"),
            }
        }
    };
    in_time(stored).await;
}

/// Waits until the broker has read this many events.
async fn has_read(server: &Server, count: usize) {
    in_time(async { while whole_log(&server.url).await.len() < count {} }).await;
}

async fn blocking<T: Send + 'static>(
    database: &Arc<Database>,
    work: impl FnOnce(&Database) -> T + Send + 'static,
) -> T {
    let database = Arc::clone(database);
    spawn_blocking(move || work(&database)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_had_read_what_a_fail_over_lost_go_on_with_what_the_standby_has() {
    let primary = Arc::new(spawn_blocking(Database::start).await.unwrap());
    let url = primary.create_database();
    let standby = Arc::new(blocking(&primary, |primary| primary.start_standby("one")).await);
    let name = url.rsplit('/').next().unwrap().split('?').next().unwrap().to_owned();
    let hosts = [primary.url(&name), standby.url(&name)].map(|url| {
        let host = url.split('@').nth(1).unwrap_or(&url).split("//").last().unwrap().to_owned();
        host.split('/').next().unwrap().to_owned()
    });
    let both = format!("postgres://postgres@{}/{name}?target_session_attrs=read-write", hosts.join(","));
    let (busy, idle) = (start(&both), start(&both));
    register(&busy).await;
    let ids: Vec<_> = (0..5).map(|_| Uuid::new_v4()).collect();
    for (n, id) in (0..).zip(&ids[..2]) {
        store(&busy, *id, n).await;
    }
    let source = Arc::clone(&primary);
    blocking(&standby, move |standby| {
        standby.wait_for_all_of(&source);
        standby.stop(ShutdownMode::Immediate);
    })
    .await;
    for (n, id) in (2..).zip(&ids[2..]) {
        store(&busy, *id, n).await;
    }
    has_read(&idle, 5).await;
    blocking(&primary, |primary| primary.stop(ShutdownMode::Immediate)).await;
    blocking(&standby, |standby| {
        standby.start_again();
        standby.promote();
    })
    .await;
    // One broker continues to write, past what the other one had read; then the other one receives a lost event again.
    let others: Vec<_> = (0..8).map(|_| Uuid::new_v4()).collect();
    for (n, id) in (10..).zip(&others) {
        store(&busy, *id, n).await;
    }
    store(&idle, ids[2], 2).await;
    let expected: Vec<_> = ids[..2].iter().chain(&others).chain(&ids[2..3]).map(Uuid::to_string).collect();
    for server in [&busy, &idle] {
        has_read(server, expected.len()).await;
        let events = whole_log(&server.url).await;
        let got: Vec<_> = events.iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect();
        assert_eq!(got, expected);
        let sequences: Vec<_> = events.iter().map(|event| event["sequence"].as_u64().unwrap()).collect();
        assert_eq!(sequences, (1..=expected.len() as u64).collect::<Vec<_>>());
        in_time(async { while server.get("/readyz").await.0 != 200 {} }).await;
        assert!(server.logged().contains("the log went back"), "{}", server.logged());
    }
}
