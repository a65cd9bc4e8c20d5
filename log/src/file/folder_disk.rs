//! The real disk: a folder, and the lock with which one process owns it.
//!
//! - Small appends write zeros ahead of themselves, so that the next ones change no file length and their sync needs no
//!   journal commit (measured in `docs/format.md`). Trailing zeros have no meaning.
//! - Handles stay open between calls, within the bound of their [`OpenFiles`]; `remove` closes one.
//! - Files are created with mode 0600, folders with 0700: only the owner may use them.

use super::Disk;
use super::disk::VolumeSpace;
#[cfg(target_os = "linux")]
use super::disk::write_zeros;
use super::open_files::{FileHandle, FileHandles, OPEN_FILES_DEFAULT, OpenFiles};
use crate::LogError;
#[cfg(target_os = "linux")]
use rustix::fs::{FallocateFlags, fallocate};
use rustix::fs::{StatVfs, fstatvfs, statvfs};
#[cfg(target_os = "linux")]
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// Appends shorter than this write zeros ahead; longer ones are limited by bandwidth, which zeros would waste.
const SMALL_APPEND_BYTES: usize = 32 * 1024;
/// Files grow to multiples of this when zeros are written ahead.
const AHEAD_BYTES: u64 = 1024 * 1024;
/// The modes of files and folders that are created here.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// Options that create a file only for its owner, whatever the umask allows.
#[must_use]
pub fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// Creates folders only for their owner, with missing ones above them.
#[must_use]
pub fn private_folder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(FOLDER_MODE);
    builder
}

/// A [`Disk`] in a folder of the file system.
#[derive(Debug)]
pub struct FolderDisk {
    folder: PathBuf,
    /// The folder itself, open: making names durable needs no further descriptor.
    opened: File,
    handles: Arc<FileHandles>,
    files: Arc<OpenFiles>,
}

impl FolderDisk {
    /// Opens a folder, creating it (durably) if it is missing.
    pub fn open(folder: &Path) -> io::Result<Self> {
        Self::open_with(folder, OpenFiles::new(OPEN_FILES_DEFAULT))
    }

    /// The same, with a bound on open files that is shared with other disks.
    pub fn open_with(folder: &Path, files: Arc<OpenFiles>) -> io::Result<Self> {
        create_durably(folder)?;
        let folder = folder.canonicalize()?;
        let opened = files.with_room(|| File::open(&folder))?;
        let handles = Arc::default();
        files.register(&handles);
        Ok(Self { folder, opened, handles, files })
    }

    /// The folder, absolute.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn handle(&self, name: &str, create: bool) -> io::Result<Arc<FileHandle>> {
        if let Some(handle) = self.open_handle(name) {
            handle.touch();
            return Ok(handle);
        }
        self.files.make_room();
        let handle = self.files.with_room(|| {
            // The write lock is held while opening: a `remove` of the same name happens before or after, never in between.
            let mut handles = self.handles.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(handle) = handles.get(name) {
                return Ok(Arc::clone(handle));
            }
            let mut options = private_file();
            options.read(true).write(true).create(create).truncate(false);
            let handle = Arc::new(self.files.handle(options.open(self.folder.join(name))?)?);
            handles.insert(name.to_owned(), Arc::clone(&handle));
            Ok(handle)
        })?;
        self.files.refill();
        Ok(handle)
    }

    fn open_handle(&self, name: &str) -> Option<Arc<FileHandle>> {
        self.handles.read().unwrap_or_else(PoisonError::into_inner).get(name).map(Arc::clone)
    }

    #[cfg(test)]
    pub(crate) fn is_open(&self, name: &str) -> bool {
        self.open_handle(name).is_some()
    }
}

impl FileHandle {
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.mark_unsynced();
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

/// Fills `buffer` by repeated reads until it is full or the file ends.
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
        for entry in self.files.with_room(|| fs::read_dir(&self.folder))? {
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
    fn read_cached(&self, name: &str, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let handle = self.open_handle(name).ok_or(io::ErrorKind::WouldBlock)?;
        handle.touch();
        fill(buffer, offset, |rest, offset| {
            let read = preadv2(&handle.file, &mut [io::IoSliceMut::new(rest)], offset, ReadWriteFlags::NOWAIT);
            // A file system without support returns another error.
            read.map_err(|cause| match cause {
                Errno::INTR => io::ErrorKind::Interrupted.into(),
                _ => io::ErrorKind::WouldBlock.into(),
            })
        })
    }

    fn write(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.handle(name, true)?.write(offset, bytes)
    }

    #[cfg(target_os = "linux")]
    fn allocate(&self, name: &str, bytes: u64) -> io::Result<()> {
        let handle = self.handle(name, true)?;
        match fallocate(&handle.file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            // Without support: zeros occupy space too.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                write_zeros(bytes, |offset, zeros| handle.write(offset, zeros))
            }
            Err(cause) => Err(cause.into()),
        }
    }

    fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        let handle = self.handle(name, false)?;
        handle.file.set_len(length)?;
        handle.length.store(length, Ordering::Release);
        Ok(())
    }

    fn sync(&self, name: Option<&str>) -> io::Result<()> {
        match name {
            Some(name) => self.handle(name, false)?.sync(),
            None => self.opened.sync_all(),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut handles = self.handles.write().unwrap_or_else(PoisonError::into_inner);
        handles.remove(name);
        fs::remove_file(self.folder.join(name))
    }

    fn space(&self) -> io::Result<Option<VolumeSpace>> {
        Ok(space_of(&fstatvfs(&self.opened)?))
    }
}

/// The space of a folder's volume; `None` if the file system does not report it.
pub fn volume_space(folder: &Path) -> io::Result<Option<VolumeSpace>> {
    Ok(space_of(&statvfs(folder)?))
}

fn space_of(volume: &StatVfs) -> Option<VolumeSpace> {
    let bytes = |blocks: u64| blocks.saturating_mul(volume.f_frsize);
    let space = VolumeSpace { free: bytes(volume.f_bavail), total: bytes(volume.f_blocks) };
    // Some network file systems report zeros.
    (space.total > 0).then_some(space)
}

/// Creates a folder and those above it, only for their owner; durably, so that its contents are not lost with its name.
fn create_durably(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().unwrap_or(Path::new(""));
    create_durably(parent)?;
    match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => return Err(cause),
        _ => {}
    }
    File::open(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?.sync_all()
}

/// A data folder locked by this process; unlocked when dropped.
#[derive(Debug)]
pub struct FolderLock {
    file: File,
}

impl FolderLock {
    /// The lock's file in the data folder.
    pub const FILE: &'static str = "LOCK";

    /// Locks the folder, and creates it if it is missing. [`LogError::Locked`] if another process (or this one) has the lock.
    pub fn acquire(folder: &Path) -> Result<Self, LogError> {
        create_durably(folder)?;
        let path = folder.join(Self::FILE);
        let file = private_file().write(true).create(true).truncate(false).open(&path)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file }),
            Err(TryLockError::WouldBlock) => Err(LogError::Locked(folder.to_path_buf())),
            Err(TryLockError::Error(cause)) => Err(cause.into()),
        }
    }
}

impl Drop for FolderLock {
    /// Unlocks explicitly instead of by closing: a child process forked a moment ago may still have a copy of the open file.
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::debug!(%error, "the lock of a data folder was not released; closing its file releases it");
        }
    }
}
