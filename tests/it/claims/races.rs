//! Concurrent claims: exactly one caller gets the event, every time, and a stalled worker cannot do harm.

use crate::scenario::{subject_type_id, topic_id, type_id};
use contract::api::*;
use contract::{ClaimAnswer, Completion, FencingToken, Kind, NewClaim, NewEvent, NewEventType, ProducerId, Sequence};
use event_broker::{Broker, Config, ManualClock};
use futures_util::future::join_all;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

const ROUNDS: u64 = 10_000;

/// A broker with `count` events in the default topic, each in its own aggregate.
async fn broker(config: Config, count: u64) -> Broker {
    let clock = Arc::new(ManualClock::at(1_764_763_200_000));
    let broker = Broker::open_at(config, clock).await.unwrap();
    broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    let event = |n: u64| {
        let data = RawValue::from_string("{}".to_owned()).unwrap();
        let event = NewEvent::new(type_id("placed").parse().unwrap(), "test", data);
        NewEvent { tenant: Some(uuid::Uuid::from_u128(1)), ..event.about(subject_type_id("order"), n.to_string()) }
    };
    for first in (0..count).step_by(100) {
        let events = (first..count.min(first + 100)).map(event).collect();
        let outcome = broker.publish_batch(events, contract::Atomicity::All, None).await.unwrap();
        assert!(outcome.iter().all(Result::is_ok));
    }
    broker
}

/// In every round, `callers` claim one event concurrently.
async fn race(broker: Arc<Broker>, rounds: u64, callers: usize) {
    let mut last = FencingToken::ZERO;
    for round in 1..=rounds {
        let claims = (0..callers).map(|caller| {
            let broker = Arc::clone(&broker);
            tokio::spawn(async move {
                let owner = ProducerId(format!("w{caller}"));
                let claim = NewClaim::at("billing", topic_id("default"), Sequence(round));
                broker.claim(claim, Some(&owner)).await.unwrap()
            })
        });
        let outcomes: Vec<_> = join_all(claims).await.into_iter().map(Result::unwrap).collect();
        let claimed: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.claim.as_ref()).collect();
        assert_eq!(claimed.len(), 1, "round {round}");
        assert!(claimed[0].token > last && claimed[0].attempt == 1, "round {round}");
        last = claimed[0].token;
        let held = outcomes.iter().filter(|outcome| outcome.outcome == ClaimAnswer::Held).count();
        assert_eq!(held, callers - 1, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_claim_one_event_at_once_exactly_one_gets_it_ten_thousand_times() {
    race(Arc::new(broker(Config::default(), ROUNDS).await), ROUNDS, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_sixteen_that_claim_one_event_at_once_exactly_one_gets_it_ten_thousand_times() {
    race(Arc::new(broker(Config::default(), ROUNDS).await), ROUNDS, 16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_files_it_is_the_same() {
    let folder = TempDir::new().unwrap();
    race(Arc::new(broker(Config::folder(folder.path()), 200).await), 200, 16).await;
}

/// An external system that remembers the highest token it has seen, and refuses lower ones.
#[derive(Default)]
struct FencedReceiver {
    highest: FencingToken,
    effects: Vec<&'static str>,
}

impl FencedReceiver {
    fn act(&mut self, token: FencingToken, worker: &'static str) -> bool {
        let fresh = token >= self.highest;
        self.highest = self.highest.max(token);
        if fresh {
            self.effects.push(worker);
        }
        fresh
    }
}

#[tokio::test]
async fn a_worker_that_stalls_past_its_lease_is_refused_everywhere_when_it_wakes() {
    let clock = Arc::new(ManualClock::at(1_764_763_200_000));
    let broker = Broker::open_at(Config::default(), clock.clone()).await.unwrap();
    broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    let data = RawValue::from_string("{}".to_owned()).unwrap();
    let mut event = NewEvent::new(type_id("placed").parse().unwrap(), "test", data);
    event = event.about(subject_type_id("order"), "o-1");
    event.tenant = Some(uuid::Uuid::from_u128(1));
    broker.publish(event.clone(), None).await.unwrap();
    let claim = |owner: &str| {
        let mut claim = NewClaim::at("billing", topic_id("default"), Sequence(1)).owned_by(owner);
        claim.lease = Some("PT30S".parse().unwrap());
        claim
    };
    let mut receiver = FencedReceiver::default();
    let stalled = broker.claim(claim("w1"), None).await.unwrap().claim.unwrap();
    clock.advance(30_000);
    let other = broker.claim(claim("w2"), None).await.unwrap().claim.unwrap();
    assert!(other.token > stalled.token);
    assert!(receiver.act(other.token, "w2"));
    broker.complete_claim(&other.id, Completion::of(other.token), None).await.unwrap();
    // The stalled worker resumes, and does not know about the take-over.
    assert!(!receiver.act(stalled.token, "w1"));
    let produced = Completion { events: vec![event], ..Completion::of(stalled.token) };
    let refused = broker.complete_claim(&stalled.id, produced, None).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::ClaimLost);
    assert_eq!(receiver.effects, ["w2"]);
    let events = broker.read(contract::TopicRead::all(topic_id("default"))).await.unwrap();
    assert_eq!(events.items.len(), 1);
    broker.close().await;
}

/// Sixteen workers process one aggregate, out of order and concurrently. Every completion stores an event, so that the
/// log shows the order of the completions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_claimed_behind_which_the_log_has_something_later_finished() {
    const EVENTS: u64 = 3000;
    const ATTEMPTS: u64 = 500;
    let broker = Broker::open(Config::default()).await.unwrap();
    for (event_type, topic) in [("placed", "orders"), ("counted", "counts")] {
        broker.register_topic(contract::NewTopic::new(topic_id(topic))).await.unwrap();
        let mut known = NewEventType::new(type_id(event_type).parse().unwrap());
        known.topic = Some(topic_id(topic));
        broker.register_event_type(known).await.unwrap();
    }
    let event = move |event_type: &str, subject: &str| {
        let data = RawValue::from_string("{}".to_owned()).unwrap();
        let event = NewEvent::new(type_id(event_type).parse().unwrap(), "test", data);
        NewEvent { tenant: Some(uuid::Uuid::from_u128(1)), ..event.about(subject_type_id("order"), subject) }
    };
    for _ in 0..EVENTS / 100 {
        let events = (0..100).map(|_| event("placed", "one")).collect();
        broker.publish_batch(events, contract::Atomicity::All, None).await.unwrap();
    }
    let (broker, reached) = (Arc::new(broker), Arc::new(AtomicU64::new(0)));
    let workers = (0..16_u64).map(|worker| {
        let (broker, reached) = (Arc::clone(&broker), Arc::clone(&reached));
        tokio::spawn(async move {
            let (mut chance, mut claimed) = (worker, Vec::new());
            for _ in 0..ATTEMPTS {
                let near = reached.fetch_add(1, Ordering::Relaxed) * EVENTS / (16 * ATTEMPTS);
                chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let wanted = (near + (chance >> 33) % 40).saturating_sub(20).clamp(1, EVENTS);
                let claim = NewClaim::at("billing", topic_id("orders"), Sequence(wanted));
                let Some(claim) = broker.claim(claim, None).await.unwrap().claim else { continue };
                claimed.push((wanted, claim.token));
                let events = vec![event("counted", &wanted.to_string())];
                let completion = Completion { events, ..Completion::of(claim.token) };
                broker.complete_claim(&claim.id, completion, None).await.unwrap();
            }
            claimed
        })
    });
    let claimed: Vec<_> = join_all(workers).await.into_iter().flat_map(Result::unwrap).collect();
    // When each event was finished, by position in the log.
    let mut finished = Vec::new();
    let mut read = contract::TopicRead::all(topic_id("counts"));
    loop {
        let page = broker.read(read.clone()).await.unwrap();
        let subject = |event: &contract::StoredEvent| event.event().unwrap().subject.unwrap().parse::<u64>().unwrap();
        finished.extend(page.items.iter().map(|event| (event.position.get(), subject(event))));
        read = read.after(page.next_offset);
        if page.next_offset == page.tail {
            break;
        }
    }
    assert!(finished.len() == claimed.len() && claimed.len() > 300, "{} of {}", finished.len(), claimed.len());
    for (sequence, token) in claimed {
        let before = finished.iter().filter(|(position, _)| *position < token.get());
        let passed = before.filter(|(_, later)| *later > sequence).count();
        assert_eq!(passed, 0, "{sequence} was claimed at {token}");
    }
}
