//! What a repair leaves behind is whole: nothing of it is known to the checkpoint alone, and no half of it is opened.

use super::{EVENTS, contents, event, filled, flip, frames, open, repair, sequences, spoil, text};
use crate::cli::run;
use crate::scenario::topic_id;
use contract::{EventBroker, NewProjection, Sequence};
use event_broker::{Broker, RepairLosses, acknowledged_state, pending_repair};
use std::fs;
use std::path::Path;

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
    // As an upgrade does, or a restored backup.
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    let broker = open(folder.path()).await;
    broker.projection("view").await.expect("an acknowledged projection is still there");
    let next = broker.publish(event(EVENTS + 1), None).await.unwrap().event;
    assert_eq!(u128::from(next.sequence.0), EVENTS + 1, "no number is given twice");
}

#[tokio::test]
async fn a_log_whose_repair_was_cut_short_does_not_open_until_it_was_done() {
    let folder = filled().await;
    let broker = open(folder.path()).await;
    broker.put_projection("view", NewProjection::of_log()).await.unwrap();
    broker.close().await;
    drop(broker);
    // The last two of the topic, and not of the log.
    for id in [EVENTS - 1, EVENTS] {
        spoil(folder.path(), id);
    }
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    // The files are repaired, and the process is killed before the log says what was lost.
    let known = acknowledged_state(folder.path()).unwrap();
    let foretold = log::file::repair(folder.path(), &known, true).unwrap();
    let pending = pending_repair(folder.path());
    fs::create_dir_all(pending.parent().unwrap()).unwrap();
    fs::write(&pending, serde_json::to_vec(&RepairLosses::of(&foretold)).unwrap()).unwrap();
    log::file::repair(folder.path(), &known, false).unwrap();

    let refusal = Broker::open(super::config(folder.path())).await.err().expect("it does not open").to_string();
    assert!(refusal.contains("cut short"), "{refusal}");
    assert!(refusal.contains(&format!("repair --data {} --dry-run", text(folder.path()))), "{refusal}");
    let copy = folder.path().join("../copy-of-half-a-repair");
    run(&["backup", "--data", text(folder.path()), "--output", text(&copy)]).expect(1);
    run(&["repair", "--data", text(folder.path())]).expect(0);
    assert!(!pending.exists());
    let broker = open(folder.path()).await;
    assert_eq!(sequences(&broker).await, (1..=EVENTS - 2).collect::<Vec<_>>());
    let next = broker.publish(event(EVENTS + 1), None).await.unwrap().event;
    assert_eq!(u128::from(next.sequence.0), EVENTS + 1, "no number is given twice");
}

#[tokio::test]
async fn a_checkpoint_that_the_system_does_not_let_us_read_is_not_taken_for_none() {
    let folder = filled().await;
    // The last batch looks torn to whoever does not know that it was acknowledged.
    spoil(folder.path(), EVENTS);
    let manifest = folder.path().join("state/manifest.json");
    fs::remove_file(&manifest).unwrap();
    std::os::unix::fs::symlink(&manifest, &manifest).unwrap();
    let before = contents(folder.path());
    assert!(Broker::open(super::config(folder.path())).await.is_err());
    assert!(contents(folder.path()) == before, "nothing is cut on a guess");
    run(&["repair", "--data", text(folder.path())]).expect(1);
    assert!(contents(folder.path()) == before);
}
