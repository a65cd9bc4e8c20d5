//! On-disk tables: the two parts of the state that grow with history, kept out of RAM.
//!
//! A table maps a `u128` key to a value of fixed size. Recent rows are in a RAM map, the rest in immutable sorted
//! *runs* on disk. A checkpoint freezes the map, writes it out as a run (merged with a few of the newest runs when the
//! tiering policy chooses so) and names all runs in a manifest, together with the caller's payload: the log position
//! that the rows are valid for, and the small state.
//!
//! ```text
//!   put ─► active map ──freeze──► frozen map ──CheckpointJob::run──► newest run │ … │ oldest run
//!   get ─► active map ──────────► frozen map ─► recent rows ───────► newest run │ … │ oldest run     first hit wins
//! ```
//!
//! - The log is the source of truth. The tables have no journal: what was put after the last checkpoint is folded from
//!   the log again, and a missing or damaged table is treated as empty and folded from the start of the log.
//! - Both tables and the payload change together: the rename of one manifest is the commit.
//! - Runs never change. A file is durable before a manifest names it, and deleted only after none does.
//! - Only the newest row of a key is visible; a replaced row never comes back, not even when the newer one
//!   expires.
//! - Bytes from disk are checked before they are used: a read returns the right value or an error.
//! - RAM holds the rows since the last checkpoint, some of those before it ([`recent_rows`]), and per row on disk 12
//!   bits for a filter and 1 bit for a fence.
//! - One checkpoint at a time, one owner per folder (a lock file says so).
//!
//! Left to others: *when* to checkpoint, which thread runs the [`CheckpointJob`], that only durable positions are
//! frozen, and what an expired row means: [`DiskTable::get`] may still return one until a merge drops it.

mod bloom_filter;
mod checkpoint_job;
mod folder;
mod format;
mod manifest;
mod merge;
mod recent_rows;
mod row_map;
mod run;
mod run_writer;
mod tiering;

#[cfg(test)]
mod tests;

pub(crate) use checkpoint_job::{CheckpointJob, CheckpointPayload, WrittenCheckpoint};
pub(crate) use row_map::KeyMap;

use bloom_filter::KeyProbe;
use checkpoint_job::{CheckpointFolder, TableCheckpoint, WrittenRuns};
use folder::LockedFolder;
use manifest::{CheckpointManifest, RunRef};
use recent_rows::RecentRows;
use row_map::RowMap;
use run::SortedRun;
use serde_json::value::RawValue;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tiering::TieringPolicy;

/// Bytes of an aggregate head's value.
pub(crate) const HEAD_BYTES: usize = 16;
/// Bytes of an idempotency key's value.
pub(crate) const KEY_BYTES: usize = 24;

/// The timestamp of a row. A checkpoint may drop a row whose timestamp is below its `expire_before`.
pub(crate) type RowTimestamp<const V: usize> = fn(&[u8; V]) -> i64;

/// The tables of one broker, with a common checkpoint.
#[derive(Debug)]
pub struct DiskTables {
    /// Aggregate heads. They never expire.
    pub heads: DiskTable<HEAD_BYTES>,
    /// The idempotency window.
    pub keys: DiskTable<KEY_BYTES>,
    /// Shared with a [`CheckpointJob`] and its [`WrittenCheckpoint`]: more than one holder means that a checkpoint is
    /// in progress. Tables in memory have no folder.
    shared: Option<Arc<CheckpointFolder>>,
    /// The number of the last checkpoint begun. Runs are named by it, so a failed checkpoint's number is not used
    /// again.
    number: u64,
}

/// Rows by key; see the module documentation.
#[derive(Debug)]
pub struct DiskTable<const V: usize> {
    name: &'static str,
    stamp: RowTimestamp<V>,
    policy: TieringPolicy,
    active: RowMap<V>,
    /// Rows that a job is writing, or that a failed job did not write.
    frozen: Arc<RowMap<V>>,
    /// Newest first.
    runs: Vec<Arc<SortedRun<V>>>,
    /// The rows put last among those that may be on disk.
    recent: RecentRows<V>,
}

/// What [`DiskTables::open`] found in the folder.
#[derive(Debug)]
pub enum FoundCheckpoint {
    /// A complete checkpoint, with its payload.
    Checkpoint(Box<RawValue>),
    /// There is no checkpoint. The tables are empty.
    Nothing,
    /// A checkpoint that cannot be trusted, and why. It was deleted, the tables are empty.
    Damaged(io::Error),
}

impl DiskTables {
    /// Opens the tables in `folder`, which is created if it is missing. Reads footers, fences and filters, no rows.
    ///
    /// An error means that the disk refused, or that another process owns the folder; nothing is deleted then.
    pub fn open(folder: &Path, key_stamp: RowTimestamp<KEY_BYTES>) -> io::Result<(Self, FoundCheckpoint)> {
        let shared = Arc::new(CheckpointFolder::lock(folder)?);
        match Self::load(&shared, key_stamp) {
            Ok(Some((tables, payload))) => Ok((tables, FoundCheckpoint::Checkpoint(payload))),
            Ok(None) => Ok((Self::empty(shared, key_stamp)?, FoundCheckpoint::Nothing)),
            Err(why) if is_damage(&why) => Ok((Self::empty(shared, key_stamp)?, FoundCheckpoint::Damaged(why))),
            Err(why) => Err(why),
        }
    }

    /// The payload of the checkpoint in `folder`, without opening the tables or changing anything.
    pub fn peek(folder: &Path) -> io::Result<Option<Box<RawValue>>> {
        manifest::peek(folder)
    }

    /// Empty tables in `folder`, whatever was there. Used after [`DiskTable::get`] or [`CheckpointJob::run`] found
    /// damage.
    pub fn fresh(folder: &Path, key_stamp: RowTimestamp<KEY_BYTES>) -> io::Result<Self> {
        Self::empty(Arc::new(CheckpointFolder::lock(folder)?), key_stamp)
    }

    /// Tables without a folder: all rows stay in RAM, and there are no checkpoints.
    pub fn in_memory(key_stamp: RowTimestamp<KEY_BYTES>) -> Self {
        Self { heads: DiskTable::new("heads", never), keys: DiskTable::new("keys", key_stamp), shared: None, number: 0 }
    }

    /// Drops expired keys from RAM. For tables without a folder this does what a checkpoint does for those on disk.
    pub fn forget(&mut self, expire_before: i64) {
        let stamp = self.keys.stamp;
        self.keys.active.retain(|_, row| stamp(row) >= expire_before);
    }

    /// Invalidates the checkpoint on disk: the next opening finds none and folds the log again. No job may be running.
    pub fn condemn(&mut self) -> io::Result<()> {
        self.shared.as_ref().map_or(Ok(()), |shared| CheckpointManifest::remove(&shared.folder))
    }

    /// Begins a checkpoint of all rows put so far; `payload` must describe the same moment. The job belongs on a
    /// background thread, and its result is passed to [`install`](Self::install).
    ///
    /// `None` while an earlier job or its result exists, and for tables in memory; nothing is frozen then.
    /// After a job that failed or was dropped, the next one includes its rows; a result that was dropped is
    /// installed now.
    pub fn freeze(&mut self, payload: CheckpointPayload, expire_before: i64) -> Option<CheckpointJob> {
        let shared = self.shared.clone()?;
        // Two holders are this one and the tables' own.
        if Arc::strong_count(&shared) > 2 {
            return None;
        }
        self.take_over();
        self.number += 1;
        let (heads, keys) = (self.heads.freeze(), self.keys.freeze());
        Some(CheckpointJob { shared, number: self.number, payload, expire_before, heads, keys })
    }

    /// Installs the runs that a job of these tables wrote, and drops their rows from RAM.
    pub fn install(&mut self, done: WrittenCheckpoint) {
        drop(done);
        self.take_over();
    }

    fn take_over(&mut self) {
        if let Some(WrittenRuns { heads, keys }) = self.shared.as_ref().and_then(|shared| shared.take()) {
            self.heads.install(heads);
            self.keys.install(keys);
            // An aggregate is looked up whenever it is written to; a key is hardly ever looked up again.
            self.heads.recent.begin();
        }
    }

    fn load(
        shared: &Arc<CheckpointFolder>,
        key_stamp: RowTimestamp<KEY_BYTES>,
    ) -> io::Result<Option<(Self, Box<RawValue>)>> {
        let folder = &shared.folder;
        let Some(manifest) = CheckpointManifest::read(folder)? else { return Ok(None) };
        let heads = DiskTable::open("heads", never, folder, &manifest.heads)?;
        let keys = DiskTable::open("keys", key_stamp, folder, &manifest.keys)?;
        let tables = Self { heads, keys, shared: Some(Arc::clone(shared)), number: manifest.number };
        folder.sweep(&[run::paths(&tables.heads.runs), run::paths(&tables.keys.runs)].concat());
        Ok(Some((tables, manifest.payload)))
    }

    fn empty(shared: Arc<CheckpointFolder>, key_stamp: RowTimestamp<KEY_BYTES>) -> io::Result<Self> {
        CheckpointManifest::remove(&shared.folder)?;
        shared.folder.sweep(&[]);
        Ok(Self { shared: Some(shared), ..Self::in_memory(key_stamp) })
    }
}

impl<const V: usize> DiskTable<V> {
    /// All rows of a table in memory, for tests that compare two.
    #[cfg(test)]
    pub(crate) fn rows(&self) -> std::collections::BTreeMap<u128, [u8; V]> {
        self.active.iter().map(|(key, row)| (*key, *row)).collect()
    }

    /// The value last put for `key`. A damaged run is an `InvalidData` error that names the file.
    pub fn get(&self, key: u128) -> io::Result<Option<[u8; V]>> {
        let in_ram = self.active.get(&key).or_else(|| self.frozen.get(&key)).or_else(|| self.recent.get(key));
        if let Some(value) = in_ram {
            return Ok(Some(*value));
        }
        let probe = KeyProbe::of(key);
        for run in &self.runs {
            if run.may_hold(&probe)
                && let Some(value) = run.get(key)?
            {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Sets the value of `key`. RAM only.
    pub fn put(&mut self, key: u128, value: [u8; V]) {
        self.active.insert(key, value);
        self.recent.put(key, value);
    }

    /// Rows in RAM: those not in a run yet. A key put both before and after a freeze counts twice.
    pub fn dirty_rows(&self) -> usize {
        self.active.len() + self.frozen.len()
    }

    fn new(name: &'static str, stamp: RowTimestamp<V>) -> Self {
        let (active, frozen) = (RowMap::default(), Arc::default());
        Self {
            name,
            stamp,
            policy: TieringPolicy::default(),
            active,
            frozen,
            runs: Vec::new(),
            recent: RecentRows::default(),
        }
    }

    fn open(name: &'static str, stamp: RowTimestamp<V>, folder: &LockedFolder, entries: &[RunRef]) -> io::Result<Self> {
        let runs = entries.iter().map(|entry| SortedRun::open(folder.run(name, entry.number), *entry).map(Arc::new));
        Ok(Self { runs: runs.collect::<io::Result<_>>()?, ..Self::new(name, stamp) })
    }

    fn freeze(&mut self) -> TableCheckpoint<V> {
        // The next active map gets the capacity of this one: growing step by step would rehash on the writer's task.
        let room = RowMap::with_capacity_and_hasher(self.active.len(), Default::default());
        let active = std::mem::replace(&mut self.active, room);
        if self.frozen.is_empty() {
            self.frozen = Arc::new(active);
        } else {
            Arc::make_mut(&mut self.frozen).extend(active);
        }
        let (rows, runs) = (Arc::clone(&self.frozen), self.runs.clone());
        TableCheckpoint { name: self.name, stamp: self.stamp, policy: self.policy, rows, runs }
    }

    fn install(&mut self, runs: Vec<Arc<SortedRun<V>>>) {
        self.runs = runs;
        self.frozen = Arc::default();
    }
}

/// The stamp of rows that never expire.
fn never<const V: usize>(_: &[u8; V]) -> i64 {
    i64::MAX
}

/// Whether an error while loading means that the bytes are not what was written, not that the disk refuses.
fn is_damage(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData)
}
