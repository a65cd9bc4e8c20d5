//! Merging small neighbouring segments, and what an interrupted merge leaves behind.

use crate::support::*;
use contract::Sequence;
use log::testing::fault_disk::FaultDisk;
use log::testing::{NO_LIMIT, RecordNumbering, RecordSetters};
use log::{Log, ReadRange, Record, RecordQuery, TopicNumber};

/// A log of about twenty small segments, and its records.
async fn many_segments() -> (FaultDisk, Vec<Record>) {
    let (disk, batches) = (FaultDisk::new(), batches(21, 24));
    let log = open(&disk, TINY);
    fill(&log, &batches).await;
    drop(log);
    assert!(files(&disk, ".log").len() > 16, "{:?}", disk.names());
    (disk, batches.concat())
}

async fn holds(disk: &FaultDisk, records: &[Record], context: &str) {
    assert_eq!(check(disk).damages, [], "{context}");
    let log = open(disk, HUGE);
    assert_eq!(all(&log).await, records, "{context}");
    log.settle().await;
    assert_eq!(all(&log).await, records, "{context}, once the background is done");
    for record in records {
        let found = log.find(RecordQuery::Id(record.header.id)).await.unwrap();
        let expected = (record.header.id != 0).then_some(record.header);
        assert_eq!(found, expected, "{context}");
    }
    for topic in 0..3 {
        let of_topic = |record: &&Record| record.header.topic == TopicNumber(topic);
        let expected: Vec<_> = records.iter().filter(of_topic).cloned().collect();
        // All of topic 1 may be removed; then a read of it is an error.
        let Some(first) = expected.first() else { continue };
        let removed = first.header.sequence.get() - 1;
        let range = ReadRange::Topic(TopicNumber(topic), Sequence(removed));
        assert_eq!(log.read(range, NO_LIMIT).await.unwrap(), expected, "{context}");
    }
    drop(log);
    assert_eq!(check(disk).damages, [], "{context}, after opening");
}

#[tokio::test]
async fn small_neighbours_become_one_segment_and_everything_is_found_in_it() {
    let (disk, records) = many_segments().await;
    let before = files(&disk, ".log").len();
    let log = open(&disk, HUGE);
    log.settle().await;
    let after = files(&disk, ".log");
    assert!(after.len() + 7 <= before && after.iter().any(|name| name.ends_with(".2.log")), "{after:?}");
    let next = RecordNumbering::behind(&records).event(1, 7);
    append(&log, std::slice::from_ref(&next)).await.unwrap();
    drop(log);
    holds(&disk, &[records, vec![next]].concat(), "merged").await;
}

/// Each erasure sealed the growing segment, and nothing ever joined the small ones: 303 files after 150 erasures.
#[tokio::test]
async fn erasures_beside_a_topic_that_keeps_its_events_do_not_accumulate_files() {
    let (disk, mut numbering) = (FaultDisk::new(), RecordNumbering::default());
    let log = open(&disk, HUGE);
    for erased in 1..=150 {
        let batch = vec![numbering.event(1, 7).body("erased"), numbering.event(2, 8).body("kept")];
        append(&log, &batch).await.unwrap();
        remove(&log, 1, erased).await.unwrap();
        log.erase().await.unwrap();
        log.settle().await;
    }
    assert!(files(&disk, ".log").len() <= 60, "{:?}", files(&disk, ".log"));
    let kept = all(&log).await;
    assert_eq!(kept.len(), 150);
    drop(log);
    holds(&disk, &kept, "erased").await;
}

/// A segment that covers the next ones may stand beside them, and beside its own older generation.
#[tokio::test]
async fn a_merge_that_a_power_cut_ends_is_finished_or_done_again() {
    let (whole, records) = many_segments().await;
    let mut cut_short = 0;
    for changes in 0.. {
        let disk = whole.copy();
        disk.power_off_after(changes);
        let Ok(log) = try_open(&disk, HUGE) else {
            cut_short += 1;
            continue;
        };
        log.settle().await;
        let is_done = disk.changes() < changes;
        drop(log);
        for seed in 0..4 {
            let context = format!("power off after {changes} changes, seed {seed}");
            holds(&disk.power_cut(changes * 4 + seed), &records, &context).await;
        }
        if is_done {
            break;
        }
        cut_short += 1;
    }
    assert!(cut_short > 20, "{cut_short}");
}

#[tokio::test]
async fn a_damaged_record_keeps_its_segment_from_being_merged_and_nothing_is_lost() {
    let (disk, records) = many_segments().await;
    let second = files(&disk, ".log")[1].clone();
    let starts = frame_starts(&records);
    assert!(starts.len() > 2);
    flip(&disk, &second, (64 + 60) * 8);
    let before = disk.bytes(&second);
    let log = open(&disk, HUGE);
    log.settle().await;
    assert_eq!(disk.bytes(&second), before, "the file with the damage stays");
    assert!(files(&disk, ".2.log").len() == 1, "the segments behind it are merged");
}

/// `:trim {before}` failed for ever on one damaged event, though only its header is needed.
#[tokio::test]
async fn a_time_is_found_and_segments_are_listed_where_a_body_is_damaged() {
    let disk = FaultDisk::new();
    let log = open(&disk, HUGE);
    let mut numbering = RecordNumbering::default();
    let batch: Vec<_> = (1..=5).map(|at| numbering.event(1, 7).time(at * 1000).body("a body of some length")).collect();
    for record in &batch {
        append(&log, std::slice::from_ref(record)).await.unwrap();
    }
    drop(log);
    let starts = frame_starts(&batch);
    flip(&disk, "00000000000000000001.1.log", (starts[3] - 1) * 8);
    let log = open(&disk, HUGE);
    let found = log.find(RecordQuery::Time(Some(TopicNumber(1)), 3000)).await.unwrap();
    assert_eq!(found, Some(batch[2].header));
    remove(&log, 1, 2).await.unwrap();
    assert_eq!(log.segments(TopicNumber(1)).await.unwrap()[0].start_sequence, Sequence(3));
}
