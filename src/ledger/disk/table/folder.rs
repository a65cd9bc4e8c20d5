//! The folder of the tables: whose it is, what its files are called, and which of them may go.
//!
//! ```text
//! lock           held by the one owner, so that no two sweep each other's files away
//! manifest.json  the checkpoint in force       manifest.tmp  the next one, until its rename
//! heads-7.run    the run of table `heads` that checkpoint 7 wrote
//! ```

use log::file::{private_file, private_folder};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// The file of the checkpoint in force.
pub(super) const MANIFEST: &str = "manifest.json";

/// An owned folder. Dropping it lets another owner in.
#[derive(Debug)]
pub(super) struct LockedFolder {
    path: PathBuf,
    /// Holds the lock; the operating system lets go of it when the process ends, however it does.
    lock: File,
}

impl LockedFolder {
    /// Makes the folder if it is missing and becomes its owner.
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

    /// Where the manifest in force is.
    pub(super) fn manifest(&self) -> PathBuf {
        self.path.join(MANIFEST)
    }

    /// Where the next manifest is written.
    pub(super) fn next_manifest(&self) -> PathBuf {
        self.path.join("manifest.tmp")
    }

    /// Where the run is that checkpoint `number` wrote for `table`.
    pub(super) fn run(&self, table: &str, number: u64) -> PathBuf {
        self.path.join(format!("{table}-{number}.run"))
    }

    /// Makes the names in the folder durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.path).and_then(|folder| folder.sync_all()).map_err(at(&self.path))
    }

    /// Deletes the runs not among `named`, and an unfinished manifest. What cannot be deleted is left to the next
    /// sweep: it takes room and does no harm.
    pub(super) fn sweep(&self, named: &[PathBuf]) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let stale = path.extension().is_some_and(|kind| kind == "run" || kind == "tmp") && !named.contains(&path);
            if stale {
                let _ = fs::remove_file(path);
            }
        }
    }
}

impl Drop for LockedFolder {
    /// Unlocks by word, not by closing: a child process forked a moment ago may still hold a copy of the open file.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

/// Adds the file's name to an error.
pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> io::Error + use<> {
    let path = path.to_owned();
    move |why| match why.kind() {
        // A file that ends early is not what was written, and its reader should hear it in those words.
        io::ErrorKind::UnexpectedEof => damaged(&path, "ends early"),
        kind => io::Error::new(kind, format!("{}: {why}", path.display())),
    }
}

/// The error for bytes that are not what was written.
pub(super) fn damaged(path: &Path, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{} is damaged: {what}", path.display()))
}
