//! Copying a log, also while a process appends to it, rewrites segments and removes old ones.
//!
//! - The source is not changed, not locked and not waited for.
//! - **Sealed segments first, then the removal marks, then the tail.** Marks are durable before a file is removed, so
//!   marks read later explain every missing file. And facts that must outlive a removal are appended before its marks are
//!   written, so a tail read later contains them.
//! - If the marks changed while the tail was copied, or a file was removed in the meantime, there is another pass. A sealed
//!   segment that has a new generation by then is copied again, and replaces the older one: it may have been merged with
//!   segments that are gone.
//! - The tail is truncated after its last complete batch. A bad batch that is followed by a later one was read while it was
//!   written: the tail is read again. If it is still bad after a few attempts, it is damage.
//! - Indexes are caches and are not copied.
//!
//! `verify` checks the copy.

use super::LOG_FOLDER;
use super::disk::{Disk, discard};
use super::file_names::{LogFileName, SegmentName, marks_file};
use super::folder_disk::{FolderDisk, FolderLock};
use super::frame_scan;
use super::recover::HEAD_FLAW;
use super::segment_head::HEAD_BYTES;
use super::torn::LastSegment;
use super::trim_marks::TrimMarksFile;
use crate::{FileDamage, LogError};
use contract::Position;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The limit of passes over a log that changes during the copy.
const PASSES_MAX: u32 = 64;
/// How often a tail is read that cannot be verified.
const READS_MAX: u32 = 5;
/// Bytes copied at once.
const CHUNK_BYTES: usize = 1024 * 1024;

/// How far a copy has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupProgress {
    /// Bytes copied so far.
    pub bytes: u64,
    /// Bytes there were when the copy began; a log that grows gets longer.
    pub bytes_total: u64,
}

/// Copies the log of the data folder `from` into the data folder `to`, which has none. What was acknowledged before
/// the call is in the copy; `acknowledged` is a position of which that is known. Returns an incomplete append at the end that was
/// left out: it is being written at the moment, or was torn.
pub fn backup(
    from: &Path,
    to: &Path,
    acknowledged: Position,
    progress: impl FnMut(BackupProgress),
) -> Result<Option<FileDamage>, LogError> {
    let source = from.join(LOG_FOLDER);
    // No other process uses the target in the meantime; and the lock file shows that the folder is a log's.
    let _lock = FolderLock::acquire(to)?;
    let target = FolderDisk::open(&to.join(LOG_FOLDER))?;
    let bytes_total = BackupFiles::list(&source)?.bytes;
    let (copied, done) = (BTreeMap::new(), BackupProgress { bytes: 0, bytes_total });
    let mut copy = BackupRun { source, target, acknowledged, copied, torn: None, done, progress };
    for _ in 0..PASSES_MAX {
        match copy.pass() {
            Ok(true) => {
                copy.sync()?;
                return Ok(copy.torn);
            }
            Ok(false) => {}
            // A file that was listed a moment ago was dropped, merged or rewritten under another name.
            Err(LogError::Io(cause)) if cause.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("the log removes files faster than they can be copied; try again").into())
}

/// The valid files of a log.
#[derive(Debug, Default)]
struct BackupFiles {
    /// The lowest generation of each base: a higher one is unfinished.
    segments: BTreeMap<Position, SegmentName>,
    trim_marks: BTreeSet<u64>,
    bytes: u64,
}

impl BackupFiles {
    fn list(folder: &Path) -> io::Result<Self> {
        let mut files = Self::default();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            match entry.file_name().to_str().and_then(LogFileName::parse) {
                Some(LogFileName::Segment(name)) => {
                    files.segments.entry(name.base).and_modify(|lower| *lower = name.min(*lower)).or_insert(name);
                    files.bytes += entry.metadata().map_or(0, |metadata| metadata.len());
                }
                Some(LogFileName::Marks(number)) => {
                    files.trim_marks.insert(number);
                }
                Some(LogFileName::Index(_)) | None => {}
            }
        }
        Ok(files)
    }
}

struct BackupRun<F> {
    source: PathBuf,
    target: FolderDisk,
    acknowledged: Position,
    torn: Option<FileDamage>,
    /// Sealed segments that are in the copy.
    copied: BTreeMap<Position, SegmentName>,
    done: BackupProgress,
    progress: F,
}

impl<F: FnMut(BackupProgress)> BackupRun<F> {
    /// Copies what is missing; returns whether the copy is the log at one moment.
    fn pass(&mut self) -> Result<bool, LogError> {
        self.sealed(&BackupFiles::list(&self.source)?)?;
        let trim_marks = BackupFiles::list(&self.source)?.trim_marks;
        self.marks(&trim_marks)?;
        let files = BackupFiles::list(&self.source)?;
        self.sealed(&files)?;
        if let Some(last) = files.segments.values().next_back() {
            self.tail(*last)?;
        }
        Ok(BackupFiles::list(&self.source)?.trim_marks == trim_marks)
    }

    /// Copies every segment except the last. Each was finished before the next one was begun.
    fn sealed(&mut self, files: &BackupFiles) -> Result<(), LogError> {
        let sealed = files.segments.values().rev().skip(1).collect::<Vec<_>>();
        for name in sealed.into_iter().rev() {
            self.finished(*name)?;
        }
        Ok(())
    }

    /// Copies a segment that no longer changes, unless that was done.
    fn finished(&mut self, name: SegmentName) -> Result<(), LogError> {
        let before = self.copied.get(&name.base).copied();
        if before != Some(name) {
            self.file(&name.file())?;
            self.copied.insert(name.base, name);
        }
        // Of two generations the older one would be used.
        match before.filter(|before| *before != name) {
            Some(before) => Ok(discard(&self.target, &before.file())?),
            None => Ok(()),
        }
    }

    fn marks(&mut self, numbers: &BTreeSet<u64>) -> Result<(), LogError> {
        let bytes = self.done.bytes;
        numbers.iter().try_for_each(|number| self.file(&marks_file(*number)))?;
        self.done.bytes = bytes;
        TrimMarksFile::load(&self.target, self.target.folder(), numbers.iter().copied().collect()).map(|_| ())
    }

    /// Copies the last segment up to its last whole batch.
    fn tail(&mut self, name: SegmentName) -> Result<(), LogError> {
        let file = name.file();
        let mut damage = None;
        for _ in 0..READS_MAX {
            let bytes = self.done.bytes;
            if name.generation > 1 {
                return self.finished(name);
            }
            self.file(&file)?;
            let Some(head) = frame_scan::read_head(&self.target, name)? else {
                let was_used = name.base <= self.acknowledged;
                if was_used || !frame_scan::zeros_from(&self.target, &file, HEAD_BYTES as u64)? {
                    self.done.bytes = bytes;
                    damage = Some((0, HEAD_FLAW.to_owned()));
                    continue;
                }
                // Created a moment ago and not used yet.
                return Ok(discard(&self.target, &file)?);
            };
            let tail = LastSegment::read(&self.target, head, self.acknowledged)?.tail;
            if !tail.is_damage && tail.bad_bodies.is_empty() {
                let source = self.source.join(&file);
                self.torn = tail.flaw.map(|(offset, reason)| FileDamage { file: source, offset, reason });
                self.target.truncate(&file, tail.end)?;
                return Ok(());
            }
            self.done.bytes = bytes;
            let bad_body = tail.bad_bodies.first().map(|(offset, flaw)| (*offset, flaw.to_string()));
            damage = bad_body.or(tail.flaw);
        }
        let (offset, reason) = damage.unwrap_or_default();
        Err(LogError::Damaged(FileDamage { file: self.source.join(file), offset, reason }))
    }

    /// Copies a file as it is now, and replaces the copy of an earlier pass.
    fn file(&mut self, name: &str) -> io::Result<()> {
        let mut from = File::open(self.source.join(name))?;
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut offset = 0;
        // It must exist before it is truncated.
        self.target.write(name, 0, &[])?;
        self.target.truncate(name, 0)?;
        loop {
            let filled = fill(&mut from, &mut chunk)?;
            let bytes = chunk.get(..filled).unwrap_or_default();
            self.target.write(name, offset, bytes)?;
            offset += filled as u64;
            self.done.bytes += filled as u64;
            self.done.bytes_total = self.done.bytes_total.max(self.done.bytes);
            (self.progress)(self.done);
            if filled < chunk.len() {
                break;
            }
        }
        // The disk may have left zeros after a short write.
        self.target.truncate(name, offset)
    }

    /// Makes the copy durable. Only when it is complete: a pass must be faster than the marks change.
    fn sync(&self) -> io::Result<()> {
        for (name, _) in self.target.list()? {
            self.target.sync(Some(&name))?;
        }
        self.target.sync(None)
    }
}

/// Fills the chunk; fewer bytes only at the end of the file.
fn fill(file: &mut File, chunk: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = chunk.get_mut(filled..)
        && !rest.is_empty()
    {
        match file.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(filled)
}
