//! Merging sorted rows from several sources into one ascending stream.
//!
//! - Of rows with one key, the row of the first source is returned and the others are dropped.
//! - RAM is bounded by the sources' buffers, a few blocks each, however long the runs are.

use super::row_map::TableRow;
use super::run::SortedRun;
use std::io;
use std::sync::Arc;
use std::vec;

/// Blocks read at once: large enough that seeks do not matter, small enough that a dozen sources stay under a few MB.
const BLOCKS_PER_READ: u64 = 16;

/// Ascending rows: some in RAM, then those of a run that have not been read yet.
pub(super) struct MergeSource<const V: usize> {
    next: Option<TableRow<V>>,
    rows: vec::IntoIter<TableRow<V>>,
    rest: Option<UnreadBlocks<V>>,
}

struct UnreadBlocks<const V: usize> {
    run: Arc<SortedRun<V>>,
    next_block: u64,
}

/// The merged rows of some sources, newest first.
pub(super) struct RunMerge<const V: usize>(pub(super) Vec<MergeSource<V>>);

impl<const V: usize> MergeSource<V> {
    /// Rows in RAM, sorted.
    pub(super) fn rows(rows: Vec<TableRow<V>>) -> Self {
        let mut rows = rows.into_iter();
        Self { next: rows.next(), rows, rest: None }
    }

    /// The rows of a run.
    pub(super) fn run(run: Arc<SortedRun<V>>) -> io::Result<Self> {
        let mut source =
            Self { next: None, rows: vec::IntoIter::default(), rest: Some(UnreadBlocks { run, next_block: 0 }) };
        source.advance()?;
        Ok(source)
    }

    fn key(&self) -> Option<u128> {
        self.next.map(|(key, _)| key)
    }

    /// Returns the next row and advances to the one after it.
    fn advance(&mut self) -> io::Result<Option<TableRow<V>>> {
        if self.rows.len() == 0 {
            self.refill()?;
        }
        Ok(std::mem::replace(&mut self.next, self.rows.next()))
    }

    fn refill(&mut self) -> io::Result<()> {
        let Some(UnreadBlocks { run, next_block }) = &mut self.rest else { return Ok(()) };
        let blocks = *next_block..run.blocks().min(*next_block + BLOCKS_PER_READ);
        *next_block = blocks.end;
        self.rows = run.read_rows(blocks)?.into_iter();
        Ok(())
    }
}

impl<const V: usize> RunMerge<V> {
    /// The newest row of the smallest key not returned yet.
    pub(super) fn next(&mut self) -> io::Result<Option<TableRow<V>>> {
        // A dozen sources at most: a linear search is as fast as a heap.
        let least = self.0.iter().filter_map(MergeSource::key).min();
        let mut newest = None;
        for source in self.0.iter_mut().filter(|source| least.is_some() && source.key() == least) {
            let row = source.advance()?;
            newest = newest.or(row);
        }
        Ok(newest)
    }
}
