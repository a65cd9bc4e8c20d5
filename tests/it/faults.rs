//! A failing disk below a whole broker: it refuses, reports the cause, and reopens with exactly what it acknowledged.
//!
//! A seed chooses the requests, the fault and what a power cut leaves. After each fault the broker is opened on that
//! disk again: every acknowledged request is present, the refused request is present completely or not at all, and
//! nothing else is present. Running a seed twice gives the same trace.

use crate::scenario::{subject_type_id, topic_id, type_id};
use contract::api::*;
use contract::{Atomicity, Kind, LogRead, NewEvent, NewEventType, NewTopic, Position, Sequence, TrimRequest};
use event_broker::{Broker, Config, ManualClock};
use log::file::{FileLog, FileLogOptions};
use log::testing::fault_disk::{DiskFault, DiskOperation, FaultDisk};
use serde_json::value::RawValue;
use std::io::ErrorKind;
use std::sync::Arc;
use uuid::Uuid;

const SEEDS: u64 = 40;
const FAULTS_PER_SEED: usize = 4;

/// A small deterministic random number generator.
struct RepeatableRandom(u64);

impl RepeatableRandom {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

struct FaultRun {
    chance: RepeatableRandom,
    disk: FaultDisk,
    /// Ids of acknowledged events, one list per request.
    promised: Vec<Vec<Uuid>>,
    next_id: u128,
    segment_bytes: u64,
    reserve_bytes: u64,
    trace: Vec<String>,
}

impl FaultRun {
    fn new(seed: u64, segment_bytes: u64) -> Self {
        let (disk, promised, trace) = (FaultDisk::new(), Vec::new(), Vec::new());
        Self { chance: RepeatableRandom(seed), disk, promised, next_id: 1, segment_bytes, reserve_bytes: 0, trace }
    }

    async fn open(&self) -> Broker {
        let Self { segment_bytes, reserve_bytes, .. } = *self;
        let options = FileLogOptions { segment_bytes, reserve_bytes, ..FileLogOptions::default() };
        let log = FileLog::open(Arc::new(self.disk.clone()), options).unwrap();
        let clock = Arc::new(ManualClock::at(1_764_763_200_000));
        let config = Config { storage: event_broker::StorageConfig::folder("unused"), ..Config::default() };
        let broker = Broker::on_log(config, Arc::new(log), None, clock).await.unwrap();
        for (topic, event_type) in [("a", "made_a"), ("b", "made_b")] {
            broker.register_topic(NewTopic::new(topic_id(topic))).await.unwrap();
            let mut known = NewEventType::new(type_id(event_type).parse().unwrap());
            known.topic = Some(topic_id(topic));
            broker.register_event_type(known).await.unwrap();
        }
        broker
    }

    fn request(&mut self) -> Vec<NewEvent> {
        let count = 1 + self.chance.below(4);
        (0..count).map(|_| self.event()).collect()
    }

    fn event(&mut self) -> NewEvent {
        let event_type = if self.chance.below(2) == 0 { "made_a" } else { "made_b" };
        let data = format!(r#"{{"filling":"{}"}}"#, "x".repeat(usize::try_from(self.chance.below(600)).unwrap()));
        let data = RawValue::from_string(data).unwrap();
        let mut event = NewEvent::new(type_id(event_type).parse().unwrap(), "test", data)
            .about(subject_type_id("order"), format!("s{}", self.chance.below(3)));
        event.id = Some(Uuid::from_u128(self.next_id));
        event.tenant = Some(Uuid::from_u128(1));
        self.next_id += 1;
        event
    }

    fn arm(&mut self) {
        let nth = 1 + self.chance.below(12);
        let (operation, fault) = match self.chance.below(5) {
            0 => (DiskOperation::Write, DiskFault::Error(ErrorKind::Other)),
            1 => (DiskOperation::Write, DiskFault::Full),
            2 => (DiskOperation::Write, DiskFault::Short(usize::try_from(self.chance.below(700)).unwrap())),
            _ => (DiskOperation::Sync, DiskFault::Error(ErrorKind::Other)),
        };
        self.trace.push(format!("{operation:?} {nth} {fault:?}"));
        self.disk.fail(operation, nth, fault);
    }

    /// Publishes until the disk fails; returns the ids of the refused request.
    async fn publish_until_failure(&mut self, broker: &Broker) -> Vec<Uuid> {
        for _ in 0..60 {
            let request = self.request();
            let ids: Vec<_> = request.iter().filter_map(|event| event.id).collect();
            match broker.publish_batch(request, Atomicity::All, None).await {
                Ok(outcomes) => {
                    assert!(outcomes.iter().all(Result::is_ok));
                    self.promised.push(ids);
                }
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Unavailable);
                    return ids;
                }
            }
        }
        // A fault in background work (sealing) may affect no request.
        Vec::new()
    }

    /// All stored events, in order; checks their numbers.
    async fn stored(&self, broker: &Broker) -> Vec<Uuid> {
        let mut ids = Vec::new();
        let mut sequences = std::collections::HashMap::new();
        let mut after = Position::ZERO;
        loop {
            let page = broker.read_log(LogRead { after, limit: 100, filter: Default::default() }).await.unwrap();
            for event in page.items {
                let parsed = event.event().unwrap();
                let topic: &mut u64 = sequences.entry(parsed.topic.to_string()).or_default();
                *topic += 1;
                assert_eq!(event.sequence.0, *topic);
                let aggregate: &mut u64 =
                    sequences.entry(format!("{} {}", parsed.topic, parsed.subject.unwrap())).or_default();
                *aggregate += 1;
                assert_eq!(event.aggregate_sequence.0, *aggregate);
                ids.push(event.id);
            }
            after = page.next_position;
            if after == page.tail {
                return ids;
            }
        }
    }

    async fn fail_and_recover(&mut self) {
        let broker = self.open().await;
        self.arm();
        let refused = self.publish_until_failure(&broker).await;
        if !refused.is_empty() {
            assert_eq!(broker.failure().unwrap().kind(), Kind::Unavailable);
            let again = self.request();
            assert_eq!(broker.publish_batch(again, Atomicity::All, None).await.unwrap_err().kind(), Kind::Unavailable);
        }
        // Exactly the acknowledged events are still readable.
        assert_eq!(self.stored(&broker).await, self.promised.concat());
        broker.close().await;
        drop(broker);
        self.disk = self.disk.power_cut(self.chance.below(u64::MAX));
        let broker = self.open().await;
        let stored = self.stored(&broker).await;
        if stored.len() > self.promised.concat().len() {
            self.promised.push(refused);
        }
        assert_eq!(stored, self.promised.concat());
        self.trace.push(format!("{} stored", stored.len()));
        broker.close().await;
    }
}

async fn trace(seed: u64, segment_bytes: u64) -> Vec<String> {
    let mut run = FaultRun::new(seed, segment_bytes);
    for _ in 0..FAULTS_PER_SEED {
        run.fail_and_recover().await;
    }
    run.trace
}

#[tokio::test]
async fn after_any_disk_fault_every_promise_is_kept_and_nothing_half_is_there() {
    for seed in 0..SEEDS {
        // Small segments, so that faults also hit rolling and sealing.
        trace(seed, 3000).await;
    }
}

#[tokio::test]
async fn a_seed_run_twice_gives_the_same_trace() {
    // One large segment: sealing runs on another thread, and the scheduling of threads is not deterministic.
    assert_eq!(trace(7, 1 << 30).await, trace(7, 1 << 30).await);
}

/// Freeing space needs a little space: the reserve is kept for that, and no other write may use it.
#[tokio::test]
async fn a_full_disk_takes_no_events_but_can_be_trimmed_until_it_does() {
    // One segment: the background thread would recreate the reserve at once, but has nothing to do before the first
    // trim.
    let mut run = FaultRun::new(3, 1 << 30);
    run.reserve_bytes = 64 * 1024;
    let broker = run.open().await;
    for _ in 0..6 {
        let request = run.request();
        broker.publish_batch(request, Atomicity::All, None).await.unwrap();
    }
    run.disk.fail(DiskOperation::Write, 1, DiskFault::Full);
    let request = run.request();
    let refused = broker.publish_batch(request.clone(), Atomicity::All, None).await.unwrap().remove(0).unwrap_err();
    assert!(refused.kind() == Kind::Unavailable && refused.detail().contains("disk is full"), "{}", refused.detail());
    assert!(broker.failure().is_none(), "nothing of the request was written");
    assert!(run.disk.names().contains(&"reserve".to_owned()), "the reserve is only for operations that free space");
    run.disk.fail(DiskOperation::Write, 1, DiskFault::Full);
    for topic in ["a", "b"] {
        let trim = TrimRequest { through: Some(Sequence(3)), ..TrimRequest::default() };
        assert_eq!(broker.trim_topic(&topic_id(topic), trim).await.unwrap().count, 3);
    }
    // The background thread checks the free space and recreates the reserve.
    while !run.disk.names().contains(&"reserve".to_owned()) {
        tokio::task::yield_now().await;
    }
    loop {
        match broker.publish_batch(request.clone(), Atomicity::All, None).await.unwrap().remove(0) {
            Ok(_) => break,
            Err(error) => assert!(error.detail().contains("disk is full"), "{}", error.detail()),
        }
    }
}
