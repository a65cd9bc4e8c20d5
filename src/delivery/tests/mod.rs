//! Attempts against real receivers on this machine: requests, responses, and hostile behaviour.
//!
//! - Receivers listen on a free port; names are resolved by a table of the test's own.
//! - Attempts to receivers that hang have a short time-out; no test waits for a fixed time.

mod connections;
mod formats;
mod hostile;
mod oauth;
mod receiver;
mod responses;
mod third_parties;
mod trust;

use super::*;
use contract::{BoxFuture, Sequence};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

const ID: &str = "550e8400-e29b-41d4-a716-446655440000";
const TOPIC: &str = "gts.hx.core.events.topic.v1~";
/// A stored event in a spelling that only a copy preserves.
const EVENT: &str = r#"{"id":"550e8400-e29b-41d4-a716-446655440000","type":"gts.vendor.orders.order_placed.v1","topic":"gts.hx.core.events.topic.v1~","sequence":7,"aggregateSequence":2,"position":9,"createdAt":"2025-12-03T12:02:00.000Z","occurredAt":"2025-12-03T12:01:59.829Z","source":"/shop/é","subject":"o 1%","dataVersion":"1.0","traceParent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","context":{"appid":"web","Region":"eu"},"data": {"total": 1.50e0,  "name":"\u00e9" } }"#;
const DATA: &str = r#"{"total": 1.50e0,  "name":"\u00e9" }"#;
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const KEY: &str = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";

/// What tests vary of a delivery.
struct DeliveryCase {
    target: DeliveryTarget,
    shape: EventFormat,
    signing: Vec<WebhookSecret>,
    auth: AuthMethod,
    identity: Option<ClientIdentity>,
    headers: CustomHeaders,
    timeout: Duration,
}

impl DeliveryCase {
    fn to(url: &str) -> Self {
        Self {
            target: DeliveryTarget::parse("/target", url).unwrap(),
            shape: EventFormat::Envelope,
            signing: Vec::new(),
            auth: AuthMethod::None,
            identity: None,
            headers: CustomHeaders::default(),
            timeout: Duration::from_secs(20),
        }
    }

    async fn deliver(&self, deliverer: &WebhookDeliverer) -> AttemptReport {
        self.deliver_at(deliverer, Timestamp::from_millis(1_764_763_200_100)).await
    }

    async fn deliver_at(&self, deliverer: &WebhookDeliverer, at: Timestamp) -> AttemptReport {
        let delivery = DeliveryRequest {
            target: &self.target,
            payload: DeliveryPayload::Event { text: Bytes::from_static(EVENT.as_bytes()), format: self.shape },
            signing: &self.signing,
            auth: &self.auth,
            identity: self.identity.as_ref(),
            headers: &self.headers,
            timeout: self.timeout,
            id: ID,
            at,
            attempt: 3,
            subscription: Some("orders"),
            topic: Some(TOPIC),
            sequence: Some(Sequence(7)),
            replay: Some(uuid::Uuid::from_u128(5)),
            token: Some(12),
            trace_parent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        };
        deliverer.deliver(delivery).await
    }
}

/// The default policy, with addresses of this machine allowed.
fn local() -> DeliveryPolicy {
    DeliveryPolicy { allow_private_targets: true, ..DeliveryPolicy::default() }
}

/// A table of names that counts look-ups. A second look-up of a name returns the next entry, like the server of a DNS
/// rebinding attack.
#[derive(Default)]
pub(super) struct ResolverTable {
    answers: HashMap<String, Vec<Vec<IpAddr>>>,
    asked: AtomicUsize,
}

impl ResolverTable {
    pub(super) fn of(names: &[(&str, &[&[&str]])]) -> Arc<Self> {
        let parse = |addresses: &&[&str]| addresses.iter().map(|address| address.parse().unwrap()).collect();
        let answers = names.iter().map(|(name, answers)| ((*name).to_owned(), answers.iter().map(parse).collect()));
        Arc::new(Self { answers: answers.collect(), asked: AtomicUsize::new(0) })
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Resolve for ResolverTable {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        let answers = self.answers.get(name);
        let answer = answers.map(|answers| answers[asked.min(answers.len() - 1)].clone());
        Box::pin(async move { answer.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound)) })
    }
}

/// The error class of an attempt.
fn class(attempt: &AttemptReport) -> Option<ErrorClass> {
    attempt.error.as_ref().map(|(class, _)| *class)
}

/// Asserts a failure of this class, retryable or not.
#[track_caller]
fn expect_failure(attempt: &AttemptReport, expected: ErrorClass, retryable: bool) {
    assert_eq!(attempt.outcome, AttemptOutcome::Failed { retryable }, "{attempt:?}");
    assert_eq!(class(attempt), Some(expected), "{attempt:?}");
}
