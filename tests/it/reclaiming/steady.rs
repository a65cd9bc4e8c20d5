//! A day of steady load, with the test's clock and real files: whatever the broker writes, the folder does not grow.
//!
//! Each round of five minutes has everything that leaves entries in the log: events, published under an
//! `Idempotency-Key`; claims by a handler, and by a member of a shared group whose session then expires; an event that
//! is given up, and a dead letter that is resolved; a committed offset; a checkpoint of a projection; and deliveries,
//! of which some fail and are retried.
//!
//! The first day is not measured: keys of removed events are kept for the longest idempotency window of any topic,
//! which is the default topic's 24 hours.
//!
//! Two things do not level off within a day, so they do not happen all day: the broker remembers the last 10,000
//! resolved dead letters, and the operations events about jobs that are given up stay in a topic that keeps its events
//! for thirty days.

use crate::http::{TENANT, client};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use event_broker::{Broker, Config, ManualClock, rest};
use log::testing::in_time;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

const ROUND_MILLIS: i64 = 300_000;
/// The rounds of a day.
const ROUNDS: u64 = 288;
const EVENTS: u64 = 12;
/// One delivery in this many is refused, and retried.
const REFUSED: u64 = 10;
/// In this many first rounds an event is given up.
const GIVING_UP_ROUNDS: u64 = 24;
const TOPIC: &str = "steady.orders";

/// Bytes of all files in a folder and below, except the space reserved for a full disk.
fn bytes_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let entries = entries.filter(|entry| entry.file_name() != "reserve");
    // The file engine may delete files meanwhile.
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_of(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}

/// A broker served in this process.
struct Steady {
    broker: Arc<Broker>,
    clock: Arc<ManualClock>,
    client: Client,
    url: String,
    /// The number of accepted deliveries.
    received: watch::Receiver<u64>,
}

impl Steady {
    /// Opens the broker in this folder, with a topic, a handler, a projection and a subscription.
    async fn begin(folder: &Path) -> (Self, oneshot::Sender<()>) {
        let clock = Arc::new(ManualClock::at(1_764_763_200_000));
        let mut config = Config::folder(folder);
        config.storage.segment_bytes = 16 * 1024;
        config.maintenance.reclaim_bytes = 32 * 1024;
        config.maintenance.checkpoint_rows = 1000;
        config.dispatch.allow_private_targets = true;
        // So that stored responses expire many times in a day.
        config.idempotency.key_retention_hours = 1;
        let broker = Arc::new(Broker::open_at(config, Arc::clone(&clock) as Arc<_>).await.unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let stopped = async { drop(stopped.await) };
        tokio::spawn(rest::serve(listener, Arc::clone(&broker), rest::HttpOptions::default(), stopped));
        let (target, received) = receive().await;
        let steady = Self { broker, clock, client: client(), url, received };
        let topic = json!({"id": TOPIC, "streaming": true, "retention": "PT15M", "idempotentRetention": "PT30M"});
        steady.post("/v1/topics", topic).await;
        steady.post("/v1/event-types", json!({"id": "steady.placed", "topic": TOPIC})).await;
        steady.ask(Method::PUT, "/v1/projections/view", None, json!({"topic": TOPIC})).await;
        let subscription = json!({"code": "mail", "topic": TOPIC, "target": target, "mode": "IMMEDIATE", "maxAttempts": 5,
            "retrySchedule": ["PT0S"]});
        steady.post("/v1/subscriptions", subscription).await;
        (steady, stop)
    }

    async fn ask(&self, method: Method, path: &str, key: Option<String>, body: Value) -> Value {
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = if body.is_null() { request } else { request.json(&body) };
        let response = request.send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.ask(Method::POST, path, None, body).await
    }

    async fn get(&self, path: &str) -> Value {
        self.ask(Method::GET, path, None, Value::Null).await
    }

    /// Joins a group; returns the consumer's id. The consumer is not used after this round.
    async fn join(&self, group: &str, distribution: &str) -> String {
        let consumer = json!({"consumerGroup": group, "topic": TOPIC, "distribution": distribution,
            "sessionTimeout": "PT1M"});
        let made = self.post("/v1/consumers", consumer).await;
        made["data"]["id"].as_str().unwrap().to_owned()
    }

    /// Makes an event a dead letter, and resolves it.
    async fn give_up(&self, sequence: u64) {
        let claim = json!({"handler": "failing", "topic": TOPIC, "sequence": sequence});
        let claim = self.post("/v1/claims", claim).await["claim"].clone();
        let failure = json!({"token": claim["token"], "retryable": false,
            "error": {"class": "Poison", "message": "cannot be"}});
        self.post(&format!("/v1/claims/{}:fail", claim["id"].as_str().unwrap()), failure).await;
        let discarded = self.post("/v1/dead-letters:discard", json!({"reason": "known"})).await;
        assert_eq!(discarded["count"], 1, "{discarded}");
    }

    async fn done(&self, claims: &[Value]) {
        let claims: Vec<_> = claims.iter().map(|claim| json!({"id": claim["id"], "token": claim["token"]})).collect();
        assert_eq!(claims.len() as u64, EVENTS);
        self.post("/v1/claims:done", json!({"claims": claims})).await;
    }

    /// Runs one round of five minutes.
    async fn live(&mut self, round: u64) {
        let events: Vec<_> = (0..EVENTS)
            .map(|number| {
                let subject = format!("s-{}", (round * EVENTS + number) % 50);
                json!({"type": "steady.placed", "source": "test", "subject": subject, "subjectType": "steady.order",
                    "tenant": TENANT, "id": uuid::Uuid::from_u128(u128::from(round * EVENTS + number) + 1),
                    "data": {"text": "x".repeat(200)}})
            })
            .collect();
        let key = Some(format!("round-{round}"));
        self.ask(Method::POST, "/v1/events:batch", key, json!({"events": events})).await;
        let (first, last) = (round * EVENTS + 1, (round + 1) * EVENTS);
        let claim = |sequence| json!({"handler": "billing", "topic": TOPIC, "sequence": sequence});
        let claimed = self.post("/v1/claims", json!({"claims": (first..=last).map(claim).collect::<Vec<_>>()})).await;
        let claims = claimed["results"].as_array().unwrap().iter().map(|result| result["claim"].clone());
        self.done(&claims.collect::<Vec<_>>()).await;
        // The sessions of the last round's members have expired; joining and polling detect it.
        let member = self.join("sharing", "shared").await;
        let mut shared = Vec::new();
        while (shared.len() as u64) < EVENTS {
            // One event of an aggregate is assigned at a time; each of these has its own aggregate.
            let page = self.get(&format!("/v1/events:poll?consumer_id={member}&offset=0&timeout=5")).await;
            let items = page["items"].as_array().unwrap();
            assert!(!items.is_empty(), "{page}");
            shared.extend(items.iter().map(|item| item["claim"].clone()));
        }
        self.done(&shared).await;
        let reader = self.join("reading", "broadcast").await;
        self.post(&format!("/v1/consumers/{reader}:commit"), json!({"offset": last})).await;
        self.post("/v1/projections/view:checkpoint", json!({"offset": last})).await;
        in_time(self.received.wait_for(|count| *count >= last)).await.unwrap();
        if round < GIVING_UP_ROUNDS {
            self.give_up(last).await;
        }
    }
}

/// A receiver; returns its URL, and the counter of the calls that it has accepted.
async fn receive() -> (String, watch::Receiver<u64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (count, received) = watch::channel(0);
    let (count, calls) = (Arc::new(count), Arc::new(AtomicU64::new(1)));
    let take = move || {
        let is_refused = calls.fetch_add(1, Ordering::Relaxed) % REFUSED == 0;
        if !is_refused {
            count.send_modify(|count| *count += 1);
        }
        async move { if is_refused { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK } }
    };
    let router = Router::new().route("/hook", post(take));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, received)
}

/// The sizes of the folder over this many rounds.
async fn live(folder: &Path, rounds: u64, reclaims: bool) -> Vec<u64> {
    let (mut steady, stop) = Steady::begin(folder).await;
    let mut sizes = Vec::new();
    for round in 0..rounds {
        steady.live(round).await;
        steady.clock.advance(ROUND_MILLIS);
        steady.broker.expire().await.unwrap();
        if reclaims {
            steady.broker.reclaim().await.unwrap();
        }
        sizes.push(bytes_of(folder));
    }
    drop(stop);
    steady.broker.close().await;
    sizes
}

/// The averages of the last two halves of a day. The engine frees space with a delay, so single sizes vary.
fn halves(sizes: &[u64]) -> (u64, u64) {
    let average = |sizes: &[u64]| sizes.iter().sum::<u64>() / sizes.len() as u64;
    let (first, second) = sizes.split_at(sizes.len() / 2);
    (average(first), average(second))
}

#[tokio::test]
async fn a_day_of_steady_load_does_not_make_the_folder_larger() {
    let folder = TempDir::new().unwrap();
    let sizes = live(folder.path(), 2 * ROUNDS, true).await;
    let day = &sizes[ROUNDS as usize..];
    let (morning, evening) = halves(day);
    assert!(evening < morning * 11 / 10, "from {morning} to {evening} bytes: {day:?}");
    // Without reclaiming the folder grows all the time, which shows that the test measures reclaiming.
    let folder = TempDir::new().unwrap();
    let (earlier, later) = halves(&live(folder.path(), ROUNDS / 2, false).await);
    assert!(later > earlier * 3 / 2 && later > 2 * evening, "{earlier} {later} {evening}");
}
