//! Completing a claim with produced events and an offset, interrupted at any point: afterwards everything is stored, or
//! nothing.

use crate::scenario::{subject_type_id, topic_id, type_id};
use contract::api::*;
use contract::{Claim, ClaimAnswer, Completion, Kind, NewClaim, NewEvent, NewEventType, Offset, Sequence, TopicRead};
use event_broker::{Broker, Config, ManualClock, StorageConfig};
use log::file::{FileLog, FileLogOptions};
use log::testing::fault_disk::{DiskFault, DiskOperation, FaultDisk};
use serde_json::value::RawValue;
use std::io::ErrorKind;
use std::sync::Arc;
use uuid::Uuid;

async fn open(disk: &FaultDisk) -> Broker {
    let log = FileLog::open(Arc::new(disk.clone()), FileLogOptions::default()).unwrap();
    let clock = Arc::new(ManualClock::at(1_764_763_200_000));
    let config = Config { storage: StorageConfig::folder("unused"), ..Config::default() };
    let broker = Broker::on_log(config, Arc::new(log), None, clock).await.unwrap();
    broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    broker
}

fn event(id: u128) -> NewEvent {
    let data = RawValue::from_string(r#"{"n":1}"#.to_owned()).unwrap();
    let mut event = NewEvent::new(type_id("placed").parse().unwrap(), "test", data);
    (event.id, event.tenant) = (Some(Uuid::from_u128(id)), Some(Uuid::from_u128(1)));
    event.about(subject_type_id("order"), "o-1")
}

async fn claim(broker: &Broker) -> Option<Claim> {
    let outcome = broker.claim(NewClaim::at("billing", topic_id("default"), Sequence(1)), None).await.unwrap();
    assert!(outcome.claim.is_some() || outcome.outcome != ClaimAnswer::Claimed);
    outcome.claim
}

/// Which of the three are stored: events, offset, the finished claim.
async fn stored(broker: &Broker) -> [bool; 3] {
    let events = broker.read(TopicRead::all(topic_id("default"))).await.unwrap().items;
    let ids: Vec<_> = events.iter().map(|event| event.id.as_u128()).collect();
    assert!(ids == [1] || ids == [1, 2, 3], "a part of the events: {ids:?}");
    let offset = broker.consumer_group("billing").await.is_ok();
    let outcome = broker.claim(NewClaim::at("billing", topic_id("default"), Sequence(1)), None).await.unwrap();
    [ids.len() == 3, offset, outcome.outcome == ClaimAnswer::Done]
}

#[tokio::test]
async fn done_with_events_and_offset_is_whole_or_not_at_all_under_any_disk_fault() {
    let mut seen = [0, 0];
    for (operation, fault) in [
        (DiskOperation::Write, DiskFault::Error(ErrorKind::Other)),
        (DiskOperation::Write, DiskFault::Full),
        (DiskOperation::Write, DiskFault::Short(40)),
        (DiskOperation::Write, DiskFault::Short(400)),
        (DiskOperation::Write, DiskFault::Short(900)),
        (DiskOperation::Sync, DiskFault::Error(ErrorKind::Other)),
    ] {
        for seed in 0..20 {
            let disk = FaultDisk::new();
            let broker = open(&disk).await;
            broker.publish(event(1), None).await.unwrap();
            let held = claim(&broker).await.unwrap();
            disk.fail(operation, 1, fault);
            let completion =
                Completion { token: held.token, events: vec![event(2), event(3)], offset: Some(Offset(1)) };
            let refused = broker.complete_claim(&held.id, completion.clone(), None).await.unwrap_err();
            assert_eq!(refused.kind(), Kind::Unavailable);
            broker.close().await;
            // For seed 0 only the process crashes, and everything written is kept.
            let disk = if seed == 0 { disk.copy() } else { disk.power_cut(seed) };
            let broker = open(&disk).await;
            let there = stored(&broker).await;
            assert!(there == [true; 3] || there == [false; 3], "{operation:?} {fault:?} {seed}: {there:?}");
            seen[usize::from(there[0])] += 1;
            // In both cases, repeating the request stores everything, once.
            broker.complete_claim(&held.id, completion, None).await.unwrap();
            assert_eq!(stored(&broker).await, [true; 3], "{operation:?} {fault:?} {seed}");
            broker.close().await;
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "both outcomes must occur: {seen:?}");
}

/// The same with a real process that crashes in the middle of the append that finishes the claim.
#[cfg(feature = "crash-points")]
#[tokio::test]
async fn done_with_events_and_offset_is_whole_or_not_at_all_when_the_process_dies() {
    use crate::http::{CREATED, Server, TOPIC};
    use serde_json::json;
    // A new server's earlier appends: its default topic, the type, the event, the claim.
    const BEFORE: u32 = 4;
    for (point, kept) in [
        ("append.before_write", Some(false)),
        ("append.after_write", None),
        ("append.after_sync", Some(true)),
        ("append.after_visible", Some(true)),
    ] {
        let crash_at = format!("{point}:{}", BEFORE + 1);
        let server = Server::start_with(&[("EVENT_BROKER_CRASH_AT", &crash_at)], &[]);
        server.register(CREATED).await;
        assert_eq!(server.post("/v1/events", &crate::http::event(CREATED, "a")).await.0, 201);
        let wanted = json!({"handler": "billing", "topic": TOPIC, "sequence": 1, "lease": "PT1H"});
        let held = server.post("/v1/claims", &wanted).await.1["claim"].clone();
        let produced = [crate::http::event(CREATED, "b"), crate::http::event(CREATED, "c")];
        let completion = json!({"token": held["token"], "events": produced, "offset": 1});
        let path = format!("/v1/claims/{}:done", held["id"].as_str().unwrap());
        let unanswered = server.request(reqwest::Method::POST, &path).json(&completion).send().await;
        assert!(unanswered.is_err(), "{point} was not reached");
        let (_, folder) = server.wait();
        let server = Server::start_in(folder, &[]);
        let tail = server.get(&format!("/v1/events?topic={TOPIC}&offset=0")).await.1["tail"].clone();
        let offset = server.get("/v1/consumer-groups/billing").await.0;
        let outcome = server.post("/v1/claims", &wanted).await.1["outcome"].clone();
        let there = [tail == 3, offset == 200, outcome == "done"];
        assert!(there == [true; 3] || there == [false; 3] && tail == 1, "{point}: {there:?}");
        assert!(kept.is_none_or(|kept| kept == there[0]), "{point}: {there:?}");
    }
}
