//! Claims compared with a model: a seed chooses the operations, and a few lines of plain code compute the expected
//! results.
//!
//! The broker is reopened on its log from time to time, so that the folded state is compared with the decided state.

use crate::scenario::{subject_type_id, topic_id, type_id};
use contract::api::*;
use contract::{
    ClaimAnswer, ClaimError, ClaimFailure, ClaimOrder, Completion, DeadLetterFilter, Error, FencingToken, Kind,
    NewClaim, NewEvent, NewEventType, NewHandler, RedriveRequest, Sequence,
};
use event_broker::{Broker, Clock, Config, ManualClock};
use log::MemoryLog;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;

const SEEDS: u64 = 60;
const STEPS: usize = 120;
const EVENTS: u64 = 9;
const LEASE: i64 = 1000;
const BACKOFF: i64 = 300;
const ATTEMPTS: u32 = 3;

/// Event `n` belongs to aggregate `n % 3`; its predecessor there is `n - 3`.
fn before(sequence: u64) -> Option<u64> {
    sequence.checked_sub(3).filter(|before| *before > 0)
}

/// What the model knows of an event.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ModelClaimState {
    Live { until: i64 },
    Failed { at: i64 },
    Dead { superseded: bool },
    Redriven,
    Done,
}

#[derive(Debug, Clone, Copy)]
struct ModelClaim {
    known: ModelClaimState,
    token: FencingToken,
    attempt: u32,
    redriven: bool,
}

#[derive(Default)]
struct ClaimModel(BTreeMap<u64, ModelClaim>);

impl ClaimModel {
    fn is_done(&self, sequence: u64) -> bool {
        self.0.get(&sequence).is_some_and(|row| row.known == ModelClaimState::Done)
    }

    fn is_passed(&self, sequence: u64) -> bool {
        (sequence + 1..=EVENTS).any(|later| later % 3 == sequence % 3 && self.is_done(later))
    }

    /// The result of a claim, and the new state of its row; the token is set later.
    fn claim(&mut self, sequence: u64, order: ClaimOrder, now: i64) -> (ClaimAnswer, Option<i64>) {
        let row = self.0.get(&sequence).copied();
        let latest = order == ClaimOrder::Latest;
        let back_off = match row.map(|row| row.known) {
            Some(ModelClaimState::Done) => return (ClaimAnswer::Done, None),
            Some(ModelClaimState::Live { until }) if until > now => return (ClaimAnswer::Held, Some(until)),
            Some(ModelClaimState::Dead { superseded: true }) if latest => return (ClaimAnswer::Stale, None),
            Some(ModelClaimState::Dead { .. }) => return (ClaimAnswer::Held, None),
            Some(ModelClaimState::Failed { at }) if at > now => Some(at),
            _ => None,
        };
        if latest && self.is_passed(sequence) && !row.is_some_and(|row| row.redriven) {
            if let Some(row) = self.0.get_mut(&sequence) {
                row.known = ModelClaimState::Dead { superseded: true };
            }
            return (ClaimAnswer::Stale, None);
        }
        if let Some(before) = before(sequence).filter(|before| !latest && !self.is_done(*before)) {
            let waits = match self.0.get(&before).map(|row| row.known) {
                Some(ModelClaimState::Live { until: at } | ModelClaimState::Failed { at }) if at > now => Some(at),
                _ => None,
            };
            return (ClaimAnswer::Held, waits.max(back_off));
        }
        if back_off.is_some() {
            return (ClaimAnswer::Held, back_off);
        }
        if let Some(row) = self.0.get_mut(&sequence)
            && matches!(row.known, ModelClaimState::Live { .. })
            && row.attempt >= ATTEMPTS
        {
            row.known = ModelClaimState::Dead { superseded: false };
            return (ClaimAnswer::Held, None);
        }
        let attempt = row.map_or(0, |row| row.attempt) + 1;
        let redriven = row.is_some_and(|row| row.redriven);
        let known = ModelClaimState::Live { until: now + LEASE };
        self.0.insert(sequence, ModelClaim { known, token: FencingToken(0), attempt, redriven });
        (ClaimAnswer::Claimed, None)
    }

    /// The result of heartbeat, done and fail: `Ok(true)` if it changes the claim.
    fn say(&mut self, sequence: u64, token: FencingToken, verb: &str, now: i64) -> Result<bool, Kind> {
        let row = self.0.get_mut(&sequence).ok_or(Kind::NotFound)?;
        let is_mine = row.token == token;
        match (verb, row.known) {
            ("beat", ModelClaimState::Live { .. }) if is_mine => {
                row.known = ModelClaimState::Live { until: now + LEASE }
            }
            ("done", ModelClaimState::Live { .. }) if is_mine => row.known = ModelClaimState::Done,
            ("done", ModelClaimState::Done) if is_mine => return Ok(false),
            ("fail", ModelClaimState::Live { .. }) if is_mine && row.attempt < ATTEMPTS => {
                row.known = ModelClaimState::Failed { at: now + (BACKOFF << (row.attempt - 1)) };
            }
            ("fail", ModelClaimState::Live { .. }) if is_mine => {
                row.known = ModelClaimState::Dead { superseded: false }
            }
            ("fail", ModelClaimState::Failed { .. } | ModelClaimState::Dead { .. }) if is_mine => return Ok(false),
            _ => return Err(Kind::ClaimLost),
        }
        Ok(true)
    }
}

struct RepeatableRandom(u64);

impl RepeatableRandom {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

struct ModelRun {
    chance: RepeatableRandom,
    log: Arc<MemoryLog>,
    clock: Arc<ManualClock>,
    broker: Broker,
    model: ClaimModel,
    /// Every token that was ever issued.
    given: Vec<(u64, String, FencingToken)>,
}

async fn open(log: &Arc<MemoryLog>, clock: &Arc<ManualClock>) -> Broker {
    Broker::on_log(Config::default(), Arc::clone(log) as _, None, Arc::clone(clock) as _).await.unwrap()
}

impl ModelRun {
    async fn new(seed: u64) -> Self {
        let (log, clock) = (Arc::new(MemoryLog::new()), Arc::new(ManualClock::at(1_764_763_200_000)));
        let broker = open(&log, &clock).await;
        broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
        for number in 1..=EVENTS {
            let data = RawValue::from_string("{}".to_owned()).unwrap();
            let mut event = NewEvent::new(type_id("placed").parse().unwrap(), "test", data);
            event.tenant = Some(uuid::Uuid::from_u128(1));
            let event = event.about(subject_type_id("order"), (number % 3).to_string());
            broker.publish(event, None).await.unwrap();
        }
        let handler = NewHandler {
            lease: Some("PT1S".parse().unwrap()),
            max_attempts: Some(ATTEMPTS),
            backoff: Some("PT0.3S".parse().unwrap()),
            order: None,
        };
        broker.put_handler("h", handler).await.unwrap();
        Self { chance: RepeatableRandom(seed), log, clock, broker, model: ClaimModel::default(), given: Vec::new() }
    }

    async fn claim(&mut self, what: &str) {
        let (sequence, now) = (1 + self.chance.below(EVENTS), self.clock.now());
        let order = if self.chance.below(3) == 0 { ClaimOrder::Gapless } else { ClaimOrder::Latest };
        let mut claim = NewClaim::at("h", topic_id("default"), Sequence(sequence));
        claim.order = Some(order);
        let outcome = self.broker.claim(claim, None).await.unwrap();
        let expected = self.model.claim(sequence, order, now);
        let retry_at = outcome.retry_at.map(contract::Timestamp::millis);
        assert_eq!((outcome.outcome, retry_at), expected, "{what}: claim {sequence} {order:?}");
        if let Some(claim) = outcome.claim {
            let row = self.model.0.get_mut(&sequence).unwrap();
            assert!(self.given.iter().all(|(_, _, token)| *token < claim.token), "{what}: tokens must grow");
            assert_eq!(claim.attempt, row.attempt, "{what}: claim {sequence}");
            row.token = claim.token;
            self.given.push((sequence, claim.id, claim.token));
        }
    }

    async fn say(&mut self, verb: &str, what: &str) {
        if self.given.is_empty() {
            return;
        }
        // Usually one of the most recent tokens.
        let back = self.chance.below(4.min(self.given.len() as u64)) as usize;
        let (sequence, id, token) = self.given[self.given.len() - 1 - back].clone();
        let answer = match verb {
            "beat" => self.broker.heartbeat(&id, token).await,
            "done" => self.broker.complete_claim(&id, Completion::of(token), None).await,
            _ => {
                let failure = ClaimFailure { token, error: ClaimError::new("X", "y"), retryable: None };
                self.broker.fail_claim(&id, failure).await
            }
        };
        let expected = self.model.say(sequence, token, verb, self.clock.now());
        assert_eq!(
            answer.map(drop).map_err(|error: Error| error.kind()),
            expected.map(drop),
            "{what}: {verb} {sequence}"
        );
    }

    async fn deal_with_letter(&mut self, what: &str) {
        let letters = self.broker.dead_letters(&DeadLetterFilter::default(), None, 100).await.unwrap().items;
        let dead = |row: &&ModelClaim| matches!(row.known, ModelClaimState::Dead { .. });
        assert_eq!(letters.len(), self.model.0.values().filter(dead).count(), "{what}: number of open dead letters");
        let Some(dead_letter) = letters.first() else { return };
        let row = self.model.0.get_mut(&dead_letter.sequence.0).unwrap();
        if self.chance.below(3) == 0 {
            self.broker.discard(dead_letter.id, "enough".to_owned(), None).await.unwrap();
            (row.known, row.token) = (ModelClaimState::Done, FencingToken::ZERO);
        } else {
            self.broker.redrive(dead_letter.id, RedriveRequest::default(), None).await.unwrap();
            (row.known, row.attempt, row.redriven) = (ModelClaimState::Redriven, 0, true);
        }
    }

    async fn step(&mut self, what: &str) {
        match self.chance.below(20) {
            0..8 => self.claim(what).await,
            8..11 => self.say("done", what).await,
            11..14 => self.say("fail", what).await,
            14 => self.say("beat", what).await,
            15..18 => self.clock.advance(i64::try_from(self.chance.below(900)).unwrap()),
            18 => self.deal_with_letter(what).await,
            _ => {
                self.broker.close().await;
                self.broker = open(&self.log, &self.clock).await;
            }
        }
    }
}

#[tokio::test]
async fn whatever_happens_claims_do_as_the_model_says() {
    for seed in 0..SEEDS {
        let mut run = ModelRun::new(seed).await;
        for step in 0..STEPS {
            run.step(&format!("seed {seed}, step {step}")).await;
        }
        run.broker.close().await;
    }
}
