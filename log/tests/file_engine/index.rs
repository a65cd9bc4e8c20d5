//! An index is a cache: a rebuilt one equals the one that was written.

use crate::support::*;
use log::file::Disk;
use log::testing::fault_disk::FaultDisk;
use log::testing::{NO_LIMIT, RecordNumbering, RecordSetters, SeededRandom};
use log::{Log, ReadLimit, ReadRange, RecordQuery};
use proptest::prelude::*;

/// The bytes of a page are used up, and the next segment begins with a record that needs none.
#[tokio::test]
async fn an_empty_body_still_fits_a_page_without_room() {
    let disk = FaultDisk::new();
    let log = open(&disk, 1);
    let mut numbering = RecordNumbering::default();
    let records: Vec<_> = ["ten bytes.", "", "", "x"].map(|body| numbering.entry(1).body(body)).to_vec();
    for record in &records {
        append(&log, std::slice::from_ref(record)).await.unwrap();
    }
    assert_eq!(files(&disk, ".log").len(), 4);
    let page = log.read(ReadRange::All(contract::Position::ZERO), ReadLimit { records: 9, bytes: 10 }).await.unwrap();
    assert_eq!(page, records[..3]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn rebuilt_indexes_are_the_written_ones(seed: u64, count in 1usize..30, segment_bytes in 300u64..6000, removed in 0u64..40) {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap().block_on(async {
            let disk = FaultDisk::new();
            let log = open(&disk, segment_bytes);
            fill(&log, &batches(seed, count)).await;
            remove(&log, 1, removed).await.unwrap();
            log.settle().await;
            let records = all(&log).await;
            drop(log);
            let written: Vec<_> = files(&disk, ".idx").into_iter().map(|file| (disk.bytes(&file), file)).collect();
            for (_, file) in &written {
                disk.remove(file).unwrap();
            }
            let log = open(&disk, segment_bytes);
            log.settle().await;
            assert_eq!(all(&log).await, records);
            drop(log);
            for (bytes, file) in written {
                assert!(disk.bytes(&file) == bytes, "{file}");
            }
        });
    }

    /// While it grows, after it is sealed, and after reopening, a segment returns the same.
    #[test]
    fn growing_and_sealed_segments_answer_alike(seed: u64, count in 1usize..40) {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap().block_on(async {
            let (growing, sealed) = (FaultDisk::new(), FaultDisk::new());
            let logs = [open(&growing, HUGE), open(&sealed, 2000)];
            let batches = batches(seed, count);
            for log in &logs {
                fill(log, &batches).await;
            }
            let mut random = SeededRandom::new(seed);
            for record in batches.concat() {
                let limit = ReadLimit { records: usize::try_from(random.through(8)).unwrap(), bytes: usize::try_from(random.through(900)).unwrap() };
                let mut ranges = vec![
                    (ReadRange::All(record.header.position), limit),
                    (ReadRange::Topic(record.header.topic, record.header.sequence), limit),
                ];
                if let Some(mark) = record.header.facets.and_then(|facets| facets.aggregate) {
                    ranges.push((ReadRange::Aggregate(mark.key, mark.sequence), limit));
                    ranges.push((ReadRange::Aggregate(mark.key, contract::AggregateSequence::ZERO), NO_LIMIT));
                }
                for (range, limit) in ranges {
                    assert_eq!(logs[0].read(range, limit).await.unwrap(), logs[1].read(range, limit).await.unwrap());
                }
                for what in [RecordQuery::Id(record.header.id), RecordQuery::Time(None, record.header.time), RecordQuery::Time(Some(record.header.topic), record.header.time)] {
                    assert_eq!(logs[0].find(what).await.unwrap(), logs[1].find(what).await.unwrap());
                }
            }
        });
    }
}
