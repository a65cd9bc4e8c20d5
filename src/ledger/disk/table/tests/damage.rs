//! Bytes that are not what was written: opening or reading reports them, and no value is ever wrong.

use super::*;

const ROWS: u64 = 4 * format::BLOCK_ROWS + 4;

/// Tables of three blocks each, in two runs each.
fn written() -> TempDir {
    let (folder, mut tables) = fresh();
    for half in 0..2 {
        for n in (half * ROWS / 2)..((half + 1) * ROWS / 2) {
            tables.heads.put(key(n), head(n));
            tables.keys.put(key(n), at_time(n as i64, n));
        }
        checkpoint(&mut tables, half, 0);
    }
    folder
}

/// Opens a copy of `folder` in which `file` has other bytes. Returns whether opening or reading noticed the damage.
fn notices(folder: &TempDir, file: &str, bytes: &[u8]) -> bool {
    let copy = tempfile::tempdir().unwrap();
    for name in files(folder).iter().filter(|name| *name != file) {
        fs::hard_link(folder.path().join(name), copy.path().join(name)).unwrap();
    }
    fs::write(copy.path().join(file), bytes).unwrap();
    let (tables, found) = DiskTables::open(copy.path(), time_of).unwrap();
    match found {
        FoundCheckpoint::Damaged(why) => {
            assert!(why.to_string().contains(file), "{why}");
            assert!(files(&copy).is_empty(), "a damaged checkpoint is deleted");
            assert_eq!(tables.heads.get(key(0)).unwrap(), None);
            true
        }
        FoundCheckpoint::Checkpoint(found) => {
            assert_eq!(found.get(), payload(1)().unwrap().get());
            (0..ROWS).fold(false, |noticed, n| {
                let heads = right_or_damaged(tables.heads.get(key(n)), head(n), file);
                let keys = right_or_damaged(tables.keys.get(key(n)), at_time(n as i64, n), file);
                noticed | heads | keys
            })
        }
        FoundCheckpoint::Nothing => panic!("the manifest is missing"),
    }
}

fn right_or_damaged<const V: usize>(got: io::Result<Option<[u8; V]>>, right: [u8; V], file: &str) -> bool {
    match got {
        Ok(value) => {
            assert_eq!(value, Some(right));
            false
        }
        Err(why) => {
            assert_eq!(why.kind(), io::ErrorKind::InvalidData);
            assert!(why.to_string().contains(file), "{why}");
            true
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_run_is_noticed() {
    let folder = written();
    for file in ["heads-1.run", "keys-2.run"] {
        let whole = fs::read(folder.path().join(file)).unwrap();
        assert!(!notices(&folder, file, &whole));
        // All of the header and of what follows the rows, and some bytes of every row.
        let dense = whole.len() - 1300;
        for place in (0..whole.len()).filter(|place| *place < 40 || *place > dense || place % 7 == 0) {
            let mut bytes = whole.clone();
            bytes[place] ^= 1 << (place % 8);
            assert!(notices(&folder, file, &bytes), "{file}: byte {place} of {}", whole.len());
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_in_the_manifest_is_noticed() {
    let folder = written();
    let whole = fs::read(folder.path().join("manifest.json")).unwrap();
    for place in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[place] ^= 1 << bit;
            assert!(notices(&folder, "manifest.json", &bytes), "byte {place}, bit {bit}");
        }
    }
}

#[test]
fn a_file_cut_short_or_grown_is_noticed() {
    let folder = written();
    for file in ["heads-1.run", "keys-2.run", "manifest.json"] {
        let whole = fs::read(folder.path().join(file)).unwrap();
        for length in [0, 1, 23, 24, 55, whole.len() / 2, whole.len() - 1] {
            assert!(notices(&folder, file, &whole[..length]), "{file} cut to {length}");
        }
        assert!(notices(&folder, file, &[&whole[..], b"!"].concat()), "{file} grown");
    }
}

#[test]
fn a_run_in_the_place_of_another_is_noticed() {
    let folder = written();
    let other = fs::read(folder.path().join("heads-2.run")).unwrap();
    assert!(notices(&folder, "heads-1.run", &other));
}

#[test]
fn a_run_of_the_same_name_and_length_from_another_life_is_noticed() {
    let folder = written();
    let (other, mut tables) = fresh();
    (0..ROWS / 2).for_each(|n| tables.heads.put(key(n), head(n + 1)));
    checkpoint(&mut tables, 1, 0);
    let stranger = fs::read(other.path().join("heads-1.run")).unwrap();
    assert_eq!(stranger.len(), fs::read(folder.path().join("heads-1.run")).unwrap().len());
    assert!(notices(&folder, "heads-1.run", &stranger));
}

#[test]
fn blocks_that_changed_places_are_noticed() {
    let folder = written();
    let whole = fs::read(folder.path().join("heads-1.run")).unwrap();
    let (start, length) = (format::HEADER_BYTES as usize, format::block_bytes::<HEAD_BYTES>() as usize);
    let [first, second] = [start..start + length, start + length..start + 2 * length];

    let mut swapped = whole.clone();
    swapped[first.clone()].copy_from_slice(&whole[second.clone()]);
    swapped[second].copy_from_slice(&whole[first.clone()]);
    assert!(notices(&folder, "heads-1.run", &swapped));

    let other = fs::read(folder.path().join("heads-2.run")).unwrap();
    let mut mixed = whole;
    mixed[first.clone()].copy_from_slice(&other[first]);
    assert!(notices(&folder, "heads-1.run", &mixed));
}

#[test]
fn a_missing_run_is_noticed() {
    let folder = written();
    fs::remove_file(folder.path().join("keys-1.run")).unwrap();
    let (tables, found) = DiskTables::open(folder.path(), time_of).unwrap();
    assert!(matches!(&found, FoundCheckpoint::Damaged(why) if why.to_string().contains("keys-1.run")), "{found:?}");
    assert_eq!(tables.heads.get(key(0)).unwrap(), None);
    assert!(files(&folder).is_empty());
}

#[test]
fn a_manifest_of_another_version_is_not_believed() {
    let folder = written();
    let text = fs::read_to_string(folder.path().join("manifest.json")).unwrap();
    assert!(notices(&folder, "manifest.json", text.replacen("\"version\":1", "\"version\":2", 1).as_bytes()));
}

#[test]
fn what_the_disk_refuses_to_read_is_an_error_and_deletes_nothing() {
    let folder = written();
    let before = files(&folder);
    // A link to itself is a file that exists and that no user can open.
    let path = folder.path().join("keys-1.run");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&path, &path).unwrap();
    let why = DiskTables::open(folder.path(), time_of).unwrap_err();
    assert!(why.to_string().contains("keys-1.run"), "{why}");
    assert_eq!(files(&folder), before);
}

#[test]
fn a_merge_that_meets_damage_fails_and_leaves_the_old_checkpoint_and_no_litter() {
    let (folder, mut tables) = fresh();
    for n in 1..=3 {
        tables.heads.put(key(n), head(n));
        checkpoint(&mut tables, n, 0);
    }
    let path = folder.path().join("heads-2.run");
    let whole = fs::read(&path).unwrap();
    let mut bytes = whole.clone();
    bytes[format::HEADER_BYTES as usize + 3] ^= 4;
    fs::write(&path, bytes).unwrap();
    let before = files(&folder);
    tables.heads.put(key(4), head(4));
    let why = tables.freeze(payload(4), 0).unwrap().run(&|_| {}).unwrap_err();
    assert_eq!(why.kind(), io::ErrorKind::InvalidData);
    assert!(why.to_string().contains("heads-2.run"), "{why}");
    assert_eq!(files(&folder), before);
    assert_eq!(tables.heads.get(key(4)).unwrap(), Some(head(4)));
    // Once it can be read again, the next checkpoint includes the rows.
    fs::write(&path, whole).unwrap();
    checkpoint(&mut tables, 5, 0);
    drop(tables);
    assert_eq!(reopen(&folder, 5).heads.get(key(4)).unwrap(), Some(head(4)));
}
