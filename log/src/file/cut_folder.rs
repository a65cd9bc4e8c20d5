//! Copies of what was cut off a log, for operators: files in `cut/` of the data folder, which no program reads.
//!
//! - A torn tail was never acknowledged, so its copy is optional: if the disk is full, the log opens without it. Only the newest
//!   few are kept.
//! - What `repair` cuts out was acknowledged. It is copied completely before it is cut; an operator has to delete the copy.

use super::disk::discard;
use super::file_names::SegmentName;
use super::{Disk, FolderDisk};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder inside a data folder that holds what was cut off.
pub const CUT_FOLDER: &str = "cut";
/// Torn tails that are kept; older ones are deleted.
const TORN_FILES_MAX: usize = 16;
/// The limit of bytes kept of one torn tail.
const TORN_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes copied at once.
const CHUNK_BYTES: usize = 1024 * 1024;

/// The folder for such copies; it is created with the first of them.
pub(crate) enum CutFolder<'a> {
    /// The folder `cut` of this data folder.
    In(&'a Path),
    /// Beside the log's own files, on a disk that is no folder.
    On(&'a Arc<dyn Disk>),
}

impl CutFolder<'_> {
    fn disk(&self) -> io::Result<Arc<dyn Disk>> {
        match self {
            Self::In(data) => Ok(Arc::new(FolderDisk::open(&data.join(CUT_FOLDER))?)),
            Self::On(disk) => Ok(Arc::clone(disk)),
        }
    }

    /// The data folder they are in, if there is one.
    pub(crate) fn data_folder(&self) -> Option<PathBuf> {
        match self {
            Self::In(data) => Some(data.to_path_buf()),
            Self::On(_) => None,
        }
    }

    /// Copies a segment's file from `offset` on, and deletes the oldest torn tails; returns the name of the copy.
    pub(crate) fn keep_torn(&self, from: &dyn Disk, segment: SegmentName, offset: u64) -> io::Result<String> {
        let disk = self.disk()?;
        let name = torn_name(segment, offset);
        copy(from, &segment.file(), offset, TORN_BYTES_MAX, &*disk, &name)?;
        let mut torn: Vec<_> = disk.list()?.into_iter().map(|(name, _)| name).filter(|name| is_torn(name)).collect();
        torn.sort_unstable();
        let too_many = torn.len().saturating_sub(TORN_FILES_MAX);
        torn.iter().take(too_many).try_for_each(|name| discard(&*disk, name))?;
        disk.sync(None)?;
        Ok(name)
    }

    /// Copies a whole file; returns the unique name of the copy.
    pub(crate) fn keep_file(&self, from: &dyn Disk, file: &str) -> io::Result<String> {
        let disk = self.disk()?;
        let taken: Vec<_> = disk.list()?.into_iter().map(|(name, _)| name).collect();
        let numbered = (1u32..).map(|number| format!("{file}.{number}"));
        let name = numbered.into_iter().find(|name| !taken.contains(name)).unwrap_or_default();
        copy(from, file, 0, u64::MAX, &*disk, &name)?;
        disk.sync(None)?;
        Ok(name)
    }
}

/// Deletes all torn tails: in the data folder, or beside the log's own files if there is none.
pub(crate) fn discard_torn(data_folder: Option<&Path>, log_disk: &Arc<dyn Disk>) -> io::Result<()> {
    let disk: Arc<dyn Disk> = match data_folder.map(|data| data.join(CUT_FOLDER)) {
        Some(folder) if !folder.try_exists()? => return Ok(()),
        Some(folder) => Arc::new(FolderDisk::open(&folder)?),
        None => Arc::clone(log_disk),
    };
    let torn: Vec<_> = disk.list()?.into_iter().map(|(name, _)| name).filter(|name| is_torn(name)).collect();
    torn.iter().try_for_each(|name| discard(&*disk, name))?;
    if torn.is_empty() { Ok(()) } else { disk.sync(None) }
}

/// Names sort in the order of the tails.
fn torn_name(segment: SegmentName, offset: u64) -> String {
    format!("torn.{:020}.{offset:010}", segment.base.get())
}

fn is_torn(name: &str) -> bool {
    name.starts_with("torn.")
}

/// Copies a file from `offset` on, without the zeros it ends in, durably.
fn copy(from: &dyn Disk, file: &str, offset: u64, most: u64, to: &dyn Disk, name: &str) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let (mut copied, mut end) = (0, 0);
    // It must exist before it is truncated.
    to.write(name, 0, &[])?;
    to.truncate(name, 0)?;
    loop {
        let filled = from.read(file, offset + copied, &mut chunk)?;
        let bytes = chunk.get(..filled).unwrap_or_default();
        if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
            to.write(name, copied, bytes)?;
            end = copied + last as u64 + 1;
        }
        copied += filled as u64;
        if filled < chunk.len() || copied >= most {
            break;
        }
    }
    to.truncate(name, end)?;
    to.sync(Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fault_disk::FaultDisk;
    use contract::Position;

    #[test]
    fn the_newest_torn_tails_are_kept_without_the_zeros_they_end_in() {
        let disk = FaultDisk::new();
        let any: Arc<dyn Disk> = Arc::new(disk.clone());
        for base in 1..=20 {
            let segment = SegmentName { base: Position(base), generation: 1 };
            disk.put(&segment.file(), [vec![7; 100], vec![base as u8; 50], vec![0; 3000]].concat());
            let kept = CutFolder::On(&any).keep_torn(&disk, segment, 100).unwrap();
            assert_eq!(disk.bytes(&kept), Some(vec![base as u8; 50]));
        }
        let torn: Vec<_> = disk.names().into_iter().filter(|name| is_torn(name)).collect();
        assert_eq!(torn.len(), TORN_FILES_MAX);
        assert_eq!(torn.first(), Some(&"torn.00000000000000000005.0000000100".to_owned()));
    }

    #[test]
    fn two_cuts_of_one_file_do_not_replace_each_other() {
        let disk = FaultDisk::new();
        let any: Arc<dyn Disk> = Arc::new(disk.clone());
        disk.put("x.log", vec![1; 10]);
        assert_eq!(CutFolder::On(&any).keep_file(&disk, "x.log").unwrap(), "x.log.1");
        disk.put("x.log", vec![2; 10]);
        assert_eq!(CutFolder::On(&any).keep_file(&disk, "x.log").unwrap(), "x.log.2");
        assert_eq!((disk.bytes("x.log.1"), disk.bytes("x.log.2")), (Some(vec![1; 10]), Some(vec![2; 10])));
    }
}
