//! Space for freeing space: a file of zeros that is given up when the disk is full.
//!
//! - Removing needs a little room first: the facts that must outlive the removed events, and the removal marks. On a full
//!   disk that room is the reserve's: the write that found no room is made again without it.
//! - While it is missing the log calls itself full, and the ledger stores nothing but its own bookkeeping. The keeper
//!   makes it again as soon as there is room.

use super::Disk;
use super::disk::discard;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of the reserve of a data folder: a thousand times what one trim appends.
pub const RESERVE_BYTES: u64 = 8 * 1024 * 1024;

/// Its file, beside the segments.
const FILE: &str = "reserve";
/// Bytes written at once.
const CHUNK_BYTES: usize = 1024 * 1024;
/// Looking for room costs a write: at least every so many refusals are worth it.
const LOOK_EVERY: u64 = 64;

/// The reserve of one log.
#[derive(Debug)]
pub(crate) struct DiskReserve {
    bytes: u64,
    is_there: AtomicBool,
    /// How often somebody found no room since it was given up.
    refusals: AtomicU64,
}

impl DiskReserve {
    /// A reserve of this size, not there yet; none at all if it is 0.
    pub(crate) fn new(bytes: u64) -> Self {
        Self { bytes, is_there: AtomicBool::new(false), refusals: AtomicU64::new(0) }
    }

    /// Whether it should be there and is not.
    pub(crate) fn is_missing(&self) -> bool {
        self.bytes > 0 && !self.is_there.load(Ordering::Relaxed)
    }

    /// Whether room is to be looked for, at this one of the times somebody found none: often at first, then now and then.
    pub(crate) fn should_check_space(&self) -> bool {
        let refusals = self.refusals.fetch_add(1, Ordering::Relaxed) + 1;
        refusals.is_power_of_two() || refusals.is_multiple_of(LOOK_EVERY)
    }

    /// Makes it, if it is missing and there is room.
    pub(crate) fn fill(&self, disk: &dyn Disk) {
        if !self.is_missing() {
            return;
        }
        match self.make(disk) {
            Ok(()) => {
                self.refusals.store(0, Ordering::Relaxed);
                self.is_there.store(true, Ordering::Relaxed);
            }
            Err(error) => {
                tracing::debug!(%error, bytes = self.bytes, "no room for the reserve: the disk is full, or nearly so");
                let _ = discard(disk, FILE);
            }
        }
    }

    fn make(&self, disk: &dyn Disk) -> io::Result<()> {
        if disk.list()?.iter().any(|(name, bytes)| name == FILE && *bytes == self.bytes) {
            return Ok(());
        }
        discard(disk, FILE)?;
        let zeros = vec![0; CHUNK_BYTES];
        let mut offset = 0;
        while offset < self.bytes {
            let length = (self.bytes - offset).min(CHUNK_BYTES as u64);
            disk.write(FILE, offset, zeros.get(..length as usize).unwrap_or_default())?;
            offset += length;
        }
        disk.sync(Some(FILE))?;
        disk.sync(None)
    }

    /// Does `work`; if it finds the disk full, gives the reserve up and does it once more.
    pub(crate) fn spend_if_full(&self, disk: &dyn Disk, mut work: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        match work() {
            Err(cause) if cause.kind() == io::ErrorKind::StorageFull && self.give_up(disk) => {
                tracing::error!(
                    bytes = self.bytes,
                    "the disk is full: the reserve was given up, and no events are stored until there is room again"
                );
                work()
            }
            outcome => outcome,
        }
    }

    /// Whether there was something to give up.
    fn give_up(&self, disk: &dyn Disk) -> bool {
        self.is_there.swap(false, Ordering::Relaxed) && discard(disk, FILE).is_ok()
    }
}
