//! The folder of the tables: who owns it, how its files are named, and which of them can be deleted.
//!
//! ```text
//! lock           held by the one owner, so that two owners do not delete each other's files
//! manifest.json  the valid checkpoint          manifest.tmp  the next one, until its rename
//! heads-7.run    the run of table `heads` that checkpoint 7 wrote
//! ```

use log::file::{private_file, private_folder};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// The file of the valid checkpoint.
pub(super) const MANIFEST: &str = "manifest.json";

/// A folder that this process owns. Dropping it releases the lock.
#[derive(Debug)]
pub(super) struct LockedFolder {
    path: PathBuf,
    /// Holds the lock. The operating system releases it when the process ends, however it ends.
    lock: File,
}

impl LockedFolder {
    /// Creates the folder if it is missing, and locks it.
    pub(super) fn lock(path: &Path) -> io::Result<Self> {
        private_folder().create(path).map_err(at(path))?;
        let lock = private_file().write(true).create(true).truncate(true).open(path.join("lock")).map_err(at(path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), lock }),
            Err(TryLockError::WouldBlock) => {
                let why = format!("{}: the tables are open, or a checkpoint of theirs still runs", path.display());
                Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
            }
            Err(TryLockError::Error(why)) => Err(at(path)(why)),
        }
    }

    /// The path of the valid manifest.
    pub(super) fn manifest(&self) -> PathBuf {
        self.path.join(MANIFEST)
    }

    /// The path that the next manifest is written to.
    pub(super) fn next_manifest(&self) -> PathBuf {
        self.path.join("manifest.tmp")
    }

    /// The path of the run that checkpoint `number` wrote for `table`.
    pub(super) fn run(&self, table: &str, number: u64) -> PathBuf {
        self.path.join(format!("{table}-{number}.run"))
    }

    /// Makes the names in the folder durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.path).and_then(|folder| folder.sync_all()).map_err(at(&self.path))
    }

    /// Deletes the runs not among `named`, and an unfinished manifest. A file that cannot be deleted is left to the
    /// next sweep: it takes space and does no harm.
    pub(super) fn sweep(&self, named: &[PathBuf]) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let stale = path.extension().is_some_and(|kind| kind == "run" || kind == "tmp") && !named.contains(&path);
            if stale {
                remove_or_leave(&path);
            }
        }
    }
}

impl Drop for LockedFolder {
    /// Unlocks explicitly, not by closing: a child process forked a moment ago may still hold a copy of the open file.
    fn drop(&mut self) {
        if let Err(error) = self.lock.unlock() {
            tracing::debug!(%error, folder = %self.path.display(), "the tables could not be unlocked; closing the file unlocks them");
        }
    }
}

/// Deletes a file that no manifest names. If that fails, the next sweep deletes it.
pub(super) fn remove_or_leave(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(%error, file = %path.display(), "a file of the tables could not be deleted; it is retried later");
        }
        _ => (),
    }
}

/// Adds the file's name to an error.
pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> io::Error + use<> {
    let path = path.to_owned();
    move |why| match why.kind() {
        // A file that ends early is not what was written: that is damage, not an end of input.
        io::ErrorKind::UnexpectedEof => damaged(&path, "ends early"),
        kind => io::Error::new(kind, format!("{}: {why}", path.display())),
    }
}

/// The error for bytes that are not what was written.
pub(super) fn damaged(path: &Path, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{} is damaged: {what}", path.display()))
}
