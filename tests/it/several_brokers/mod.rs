//! Several broker processes on one database: one log and one order, whichever of them is killed.

mod database_outage;
mod failover;
mod killed_brokers;
mod replicas;
mod sharing;

use crate::http::{Server, event};
use log_postgres::testing::TestServer as Database;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const TYPES: [&str; 3] = [
    "gts.hyperspot.core.events.type.v1~vendor.several.made_a.v1",
    "gts.hyperspot.core.events.type.v1~vendor.several.made_b.v1",
    "gts.hyperspot.core.events.type.v1~vendor.several.made_c.v1",
];

/// A topic for each of [`TYPES`].
fn topic(number: usize) -> String {
    format!("gts.hx.core.events.topic.v1~vendor.several{number}.v1")
}

/// Starts a broker process on `database`, with its own folder.
pub(crate) fn start(database: &str) -> Server {
    start_in(TempDir::new().unwrap(), database)
}

fn start_in(folder: TempDir, database: &str) -> Server {
    Server::start_in(folder, &["--storage", database])
}

/// Registers the topics and types of these tests.
async fn register(server: &Server) {
    for (number, event_type) in TYPES.iter().enumerate() {
        let (status, answer) = server.post("/v1/topics", &json!({"id": topic(number), "streaming": true})).await;
        assert!(status.is_success(), "{answer}");
        let (status, answer) = server.post("/v1/event-types", &json!({"id": event_type, "topic": topic(number)})).await;
        assert!(status.is_success(), "{answer}");
    }
}

/// Publishes one event through this broker; returns it as stored.
async fn publish(server: &Server, number: usize, subject: &str) -> Value {
    let (status, stored) = server.post("/v1/events", &event(TYPES[number], subject)).await;
    assert_eq!(status, 201, "{stored}");
    stored
}

/// Every event of the log as this broker reads it.
async fn whole_log(url: &str) -> Vec<Value> {
    let client = crate::http::client();
    let mut events = Vec::new();
    let mut after = 0;
    loop {
        let request = client.request(Method::GET, format!("{url}/v1/log?after={after}"));
        let (status, page) = crate::http::answer(request).await;
        assert_eq!(status, 200, "{page}");
        let items = page["items"].as_array().unwrap();
        let next = page["nextPosition"].as_u64().unwrap();
        if items.is_empty() && next >= page["tail"].as_u64().unwrap() {
            return events;
        }
        events.extend(items.iter().cloned());
        after = next;
    }
}
