//! The free-space watch: before the volume is full, it warns, then less is stored.
//!
//! - The background thread checks every second, the writer after each roll and each megabyte. The last result is available
//!   without a system call.
//! - Thresholds are bytes, but at most a part of the volume, so that a small volume can be used as well.
//! - A threshold that was crossed has to be exceeded by an eighth to be crossed back (hysteresis).
//! - A volume that is full nevertheless is handled by the reserve ([`super::reserve`]).

use super::Disk;
use super::disk::VolumeSpace;
use super::folder_disk::volume_space;
use crate::StorageRoom;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The threshold of the warning is at most this part of the volume.
const WARN_PARTS: u64 = 10;
/// The threshold of refusal is at most this part of the volume.
const REFUSE_PARTS: u64 = 20;

/// How much space must be free on a volume of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpaceLimits {
    /// Below this many bytes, or a tenth of the volume if that is less, room is low. 0: never.
    pub warn_bytes: u64,
    /// Below this many bytes, or a twentieth of the volume if that is less, room is short. 0: never.
    pub refuse_bytes: u64,
}

impl SpaceLimits {
    /// Whether a threshold is set.
    const fn is_set(self) -> bool {
        self.warn_bytes > 0 || self.refuse_bytes > 0
    }

    /// The same for a volume of so many bytes.
    fn on_volume(self, total: u64) -> Self {
        Self {
            warn_bytes: self.warn_bytes.min(total / WARN_PARTS),
            refuse_bytes: self.refuse_bytes.min(total / REFUSE_PARTS),
        }
    }

    /// The room of a volume that had the room `before`.
    fn room(self, space: VolumeSpace, before: StorageRoom) -> StorageRoom {
        let limits = self.on_volume(space.total);
        let is_below = |limit: u64, room| space.free < if before >= room { limit + limit / 8 } else { limit };
        if is_below(limits.refuse_bytes, StorageRoom::Short) {
            StorageRoom::Short
        } else if is_below(limits.warn_bytes, StorageRoom::Low) {
            StorageRoom::Low
        } else {
            StorageRoom::Ample
        }
    }
}

/// Watches the volumes of one log.
#[derive(Debug)]
pub(crate) struct SpaceWatch {
    limits: SpaceLimits,
    /// Folders besides the log's own, which may be on other volumes.
    folders: Vec<PathBuf>,
    seen: Mutex<SeenSpace>,
}

/// The last result.
#[derive(Debug, Clone, Copy, Default)]
struct SeenSpace {
    room: StorageRoom,
    /// Of the volume with the least room.
    space: Option<VolumeSpace>,
}

impl SpaceWatch {
    pub(crate) fn new(limits: SpaceLimits, folders: Vec<PathBuf>) -> Self {
        Self { limits, folders, seen: Mutex::default() }
    }

    /// Whether a threshold is set.
    pub(crate) const fn is_on(&self) -> bool {
        self.limits.is_set()
    }

    /// The room at the last check.
    pub(crate) fn room(&self) -> StorageRoom {
        self.seen().room
    }

    /// Checks the volumes, and logs changes. A volume that cannot be checked keeps its last result.
    pub(crate) fn look(&self, disk: &dyn Disk) {
        if !self.is_on() {
            return;
        }
        // Before the lock is taken: a volume that does not respond must not block decisions.
        let others = self.folders.iter().map(|folder| volume_space(folder));
        let volumes: Vec<_> = std::iter::once(disk.space()).chain(others).filter_map(|it| it.ok().flatten()).collect();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seen.room;
        let rooms =
            volumes.into_iter().map(|space| SeenSpace { room: self.limits.room(space, before), space: Some(space) });
        let free = |seen: &SeenSpace| seen.space.map_or(u64::MAX, |space| space.free);
        let Some(worst) = rooms.reduce(|one, other| {
            let is_worse = (other.room, free(&one)) > (one.room, free(&other));
            if is_worse { other } else { one }
        }) else {
            return;
        };
        *seen = worst;
        drop(seen);
        if worst.room != before {
            self.log_change(worst);
        }
    }

    /// What an operator should know of the room at the last check, as a sentence about the log.
    pub(crate) fn warning(&self) -> Option<String> {
        let SeenSpace { room, space: Some(space) } = self.seen() else { return None };
        let (free, total) = (megabytes(space.free), megabytes(space.total));
        let refuse = megabytes(self.limits.on_volume(space.total).refuse_bytes);
        match room {
            StorageRoom::Ample | StorageRoom::Full => None,
            StorageRoom::Low => Some(format!(
                "only {free} of {total} are free on its volume; below {refuse} no events are stored \
                 (storage.free_space_refuse_bytes). Trim topics, or make room on the volume."
            )),
            StorageRoom::Short => Some(format!(
                "only {free} of {total} are free on its volume, so no events are stored until there is more room \
                 (storage.free_space_refuse_bytes). Trim topics, or make room on the volume."
            )),
        }
    }

    fn seen(&self) -> SeenSpace {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_change(&self, seen: SeenSpace) {
        let space = seen.space.unwrap_or(VolumeSpace { free: 0, total: 0 });
        let SpaceLimits { warn_bytes, refuse_bytes } = self.limits.on_volume(space.total);
        let free_bytes = space.free;
        match seen.room {
            StorageRoom::Ample => tracing::info!(free_bytes, "there is enough free space on the log's volume again"),
            StorageRoom::Low => tracing::warn!(
                free_bytes,
                warn_bytes,
                refuse_bytes,
                "free space on the log's volume is low: trim topics, or make room, before no events are stored any more"
            ),
            StorageRoom::Short | StorageRoom::Full => tracing::error!(
                free_bytes,
                refuse_bytes,
                "there is too little free space on the log's volume: no events are stored until there is more"
            ),
        }
    }
}

/// For display.
fn megabytes(bytes: u64) -> String {
    const MIB: u64 = 1024 * 1024;
    match bytes {
        0..MIB => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / MIB),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;
    const GIB: u64 = 1024 * MIB;

    #[test]
    fn room_follows_the_free_space_and_the_size_of_the_volume() {
        let limits = SpaceLimits { warn_bytes: GIB, refuse_bytes: 256 * MIB };
        use StorageRoom::{Ample, Low, Short};
        for (free, total, before, room) in [
            (GIB, 100 * GIB, Ample, Ample),
            (GIB - 1, 100 * GIB, Ample, Low),
            (256 * MIB, 100 * GIB, Ample, Low),
            (256 * MIB - 1, 100 * GIB, Ample, Short),
            // A small volume: a tenth and a twentieth of it.
            (100 * MIB, 1000 * MIB, Ample, Ample),
            (99 * MIB, 1000 * MIB, Ample, Low),
            (49 * MIB, 1000 * MIB, Low, Short),
            // Back by an eighth more.
            (260 * MIB, 100 * GIB, Short, Short),
            (288 * MIB, 100 * GIB, Short, Low),
            (GIB + MIB, 100 * GIB, Low, Low),
            (GIB + 128 * MIB, 100 * GIB, Short, Ample),
        ] {
            assert_eq!(limits.room(VolumeSpace { free, total }, before), room, "{free} of {total}, {before:?} before");
        }
        let none = SpaceLimits::default();
        assert_eq!(none.room(VolumeSpace { free: 0, total: GIB }, Ample), Ample);
        assert!(!none.is_set());
    }
}
