//! The guarantees of the tables. Damaged files are in `damage`, killed processes in `crashes`, random histories in
//! `model`.

mod crashes;
mod damage;
mod expiry;
mod model;
mod parts;

use super::*;
use std::fs;
use tempfile::TempDir;

/// A key that is uniform like those of the ledger.
fn key(n: u64) -> u128 {
    let mix = |n: u64| {
        let n = (n ^ (n >> 31)).wrapping_mul(0x7FB5_D329_728E_A185);
        let n = (n ^ (n >> 27)).wrapping_mul(0x81DA_DEF4_BC2D_D44D);
        n ^ (n >> 33)
    };
    u128::from(mix(n ^ 0x9E37_79B9_7F4A_7C15)) << 64 | u128::from(mix(n.wrapping_add(0xD1B5_4A32_D192_ED03)))
}

fn head(n: u64) -> [u8; HEAD_BYTES] {
    u128::from(n).to_le_bytes()
}

/// An idempotency row of `time`, distinguished from others by `n`.
fn at_time(time: i64, n: u64) -> [u8; KEY_BYTES] {
    let bytes = [time.to_le_bytes(), n.to_le_bytes(), [0; 8]].concat();
    bytes.try_into().unwrap()
}

fn time_of(value: &[u8; KEY_BYTES]) -> i64 {
    i64::from_le_bytes(*value.first_chunk().unwrap())
}

fn payload(n: u64) -> CheckpointPayload {
    Box::new(move || Ok(serde_json::value::to_raw_value(&serde_json::json!({ "position": n }))?))
}

/// Opens tables that must hold a checkpoint with the payload of `n`.
fn reopen(folder: &TempDir, n: u64) -> DiskTables {
    let (tables, found) = DiskTables::open(folder.path(), time_of).unwrap();
    let FoundCheckpoint::Checkpoint(found) = found else { panic!("no checkpoint: {found:?}") };
    assert_eq!(found.get(), payload(n)().unwrap().get());
    tables
}

fn fresh() -> (TempDir, DiskTables) {
    let folder = tempfile::tempdir().unwrap();
    let (tables, found) = DiskTables::open(folder.path(), time_of).unwrap();
    assert!(matches!(found, FoundCheckpoint::Nothing), "{found:?}");
    (folder, tables)
}

fn checkpoint(tables: &mut DiskTables, n: u64, expire_before: i64) {
    let done = tables.freeze(payload(n), expire_before).unwrap().run(&|_| {}).unwrap();
    tables.install(done);
}

/// The files in the folder, sorted, without the lock.
fn files(folder: &TempDir) -> Vec<String> {
    let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name != "lock").collect();
    names.sort();
    names
}

#[test]
fn rows_are_found_before_during_and_after_a_checkpoint_and_after_opening_again() {
    let (folder, mut tables) = fresh();
    let check = |tables: &DiskTables| {
        for n in 0..1000 {
            assert_eq!(tables.heads.get(key(n)).unwrap(), Some(head(n)));
            assert_eq!(tables.keys.get(key(n)).unwrap(), Some(at_time(n as i64, n)));
            assert_eq!(tables.heads.get(key(n + 1000)).unwrap(), None);
        }
    };
    for n in 0..1000 {
        tables.heads.put(key(n), head(n));
        tables.keys.put(key(n), at_time(n as i64, n));
    }
    check(&tables);
    let job = tables.freeze(payload(1), 0).unwrap();
    check(&tables);
    let done = job.run(&|_| {}).unwrap();
    check(&tables);
    assert_eq!(tables.heads.dirty_rows(), 1000);
    tables.install(done);
    assert_eq!(tables.heads.dirty_rows(), 0);
    check(&tables);
    drop(tables);
    check(&reopen(&folder, 1));
}

#[test]
fn every_row_count_around_the_edge_of_a_block_is_read_back() {
    for rows in [1, 2, format::BLOCK_ROWS - 1, format::BLOCK_ROWS, format::BLOCK_ROWS + 1, 5 * format::BLOCK_ROWS] {
        let (folder, mut tables) = fresh();
        (0..rows).for_each(|n| tables.heads.put(key(n), head(n)));
        checkpoint(&mut tables, rows, 0);
        drop(tables);
        let tables = reopen(&folder, rows);
        for n in 0..rows {
            assert_eq!(tables.heads.get(key(n)).unwrap(), Some(head(n)), "row {n} of {rows}");
        }
    }
}

#[test]
fn keys_that_share_their_high_half_over_several_blocks_are_told_apart() {
    let (_folder, mut tables) = fresh();
    let close = |n: u64| u128::from(7u64) << 64 | u128::from(n);
    (0..1000).for_each(|n| tables.heads.put(close(2 * n), head(n)));
    checkpoint(&mut tables, 1, 0);
    for n in 0..1000 {
        assert_eq!(tables.heads.get(close(2 * n)).unwrap(), Some(head(n)));
        assert_eq!(tables.heads.get(close(2 * n + 1)).unwrap(), None);
    }
}

#[test]
fn the_least_and_the_greatest_key_are_keys() {
    let (_folder, mut tables) = fresh();
    tables.heads.put(0, head(1));
    tables.heads.put(u128::MAX, head(2));
    checkpoint(&mut tables, 1, 0);
    assert_eq!(tables.heads.get(0).unwrap(), Some(head(1)));
    assert_eq!(tables.heads.get(u128::MAX).unwrap(), Some(head(2)));
}

#[test]
fn an_empty_checkpoint_keeps_its_payload_and_writes_no_run() {
    let (folder, mut tables) = fresh();
    checkpoint(&mut tables, 9, 0);
    assert_eq!(files(&folder), ["manifest.json"]);
    drop(tables);
    assert_eq!(reopen(&folder, 9).heads.get(key(1)).unwrap(), None);
}

#[test]
fn the_newest_value_wins_through_every_merge() {
    let (folder, mut tables) = fresh();
    // Twenty checkpoints that all write key 0 and each a key of its own: five merges, one of them of merged runs.
    for n in 1..=20 {
        tables.heads.put(key(0), head(n));
        tables.heads.put(key(n), head(n));
        checkpoint(&mut tables, n, 0);
        assert_eq!(tables.heads.get(key(0)).unwrap(), Some(head(n)));
        assert!(tables.heads.runs.len() < 4, "{} runs", tables.heads.runs.len());
    }
    drop(tables);
    let tables = reopen(&folder, 20);
    assert_eq!(tables.heads.get(key(0)).unwrap(), Some(head(20)));
    (1..=20).for_each(|n| assert_eq!(tables.heads.get(key(n)).unwrap(), Some(head(n))));
}

#[test]
fn a_merge_of_many_blocks_keeps_every_row_and_a_filter_of_its_own_size() {
    let (_folder, mut tables) = fresh();
    for n in 0..4 {
        // Most keys are in all four runs, some in one only.
        (0..3000).for_each(|k| tables.heads.put(key(k), head(k + n)));
        (0..100).for_each(|k| tables.heads.put(key(10_000 + 100 * n + k), head(n)));
        checkpoint(&mut tables, n, 0);
    }
    (0..3000).for_each(|k| assert_eq!(tables.heads.get(key(k)).unwrap(), Some(head(k + 3))));
    (0..400).for_each(|k| assert_eq!(tables.heads.get(key(10_000 + k)).unwrap(), Some(head(k / 100))));
    let [run] = &tables.heads.runs[..] else { panic!("{} runs", tables.heads.runs.len()) };
    assert_eq!(run.shape().rows, 3400);
    assert!(run.filter.len() < 2 * bloom_filter::BloomFilter::with_room(3400).len(), "{} blocks", run.filter.len());
}

#[test]
fn files_no_manifest_names_are_swept_by_a_checkpoint_and_by_opening() {
    let (folder, mut tables) = fresh();
    let litter = || {
        fs::write(folder.path().join("heads-99.run"), b"left over").unwrap();
        fs::write(folder.path().join("manifest.tmp"), b"left over").unwrap();
    };
    litter();
    tables.heads.put(key(1), head(1));
    checkpoint(&mut tables, 1, 0);
    assert_eq!(files(&folder), ["heads-1.run", "manifest.json"]);
    litter();
    drop(tables);
    let _tables = reopen(&folder, 1);
    assert_eq!(files(&folder), ["heads-1.run", "manifest.json"]);
}

#[test]
fn merged_runs_leave_the_folder_and_stay_readable_until_installed() {
    let (folder, mut tables) = fresh();
    for n in 1..=3 {
        tables.heads.put(key(n), head(n));
        checkpoint(&mut tables, n, 0);
    }
    tables.heads.put(key(4), head(4));
    let done = tables.freeze(payload(4), 0).unwrap().run(&|_| {}).unwrap();
    assert_eq!(files(&folder), ["heads-4.run", "manifest.json"]);
    (1..=4).for_each(|n| assert_eq!(tables.heads.get(key(n)).unwrap(), Some(head(n))));
    tables.install(done);
    (1..=4).for_each(|n| assert_eq!(tables.heads.get(key(n)).unwrap(), Some(head(n))));
}

#[test]
fn one_checkpoint_at_a_time_from_freeze_to_install() {
    let (_folder, mut tables) = fresh();
    let job = tables.freeze(payload(1), 0).unwrap();
    tables.heads.put(key(1), head(1));
    assert!(tables.freeze(payload(2), 0).is_none(), "a job is waiting");
    let done = job.run(&|_| {}).unwrap();
    assert!(tables.freeze(payload(2), 0).is_none(), "its result is not installed");
    tables.install(done);
    assert_eq!(tables.heads.get(key(1)).unwrap(), Some(head(1)), "a refused freeze froze nothing");
    assert!(tables.freeze(payload(2), 0).is_some());
}

#[test]
fn the_rows_of_a_lost_job_go_with_the_next() {
    let (folder, mut tables) = fresh();
    tables.heads.put(key(1), head(1));
    tables.heads.put(key(2), head(1));
    drop(tables.freeze(payload(1), 0).unwrap());
    tables.heads.put(key(2), head(2));
    checkpoint(&mut tables, 2, 0);
    assert_eq!(tables.heads.dirty_rows(), 0);
    drop(tables);
    let tables = reopen(&folder, 2);
    assert_eq!(tables.heads.get(key(1)).unwrap(), Some(head(1)));
    assert_eq!(tables.heads.get(key(2)).unwrap(), Some(head(2)));
}

/// Its sweep has deleted runs that the tables still hold; a later manifest that named them again would name missing
/// files.
#[test]
fn a_lost_outcome_is_installed_by_the_next_freeze() {
    let (folder, mut tables) = fresh();
    tables.keys.put(key(1), at_time(10, 1));
    checkpoint(&mut tables, 1, 0);
    tables.keys.put(key(2), at_time(90, 2));
    checkpoint(&mut tables, 2, 0);
    drop(tables.freeze(payload(3), 50).unwrap().run(&|_| {}).unwrap());
    assert_eq!(files(&folder), ["keys-2.run", "manifest.json"]);
    checkpoint(&mut tables, 4, 0);
    drop(tables);
    assert_eq!(reopen(&folder, 4).keys.get(key(2)).unwrap(), Some(at_time(90, 2)));
}

#[test]
fn a_folder_has_one_owner_and_a_running_job_is_part_of_it() {
    let (folder, mut tables) = fresh();
    let job = tables.freeze(payload(1), 0).unwrap();
    drop(tables);
    let why = DiskTables::open(folder.path(), time_of).unwrap_err();
    assert_eq!(why.kind(), io::ErrorKind::ResourceBusy);
    std::thread::spawn(move || job.run(&|_| {}).map(drop)).join().unwrap().unwrap();
    reopen(&folder, 1);
}

#[test]
fn tables_in_memory_keep_their_rows_and_are_never_frozen() {
    let mut tables = DiskTables::in_memory(time_of);
    tables.keys.put(key(1), at_time(1, 1));
    assert!(tables.freeze(payload(1), i64::MAX).is_none());
    assert_eq!(tables.keys.get(key(1)).unwrap(), Some(at_time(1, 1)));
}

#[test]
fn tables_in_memory_forget_keys_that_expired_and_no_others() {
    let mut tables = DiskTables::in_memory(time_of);
    tables.keys.put(key(1), at_time(9, 1));
    tables.keys.put(key(2), at_time(10, 2));
    tables.heads.put(key(1), head(1));
    tables.forget(10);
    let there = [1, 2].map(|n| tables.keys.get(key(n)).unwrap().is_some());
    assert_eq!((there, tables.heads.get(key(1)).unwrap()), ([false, true], Some(head(1))));
}

#[test]
fn starting_afresh_leaves_nothing_behind() {
    let (folder, mut tables) = fresh();
    tables.heads.put(key(1), head(1));
    checkpoint(&mut tables, 1, 0);
    drop(tables);
    let mut tables = DiskTables::fresh(folder.path(), time_of).unwrap();
    assert_eq!(tables.heads.get(key(1)).unwrap(), None);
    assert!(files(&folder).is_empty(), "{:?}", files(&folder));
    checkpoint(&mut tables, 2, 0);
    drop(tables);
    reopen(&folder, 2);
}
