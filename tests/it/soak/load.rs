//! What the workers of the load share: the broker's URL, the end time, the expected statuses, the results.

use crate::http::{Server, TENANT, client};
use log::testing::SeededRandom;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// The topic of most events: they are kept for 20 seconds, and their idempotency keys for 30.
pub(super) const TOPIC: &str = "soak.orders";
/// A topic with its own log.
pub(super) const SIDE_TOPIC: &str = "soak.side";
/// A topic that keeps the latest event of each aggregate.
pub(super) const COMPACTED_TOPIC: &str = "soak.latest";

/// The number of subjects of each topic.
const SUBJECTS: u64 = 200;
/// The number of subjects of the compacted topic: so few that no event is the latest of its aggregate for long. As long
/// as an event is kept, its segment is kept too.
const COMPACTED_SUBJECTS: u64 = 5;
/// A request that takes longer was lost.
const ANSWER_SECONDS: u64 = 60;

pub(super) struct Load {
    client: Client,
    url: String,
    until: Instant,
    /// The time until which jobs may be given up.
    gives_up_until: Instant,
    /// The number of responses by request and status.
    counts: Mutex<BTreeMap<(&'static str, u16), u64>>,
    /// Unexpected responses by request: their number, and the first one.
    unexpected: Mutex<BTreeMap<&'static str, (u64, String)>>,
}

impl Load {
    pub(super) fn new(server: &Server, lasts: Duration) -> Self {
        let (client, url, now) = (client(), server.url.clone(), Instant::now());
        let (until, gives_up_until) = (now + lasts, now + lasts / 10);
        Self { client, url, until, gives_up_until, counts: Mutex::default(), unexpected: Mutex::default() }
    }

    /// Registers topics, types and handlers.
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

    /// Sends a request, and returns the status and the JSON. Anything except success and the statuses in `also` is
    /// counted as unexpected.
    pub(super) async fn ask(&self, what: &'static str, request: RequestBuilder, also: &[u16]) -> (u16, Value) {
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => {
                self.note_unexpected(what, &format!("{error:?}"));
                return (0, Value::Null);
            }
        };
        let status = response.status().as_u16();
        let text = response.text().await.unwrap_or_else(|error| format!("the body is incomplete: {error:?}"));
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

    /// The pace of a worker: one action in this many milliseconds, and fewer if the broker is slow.
    pub(super) fn pace(millis: u64) -> Interval {
        let mut pace = interval(Duration::from_millis(millis));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pace
    }

    /// Waits for the next action; returns whether the run continues.
    pub(super) async fn goes_on(&self, pace: &mut Interval) -> bool {
        pace.tick().await;
        Instant::now() < self.until
    }

    /// Whether jobs may still be given up.
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
            "the number of unexpected responses by request, and the first of each: {unexpected:#?}"
        );
    }
}

/// The event type whose events are stored in a topic.
pub(super) fn type_of(topic: &str) -> String {
    format!("{topic}.placed")
}

/// An event for a topic, about one of its subjects, of random size.
pub(super) fn event(topic: &str, random: &mut SeededRandom) -> Value {
    let subjects = if topic == COMPACTED_TOPIC { COMPACTED_SUBJECTS } else { SUBJECTS };
    let subject = format!("s-{}", random.through(subjects - 1));
    let text = "x".repeat(usize::try_from(random.through(400)).unwrap());
    json!({"type": type_of(topic), "source": "soak", "subject": subject, "subjectType": "soak.order", "tenant": TENANT,
        "data": {"n": random.through(1000), "text": text}})
}
