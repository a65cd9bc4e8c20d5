//! Flipped bits and missing files: detected, reported with file and offset, never served.

use crate::support::*;
use contract::Position;
use log::testing::NO_LIMIT;
use log::testing::fault_disk::FaultDisk;
use log::{Log, LogError, Record, RecordQuery};

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
        let repair = repair(&disk);
        assert_eq!((repair.findings.len(), repair.lost_positions, repair.kept.len()), (1, vec![], 1));
        assert_eq!(all(&open(&disk, TINY)).await, records, "frames have checksums of their own: nothing is lost");
    }
}

/// One segment of twelve batches that still grows: its file, its records, and where they begin.
async fn growing() -> (FaultDisk, String, Vec<Vec<Record>>, Vec<usize>) {
    let disk = FaultDisk::new();
    let log = open(&disk, HUGE);
    let batches = batches(4, 12);
    fill(&log, &batches).await;
    drop(log);
    let (file, starts) = (files(&disk, ".log")[0].clone(), frame_starts(&batches.concat()));
    (disk, file, batches, starts)
}

#[tokio::test]
async fn a_damaged_header_before_later_batches_refuses_to_open_and_nothing_is_changed() {
    let (disk, file, batches, starts) = growing().await;
    let records = batches.concat();
    let before_last = records.len() - batches.last().unwrap().len();
    for (hit, start) in starts.iter().enumerate().take(before_last) {
        let disk = disk.copy();
        flip(&disk, &file, (start + 21) * 8);
        let bytes = disk.bytes(&file);
        assert_eq!(damage(try_open(&disk, HUGE)), (file.clone(), *start as u64), "record {hit}");
        assert_eq!(check(&disk).damages[0].offset, *start as u64);
        assert!(disk.bytes(&file) == bytes, "record {hit}: nothing is cut");

        let repair = repair(&disk);
        let lost = records[hit].header.position;
        assert_eq!((repair.lost_positions, repair.lost), (vec![(lost, lost)], vec![]), "record {hit}");
        let log = open(&disk, HUGE);
        let left = [&records[..hit], &records[hit + 1..]].concat();
        assert_eq!(all(&log).await, left, "record {hit}: one header, one record");
        assert_eq!(tail(&log), records.len() as u64);
    }
}

/// Its header is intact, so it keeps its place; only reads of it fail.
#[tokio::test]
async fn a_bad_body_before_later_batches_spoils_only_that_record() {
    let (disk, file, batches, starts) = growing().await;
    let records = batches.concat();
    let before_last = records.len() - batches.last().unwrap().len();
    let with_body = (0..before_last).filter(|hit| !records[*hit].body.is_empty());
    for hit in with_body {
        let disk = disk.copy();
        flip(&disk, &file, (starts[hit + 1] - 1) * 8);
        assert_eq!(check(&disk).damages.len(), 1);
        let log = open(&disk, HUGE);
        assert_eq!(log.cuts(), []);
        for (number, record) in records.iter().enumerate() {
            let read = at(&log, record.header.position.get()).await;
            match number == hit {
                true => assert_eq!(damage(read), (file.clone(), starts[hit] as u64), "record {hit}"),
                false => assert_eq!(read.unwrap(), std::slice::from_ref(record), "record {hit}"),
            }
        }
        drop(log);
        let repair = repair(&disk);
        assert_eq!(repair.lost, [records[hit].header], "record {hit}: what is lost is known by its header");
        assert_eq!(all(&open(&disk, HUGE)).await, [&records[..hit], &records[hit + 1..]].concat(), "record {hit}");
    }
}

/// Nothing after the last batch shows whether it was acknowledged, so it is torn, unless that is known from elsewhere.
#[tokio::test]
async fn damage_in_the_very_last_batch_counts_as_torn_unless_it_is_known_to_be_acknowledged() {
    let (disk, file, batches, starts) = growing().await;
    let records = batches.concat();
    let last = records.len() - 1;
    let first_of_batch = records.len() - batches.last().unwrap().len();
    for (at, is_header) in [(starts[last] + 21, true), (starts[last + 1] - 1, records[last].body.is_empty())] {
        let damaged = disk.copy();
        flip(&damaged, &file, at * 8);
        let bytes = damaged.bytes(&file).unwrap();

        // Unknown: cut off, and copied to `cut/`.
        let torn = damaged.copy();
        let report = check(&torn);
        assert_eq!((report.damages, report.torn.map(|torn| torn.offset)), (vec![], Some(starts[last] as u64)));
        let log = open(&torn, HUGE);
        assert_eq!(log.cuts().len(), 1);
        assert_eq!(all(&log).await, records[..first_of_batch]);
        drop(log);
        let kept = files(&torn, "").into_iter().find(|name| name.starts_with("torn.")).unwrap();
        assert!(torn.bytes(&kept).unwrap() == bytes[starts[first_of_batch]..], "what was cut is kept aside");

        // Known: it is damage, and nothing is cut off.
        let known = records.len() as u64;
        assert_eq!(verify_knowing(&damaged, known).damages.len(), 1);
        match is_header {
            true => assert_eq!(damage(try_open_knowing(&damaged, HUGE, known)), (file.clone(), starts[last] as u64)),
            false => assert_eq!(all(&try_open_knowing(&damaged, HUGE, known).unwrap()).await, records[..last]),
        }
        assert!(damaged.bytes(&file) == Some(bytes), "nothing is cut");
        let repair = repair_knowing(&damaged, known);
        let position = records[last].header.position;
        assert_eq!(repair.lost_positions, [(position, position)]);
        let log = try_open_knowing(&damaged, HUGE, known).unwrap();
        assert_eq!(all(&log).await, records[..last], "the rest of the batch is saved");
        assert_eq!(tail(&log), known, "its position is taken");
    }
}

/// As when the file of the newest segment is deleted, or is replaced by an older copy.
#[tokio::test]
async fn a_log_that_ends_before_what_was_acknowledged_is_refused() {
    let (disk, file, batches, _) = growing().await;
    let known = batches.concat().len() as u64 + 3;
    assert!(matches!(try_open_knowing(&disk, HUGE, known), Err(LogError::Damaged(_))));
    assert_eq!(verify_knowing(&disk, known).damages.len(), 1);
    let repair = repair_knowing(&disk, known);
    assert_eq!(repair.lost_positions, [(Position(known - 2), Position(known))]);
    let log = try_open_knowing(&disk, HUGE, known).unwrap();
    assert_eq!((all(&log).await, tail(&log)), (batches.concat(), known));
    drop(log);
    log::file::Disk::remove(&disk, &file).unwrap();
    assert!(matches!(try_open_knowing(&disk, HUGE, known), Err(LogError::Damaged(_))), "not even a file is left");
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
        let repair = repair(&disk);
        let lost = (inside[0].header.position, inside.last().unwrap().header.position);
        assert_eq!((repair.findings.len(), repair.lost_positions), (1, vec![lost]));
        let left: Vec<_> = records.iter().filter(|record| !inside.contains(record)).cloned().collect();
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

/// Headers are used without their bodies, so with a lost index one bad body affects only its record.
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
    let headers = log.headers(log::ReadRange::All(contract::Position::ZERO), NO_LIMIT).await.unwrap();
    assert_eq!(headers, records.iter().map(|record| record.header).collect::<Vec<_>>());
    // A record with a bad header cannot be read.
    flip(&disk, &file, (starts[long] + 20) * 8);
    let headers = log.headers(log::ReadRange::All(contract::Position::ZERO), NO_LIMIT).await.unwrap();
    assert!(headers.len() < records.len());
    let before = contract::Position(inside[long].header.position.get() - 1);
    assert_eq!(damage(log.headers(log::ReadRange::All(before), NO_LIMIT).await), (file, starts[long] as u64));
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
    let repair = repair(&disk);
    assert_eq!(repair.lost_positions, [(inside[last].header.position, inside[last].header.position)]);
    let left: Vec<_> = records.iter().filter(|record| *record != &inside[last]).cloned().collect();
    assert_eq!(all(&open(&disk, TINY)).await, left);
}

#[tokio::test]
async fn damaged_indexes_are_rebuilt_and_never_believed() {
    let (disk, records) = sealed().await;
    for file in &files(&disk, ".idx")[..3] {
        let good = disk.bytes(file).unwrap();
        for bit in (0..good.len() * 8).step_by(good.len() * 8 / 60) {
            let disk = disk.copy();
            flip(&disk, file, bit);
            // The head is written last, so a bad head means an unfinished index.
            assert_eq!(check(&disk).damages.len(), usize::from(bit / 8 >= 4096), "bit {bit}");
            let log = open(&disk, TINY);
            for record in &records {
                let header = record.header;
                if let Some(mark) = header.facets.and_then(|facets| facets.aggregate) {
                    let range =
                        log::ReadRange::Aggregate(mark.key, contract::AggregateSequence(mark.sequence.get() - 1));
                    assert!(log.read(range, NO_LIMIT).await.unwrap()[0] == *record, "bit {bit}");
                }
                assert_eq!(at(&log, header.position.get()).await.unwrap(), std::slice::from_ref(record));
                let range = log::ReadRange::Topic(header.topic, contract::Sequence(header.sequence.get() - 1));
                assert_eq!(log.read(range, NO_LIMIT).await.unwrap()[0], *record, "bit {bit}");
                if header.id != 0 {
                    assert_eq!(log.find(RecordQuery::Id(header.id)).await.unwrap(), Some(header), "bit {bit}");
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
