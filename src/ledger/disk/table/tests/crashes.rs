//! A process that dies at a crash point: the checkpoint found afterwards is the old or the new one, complete.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs a fourth checkpoint that dies at `point`, opens again and expects checkpoint `number` to be valid.
fn dies_at(point: &'static str, number: u64) {
    let (folder, mut tables) = fresh();
    let put = |tables: &mut DiskTables, n: u64| {
        tables.heads.put(key(0), head(n));
        tables.heads.put(key(n), head(n));
        tables.keys.put(key(n), at_time(n as i64, n));
    };
    for n in 1..=3 {
        put(&mut tables, n);
        checkpoint(&mut tables, n, 0);
    }
    put(&mut tables, 4);
    // The fourth merges the first three and drops a row, so it changes every file.
    let job = tables.freeze(payload(4), 2).unwrap();
    let died = catch_unwind(AssertUnwindSafe(|| {
        job.run(&|name| {
            if name == point {
                resume_unwind(Box::new(name))
            }
        })
    }));
    assert_eq!(died.unwrap_err().downcast_ref(), Some(&point));
    drop(tables);

    let tables = reopen(&folder, number);
    assert_eq!(tables.heads.get(key(0)).unwrap(), Some(head(number)));
    for n in 1..=4 {
        assert_eq!(tables.heads.get(key(n)).unwrap(), (n <= number).then(|| head(n)), "{point}: head {n}");
        let kept = n <= number && (number < 4 || n >= 2);
        assert_eq!(tables.keys.get(key(n)).unwrap(), kept.then(|| at_time(n as i64, n)), "{point}: key {n}");
    }
    let runs = tables.heads.runs.len() + tables.keys.runs.len();
    assert_eq!(files(&folder).len(), runs + 1, "{point}: {:?}", files(&folder));
    goes_on(&folder, tables, number);
}

/// The checkpoint after the crash is complete.
fn goes_on(folder: &TempDir, mut tables: DiskTables, number: u64) {
    tables.heads.put(key(5), head(5));
    checkpoint(&mut tables, 5, 0);
    drop(tables);
    let tables = reopen(folder, 5);
    assert_eq!(tables.heads.get(key(0)).unwrap(), Some(head(number)));
    assert_eq!(tables.heads.get(key(5)).unwrap(), Some(head(5)));
}

#[test]
fn before_the_rename_the_old_checkpoint_is_in_force() {
    dies_at("checkpoint.before_runs", 3);
    dies_at("checkpoint.after_runs", 3);
    dies_at("checkpoint.after_manifest_write", 3);
}

#[test]
fn from_the_rename_on_the_new_checkpoint_is_in_force() {
    dies_at("checkpoint.after_manifest_rename", 4);
    dies_at("checkpoint.after_sweep", 4);
}

#[test]
fn a_torn_manifest_beside_the_one_in_force_is_ignored() {
    let (folder, mut tables) = fresh();
    tables.heads.put(key(1), head(1));
    checkpoint(&mut tables, 1, 0);
    drop(tables);
    let whole = fs::read(folder.path().join("manifest.json")).unwrap();
    fs::write(folder.path().join("manifest.tmp"), &whole[..whole.len() / 2]).unwrap();
    assert_eq!(reopen(&folder, 1).heads.get(key(1)).unwrap(), Some(head(1)));
}

#[test]
fn the_points_are_crossed_in_order() {
    let (_folder, mut tables) = fresh();
    let crossed = std::cell::RefCell::new(Vec::new());
    tables.freeze(payload(1), 0).unwrap().run(&|name| crossed.borrow_mut().push(name)).unwrap();
    assert_eq!(
        crossed.into_inner(),
        [
            "checkpoint.before_runs",
            "checkpoint.after_runs",
            "checkpoint.after_manifest_write",
            "checkpoint.after_manifest_rename",
            "checkpoint.after_sweep",
        ]
    );
}
