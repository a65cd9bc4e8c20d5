//! The real disk: one folder, and the lock that gives it to one process.
//!
//! - Small appends write zeros ahead of themselves, so that the next ones change no file length and their sync needs no
//!   journal commit (measured in `docs/format.md`). Trailing zeros mean nothing.
//! - Handles stay open between calls; `remove` lets go of one.

use super::Disk;
use crate::LogError;
#[cfg(target_os = "linux")]
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Appends shorter than this write zeros ahead; longer ones are bound by bandwidth, which zeros would waste.
const SMALL_APPEND_BYTES: usize = 32 * 1024;
/// Files grow to multiples of this when zeros are written ahead.
const AHEAD_BYTES: u64 = 1024 * 1024;
/// Open handles kept; beyond it all are closed and opened again as needed.
const HANDLES_MAX: usize = 512;

/// A [`Disk`] in a folder of the file system.
#[derive(Debug)]
pub struct FolderDisk {
    folder: PathBuf,
    handles: RwLock<HashMap<String, Arc<Handle>>>,
}

#[derive(Debug)]
struct Handle {
    file: File,
    /// Length of the file, zeros ahead included.
    length: AtomicU64,
}

impl FolderDisk {
    /// Opens a folder, creating it (durably) if it is missing.
    pub fn open(folder: &Path) -> io::Result<Self> {
        create_durably(folder)?;
        Ok(Self { folder: folder.canonicalize()?, handles: RwLock::default() })
    }

    /// The folder, absolute.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn handle(&self, name: &str, create: bool) -> io::Result<Arc<Handle>> {
        if let Some(handle) = self.handles.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Ok(Arc::clone(handle));
        }
        // The write lock is held while opening: a `remove` of the same name comes before or after, never in between.
        let mut handles = self.handles.write().unwrap_or_else(PoisonError::into_inner);
        let file =
            OpenOptions::new().read(true).write(true).create(create).truncate(false).open(self.folder.join(name))?;
        let length = AtomicU64::new(file.metadata()?.len());
        if handles.len() >= HANDLES_MAX {
            handles.clear();
        }
        let handle = Arc::clone(handles.entry(name.to_owned()).or_insert_with(|| Arc::new(Handle { file, length })));
        Ok(handle)
    }
}

impl Handle {
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let length = self.length.load(Ordering::Acquire);
        let end = offset + bytes.len() as u64;
        let appends = offset > 0 && offset <= length && end > length;
        if appends && bytes.len() < SMALL_APPEND_BYTES {
            let grown = end.next_multiple_of(AHEAD_BYTES);
            let mut padded = Vec::with_capacity((grown - offset) as usize);
            padded.extend_from_slice(bytes);
            padded.resize((grown - offset) as usize, 0);
            self.file.write_all_at(&padded, offset)?;
            self.length.store(grown, Ordering::Release);
        } else {
            self.file.write_all_at(bytes, offset)?;
            self.length.fetch_max(end, Ordering::AcqRel);
        }
        Ok(())
    }
}

/// Fills `buffer` by reading on until it is full or there is nothing more.
fn fill(
    buffer: &mut [u8],
    offset: u64,
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..)
        && !rest.is_empty()
    {
        match read(rest, offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(filled)
}

impl Disk for FolderDisk {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                found.push((name, metadata.len()));
            }
        }
        Ok(found)
    }

    fn read(&self, name: &str, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let handle = self.handle(name, false)?;
        fill(buffer, offset, |rest, offset| handle.file.read_at(rest, offset))
    }

    #[cfg(target_os = "linux")]
    fn read_at_hand(&self, name: &str, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let open = self.handles.read().unwrap_or_else(PoisonError::into_inner).get(name).map(Arc::clone);
        let handle = open.ok_or(io::ErrorKind::WouldBlock)?;
        fill(buffer, offset, |rest, offset| {
            let read = preadv2(&handle.file, &mut [io::IoSliceMut::new(rest)], offset, ReadWriteFlags::NOWAIT);
            // A file system that does not know the question answers it with something else.
            read.map_err(|cause| match cause {
                Errno::INTR => io::ErrorKind::Interrupted.into(),
                _ => io::ErrorKind::WouldBlock.into(),
            })
        })
    }

    fn write(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.handle(name, true)?.write(offset, bytes)
    }

    fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        let handle = self.handle(name, false)?;
        handle.file.set_len(length)?;
        handle.length.store(length, Ordering::Release);
        Ok(())
    }

    fn sync(&self, name: Option<&str>) -> io::Result<()> {
        match name {
            Some(name) => self.handle(name, false)?.file.sync_data(),
            None => File::open(&self.folder)?.sync_all(),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut handles = self.handles.write().unwrap_or_else(PoisonError::into_inner);
        handles.remove(name);
        fs::remove_file(self.folder.join(name))
    }
}

/// Creates a folder and those above it; what is written into it must not vanish with its name.
fn create_durably(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().unwrap_or(Path::new(""));
    create_durably(parent)?;
    match fs::create_dir(folder) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => return Err(cause),
        _ => {}
    }
    File::open(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?.sync_all()
}

/// A data folder held by this process; let go when dropped.
#[derive(Debug)]
pub struct FolderLock {
    file: File,
}

impl FolderLock {
    /// The lock's file in the data folder.
    pub const FILE: &'static str = "LOCK";

    /// Takes the folder, creating it if it is missing. [`LogError::Locked`] if another process (or this one) has it.
    pub fn acquire(folder: &Path) -> Result<Self, LogError> {
        create_durably(folder)?;
        let path = folder.join(Self::FILE);
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file }),
            Err(TryLockError::WouldBlock) => Err(LogError::Locked(folder.to_path_buf())),
            Err(TryLockError::Error(cause)) => Err(cause.into()),
        }
    }
}

impl Drop for FolderLock {
    /// Unlocks by word, not by closing: a child process forked a moment ago may still hold a copy of the open file.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}
