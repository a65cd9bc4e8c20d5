//! A run: an immutable sorted file of rows, read one block at a time.
//!
//! - Fences and filter are in RAM and were checked when the run was opened; a block is checked whenever it is read.
//! - A lookup reads one block if the key passes the filter (two blocks if the key's high half equals a fence).

use super::bloom_filter::{BloomFilter, KeyProbe};
use super::folder::{at, damaged};
use super::format::{self, FOOTER_BYTES, HEADER_BYTES, RunFooter};
use super::manifest::RunRef;
use super::row_map::TableRow;
use super::tiering::RunShape;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open run.
#[derive(Debug)]
pub(super) struct SortedRun<const V: usize> {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) entry: RunRef,
    pub(super) header_crc: u32,
    pub(super) footer: RunFooter,
    /// The high half of each block's first key.
    pub(super) fences: Vec<u64>,
    pub(super) filter: BloomFilter,
}

impl<const V: usize> SortedRun<V> {
    /// Opens the file that `entry` describes, and reads everything but its rows.
    pub(super) fn open(path: PathBuf, entry: RunRef) -> io::Result<Self> {
        let file = File::open(&path).map_err(at(&path))?;
        let header_crc = check_header::<V>(&path, &file, entry)?;
        let footer = read_footer::<V>(&path, &file, entry, header_crc)?;
        let (fences, filter) = read_index::<V>(&path, &file, &footer)?;
        Ok(Self { path, file, entry, header_crc, footer, fences, filter })
    }

    /// What the tiering policy chooses by.
    pub(super) fn shape(&self) -> RunShape {
        RunShape { rows: self.footer.rows, max_stamp: self.footer.max_stamp }
    }

    /// How many blocks of rows there are.
    pub(super) fn blocks(&self) -> u64 {
        self.footer.blocks()
    }

    /// Whether the key may be in this run. `false` is certain.
    pub(super) fn may_hold(&self, probe: &KeyProbe) -> bool {
        self.filter.may_hold(probe)
    }

    /// The value of `key` in this run.
    pub(super) fn get(&self, key: u128) -> io::Result<Option<[u8; V]>> {
        let (high, wanted) = ((key >> 64) as u64, key.to_le_bytes());
        let end = self.fences.partition_point(|fence| *fence <= high);
        for (number, fence) in self.fences.iter().enumerate().take(end).rev() {
            let number = number as u64;
            let block = self.read(number..number + 1)?;
            let rows = self.check(number, &block)?;
            let found = rows.chunks_exact(format::row_bytes::<V>() as usize).find(|row| row.starts_with(&wanted));
            if let Some((_, value)) = found.and_then(format::row) {
                return Ok(Some(value));
            }
            // A fence is only half a key: if the halves are equal, the key may still be in the block before.
            if *fence < high {
                break;
            }
        }
        Ok(None)
    }

    /// The rows of some blocks.
    pub(super) fn read_rows(&self, blocks: Range<u64>) -> io::Result<Vec<TableRow<V>>> {
        let bytes = self.read(blocks.clone())?;
        let mut rows = Vec::with_capacity(bytes.len() / format::row_bytes::<V>() as usize);
        for (number, block) in blocks.zip(bytes.chunks(format::block_bytes::<V>() as usize)) {
            let bytes = self.check(number, block)?;
            rows.extend(bytes.chunks_exact(format::row_bytes::<V>() as usize).filter_map(format::row));
        }
        Ok(rows)
    }

    /// The bytes of some blocks, without checking them.
    fn read(&self, blocks: Range<u64>) -> io::Result<Vec<u8>> {
        let place = |block: u64| (HEADER_BYTES + block * format::block_bytes::<V>()).min(self.footer.index_at::<V>());
        let (start, end) = (place(blocks.start), place(blocks.end));
        let mut bytes = vec![0; (end - start) as usize];
        self.file.read_exact_at(&mut bytes, start).map_err(at(&self.path))?;
        Ok(bytes)
    }

    /// The rows in a block's bytes, if its checksum matches.
    fn check<'a>(&self, number: u64, block: &'a [u8]) -> io::Result<&'a [u8]> {
        match block.split_last_chunk() {
            Some((rows, crc)) if u32::from_le_bytes(*crc) == format::block_crc(self.header_crc, number, rows) => {
                Ok(rows)
            }
            _ => Err(damaged(&self.path, &format!("the checksum of block {number} does not match"))),
        }
    }
}

/// The files of some runs.
pub(super) fn paths<const V: usize>(runs: &[Arc<SortedRun<V>>]) -> Vec<PathBuf> {
    runs.iter().map(|run| run.path.clone()).collect()
}

/// Checks length and header. Returns the header's checksum.
fn check_header<const V: usize>(path: &Path, file: &File, entry: RunRef) -> io::Result<u32> {
    let bytes = file.metadata().map_err(at(path))?.len();
    if bytes != entry.bytes || bytes < HEADER_BYTES + FOOTER_BYTES {
        return Err(damaged(path, &format!("it has {bytes} bytes, the manifest says {}", entry.bytes)));
    }
    let mut header = [0; HEADER_BYTES as usize];
    file.read_exact_at(&mut header, 0).map_err(at(path))?;
    if header[..] != format::header::<V>(entry.number) {
        return Err(damaged(path, "its header is not this run's"));
    }
    Ok(crc32c::crc32c(&header))
}

fn read_footer<const V: usize>(path: &Path, file: &File, entry: RunRef, header_crc: u32) -> io::Result<RunFooter> {
    let mut bytes = [0; FOOTER_BYTES as usize];
    file.read_exact_at(&mut bytes, entry.bytes - FOOTER_BYTES).map_err(at(path))?;
    match RunFooter::decode(&bytes, header_crc) {
        Some((footer, crc)) if crc == entry.crc32c && footer.file_bytes::<V>() == entry.bytes => Ok(footer),
        _ => Err(damaged(path, "its footer is not the one that the manifest names")),
    }
}

fn read_index<const V: usize>(path: &Path, mut file: &File, footer: &RunFooter) -> io::Result<(Vec<u64>, BloomFilter)> {
    file.seek(SeekFrom::Start(footer.index_at::<V>())).map_err(at(path))?;
    let mut index = ChecksumReader { from: BufReader::with_capacity(1 << 16, file.take(footer.index_bytes())), crc: 0 };
    let fences = read_fences(&mut index, footer.blocks()).map_err(at(path))?;
    let filter = BloomFilter::read(&mut index, footer.filter_blocks).map_err(at(path))?;
    if index.crc != footer.index_crc {
        return Err(damaged(path, "the checksum of fences and filter does not match"));
    }
    Ok((fences, filter))
}

fn read_fences(from: &mut impl Read, blocks: u64) -> io::Result<Vec<u64>> {
    let mut fences = Vec::with_capacity(blocks as usize);
    for _ in 0..blocks {
        let mut fence = [0; 8];
        from.read_exact(&mut fence)?;
        fences.push(u64::from_le_bytes(fence));
    }
    Ok(fences)
}

/// A reader that computes the checksum of the bytes it reads.
struct ChecksumReader<R> {
    from: R,
    crc: u32,
}

impl<R: Read> Read for ChecksumReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(into)?;
        self.crc = crc32c::crc32c_append(self.crc, into.get(..count).unwrap_or_default());
        Ok(count)
    }
}
