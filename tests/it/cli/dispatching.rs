//! Subscriptions and jobs on the command line.

use super::{ask, run};
use crate::http::{CREATED, Server, TOPIC, event};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use tokio::net::TcpListener;

/// A receiver that refuses the first `refuse` requests; returns its URL and the number of requests.
async fn receiver(refuse: usize) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&count);
    let take = async move || match counting.fetch_add(1, Ordering::SeqCst) {
        number if number < refuse => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::OK,
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", post(take))).await.unwrap() });
    (url, count)
}

async fn publish(server: &Server, count: usize) {
    for _ in 0..count {
        let (status, stored) = server.post("/v1/events", &event(CREATED, "a")).await;
        assert_eq!(status, 201, "{stored}");
    }
}

const PRIVATE: (&str, &str) = ("EVENT_BROKER__DISPATCH__ALLOW_PRIVATE_TARGETS", "true");

fn private() -> Server {
    Server::start_with(&[PRIVATE], &[])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_watched_until_they_are_over_and_a_replay_until_it_is_delivered() {
    let server = private();
    server.register(CREATED).await;
    let (url, count) = receiver(0).await;
    ask(&server, &["subscriptions", "create", "mail", TOPIC, &url, "--mode", "BLOCK_ON_ERROR"]).expect(0);
    publish(&server, 3).await;
    let watched = ask(&server, &["jobs", "watch", "--subscription", "mail", "--until-over"]).expect(0).out;
    assert_eq!(watched.matches("COMPLETED  attempt 1: 200").count(), 3, "{watched}");
    let counted = ask(&server, &["subscriptions", "replay", "mail", "--from", "1", "--dry-run"]).expect(0).out;
    assert_eq!((counted.trim(), count.load(Ordering::SeqCst)), ("3", 3));
    let replayed = ask(&server, &["subscriptions", "replay", "mail", "--from", "1", "--wait"]).expect(0).out;
    assert_eq!((replayed.trim(), count.load(Ordering::SeqCst)), ("3", 6));
    ask(&server, &["jobs", "watch"]).expect(2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_group_is_shown_with_what_to_do_about_it() {
    let server = private();
    server.register(CREATED).await;
    let (url, _) = receiver(1).await;
    ask(&server, &["subscriptions", "create", "mail", TOPIC, &url, "--mode", "BLOCK_ON_ERROR"]).expect(0);
    publish(&server, 3).await;
    let blocked = loop {
        let groups = ask(&server, &["subscriptions", "groups", "mail", "--json"]).expect(0).json();
        if let Some(group) = groups.into_iter().next() {
            break group;
        }
    };
    assert_eq!(blocked["waiting"], 2, "{blocked}");
    let job = blocked["blockedBy"].as_str().unwrap();
    let shown = ask(&server, &["subscriptions", "groups", "mail"]).expect(0).out;
    let reply = format!("event-broker jobs cancel {job}: It is cancelled and never delivered; the 2 behind it go on");
    assert!(shown.contains(&reply), "{shown}");
    ask(&server, &["jobs", "cancel", job]).expect(0);
    let watched = ask(&server, &["jobs", "watch", "--subscription", "mail", "--until-over", "--json"]).expect(0).json();
    let last = |status: &str| watched.iter().filter(|job| job["status"] == status).count();
    assert_eq!((last("CANCELLED"), last("COMPLETED")), (1, 2), "{watched:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_that_was_not_delivered_ends_with_1_and_a_list_says_what_was_tried() {
    let server = private();
    server.register(CREATED).await;
    let (url, _) = receiver(2).await;
    ask(&server, &["subscriptions", "create", "mail", TOPIC, &url]).expect(0);
    let failed = ask(&server, &["subscriptions", "test", "mail", "--json"]).expect(1).json();
    assert_eq!(failed[0]["status"], 500, "{failed:?}");
    publish(&server, 1).await;
    let listed = loop {
        let listed = ask(&server, &["jobs", "list", "--status", "PENDING"]).expect(0).out;
        if listed.contains("mail") {
            break listed;
        }
    };
    let row = listed.lines().find(|line| line.contains("mail")).unwrap();
    assert!(listed.contains("ATTEMPTS") && row.contains(" 1 ") && row.contains("http_5xx: "), "{listed}");
    let delivered = ask(&server, &["subscriptions", "test", "mail", "--json"]).expect(0).json();
    assert_eq!(delivered[0]["status"], 200, "{delivered:?}");
}

/// A backup of a broker that has not delivered yet: two events of a topic in the default log, and one of a topic in its
/// own file log.
async fn undelivered(url: &str, backup: &Path) {
    let apart = "gts.hx.core.events.topic.v1~vendor.apart.v1";
    let apart_type = "gts.hyperspot.core.events.type.v1~vendor.apart.happened.v1";
    let server = Server::start_with(&[PRIVATE, ("EVENT_BROKER__DISPATCH__ENABLED", "false")], &["--storage", "file"]);
    server.register(CREATED).await;
    ask(&server, &["topics", "create", apart, "--storage", "file"]).expect(0);
    let (status, made) = server.post("/v1/event-types", &json!({"id": apart_type, "topic": apart})).await;
    assert_eq!(status, 201, "{made}");
    ask(&server, &["subscriptions", "create", "mail", TOPIC, url]).expect(0);
    ask(&server, &["subscriptions", "create", "apart", apart, url]).expect(0);
    publish(&server, 2).await;
    let (status, stored) = server.post("/v1/events", &event(apart_type, "a")).await;
    assert_eq!(status, 201, "{stored}");
    run(&["backup", "--data", server.path().to_str().unwrap(), "--output", backup.to_str().unwrap()]).expect(0);
}

fn restored(backup: &Path, arguments: &[&str]) -> Server {
    let data = TempDir::new().unwrap();
    let made = run(&["restore", "--from", backup.to_str().unwrap(), "--data", data.path().to_str().unwrap()]).expect(0);
    assert!(made.err.contains("dispatch is paused"), "{}", made.err);
    let arguments: Vec<_> = ["--storage", "file"].iter().chain(arguments).copied().collect();
    Server::start_in_with(data, &[PRIVATE], &arguments)
}

async fn delivered(count: &AtomicUsize, wanted: usize) {
    while count.load(Ordering::SeqCst) < wanted {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_broker_delivers_nothing_until_dispatch_is_resumed() {
    let (url, count) = receiver(0).await;
    let folder = TempDir::new().unwrap();
    let backup = folder.path().join("backup");
    undelivered(&url, &backup).await;
    let server = restored(&backup, &[]);
    assert!(server.logged().contains("Dispatch is paused since"), "{}", server.logged());
    ask(&server, &["subscriptions", "test", "mail"]).expect(0);
    publish(&server, 1).await;
    // The pause is stored in the log: a restart does not end it.
    server.terminate();
    let (_, data) = server.wait();
    let server = Server::start_in_with(data, &[PRIVATE], &["--storage", "file"]);
    let (status, ready) = server.get("/readyz").await;
    assert_eq!((status.as_u16(), &ready["status"]), (200, &json!("ready")), "{ready}");
    assert!(ready["degraded"][0].as_str().unwrap().contains("POST /v1/server/dispatch:resume"), "{ready}");
    ask(&server, &["subscriptions", "test", "mail"]).expect(0);
    assert_eq!(count.load(Ordering::SeqCst), 2, "only the test deliveries were sent");
    for _ in 0..2 {
        let answer = server.post("/v1/server/dispatch:resume", &json!({})).await;
        assert_eq!((answer.0.as_u16(), answer.1), (200, json!({"status": "ACTIVE"})));
    }
    delivered(&count, 2 + 4).await;
    assert_eq!(server.logged().matches("dispatch was resumed").count(), 1, "{}", server.logged());
    assert_eq!(server.get("/readyz").await.1, json!({"status": "ready"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_broker_that_is_told_so_at_its_start_delivers() {
    let (url, count) = receiver(0).await;
    let folder = TempDir::new().unwrap();
    let backup = folder.path().join("backup");
    undelivered(&url, &backup).await;
    let server = restored(&backup, &["--resume-dispatch"]);
    delivered(&count, 3).await;
    assert_eq!(server.get("/readyz").await.1, json!({"status": "ready"}));
}
