//! The readers: members of groups, streams, polls, projections, and consumers that disappear.

use super::load::{Load, TOPIC};
use super::writers::end;
use futures_util::StreamExt;
use log::testing::SeededRandom;
use reqwest::Method;
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;

/// Names of groups whose consumers disappear.
const GROUPS: u64 = 20;

/// A member of the shared group: joins, works for a while, and leaves or stops polling.
pub(super) async fn share(load: &Load, mut random: SeededRandom) {
    let mut pace = Load::pace(100);
    while load.goes_on(&mut pace).await {
        let member = json!({"consumerGroup": "sharing", "topic": TOPIC, "distribution": "shared", "maxInFlight": 20,
            "sessionTimeout": "PT3S"});
        let (_, made) = load.ask("join", load.post("/v1/consumers", &member), &[]).await;
        let Some(id) = made["data"]["id"].as_str() else { continue };
        for _ in 0..=random.through(30) {
            if !load.goes_on(&mut pace).await {
                break;
            }
            let poll = load.get(&format!("/v1/events:poll?consumer_id={id}&offset=0&timeout=1"));
            let (status, page) = load.ask("shared poll", poll, &[404]).await;
            if status != 200 {
                break;
            }
            for item in page["items"].as_array().into_iter().flatten() {
                end(load, &item["claim"], &mut random).await;
            }
        }
        if random.once_in(2) {
            load.ask("leave", load.request(Method::DELETE, &format!("/v1/consumers/{id}")), &[404]).await;
        }
    }
}

/// Reads a stream for some seconds and disconnects.
pub(super) async fn stream(load: &Load, mut random: SeededRandom) {
    let mut pace = Load::pace(200);
    while load.goes_on(&mut pace).await {
        let response = match load.get(&format!("/v1/events:stream?topic={TOPIC}&offset=latest")).send().await {
            Ok(response) => response,
            Err(error) => {
                load.note_unexpected("stream", &format!("{error:?}"));
                continue;
            }
        };
        load.count("stream", response.status().as_u16());
        if response.status() != 200 {
            load.note_unexpected("stream", &format!("{}", response.status()));
        }
        let mut pieces = response.bytes_stream();
        let read = async { while let Some(Ok(_)) = pieces.next().await {} };
        let _ = timeout(Duration::from_millis(500 + random.through(8000)), read).await;
    }
}

/// Long polls; some of the callers disconnect while they wait.
pub(super) async fn poll(load: &Load, mut random: SeededRandom) {
    let mut pace = Load::pace(100);
    let mut offset = json!("latest");
    while load.goes_on(&mut pace).await {
        // No event has this subject, so one poll in two waits for its time-out.
        let wanted = if random.once_in(2) { "&subject=nobody" } else { "" };
        let offset_text = offset.as_str().map_or_else(|| offset.to_string(), str::to_owned);
        let path = format!("/v1/events:poll?topic={TOPIC}&offset={offset_text}&timeout=2{wanted}");
        let asking = load.ask("poll", load.get(&path), &[410]);
        offset = match timeout(Duration::from_millis(200 + random.through(4000)), asking).await {
            Ok((200, page)) => page["nextOffset"].clone(),
            _ => json!("latest"),
        };
    }
}

/// A view that follows the topic, reports its checkpoint, and sometimes starts a rebuild.
pub(super) async fn project(load: &Load, mut random: SeededRandom) {
    let mut pace = Load::pace(200);
    let put = || load.request(Method::PUT, "/v1/projections/view").json(&json!({"topic": TOPIC}));
    load.ask("projection", put(), &[]).await;
    let mut offset = json!(0);
    while load.goes_on(&mut pace).await {
        let (status, page) =
            load.ask("read for a view", load.get(&format!("/v1/events?topic={TOPIC}&offset={offset}")), &[410]).await;
        if status == 410 {
            // The events that it missed were removed: it continues with the events that are left.
            let earliest = format!("/v1/events?topic={TOPIC}&offset=earliest");
            offset = load.ask("read for a view", load.get(&earliest), &[]).await.1["nextOffset"].clone();
        } else {
            offset = page["nextOffset"].clone();
        }
        load.ask("checkpoint", load.post("/v1/projections/view:checkpoint", &json!({"offset": offset})), &[409]).await;
        if random.once_in(100) {
            load.ask("projection", load.request(Method::DELETE, "/v1/projections/view"), &[]).await;
            load.ask("projection", put(), &[]).await;
        }
    }
}

/// Consumers that commit an offset and never poll again.
pub(super) async fn consume_and_vanish(load: &Load, mut random: SeededRandom) {
    let mut pace = Load::pace(300);
    while load.goes_on(&mut pace).await {
        let group = format!("group-{}", random.through(GROUPS - 1));
        let consumer = json!({"consumerGroup": group, "topic": TOPIC, "sessionTimeout": "PT1S"});
        let (_, made) = load.ask("consumer", load.post("/v1/consumers", &consumer), &[]).await;
        let Some(id) = made["data"]["id"].as_str() else { continue };
        let poll = load.get(&format!("/v1/events:poll?consumer_id={id}&offset=latest&timeout=0"));
        let (status, page) = load.ask("consumer's poll", poll, &[404]).await;
        if status == 200 {
            let commit = json!({"offset": page["nextOffset"]});
            load.ask("commit", load.post(&format!("/v1/consumers/{id}:commit"), &commit), &[404, 409]).await;
        }
    }
}

/// The requests of an operator.
pub(super) async fn look_around(load: &Load, mut random: SeededRandom) {
    const PATHS: [&str; 10] = [
        "/healthz",
        "/readyz",
        "/v1/topics",
        "/v1/consumer-groups",
        "/v1/handlers",
        "/v1/projections",
        "/v1/subscriptions",
        "/v1/dispatch-jobs?subscription=in-order&limit=20",
        "/v1/dead-letters/summary",
        "/v1/consumers",
    ];
    let mut pace = Load::pace(300);
    while load.goes_on(&mut pace).await {
        let path: &&str = random.pick(&PATHS);
        let (_, shown) = load.ask("look", load.get(path), &[]).await;
        if shown["degraded"].as_array().is_some_and(|lines| !lines.is_empty()) {
            load.note_unexpected("degraded", &format!("{}", shown["degraded"]));
        }
    }
}
