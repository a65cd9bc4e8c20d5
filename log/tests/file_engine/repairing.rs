//! Repairing: whatever the damage, the log opens again, and has the intact records under their old numbers.

use crate::support::*;
use contract::Sequence;
use log::file::{AcknowledgedState, Disk, repair_disk};
use log::testing::fault_disk::FaultDisk;
use log::testing::{NO_LIMIT, SeededRandom};
use log::{Log, LogError, ReadRange, Record, TopicNumber};
use std::sync::Arc;

/// A log with sealed segments, rewritten ones, dropped ones and a growing one, and what it shows.
async fn lived() -> (FaultDisk, Vec<Record>) {
    let disk = FaultDisk::new();
    let log = open(&disk, TINY);
    let batches = batches(21, 26);
    fill(&log, &batches).await;
    remove(&log, 1, 6).await.unwrap();
    remove(&log, 2, 4).await.unwrap();
    remove(&log, 0, 4).await.unwrap();
    log.settle().await;
    let shown = all(&log).await;
    drop(log);
    assert!(!files(&disk, ".2.log").is_empty() && files(&disk, ".1.log").len() > 3, "{:?}", disk.names());
    assert!(!files(&disk, ".log")[0].starts_with("00000000000000000001."), "something was dropped");
    (disk, shown)
}

/// Repairs, opens, and compares with the original: only what was lost is missing, nothing is renumbered, no number is assigned
/// again.
async fn is_repaired(disk: &FaultDisk, shown: &[Record], acknowledged: u64, context: &str) -> Vec<Record> {
    let repair = repair_knowing(disk, acknowledged);
    let log = try_open_knowing(disk, HUGE, acknowledged).unwrap_or_else(|error| panic!("{context}: {error}"));
    let left = all(&log).await;
    let is_lost = |record: &Record| {
        let (header, runs) = (record.header, &repair.lost_sequences);
        let by_position = repair.lost_positions.iter().any(|(first, last)| (*first..=*last).contains(&header.position));
        // A rewritten segment has holes, so its missing records are known by their sequences.
        by_position
            || runs.iter().any(|(of, first, last)| *of == header.topic && (*first..=*last).contains(&header.sequence))
    };
    // If it is unknown what was acknowledged, it is unknown what is missing at the end.
    let is_behind = |record: &Record| {
        let later = left.iter().filter(|other| other.header.topic == record.header.topic);
        acknowledged == 0 && later.map(|other| other.header.sequence).max() < Some(record.header.sequence)
    };
    // If the marks are lost, removed records may become visible again, and those before the first record may have been removed.
    let marks_lost = repair.findings.iter().any(|it| it.damage.reason.contains("marks"));
    let is_before = |record: &Record| {
        let mut others = left.iter().filter(|other| other.header.topic == record.header.topic);
        marks_lost && others.next().is_none_or(|first| record.header.sequence < first.header.sequence)
    };
    for record in shown {
        let is_told = left.contains(record) || is_lost(record) || is_behind(record) || is_before(record);
        assert!(is_told, "{context}: position {} is neither there nor told as lost", record.header.position);
    }
    assert!(marks_lost || left.iter().all(|record| shown.contains(record)), "{context}");
    let next = log.tail().borrow().next();
    assert!(next.get() > acknowledged, "{context}");
    for topic in 0..3 {
        let topic = TopicNumber(topic);
        let last = shown.iter().rev().find(|record| record.header.topic == topic).unwrap().header.sequence;
        let known = repair.lost_sequences.iter().filter(|(of, ..)| *of == topic).map(|(.., last)| *last).max();
        let kept = left.iter().rev().find(|record| record.header.topic == topic).map(|record| record.header.sequence);
        let taken = kept.max(known).unwrap_or_default();
        assert!(taken <= last, "{context}: sequences are not made up");
        // Reading from any position skips the holes.
        let read = log.read(ReadRange::Topic(topic, Sequence(last.get() - 1)), NO_LIMIT).await;
        assert!(matches!(read, Ok(_) | Err(LogError::Trimmed(_))), "{context}");
    }
    let mut record = shown.last().unwrap().clone();
    record.header.position = next;
    (record.header.topic, record.header.sequence) = (TopicNumber(7), Sequence(1));
    append(&log, &[record.clone()]).await.unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(all(&log).await, [left.clone(), vec![record]].concat(), "{context}: it goes on");
    log.settle().await;
    drop(log);
    assert_eq!(verify_knowing(disk, acknowledged).damages, [], "{context}");
    left
}

#[tokio::test]
async fn one_flipped_bit_anywhere_costs_one_record_at_most() {
    let (disk, shown) = lived().await;
    let acknowledged = shown.last().unwrap().header.position.get();
    for file in disk.names() {
        let bits = disk.bytes(&file).unwrap().len() * 8;
        for bit in (3..bits).step_by(if file.ends_with(".idx") { 160_001 } else { 997 }) {
            let disk = disk.copy();
            flip(&disk, &file, bit);
            let left = is_repaired(&disk, &shown, acknowledged, &format!("{file}, bit {bit}")).await;
            // The salt of a segment is four bytes without which none of its frames can be recognised.
            let salt = file.ends_with(".log") && (56..60).contains(&(bit / 8));
            assert!(left.len() + 1 >= shown.len() || salt, "{file}, bit {bit}: {} of {}", left.len(), shown.len());
        }
    }
}

#[tokio::test]
async fn missing_shortened_zeroed_and_strange_files_are_survived() {
    let (disk, shown) = lived().await;
    let acknowledged = shown.last().unwrap().header.position.get();
    let mut random = SeededRandom::new(5);
    for file in disk.names() {
        let whole = disk.bytes(&file).unwrap();
        let missing = disk.copy();
        Disk::remove(&missing, &file).unwrap();
        is_repaired(&missing, &shown, acknowledged, &format!("{file} is missing")).await;
        for kept in [0, 1, 30, 64, 65, whole.len() / 2, whole.len() - 1] {
            let disk = disk.copy();
            disk.put(&file, whole[..kept.min(whole.len())].to_vec());
            is_repaired(&disk, &shown, acknowledged, &format!("{kept} bytes of {file}")).await;
        }
        for bytes in [vec![0; whole.len()], random.bytes(whole.len()).to_vec(), random.bytes(10).to_vec()] {
            let disk = disk.copy();
            disk.put(&file, bytes.clone());
            is_repaired(&disk, &shown, acknowledged, &format!("{file} holds {} other bytes", bytes.len())).await;
        }
        // A hole of zeros in the middle.
        if whole.len() > 300 {
            let (disk, mut holed) = (disk.copy(), whole.clone());
            holed[100..250].fill(0);
            disk.put(&file, holed);
            is_repaired(&disk, &shown, acknowledged, &format!("{file} with a hole")).await;
        }
    }
    for (name, what) in [
        ("00000000000000000002.1.log", "in what was dropped"),
        ("00000000000000000033.1.log", "inside another"),
        ("00000000000000099999.1.log", "far behind"),
        ("trimmed.99", "marks"),
        ("notes.txt", "not ours"),
    ] {
        let disk = disk.copy();
        disk.put(name, random.bytes(500).to_vec());
        let left = is_repaired(&disk, &shown, acknowledged, &format!("a strange file {name}: {what}")).await;
        assert_eq!(left, shown, "{name}");
        let tail = left.last().unwrap().header.position.get() + 1;
        assert_eq!(verify_knowing(&disk, tail).damages, [], "{name}: it says nothing of where the log ends");
    }
}

/// If it is unknown what was acknowledged, the log ends with the last readable record.
#[tokio::test]
async fn random_damage_in_many_places_is_survived() {
    let (disk, shown) = lived().await;
    for seed in 0..60 {
        let (disk, mut random) = (disk.copy(), SeededRandom::new(seed));
        let names = disk.names();
        for _ in 0..=random.through(4) {
            let file = &names[usize::try_from(random.through(names.len() as u64 - 1)).unwrap()];
            let Some(bytes) = disk.bytes(file).filter(|bytes| !bytes.is_empty()) else { continue };
            match random.through(5) {
                0 => Disk::remove(&disk, file).unwrap(),
                1 => disk.put(file, bytes[..usize::try_from(random.through(bytes.len() as u64)).unwrap()].to_vec()),
                _ => flip(&disk, file, usize::try_from(random.through(bytes.len() as u64 * 8 - 1)).unwrap()),
            }
        }
        let acknowledged = if seed % 2 == 0 { 0 } else { shown.last().unwrap().header.position.get() };
        is_repaired(&disk, &shown, acknowledged, &format!("seed {seed}")).await;
    }
}

#[tokio::test]
async fn what_is_cut_is_kept_aside_first_and_a_repair_cut_short_is_done_again() {
    let (disk, shown) = lived().await;
    let file = files(&disk, ".1.log")[1].clone();
    flip(&disk, &file, (64 + 21) * 8);
    let damaged = disk.bytes(&file).unwrap();
    let known = AcknowledgedState { acknowledged: shown.last().unwrap().header.position, tails: Vec::new() };
    let run = |disk: &FaultDisk| {
        let any: Arc<dyn Disk> = Arc::new(disk.clone());
        repair_disk(&any, &known, false)
    };
    let whole = disk.copy();
    let before = whole.changes();
    assert_eq!(run(&whole).unwrap().kept, [format!("{file}.1")]);
    assert!(whole.bytes(&format!("{file}.1")).unwrap() == damaged);
    let changes = whole.changes() - before;
    for cut_at in 0..changes {
        let disk = disk.copy();
        disk.power_off_after(cut_at);
        assert!(run(&disk).is_err(), "cut at {cut_at}");
        let after = disk.power_cut(cut_at);
        let kept =
            after.names().iter().filter(|name| name.starts_with(&file) && *name != &file).cloned().collect::<Vec<_>>();
        let is_kept = kept.iter().any(|name| after.bytes(name).unwrap() == damaged);
        assert!(
            is_kept || after.bytes(&file).as_ref() == Some(&damaged),
            "cut at {cut_at}: it is in one place or both"
        );
        run(&after).unwrap();
        let log = try_open_knowing(&after, TINY, known.acknowledged.get()).unwrap();
        assert_eq!(all(&log).await.len(), shown.len() - 1, "cut at {cut_at}");
    }
}

/// A log of a newer version is not damaged, even if this version cannot read it.
#[tokio::test]
async fn a_newer_version_is_not_repaired_away() {
    let (disk, _) = lived().await;
    let file = files(&disk, ".1.log")[1].clone();
    let mut bytes = disk.bytes(&file).unwrap();
    bytes[8] = 9;
    let checksum = crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
    disk.put(&file, bytes);
    let (any, before): (Arc<dyn Disk>, _) = (Arc::new(disk.clone()), disk.changes());
    let refusal = repair_disk(&any, &AcknowledgedState::default(), false).unwrap_err();
    assert!(refusal.to_string().contains("newer version"), "{refusal}");
    assert_eq!(disk.changes(), before);
}
