//! A disk that counts: what the engine writes and syncs, seen at its own seam.
//!
//! Only segment files count (`*.log`): indexes and marks are written beside the events, not for each of them.

use log::file::{Disk, FolderDisk};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A [`FolderDisk`] with counters.
pub(crate) struct CountingDisk {
    inner: FolderDisk,
    counters: Arc<Counters>,
}

/// Counts since the disk was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    syncs: AtomicU64,
    bytes: AtomicU64,
}

/// What was counted in some stretch of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Counts {
    /// Calls of `fdatasync` on segments.
    pub(crate) syncs: u64,
    /// Bytes the engine asked to be written to segments.
    pub(crate) bytes: u64,
}

impl CountingDisk {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        Ok(Self { inner: FolderDisk::open(folder)?, counters: Arc::default() })
    }

    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

impl Counters {
    /// Everything so far.
    pub(crate) fn total(&self) -> Counts {
        Counts { syncs: self.syncs.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }
}

impl Counts {
    /// What came after `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self { syncs: self.syncs - earlier.syncs, bytes: self.bytes - earlier.bytes }
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

    fn write(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if is_segment(name) {
            self.counters.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        self.inner.write(name, offset, bytes)
    }

    fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        self.inner.truncate(name, length)
    }

    fn sync(&self, name: Option<&str>) -> io::Result<()> {
        if name.is_some_and(is_segment) {
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.sync(name)
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
        assert_eq!(disk.counters().total(), Counts { syncs: 1, bytes: 4 });
    }
}
