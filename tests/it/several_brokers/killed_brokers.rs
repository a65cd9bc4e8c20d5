//! Three brokers, many publishers, two brokers killed repeatedly: no event is lost or stored twice, and there is one
//! order.

use super::{Database, Server, TYPES, register, start, start_in, topic, whole_log};
use crate::http::{answer, client, event};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::RwLock;
use uuid::Uuid;

const CLIENTS_PER_BROKER: usize = 32;
const EVENTS_PER_CLIENT: usize = 24;
const KILLS: usize = 8;
/// Aggregates that all publishers write to with an expected sequence.
const CONTESTED: usize = 12;

/// The current URLs of the brokers.
type BrokerUrls = Arc<RwLock<Vec<String>>>;

/// A small repeatable random generator.
struct RepeatableRandom(u64);

impl RepeatableRandom {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// A client of all three brokers.
struct RandomPublisher {
    http: Client,
    brokers: BrokerUrls,
    chance: RepeatableRandom,
    next: usize,
}

impl RandomPublisher {
    /// Calls the brokers in turn until one of them returns a response that is not retryable.
    async fn ask(&mut self, path: &str, body: Option<&Value>) -> (StatusCode, Value) {
        loop {
            self.next += 1;
            let url = {
                let brokers = self.brokers.read().await;
                format!("{}{path}", brokers[self.next % brokers.len()])
            };
            let request = match body {
                Some(body) => self.http.post(url).json(body),
                None => self.http.get(url),
            };
            let Ok(response) = request.send().await else { continue };
            let status = response.status();
            let Ok(body) = response.json::<Value>().await else { continue };
            if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
                continue;
            }
            return (status, body);
        }
    }

    /// Publishes until the event is stored; sometimes repeats the request to another broker.
    async fn publish(&mut self, event: &Value) -> Value {
        let (status, stored) = self.ask("/v1/events", Some(event)).await;
        assert!(status.is_success(), "{stored}");
        if self.chance.below(4) == 0 {
            let (status, again) = self.ask("/v1/events", Some(event)).await;
            assert_eq!((status, &again), (StatusCode::OK, &stored));
        }
        stored
    }

    /// Publishes to an aggregate that others write to as well; each write builds on the sequence it has read.
    async fn build_on(&mut self, mut event: Value, subject: &str) -> Value {
        let place = format!("/v1/aggregates/gts.vendor.several.thing.v1/{subject}?topic={}", topic(2));
        loop {
            let (status, seen) = self.ask(&place, None).await;
            let known = if status == StatusCode::NOT_FOUND { 0 } else { seen["aggregateSequence"].as_u64().unwrap() };
            event["expectedAggregateSequence"] = json!(known);
            let (status, stored) = self.ask("/v1/events", Some(&event)).await;
            if status.is_success() {
                return stored;
            }
            assert_eq!(stored["type"], "https://errors.hyperspot.com/EVENT_BROKER_EXPECTED_SEQUENCE", "{stored}");
        }
    }

    async fn run(mut self, number: usize) -> Vec<Value> {
        let mut stored = Vec::new();
        for _ in 0..EVENTS_PER_CLIENT {
            let kind = self.chance.below(3);
            let subject = match kind {
                2 => format!("contested-{}", self.chance.below(CONTESTED)),
                _ => format!("of-{number}-{}", self.chance.below(3)),
            };
            let mut event = event(TYPES[kind], &subject);
            event["id"] = json!(Uuid::new_v4());
            event["subjectType"] = json!("gts.vendor.several.thing.v1");
            stored.push(match kind {
                2 => self.build_on(event, &subject).await,
                _ => self.publish(&event).await,
            });
        }
        stored
    }
}

/// Follows one broker's log to `last`, over its restarts; returns the chained hash of all records.
async fn follow(broker: usize, brokers: BrokerUrls, last: Arc<AtomicU64>) -> blake3::Hash {
    let http = client();
    let mut seen = blake3::Hash::from_bytes([0; 32]);
    let mut after = 0;
    loop {
        let end = last.load(Ordering::SeqCst);
        if end > 0 && after >= end {
            return seen;
        }
        let url = format!("{}/v1/log?after={after}&timeout=1", brokers.read().await[broker]);
        let Ok(response) = http.get(url).send().await else { continue };
        let Ok(page) = response.json::<Value>().await else { continue };
        let Some(items) = page["items"].as_array() else { continue };
        for item in items {
            let chained = [seen.as_bytes().as_slice(), item.to_string().as_bytes()].concat();
            seen = blake3::hash(&chained);
        }
        after = page["nextPosition"].as_u64().unwrap();
    }
}

/// Kills the first two brokers in turn while there is work, each time after this many more acknowledgements.
async fn kill_and_restart(
    database: &str,
    mut servers: Vec<Server>,
    brokers: BrokerUrls,
    working: Arc<AtomicBool>,
) -> (Vec<Server>, usize) {
    let (mut chance, mut kills) = (RepeatableRandom(11), 0);
    while working.load(Ordering::SeqCst) && kills < KILLS {
        let victim = chance.below(2);
        // A broker is killed when it responds, because it then has requests in flight.
        let tail = http_tail(&brokers.read().await[2]).await;
        while working.load(Ordering::SeqCst) && http_tail(&brokers.read().await[2]).await < tail + 100 {
            tokio::task::yield_now().await;
        }
        let killed = servers.remove(victim);
        let folder = killed.kill();
        let restarted = tokio::task::block_in_place(|| start_in(folder, database));
        brokers.write().await[victim].clone_from(&restarted.url);
        servers.insert(victim, restarted);
        kills += 1;
    }
    (servers, kills)
}

async fn http_tail(url: &str) -> u64 {
    let (_, page) = answer(client().get(format!("{url}/v1/log?after=0&limit=1"))).await;
    page["tail"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn three_brokers_two_of_them_killed_lose_nothing_and_agree_on_one_order() {
    let database = Database::shared().create_database();
    let servers: Vec<Server> = (0..3).map(|_| start(&database)).collect();
    register(&servers[0]).await;
    let brokers: BrokerUrls = Arc::new(RwLock::new(servers.iter().map(|server| server.url.clone()).collect()));
    let (working, last) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let followers: Vec<_> =
        (0..3).map(|broker| tokio::spawn(follow(broker, Arc::clone(&brokers), Arc::clone(&last)))).collect();
    let publishers: Vec<_> = (0..3 * CLIENTS_PER_BROKER)
        .map(|number| {
            let chance = RepeatableRandom(number as u64);
            let publisher = RandomPublisher { http: client(), brokers: Arc::clone(&brokers), chance, next: number };
            tokio::spawn(publisher.run(number))
        })
        .collect();
    let killer = {
        let (brokers, working, database) = (Arc::clone(&brokers), Arc::clone(&working), database.clone());
        tokio::spawn(async move { kill_and_restart(&database, servers, brokers, working).await })
    };
    let mut acknowledged: HashMap<String, Value> = HashMap::new();
    for publisher in publishers {
        for stored in publisher.await.unwrap() {
            assert!(acknowledged.insert(stored["id"].as_str().unwrap().to_owned(), stored).is_none());
        }
    }
    working.store(false, Ordering::SeqCst);
    let (servers, kills) = killer.await.unwrap();
    assert!(kills > 0, "no broker was killed");

    let log = whole_log(&servers[0].url).await;
    assert_eq!(log.len(), 3 * CLIENTS_PER_BROKER * EVENTS_PER_CLIENT, "events lost or stored twice");
    for stored in &log {
        assert_eq!(acknowledged.get(stored["id"].as_str().unwrap()), Some(stored), "not as it was acknowledged");
    }
    check_numbers(&log);
    check_positions(&database);
    last.store(log.last().unwrap()["position"].as_u64().unwrap(), Ordering::SeqCst);
    let mut seen = Vec::new();
    for follower in followers {
        seen.push(follower.await.unwrap());
    }
    assert!(seen.iter().all(|hash| *hash == seen[0]), "readers saw different orders");
    for server in &servers[1..] {
        assert_eq!(whole_log(&server.url).await, log);
    }
}

/// Sequences are dense per topic and aggregate sequences per aggregate, both in the order of the log.
fn check_numbers(log: &[Value]) {
    let mut sequences: BTreeMap<String, u64> = BTreeMap::new();
    let mut aggregates: BTreeMap<(String, String), u64> = BTreeMap::new();
    let text = |event: &Value, member: &str| event[member].as_str().unwrap().to_owned();
    for event in log {
        let sequence = sequences.entry(text(event, "topic")).or_default();
        *sequence += 1;
        assert_eq!(event["sequence"], json!(sequence));
        let aggregate = aggregates.entry((text(event, "topic"), text(event, "subject"))).or_default();
        *aggregate += 1;
        assert_eq!(event["aggregateSequence"], json!(aggregate));
    }
}

/// Positions of events and entries together have no gap.
fn check_positions(database: &str) {
    let count = "SELECT count(*) = max(p) AND min(p) = 1 FROM \
        (SELECT event_id AS p FROM event_broker.events UNION ALL SELECT position FROM event_broker.entries) AS all_positions";
    assert_eq!(Database::shared().sql(database, count), "t");
}
