//! The open files of all logs of a process, within one bound.
//!
//! - A file is opened when it is first used and stays open. Beyond the bound the least recently used one is closed, whichever
//!   log it belongs to.
//! - A file that was written and not synced since stays open: a sync over a later descriptor could miss a failed write-back.
//! - A few descriptors are kept in reserve. If the process or the system has no more, they are freed one by one, so that an
//!   append that has to begin a segment does not depend on other open files.
//! - Opening that fails because no descriptor is left is retried for a short time. It has changed nothing.

use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::thread;
use std::time::Duration;

/// The default for how many files stay open.
pub const OPEN_FILES_DEFAULT: usize = 128;
/// Descriptors held in reserve.
const SPARES: usize = 4;
/// The first wait for a descriptor; each is twice as long as the one before.
const FIRST_WAIT: Duration = Duration::from_millis(1);
/// No wait is longer: about a quarter of a second in all.
const LAST_WAIT: Duration = Duration::from_millis(128);
/// How often a descriptor is freed for one file before a wait.
const MADE_ROOM_MAX: usize = 64;

/// The open files of one disk, by name.
pub(crate) type FileHandles = RwLock<HashMap<String, Arc<FileHandle>>>;

/// A bound on open files, shared by any number of [`super::FolderDisk`]s.
#[derive(Debug)]
pub struct OpenFiles {
    max: usize,
    count: AtomicUsize,
    /// Counts uses; the least recently used file has the smallest number.
    uses: AtomicU64,
    disks: Mutex<Vec<Weak<FileHandles>>>,
    spares: Mutex<Vec<File>>,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct FileHandle {
    pub(crate) file: File,
    /// Length of the file, zeros ahead included.
    pub(crate) length: AtomicU64,
    /// Written, and not synced since.
    is_unsynced: AtomicBool,
    used: AtomicU64,
    files: Arc<OpenFiles>,
}

impl OpenFiles {
    /// Keeps at most about `max` files open: those that are in use at the moment are not closed.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max: max.max(1),
            count: AtomicUsize::new(0),
            uses: AtomicU64::new(0),
            disks: Mutex::default(),
            spares: Mutex::default(),
        })
    }

    /// How many are open.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Counts a disk's files among those that may be closed.
    pub(crate) fn register(&self, handles: &Arc<FileHandles>) {
        let mut disks = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
        disks.retain(|disk| disk.strong_count() > 0);
        disks.push(Arc::downgrade(handles));
    }

    /// A handle for a file that was just opened.
    pub(crate) fn handle(self: &Arc<Self>, file: File) -> io::Result<FileHandle> {
        let length = AtomicU64::new(file.metadata()?.len());
        self.count.fetch_add(1, Ordering::Relaxed);
        let (is_unsynced, used) = (AtomicBool::new(false), AtomicU64::new(self.next_use()));
        Ok(FileHandle { file, length, is_unsynced, used, files: Arc::clone(self) })
    }

    /// Closes the least recently used files until there is room for one more.
    pub(crate) fn make_room(&self) {
        while self.count() >= self.max && self.close_oldest() {}
    }

    /// Calls `open`, which takes a descriptor. If none is left, frees one and retries, for a short time.
    pub(crate) fn with_room<T>(&self, mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let (mut wait, mut made_room) = (FIRST_WAIT, 0);
        loop {
            match open() {
                Err(cause) if is_out_of_files(&cause) => {
                    if made_room < MADE_ROOM_MAX && self.free_one_descriptor() {
                        made_room += 1;
                    } else if wait > LAST_WAIT {
                        return Err(cause);
                    } else {
                        thread::sleep(wait);
                        wait *= 2;
                    }
                }
                opened => return opened,
            }
        }
    }

    /// Refills the reserve, as far as there are descriptors.
    pub(crate) fn refill(&self) {
        let Ok(mut spares) = self.spares.try_lock() else { return };
        while spares.len() < SPARES
            && let Ok(file) = File::open("/")
        {
            spares.push(file);
        }
    }

    /// Frees one descriptor; returns whether there was one.
    fn free_one_descriptor(&self) -> bool {
        self.close_oldest() || self.spares.lock().unwrap_or_else(PoisonError::into_inner).pop().is_some()
    }

    /// Closes the least recently used file that is not in use; returns whether there was one.
    fn close_oldest(&self) -> bool {
        let disks = self.disks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let disks: Vec<_> = disks.iter().filter_map(Weak::upgrade).collect();
        // A disk whose lock is taken is opening or removing a file: it is skipped.
        let oldest = disks.iter().filter_map(|disk| {
            let handles = disk.try_read().ok()?;
            let idle = handles.iter().filter(|(_, handle)| FileHandle::is_idle(handle));
            let (name, handle) = idle.min_by_key(|(_, handle)| handle.used.load(Ordering::Relaxed))?;
            Some((handle.used.load(Ordering::Relaxed), name.clone(), disk))
        });
        let Some((_, name, disk)) = oldest.min_by_key(|(used, ..)| *used) else { return false };
        let Ok(mut handles) = disk.try_write() else { return false };
        match handles.get(&name).is_some_and(FileHandle::is_idle) {
            true => handles.remove(&name).is_some(),
            false => false,
        }
    }

    fn next_use(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }
}

impl FileHandle {
    /// Marks it as just used.
    pub(crate) fn touch(&self) {
        self.used.store(self.files.next_use(), Ordering::Relaxed);
    }

    /// Keeps it open until it is synced.
    pub(crate) fn mark_unsynced(&self) {
        self.is_unsynced.store(true, Ordering::Release);
    }

    /// Makes what was written durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.is_unsynced.store(false, Ordering::Release);
        self.file.sync_data().inspect_err(|_| self.mark_unsynced())
    }

    /// Whether it can be closed. A user has cloned it under the lock of its disk, which the caller holds.
    fn is_idle(this: &Arc<Self>) -> bool {
        Arc::strong_count(this) == 1 && !this.is_unsynced.load(Ordering::Acquire)
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        self.files.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether the process (EMFILE) or the system (ENFILE) has no file descriptor left.
#[must_use]
pub fn is_out_of_files(cause: &io::Error) -> bool {
    let codes = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    cause.raw_os_error().is_some_and(|code| codes.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::super::{Disk, FolderDisk};
    use super::*;
    use tempfile::TempDir;

    fn out_of_files() -> io::Error {
        Errno::MFILE.into()
    }

    #[test]
    fn past_the_bound_the_file_used_longest_ago_is_closed_whichever_disk_it_is_of() {
        let (folder, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let files = OpenFiles::new(3);
        let one = FolderDisk::open_with(folder.path(), Arc::clone(&files)).unwrap();
        let two = FolderDisk::open_with(other.path(), Arc::clone(&files)).unwrap();
        for (disk, name) in [(&one, "a"), (&one, "b"), (&two, "c")] {
            disk.write(name, 0, name.as_bytes()).unwrap();
            disk.sync(Some(name)).unwrap();
        }
        one.read("a", 0, &mut [0]).unwrap();
        two.write("d", 0, b"d").unwrap();
        two.sync(Some("d")).unwrap();
        assert_eq!(files.count(), 3);
        assert!(one.is_open("a") && !one.is_open("b") && two.is_open("c") && two.is_open("d"));
        for (disk, name) in [(&one, "a"), (&one, "b"), (&two, "c"), (&two, "d")] {
            let mut byte = [0];
            assert_eq!((disk.read(name, 0, &mut byte).unwrap(), byte.as_slice()), (1, name.as_bytes()));
        }
        assert_eq!(files.count(), 3);
        drop((one, two));
        assert_eq!(files.count(), 0);
    }

    #[test]
    fn a_file_that_was_written_stays_open_until_it_is_synced() {
        let folder = TempDir::new().unwrap();
        let disk = FolderDisk::open_with(folder.path(), OpenFiles::new(1)).unwrap();
        disk.write("a", 0, b"a").unwrap();
        disk.write("b", 0, b"b").unwrap();
        assert!(disk.is_open("a"));
        disk.sync(Some("a")).unwrap();
        disk.write("c", 0, b"c").unwrap();
        assert!(!disk.is_open("a") && disk.is_open("b"));
    }

    #[test]
    fn without_descriptors_idle_files_and_then_the_reserve_give_way_and_the_open_is_tried_again() {
        let folder = TempDir::new().unwrap();
        let files = OpenFiles::new(8);
        let disk = FolderDisk::open_with(folder.path(), Arc::clone(&files)).unwrap();
        disk.write("a", 0, b"a").unwrap();
        disk.sync(Some("a")).unwrap();
        let mut tries = 0;
        let opened = files.with_room(|| {
            tries += 1;
            if tries <= 1 + SPARES { Err(out_of_files()) } else { Ok(tries) }
        });
        assert_eq!(opened.unwrap(), 2 + SPARES);
        assert!(!disk.is_open("a") && files.spares.lock().unwrap().is_empty());
        disk.read("a", 0, &mut [0]).unwrap();
        assert_eq!(files.spares.lock().unwrap().len(), SPARES, "taken up again");
    }

    #[test]
    fn trying_again_ends_and_other_failures_are_not_tried_again() {
        let mut tries = 0;
        let opened: io::Result<()> = OpenFiles::new(1).with_room(|| {
            tries += 1;
            Err(Errno::NFILE.into())
        });
        assert!(is_out_of_files(&opened.unwrap_err()) && (5..50).contains(&tries), "{tries}");
        tries = 0;
        let opened: io::Result<()> = OpenFiles::new(1).with_room(|| {
            tries += 1;
            Err(io::ErrorKind::NotFound.into())
        });
        assert_eq!((opened.unwrap_err().kind(), tries), (io::ErrorKind::NotFound, 1));
    }
}
