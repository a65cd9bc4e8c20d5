//! What the workers of the load have in common: where the broker is, until when, what they may expect, what they met.

use crate::http::{Server, TENANT, client};
use log::testing::SeededRandom;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Where most events go: they stay for 20 seconds, and their idempotency keys for 30.
pub(super) const TOPIC: &str = "soak.orders";
/// A topic with a log of its own.
pub(super) const SIDE_TOPIC: &str = "soak.side";
/// A topic of which the latest event of each aggregate stays.
pub(super) const COMPACTED_TOPIC: &str = "soak.latest";

/// How many subjects, of each topic, there ever are.
const SUBJECTS: u64 = 200;
/// And of the topic that is compacted: so few that none of its events is the latest of its aggregate for long. The segment
/// of an event that stays, stays too.
const COMPACTED_SUBJECTS: u64 = 5;
/// A request that takes longer was forgotten.
const ANSWER_SECONDS: u64 = 60;

pub(super) struct Load {
    client: Client,
    url: String,
    until: Instant,
    /// Until when jobs may be given up.
    gives_up_until: Instant,
    /// By what was asked for, and the status.
    counts: Mutex<BTreeMap<(&'static str, u16), u64>>,
    /// By what was asked for: how often, and what the first one was.
    unexpected: Mutex<BTreeMap<&'static str, (u64, String)>>,
}

impl Load {
    pub(super) fn new(server: &Server, lasts: Duration) -> Self {
        let (client, url, now) = (client(), server.url.clone(), Instant::now());
        let (until, gives_up_until) = (now + lasts, now + lasts / 10);
        Self { client, url, until, gives_up_until, counts: Mutex::default(), unexpected: Mutex::default() }
    }

    /// Topics, types and handlers.
    pub(super) async fn set_up(&self) {
        let brief = json!({"id": TOPIC, "streaming": true, "retention": "PT20S", "idempotentRetention": "PT30S"});
        let mut compacted = brief.clone();
        compacted["id"] = json!(COMPACTED_TOPIC);
        compacted["cleanup"] = json!("compact");
        let mut side = brief.clone();
        side["id"] = json!(SIDE_TOPIC);
        side["streaming"] = json!({"type": "file", "location": "beside"});
        for topic in [brief, compacted, side] {
            self.ask("topic", self.post("/v1/topics", &topic), &[]).await;
        }
        for topic in [TOPIC, COMPACTED_TOPIC, SIDE_TOPIC] {
            let event_type = json!({"id": type_of(topic), "topic": topic});
            self.ask("type", self.post("/v1/event-types", &event_type), &[]).await;
        }
        let terms = json!({"lease": "PT5S", "maxAttempts": 4, "backoff": "PT1S"});
        for handler in ["billing", "sharing"] {
            let put = self.request(Method::PUT, &format!("/v1/handlers/{handler}")).json(&terms);
            self.ask("handler", put, &[]).await;
        }
        self.expect_nothing_unexpected();
    }

    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let timeout = Duration::from_secs(ANSWER_SECONDS);
        self.client.request(method, format!("{}{path}", self.url)).timeout(timeout)
    }

    pub(super) fn get(&self, path: &str) -> RequestBuilder {
        self.request(Method::GET, path)
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.request(Method::POST, path).json(body)
    }

    /// Asks, and answers the status and the JSON. Anything but success and the statuses in `also` is noted as unexpected.
    pub(super) async fn ask(&self, what: &'static str, request: RequestBuilder, also: &[u16]) -> (u16, Value) {
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => {
                self.note_unexpected(what, &format!("{error:?}"));
                return (0, Value::Null);
            }
        };
        let status = response.status().as_u16();
        let text = response.text().await.unwrap_or_else(|error| format!("the body broke off: {error:?}"));
        self.count(what, status);
        if !(200..300).contains(&status) && !also.contains(&status) {
            self.note_unexpected(what, &format!("{status} {text}"));
        }
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub(super) fn count(&self, what: &'static str, status: u16) {
        *self.counts.lock().unwrap().entry((what, status)).or_default() += 1;
    }

    pub(super) fn note_unexpected(&self, what: &'static str, answer: &str) {
        let mut unexpected = self.unexpected.lock().unwrap();
        let (count, _) = unexpected.entry(what).or_insert_with(|| (0, answer.to_owned()));
        *count += 1;
    }

    /// A beat for a worker: it does something every so many milliseconds, and less often where the broker is slow.
    pub(super) fn pace(millis: u64) -> Interval {
        let mut pace = interval(Duration::from_millis(millis));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pace
    }

    /// Waits for the next beat; whether there is still something to do.
    pub(super) async fn goes_on(&self, pace: &mut Interval) -> bool {
        pace.tick().await;
        Instant::now() < self.until
    }

    /// Whether jobs may be given up yet.
    pub(super) fn gives_up(&self) -> bool {
        Instant::now() < self.gives_up_until
    }

    pub(super) fn print_counts(&self) {
        for ((what, status), count) in self.counts.lock().unwrap().iter() {
            println!("{what} {status}: {count}");
        }
    }

    pub(super) fn expect_nothing_unexpected(&self) {
        let unexpected = self.unexpected.lock().unwrap();
        assert!(
            unexpected.is_empty(),
            "how often something else than expected was answered, and the first: {unexpected:#?}"
        );
    }
}

/// The event type whose events go to a topic.
pub(super) fn type_of(topic: &str) -> String {
    format!("{topic}.placed")
}

/// An event for a topic, about one of its subjects, of some size.
pub(super) fn event(topic: &str, random: &mut SeededRandom) -> Value {
    let subjects = if topic == COMPACTED_TOPIC { COMPACTED_SUBJECTS } else { SUBJECTS };
    let subject = format!("s-{}", random.through(subjects - 1));
    let text = "x".repeat(usize::try_from(random.through(400)).unwrap());
    json!({"type": type_of(topic), "source": "soak", "subject": subject, "subjectType": "soak.order", "tenant": TENANT,
        "data": {"n": random.through(1000), "text": text}})
}
