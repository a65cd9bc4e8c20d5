//! The interface to storage: everything that the engine does to files, in six calls on flat file names, a non-blocking variant
//! of one, and the free space.
//!
//! - Nothing is durable before `sync`: contents by `sync(Some(name))`, creating and removing names by `sync(None)`.
//! - A power cut may keep any part of what was not synced, sector by sector.
//! - There is no rename; the engine orders its steps so that it needs none.
//!
//! The interface is this small so that a test can simulate power cuts (`testing::fault_disk`).

use std::io;

/// Zeros that are written at once.
const ZEROS_AT_ONCE: usize = 1024 * 1024;

/// The space of a volume, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeSpace {
    /// What is free for the broker.
    pub free: u64,
    /// The size of the volume.
    pub total: u64,
}

/// A flat folder of files.
pub trait Disk: Send + Sync {
    /// Every file with its length.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Fills `buffer` from `offset` on; fewer bytes only at the end of the file. `NotFound` if there is no such file.
    fn read(&self, name: &str, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// The same from the system's cache; `WouldBlock` if the bytes are not in it. Never waits for the storage.
    fn read_cached(&self, _name: &str, _offset: u64, _buffer: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Writes all of `bytes` at `offset`, and creates the file if it is missing. Skipped bytes read as zeros, and a disk may
    /// write zeros after the bytes too.
    fn write(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Truncates (or extends with zeros) to `length`. `NotFound` if there is no such file.
    fn truncate(&self, name: &str, length: u64) -> io::Result<()>;

    /// Makes a file's contents durable, or with `None` the names in the folder.
    fn sync(&self, name: Option<&str>) -> io::Result<()>;

    /// Creates a file that occupies this much space; its contents do not matter.
    fn allocate(&self, name: &str, bytes: u64) -> io::Result<()> {
        write_zeros(bytes, |offset, zeros| self.write(name, offset, zeros))
    }

    /// Removes the file. `NotFound` if there is no such file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The space of the volume of the files; `None` if unknown.
    fn space(&self) -> io::Result<Option<VolumeSpace>> {
        Ok(None)
    }
}

/// A disk that only reads from the system's cache.
pub(crate) struct CachedOnlyDisk<'a>(pub(crate) &'a dyn Disk);

impl Disk for CachedOnlyDisk<'_> {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.0.list()
    }

    fn read(&self, name: &str, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_cached(name, offset, buffer)
    }

    fn write(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write(name, offset, bytes)
    }

    fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        self.0.truncate(name, length)
    }

    fn sync(&self, name: Option<&str>) -> io::Result<()> {
        self.0.sync(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn space(&self) -> io::Result<Option<VolumeSpace>> {
        self.0.space()
    }
}

/// Writes this many zeros, some at a time.
pub(crate) fn write_zeros(bytes: u64, mut write: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
    let zeros = vec![0; ZEROS_AT_ONCE];
    let mut offset = 0;
    while offset < bytes {
        let length = (bytes - offset).min(ZEROS_AT_ONCE as u64);
        write(offset, zeros.get(..length as usize).unwrap_or_default())?;
        offset += length;
    }
    Ok(())
}

/// Whether a write failed because there is no room: on the volume, or within a quota.
#[must_use]
pub fn is_disk_full(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// `remove`, without an error if the file is gone already.
pub(crate) fn discard(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
