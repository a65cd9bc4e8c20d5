//! Opening after a crash in the last append.

use crate::support::*;
use log::Record;
use log::testing::fault_disk::FaultDisk;
use log::testing::{RecordNumbering, SeededRandom};

struct Cut {
    disk: FaultDisk,
    file: String,
    bytes: Vec<u8>,
    batches: Vec<Vec<Record>>,
    /// Where each batch ends in the file.
    ends: Vec<usize>,
}

async fn one_segment() -> Cut {
    let disk = FaultDisk::new();
    let log = open(&disk, HUGE);
    let batches = batches(1, 12);
    let file = "00000000000000000001.1.log".to_owned();
    let mut ends = Vec::new();
    for batch in &batches {
        append(&log, batch).await.unwrap();
        ends.push(disk.bytes(&file).unwrap().len());
    }
    drop(log);
    let bytes = disk.bytes(&file).unwrap();
    Cut { disk, file, bytes, batches, ends }
}

impl Cut {
    /// Opens the log with these bytes: it must have exactly the batches that end by `end`, and accept the next.
    async fn shows_what_is_whole(&self, bytes: Vec<u8>, end: usize) {
        let disk = self.disk.copy();
        disk.put(&self.file, bytes);
        assert_eq!(check(&disk).damages, [], "cut at {end}");
        let whole = self.ends.iter().filter(|at| **at <= end).count();
        let expected: Vec<_> = self.batches[..whole].concat();
        let log = open(&disk, HUGE);
        assert_eq!(all(&log).await, expected, "cut at {end}");
        let next = batch(&mut RecordNumbering::behind(&expected), &mut SeededRandom::new(9), 2);
        let next: Vec<_> = next.into_iter().map(|record| log::testing::RecordSetters::time(record, i64::MAX)).collect();
        append(&log, &next).await.unwrap();
        drop(log);
        let log = open(&disk, HUGE);
        assert_eq!(log.cuts(), [], "cut at {end}");
        assert_eq!(all(&log).await, [expected, next].concat(), "cut at {end}");
        drop(log);
        assert_eq!(check(&disk).damages, []);
    }
}

#[tokio::test]
async fn every_prefix_of_the_last_segment_opens_with_its_whole_batches() {
    let cut = one_segment().await;
    assert!(cut.bytes.len() > 5000);
    for end in cut.bytes.len() - 4096..=cut.bytes.len() {
        cut.shows_what_is_whole(cut.bytes[..end].to_vec(), end).await;
    }
}

#[tokio::test]
async fn zeros_behind_a_prefix_change_nothing() {
    let cut = one_segment().await;
    for end in (64..=cut.bytes.len()).rev().step_by(13) {
        let mut bytes = cut.bytes[..end].to_vec();
        // A cut inside zeros of the batch itself is a longer prefix.
        let end = end + cut.bytes[end..].iter().take_while(|byte| **byte == 0).count();
        bytes.resize(cut.bytes.len() + 2000, 0);
        cut.shows_what_is_whole(bytes, end).await;
    }
}

/// The end of a batch was stored, its beginning was not.
#[tokio::test]
async fn a_last_batch_without_its_beginning_is_cut() {
    let cut = one_segment().await;
    let start = cut.ends[cut.ends.len() - 2];
    for lost in (1..cut.bytes.len() - start).step_by(37) {
        let mut bytes = cut.bytes.clone();
        bytes[start..start + lost].fill(0);
        cut.shows_what_is_whole(bytes, start).await;
    }
}

#[tokio::test]
async fn a_segment_that_was_only_just_begun_is_begun_again() {
    let disk = FaultDisk::new();
    let log = open(&disk, TINY);
    let batches = batches(2, 10);
    fill(&log, &batches[..9]).await;
    drop(log);
    let segments = files(&disk, ".log");
    let last = segments.last().unwrap();
    let bytes = disk.bytes(last).unwrap();
    let first_in_last: u64 = last.split('.').next().unwrap().parse().unwrap();
    let before: Vec<_> = batches.concat().into_iter().filter(|it| it.header.position.get() < first_in_last).collect();
    for kept in 0..=64 {
        for padding in [0, 100] {
            let disk = disk.copy();
            disk.put(last, [&bytes[..kept], &vec![0; padding]].concat());
            assert_eq!(check(&disk).damages, []);
            let log = open(&disk, TINY);
            assert_eq!(all(&log).await, before, "{kept} bytes of the head");
            let next: Vec<_> = batches.concat().into_iter().skip(before.len()).collect();
            append(&log, &next).await.unwrap();
            assert_eq!(all(&log).await, batches.concat());
            drop(log);
            assert_eq!(all(&open(&disk, TINY)).await, batches.concat());
        }
    }
}

#[tokio::test]
async fn a_torn_append_is_reported_and_cut_once() {
    let cut = one_segment().await;
    let disk = cut.disk.copy();
    disk.put(&cut.file, cut.bytes[..cut.bytes.len() - 1].to_vec());
    assert_eq!(open(&disk, HUGE).cuts().len(), 1);
    assert_eq!(open(&disk, HUGE).cuts(), []);
}
