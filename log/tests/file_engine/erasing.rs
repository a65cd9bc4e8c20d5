//! Erasing: removed records' bytes are gone from every file, whatever else is in their segments.

use crate::support::*;
use log::file::{FileLog, FileLogOptions};
use log::testing::fault_disk::{DiskFault, DiskOperation, FaultDisk};
use log::testing::{RecordNumbering, RecordSetters, in_time};
use log::{Log, Record};
use std::sync::Arc;
use std::time::Duration;

const MARKER: &[u8] = b"erase-this-marker";
/// Records of topic 1, of which all but the last two are removed.
const EVENTS: u64 = 12;

/// Records of topic 1, whose removed ones carry the marker, between longer ones of topic 2, as entries lie between events.
fn mixed() -> Vec<Record> {
    let mut numbering = RecordNumbering::default();
    let mut records = Vec::new();
    for number in 1..=EVENTS {
        let body = if number <= EVENTS - 2 { MARKER.to_vec() } else { b"kept".to_vec() };
        records.push(numbering.event(1, 7).body(body));
        records.push(numbering.event(2, 8).body(vec![7; 300]));
    }
    records
}

fn is_marked(disk: &FaultDisk) -> bool {
    let holds = |file: &String| disk.bytes(file).unwrap().windows(MARKER.len()).any(|bytes| bytes == MARKER);
    disk.names().iter().any(holds)
}

fn wall() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

fn kept() -> Vec<Record> {
    let gone = |record: &Record| record.header.topic.0 == 1 && record.header.sequence.get() <= EVENTS - 2;
    mixed().into_iter().filter(|record| !gone(record)).collect()
}

async fn filled(segment_bytes: u64) -> (FaultDisk, FileLog) {
    let disk = FaultDisk::new();
    let log = open(&disk, segment_bytes);
    for record in mixed() {
        append(&log, &[record]).await.unwrap();
    }
    remove(&log, 1, EVENTS - 2).await.unwrap();
    log.settle().await;
    (disk, log)
}

#[tokio::test]
async fn what_was_removed_is_erased_on_demand_from_sealed_segments_and_the_growing_one() {
    for segment_bytes in [TINY, HUGE] {
        let (disk, log) = filled(segment_bytes).await;
        assert!(is_marked(&disk), "too little was removed for a rewrite");
        disk.put("torn.00000000000000000001.0000000064", MARKER.to_vec());
        log.erase().await.unwrap();
        assert!(!is_marked(&disk), "{:?}", disk.names());
        assert_eq!(all(&log).await, kept());
        // A second time changes nothing.
        let names = disk.names();
        log.erase().await.unwrap();
        assert_eq!(disk.names(), names);
        let next = RecordNumbering::behind(&mixed()).event(1, 7);
        append(&log, std::slice::from_ref(&next)).await.unwrap();
        drop(log);
        assert_eq!(check(&disk).damages, []);
        assert_eq!(all(&open(&disk, segment_bytes)).await, [kept(), vec![next]].concat());
    }
}

#[tokio::test]
async fn an_erasure_that_a_power_cut_ends_is_done_again() {
    let (whole, log) = filled(HUGE).await;
    drop(log);
    let mut cut_short = 0;
    for changes in 0.. {
        let disk = whole.copy();
        let log = open(&disk, TINY);
        log.settle().await;
        disk.power_off_after(changes);
        let is_done = log.erase().await.is_ok();
        drop(log);
        for seed in 0..4 {
            let after = disk.power_cut(changes * 4 + seed);
            assert_eq!(check(&after).damages, [], "after {changes} changes");
            assert!(!is_done || !is_marked(&after), "what was answered as erased is back after {changes} changes");
            let log = open(&after, TINY);
            assert_eq!(all(&log).await, kept(), "after {changes} changes");
            log.erase().await.unwrap();
            assert!(!is_marked(&after), "after {changes} changes");
        }
        if is_done {
            break;
        }
        cut_short += 1;
    }
    assert!(cut_short > 5, "{cut_short}");
}

#[tokio::test]
async fn a_failed_erasure_is_answered_and_neither_stops_appends_nor_leaves_anything_the_next_time() {
    for operation in [DiskOperation::Write, DiskOperation::Sync, DiskOperation::Remove] {
        for nth in 1..=3 {
            let (disk, log) = filled(HUGE).await;
            disk.fail(operation, nth, DiskFault::Error(std::io::ErrorKind::Other));
            let _ = log.erase().await;
            let next = RecordNumbering::behind(&mixed()).event(1, 7);
            append(&log, std::slice::from_ref(&next)).await.unwrap();
            log.erase().await.unwrap();
            assert!(!is_marked(&disk), "{operation:?} {nth}");
            assert_eq!(all(&log).await, [kept(), vec![next]].concat());
            drop(log);
            assert_eq!(check(&disk).damages, []);
        }
    }
}

#[tokio::test]
async fn what_an_older_version_removed_is_erased_in_time_and_the_time_survives_a_restart() {
    // Without an allowed time the marks have version 1, as before.
    let (disk, log) = filled(HUGE).await;
    drop(log);
    assert_eq!(disk.bytes("trimmed.1").unwrap()[8], 1);
    let within =
        |millis| FileLogOptions { erase_within: Some(Duration::from_millis(millis)), now: wall, ..options(HUGE) };
    drop(FileLog::open(Arc::new(disk.clone()), within(u64::MAX >> 12)).unwrap());
    let noted = disk.bytes("trimmed.2").unwrap();
    assert_eq!(noted[8], 3);
    drop(FileLog::open(Arc::new(disk.clone()), within(u64::MAX >> 12)).unwrap());
    assert_eq!(disk.bytes("trimmed.2"), Some(noted), "the first time counts");
    assert!(is_marked(&disk));
    let log = FileLog::open(Arc::new(disk.clone()), within(1)).unwrap();
    in_time(async {
        while is_marked(&disk) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(all(&log).await, kept());
}
