//! Writes a run, row by row, in one pass from header to footer.
//!
//! - Rows are pushed in ascending order of keys, no key twice.
//! - RAM: one block, the fences and the filter; the latter two are passed on to the open run.
//! - The file is synced as it grows, so that the log's own syncs never wait behind a large backlog of this file.

use super::bloom_filter::{BloomFilter, KeyProbe};
use super::folder::at;
use super::format::{self, RunFooter};
use super::manifest::RunRef;
use super::run::SortedRun;
use log::file::private_file;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Bytes that may be written before the next sync.
const UNSYNCED_BYTES_MAX: u64 = 8 << 20;

/// A run being written.
pub(super) struct RunWriter<const V: usize> {
    path: PathBuf,
    file: BufWriter<File>,
    number: u64,
    header_crc: u32,
    block: Vec<u8>,
    fences: Vec<u64>,
    filter: BloomFilter,
    rows: u64,
    max_stamp: i64,
    blocks_crc: u32,
    unsynced_bytes: u64,
}

impl<const V: usize> RunWriter<V> {
    /// Begins run `number` in the file `path`, for at most `rows_max` rows.
    pub(super) fn create(path: PathBuf, number: u64, rows_max: u64) -> io::Result<Self> {
        let file = private_file().read(true).write(true).create(true).truncate(true).open(&path);
        let mut file = BufWriter::with_capacity(1 << 18, file.map_err(at(&path))?);
        let header = format::header::<V>(number);
        file.write_all(&header).map_err(at(&path))?;
        Ok(Self {
            path,
            file,
            number,
            header_crc: crc32c::crc32c(&header),
            block: Vec::with_capacity(format::block_bytes::<V>() as usize),
            fences: Vec::new(),
            filter: BloomFilter::with_room(rows_max),
            rows: 0,
            max_stamp: i64::MIN,
            blocks_crc: 0,
            unsynced_bytes: 0,
        })
    }

    /// Adds a row; its key is greater than the one before.
    pub(super) fn push(&mut self, key: u128, value: &[u8; V], stamp: i64) -> io::Result<()> {
        if self.block.is_empty() {
            self.fences.push((key >> 64) as u64);
        }
        self.block.extend_from_slice(&key.to_le_bytes());
        self.block.extend_from_slice(value);
        self.filter.add(&KeyProbe::of(key));
        self.max_stamp = self.max_stamp.max(stamp);
        self.rows += 1;
        if self.rows.is_multiple_of(format::BLOCK_ROWS) { self.end_block() } else { Ok(()) }
    }

    /// Ends the file and makes it durable. `None` for a run without rows; its file is deleted by the next sweep.
    pub(super) fn finish(mut self) -> io::Result<Option<SortedRun<V>>> {
        if self.rows == 0 {
            return Ok(None);
        }
        if !self.block.is_empty() {
            self.end_block()?;
        }
        self.fences.shrink_to_fit();
        self.filter.shrink_to(self.rows);
        let footer = RunFooter {
            rows: self.rows,
            max_stamp: self.max_stamp,
            filter_blocks: self.filter.len(),
            blocks_crc: self.blocks_crc,
            index_crc: self.write_index().map_err(at(&self.path))?,
        };
        let (bytes, crc32c) = footer.encode(self.header_crc);
        self.file.write_all(&bytes).map_err(at(&self.path))?;
        let file = self.file.into_inner().map_err(|failed| at(&self.path)(failed.into_error()))?;
        file.sync_all().map_err(at(&self.path))?;
        Ok(Some(SortedRun {
            path: self.path,
            file,
            entry: RunRef { number: self.number, bytes: footer.file_bytes::<V>(), crc32c },
            header_crc: self.header_crc,
            footer,
            fences: self.fences,
            filter: self.filter,
        }))
    }

    fn end_block(&mut self) -> io::Result<()> {
        let crc = format::block_crc(self.header_crc, self.fences.len() as u64 - 1, &self.block);
        self.blocks_crc = crc32c::crc32c_append(self.blocks_crc, &crc.to_le_bytes());
        self.block.extend_from_slice(&crc.to_le_bytes());
        self.file.write_all(&self.block).map_err(at(&self.path))?;
        self.unsynced_bytes += self.block.len() as u64;
        self.block.clear();
        if self.unsynced_bytes >= UNSYNCED_BYTES_MAX {
            self.unsynced_bytes = 0;
            self.file.flush().and_then(|()| self.file.get_ref().sync_data()).map_err(at(&self.path))?;
        }
        Ok(())
    }

    /// Writes fences and filter. Returns their checksum.
    fn write_index(&mut self) -> io::Result<u32> {
        let mut crc = 0;
        for fence in &self.fences {
            crc = crc32c::crc32c_append(crc, &fence.to_le_bytes());
            self.file.write_all(&fence.to_le_bytes())?;
        }
        for block in self.filter.bytes() {
            crc = crc32c::crc32c_append(crc, &block);
            self.file.write_all(&block)?;
        }
        Ok(crc)
    }
}
