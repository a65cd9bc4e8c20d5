//! The workers that publish, claim, and resolve dead letters.

use super::load::{COMPACTED_TOPIC, Load, SIDE_TOPIC, TOPIC, event};
use log::testing::SeededRandom;
use reqwest::Method;
use serde_json::{Value, json};

/// Ids that publishers use repeatedly: more than are published within the topic's window. So some are duplicates, some
/// belong to removed events, and some are new again.
const IDS: u64 = 1000;
/// Keys of requests; their responses are kept for at least a day, so the number of keys is bounded.
const KEYS: u64 = 300;

/// The key's event was removed, but not the key.
const GONE: u16 = 410;

pub(super) async fn publish_singly(load: &Load, mut random: SeededRandom) {
    let mut pace = Load::pace(50);
    while load.goes_on(&mut pace).await {
        let topic = if random.once_in(5) { COMPACTED_TOPIC } else { TOPIC };
        load.ask("publish", load.post("/v1/events", &event(topic, &mut random)), &[]).await;
    }
}

pub(super) async fn publish_batches(load: &Load, mut random: SeededRandom) {
    let mut pace = Load::pace(500);
    while load.goes_on(&mut pace).await {
        let events: Vec<_> = (0..=random.through(30)).map(|_| event(TOPIC, &mut random)).collect();
        load.ask("batch", load.post("/v1/events:batch", &json!({"events": events})), &[]).await;
    }
}

/// Events with their own ids, each of them sent twice.
pub(super) async fn publish_again(load: &Load, mut random: SeededRandom) {
    let mut pace = Load::pace(100);
    while load.goes_on(&mut pace).await {
        let number = random.through(IDS - 1);
        // The submission is the same each time: there are as many keys as ids.
        let mut event = event(TOPIC, &mut SeededRandom::new(number));
        event["id"] = json!(uuid::Uuid::from_u128(u128::from(number) + 1));
        for _ in 0..2 {
            load.ask("publish again", load.post("/v1/events", &event), &[GONE]).await;
        }
    }
}

pub(super) async fn publish_with_keys(load: &Load, mut random: SeededRandom) {
    let mut pace = Load::pace(100);
    while load.goes_on(&mut pace).await {
        let number = random.through(KEYS - 1);
        let event = event(TOPIC, &mut SeededRandom::new(number));
        let request = load.post("/v1/events", &event).header("idempotency-key", format!("key-{number}"));
        load.ask("publish with a key", request, &[GONE]).await;
    }
}

/// Publishes into a log beside the default one.
pub(super) async fn publish_beside(load: &Load, mut random: SeededRandom) {
    let mut pace = Load::pace(100);
    while load.goes_on(&mut pace).await {
        load.ask("publish beside", load.post("/v1/events", &event(SIDE_TOPIC, &mut random)), &[]).await;
        let (_, page) =
            load.ask("read beside", load.get(&format!("/v1/events?topic={SIDE_TOPIC}&offset=latest")), &[]).await;
        if let Some(sequence) = page["tail"].as_u64().filter(|_| random.once_in(3)) {
            let wanted = json!({"handler": "billing", "topic": SIDE_TOPIC, "sequence": sequence});
            let (_, answer) = load.ask("claim beside", load.post("/v1/claims", &wanted), &[404, GONE]).await;
            end(load, &answer["claim"], &mut random).await;
        }
    }
}

pub(super) async fn import(load: &Load, mut random: SeededRandom) {
    let mut pace = Load::pace(2000);
    while load.goes_on(&mut pace).await {
        let lines: String = (0..100).map(|_| format!("{}\n", event(TOPIC, &mut random))).collect();
        let request = load.request(Method::POST, "/v1/events:import").header("content-type", "application/x-ndjson");
        let (_, report) = load.ask("import", request.body(lines), &[]).await;
        // A report of several lines is not JSON.
        let total = report.as_str().and_then(|text| text.lines().last()).map_or(report.clone(), parse);
        if total["imported"] != 100 {
            load.note_unexpected("import", &format!("{report}"));
        }
    }
}

fn parse(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_default()
}

/// Claims the latest events and ends the claims in every possible way, one of them by letting the lease expire.
pub(super) async fn claim(load: &Load, mut random: SeededRandom) {
    let mut pace = Load::pace(200);
    while load.goes_on(&mut pace).await {
        let (_, page) = load.ask("read", load.get(&format!("/v1/events?topic={TOPIC}&offset=latest")), &[]).await;
        let Some(tail) = page["tail"].as_u64().filter(|tail| *tail > 10) else { continue };
        let claims: Vec<_> = (0..5).map(|_| random.through(9)).collect();
        let claims = claims.iter().map(|back| json!({"handler": "billing", "topic": TOPIC, "sequence": tail - back}));
        let request = load.post("/v1/claims", &json!({"claims": claims.collect::<Vec<_>>()}));
        let (_, answer) = load.ask("claim", request, &[]).await;
        for result in answer["results"].as_array().into_iter().flatten() {
            end(load, &result["claim"], &mut random).await;
        }
    }
}

/// Ends a claim, if there is one.
pub(super) async fn end(load: &Load, claim: &Value, random: &mut SeededRandom) {
    let Some(id) = claim["id"].as_str() else { return };
    let error = json!({"class": "SoakError", "message": "so it goes"});
    let (verb, mut body) = match random.through(99) {
        0..=84 => ("done", json!({})),
        85..=91 => ("fail", json!({"error": error})),
        92 => ("fail", json!({"error": error, "retryable": !load.gives_up()})),
        93..=95 => ("release", json!({})),
        96..=97 => ("heartbeat", json!({})),
        _ => return,
    };
    body["token"] = claim["token"].clone();
    // Another worker may have taken over the claim, and its event may have been removed.
    load.ask(verb, load.post(&format!("/v1/claims/{id}:{verb}"), &body), &[404, 409, GONE]).await;
}

/// Redrives or discards all dead letters.
pub(super) async fn resolve_letters(load: &Load, mut random: SeededRandom) {
    let mut pace = Load::pace(2000);
    while load.goes_on(&mut pace).await {
        let (_, page) = load.ask("letters", load.get("/v1/dead-letters?limit=20"), &[]).await;
        for dead_letter in page["items"].as_array().into_iter().flatten() {
            let Some(id) = dead_letter["id"].as_str() else { continue };
            let verb = if random.once_in(2) { "redrive" } else { "discard" };
            let order = json!({"reason": "soak"});
            let request = load.post(&format!("/v1/dead-letters/{id}:{verb}"), &order);
            load.ask(verb, request, &[404, 409, GONE]).await;
        }
        let order = json!({"reason": "the rest"});
        load.ask("discard all", load.post("/v1/dead-letters:discard", &order), &[]).await;
    }
}

/// Two permanent subscriptions: one in order, one without order.
pub(super) async fn subscribe(load: &Load, target: &str) {
    for (code, mode) in [("in-order", "BLOCK_ON_ERROR"), ("at-once", "IMMEDIATE")] {
        let subscription = json!({"code": code, "topic": TOPIC, "target": target, "mode": mode, "maxAttempts": 20,
            "retrySchedule": ["PT1S"], "filter": "data.n < 300"});
        load.ask("subscribe", load.post("/v1/subscriptions", &subscription), &[]).await;
    }
    load.expect_nothing_unexpected();
}

/// A subscription that is created and deleted, one that is paused and resumed, and tasks.
pub(super) async fn change_subscriptions(load: &Load, mut random: SeededRandom) {
    let mut pace = Load::pace(3000);
    let (_, known) = load.ask("subscription", load.get("/v1/subscriptions/at-once"), &[]).await;
    let target = known["target"].clone();
    while load.goes_on(&mut pace).await {
        let attempts = if load.gives_up() { 1 } else { 20 };
        let brief = json!({"code": "brief", "topic": TOPIC, "target": target, "maxAttempts": attempts});
        load.ask("subscribe", load.post("/v1/subscriptions", &brief), &[]).await;
        let task = json!({"code": "report", "target": target, "payload": {"n": random.through(9)}});
        load.ask("task", load.post("/v1/dispatch-jobs", &task), &[]).await;
        for verb in ["pause", "resume"].into_iter().filter(|_| load.gives_up()) {
            let request = load.post(&format!("/v1/subscriptions/at-once:{verb}"), &json!({}));
            load.ask(verb, request, &[409]).await;
        }
        load.ask("unsubscribe", load.request(Method::DELETE, "/v1/subscriptions/brief"), &[]).await;
    }
}
