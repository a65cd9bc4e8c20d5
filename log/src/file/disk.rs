//! The byte seam: everything the engine does to storage, in six calls on flat file names, a shortcut for one of them, and
//! the question how much room there is.
//!
//! - Nothing is durable before `sync`: contents by `sync(Some(name))`, the coming and going of names by `sync(None)`.
//! - A power cut may keep any part of what was not synced, sector by sector.
//! - There is no rename; the engine orders its steps so that it needs none.
//!
//! The seam is this narrow so that a power cut fits in a test (`testing::fault_disk`).

use std::io;

/// Zeros that are written at once.
const ZEROS_AT_ONCE: usize = 1024 * 1024;

/// The space of a volume, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeSpace {
    /// What is left for the broker.
    pub free: u64,
    /// All of it.
    pub total: u64,
}

/// A flat folder of files.
pub trait Disk: Send + Sync {
    /// Every file with its length.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Fills `buffer` from `offset` on; fewer bytes only where the file ends. `NotFound` where there is no such file.
    fn read(&self, name: &str, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// The same, if it is at hand; else `WouldBlock`. Never waits for the storage itself.
    fn read_cached(&self, _name: &str, _offset: u64, _buffer: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Puts all of `bytes` at `offset`, creating the file if it is missing. What is skipped reads as zeros, and a disk
    /// may leave zeros behind the bytes too.
    fn write(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Cuts (or extends with zeros) to `length`. `NotFound` where there is no such file.
    fn truncate(&self, name: &str, length: u64) -> io::Result<()>;

    /// Makes a file's contents durable, or with `None` which names the folder holds.
    fn sync(&self, name: Option<&str>) -> io::Result<()>;

    /// Takes up this much space with a new file, whose contents do not matter.
    fn allocate(&self, name: &str, bytes: u64) -> io::Result<()> {
        write_zeros(bytes, |offset, zeros| self.write(name, offset, zeros))
    }

    /// Takes the file away. `NotFound` where there is no such file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The space of the volume that the files lie on; `None` where nobody knows.
    fn space(&self) -> io::Result<Option<VolumeSpace>> {
        Ok(None)
    }
}

/// A disk that reads what is at hand and nothing else.
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

/// `remove`, content if the file was gone already.
pub(crate) fn discard(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
