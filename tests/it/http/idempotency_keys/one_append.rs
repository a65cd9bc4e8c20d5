//! On every writing route, the effect of a request under a key and its stored response are one append.
//!
//! - The routes are those of the OpenAPI document: a route that is neither tried here nor listed as an exception below,
//!   fails.
//! - The test observes appends where they reach the log.

use super::super::{CREATED, TOPIC, event};
use super::{HttpAnswer, InProcessServer, USERS, VERSIONED, send};
use contract::{BoxFuture, Position};
use event_broker::{Config, SystemClock};
use log::{Log, LogError, MemoryLog, Record};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Routes whose responses are stored in another way, and the reason.
const EXCUSED: [(&str, &str); 5] = [
    ("POST /v1/events:import", "of any length: what it does takes as many appends as it has pages"),
    ("POST /v1/topics/{id}:compact", "what it removes is no append, and comes after those that say what must stay"),
    ("POST /v1/topics/{id}:trim", "the same"),
    (
        "DELETE /v1/topics/{id}",
        "what uses the topic goes first, its events after; the fact and the answer are one append",
    ),
    ("POST /v1/subscriptions/{id}:test", "nothing of it is in the log, and nothing is kept"),
];

/// A log that records every append.
struct RecordingLog {
    log: MemoryLog,
    appends: Mutex<Vec<Vec<Record>>>,
}

impl RecordingLog {
    fn new() -> Arc<Self> {
        Arc::new(Self { log: MemoryLog::new(), appends: Mutex::default() })
    }

    /// The facts of each append since the last call; an event is `event`.
    fn appends(&self) -> Vec<Vec<String>> {
        let fact = |record: &Record| {
            let body: Value = serde_json::from_slice(&record.body).unwrap();
            body["fact"].as_str().unwrap_or("event").to_owned()
        };
        let appends = std::mem::take(&mut *self.appends.lock().unwrap());
        appends.iter().map(|append| append.iter().map(fact).collect()).collect()
    }
}

impl Log for RecordingLog {
    fn append(&self, after: Position, batch: Vec<Record>) -> BoxFuture<'_, Result<(), LogError>> {
        if !batch.is_empty() {
            self.appends.lock().unwrap().push(batch.clone());
        }
        self.log.append(after, batch)
    }

    log::forward_read!();
    log::forward_rest!();
}

/// A broker whose appends are observed, and the routes that were tried.
struct AppendAudit {
    served: InProcessServer,
    log: Arc<RecordingLog>,
    tried: BTreeSet<String>,
    keys: u32,
}

impl AppendAudit {
    async fn new() -> Self {
        let log = RecordingLog::new();
        let mut config = Config::default();
        // Only the requests of the test may write.
        config.dispatch.enabled = false;
        let served = InProcessServer::on(config, log.clone(), Arc::new(SystemClock)).await;
        Self { served, log, tried: BTreeSet::new(), keys: 0 }
    }

    async fn ask(&mut self, method: &Method, path: &str, body: &Value) -> (HttpAnswer, Vec<Vec<String>>) {
        self.log.appends();
        let key = format!("key-{}", self.keys);
        let got = send(&self.served.client, &self.served.url, &key, (method.clone(), path, body)).await;
        (got, self.log.appends())
    }

    /// Sends a request of this route under a new key. Fails unless effect and response are one append, of these facts,
    /// and unless the repeated request appends nothing and receives the same response.
    async fn expect(&mut self, route: &str, path: &str, body: Value, facts: &[&str]) -> Value {
        let (got, again) = self.twice(route, path, body, facts).await;
        got.expect_again(&again, route);
        got.json()
    }

    async fn twice(&mut self, route: &str, path: &str, body: Value, facts: &[&str]) -> (HttpAnswer, HttpAnswer) {
        self.keys += 1;
        let method: Method = route.split_once(' ').unwrap().0.parse().unwrap();
        let (got, appends) = self.ask(&method, path, &body).await;
        assert!(got.status.is_success(), "{route}: {got:?}");
        let wanted: Vec<_> = facts.iter().chain(&["answerKept"]).collect();
        assert_eq!(appends.len(), 1, "{route} takes more than one append: {appends:?}");
        assert_eq!(appends[0].iter().collect::<Vec<_>>(), wanted, "{route}");
        let (again, appends) = self.ask(&method, path, &body).await;
        assert!(appends.is_empty(), "{route}: {appends:?}");
        self.tried.insert(route.to_owned());
        (got, again)
    }

    /// Fails for routes of the document that were not tried.
    async fn expect_all_tried(&self) {
        let url = format!("{}/v1/openapi.json", self.served.url);
        let document: Value = self.served.client.get(url).send().await.unwrap().json().await.unwrap();
        let mut routes = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            let methods = item.as_object().unwrap().keys().map(|method| method.to_uppercase());
            let writing = methods.filter(|it| ["POST", "PUT", "PATCH", "DELETE"].contains(&it.as_str()));
            routes.extend(writing.map(|method| format!("{method} {path}")));
        }
        let excused = EXCUSED.iter().map(|(route, _)| (*route).to_owned());
        let known: BTreeSet<String> = self.tried.iter().cloned().chain(excused).collect();
        assert_eq!(known, routes, "every writing route is tried, or is an exception with a reason");
    }

    /// Topics, types and events.
    async fn publish(&mut self) {
        let topic = format!("/v1/topics/{USERS}");
        self.expect("POST /v1/topics", "/v1/topics", json!({"id": USERS, "streaming": true}), &["topicRegistered"])
            .await;
        self.expect("PATCH /v1/topics/{id}", &topic, json!({"description": "a"}), &["topicChanged"]).await;
        let types = "POST /v1/event-types";
        self.expect(types, "/v1/event-types", json!({"id": CREATED}), &["eventTypeRegistered"]).await;
        let versioned = json!({"id": VERSIONED, "topic": USERS, "dataSchema": {"type": "object"}});
        self.expect(types, "/v1/event-types", versioned, &["eventTypeRegistered"]).await;
        let versions = format!("/v1/event-types/{VERSIONED}/versions");
        let version = json!({"version": "1.1", "schemaType": "JSON_SCHEMA", "schema": {"type": "object"}});
        let route = "POST /v1/event-types/{id}/versions";
        self.expect(route, &versions, version, &["versionsChanged"]).await;
        for verb in ["finalise", "deprecate"] {
            let route = format!("{route}/{{version}}:{verb}");
            self.expect(&route, &format!("{versions}/1.1:{verb}"), Value::Null, &["versionsChanged"]).await;
        }
        let archive = format!("/v1/event-types/{VERSIONED}:archive");
        self.expect("POST /v1/event-types/{id}:archive", &archive, Value::Null, &["eventTypeArchived"]).await;
        let (route, facts) = ("DELETE /v1/event-types/{id}", ["dictionaryRaised", "eventTypeDeleted"]);
        self.expect(route, &format!("/v1/event-types/{VERSIONED}"), Value::Null, &facts).await;
        self.expect("POST /v1/events", "/v1/events", event(CREATED, "a"), &["event"]).await;
        let events: Vec<_> = ["a", "a", "b", "c", "d", "e", "f", "g", "h"].map(|it| event(CREATED, it)).into();
        self.expect("POST /v1/events:batch", "/v1/events:batch", json!({"events": events}), &["event"; 9]).await;
        let again = format!("/v1/topics/{TOPIC}:republish");
        let order = json!({"from": 10, "to": 10, "target": "topic"});
        self.expect("POST /v1/topics/{id}:republish", &again, order, &["event"]).await;
    }

    async fn consume(&mut self) {
        let consumer = json!({"consumerGroup": "g", "topic": TOPIC, "sessionTimeout": "PT10M"});
        let made = self.expect("POST /v1/consumers", "/v1/consumers", consumer, &["consumerCreated"]).await;
        let path = format!("/v1/consumers/{}", made["data"]["id"].as_str().unwrap());
        let route = "POST /v1/consumers/{id}:commit";
        self.expect(route, &format!("{path}:commit"), json!({"offset": 1}), &["offsetCommitted"]).await;
        let reset = json!({"topic": TOPIC, "offset": 0});
        let route = "POST /v1/consumer-groups/{name}:reset";
        self.expect(route, "/v1/consumer-groups/g:reset", reset, &["offsetReset"]).await;
        self.expect("DELETE /v1/consumers/{id}", &path, Value::Null, &["consumerDeleted"]).await;
        let route = "DELETE /v1/consumer-groups/{name}";
        self.expect(route, "/v1/consumer-groups/g", Value::Null, &["groupDeleted"]).await;
    }

    async fn claim(&mut self, sequence: u64) -> Value {
        let wanted = json!({"handler": "h", "topic": TOPIC, "sequence": sequence});
        self.expect("POST /v1/claims", "/v1/claims", wanted, &["claimTaken"]).await["claim"].clone()
    }

    async fn say(&mut self, claim: &Value, verb: &str, mut body: Value, facts: &[&str]) -> Value {
        body["token"] = claim["token"].clone();
        let path = format!("/v1/claims/{}:{verb}", claim["id"].as_str().unwrap());
        self.expect(&format!("POST /v1/claims/{{id}}:{verb}"), &path, body, facts).await
    }

    async fn work(&mut self) {
        let put = "PUT /v1/handlers/{name}";
        self.expect(put, "/v1/handlers/h", json!({"maxAttempts": 3}), &["handlerPut"]).await;
        self.expect(put, "/v1/handlers/h", json!({"maxAttempts": 3}), &[]).await;
        let first = self.claim(1).await;
        self.say(&first, "heartbeat", json!({}), &["claimExtended"]).await;
        let produced = json!({"events": [event(CREATED, "z")], "offset": 1});
        self.say(&first, "done", produced, &["event", "offsetCommitted", "claimDone"]).await;
        // Repeated under another key, it is decided from the log, and changes nothing.
        self.say(&first, "done", json!({}), &[]).await;
        let given_back = self.claim(3).await;
        self.say(&given_back, "release", json!({}), &["claimsReleased"]).await;
        let failed = self.claim(4).await;
        let error = json!({"error": {"class": "Busy", "message": "later"}});
        self.say(&failed, "fail", error, &["claimFailed"]).await;
        // One of them must be looked up in the log before it can be decided: all of them wait for that.
        let gapless = |sequence: u64| json!({"handler": "o", "topic": TOPIC, "sequence": sequence, "order": "gapless"});
        let several = json!({"claims": [gapless(5), gapless(2), gapless(99), gapless(1)]});
        let taken = self.expect("POST /v1/claims", "/v1/claims", several, &["claimTaken", "claimTaken"]).await;
        let outcomes: Vec<_> = taken["results"].as_array().unwrap().iter().map(|it| &it["outcome"]).collect();
        assert_eq!(outcomes, [&json!("claimed"), &json!("held"), &Value::Null, &json!("claimed")]);
        let done = |at: usize| {
            let claim = &taken["results"][at]["claim"];
            json!({"id": claim["id"], "token": claim["token"]})
        };
        let route = "POST /v1/claims:done";
        self.expect(route, "/v1/claims:done", json!({"claims": [done(0)]}), &["claimDone"]).await;
        let (before, now) = (done(0), done(3));
        self.expect(route, "/v1/claims:done", json!({"claims": [before, now]}), &["claimDone"]).await;
        self.expect("DELETE /v1/handlers/{name}", "/v1/handlers/o", Value::Null, &["handlerDeleted"]).await;
    }

    async fn give_up(&mut self, sequence: u64) -> String {
        let claim = self.claim(sequence).await;
        let failure = json!({"error": {"class": "Poison", "message": "no"}, "retryable": false});
        let dead = self.say(&claim, "fail", failure, &["claimFailed", "deadLettered"]).await;
        format!("/v1/dead-letters/{}", dead["deadLetter"].as_str().unwrap())
    }

    async fn look_after_letters(&mut self) {
        let (corrected, discarded) = (self.give_up(5).await, self.give_up(6).await);
        let route = "POST /v1/dead-letters/{id}:redrive";
        let order = json!({"reason": "fixed", "override": {"data": {"n": 2}}});
        self.expect(route, &format!("{corrected}:redrive"), order, &["event", "redriven"]).await;
        let route = "POST /v1/dead-letters/{id}:discard";
        self.expect(route, &format!("{discarded}:discard"), json!({"reason": "old"}), &["discarded"]).await;
        for (verb, fact) in [("redrive", "redriven"), ("discard", "discarded")] {
            self.give_up(if verb == "redrive" { 7 } else { 8 }).await;
            self.give_up(if verb == "redrive" { 9 } else { 10 }).await;
            let (route, path) = (format!("POST /v1/dead-letters:{verb}"), format!("/v1/dead-letters:{verb}"));
            let counted = self.expect(&route, &path, json!({"reason": "all"}), &[fact, fact]).await;
            assert_eq!(counted, json!({"count": 2}));
        }
    }

    async fn project(&mut self) {
        let path = "/v1/projections/view";
        self.expect("PUT /v1/projections/{name}", path, json!({"topic": TOPIC}), &["projectionPut"]).await;
        let route = "POST /v1/projections/{name}:checkpoint";
        let moved = self.expect(route, &format!("{path}:checkpoint"), json!({"offset": 2}), &["checkpointMoved"]).await;
        assert_ne!(moved["lag"]["events"], 0, "{moved}");
        let route = "POST /v1/projections/{name}:reset";
        self.expect(route, &format!("{path}:reset"), json!({"offset": 0}), &["projectionReset"]).await;
        self.expect("DELETE /v1/projections/{name}", path, Value::Null, &["projectionDeleted"]).await;
    }

    async fn subscribe(&mut self) {
        let facts = &["dispatch"][..];
        self.expect("POST /v1/pools", "/v1/pools", json!({"code": "slow", "concurrency": 1}), facts).await;
        self.expect("PATCH /v1/pools/{code}", "/v1/pools/slow", json!({"concurrency": 2}), facts).await;
        self.expect("DELETE /v1/pools/{code}", "/v1/pools/slow", Value::Null, facts).await;
        let target = "https://example.com/hook";
        let new =
            json!({"code": "mail", "topic": TOPIC, "target": target, "startFrom": "earliest", "delaySeconds": 900});
        // The first subscription also creates the topic of the operations events about subscriptions.
        self.keys += 1;
        let mut first = new.clone();
        first["code"] = json!("first");
        self.ask(&Method::POST, "/v1/subscriptions", &first).await;
        let (made, again) = self.twice("POST /v1/subscriptions", "/v1/subscriptions", new, facts).await;
        expect_without_secret(&made, &again);
        let path = "/v1/subscriptions/mail";
        let mut verb = async |verb: &str, body: Value| {
            // A pause is also an event in the topic of operations events.
            let facts = if verb == "pause" { &["dispatch", "event"] } else { facts };
            self.twice(&format!("POST /v1/subscriptions/{{id}}:{verb}"), &format!("{path}:{verb}"), body, facts).await
        };
        let pausing = [verb("pause", json!({})).await, verb("resume", Value::Null).await];
        for (first, again) in pausing.into_iter().chain([verb("close-breaker", Value::Null).await]) {
            first.expect_again(&again, "pausing");
        }
        let (rotated, again) = verb("rotate-secret", json!({})).await;
        expect_without_secret(&rotated, &again);
        let (replayed, again) = verb("replay", json!({"from": 1, "to": 2})).await;
        replayed.expect_again(&again, "replaying");
        self.expect("PATCH /v1/subscriptions/{id}", path, json!({"delaySeconds": 600}), facts).await;
        let lane = made.json()["id"].as_str().unwrap().replace('-', "");
        for (verb, job, status) in [("cancel", 1, "CANCELLED"), ("retry", 1, "QUEUED"), ("complete", 2, "COMPLETED")] {
            let (route, path) = (format!("POST /v1/dispatch-jobs/{{id}}:{verb}"), format!("{lane}-{job}:{verb}"));
            let job = self.expect(&route, &format!("/v1/dispatch-jobs/{path}"), Value::Null, facts).await;
            assert_eq!(job["status"], status, "{job}");
        }
        let task = json!({"code": "nightly", "target": target, "payload": {}});
        self.expect("POST /v1/dispatch-jobs", "/v1/dispatch-jobs", task, facts).await;
        self.expect("DELETE /v1/subscriptions/{id}", path, Value::Null, facts).await;
        // Nothing is paused: there is no fact, and the response is stored all the same.
        let route = "POST /v1/server/dispatch:resume";
        self.expect(route, "/v1/server/dispatch:resume", Value::Null, &[]).await;
    }
}

/// The stored response has everything except the secret.
fn expect_without_secret(first: &HttpAnswer, again: &HttpAnswer) {
    assert!(again.is_replayed() && again.status == first.status, "{again:?}");
    let (first, again) = (first.json(), again.json());
    assert!(first["secret"].is_string() && again["secret"].is_null(), "{first} {again}");
}

#[tokio::test]
async fn every_writing_route_keeps_its_answer_in_the_append_of_its_effect() {
    let mut stage = AppendAudit::new().await;
    stage.publish().await;
    stage.consume().await;
    stage.work().await;
    stage.look_after_letters().await;
    stage.project().await;
    stage.subscribe().await;
    stage.expect_all_tried().await;
    stage.served.end().await;
}
