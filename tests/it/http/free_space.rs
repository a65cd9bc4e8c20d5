//! A full volume under the real program: a warning, then writes are refused while reading and removing still work, and
//! writing resumes by itself when there is space.
//!
//! It needs root to mount a small file system. Where mounting fails, it prints a message and is skipped.

use super::{CREATED, Server, TOPIC, answer, event, expect_problem, is_on_databases};
use crate::skips::report_skip;
use log::testing::in_time;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;
use tokio::task::JoinHandle;

const MIB: u64 = 1024 * 1024;
const CODE: &str = "EVENT_BROKER_UNAVAILABLE";

/// A folder that is a small mounted volume; dropping it unmounts the volume.
struct SmallVolume(PathBuf);

impl SmallVolume {
    /// 64 MiB, of which the broker's reserve takes 8; `None` if the machine cannot mount.
    fn mount(folder: &Path) -> Option<Self> {
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=64m,mode=700", "tmpfs"]).arg(folder).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(folder.to_owned())),
            failed => {
                let why =
                    failed.map_or_else(|cause| cause.to_string(), |it| String::from_utf8_lossy(&it.stderr).into());
                report_skip("free_space", &format!("no file system can be mounted: {why}"));
                None
            }
        }
    }

    fn free(&self) -> u64 {
        log::file::volume_space(&self.0).unwrap().unwrap().free
    }
}

impl Drop for SmallVolume {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Reads the topic from its beginning, repeatedly, until it is stopped.
struct ReadingBystander {
    is_over: Arc<AtomicBool>,
    pages: JoinHandle<usize>,
}

impl ReadingBystander {
    fn begin(server: &Server) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (url, over) = (server.url.clone(), Arc::clone(&is_over));
        let pages = tokio::spawn(async move {
            let (client, mut count) = (Client::new(), 0);
            while !over.load(Ordering::Relaxed) {
                let page = format!("{url}/v1/events?topic={TOPIC}&offset=earliest&limit=2");
                let status = client.get(page).send().await.unwrap().status();
                assert_eq!(status, StatusCode::OK, "page {count} of the bystander");
                count += 1;
            }
            count
        });
        Self { is_over, pages }
    }

    async fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        assert!(self.pages.await.unwrap() > 0, "the bystander was never served");
    }
}

fn large(event_type: &str) -> Value {
    let mut large = event(event_type, "s");
    large["data"]["text"] = "x".repeat(100_000).into();
    large
}

/// Publishes until a publish is refused; returns the number of stored events, and the refusal.
async fn publish_until_refused(server: &Server, event_type: &str) -> (u64, Value) {
    for stored in 0..1000 {
        let (status, answer) = server.post("/v1/events", &large(event_type)).await;
        if status != StatusCode::CREATED {
            return (stored, expect_problem((status, answer), 503, CODE));
        }
    }
    panic!("100 MB were stored on a volume of 64 MiB");
}

/// Publishes until it succeeds.
async fn publish_at_last(server: &Server, event_type: &str) {
    in_time(async {
        while server.post("/v1/events", &large(event_type)).await.0 != StatusCode::CREATED {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn degraded(server: &Server) -> String {
    let (status, readiness) = server.get("/readyz").await;
    assert_eq!((status, &readiness["status"]), (StatusCode::OK, &json!("ready")), "{readiness}");
    readiness["degraded"].to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_runs_full_is_told_of_and_then_takes_no_writes_but_reading_and_removing_work() {
    if is_on_databases() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let Some(volume) = SmallVolume::mount(folder.path()) else { return };
    let server = Server::start_in_with(folder, &[("EVENT_BROKER__STORAGE__SEGMENT_BYTES", "1048576")], &[]);
    server.register(CREATED).await;
    let other = json!({"id": "gts.hx.core.events.topic.v1~vendor.other.v1", "streaming": true});
    assert!(server.post("/v1/topics", &other).await.0.is_success());
    assert_eq!(server.post("/v1/events", &event(CREATED, "s")).await.0, StatusCode::CREATED);
    let bystander = ReadingBystander::begin(&server);

    let (stored, refusal) = publish_until_refused(&server, CREATED).await;
    assert!(stored > 300, "only {stored}");
    assert!(volume.free() > MIB, "writes must be refused before the volume is full: {}", volume.free());
    let detail = refusal["detail"].as_str().unwrap();
    assert!(detail.contains("too little free space") && detail.contains("Trim or delete topics"), "{detail}");
    let refused = server.request(Method::POST, "/v1/events").json(&large(CREATED)).send().await.unwrap();
    assert_eq!(refused.headers()["retry-after"], "10");
    let logged = server.logged();
    let (low, short) =
        (logged.find("free space on the log's volume is low"), logged.find("there is too little free space"));
    assert!(low.is_some() && low < short, "{logged}");
    assert_eq!(logged.matches("there is too little free space").count(), 1, "once: {logged}");
    assert!(!logged.contains("the reserve was given up"), "{logged}");
    assert!(degraded(&server).await.contains("are free on its volume, so no events are stored"));

    // Every request that makes the log grow is refused, on every route.
    let subscription = json!({"code": "s", "topic": TOPIC, "target": "https://example.com/",
        "eventTypes": [{"type": CREATED}]});
    for (path, body) in [
        ("/v1/event-types", json!({"id": "gts.hyperspot.core.events.type.v1~vendor.other.made.v1"})),
        ("/v1/topics", json!({"id": "gts.hx.core.events.topic.v1~vendor.new.v1", "streaming": true})),
        ("/v1/subscriptions", subscription),
    ] {
        let (status, answer) = server.post(path, &body).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}: {answer}");
    }
    let (_, batch) = server.post("/v1/events:batch", &json!({"events": [event(CREATED, "s")]})).await;
    assert_eq!(batch["data"]["results"][0]["status"], 503, "{batch}");
    let import = server.request(Method::POST, "/v1/events:import").header("content-type", "application/x-ndjson");
    let import = import.body(format!("{}\n", event(CREATED, "s"))).send().await.unwrap().text().await.unwrap();
    assert!(!import.contains("\"imported\":1"), "{import}");
    // Reading, finishing claims and removing still work.
    let (_, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=earliest&limit=1")).await;
    assert_eq!(page["tail"], json!(stored + 1), "{page}");
    let claim = json!({"handler": "h", "topic": TOPIC, "sequence": 1, "owner": "o"});
    let (status, claimed) = server.post("/v1/claims", &claim).await;
    assert!(status.is_success(), "{claimed}");
    let (status, answered) =
        answer(server.request(Method::DELETE, &format!("/v1/topics/{}", other["id"].as_str().unwrap()))).await;
    assert!(status.is_success(), "{answered}");
    let (status, trimmed) = server.post(&format!("/v1/topics/{TOPIC}:trim"), &json!({"through": stored})).await;
    assert_eq!(status, StatusCode::OK, "{trimmed}");

    // There is space again, and writing resumes without an operator.
    publish_at_last(&server, CREATED).await;
    assert_eq!(degraded(&server).await, "null");
    bystander.end().await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_side_log_whose_volume_runs_full_refuses_its_own_topics_and_no_others() {
    if is_on_databases() {
        return;
    }
    let (elsewhere, data) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let Some(_volume) = SmallVolume::mount(elsewhere.path()) else { return };
    let location = elsewhere.path().canonicalize().unwrap().to_str().unwrap().to_owned();
    let listed = format!("[{location}]");
    let server = Server::start_in_with(data, &[("EVENT_BROKER__STORAGE__LOCATIONS", listed.as_str())], &[]);
    server.register(CREATED).await;
    let topic = |name: &str| {
        json!({"id": format!("gts.hx.core.events.topic.v1~vendor.{name}.v1"),
            "streaming": {"type": "file", "location": format!("file://{location}")}})
    };
    let (status, answer) = server.post("/v1/topics", &topic("beside")).await;
    assert!(status.is_success(), "{answer}");
    let beside = "gts.hyperspot.core.events.type.v1~vendor.beside.made.v1";
    let (status, answer) = server.post("/v1/event-types", &json!({"id": beside, "topic": topic("beside")["id"]})).await;
    assert!(status.is_success(), "{answer}");

    let (stored, _) = publish_until_refused(&server, beside).await;
    assert!(stored > 300, "only {stored}");
    assert!(degraded(&server).await.contains("are free on its volume, so no events are stored"));
    assert_eq!(server.post("/v1/events", &large(CREATED)).await.0, StatusCode::CREATED);
    server.register("gts.hyperspot.core.events.type.v1~vendor.other.made.v1").await;
    // The log refuses another topic before the topic is registered.
    expect_problem(server.post("/v1/topics", &topic("more")).await, 503, CODE);
    let more = topic("more")["id"].as_str().unwrap().to_owned();
    assert_eq!(server.get(&format!("/v1/topics/{more}")).await.0, StatusCode::NOT_FOUND);
    let id = topic("beside")["id"].as_str().unwrap().to_owned();
    let (status, trimmed) = server.post(&format!("/v1/topics/{id}:trim"), &json!({"through": stored})).await;
    assert_eq!(status, StatusCode::OK, "{trimmed}");
    publish_at_last(&server, beside).await;
    drop(server);
}
