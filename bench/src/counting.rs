//! A disk that counts: what the engine writes and syncs, seen at its own seam.
//!
//! Only segment files count (`*.log`): indexes and marks are written beside the events, not for each of them.

use crate::raw::Pace;
use log::file::{Disk, FolderDisk};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A [`FolderDisk`] with counters.
pub(crate) struct CountingDisk {
    inner: FolderDisk,
    counters: Arc<Counters>,
    pace: Pace,
    /// Bytes written to segments and not synced yet.
    unsynced: AtomicU64,
}

/// Counts since the disk was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    syncs: AtomicU64,
    bytes: AtomicU64,
    nanos: AtomicU64,
}

/// What was counted in some stretch of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Counts {
    /// Calls of `fdatasync` on segments.
    pub(crate) syncs: u64,
    /// Bytes the engine asked to be written to segments.
    pub(crate) bytes: u64,
    /// How long the log's thread was in those writes and syncs, in nanoseconds.
    pub(crate) nanos: u64,
}

impl CountingDisk {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        Self::open_at(folder, Pace::default())
    }

    /// One that is no faster than this.
    pub(crate) fn open_at(folder: &Path, pace: Pace) -> io::Result<Self> {
        let inner = FolderDisk::open(folder)?;
        Ok(Self { inner, counters: Arc::default(), pace, unsynced: AtomicU64::new(0) })
    }

    /// Does something to a segment, counting it and its time.
    fn counted<T>(&self, counter: &AtomicU64, amount: u64, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let outcome = work();
        counter.fetch_add(amount, Ordering::Relaxed);
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.counters.nanos.fetch_add(nanos, Ordering::Relaxed);
        outcome
    }

    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

impl Counters {
    /// Everything so far.
    pub(crate) fn total(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts { syncs: load(&self.syncs), bytes: load(&self.bytes), nanos: load(&self.nanos) }
    }
}

impl Counts {
    /// What came after `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self { syncs: self.syncs - earlier.syncs, bytes: self.bytes - earlier.bytes, nanos: self.nanos - earlier.nanos }
    }
}

fn is_segment(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "log")
}

impl Disk for CountingDisk {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.inner.list()
    }

    fn read(&self, name: &str, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(name, offset, buffer)
    }

    fn read_cached(&self, name: &str, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read_cached(name, offset, buffer)
    }

    fn write(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let write = || self.inner.write(name, offset, bytes);
        if !is_segment(name) {
            return write();
        }
        self.unsynced.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.counted(&self.counters.bytes, bytes.len() as u64, write)
    }

    fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        self.inner.truncate(name, length)
    }

    fn sync(&self, name: Option<&str>) -> io::Result<()> {
        let sync = || self.inner.sync(name);
        if !name.is_some_and(is_segment) {
            return sync();
        }
        let bytes = self.unsynced.swap(0, Ordering::Relaxed);
        self.counted(&self.counters.syncs, 1, || self.pace.keep(bytes, sync))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_segments_count() {
        let folder = std::env::temp_dir().join(format!("bench-counting-{}", std::process::id()));
        let disk = CountingDisk::open(&folder).unwrap();
        disk.write("a.log", 0, b"four").unwrap();
        disk.write("a.idx", 0, b"not counted").unwrap();
        disk.sync(Some("a.log")).unwrap();
        disk.sync(Some("a.idx")).unwrap();
        disk.sync(None).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let Counts { syncs, bytes, nanos } = disk.counters().total();
        assert_eq!((syncs, bytes), (1, 4));
        assert!(nanos > 0);
    }
}
