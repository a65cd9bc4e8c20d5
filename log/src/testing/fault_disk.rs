//! A disk that fails on command: the six calls of [`Disk`] in RAM, with simulated power cuts.
//!
//! - What was synced is durable. Of the rest a power cut keeps any part: writes sector by sector, truncations, created and
//!   removed names, each on its own. A name that was created and removed may be there again.
//! - A failed sync behaves as on Linux: some of the data may be stored, and a second sync does not cover the rest.
//! - Everything follows from the seed; clones are the same disk.

use super::SeededRandom;
use crate::file::{Disk, VolumeSpace};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bytes that a disk writes completely or not at all.
const SECTOR_BYTES: usize = 512;

/// A call of [`Disk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskOperation {
    /// [`Disk::list`].
    List,
    /// [`Disk::read`].
    Read,
    /// [`Disk::write`].
    Write,
    /// [`Disk::truncate`].
    Truncate,
    /// [`Disk::sync`].
    Sync,
    /// [`Disk::remove`].
    Remove,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// It fails with this, and does nothing (a failed sync may have done part of its work).
    Error(io::ErrorKind),
    /// It fails because the disk is full, and does nothing.
    Full,
    /// It fails because there is no file descriptor left, and does nothing.
    OutOfFiles,
    /// A write stores this many bytes, then fails.
    Short(usize),
}

/// A disk in RAM that fails on command.
#[derive(Debug, Clone, Default)]
pub struct FaultDisk {
    inner: Arc<Mutex<FaultDiskState>>,
}

#[derive(Debug, Default)]
struct FaultDiskState {
    files: Vec<FaultFile>,
    /// Which names the folder holds, and which it held when it was last synced.
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Files that had a name since the folder was last synced, and may have it again after a power cut.
    passing_names: BTreeMap<String, Vec<usize>>,
    faults: BTreeMap<(DiskOperation, u64), DiskFault>,
    /// How often each call was made.
    calls: BTreeMap<DiskOperation, u64>,
    /// Calls that change something, so far, and after how many the power is off.
    changes: u64,
    power_off_after: Option<u64>,
    space: Option<VolumeSpace>,
}

#[derive(Debug, Clone, Default)]
struct FaultFile {
    current: Vec<u8>,
    durable: Vec<u8>,
    /// Since the last sync.
    pending: Vec<PendingChange>,
}

#[derive(Debug, Clone)]
enum PendingChange {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

impl FaultDisk {
    /// An empty disk without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the `nth` call of this kind from now on (the next is 1) fail.
    pub fn fail(&self, operation: DiskOperation, nth: u64, fault: DiskFault) {
        let mut inner = self.lock();
        let made = inner.calls.get(&operation).copied().unwrap_or(0);
        inner.faults.insert((operation, made + nth), fault);
    }

    /// Permits this many more changing calls; then every call fails, as if the power were off.
    pub fn power_off_after(&self, changes: u64) {
        let mut inner = self.lock();
        inner.power_off_after = Some(inner.changes + changes);
    }

    /// Reports this much free space from now on. Writing does not change it.
    pub fn set_space(&self, free: u64, total: u64) {
        self.lock().space = Some(VolumeSpace { free, total });
    }

    /// Changing calls made so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// A file's bytes as they are now, synced or not.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let inner = self.lock();
        Some(inner.files[*inner.names.get(name)?].current.clone())
    }

    /// Replaces a file's bytes, durably; the name may be new.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        let mut inner = self.lock();
        let file = inner.open(name);
        inner.files[file] = FaultFile { durable: bytes.clone(), current: bytes, pending: Vec::new() };
        inner.durable_names.insert(name.to_owned(), file);
        inner.passing_names.remove(name);
    }

    /// The names there are now, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.lock().names.keys().cloned().collect()
    }

    /// A disk with the same contents, all of it durable, and no faults.
    #[must_use]
    pub fn copy(&self) -> Self {
        let copy = Self::new();
        for name in self.names() {
            copy.put(&name, self.bytes(&name).unwrap_or_default());
        }
        copy
    }

    /// The disk after a power cut now: one of many possibilities, chosen by `seed`.
    #[must_use]
    pub fn power_cut(&self, seed: u64) -> Self {
        let mut random = SeededRandom::new(seed);
        let inner = self.lock();
        let names: BTreeSet<_> =
            inner.names.keys().chain(inner.durable_names.keys()).chain(inner.passing_names.keys()).collect();
        let after = Self::new();
        for name in names {
            let passing = inner.passing_names.get(name).into_iter().flatten().copied().map(Some);
            let known = [inner.durable_names.get(name).copied(), inner.names.get(name).copied()];
            let possible: Vec<_> = known.into_iter().chain(passing).collect::<BTreeSet<_>>().into_iter().collect();
            let chosen = usize::try_from(random.through(possible.len() as u64 - 1)).unwrap();
            if let Some(file) = possible[chosen] {
                after.put(name, inner.files[file].after_power_cut(&mut random));
            }
        }
        after
    }

    fn lock(&self) -> MutexGuard<'_, FaultDiskState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FaultDiskState {
    /// Counts a call; returns its fault, if any.
    fn begin(&mut self, operation: DiskOperation) -> io::Result<Option<DiskFault>> {
        let calls = self.calls.entry(operation).or_default();
        *calls += 1;
        let fault = self.faults.remove(&(operation, *calls));
        if self.power_off_after.is_some_and(|last| self.changes >= last) {
            return Err(io::Error::other("the power is off"));
        }
        if !matches!(operation, DiskOperation::List | DiskOperation::Read) {
            self.changes += 1;
        }
        match fault {
            Some(DiskFault::Error(kind)) if operation != DiskOperation::Sync => Err(kind.into()),
            Some(DiskFault::Full) if operation != DiskOperation::Sync => Err(io::ErrorKind::StorageFull.into()),
            Some(DiskFault::OutOfFiles) if operation != DiskOperation::Sync => Err(rustix::io::Errno::MFILE.into()),
            other => Ok(other),
        }
    }

    fn open(&mut self, name: &str) -> usize {
        if let Some(file) = self.names.get(name) {
            return *file;
        }
        self.files.push(FaultFile::default());
        let file = self.files.len() - 1;
        self.names.insert(name.to_owned(), file);
        self.passing_names.entry(name.to_owned()).or_default().push(file);
        file
    }

    fn file(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl FaultFile {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        put(&mut self.current, offset, bytes);
        self.pending.push(PendingChange::Write(offset, bytes.to_vec()));
    }

    /// Only pending data is stored: what a failed sync lost stays lost until it is written again.
    fn sync(&mut self) {
        for change in self.pending.drain(..) {
            match change {
                PendingChange::Write(offset, bytes) => put(&mut self.durable, offset, &bytes),
                PendingChange::Truncate(length) => self.durable.resize(length, 0),
            }
        }
    }

    /// Some of the pending data is stored, and all of it is considered stored.
    fn fail_sync(&mut self, random: &mut SeededRandom) {
        self.durable = self.after_power_cut(random);
        self.pending.clear();
    }

    fn after_power_cut(&self, random: &mut SeededRandom) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        for change in &self.pending {
            match (random.through(3), change) {
                (0, _) => {}
                (1, PendingChange::Write(offset, written)) => put(&mut bytes, *offset, written),
                (2, PendingChange::Write(offset, written)) => {
                    let kept = random.through(written.len() as u64);
                    put(&mut bytes, *offset, &written[..usize::try_from(kept).unwrap()]);
                }
                (_, PendingChange::Write(offset, written)) => put_some_sectors(&mut bytes, *offset, written, random),
                (_, PendingChange::Truncate(length)) => bytes.resize(*length, 0),
            }
        }
        bytes
    }
}

fn put(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[offset..end].copy_from_slice(bytes);
}

/// Any subset of the sectors a write touches; the file may have grown to its length all the same.
fn put_some_sectors(file: &mut Vec<u8>, offset: usize, bytes: &[u8], random: &mut SeededRandom) {
    if random.once_in(2) {
        file.resize(file.len().max(offset + bytes.len()), 0);
    }
    let mut at = offset;
    while at < offset + bytes.len() {
        let end = (at / SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES).min(offset + bytes.len());
        if random.once_in(2) {
            put(file, at, &bytes[at - offset..end - offset]);
        }
        at = end;
    }
}

impl Disk for FaultDisk {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut inner = self.lock();
        inner.begin(DiskOperation::List)?;
        let lengths = inner.names.iter().map(|(name, file)| (name.clone(), inner.files[*file].current.len() as u64));
        Ok(lengths.collect())
    }

    fn read(&self, name: &str, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut inner = self.lock();
        inner.begin(DiskOperation::Read)?;
        let file = inner.file(name)?;
        let bytes = &inner.files[file].current;
        let bytes = &bytes[usize::try_from(offset).unwrap().min(bytes.len())..];
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn write(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.lock();
        let fault = inner.begin(DiskOperation::Write)?;
        let offset = usize::try_from(offset).unwrap();
        let file = inner.open(name);
        if let Some(DiskFault::Short(count)) = fault {
            inner.files[file].write(offset, &bytes[..count.min(bytes.len())]);
            return Err(io::ErrorKind::StorageFull.into());
        }
        inner.files[file].write(offset, bytes);
        Ok(())
    }

    fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        let mut inner = self.lock();
        inner.begin(DiskOperation::Truncate)?;
        let file = inner.file(name)?;
        let length = usize::try_from(length).unwrap();
        inner.files[file].current.resize(length, 0);
        inner.files[file].pending.push(PendingChange::Truncate(length));
        Ok(())
    }

    fn sync(&self, name: Option<&str>) -> io::Result<()> {
        let mut inner = self.lock();
        let fault = inner.begin(DiskOperation::Sync)?;
        let mut random = SeededRandom::new(inner.changes);
        match (name, fault) {
            (Some(name), None) => {
                let file = inner.file(name)?;
                inner.files[file].sync();
            }
            (None, None) => {
                inner.durable_names = inner.names.clone();
                inner.passing_names.clear();
            }
            (Some(name), Some(_)) => {
                let file = inner.file(name)?;
                inner.files[file].fail_sync(&mut random);
                return Err(io::Error::other("the sync failed"));
            }
            (None, Some(_)) => return Err(io::Error::other("the sync failed")),
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut inner = self.lock();
        inner.begin(DiskOperation::Remove)?;
        inner.file(name)?;
        inner.names.remove(name);
        Ok(())
    }

    fn space(&self) -> io::Result<Option<VolumeSpace>> {
        Ok(self.lock().space)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> FaultDisk {
        let disk = FaultDisk::new();
        disk.write("a", 0, &[1; 700]).unwrap();
        disk.sync(Some("a")).unwrap();
        disk.sync(None).unwrap();
        disk.write("a", 700, &[2; 2000]).unwrap();
        disk.write("b", 0, &[3; 10]).unwrap();
        disk
    }

    #[test]
    fn a_power_cut_keeps_what_was_synced_and_any_part_of_the_rest() {
        let disk = written();
        let cuts: Vec<_> = (0..200).map(|seed| disk.power_cut(seed)).collect();
        for cut in &cuts {
            assert_eq!(&cut.bytes("a").unwrap()[..700], &[1; 700]);
        }
        let any = |check: fn(&FaultDisk) -> bool| cuts.iter().any(check);
        assert!(any(|cut| cut.bytes("a").unwrap().len() == 700), "nothing of the write");
        assert!(any(|cut| cut.bytes("a").unwrap().len() == 2700 && cut.bytes("a").unwrap()[700..] == [2; 2000]), "all");
        assert!(
            any(|cut| cut.bytes("a").unwrap().len() == 2700 && cut.bytes("a").unwrap()[1024..1536] == [0; 512]),
            "torn"
        );
        assert!(any(|cut| cut.bytes("b").is_none()) && any(|cut| cut.bytes("b").is_some()), "the name");
    }

    #[test]
    fn a_name_that_came_and_went_may_be_there_after_a_power_cut_until_the_folder_is_synced() {
        let disk = written();
        disk.remove("b").unwrap();
        let comes_back = |disk: &FaultDisk| (0..50).any(|seed| disk.power_cut(seed).bytes("b").is_some());
        assert!(comes_back(&disk));
        disk.sync(None).unwrap();
        assert!(!comes_back(&disk));
    }

    #[test]
    fn a_seed_repeats_itself() {
        let disk = written();
        for seed in 0..50 {
            assert_eq!(disk.power_cut(seed).bytes("a"), disk.power_cut(seed).bytes("a"));
        }
    }

    #[test]
    fn after_a_failed_sync_the_next_one_says_nothing_of_what_was_lost() {
        let lost = (0..20).any(|padding| {
            let disk = FaultDisk::new();
            (0..padding).for_each(|_| disk.write("other", 0, b"x").unwrap());
            disk.write("a", 0, &[1; 4000]).unwrap();
            disk.sync(None).unwrap();
            disk.fail(DiskOperation::Sync, 1, DiskFault::Error(io::ErrorKind::Other));
            assert!(disk.sync(Some("a")).is_err());
            assert!(disk.sync(Some("a")).is_ok());
            disk.power_cut(1).bytes("a").unwrap() != [1; 4000]
        });
        assert!(lost);
    }

    #[test]
    fn faults_strike_once_and_power_stays_off() {
        let disk = FaultDisk::new();
        disk.fail(DiskOperation::Write, 2, DiskFault::Short(3));
        disk.write("a", 0, b"12345").unwrap();
        assert_eq!(disk.write("a", 5, b"67890").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(disk.bytes("a").unwrap(), b"12345678");
        disk.write("a", 0, b"abcde").unwrap();
        disk.power_off_after(1);
        disk.write("a", 0, b"x").unwrap();
        assert!(disk.write("a", 0, b"y").is_err() && disk.read("a", 0, &mut [0]).is_err());
        assert_eq!(disk.bytes("a").unwrap(), b"xbcde678");
    }
}
