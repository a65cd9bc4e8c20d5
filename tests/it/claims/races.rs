//! Many at once: exactly one gets the event, each time, and a worker that stalls cannot do harm.

use crate::scenario::{subject_type_id, topic_id, type_id};
use contract::{
    ClaimAnswer, Completion, EventBroker, Kind, NewClaim, NewEvent, NewEventType, ProducerId, Sequence, Token,
};
use event_broker::{Broker, Config, ManualClock};
use futures_util::future::join_all;
use serde_json::value::RawValue;
use std::sync::Arc;
use tempfile::TempDir;

const ROUNDS: u64 = 10_000;

/// A broker with `count` events in the default topic, each of an aggregate of its own.
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

/// Every round `callers` claim one event at the same time.
async fn race(broker: Arc<Broker>, rounds: u64, callers: usize) {
    let mut last = Token::ZERO;
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

/// An outside system that remembers the highest token it has seen, and refuses anything lower.
#[derive(Default)]
struct Receiver {
    highest: Token,
    effects: Vec<&'static str>,
}

impl Receiver {
    fn act(&mut self, token: Token, worker: &'static str) -> bool {
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
    let mut receiver = Receiver::default();
    let stalled = broker.claim(claim("w1"), None).await.unwrap().claim.unwrap();
    clock.advance(30_000);
    let other = broker.claim(claim("w2"), None).await.unwrap().claim.unwrap();
    assert!(other.token > stalled.token);
    assert!(receiver.act(other.token, "w2"));
    broker.complete_claim(&other.id, Completion::of(other.token), None).await.unwrap();
    // It wakes, and knows nothing of all that.
    assert!(!receiver.act(stalled.token, "w1"));
    let produced = Completion { events: vec![event], ..Completion::of(stalled.token) };
    let refused = broker.complete_claim(&stalled.id, produced, None).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::ClaimLost);
    assert_eq!(receiver.effects, ["w2"]);
    let events = broker.read(contract::Read::all(topic_id("default"))).await.unwrap();
    assert_eq!(events.items.len(), 1);
    broker.close().await;
}
