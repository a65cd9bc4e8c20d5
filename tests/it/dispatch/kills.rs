//! Brokers killed at random times while they deliver to a receiver that fails one call in five.
//!
//! The checks, for a subscription of each mode over the same events:
//! - At most one minute after the last restart, every job is COMPLETED: no job is lost or stuck.
//! - BLOCK_ON_ERROR: the receiver did the work of the jobs of each group for the first time in the order of the events.
//! - The receiver did the work of a job again only if it had not sent a response the time before, or if it had sent one
//!   within [`UNWRITTEN`] before a broker was killed, or at most [`IN_A_SOCKET`] after that, when it read a request
//!   that the killed broker had left in the socket: in these cases no broker knew of the response.
//! - Whenever a job was sent again, its fencing token was not lower than before. It is equal if the receiver hung up on
//!   a kept connection: then the request is repeated within the same attempt.
//!
//! `DISPATCH_JOBS` sets the number of jobs (20,000 is the full size; there is one group for every forty), and
//! `DISPATCH_KILLS` the number of kills.

use super::receiver::{FlakyReceiver, JobName, TakenCall};
use crate::http::{CREATED, Server, TOPIC, answer, client, event};
use log_postgres::testing::TestServer as Database;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::RwLock;
use uuid::Uuid;

const MODES: [&str; 3] = ["IMMEDIATE", "NEXT_ON_ERROR", "BLOCK_ON_ERROR"];
const JOBS_PER_GROUP: usize = 40;
const BATCH: usize = 100;
/// The longest time from a response to its record in the log.
const UNWRITTEN: Duration = Duration::from_secs(2);
/// The longest time that a request may wait in a socket before the receiver, on a busy machine, reads it.
const IN_A_SOCKET: Duration = Duration::from_secs(1);
/// The longest time until all work is finished after the last kill.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
const VARIABLES: [(&str, &str); 3] = [
    ("EVENT_BROKER__DISPATCH__ALLOW_PRIVATE_TARGETS", "true"),
    ("EVENT_BROKER__DISPATCH__SECRET_KEY", "c2VjcmV0IGZvciB0aGUgdGVzdHM6IG5vdCByYW5kb20gYXQgYWxsLCBidXQgbG9uZw=="),
    ("EVENT_BROKER__DISPATCH__LEASE_SECS", "1"),
];

fn from_environment(name: &str, default: usize) -> usize {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// The current URLs of the brokers.
type BrokerUrls = Arc<RwLock<Vec<String>>>;

/// The brokers of one log, and how to restart them.
struct BrokerProcesses {
    database: Option<String>,
    servers: Vec<Option<Server>>,
    addresses: BrokerUrls,
    kills: Vec<Instant>,
}

impl BrokerProcesses {
    async fn start(database: Option<String>, count: usize) -> Self {
        let addresses = Arc::new(RwLock::new(vec![String::new(); count]));
        let mut brokers = Self { database, servers: (0..count).map(|_| None).collect(), addresses, kills: Vec::new() };
        for number in 0..count {
            brokers.launch(number, TempDir::new().unwrap()).await;
        }
        brokers
    }

    async fn launch(&mut self, number: usize, folder: TempDir) {
        let server = match &self.database {
            Some(url) => Server::start_with(&VARIABLES, &["--storage", url]),
            None => Server::start_again_with(folder, &VARIABLES),
        };
        self.addresses.write().await[number].clone_from(&server.url);
        self.servers[number] = Some(server);
    }

    async fn kill_and_start_again(&mut self, number: usize) {
        let folder = self.servers[number].take().unwrap().kill();
        self.kills.push(Instant::now());
        self.launch(number, folder).await;
    }

    fn any(&self) -> &Server {
        self.servers[0].as_ref().unwrap()
    }
}

/// A client that retries until it receives a response.
struct RetryingClient {
    http: Client,
    addresses: BrokerUrls,
    turn: usize,
}

impl RetryingClient {
    async fn ask(&mut self, method: Method, path: &str, body: Option<&Value>) -> Value {
        loop {
            self.turn += 1;
            let url = {
                let addresses = self.addresses.read().await;
                format!("{}{path}", addresses[self.turn % addresses.len()])
            };
            let mut request = self.http.request(method.clone(), url);
            if let Some(body) = body {
                request = request.json(body);
            }
            let Ok(response) = request.send().await else { continue };
            let is_answer = response.status().is_success();
            match response.json::<Value>().await {
                Ok(answer) if is_answer => return answer,
                _ => continue,
            }
        }
    }
}

async fn prepare(server: &Server, receiver: &FlakyReceiver) {
    server.register(CREATED).await;
    for mode in MODES {
        let new = json!({
            "code": mode, "topic": TOPIC, "target": format!("{}/{mode}", receiver.url), "mode": mode,
            "retrySchedule": ["PT0.05S"], "maxAttempts": 100,
        });
        let (status, made) = server.post("/v1/subscriptions", &new).await;
        assert_eq!(status, 201, "{made}");
    }
}

/// Publishes all events in order, through every kill.
async fn publish(addresses: BrokerUrls, events: usize, groups: usize) {
    let mut asker = RetryingClient { http: client(), addresses, turn: 0 };
    for first in (0..events).step_by(BATCH) {
        let batch = (first..events.min(first + BATCH)).map(|number| {
            let mut event = event(CREATED, &format!("group-{}", number % groups));
            event["id"] = json!(Uuid::from_u128(number as u128 + 1));
            event
        });
        let batch: Vec<_> = batch.collect();
        let answer = asker.ask(Method::POST, "/v1/events:batch", Some(&json!({"events": batch}))).await;
        assert_eq!(answer["meta"]["failed"], 0, "{answer}");
    }
}

/// The jobs of a subscription, counted by status.
async fn statuses(url: &str, mode: &str) -> BTreeMap<String, usize> {
    let http = client();
    let mut found = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let request = http.get(format!("{url}/v1/dispatch-jobs?subscription={mode}&limit=100{cursor}"));
        let (status, page) = answer(request).await;
        assert_eq!(status, 200, "{page}");
        for job in page["items"].as_array().unwrap() {
            *found.entry(job["status"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        match page["page_info"]["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

/// Whether the results of all jobs of a subscription are recorded.
async fn is_settled(url: &str, mode: &str, events: usize) -> bool {
    let (status, shown) = answer(client().get(format!("{url}/v1/subscriptions/{mode}"))).await;
    status == 200 && shown["settledThrough"] == json!(events) && shown["openJobs"] == 0
}

async fn run(mut brokers: BrokerProcesses, jobs: usize, kills: usize) {
    let (events, groups) = (jobs / MODES.len(), (jobs / MODES.len() / JOBS_PER_GROUP).max(1));
    let jobs = events * MODES.len();
    let receiver = FlakyReceiver::start(42).await;
    prepare(brokers.any(), &receiver).await;
    let began = Instant::now();
    let publishing = tokio::spawn(publish(Arc::clone(&brokers.addresses), events, groups));
    let mut chance = blake3::Hasher::new().finalize_xof();
    let mut roll = |sides: usize| {
        let mut bytes = [0; 8];
        chance.fill(&mut bytes);
        usize::try_from(u64::from_le_bytes(bytes) % sides as u64).unwrap()
    };
    for kill in 1..=kills {
        // At a random moment of each stretch of the work; the last kill comes long before the end.
        let stretch = jobs * 9 / 10 / kills;
        let moment = receiver.took(stretch * (kill - 1) + 1 + roll(stretch));
        tokio::time::timeout(SETTLED_WITHIN, moment).await.expect("the brokers are stuck");
        let victim = roll(brokers.servers.len());
        brokers.kill_and_start_again(victim).await;
    }
    let restarted = Instant::now();
    let settling = async {
        publishing.await.unwrap();
        receiver.took(jobs).await;
        for mode in MODES {
            while !is_settled(&brokers.any().url, mode, events).await {
                tokio::task::yield_now().await;
            }
        }
    };
    let is_over = tokio::time::timeout(SETTLED_WITHIN, settling).await;
    let url = &brokers.any().url;
    for mode in MODES {
        let expected = BTreeMap::from([("COMPLETED".to_owned(), events)]);
        assert_eq!(statuses(url, mode).await, expected, "{mode}, {is_over:?}");
    }
    say(&format!("{jobs} jobs, {kills} kills: {:?}, {:?} after the last", began.elapsed(), restarted.elapsed()));
    check(&receiver, &brokers.kills, events, groups);
}

#[allow(clippy::print_stdout, reason = "shown where the figures are asked for, by `--nocapture`")]
fn say(text: &str) {
    println!("{text}");
}

fn check(receiver: &FlakyReceiver, kills: &[Instant], events: usize, groups: usize) {
    let book = receiver.book.lock().unwrap();
    assert!(book.failed > 0 && book.lost > 0);
    let (mut again, mut around_kills) = (0, 0);
    for (job, taken) in &book.taken {
        for pair in taken.windows(2) {
            again += 1;
            around_kills += usize::from(may_come_again(job, pair[0], pair[1], kills));
        }
    }
    say(&format!("{} refused, {} lost, {again} done again, {around_kills} around kills", book.failed, book.lost));
    for (job, tokens) in &book.tokens {
        assert!(tokens.windows(2).all(|pair| pair[0] <= pair[1]), "{job:?}: {tokens:?}");
    }
    for group in 0..groups {
        let key = ("BLOCK_ON_ERROR".to_owned(), format!("group-{group}"));
        let expected: Vec<_> = (group + 1..=events).step_by(groups).map(|sequence| sequence as u64).collect();
        assert_eq!(book.firsts[&key], expected, "{key:?}");
    }
}

/// Fails if work was done again without a valid reason; returns whether a kill was the reason.
fn may_come_again(job: &JobName, before: TakenCall, after: TakenCall, kills: &[Instant]) -> bool {
    if !before.is_answered {
        return false;
    }
    let is_around = |kill: &&Instant| {
        **kill <= after.at
            && before.at <= **kill + IN_A_SOCKET
            && kill.saturating_duration_since(before.at) <= UNWRITTEN
    };
    let nearest = kills.iter().map(|kill| before.at.saturating_duration_since(*kill)).filter(|it| !it.is_zero()).min();
    let is_excused = kills.iter().find(is_around).is_some();
    assert!(
        is_excused,
        "{job:?} was answered {nearest:?} after a kill, and was sent again {:?} later",
        after.at - before.at
    );
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_again_and_again_delivers_every_job_in_order_and_again_only_where_an_answer_was_lost() {
    let (jobs, kills) = (from_environment("DISPATCH_JOBS", 3_000), from_environment("DISPATCH_KILLS", 8));
    run(BrokerProcesses::start(None, 1).await, jobs, kills).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_three_brokers_on_a_database_killed_again_and_again_is_taken_over_from() {
    let (jobs, kills) = (from_environment("DISPATCH_JOBS", 3_000), from_environment("DISPATCH_KILLS", 8));
    let database = Database::shared().create_database();
    run(BrokerProcesses::start(Some(database), 3).await, jobs, kills).await;
}
