//! Expired rows are dropped, and no older row that they hid comes back.

use super::*;
use tiering::TieringPolicy;

/// So that three rows are a tier above one row.
const TINY: TieringPolicy = TieringPolicy { factor: 2, small_rows: 1, runs_max: 12 };

#[test]
fn a_merge_drops_expired_rows_and_keeps_the_others() {
    let (folder, mut tables) = fresh();
    for n in 0..4 {
        tables.keys.put(key(n), at_time(n as i64 * 10, n));
        tables.keys.put(key(n + 100), at_time(99, n));
        checkpoint(&mut tables, n, if n == 3 { 20 } else { 0 });
    }
    (100..104).for_each(|n| assert!(tables.keys.get(key(n)).unwrap().is_some()));
    let seen: Vec<_> = (0..4).map(|n| tables.keys.get(key(n)).unwrap().map(|value| time_of(&value))).collect();
    assert_eq!(seen, [None, None, Some(20), Some(30)]);
    assert_eq!(files(&folder), ["keys-4.run", "manifest.json"]);
}

#[test]
fn a_run_that_is_all_expired_goes_without_being_read() {
    let (folder, mut tables) = fresh();
    tables.keys.put(key(1), at_time(10, 1));
    tables.keys.put(key(2), at_time(19, 2));
    checkpoint(&mut tables, 1, 0);
    tables.keys.put(key(3), at_time(20, 3));
    checkpoint(&mut tables, 2, 0);
    // Rows that cannot be read: reading them would fail the checkpoint.
    let path = folder.path().join("keys-1.run");
    let mut bytes = fs::read(&path).unwrap();
    bytes[format::HEADER_BYTES as usize] ^= 1;
    fs::write(&path, bytes).unwrap();
    checkpoint(&mut tables, 3, 20);
    assert_eq!(files(&folder), ["keys-2.run", "manifest.json"]);
    assert_eq!(tables.keys.get(key(1)).unwrap(), None);
    assert_eq!(tables.keys.get(key(3)).unwrap(), Some(at_time(20, 3)));
}

#[test]
fn a_checkpoint_of_nothing_but_expired_rows_writes_no_run() {
    let (folder, mut tables) = fresh();
    tables.keys.put(key(1), at_time(10, 1));
    checkpoint(&mut tables, 1, 50);
    assert_eq!(tables.keys.get(key(1)).unwrap(), None);
    assert_eq!(files(&folder), ["manifest.json"]);
    drop(tables);
    reopen(&folder, 1);
}

#[test]
fn heads_never_expire() {
    let (_folder, mut tables) = fresh();
    for n in 0..4 {
        tables.heads.put(key(n), head(n));
        checkpoint(&mut tables, n, i64::MAX);
    }
    (0..4).for_each(|n| assert_eq!(tables.heads.get(key(n)).unwrap(), Some(head(n))));
}

#[test]
fn an_expired_row_does_not_uncover_the_row_it_replaced() {
    let (_folder, mut tables) = fresh();
    tables.keys.policy = TINY;
    // An old large run, in which key 1 has a *later* time than the row that replaces it.
    (0..8).for_each(|n| tables.keys.put(key(n), at_time(100, n)));
    checkpoint(&mut tables, 1, 0);
    tables.keys.put(key(1), at_time(10, 77));
    checkpoint(&mut tables, 2, 0);
    tables.keys.put(key(50), at_time(100, 50));
    checkpoint(&mut tables, 3, 20);
    assert_eq!(tables.keys.runs.len(), 2, "the two small runs were merged, the large one was not");
    assert_eq!(tables.keys.get(key(1)).unwrap(), Some(at_time(10, 77)));
}

#[test]
fn an_expired_run_is_kept_while_an_older_one_is_not() {
    let (_folder, mut tables) = fresh();
    tables.keys.put(key(1), at_time(100, 1));
    checkpoint(&mut tables, 1, 0);
    tables.keys.put(key(1), at_time(10, 2));
    checkpoint(&mut tables, 2, 0);
    checkpoint(&mut tables, 3, 50);
    assert_eq!(tables.keys.get(key(1)).unwrap(), Some(at_time(10, 2)));
}
