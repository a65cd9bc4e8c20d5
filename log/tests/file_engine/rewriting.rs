//! Freeing space: dropping, rewriting, generations and marks.

use crate::support::*;
use log::testing::fault_disk::{DiskFault, DiskOperation, FaultDisk};
use log::testing::{RecordNumbering, RecordSetters, SeededRandom};
use log::{Log, Record, RecordQuery};

/// Twelve segments; topic 1 in all of them, topic 2 in the even ones.
async fn two_topics() -> (FaultDisk, Vec<Record>) {
    let disk = FaultDisk::new();
    let log = open(&disk, TINY);
    let (mut numbering, mut random) = (RecordNumbering::default(), SeededRandom::new(1));
    let mut records = Vec::new();
    for segment in 0..12 {
        let topics: &[u32] = if segment % 2 == 0 { &[1, 2, 1, 1] } else { &[1, 1] };
        let batch: Vec<_> = topics
            .iter()
            .map(|topic| numbering.event(*topic, 7 + u128::from(*topic)).body(random.bytes(300)))
            .collect();
        append(&log, &batch).await.unwrap();
        records.extend(batch);
    }
    log.settle().await;
    drop(log);
    assert_eq!(files(&disk, ".1.log").len(), 12);
    (disk, records)
}

fn without(records: &[Record], topic: u32, through: u64) -> Vec<Record> {
    let gone = |record: &&Record| record.header.topic.0 == topic && record.header.sequence.get() <= through;
    records.iter().filter(|record| !gone(record)).cloned().collect()
}

fn bytes(disk: &FaultDisk) -> usize {
    files(disk, ".log").iter().map(|file| disk.bytes(file).unwrap().len()).sum()
}

#[tokio::test]
async fn removed_segments_are_dropped_and_half_empty_ones_rewritten() {
    let (disk, records) = two_topics().await;
    let before = bytes(&disk);
    let log = open(&disk, TINY);
    let last = records.iter().filter(|record| record.header.topic.0 == 1).count() as u64 - 2;
    remove(&log, 1, last).await.unwrap();
    log.settle().await;
    let left = without(&records, 1, last);
    assert_eq!(all(&log).await, left);
    // Eleven sealed: five of topic 1 alone are gone, six hold one record of topic 2; the growing one is not touched.
    assert_eq!((files(&disk, ".1.log").len(), files(&disk, ".2.log").len()), (1, 6));
    assert_eq!(files(&disk, ".idx").len(), 6);
    assert!(bytes(&disk) < before / 2);
    for record in &records {
        let found = log.find(RecordQuery::Id(record.header.id)).await.unwrap();
        assert_eq!(found, left.contains(record).then_some(record.header));
    }
    drop(log);
    assert_eq!(check(&disk).damages, []);
    let log = open(&disk, TINY);
    assert_eq!(all(&log).await, left);
    assert_eq!(tail(&log), records.len() as u64);
    let mut numbering = RecordNumbering::behind(&records);
    let next = vec![numbering.event(1, 8), numbering.event(2, 9)];
    append(&log, &next).await.unwrap();
    assert_eq!(all(&log).await, [left, next].concat());
}

#[tokio::test]
async fn a_rewritten_segment_is_rewritten_again_and_dropped_in_the_end() {
    let (disk, records) = two_topics().await;
    let log = open(&disk, TINY);
    remove(&log, 1, 3).await.unwrap();
    log.settle().await;
    assert_eq!(files(&disk, ".2.log"), ["00000000000000000001.2.log"]);
    remove(&log, 2, 1).await.unwrap();
    log.settle().await;
    assert_eq!(files(&disk, ".log").len(), 11, "the first is empty now");
    assert_eq!(all(&log).await, without(&without(&records, 1, 3), 2, 1));
    drop(log);
    assert_eq!(check(&disk).damages, []);
    assert_eq!(all(&open(&disk, TINY)).await, without(&without(&records, 1, 3), 2, 1));
}

#[tokio::test]
async fn of_two_generations_the_lower_counts() {
    let (before, records) = two_topics().await;
    let after = before.copy();
    let log = open(&after, TINY);
    remove(&log, 1, 3).await.unwrap();
    log.settle().await;
    drop(log);
    let (old, new) = ("00000000000000000001.1.log", "00000000000000000001.2.log");
    assert!(after.bytes(old).is_none());
    let (whole, rewritten) = (before.bytes(old).unwrap(), after.bytes(new).unwrap());
    let torn = rewritten[..rewritten.len() / 2].to_vec();
    for (higher, what) in
        [(rewritten, "finished"), (torn, "torn"), (vec![0; 100], "nothing but zeros"), (vec![], "empty")]
    {
        let disk = after.copy();
        disk.put(old, whole.clone());
        disk.put(new, higher);
        assert_eq!(check(&disk).damages, [], "{what}");
        let log = open(&disk, TINY);
        log.settle().await;
        assert_eq!(all(&log).await, without(&records, 1, 3), "{what}");
        drop(log);
        assert!(disk.bytes(old).is_none() && disk.bytes(new).is_some(), "{what}: rewritten again");
        assert_eq!(check(&disk).damages, [], "{what}");
    }
}

#[tokio::test]
async fn the_highest_valid_marks_count() {
    let (disk, records) = two_topics().await;
    let log = open(&disk, TINY);
    remove(&log, 2, 1).await.unwrap();
    let first = disk.bytes("trimmed.1").unwrap();
    remove(&log, 2, 2).await.unwrap();
    let second = disk.bytes("trimmed.2").unwrap();
    assert!(disk.bytes("trimmed.1").is_none());
    log.settle().await;
    drop(log);
    let disk = disk.copy();
    let torn = second[..second.len() - 3].to_vec();
    let empty = Vec::new();
    for (marks, removed, what) in [
        (vec![("trimmed.1", &first), ("trimmed.2", &second)], Some(2), "both"),
        (vec![("trimmed.1", &first), ("trimmed.2", &torn)], Some(1), "the second is torn"),
        (vec![("trimmed.1", &first), ("trimmed.2", &empty)], Some(1), "the second is empty"),
        (vec![("trimmed.1", &torn)], Some(0), "the first ever is torn"),
        (vec![], Some(0), "none yet"),
        (vec![("trimmed.2", &torn)], None, "a later one is torn and none is before it"),
    ] {
        let disk = disk.copy();
        let _ = log::file::Disk::remove(&disk, "trimmed.2");
        marks.into_iter().for_each(|(name, bytes)| disk.put(name, bytes.clone()));
        match removed {
            Some(removed) => assert_eq!(all(&open(&disk, TINY)).await, without(&records, 2, removed), "{what}"),
            None => {
                assert_eq!(damage(try_open(&disk, TINY)), ("trimmed.2".to_owned(), 0), "{what}");
                assert_eq!(check(&disk).damages.len(), 1, "{what}");
                assert_eq!(repair(&disk).findings.len(), 1, "{what}");
                assert_eq!(all(&open(&disk, TINY)).await, records, "{what}");
            }
        }
    }
}

/// What is not kept need not be readable, but what is kept must be.
#[tokio::test]
async fn damage_stops_a_rewrite_only_in_what_is_kept() {
    let (disk, records) = two_topics().await;
    let file = "00000000000000000001.1.log";
    let starts = frame_starts(&records[..4]);
    for (hit, is_rewritten) in [(0, true), (1, false), (2, true)] {
        let disk = disk.copy();
        flip(&disk, file, (starts[hit] + 30) * 8);
        let log = open(&disk, TINY);
        remove(&log, 1, 3).await.unwrap();
        log.settle().await;
        assert_eq!(disk.bytes("00000000000000000001.2.log").is_some(), is_rewritten, "record {hit}");
        assert_eq!(disk.bytes(file).is_none(), is_rewritten, "record {hit}");
        let after = at(&log, 5).await.unwrap();
        assert_eq!(after, records[4..5]);
    }
}

/// On a full disk it would occupy the last bytes until the next task.
#[tokio::test]
async fn a_rewrite_that_fails_leaves_no_half_file() {
    for (operation, nth) in
        [(DiskOperation::Write, 1), (DiskOperation::Write, 2), (DiskOperation::Sync, 1), (DiskOperation::Sync, 2)]
    {
        let (disk, records) = two_topics().await;
        let log = open(&disk, TINY);
        log.settle().await;
        // The first write and its two syncs are the marks'.
        let before = if operation == DiskOperation::Write { 1 } else { 2 };
        disk.fail(operation, before + nth, DiskFault::Full);
        remove(&log, 1, 3).await.unwrap();
        log.settle().await;
        let context = format!("{operation:?} {nth}");
        assert_eq!(disk.bytes("00000000000000000001.2.log"), None, "{context}");
        assert_eq!(all(&log).await, without(&records, 1, 3), "{context}");
        remove(&log, 1, 4).await.unwrap();
        log.settle().await;
        assert!(disk.bytes("00000000000000000001.1.log").is_none(), "{context}: the next task does it");
    }
}
