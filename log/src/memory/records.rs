//! The records, in chunks, so that removing some from the middle moves only few others.

use crate::Record;
use contract::Position;
use std::collections::VecDeque;

/// Records in a chunk. Removing some moves the others of their chunk, so chunks are short.
const CHUNK_RECORDS: usize = 256;

/// The records left, in order of position.
#[derive(Default)]
pub(super) struct RecordChunks {
    /// No chunk is empty.
    pub(super) chunks: VecDeque<RecordChunk>,
}

/// Neighbouring records, in order of position.
pub(super) struct RecordChunk {
    /// The position it began with; that record may have been removed.
    first: Position,
    pub(super) records: Vec<Record>,
}

impl RecordChunks {
    pub(super) fn push(&mut self, record: Record) {
        match self.chunks.back_mut() {
            Some(chunk) if chunk.records.len() < CHUNK_RECORDS => chunk.records.push(record),
            _ => self.chunks.push_back(RecordChunk::begin(record)),
        }
    }

    pub(super) fn get(&self, position: Position) -> Option<&Record> {
        self.chunks.get(self.chunk_of(position)).and_then(|chunk| chunk.get(position))
    }

    pub(super) fn behind(&self, position: Position) -> impl Iterator<Item = &Record> {
        self.chunks.iter().skip(self.chunk_of(position)).flat_map(move |chunk| chunk.behind(position))
    }

    /// The first record stored at or after `time`; times do not decrease along the log.
    pub(super) fn since(&self, time: i64) -> Option<&Record> {
        let earlier = |record: &Record| record.header.time < time;
        let chunk = self.chunks.get(self.chunks.partition_point(|chunk| chunk.records.last().is_some_and(earlier)))?;
        chunk.records.get(chunk.records.partition_point(earlier))
    }

    /// Removes the records at `positions`, which ascend.
    pub(super) fn take(&mut self, mut positions: &[Position]) -> Vec<Record> {
        let mut taken = Vec::with_capacity(positions.len());
        let mut emptied = false;
        while let Some(first) = positions.first() {
            let at = self.chunk_of(*first);
            let next = self.chunks.get(at + 1).map(|chunk| chunk.first);
            let here = positions.partition_point(|position| next.is_none_or(|next| *position < next));
            let (here, rest) = positions.split_at(here);
            if let Some(chunk) = self.chunks.get_mut(at) {
                chunk.take(here, &mut taken);
                emptied |= chunk.records.is_empty();
            }
            positions = rest;
        }
        if emptied {
            self.chunks.retain(|chunk| !chunk.records.is_empty());
        }
        taken
    }

    /// The chunk that contains `position`, if it is still there.
    fn chunk_of(&self, position: Position) -> usize {
        self.chunks.partition_point(|chunk| chunk.first <= position).saturating_sub(1)
    }
}

impl RecordChunk {
    fn begin(record: Record) -> Self {
        let first = record.header.position;
        let mut records = Vec::with_capacity(CHUNK_RECORDS);
        records.push(record);
        Self { first, records }
    }

    fn get(&self, position: Position) -> Option<&Record> {
        self.records.get(self.count_through(position).checked_sub(1)?).filter(|it| it.header.position == position)
    }

    fn behind(&self, position: Position) -> &[Record] {
        self.records.get(self.count_through(position)..).unwrap_or_default()
    }

    /// How many records there are up to `position`.
    fn count_through(&self, position: Position) -> usize {
        // Without removals the index follows from the position.
        let guess = position.0.checked_sub(self.first.0).and_then(|distance| usize::try_from(distance).ok());
        if let Some(guess) = guess
            && self.records.get(guess).is_some_and(|record| record.header.position == position)
        {
            return guess + 1;
        }
        self.records.partition_point(|record| record.header.position <= position)
    }

    fn take(&mut self, positions: &[Position], taken: &mut Vec<Record>) {
        let meant = |record: &mut Record| positions.binary_search(&record.header.position).is_ok();
        taken.extend(self.records.extract_if(.., meant));
        if self.records.len() < self.records.capacity() / 2 {
            self.records.shrink_to_fit();
        }
    }
}
