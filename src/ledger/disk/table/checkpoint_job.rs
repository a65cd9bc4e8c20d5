//! Writes a checkpoint on a background thread, while the owner of the tables continues.
//!
//! The order is the invariant: runs durable → manifest durable beside the old one → rename → folder synced → sweep.
//! Until the rename the old checkpoint is valid, from then on the new one; each finds all its files.
//!
//! RAM while it runs: the frozen rows a second time, sorted, one table after the other; the fences and filters of the
//! new runs; and some 200 KB for each run that is merged.

use super::bloom_filter::KeyProbe;
use super::folder::{LockedFolder, remove_or_leave};
use super::manifest::{CheckpointManifest, RunRef};
use super::merge::{MergeSource, RunMerge};
use super::row_map::{self, RowMap};
use super::run::{SortedRun, paths};
use super::run_writer::RunWriter;
use super::tiering::TieringPolicy;
use super::{HEAD_BYTES, KEY_BYTES, RowTimestamp};
use serde_json::value::RawValue;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The payload that the owner stores with a checkpoint. The job serialises it, because that may take a while.
pub(crate) type CheckpointPayload = Box<dyn Fn() -> io::Result<Box<RawValue>> + Send>;

/// A checkpoint to be written.
pub struct CheckpointJob {
    pub(super) shared: Arc<CheckpointFolder>,
    pub(super) number: u64,
    pub(super) payload: CheckpointPayload,
    pub(super) expire_before: i64,
    pub(super) heads: TableCheckpoint<HEAD_BYTES>,
    pub(super) keys: TableCheckpoint<KEY_BYTES>,
}

/// The result of a written checkpoint, for [`DiskTables::install`](super::DiskTables::install).
#[derive(Debug)]
pub struct WrittenCheckpoint {
    /// The size of the serialised payload.
    pub(crate) payload_bytes: usize,
    /// No other checkpoint begins until this is installed or dropped.
    _shared: Arc<CheckpointFolder>,
}

/// What the tables, a job and its result share.
#[derive(Debug)]
pub(super) struct CheckpointFolder {
    pub(super) folder: LockedFolder,
    /// What a job wrote and the tables have not installed. It is here and not in [`WrittenCheckpoint`] because it must
    /// not get lost: the runs it replaces are deleted already, and a manifest that named them again would name missing
    /// files.
    written: Mutex<Option<WrittenRuns>>,
}

/// The runs of a written checkpoint, newest first.
#[derive(Debug)]
pub(super) struct WrittenRuns {
    pub(super) heads: Vec<Arc<SortedRun<HEAD_BYTES>>>,
    pub(super) keys: Vec<Arc<SortedRun<KEY_BYTES>>>,
}

/// One table's share of a job.
#[derive(Debug)]
pub(super) struct TableCheckpoint<const V: usize> {
    pub(super) name: &'static str,
    pub(super) stamp: RowTimestamp<V>,
    pub(super) policy: TieringPolicy,
    pub(super) rows: Arc<RowMap<V>>,
    /// Newest first.
    pub(super) runs: Vec<Arc<SortedRun<V>>>,
}

impl CheckpointJob {
    /// Writes the checkpoint. `crash_point` is called with a name around each durable step.
    ///
    /// After an error the tables are unchanged, and the next checkpoint includes these rows. On disk the old
    /// checkpoint is valid, or this one if the error came after the rename; both are complete.
    pub fn run(self, crash_point: &dyn Fn(&'static str)) -> io::Result<WrittenCheckpoint> {
        crash_point("checkpoint.before_runs");
        let folder = &self.shared.folder;
        let written = self.write(folder, crash_point).inspect_err(|_| self.remove_written(folder));
        let (written, payload_bytes) = written?;
        CheckpointManifest::rename(folder)?;
        crash_point("checkpoint.after_manifest_rename");
        // Before the sweep: a power failure must not bring back the old manifest without its files.
        folder.sync()?;
        let named = [paths(&written.heads), paths(&written.keys)].concat();
        self.shared.put(written);
        folder.sweep(&named);
        crash_point("checkpoint.after_sweep");
        Ok(WrittenCheckpoint { payload_bytes, _shared: Arc::clone(&self.shared) })
    }

    /// Writes everything that the new checkpoint needs beside the old one. Returns the size of its payload, too.
    fn write(&self, folder: &LockedFolder, crash_point: &dyn Fn(&'static str)) -> io::Result<(WrittenRuns, usize)> {
        let heads = self.heads.write(folder, self.number, self.expire_before)?;
        let keys = self.keys.write(folder, self.number, self.expire_before)?;
        folder.sync()?;
        crash_point("checkpoint.after_runs");
        let (number, payload) = (self.number, (self.payload)()?);
        CheckpointManifest { number, heads: entries(&heads), keys: entries(&keys), payload: &*payload }
            .write(folder)?;
        crash_point("checkpoint.after_manifest_write");
        Ok((WrittenRuns { heads, keys }, payload.get().len()))
    }

    /// Frees the space again after a failure before the rename: on a full disk there would never be a sweep.
    fn remove_written(&self, folder: &LockedFolder) {
        let written = [self.heads.name, self.keys.name].map(|name| folder.run(name, self.number));
        for path in written.into_iter().chain([folder.next_manifest()]) {
            remove_or_leave(&path);
        }
    }
}

impl CheckpointFolder {
    /// Locks the folder for this process.
    pub(super) fn lock(folder: &Path) -> io::Result<Self> {
        Ok(Self { folder: LockedFolder::lock(folder)?, written: Mutex::default() })
    }

    /// Takes what a job wrote, if it has not been taken yet.
    pub(super) fn take(&self) -> Option<WrittenRuns> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, written: WrittenRuns) {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = Some(written);
    }
}

impl<const V: usize> TableCheckpoint<V> {
    /// Writes the new rows, merged with the runs that the tiering policy chooses. Returns the table's runs after that.
    fn write(&self, folder: &LockedFolder, number: u64, expire_before: i64) -> io::Result<Vec<Arc<SortedRun<V>>>> {
        let shapes: Vec<_> = self.runs.iter().map(|run| run.shape()).collect();
        let choice = self.policy.choose(self.rows.len() as u64, &shapes, expire_before);
        let (kept, _) = self.runs.split_at_checked(self.runs.len() - choice.drop).unwrap_or_default();
        let (merged, older) = kept.split_at_checked(choice.merge).unwrap_or_default();
        let mut runs = older.to_vec();
        if !self.rows.is_empty() {
            let writer = RunWriter::create(folder.run(self.name, number), number, self.rows_with(merged))?;
            let run = self.merge(merged, older, expire_before, writer)?;
            runs.splice(..0, run.map(Arc::new));
        }
        Ok(runs)
    }

    fn rows_with(&self, merged: &[Arc<SortedRun<V>>]) -> u64 {
        self.rows.len() as u64 + merged.iter().map(|run| run.shape().rows).sum::<u64>()
    }

    fn merge(
        &self,
        merged: &[Arc<SortedRun<V>>],
        older: &[Arc<SortedRun<V>>],
        expire_before: i64,
        mut writer: RunWriter<V>,
    ) -> io::Result<Option<SortedRun<V>>> {
        let mut sources = vec![MergeSource::rows(row_map::sorted(&self.rows))];
        for run in merged {
            sources.push(MergeSource::run(Arc::clone(run))?);
        }
        let mut merge = RunMerge(sources);
        while let Some((key, value)) = merge.next()? {
            let stamp = (self.stamp)(&value);
            // An expired row stays while it may hide an older one, which must not come back.
            if stamp >= expire_before || may_hold(older, key) {
                writer.push(key, &value, stamp)?;
            }
        }
        writer.finish()
    }
}

fn may_hold<const V: usize>(runs: &[Arc<SortedRun<V>>], key: u128) -> bool {
    let probe = KeyProbe::of(key);
    runs.iter().any(|run| run.may_hold(&probe))
}

fn entries<const V: usize>(runs: &[Arc<SortedRun<V>>]) -> Vec<RunRef> {
    runs.iter().map(|run| run.entry).collect()
}
