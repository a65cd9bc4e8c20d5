//! Failing writes and syncs: nothing more is acknowledged, everything acknowledged is kept.

use crate::support::*;
use log::file::{FileLog, FileLogOptions, FolderLock, SpaceLimits};
use log::testing::fault_disk::{DiskFault, DiskOperation, FaultDisk};
use log::testing::{RecordNumbering, SeededRandom};
use log::{Log, LogError, Record, StorageRoom};
use std::io::ErrorKind;
use std::sync::Arc;

#[test]
fn a_second_opener_is_locked_out() {
    let folder = tempfile::tempdir().unwrap();
    let first = FileLog::open_folder(folder.path(), FileLogOptions::default()).unwrap();
    assert!(matches!(
        FileLog::open_folder(folder.path(), FileLogOptions::default()),
        Err(LogError::Locked(path)) if path == folder.path()
    ));
    assert!(matches!(log::file::verify(folder.path(), contract::Position::ZERO, |_| {}), Err(LogError::Locked(_))));
    drop(first);
    drop(FileLog::open_folder(folder.path(), FileLogOptions::default()).unwrap());
    drop(FolderLock::acquire(folder.path()).unwrap());
}

#[test]
fn checking_a_folder_that_is_not_there_does_not_make_one() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("mistyped");
    assert!(matches!(log::file::verify(&missing, contract::Position::ZERO, |_| {}), Err(LogError::Io(_))));
    assert!(!missing.exists());
}

#[tokio::test]
async fn a_folder_is_made_with_those_above_it_and_keeps_what_is_put_into_it() {
    let folder = tempfile::tempdir().unwrap();
    let nested = folder.path().join("a/b c/d");
    let batches = batches(10, 6);
    let log = FileLog::open_folder(&nested, options(TINY)).unwrap();
    fill(&log, &batches).await;
    let segment = &log.segments(log::TopicNumber(1)).await.unwrap()[0];
    assert_eq!(segment.location, "file://log/00000000000000000001.1.log", "no path of this machine");
    drop(log);
    let report = log::file::verify(&nested, contract::Position::ZERO, |_| {}).unwrap();
    assert_eq!((report.records, report.damages), (batches.concat().len() as u64, vec![]));
    assert_eq!(all(&FileLog::open_folder(&nested, options(TINY)).unwrap()).await, batches.concat());
}

/// Faults of an append: its write, its sync, and the steps of beginning a segment before it.
fn faults() -> Vec<(DiskOperation, u64, DiskFault)> {
    let mut faults = Vec::new();
    for nth in 1..=3 {
        faults.push((DiskOperation::Write, nth, DiskFault::Full));
        faults.push((DiskOperation::Write, nth, DiskFault::Error(ErrorKind::Other)));
        for bytes in [0, 1, 63, 64, 100, 511, 512, 700] {
            faults.push((DiskOperation::Write, nth, DiskFault::Short(bytes)));
        }
        faults.push((DiskOperation::Sync, nth, DiskFault::Error(ErrorKind::Other)));
    }
    faults
}

#[tokio::test]
async fn after_a_failed_append_reading_goes_on_and_reopening_shows_whole_batches() {
    let mut poisonings = 0;
    for (segment_bytes, filled) in [(HUGE, 0), (HUGE, 5), (TINY, 5)] {
        for (operation, nth, fault) in faults() {
            let disk = FaultDisk::new();
            let log = open(&disk, segment_bytes);
            let batches = batches(6, 9);
            fill(&log, &batches[..filled]).await;
            disk.fail(operation, nth, fault);
            let mut acked = filled;
            let context = format!("{operation:?} {nth} {fault:?} after {filled}, segments of {segment_bytes}");
            let cause = loop {
                match append(&log, &batches[acked]).await {
                    Ok(()) => acked += 1,
                    Err(LogError::Poisoned(cause)) => break Some(cause),
                    Err(other) => panic!("{context}: {other:?}"),
                }
                if acked == batches.len() {
                    break None;
                }
            };
            if let Some(cause) = cause {
                poisonings += 1;
                assert!(
                    matches!(append(&log, &batches[acked]).await, Err(LogError::Poisoned(again)) if again.kind() == cause.kind())
                );
                assert!(
                    matches!(log.append(contract::Position::ZERO, vec![]).await, Err(LogError::Poisoned(_))),
                    "{context}"
                );
            }
            assert_eq!(all(&log).await, batches[..acked].concat(), "{context}");
            assert_eq!(tail(&log), batches[..acked].concat().len() as u64, "{context}");
            drop(log);
            let log = open(&disk, segment_bytes);
            let shown = all(&log).await;
            let whole = (acked..=(acked + 1).min(batches.len())).any(|count| shown == batches[..count].concat());
            assert!(whole, "{context}: {acked} answered, {} records shown", shown.len());
            // What was shown once is durable, whatever the failed sync left behind; so are later appends.
            assert_survives_power_cuts(&disk, segment_bytes, &shown, &context).await;
            let next = batch(&mut RecordNumbering::behind(&shown), &mut SeededRandom::new(1), 2);
            append(&log, &next).await.unwrap();
            assert_survives_power_cuts(&disk, segment_bytes, &[shown, next].concat(), &context).await;
        }
    }
    assert!(poisonings > 70, "only {poisonings} faults struck");
}

async fn assert_survives_power_cuts(disk: &FaultDisk, segment_bytes: u64, shown: &[Record], context: &str) {
    for seed in 0..4 {
        let cut = disk.power_cut(seed);
        assert_eq!(all(&open(&cut, segment_bytes)).await, shown, "{context}, seed {seed}");
        assert_eq!(check(&cut).damages, []);
    }
}

#[tokio::test]
async fn a_failed_removal_changes_nothing_and_can_be_tried_again() {
    for (operation, fault) in [
        (DiskOperation::Write, DiskFault::Full),
        (DiskOperation::Write, DiskFault::Short(10)),
        (DiskOperation::Sync, DiskFault::Error(ErrorKind::Other)),
    ] {
        let disk = FaultDisk::new();
        let log = open(&disk, TINY);
        let batches = batches(7, 12);
        fill(&log, &batches).await;
        let records = batches.concat();
        disk.fail(operation, 1, fault);
        assert!(matches!(remove(&log, 1, 5).await, Err(LogError::Io(_))), "{operation:?} {fault:?}");
        assert_eq!(all(&log).await, records);
        drop(log);
        let log = open(&disk, TINY);
        assert_eq!(all(&log).await, records);
        remove(&log, 1, 5).await.unwrap();
        let left: Vec<_> =
            records.iter().filter(|it| it.header.topic.0 != 1 || it.header.sequence.get() > 5).cloned().collect();
        assert_eq!(all(&log).await, left);
        drop(log);
        assert_eq!(all(&open(&disk, TINY)).await, left);
    }
}

#[tokio::test]
async fn an_index_that_cannot_be_written_is_written_later() {
    let disk = FaultDisk::new();
    let log = open(&disk, TINY);
    // The task of opening must be done: a late one would hit the fault, and the next one would write the index.
    log.settle().await;
    let batches = batches(8, 12);
    let mut filled = 0;
    while disk.bytes("00000000000000000001.1.log").is_none_or(|bytes| (bytes.len() as u64) < TINY) {
        append(&log, &batches[filled]).await.unwrap();
        filled += 1;
    }
    // The next append begins a segment: head, batch, and then the index of the full one.
    disk.fail(DiskOperation::Write, 3, DiskFault::Full);
    append(&log, &batches[filled]).await.unwrap();
    log.settle().await;
    filled += 1;
    assert_eq!((files(&disk, ".log").len(), files(&disk, ".idx").len()), (2, 0));
    assert_eq!(all(&log).await, batches[..filled].concat());
    fill(&log, &batches[filled..]).await;
    assert_eq!(all(&log).await, batches.concat());
    drop(log);
    assert_eq!(files(&disk, ".idx").len(), files(&disk, ".log").len() - 1);
}

/// A disk, or a quota, on which nothing fits any more: every write of the next appends finds it full, until something is
/// removed. The reserve was given up for whatever was appended first, and not at all within a quota.
#[tokio::test]
async fn freeing_space_has_space_of_its_own_on_a_full_disk_and_within_a_quota() {
    for fault in [DiskFault::Full, DiskFault::Error(ErrorKind::QuotaExceeded)] {
        freeing_space_has_space_of_its_own(fault).await;
    }
}

async fn freeing_space_has_space_of_its_own(full: DiskFault) {
    let disk = FaultDisk::new();
    let options = |segment_bytes| FileLogOptions { reserve_bytes: 4096, ..options(segment_bytes) };
    let log = FileLog::open(Arc::new(disk.clone()), options(HUGE)).unwrap();
    log.settle().await;
    let batches = batches(9, 12);
    fill(&log, &batches[..10]).await;
    assert_eq!(disk.bytes("reserve").map(|bytes| bytes.len()), Some(4096));
    assert!(!log.is_full());
    // The next writes find no room, and are truncated.
    disk.fail(DiskOperation::Write, 1, full);
    assert!(matches!(append(&log, &batches[10]).await, Err(LogError::Full(_))));
    assert!(disk.bytes("reserve").is_some(), "the reserve is for what frees space");
    // What is written to a full log frees space: it finds no room, and then the room that the reserve had.
    disk.fail(DiskOperation::Write, 1, full);
    append(&log, &batches[10]).await.unwrap();
    assert!(disk.bytes("reserve").is_none(), "the reserve is given up");
    disk.fail(DiskOperation::Write, 1, full);
    assert!(matches!(append(&log, &batches[11]).await, Err(LogError::Full(_))), "it can be given up once");
    assert!(log.is_full(), "and the log says so");
    drop(log);
    let log = FileLog::open(Arc::new(disk.clone()), options(TINY)).unwrap();
    assert!(!log.is_full(), "there is room again");
    assert_eq!(all(&log).await, batches[..11].concat());
    // Removing: the marks find no room either.
    log.settle().await;
    disk.fail(DiskOperation::Write, 1, full);
    remove(&log, 1, 5).await.unwrap();
    log.settle().await;
    assert!(!log.is_full() && disk.bytes("reserve").is_some(), "what was freed makes room for it");
    drop(log);
    assert_eq!(check(&disk).damages, []);
}

/// Erasing is maintenance: it waits for room, and must not take the room that freeing space needs.
#[tokio::test]
async fn an_erasure_that_finds_the_disk_full_leaves_the_reserve_alone() {
    let disk = FaultDisk::new();
    let options = FileLogOptions { reserve_bytes: 4096, ..options(HUGE) };
    let log = FileLog::open(Arc::new(disk.clone()), options).unwrap();
    let batches = batches(9, 12);
    fill(&log, &batches[..10]).await;
    remove(&log, 1, 3).await.unwrap();
    log.settle().await;
    // The head of the segment after the one that is sealed.
    disk.fail(DiskOperation::Write, 1, DiskFault::Full);
    assert!(matches!(log.erase().await, Err(LogError::Io(cause)) if cause.kind() == ErrorKind::StorageFull));
    assert!(!log.is_full() && disk.bytes("reserve").is_some(), "events are stored as before");
    fill(&log, &batches[10..]).await;
    log.erase().await.unwrap();
    assert_eq!(files(&disk, ".log").len(), 2, "and it is made good later");
}

/// The free space is set, not used: this tests how the log reacts.
#[tokio::test]
async fn a_volume_that_runs_low_is_noticed_at_the_next_roll_and_told_until_there_is_room_again() {
    const MIB: u64 = 1024 * 1024;
    let disk = FaultDisk::new();
    disk.set_space(900 * MIB, 1000 * MIB);
    let space_limits = SpaceLimits { warn_bytes: 80 * MIB, refuse_bytes: 40 * MIB };
    let options = FileLogOptions { space_limits, ..options(TINY) };
    let log = FileLog::open(Arc::new(disk.clone()), options).unwrap();
    assert_eq!((log.room(), log.storage_warning()), (StorageRoom::Ample, None));
    let mut batches = batches(9, 80).into_iter();
    append(&log, &batches.next().unwrap()).await.unwrap();
    for (free, room, told) in [
        (79, StorageRoom::Low, Some("only 79 MiB of 1000 MiB are free on its volume; below 40 MiB no events")),
        (39, StorageRoom::Short, Some("only 39 MiB of 1000 MiB are free on its volume, so no events are stored")),
        (46, StorageRoom::Low, Some("only 46 MiB")),
        (90, StorageRoom::Ample, None),
    ] {
        disk.set_space(free * MIB, 1000 * MIB);
        let segments = files(&disk, ".log").len();
        // The caller decides what is appended in the meantime.
        while files(&disk, ".log").len() == segments {
            append(&log, &batches.next().expect("a roll within 80 batches")).await.unwrap();
        }
        assert_eq!(log.room(), room, "{free}");
        let warning = log.storage_warning().unwrap_or_default();
        assert!(warning.starts_with(told.unwrap_or_default()) && warning.is_empty() == told.is_none(), "{warning}");
        assert!(!log.is_full());
    }
}

#[tokio::test]
async fn a_growing_segment_gives_its_space_back_too_while_room_is_short() {
    for (free, segments_left) in [(900, 1), (40, 0)] {
        let disk = FaultDisk::new();
        disk.set_space(free, 1000);
        let space_limits = SpaceLimits { warn_bytes: 1000, refuse_bytes: 1000 };
        let log = FileLog::open(Arc::new(disk.clone()), FileLogOptions { space_limits, ..options(HUGE) }).unwrap();
        let batches = batches(9, 12);
        fill(&log, &batches).await;
        let first = files(&disk, ".log");
        for topic in 0..3 {
            remove(&log, topic, 1000).await.unwrap();
        }
        log.settle().await;
        let left = first.iter().filter(|file| disk.bytes(file).is_some()).count();
        assert_eq!(left, segments_left, "{free} free");
        assert_eq!(tail(&log), batches.concat().len() as u64);
    }
}

#[tokio::test]
async fn a_volume_that_runs_low_is_noticed_without_an_append_too() {
    let disk = FaultDisk::new();
    disk.set_space(500, 1000);
    let space_limits = SpaceLimits { warn_bytes: 1000, refuse_bytes: 1000 };
    let log = FileLog::open(Arc::new(disk.clone()), FileLogOptions { space_limits, ..options(HUGE) }).unwrap();
    assert_eq!(log.room(), StorageRoom::Ample);
    disk.set_space(49, 1000);
    log.settle().await;
    assert_eq!(log.room(), StorageRoom::Short);
    disk.set_space(500, 1000);
    log.settle().await;
    assert_eq!(log.room(), StorageRoom::Ample);
}

#[tokio::test]
async fn a_reserve_that_finds_no_room_is_no_reason_not_to_open() {
    let disk = FaultDisk::new();
    disk.fail(DiskOperation::Write, 1, DiskFault::Short(100));
    let log = FileLog::open(Arc::new(disk.clone()), FileLogOptions { reserve_bytes: 4096, ..options(TINY) }).unwrap();
    log.settle().await;
    fill(&log, &batches(9, 2)).await;
    assert_eq!(all(&log).await, batches(9, 2).concat());
}

#[tokio::test]
async fn an_append_that_finds_no_descriptor_has_written_nothing_and_is_made_again() {
    // The first write begins a segment, the second appends to it.
    for nth in 1..=2 {
        let disk = FaultDisk::new();
        let log = open(&disk, TINY);
        let batches = batches(6, 9);
        fill(&log, &batches[..3]).await;
        disk.fail(DiskOperation::Write, nth, DiskFault::OutOfFiles);
        for batch in &batches[3..] {
            match append(&log, batch).await {
                Ok(()) => {}
                Err(LogError::Unavailable(cause)) => {
                    assert!(log::file::is_out_of_files(&cause));
                    append(&log, batch).await.unwrap();
                }
                Err(other) => panic!("write {nth}: {other:?}"),
            }
        }
        assert_eq!(all(&log).await, batches.concat());
        drop(log);
        assert_eq!(all(&open(&disk, TINY)).await, batches.concat());
    }
}
