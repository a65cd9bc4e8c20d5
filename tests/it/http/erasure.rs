//! Removed events are erased: no file of the data folder holds them, even if claims and jobs are stored between the
//! events.

use super::{CREATED, Server, TOPIC, event, is_on_databases};
use log::testing::in_time;
use serde_json::{Value, json};
use std::path::Path;

const MARKER: &str = "erase-this-marker";
const EVENTS: u64 = 30;

/// The number of files below a folder that hold the marker.
fn marked_files(folder: &Path) -> usize {
    let mut found = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found += marked_files(&path);
        } else if let Ok(bytes) = std::fs::read(&path) {
            // A file that was deleted meanwhile holds nothing.
            found += usize::from(bytes.windows(MARKER.len()).any(|part| part == MARKER.as_bytes()));
        }
    }
    found
}

/// A broker with events that carry the marker, each of them claimed by a handler and matched by a subscription.
async fn filled(variables: &[(&str, &str)]) -> Server {
    let server = Server::start_with(variables, &[]);
    server.register(CREATED).await;
    fill(&server).await;
    server
}

async fn fill(server: &Server) {
    let subscription = json!({"code": "s", "topic": TOPIC, "target": "https://example.com/",
        "eventTypes": [{"type": CREATED}]});
    let (status, answer) = server.post("/v1/subscriptions", &subscription).await;
    assert!(status.is_success(), "{answer}");
    for sequence in 1..=EVENTS {
        let mut marked = event(CREATED, "s");
        marked["data"] = json!({"note": MARKER});
        assert_eq!(server.post("/v1/events", &marked).await.0, 201);
        let claim = json!({"handler": "h", "topic": TOPIC, "sequence": sequence, "owner": "o"});
        let (status, answer) = server.post("/v1/claims", &claim).await;
        assert!(status.is_success(), "{answer}");
    }
}

/// Waits until no file holds the marker.
async fn erased(server: &Server) {
    in_time(async {
        while marked_files(server.path()) > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn trim(server: &Server, order: &Value) {
    let (status, answer) = server.post(&format!("/v1/topics/{TOPIC}:trim"), order).await;
    assert_eq!((status.as_u16(), &answer["count"]), (200, &json!(EVENTS)), "{answer}");
}

#[tokio::test]
async fn a_trim_that_erases_leaves_no_byte_of_the_events_in_any_file() {
    if is_on_databases() {
        return;
    }
    for segment_bytes in ["4096", "67108864"] {
        let server = filled(&[("EVENT_BROKER__STORAGE__SEGMENT_BYTES", segment_bytes)]).await;
        assert!(marked_files(server.path()) > 0);
        trim(&server, &json!({"through": EVENTS, "erase": true})).await;
        assert_eq!(marked_files(server.path()), 0);
        assert_eq!(server.post("/v1/events", &event(CREATED, "s")).await.0, 201);
        // The broker writes a checkpoint of its state when it stops.
        server.terminate();
        let (_, folder) = server.wait();
        assert_eq!(marked_files(folder.path()), 0);
        let server = Server::start_in(folder, &[]);
        let (_, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset={EVENTS}")).await;
        assert_eq!(page["items"].as_array().map(Vec::len), Some(1), "{page}");
    }
}

#[tokio::test]
async fn what_was_trimmed_is_erased_within_the_configured_time_though_a_restart_comes_between() {
    if is_on_databases() {
        return;
    }
    let server = filled(&[]).await;
    trim(&server, &json!({"through": EVENTS})).await;
    assert!(marked_files(server.path()) > 0, "erasure at once is not configured");
    server.terminate();
    let (_, folder) = server.wait();
    let server = Server::start_again_with(folder, &[("EVENT_BROKER__MAINTENANCE__ERASE_WITHIN_SECS", "1")]);
    erased(&server).await;
    assert_eq!(server.post("/v1/events", &event(CREATED, "s")).await.0, 201);
}

#[tokio::test]
async fn what_retention_removed_is_erased_from_every_file_within_the_configured_time() {
    if is_on_databases() {
        return;
    }
    for segment_bytes in ["4096", "67108864"] {
        let server = Server::start_with(
            &[
                ("EVENT_BROKER__STORAGE__SEGMENT_BYTES", segment_bytes),
                ("EVENT_BROKER__MAINTENANCE__RETENTION_CHECK_SECS", "1"),
                ("EVENT_BROKER__MAINTENANCE__ERASE_WITHIN_SECS", "1"),
            ],
            &[],
        );
        server.register(CREATED).await;
        fill(&server).await;
        assert!(marked_files(server.path()) > 0);
        // No trim is requested: the events exceed the retention.
        let patch = server.request(reqwest::Method::PATCH, &format!("/v1/topics/{TOPIC}"));
        let (status, answer) = super::answer(patch.json(&json!({"retention": "PT1S"}))).await;
        assert_eq!(status, 200, "{answer}");
        erased(&server).await;
        let (status, answer) = server.get(&format!("/v1/events?topic={TOPIC}&offset=0")).await;
        assert_eq!((status.as_u16(), &answer["resumeOffset"]), (410, &json!(EVENTS)), "{answer}");
        // A shutdown's writes, and the next start, do not bring them back.
        server.terminate();
        let (_, folder) = server.wait();
        assert_eq!(marked_files(folder.path()), 0);
        let server = Server::start_in(folder, &[]);
        assert_eq!(marked_files(server.path()), 0);
        assert_eq!(server.post("/v1/events", &event(CREATED, "s")).await.0, 201);
    }
}

#[tokio::test]
async fn compacting_takes_an_order_to_erase_or_no_body_and_nothing_else() {
    if is_on_databases() {
        return;
    }
    let server = Server::start(&[]);
    let topic = "gts.hx.core.events.topic.v1~vendor.erasing.v1";
    let (status, answer) =
        server.post("/v1/topics", &json!({"id": topic, "streaming": true, "cleanup": "compact"})).await;
    assert!(status.is_success(), "{answer}");
    let path = format!("/v1/topics/{topic}:compact");
    assert_eq!(server.post(&path, &json!({"erase": true})).await, (reqwest::StatusCode::OK, json!({"count": 0})));
    let (status, answer) = super::answer(server.request(reqwest::Method::POST, &path)).await;
    assert_eq!((status.as_u16(), answer), (200, json!({"count": 0})));
    assert_eq!(server.post(&path, &json!({"eraze": true})).await.0, 422);
}

/// The stored response to a batch over two logs held the text of its events, and reclaiming wrote that text again.
#[tokio::test]
async fn the_stored_response_to_a_batch_over_two_logs_does_not_repeat_its_events() {
    if is_on_databases() {
        return;
    }
    const SIDE_TOPIC: &str = "side.orders";
    let server = Server::start_with(&[], &[]);
    server.register(CREATED).await;
    let topic = json!({"id": SIDE_TOPIC, "streaming": {"type": "file", "location": "file://side"}});
    assert_eq!(server.post("/v1/topics", &topic).await.0, 201);
    let side_type = json!({"id": "side.placed", "topic": SIDE_TOPIC});
    assert_eq!(server.post("/v1/event-types", &side_type).await.0, 201);
    let marked = |event_type: &str| {
        let mut marked = event(event_type, "s");
        marked["data"] = json!({"note": MARKER});
        marked
    };
    let batch = json!({"events": [marked(CREATED), marked("side.placed")]});
    let send = async || {
        let request = server.client.post(format!("{}/v1/events:batch", server.url)).json(&batch);
        super::answer(request.header("idempotency-key", "k")).await
    };
    let first = send().await;
    assert_eq!(first.0.as_u16(), 207, "{}", first.1);
    assert_eq!(send().await, first, "the events are read from both logs");
    for topic in [TOPIC, SIDE_TOPIC] {
        let trim = json!({"through": 1, "erase": true});
        assert_eq!(server.post(&format!("/v1/topics/{topic}:trim"), &trim).await.0, 200);
    }
    assert_eq!(marked_files(server.path()), 0);
    super::expect_problem(send().await, 410, "EVENT_BROKER_TRIMMED");
}
