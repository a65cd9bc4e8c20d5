//! Power cuts after every single change to the disk, with every kind of loss a disk may show.

use crate::support::*;
use log::testing::fault_disk::{DiskFault, DiskOperation, FaultDisk};
use log::testing::{RecordNumbering, SeededRandom};
use log::{Log, Record};
use std::collections::BTreeMap;
use std::io::ErrorKind;

/// What the caller knows at the power cut.
#[derive(Default)]
struct Known {
    /// Everything that was appended, by batch; all but the last one were acknowledged.
    batches: Vec<Vec<Record>>,
    answered: usize,
    /// Acknowledged removals, and the one that was not.
    removed: BTreeMap<u32, u64>,
    maybe_removed: Option<(u32, u64)>,
    /// Whether the script reached a rewrite.
    has_rewritten: bool,
}

/// Appends, rolls, seals, removes, drops and rewrites, until the script ends or the power is cut.
async fn run(disk: &FaultDisk, batches: &[Vec<Record>]) -> Known {
    let mut known = Known::default();
    let Ok(log) = try_open(disk, TINY) else { return known };
    for (number, batch) in batches.iter().enumerate() {
        known.batches.push(batch.clone());
        if append(&log, batch).await.is_err() {
            break;
        }
        known.answered += 1;
        log.settle().await;
        if number % 4 == 3 {
            let topic = (number as u32 / 4) % 3;
            let so_far = batches[..=number].concat();
            let last = so_far.iter().filter(|record| record.header.topic.0 == topic).count() as u64;
            known.maybe_removed = Some((topic, last.saturating_sub(1)));
            if remove(&log, topic, last.saturating_sub(1)).await.is_err() {
                break;
            }
            known.removed.extend(known.maybe_removed.take());
            log.settle().await;
            known.has_rewritten |= !files(disk, ".2.log").is_empty();
        }
    }
    drop(log);
    known
}

impl Known {
    /// The possible contents of the log now.
    fn possible(&self) -> Vec<Vec<Record>> {
        let mut possible = Vec::new();
        for count in self.answered..=self.batches.len() {
            for maybe in [None, self.maybe_removed] {
                let mut removed = self.removed.clone();
                removed.extend(maybe);
                let left = |record: &Record| {
                    removed.get(&record.header.topic.0).is_none_or(|through| record.header.sequence.get() > *through)
                };
                possible.push(self.batches[..count].concat().into_iter().filter(left).collect());
            }
        }
        possible
    }

    async fn is_kept_by(&self, disk: &FaultDisk, context: &str) -> Vec<Record> {
        assert_eq!(check(disk).damages, [], "{context}, before opening");
        let log = try_open(disk, TINY).unwrap_or_else(|error| panic!("{context}: {error}"));
        let shown = all(&log).await;
        assert!(self.possible().contains(&shown), "{context}: {:?}", log::testing::positions(&shown));
        let tails: Vec<_> =
            (self.answered..=self.batches.len()).map(|count| self.batches[..count].concat().len() as u64).collect();
        assert!(tails.contains(&tail(&log)), "{context}: the tail is {}", tail(&log));
        log.settle().await;
        assert_eq!(all(&log).await, shown, "{context}, once the keeper is done");
        drop(log);
        assert_eq!(check(disk).damages, [], "{context}, after opening");
        shown
    }
}

/// How many changes the script makes when nothing goes wrong.
async fn changes(batches: &[Vec<Record>]) -> u64 {
    let disk = FaultDisk::new();
    let known = run(&disk, batches).await;
    assert_eq!(known.answered, batches.len());
    assert!(known.has_rewritten, "the script rewrites");
    assert!(!files(&disk, ".log").iter().any(|name| name.starts_with("00000000000000000001.")), "the script drops");
    disk.changes()
}

#[tokio::test]
async fn nothing_answered_is_lost_wherever_the_power_goes() {
    let batches = batches(11, 24);
    let changes = changes(&batches).await;
    for cut_at in 0..=changes {
        let disk = FaultDisk::new();
        disk.power_off_after(cut_at);
        let known = run(&disk, &batches).await;
        for seed in cut_at * 100..cut_at * 100 + 3 {
            let after = disk.power_cut(seed);
            let context = format!("power off after {cut_at} of {changes} changes, seed {seed}");
            let shown = known.is_kept_by(&after, &context).await;
            let again = after.power_cut(seed);
            assert_eq!(all(&open(&again, TINY)).await, shown, "{context}: what was shown stays");
        }
    }
}

/// Erasing seals the growing segment. If the next one cannot be begun, its file is removed again, and appends continue in the
/// old one: the file must not reappear and claim their positions.
#[tokio::test]
async fn a_segment_that_could_not_be_begun_for_an_erasure_is_not_in_the_way_after_a_power_cut() {
    let batches = batches(13, 8);
    let mut went_on = 0;
    // Its head is synced first, then the folder; then the folder without it.
    for failing in [&[1][..], &[2], &[1, 2], &[2, 3]] {
        for seed in 0..40 {
            let disk = FaultDisk::new();
            let log = open(&disk, HUGE);
            fill(&log, &batches[..4]).await;
            remove(&log, 1, 3).await.unwrap();
            log.settle().await;
            for nth in failing {
                disk.fail(DiskOperation::Sync, *nth, DiskFault::Error(ErrorKind::Other));
            }
            let context = format!("syncs {failing:?} of sealing fail, seed {seed}");
            log.erase().await.expect_err(&context);
            let mut acknowledged = batches[..4].concat();
            for batch in &batches[4..] {
                if append(&log, batch).await.is_err() {
                    break;
                }
                acknowledged.extend(batch.clone());
                went_on += 1;
            }
            let shown = all(&log).await;
            drop(log);
            let after = disk.power_cut(seed);
            let log = try_open(&after, HUGE).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(all(&log).await, shown, "{context}");
            assert_eq!(tail(&log), acknowledged.len() as u64, "{context}");
            drop(log);
            assert_eq!(check(&after).damages, [], "{context}");
        }
    }
    assert!(went_on > 0, "an erasure that fails does not keep events from being stored");
}

#[tokio::test]
async fn recovery_may_be_interrupted_too() {
    let batches = batches(12, 20);
    let changes = changes(&batches).await;
    for cut_at in (0..=changes).step_by(3) {
        let disk = FaultDisk::new();
        disk.power_off_after(cut_at);
        let known = run(&disk, &batches).await;
        let mut disk = disk.power_cut(cut_at);
        for interrupted_at in 0..6 {
            disk.power_off_after(interrupted_at);
            drop(try_open(&disk, TINY));
            disk = disk.power_cut(interrupted_at);
        }
        known.is_kept_by(&disk, &format!("power off after {cut_at} of {changes} changes, then six times more")).await;
    }
}

#[tokio::test]
async fn a_log_lives_through_many_power_cuts() {
    for seed in 0..20 {
        let (mut random, mut numbering) = (SeededRandom::new(seed), RecordNumbering::default());
        let mut disk = FaultDisk::new();
        let mut records: Vec<Record> = Vec::new();
        for generation in 0..15 {
            let log = open(&disk, TINY);
            disk.power_off_after(random.through(25));
            let mut unanswered = None;
            for _ in 0..6 {
                let size = usize::try_from(random.through(3)).unwrap() + 1;
                let mut next = numbering.clone();
                let batch = batch(&mut next, &mut random, size);
                if append(&log, &batch).await.is_err() {
                    unanswered = Some((batch, next));
                    break;
                }
                records.extend(batch);
                numbering = next;
            }
            drop(log);
            disk = disk.power_cut(random.number());
            let shown = all(&open(&disk, TINY)).await;
            if let Some((batch, next)) = unanswered
                && shown.len() > records.len()
            {
                records.extend(batch);
                numbering = next;
            }
            assert!(shown == records, "seed {seed}, generation {generation}");
            assert_eq!(check(&disk).damages, [], "seed {seed}, generation {generation}");
        }
    }
}
