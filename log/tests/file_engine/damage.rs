//! Flipped bits and missing files: found, named, never served.

use crate::support::*;
use log::testing::NO_LIMIT;
use log::testing::fault_disk::FaultDisk;
use log::{Find, Log, Record};

/// A log of several sealed segments, with all of its records.
async fn sealed() -> (FaultDisk, Vec<Record>) {
    let disk = FaultDisk::new();
    let log = open(&disk, TINY);
    let batches = batches(3, 20);
    fill(&log, &batches).await;
    drop(log);
    assert_eq!(check(&disk).damages, []);
    (disk, batches.concat())
}

/// The records of one segment file.
fn records_in(disk: &FaultDisk, records: &[Record], file: &str) -> Vec<Record> {
    let base = |name: &String| name.split('.').next().unwrap().parse::<u64>().unwrap();
    let next = files(disk, ".log").iter().map(base).find(|next| *next > base(&file.to_owned())).unwrap_or(u64::MAX);
    let within = base(&file.to_owned())..next;
    records.iter().filter(|record| within.contains(&record.header.position.get())).cloned().collect()
}

#[tokio::test]
async fn a_flipped_bit_of_a_sealed_record_spoils_only_that_record() {
    let (disk, records) = sealed().await;
    let file = files(&disk, ".log")[2].clone();
    let inside = records_in(&disk, &records, &file);
    let starts = frame_starts(&inside);
    let length = disk.bytes(&file).unwrap().len();
    assert_eq!(*starts.last().unwrap(), length, "the test knows the format");
    for bit in (64 * 8..length * 8).step_by(41) {
        let disk = disk.copy();
        flip(&disk, &file, bit);
        let hit = starts.partition_point(|start| *start <= bit / 8) - 1;
        let expected = (file.clone(), starts[hit] as u64);
        let report = check(&disk);
        assert_eq!(report.damages.len(), 1, "bit {bit}: {:?}", report.damages);
        assert_eq!((report.damages[0].file.to_str().unwrap(), report.damages[0].offset), (&*expected.0, expected.1));

        let log = open(&disk, TINY);
        for record in &records {
            let read = at(&log, record.header.position.get()).await;
            if record == &inside[hit] {
                assert_eq!(damage(read), expected, "bit {bit}");
            } else {
                assert_eq!(read.unwrap(), std::slice::from_ref(record), "bit {bit}");
            }
        }
        let until = records.iter().position(|record| record == &inside[hit]).unwrap();
        assert_eq!(all(&log).await, records[..until], "a page ends before damage");
    }
}

#[tokio::test]
async fn a_flipped_bit_in_the_head_of_a_segment_refuses_to_open() {
    let (disk, records) = sealed().await;
    for file in &files(&disk, ".log") {
        let (disk, bit) = (disk.copy(), 200);
        flip(&disk, file, bit);
        assert_eq!(damage(try_open(&disk, TINY)), (file.clone(), 0));
        assert_eq!(check(&disk).damages[0].file.to_str(), Some(file.as_str()));
        let inside = records_in(&disk, &records, file);
        let log = open_repairing(&disk, TINY);
        let left: Vec<_> = records.iter().filter(|record| !inside.contains(record)).cloned().collect();
        assert_eq!(all(&log).await, left, "repair keeps everything else");
        drop(log);
        assert_eq!(all(&open(&disk, TINY)).await, left, "and is done once");
    }
}

#[tokio::test]
async fn damage_before_later_batches_refuses_to_open_and_can_be_cut() {
    let disk = FaultDisk::new();
    let log = open(&disk, HUGE);
    let batches = batches(4, 12);
    fill(&log, &batches).await;
    drop(log);
    let file = files(&disk, ".log")[0].clone();
    let records = batches.concat();
    let starts = frame_starts(&records);
    let last_batch_at = starts[records.len() - batches.last().unwrap().len()];
    for bit in (64 * 8..last_batch_at * 8).step_by(211) {
        let disk = disk.copy();
        flip(&disk, &file, bit);
        let hit = starts.partition_point(|start| *start <= bit / 8) - 1;
        assert_eq!(damage(try_open(&disk, HUGE)), (file.clone(), starts[hit] as u64), "bit {bit}");
        assert_eq!(check(&disk).damages[0].offset, starts[hit] as u64);

        let log = open_repairing(&disk, HUGE);
        let batch = |record: &Record| batches.iter().position(|batch| batch.contains(record)).unwrap();
        let left: Vec<_> = batches[..batch(&records[hit])].concat();
        assert_eq!(all(&log).await, left, "bit {bit}");
        assert_eq!(log.cuts()[0].offset, starts[hit] as u64);
        drop(log);
        assert_eq!(check(&disk).damages, []);
    }
}

/// Nothing behind the last batch tells whether it was ever answered, so it counts as torn. Written down in format.md.
#[tokio::test]
async fn damage_in_the_very_last_batch_counts_as_torn() {
    let disk = FaultDisk::new();
    let log = open(&disk, HUGE);
    let batches = batches(5, 5);
    fill(&log, &batches).await;
    drop(log);
    let file = files(&disk, ".log")[0].clone();
    flip(&disk, &file, disk.bytes(&file).unwrap().len() * 8 - 4);
    let log = open(&disk, HUGE);
    assert_eq!(log.cuts().len(), 1);
    assert_eq!(all(&log).await, batches[..4].concat());
}

#[tokio::test]
async fn a_missing_segment_is_noticed() {
    let (disk, records) = sealed().await;
    let names = files(&disk, ".log");
    for (missing, next) in names.iter().zip(&names[1..]) {
        let disk = disk.copy();
        let inside = records_in(&disk, &records, missing);
        log::file::Disk::remove(&disk, missing).unwrap();
        assert_eq!(damage(try_open(&disk, TINY)), (next.clone(), 0));
        assert_eq!(check(&disk).damages[0].file.to_str(), Some(next.as_str()));
        let log = open_repairing(&disk, TINY);
        let left: Vec<_> = records.iter().filter(|record| !inside.contains(record)).cloned().collect();
        assert_eq!(all(&log).await, left);
        drop(log);
        assert_eq!(all(&open(&disk, TINY)).await, left);
    }
}

#[tokio::test]
async fn a_shortened_sealed_segment_is_noticed() {
    let (disk, records) = sealed().await;
    let file = files(&disk, ".log")[1].clone();
    let whole = disk.bytes(&file).unwrap();
    for kept in frame_starts(&records_in(&disk, &records, &file)) {
        if kept < whole.len() {
            let with_index = disk.copy();
            with_index.put(&file, whole[..kept].to_vec());
            assert!(!check(&with_index).damages.is_empty(), "{kept} bytes kept");
            assert!(try_open(&with_index, TINY).is_err(), "{kept} bytes kept");
            log::file::Disk::remove(&with_index, &file.replace(".log", ".idx")).unwrap();
            assert!(try_open(&with_index, TINY).is_err(), "{kept} bytes kept, no index");
        }
    }
}

/// Headers are trusted without their bodies, so a lost index does not make one bad body everybody's problem.
#[tokio::test]
async fn a_bad_body_in_a_segment_without_index_still_spoils_only_itself() {
    let (disk, records) = sealed().await;
    let file = files(&disk, ".log")[1].clone();
    let inside = records_in(&disk, &records, &file);
    let starts = frame_starts(&inside);
    flip(&disk, &file, (starts[1] - 1) * 8);
    log::file::Disk::remove(&disk, &file.replace(".log", ".idx")).unwrap();
    let log = open(&disk, TINY);
    for record in &records {
        let read = at(&log, record.header.position.get()).await;
        if record == &inside[0] {
            assert_eq!(damage(read), (file.clone(), starts[0] as u64));
        } else {
            assert_eq!(read.unwrap(), std::slice::from_ref(record));
        }
    }
}

#[tokio::test]
async fn the_header_of_a_record_with_a_bad_body_can_still_be_had() {
    let (disk, records) = sealed().await;
    let file = files(&disk, ".log")[1].clone();
    let inside = records_in(&disk, &records, &file);
    let starts = frame_starts(&inside);
    let long = inside.iter().position(|record| !record.body.is_empty()).unwrap();
    flip(&disk, &file, (starts[long + 1] - 1) * 8);
    let log = open(&disk, TINY);
    assert!(all(&log).await.len() < records.len(), "readers of bodies stop there");
    let headers = log.headers(log::Range::All(contract::Position::ZERO), NO_LIMIT).await.unwrap();
    assert_eq!(headers, records.iter().map(|record| record.header).collect::<Vec<_>>());
    // A bad header cannot be had.
    flip(&disk, &file, (starts[long] + 20) * 8);
    let headers = log.headers(log::Range::All(contract::Position::ZERO), NO_LIMIT).await.unwrap();
    assert!(headers.len() < records.len());
    let before = contract::Position(inside[long].header.position.get() - 1);
    assert_eq!(damage(log.headers(log::Range::All(before), NO_LIMIT).await), (file, starts[long] as u64));
}

#[tokio::test]
async fn a_bad_header_in_a_segment_without_index_can_be_cut_out() {
    let (disk, records) = sealed().await;
    let file = files(&disk, ".log")[1].clone();
    let inside = records_in(&disk, &records, &file);
    let starts = frame_starts(&inside);
    let last = inside.len() - 1;
    flip(&disk, &file, (starts[last] + 20) * 8);
    log::file::Disk::remove(&disk, &file.replace(".log", ".idx")).unwrap();
    assert_eq!(damage(try_open(&disk, TINY)), (file.clone(), starts[last] as u64));
    let log = open_repairing(&disk, TINY);
    let left = all(&log).await;
    assert!(left.len() < records.len() && left.iter().all(|record| records.contains(record)));
    assert_eq!(left.last(), records.last(), "later segments stay");
    drop(log);
    let log = open(&disk, TINY);
    assert_eq!(all(&log).await, left);
    drop(log);
    let missed = check(&disk).damages;
    assert!(!missed.is_empty() && missed.iter().all(|damage| damage.reason.starts_with("sequence ")), "{missed:?}");
}

#[tokio::test]
async fn damaged_indexes_are_rebuilt_and_never_believed() {
    let (disk, records) = sealed().await;
    for file in &files(&disk, ".idx")[..3] {
        let good = disk.bytes(file).unwrap();
        for bit in (0..good.len() * 8).step_by(good.len() * 8 / 60) {
            let disk = disk.copy();
            flip(&disk, file, bit);
            // The head is written last, so a bad one is an index that was never finished.
            assert_eq!(check(&disk).damages.len(), usize::from(bit / 8 >= 4096), "bit {bit}");
            let log = open(&disk, TINY);
            for record in &records {
                let header = record.header;
                if let Some(mark) = header.facets.and_then(|facets| facets.aggregate) {
                    let range = log::Range::Aggregate(mark.key, contract::AggregateSequence(mark.sequence.get() - 1));
                    assert!(log.read(range, NO_LIMIT).await.unwrap()[0] == *record, "bit {bit}");
                }
                assert_eq!(at(&log, header.position.get()).await.unwrap(), std::slice::from_ref(record));
                let range = log::Range::Topic(header.topic, contract::Sequence(header.sequence.get() - 1));
                assert_eq!(log.read(range, NO_LIMIT).await.unwrap()[0], *record, "bit {bit}");
                if header.id != 0 {
                    assert_eq!(log.find(Find::Id(header.id)).await.unwrap(), Some(header), "bit {bit}");
                }
            }
            log.settle().await;
            drop(log);
            assert!(disk.bytes(file).as_ref() == Some(&good), "bit {bit}: the index is as it was");
        }
    }
}

#[tokio::test]
async fn missing_and_shortened_indexes_are_rebuilt() {
    let (disk, records) = sealed().await;
    let file = files(&disk, ".idx")[1].clone();
    let good = disk.bytes(&file).unwrap();
    for kept in [None, Some(0), Some(100), Some(4096), Some(good.len() - 1)] {
        let disk = disk.copy();
        match kept {
            None => log::file::Disk::remove(&disk, &file).unwrap(),
            Some(kept) => disk.put(&file, good[..kept].to_vec()),
        }
        let log = open(&disk, TINY);
        assert_eq!(all(&log).await, records);
        log.settle().await;
        drop(log);
        assert!(disk.bytes(&file).as_ref() == Some(&good), "{kept:?} kept");
    }
}
