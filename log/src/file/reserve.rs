//! Space for freeing space: a file of zeros that is given up when the disk is full.
//!
//! - A removal first needs some room: the facts that must outlive the removed events, the removal marks, and the copy of what
//!   is kept of a segment. On a full disk the reserve provides that room.
//! - An append that finds the disk full gives nothing up: it is taken back, and the log says that it is full. From then on the
//!   ledger appends nothing but what frees space, and for that the reserve is given up.
//! - The log is full until the keeper finds room again, and makes the reserve again if it was given up.

use super::Disk;
use super::disk::{VolumeSpace, discard, is_disk_full};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of the reserve of a data folder at least.
pub const RESERVE_BYTES: u64 = 8 * 1024 * 1024;
/// The reserve is at most this part of the volume, unless that is less than [`RESERVE_BYTES`].
const VOLUME_PARTS: u64 = 40;

/// Its file, next to the segments.
const FILE: &str = "reserve";
/// The file that shows whether there is room, for a moment.
const PROBE_FILE: &str = "reserve.probe";
const PROBE_BYTES: u64 = 1024 * 1024;
/// Checking for room costs a write: it is done at least every so many refusals.
const LOOK_EVERY: u64 = 64;

/// Bytes of the reserve of a log with segments of this size: enough to let one segment go. What must outlive its events takes
/// less than half of their bytes, and a segment is rewritten when less than half of it is left.
#[must_use]
pub fn reserve_bytes(segment_bytes: u64, volume: Option<VolumeSpace>) -> u64 {
    let most = volume.map_or(u64::MAX, |volume| volume.total / VOLUME_PARTS);
    (segment_bytes / 2).min(most).max(RESERVE_BYTES)
}

/// The reserve of one log.
#[derive(Debug)]
pub(crate) struct DiskReserve {
    bytes: u64,
    is_there: AtomicBool,
    /// An append found the disk full, and no room was found since.
    is_disk_full: AtomicBool,
    /// How often the log was asked for room since there is none.
    refusals: AtomicU64,
}

impl DiskReserve {
    /// A reserve of this size, not there yet; none at all if it is 0.
    pub(crate) fn new(bytes: u64) -> Self {
        Self {
            bytes,
            is_there: AtomicBool::new(false),
            is_disk_full: AtomicBool::new(false),
            refusals: AtomicU64::new(0),
        }
    }

    /// Whether the log keeps one.
    pub(crate) const fn is_on(&self) -> bool {
        self.bytes > 0
    }

    /// Whether it should be there and is not.
    pub(crate) fn is_missing(&self) -> bool {
        self.is_on() && !self.is_there.load(Ordering::Relaxed)
    }

    /// Whether there is room for nothing but what frees space.
    pub(crate) fn is_full(&self) -> bool {
        self.is_missing() || self.is_disk_full.load(Ordering::Relaxed)
    }

    /// Whether the keeper should look for room, at this one of the times the log was asked for some: often at first, then
    /// now and then.
    pub(crate) fn should_check_space(&self) -> bool {
        let refusals = self.refusals.fetch_add(1, Ordering::Relaxed) + 1;
        refusals.is_power_of_two() || refusals.is_multiple_of(LOOK_EVERY)
    }

    /// Looks whether there is room again, and makes the reserve if it is missing.
    pub(crate) fn fill(&self, disk: &dyn Disk) {
        if !self.is_full() {
            return;
        }
        let filled = if self.is_missing() { self.make(disk) } else { probe(disk) };
        match filled {
            Ok(()) => {
                self.refusals.store(0, Ordering::Relaxed);
                self.is_there.store(true, Ordering::Relaxed);
                if self.is_disk_full.swap(false, Ordering::Relaxed) {
                    tracing::info!("there is room on the disk again: everything is stored");
                }
            }
            Err(error) => {
                tracing::debug!(%error, bytes = self.bytes, "no room for the reserve: the disk is full, or nearly so");
                if self.is_missing() {
                    let _ = discard(disk, FILE);
                }
            }
        }
    }

    fn make(&self, disk: &dyn Disk) -> io::Result<()> {
        let before = kept_bytes(disk)?;
        if before >= Some(self.bytes) {
            return Ok(());
        }
        let made = disk.allocate(FILE, self.bytes).and_then(|()| disk.sync(Some(FILE)));
        match before {
            // One of an earlier version, or of smaller segments, is better than none.
            Some(before) if made.is_err() && before >= RESERVE_BYTES => disk.truncate(FILE, before)?,
            _ => made?,
        }
        disk.sync(None)
    }

    /// Does `work`, which frees space; if it finds the disk full, gives the reserve up and does it once more.
    pub(crate) fn spend_if_full(&self, disk: &dyn Disk, mut work: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        match work() {
            Err(cause) if is_disk_full(&cause) && self.give_up(disk) => {
                tracing::error!(
                    bytes = self.bytes,
                    "the disk is full: the reserve was given up, and only what frees space is stored until there is room again"
                );
                work()
            }
            outcome => outcome,
        }
    }

    /// Does `work`, an append. If it finds the disk full for the first time, the log is full from then on; later ones free
    /// space, and have the reserve.
    pub(crate) fn append(&self, disk: &dyn Disk, mut work: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        if !self.is_on() || self.is_full() {
            return self.spend_if_full(disk, work);
        }
        let outcome = work();
        if let Err(cause) = &outcome
            && is_disk_full(cause)
        {
            self.is_disk_full.store(true, Ordering::Relaxed);
            tracing::error!("the disk is full: only what frees space is stored until there is room again");
        }
        outcome
    }

    /// Whether there was something to give up.
    fn give_up(&self, disk: &dyn Disk) -> bool {
        self.is_there.swap(false, Ordering::Relaxed) && discard(disk, FILE).is_ok()
    }
}

/// The size of the reserve's file, if there is one.
pub(crate) fn kept_bytes(disk: &dyn Disk) -> io::Result<Option<u64>> {
    Ok(disk.list()?.into_iter().find(|(name, _)| name == FILE).map(|(_, length)| length))
}

/// Whether a little can be written.
fn probe(disk: &dyn Disk) -> io::Result<()> {
    let outcome = disk.allocate(PROBE_FILE, PROBE_BYTES);
    discard(disk, PROBE_FILE)?;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn the_reserve_suffices_for_one_segment_and_leaves_a_small_volume_usable() {
        let volume = |total| Some(VolumeSpace { free: total, total });
        for (segment_bytes, volume, bytes) in [
            (64 * MIB, volume(100_000 * MIB), 32 * MIB),
            (64 * MIB, None, 32 * MIB),
            (64 * MIB, volume(400 * MIB), 10 * MIB),
            (64 * MIB, volume(160 * MIB), 8 * MIB),
            (MIB, volume(100_000 * MIB), 8 * MIB),
        ] {
            assert_eq!(reserve_bytes(segment_bytes, volume), bytes, "{segment_bytes} {volume:?}");
        }
    }
}
