//! A synchronous standby is lost: no broker acknowledges or returns an event that the standby does not have.

use super::{Database, TYPES, publish, register, start, topic, whole_log};
use crate::http::{Server, event};
use log_postgres::testing::ShutdownMode;
use reqwest::StatusCode;
use serde_json::json;
use uuid::Uuid;

const WAITS: &str = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')";
const END_WAITS: &str =
    "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

async fn until_ready(server: &Server, wanted: StatusCode) {
    while server.get("/readyz").await.0 != wanted {
        tokio::task::yield_now().await;
    }
}

/// The number of events of the first topic that this broker returns; no request may return the event `id`.
async fn shown_without(server: &Server, id: &str) -> usize {
    let (status, page) = server.get(&format!("/v1/events?topic={}&offset=0", topic(0))).await;
    assert_eq!(status, 200, "{page}");
    let (status, found) = server.get(&format!("/v1/events/{id}")).await;
    assert_ne!(status, 200, "{found}");
    let items = page["items"].as_array().unwrap();
    assert!(items.iter().all(|event| event["id"] != id), "{page}");
    let (status, log) = server.get("/v1/log?after=0").await;
    assert_eq!((status.as_u16(), &log["items"]), (200, &page["items"]), "{log}");
    items.len()
}

/// The broker once responded 201 when the broker itself, or an administrator, had ended the wait for the standby.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_a_synchronous_standby_does_not_have_is_neither_acknowledged_nor_shown() {
    let (primary, standby) = tokio::task::block_in_place(|| {
        let primary = Database::start();
        let standby = primary.start_standby("one");
        (primary, standby)
    });
    let address = primary.create_database();
    let brokers = [start(&address), start(&address)];
    register(&brokers[0]).await;
    tokio::task::block_in_place(|| primary.require_standbys("one"));
    let before = publish(&brokers[0], 0, "s").await;
    while whole_log(&brokers[1].url).await.is_empty() {}

    tokio::task::block_in_place(|| standby.stop(ShutdownMode::Immediate));
    let id = Uuid::new_v4().to_string();
    let mut wanted = event(TYPES[0], "s");
    wanted["id"] = json!(id);
    let (http, url, sent) = (brokers[0].client.clone(), brokers[0].url.clone(), wanted.clone());
    let publishing =
        tokio::spawn(async move { http.post(format!("{url}/v1/events")).json(&sent).send().await.unwrap().status() });
    tokio::task::block_in_place(|| {
        primary.wait_until(WAITS);
        // Now the row is visible in SQL, and the standby does not have it.
        assert_eq!(primary.sql("postgres", END_WAITS), "1");
        assert_eq!(primary.sql(&address, "SELECT count(*) FROM event_broker.events"), "2");
    });
    for broker in &brokers {
        until_ready(broker, StatusCode::SERVICE_UNAVAILABLE).await;
        assert_eq!(shown_without(broker, &id).await, 1);
    }

    tokio::task::block_in_place(|| standby.start_again());
    let status = publishing.await.unwrap();
    assert!([201, 503].contains(&status.as_u16()), "{status}");
    for broker in &brokers {
        until_ready(broker, StatusCode::OK).await;
    }
    // Whatever the response was: the event is stored once, and a repeated request returns it.
    let (status, stored) = brokers[0].post("/v1/events", &wanted).await;
    assert!(status.is_success(), "{stored}");
    for broker in &brokers {
        let mut log = whole_log(&broker.url).await;
        while log.len() < 2 {
            log = whole_log(&broker.url).await;
        }
        let ids: Vec<_> = log.iter().map(|event| event["id"].clone()).collect();
        assert_eq!(ids, [before["id"].clone(), json!(id)]);
    }
}
