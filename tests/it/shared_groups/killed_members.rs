//! Eight members, killed at random: every event has its effect once, each aggregate is in order, and no event is
//! starved.
//!
//! `GROUP_EVENTS` is the number of events, `GROUP_AGGREGATES` the number of aggregates.

use crate::scenario::{subject_type_id, topic_id, type_id};
use contract::api::*;
use contract::{
    Atomicity, Claim, ClaimCompletion, EventPage, NewConsumer, NewEvent, NewEventType, NewHandler, Offset, Sequence,
};
use event_broker::{Broker, Config, SystemClock};
use futures_util::future::join_all;
use log::{Log, MemoryLog};
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uuid::Uuid;

const MEMBERS: usize = 8;
const LEASE: Duration = Duration::from_secs(1);
const GROUP: &str = "crowd";

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// The effects that are visible outside the group.
#[derive(Default)]
struct ObservedEffects {
    /// The number of effects by event.
    effects: HashMap<Sequence, u32>,
    /// The last number of each aggregate that had its effect.
    last: HashMap<u64, u64>,
    /// Events whose holder died: the time, and the attempt.
    orphans: HashMap<Sequence, (Instant, u32)>,
    longest_wait: Duration,
    done_by: [u64; MEMBERS],
    kills: u64,
}

impl ObservedEffects {
    /// A member received these events, and works on them or dies.
    fn got(&mut self, page: &EventPage, member: usize, is_killed: bool) {
        for claim in &page.claims {
            // A member that was killed while it polled may have held the event in between.
            if let Some((died, attempt)) = self.orphans.remove(&claim.sequence)
                && claim.attempt == attempt + 1
            {
                self.longest_wait = self.longest_wait.max(died.elapsed());
            }
        }
        if is_killed {
            self.kills += 1;
            self.orphans.extend(page.claims.iter().map(|claim| (claim.sequence, (Instant::now(), claim.attempt))));
            return;
        }
        for event in &page.items {
            *self.effects.entry(event.sequence).or_default() += 1;
            let subject: u64 = event.event().unwrap().subject.unwrap().parse().unwrap();
            let last = self.last.entry(subject).or_default();
            assert_eq!(event.aggregate_sequence.get(), *last + 1, "aggregate {subject} is out of order");
            *last += 1;
            self.done_by[member] += 1;
        }
    }
}

/// Pseudo-random numbers, the same on every run.
struct RepeatableRandom(u64);

impl RepeatableRandom {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

async fn prepare(broker: &Broker, count: u64, aggregates: u64) {
    broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    let lease = Some("PT1S".parse().unwrap());
    let handler = NewHandler { lease, max_attempts: Some(100), backoff: None, order: None };
    broker.put_handler(GROUP, handler).await.unwrap();
    let mut dice = RepeatableRandom(7);
    let mut events = (0..count).map(|_| {
        let data = RawValue::from_string("{}".to_owned()).unwrap();
        let event = NewEvent::new(type_id("placed").parse().unwrap(), "test", data);
        let event = event.about(subject_type_id("order"), dice.roll(aggregates).to_string());
        NewEvent { tenant: Some(Uuid::from_u128(1)), ..event }
    });
    loop {
        let some: Vec<_> = events.by_ref().take(100).collect();
        if some.is_empty() {
            return;
        }
        let outcome = broker.publish_batch(some, Atomicity::All, None).await.unwrap();
        assert!(outcome.iter().all(Result::is_ok));
    }
}

async fn join(broker: &Broker) -> Uuid {
    let consumer = NewConsumer::new(GROUP, topic_id("default")).shared();
    let consumer = NewConsumer { session_timeout: Some("PT3S".parse().unwrap()), ..consumer };
    broker.create_consumer(consumer).await.unwrap().id
}

fn completion(claim: &Claim) -> ClaimCompletion {
    ClaimCompletion { id: claim.id.clone(), token: claim.token, events: Vec::new(), offset: None }
}

/// Works until everything is done; sometimes dies without leaving the group, and joins again as a new member.
async fn work(broker: Arc<Broker>, world: Arc<Mutex<ObservedEffects>>, member: usize, count: u64) {
    let mut dice = RepeatableRandom(member as u64 + 1);
    let mut id = join(&broker).await;
    while (world.lock().unwrap().effects.len() as u64) < count {
        let poll = broker.wait_as(id, Offset::ZERO.into(), 10, Duration::from_secs(2));
        let page = match dice.roll(50) {
            // Killed during a poll: a response may have been on its way.
            0 => tokio::time::timeout(Duration::from_micros(dice.roll(3000)), poll).await.ok(),
            _ => Some(poll.await),
        };
        let is_killed = page.is_none() || dice.roll(50) == 0;
        let page = page.map_or_else(EventPage::default, Result::unwrap);
        world.lock().unwrap().got(&page, member, is_killed);
        if is_killed {
            id = join(&broker).await;
            continue;
        }
        if page.items.is_empty() {
            continue;
        }
        let done = broker.complete_claims(page.claims.iter().map(completion).collect(), None).await.unwrap();
        assert!(done.iter().all(Result::is_ok), "{done:?}");
    }
}

/// `brokers` serve one log; each member calls one of them.
async fn run(brokers: Vec<Arc<Broker>>, count: u64, aggregates: u64) {
    prepare(&brokers[0], count, aggregates).await;
    let world = Arc::new(Mutex::new(ObservedEffects::default()));
    let began = Instant::now();
    let members = (0..MEMBERS).map(|member| {
        let broker = Arc::clone(&brokers[member % brokers.len()]);
        tokio::spawn(work(broker, Arc::clone(&world), member, count))
    });
    join_all(members).await.into_iter().for_each(|member| member.unwrap());
    let ObservedEffects { effects, longest_wait, done_by, kills, .. } = std::mem::take(&mut *world.lock().unwrap());
    assert_eq!((effects.len() as u64, effects.values().max()), (count, Some(&1)));
    assert!(kills > 0);
    if is_strict() {
        check_pace(longest_wait, &done_by, brokers.len());
    }
    let group = brokers[0].consumer_group(GROUP).await.unwrap();
    assert_eq!((group.topics[0].committed_offset, group.topics[0].lag), (Offset(count), 0), "{:?}", began.elapsed());
    for broker in &brokers {
        broker.close().await;
    }
}

/// Duration and evenness depend on the machine as much as on the group, so they are checked only on request.
fn is_strict() -> bool {
    from_environment("GROUP_STRICT", 0) > 0
}

fn check_pace(longest_wait: Duration, done_by: &[u64], brokers: usize) {
    assert!(longest_wait <= LEASE + Duration::from_secs(1), "{longest_wait:?}");
    // The speed of the brokers may differ; members of the same broker poll at the same rate.
    for first in 0..brokers {
        let done: Vec<_> = done_by.iter().skip(first).step_by(brokers).copied().collect();
        let even = done.iter().sum::<u64>() / done.len() as u64;
        let is_even = |done: &u64| (even * 8 / 10..=even * 12 / 10).contains(done);
        assert!(done.iter().all(is_even), "work was not shared evenly: {done:?}, even is {even}");
    }
}

fn size(default: u64) -> (u64, u64) {
    let count = from_environment("GROUP_EVENTS", default);
    (count, from_environment("GROUP_AGGREGATES", (count / 100).max(100)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_members_killed_at_random_do_everything_once_and_in_order() {
    let (count, aggregates) = size(10_000);
    run(vec![Arc::new(Broker::open(Config::default()).await.unwrap())], count, aggregates).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_files_it_is_the_same() {
    let folder = TempDir::new().unwrap();
    let (count, aggregates) = size(5_000);
    run(vec![Arc::new(Broker::open(Config::folder(folder.path())).await.unwrap())], count, aggregates).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_brokers_on_one_log_as_well() {
    let log: Arc<dyn Log> = Arc::new(MemoryLog::shared());
    let mut brokers = Vec::new();
    for _ in 0..2 {
        let broker = Broker::on_log(Config::default(), Arc::clone(&log), None, Arc::new(SystemClock)).await;
        brokers.push(Arc::new(broker.unwrap()));
    }
    let (count, aggregates) = size(3_000);
    run(brokers, count, aggregates).await;
}
