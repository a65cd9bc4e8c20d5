//! A repaired folder is consistent: no fact exists only in the checkpoint, and a half-repaired folder does not open.

use super::{EVENTS, contents, event, filled, flip, frames, open, repair, sequences, spoil, text};
use crate::cli::run;
use crate::scenario::{copy_folder, topic_id, type_id};
use contract::api::*;
use contract::{
    Completion, Distribution, FencingToken, NewClaim, NewConsumer, NewEventType, NewProjection, Offset, Sequence,
};
use event_broker::{Broker, RepairLosses, acknowledged_state, pending_repair};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// Flips one bit in the body of the last fact of a kind.
fn spoil_fact(folder: &Path, kind: &str) {
    let is_it = |frame: &super::RecordFrame| frame.topic == 0 && frame.body.contains(&format!("\"fact\":\"{kind}\""));
    let fact = frames(folder).into_iter().rfind(is_it).unwrap();
    flip(&fact.file, fact.offset + fact.header + 5);
}

#[tokio::test]
async fn what_lost_facts_had_come_to_is_in_the_log_after_a_repair() {
    let folder = filled().await;
    let broker = open(folder.path()).await;
    broker.put_projection("view", NewProjection::of_topic(topic_id("default"))).await.unwrap();
    broker.trim(&topic_id("default"), Sequence(EVENTS as u64)).await.unwrap();
    broker.close().await;
    drop(broker);
    for kind in ["projectionPut", "topicTrimmed"] {
        spoil_fact(folder.path(), kind);
    }
    repair(folder.path());
    // The state after an upgrade or after restoring a backup.
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    let broker = open(folder.path()).await;
    broker.projection("view").await.expect("an acknowledged projection must be kept");
    let next = broker.publish(event(EVENTS + 1), None).await.unwrap().event;
    assert_eq!(u128::from(next.sequence.0), EVENTS + 1, "a sequence is never reused");
}

#[tokio::test]
async fn a_log_whose_repair_was_cut_short_does_not_open_until_it_was_done() {
    let folder = filled().await;
    let broker = open(folder.path()).await;
    broker.put_projection("view", NewProjection::of_log()).await.unwrap();
    broker.close().await;
    drop(broker);
    // The last two events of the topic, but not the last records of the log.
    for id in [EVENTS - 1, EVENTS] {
        spoil(folder.path(), id);
    }
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    // The files are repaired, and the process is killed before the log records what was lost.
    let known = acknowledged_state(folder.path()).unwrap();
    let foretold = log::file::repair(folder.path(), &known, true).unwrap();
    let pending = pending_repair(folder.path());
    fs::create_dir_all(pending.parent().unwrap()).unwrap();
    fs::write(&pending, serde_json::to_vec(&RepairLosses::of(&foretold)).unwrap()).unwrap();
    log::file::repair(folder.path(), &known, false).unwrap();

    let refusal = Broker::open(super::config(folder.path()))
        .await
        .err()
        .expect("a half-repaired folder must not open")
        .to_string();
    assert!(refusal.contains("interrupted"), "{refusal}");
    assert!(refusal.contains(&format!("repair --data {} --dry-run", text(folder.path()))), "{refusal}");
    let copy = folder.path().join("../copy-of-half-a-repair");
    run(&["backup", "--data", text(folder.path()), "--output", text(&copy)]).expect(1);
    run(&["repair", "--data", text(folder.path())]).expect(0);
    assert!(!pending.exists());
    let broker = open(folder.path()).await;
    assert_eq!(sequences(&broker).await, (1..=EVENTS - 2).collect::<Vec<_>>());
    let next = broker.publish(event(EVENTS + 1), None).await.unwrap().event;
    assert_eq!(u128::from(next.sequence.0), EVENTS + 1, "a sequence is never reused");
}

#[tokio::test]
async fn a_checkpoint_that_the_system_does_not_let_us_read_is_not_taken_for_none() {
    let folder = filled().await;
    // The last batch looks torn to a program that does not know that it was acknowledged.
    spoil(folder.path(), EVENTS);
    let manifest = folder.path().join("state/manifest.json");
    fs::remove_file(&manifest).unwrap();
    std::os::unix::fs::symlink(&manifest, &manifest).unwrap();
    let before = contents(folder.path());
    assert!(Broker::open(super::config(folder.path())).await.is_err());
    assert!(contents(folder.path()) == before, "nothing is cut without proof");
    run(&["repair", "--data", text(folder.path())]).expect(1);
    assert!(contents(folder.path()) == before);
}

/// Counts the entries of one kind in the folder's log.
fn facts(folder: &Path, kind: &str) -> usize {
    let is_it = |frame: &super::RecordFrame| frame.topic == 0 && frame.body.contains(&format!("\"fact\":\"{kind}\""));
    frames(folder).iter().filter(|frame| is_it(frame)).count()
}

/// A broker on the folder that may reclaim everything at once.
async fn reclaiming(folder: &Path) -> Broker {
    let mut config = super::config(folder);
    config.maintenance.reclaim_after_secs = 0;
    Broker::open(config).await.unwrap()
}

/// One damaged bit in the only snapshot, and `state/` missing or older than it: every `repair` failed and did further
/// damage.
#[tokio::test]
async fn a_log_whose_snapshot_of_reclaimed_entries_is_lost_is_repaired_with_what_is_left() {
    for keeps_old_state in [false, true] {
        let folder = filled().await;
        let broker = reclaiming(folder.path()).await;
        broker.put_projection("view", NewProjection::of_log()).await.unwrap();
        broker.close().await;
        drop(broker);
        let (state, old_state) = (folder.path().join("state"), folder.path().join("old-state"));
        fs::create_dir(&old_state).unwrap();
        copy_folder(&state, &old_state).unwrap();
        let broker = reclaiming(folder.path()).await;
        broker.reclaim_now().await.unwrap();
        broker.close().await;
        drop(broker);
        spoil_fact(folder.path(), "snapshotPart");
        fs::remove_dir_all(&state).unwrap();
        if keeps_old_state {
            fs::rename(&old_state, &state).unwrap();
        } else {
            fs::remove_dir_all(&old_state).unwrap();
        }
        let done = repair(folder.path());
        assert!(done["lostFactsThrough"].as_u64().is_some_and(|through| through > 0), "{done}");
        // The result of the repair is in the log, not only in the checkpoint.
        fs::remove_dir_all(&state).unwrap();
        let broker = open(folder.path()).await;
        assert_eq!(sequences(&broker).await, (1..=EVENTS).collect::<Vec<_>>());
        assert_eq!(broker.projection("view").await.is_ok(), keeps_old_state, "an older checkpoint contains it");
        if !keeps_old_state {
            let placed = NewEventType::new(type_id("placed").parse().unwrap());
            broker.register_event_type(placed).await.unwrap();
        }
        let next = broker.publish(event(EVENTS + 1), None).await.unwrap().event;
        assert_eq!(u128::from(next.sequence.0), EVENTS + 1, "a sequence is never reused");
        broker.close().await;
    }
}

/// A damaged bit in a snapshot that a newer checkpoint covers does not prevent opening.
#[tokio::test]
async fn entries_are_not_reclaimed_before_a_checkpoint_covers_them() {
    let folder = filled().await;
    let broker = reclaiming(folder.path()).await;
    broker.reclaim_now().await.unwrap();
    // The folder as a crash leaves it.
    let crashed = TempDir::new().unwrap();
    copy_folder(folder.path(), crashed.path()).unwrap();
    spoil_fact(crashed.path(), "snapshotPart");
    let opened = open(crashed.path()).await;
    assert_eq!(sequences(&opened).await, (1..=EVENTS).collect::<Vec<_>>());
    opened.close().await;
    broker.close().await;
}

/// Each attempt to reclaim appended the whole small state again before it reached the damage.
#[tokio::test]
async fn a_damaged_entry_does_not_let_every_attempt_to_reclaim_append_a_snapshot() {
    let folder = filled().await;
    spoil_fact(folder.path(), "eventTypeRegistered");
    let broker = reclaiming(folder.path()).await;
    for _ in 0..3 {
        let refused = broker.reclaim_now().await.expect_err("it cannot be read");
        assert!(refused.detail().contains("event-broker repair"), "{refused}");
    }
    broker.close().await;
    drop(broker);
    assert_eq!(facts(folder.path(), "snapshotBegan"), 0);
    repair(folder.path());
    let broker = reclaiming(folder.path()).await;
    broker.reclaim_now().await.unwrap();
    assert_eq!(sequences(&broker).await, (1..=EVENTS).collect::<Vec<_>>());
    broker.close().await;
}

async fn claimed(broker: &Broker, sequence: u64) -> (String, FencingToken) {
    let wanted = NewClaim::at("h", topic_id("default"), Sequence(sequence));
    let claim = broker.claim(wanted, None).await.unwrap().claim.unwrap();
    (claim.id, claim.token)
}

/// The claim of an event that was cut out stayed open, although nobody could claim the event again, and held the offset of
/// its group for ever.
#[tokio::test]
async fn the_claim_of_an_event_that_is_cut_out_does_not_hold_the_offset_back() {
    for keeps_state in [true, false] {
        let folder = filled().await;
        let broker = open(folder.path()).await;
        claimed(&broker, 20).await;
        broker.close().await;
        drop(broker);
        spoil(folder.path(), 20);
        repair(folder.path());
        if !keeps_state {
            fs::remove_dir_all(folder.path().join("state")).unwrap();
        }
        let broker = open(folder.path()).await;
        assert!(broker.open_claims("h", None, 100).await.unwrap().items.is_empty());
        let (id, token) = claimed(&broker, 25).await;
        let completion = Completion { token, events: Vec::new(), offset: Some(Offset(25)) };
        let done = broker.complete_claim(&id, completion, None).await.unwrap();
        assert_eq!((done.committed_offset, done.open_sequence), (Some(Offset(25)), None));
        broker.close().await;
    }
}

#[tokio::test]
async fn a_shared_group_passes_an_event_that_is_cut_out_while_a_member_has_it() {
    let folder = filled().await;
    let broker = open(folder.path()).await;
    let mut member = NewConsumer::new("g", topic_id("default"));
    member.distribution = Some(Distribution::Shared);
    let member = broker.create_consumer(member).await.unwrap().id;
    let first = broker.read_as(member, Offset(0).into(), 1).await.unwrap();
    assert_eq!(first.items[0].sequence, Sequence(1));
    broker.close().await;
    drop(broker);
    spoil(folder.path(), 1);
    repair(folder.path());
    let broker = open(folder.path()).await;
    let page = broker.read_as(member, Offset(0).into(), 100).await.unwrap();
    assert_eq!(page.next_offset, Offset(1));
    // The next one of the same aggregate.
    assert!(page.items.iter().any(|event| event.sequence == Sequence(8)));
    broker.close().await;
}
