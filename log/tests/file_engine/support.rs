//! Logs on disks that fail, and their records.

use contract::{Position, Sequence};
use log::file::{AcknowledgedState, FileLog, FileLogOptions, RepairReport, VerifyReport, repair_disk, verify_disk};
use log::testing::fault_disk::FaultDisk;
use log::testing::{NO_LIMIT, RecordNumbering, RecordSetters, SeededRandom, record};
use log::{Log, LogError, ReadLimit, ReadRange, Record, TopicNumber};
use std::sync::Arc;

/// Segments of about three records.
pub(crate) const TINY: u64 = 700;
/// One segment is enough.
pub(crate) const HUGE: u64 = 1 << 26;

pub(crate) fn options(segment_bytes: u64) -> FileLogOptions {
    FileLogOptions { segment_bytes, tail_cache_bytes: 0, ..FileLogOptions::default() }
}

pub(crate) fn try_open(disk: &FaultDisk, segment_bytes: u64) -> Result<FileLog, LogError> {
    FileLog::open(Arc::new(disk.clone()), options(segment_bytes))
}

pub(crate) fn open(disk: &FaultDisk, segment_bytes: u64) -> FileLog {
    try_open(disk, segment_bytes).unwrap()
}

/// Opens a log of which everything through `acknowledged` is known to have been acknowledged.
pub(crate) fn try_open_knowing(disk: &FaultDisk, segment_bytes: u64, acknowledged: u64) -> Result<FileLog, LogError> {
    let options = FileLogOptions { acknowledged: Position(acknowledged), ..options(segment_bytes) };
    FileLog::open(Arc::new(disk.clone()), options)
}

/// Repairs a log; a dry run first, which must predict the repair and change nothing.
pub(crate) fn repair_knowing(disk: &FaultDisk, acknowledged: u64) -> RepairReport {
    let any: Arc<dyn log::file::Disk> = Arc::new(disk.clone());
    let known = AcknowledgedState { acknowledged: Position(acknowledged), tails: Vec::new() };
    let before = disk.changes();
    let foretold = repair_disk(&any, &known, true).unwrap();
    assert_eq!(disk.changes(), before, "a dry run changes nothing");
    let repair = repair_disk(&any, &known, false).unwrap();
    assert_eq!((&foretold.findings, &foretold.lost_positions), (&repair.findings, &repair.lost_positions));
    assert_eq!((&foretold.lost_sequences, &foretold.lost), (&repair.lost_sequences, &repair.lost));
    assert_eq!(verify_disk(disk, Position(acknowledged), |_| {}).unwrap().damages, [], "a repaired log is sound");
    let again = repair_disk(&any, &known, false).unwrap();
    assert_eq!(
        (again.findings, again.lost_positions, again.lost_sequences),
        (vec![], vec![], vec![]),
        "and it is done once"
    );
    repair
}

pub(crate) fn repair(disk: &FaultDisk) -> RepairReport {
    repair_knowing(disk, 0)
}

/// A batch of this many records of three topics, with ids, aggregates and bodies of 0 to 400 bytes.
pub(crate) fn batch(numbering: &mut RecordNumbering, random: &mut SeededRandom, size: usize) -> Vec<Record> {
    let draft = |random: &mut SeededRandom| {
        let topic = u32::try_from(random.through(2)).unwrap();
        let length = usize::try_from(random.through(400)).unwrap();
        let draft = record(0, topic, 0).body(random.bytes(length));
        if topic == 0 {
            draft
        } else {
            draft.id(random.wide()).aggregate(u128::from(topic) << 64 | u128::from(random.through(3)), 0)
        }
    };
    let time = |record: Record| {
        let time = 1_000_000 + i64::try_from(record.header.position.get() / 2).unwrap();
        record.time(time)
    };
    (0..size).map(|_| draft(random)).map(|draft| time(numbering.number(draft))).collect()
}

/// Batches of 1 to 5 records.
pub(crate) fn batches(seed: u64, count: usize) -> Vec<Vec<Record>> {
    let (mut numbering, mut random) = (RecordNumbering::default(), SeededRandom::new(seed));
    (0..count)
        .map(|_| {
            let size = usize::try_from(random.through(4)).unwrap() + 1;
            batch(&mut numbering, &mut random, size)
        })
        .collect()
}

pub(crate) async fn append(log: &FileLog, batch: &[Record]) -> Result<(), LogError> {
    log.append(Position(batch[0].header.position.get() - 1), batch.to_vec()).await
}

/// Appends every batch, waiting for the background each time.
pub(crate) async fn fill(log: &FileLog, batches: &[Vec<Record>]) {
    for batch in batches {
        append(log, batch).await.unwrap();
        log.settle().await;
    }
}

pub(crate) async fn all(log: &FileLog) -> Vec<Record> {
    log.read(ReadRange::All(Position::ZERO), NO_LIMIT).await.unwrap()
}

/// The one record at a position.
pub(crate) async fn at(log: &FileLog, position: u64) -> Result<Vec<Record>, LogError> {
    log.read(ReadRange::All(Position(position - 1)), ReadLimit { records: 1, bytes: 0 }).await
}

pub(crate) async fn remove(log: &FileLog, topic: u32, through: u64) -> Result<(), LogError> {
    log.remove(TopicNumber(topic), Sequence(through)).await
}

pub(crate) fn tail(log: &FileLog) -> u64 {
    log.tail().borrow().get()
}

pub(crate) fn check(disk: &FaultDisk) -> VerifyReport {
    verify_disk(disk, Position::ZERO, |_| {}).unwrap()
}

pub(crate) fn verify_knowing(disk: &FaultDisk, acknowledged: u64) -> VerifyReport {
    verify_disk(disk, Position(acknowledged), |_| {}).unwrap()
}

/// Files with this ending, oldest first.
pub(crate) fn files(disk: &FaultDisk, ending: &str) -> Vec<String> {
    disk.names().into_iter().filter(|name| name.ends_with(ending)).collect()
}

pub(crate) fn flip(disk: &FaultDisk, file: &str, bit: usize) {
    let mut bytes = disk.bytes(file).unwrap();
    bytes[bit / 8] ^= 1 << (bit % 8);
    disk.put(file, bytes);
}

/// Where frames begin in a segment: bytes on disk are the header's 64, what its facets take, and the body.
pub(crate) fn frame_starts(records: &[Record]) -> Vec<usize> {
    let mut at = 64;
    let mut starts = Vec::new();
    for record in records {
        starts.push(at);
        let facets = record.header.facets.map_or(0, |facets| {
            32 + 24 * usize::from(facets.aggregate.is_some()) + 24 * usize::from(facets.idempotency.is_some())
        });
        at += 64 + facets + record.body.len();
    }
    starts.push(at);
    starts
}

/// The damage an error names.
pub(crate) fn damage<T>(answer: Result<T, LogError>) -> (String, u64) {
    match answer {
        Err(LogError::Damaged(damage)) => (damage.file.to_str().unwrap().to_owned(), damage.offset),
        Err(other) => panic!("not damage: {other:?}"),
        Ok(_) => panic!("damage went unnoticed"),
    }
}
