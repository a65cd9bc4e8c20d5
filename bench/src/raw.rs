//! The bare disk: the same writes and syncs without a broker.
//!
//! - [`sync_loop`]: write a piece behind the last one, `fdatasync`, and again. On a file that grows, or on one that was
//!   written full of zeros before, so that a sync has no new length to put down (as the engine does for small appends).
//! - [`write_through`]: pieces of 1 MiB with one `fdatasync` at the end; nothing is durable before it.

use crate::Outcome;
use crate::figures::{self, fine, mebibytes, whole};
use crate::place::{Place, remove};
use crate::report::Table;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The usual block of a disk.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// A piece of sequential writing.
pub(crate) const PIECE_BYTES: usize = 1024 * 1024;
/// A file written ahead is written over from the start when its end is reached.
const AHEAD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Whether a looped file is new or was filled before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Growing,
    WrittenAhead,
}

/// A loop of write and sync.
#[derive(Debug, Clone)]
pub(crate) struct SyncLoop {
    pub(crate) syncs_per_second: f64,
    pub(crate) bytes_per_second: f64,
    /// How long each write with its sync took, in nanoseconds, ascending.
    pub(crate) waits: Vec<u32>,
}

/// How fast a disk is at most; as fast as it is where nothing is said.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    /// A sync takes this long at least.
    pub(crate) sync: Duration,
    /// And as long as its bytes take at this rate.
    pub(crate) bytes_per_second: Option<f64>,
}

impl Pace {
    /// Syncs `bytes`, and lets the caller wait as long as a disk of this pace takes for them.
    pub(crate) fn keep<T>(self, bytes: u64, sync: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let outcome = sync();
        let written = self.bytes_per_second.map(|rate| Duration::from_secs_f64(bytes as f64 / rate));
        let rest = self.sync.max(written.unwrap_or_default()).saturating_sub(begun.elapsed());
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
        outcome
    }
}

/// Writes and syncs pieces of `bytes` for about `time`.
pub(crate) fn sync_loop(place: &Place, bytes: usize, shape: Shape, time: Duration) -> Outcome<SyncLoop> {
    sync_loop_at(Pace::default(), place, bytes, shape, time)
}

/// The same on a disk that is no faster than this.
pub(crate) fn sync_loop_at(pace: Pace, place: &Place, bytes: usize, shape: Shape, time: Duration) -> Outcome<SyncLoop> {
    let path = place.fresh("raw")?;
    let file = create(&path)?;
    let wrap = (AHEAD_BYTES_MAX / bytes).max(1) * bytes;
    if shape == Shape::WrittenAhead {
        file.write_all_at(&vec![0; wrap], 0)?;
        file.sync_all()?;
    }
    let piece = noise(bytes);
    let (mut offset, mut waits, begun) = (0, Vec::new(), Instant::now());
    while begun.elapsed() < time {
        let asked = Instant::now();
        file.write_all_at(&piece, offset)?;
        pace.keep(bytes as u64, || file.sync_data())?;
        waits.push(u32::try_from(asked.elapsed().as_nanos()).unwrap_or(u32::MAX));
        offset += bytes as u64;
        if shape == Shape::WrittenAhead && offset >= wrap as u64 {
            offset = 0;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    remove(&path)?;
    waits.sort_unstable();
    let syncs_per_second = waits.len() as f64 / seconds;
    Ok(SyncLoop { syncs_per_second, bytes_per_second: syncs_per_second * bytes as f64, waits })
}

/// Bytes per second of writing `bytes` in pieces of 1 MiB with one sync at the end.
pub(crate) fn write_through(place: &Place, bytes: usize) -> Outcome<f64> {
    let path = place.fresh("raw")?;
    let (file, piece) = (create(&path)?, noise(PIECE_BYTES));
    let begun = Instant::now();
    for offset in (0..bytes).step_by(PIECE_BYTES) {
        file.write_all_at(&piece, offset as u64)?;
    }
    file.sync_data()?;
    let seconds = begun.elapsed().as_secs_f64();
    remove(&path)?;
    Ok(bytes.next_multiple_of(PIECE_BYTES) as f64 / seconds)
}

/// Bytes, and seconds of reading every segment of a log from front to back, 1 MiB at a time.
pub(crate) fn read_segments(log: &Path) -> Outcome<(u64, f64)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(log)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            files.push(path);
        }
    }
    files.sort_unstable();
    let (mut piece, mut bytes, begun) = (vec![0; PIECE_BYTES], 0, Instant::now());
    for path in &files {
        let (file, mut offset) = (File::open(path)?, 0);
        while let count @ 1.. = file.read_at(&mut piece, offset)? {
            offset += count as u64;
        }
        bytes += offset;
    }
    Ok((bytes, begun.elapsed().as_secs_f64()))
}

/// The bare disk around a section: measured before it, between its parts, and after it.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    blocks: Vec<SyncLoop>,
    pieces: Vec<SyncLoop>,
    throughs: Vec<f64>,
}

impl Samples {
    /// One more sample of each kind.
    pub(crate) fn take(&mut self, place: &Place, time: Duration) -> Outcome {
        self.blocks.push(sync_loop(place, BLOCK_BYTES, Shape::Growing, time)?);
        self.pieces.push(sync_loop(place, PIECE_BYTES, Shape::Growing, time)?);
        self.throughs.push(write_through(place, 256 * PIECE_BYTES)?);
        Ok(())
    }

    /// Median bandwidth of 1 MiB pieces, each synced.
    pub(crate) fn synced_bytes_per_second(&self) -> f64 {
        figures::median(self.pieces.iter().map(|piece| piece.bytes_per_second))
    }

    pub(crate) fn table(&self) -> Table {
        let mut table = Table::new(
            "The bare disk, measured in turn with the above",
            ["", "median", "least", "most", "p50 ms", "p99 ms"],
        );
        let rate = |sync: &SyncLoop| sync.syncs_per_second;
        let speed = |sync: &SyncLoop| sync.bytes_per_second;
        let (p50, p99) = waits(&self.blocks);
        let [median, least, most] = spread(self.blocks.iter().map(rate)).map(whole);
        table.row(["4 KiB + fdatasync, per second".to_owned(), median, least, most, p50, p99]);
        let (p50, p99) = waits(&self.pieces);
        let [median, least, most] = spread(self.pieces.iter().map(speed)).map(mebibytes);
        table.row(["1 MiB + fdatasync each, MiB/s".to_owned(), median, least, most, p50, p99]);
        let [median, least, most] = spread(self.throughs.iter().copied()).map(mebibytes);
        table.row(["1 MiB pieces, one fdatasync, MiB/s".to_owned(), median, least, most, String::new(), String::new()]);
        table
    }
}

/// Median, least, most.
fn spread(samples: impl Iterator<Item = f64> + Clone) -> [f64; 3] {
    [figures::median(samples.clone()), samples.clone().fold(f64::INFINITY, f64::min), figures::greatest(samples)]
}

/// Medians of the waits at one half and at 99 %.
fn waits(loops: &[SyncLoop]) -> (String, String) {
    let at = |share| fine(figures::median(loops.iter().map(|sync| figures::millis_at(&sync.waits, share))));
    (at(0.5), at(0.99))
}

fn create(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create_new(true).read(true).write(true).open(path)
}

/// Bytes that no disk finds easy.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}
