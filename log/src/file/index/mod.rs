//! Where a segment's records are: by position, by topic and sequence, by id, by aggregate.
//!
//! - An index is a cache of its segment: live in RAM while the segment grows, paged from its `.idx` file once sealed.
//! - It gives locations; the reader verifies the bytes there.
//! - In RAM a sealed segment costs its summary and two bytes of filter per record; the rest is read as needed.

mod aggregate_run;
mod bloom_filter;
mod key_numbers;
mod live;
mod paged;
mod pages;
mod summary;

pub(crate) use live::LiveIndex;
pub(crate) use paged::{PagedIndex, encode as encode_index, is_finished as index_is_finished};
pub(crate) use summary::{SegmentSummary, TopicSummary};

use super::Disk;
use super::frame::HEADER_BYTES_MAX;
use crate::{LogError, ReadLimit, ReadRange, TopicNumber};
use std::io;

/// The limit of bytes of one step of a read: large enough to be limited by memory, small enough for the reader to start soon.
const STEP_BYTES: usize = 1024 * 1024;
/// The limit of locations of one step.
const STEP_PLACES: usize = 4096;

/// The location of a record in its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameLocation {
    /// Where its frame begins.
    pub(crate) offset: u64,
    /// How long the frame is.
    pub(crate) bytes: usize,
    /// Its number in the order of the lookup: position, sequence or aggregate sequence.
    pub(crate) number: u64,
}

/// An order of a segment's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordOrder {
    /// All of them by position.
    Log,
    /// Those of one topic, by sequence.
    Topic(TopicNumber),
}

/// Why a location could not be looked up or read.
#[derive(Debug)]
pub(crate) enum LookupError {
    /// The file was rewritten, merged or dropped in the meantime: retry.
    Gone,
    /// The index file is damaged: rebuild it.
    BadIndex,
    /// It failed.
    Failed(LogError),
}

impl From<io::Error> for LookupError {
    fn from(cause: io::Error) -> Self {
        if cause.kind() == io::ErrorKind::NotFound { Self::Gone } else { Self::Failed(cause.into()) }
    }
}

impl From<LogError> for LookupError {
    fn from(error: LogError) -> Self {
        Self::Failed(error)
    }
}

/// A sealed segment's index.
#[derive(Debug)]
pub(crate) enum SegmentIndex {
    /// Not yet written to its file, or rebuilt.
    Live(LiveIndex),
    /// In its file.
    Paged(PagedIndex),
}

impl SegmentIndex {
    /// Locations of `range`, in its order, for one step of a read within `limit`.
    pub(crate) fn places(
        &self,
        disk: &dyn Disk,
        range: ReadRange,
        limit: ReadLimit,
    ) -> Result<Vec<FrameLocation>, LookupError> {
        match self {
            Self::Live(index) => Ok(index.places(range, limit)),
            Self::Paged(index) => index.places(disk, range, limit),
        }
    }

    /// The `rank`-th location of an order, from 0.
    pub(crate) fn nth(
        &self,
        disk: &dyn Disk,
        order: RecordOrder,
        rank: u32,
    ) -> Result<Option<FrameLocation>, LookupError> {
        match self {
            Self::Live(index) => Ok(index.nth(order, rank)),
            Self::Paged(index) => index.nth(disk, order, rank),
        }
    }

    /// Offsets of the records stored under an id, oldest first.
    pub(crate) fn ids(&self, disk: &dyn Disk, id: u128) -> Result<Vec<u64>, LookupError> {
        match self {
            Self::Live(index) => Ok(index.ids(id)),
            Self::Paged(index) => index.ids(disk, id),
        }
    }

    /// Offsets of an aggregate's last records, at most `most`, newest first.
    pub(crate) fn aggregate(&self, disk: &dyn Disk, key: u128, most: usize) -> Result<Vec<u64>, LookupError> {
        match self {
            Self::Live(index) => Ok(index.aggregate(key, most)),
            Self::Paged(index) => index.aggregate(disk, key, most),
        }
    }

    /// `false` only if no record has this id.
    pub(crate) fn may_hold_id(&self, id: u128) -> bool {
        match self {
            Self::Live(index) => index.holds_id(id),
            Self::Paged(index) => index.may_hold_id(id),
        }
    }

    /// `false` only if no record belongs to this aggregate.
    pub(crate) fn may_hold_aggregate(&self, key: u128) -> bool {
        match self {
            Self::Live(index) => index.holds_aggregate(key),
            Self::Paged(index) => index.may_hold_aggregate(key),
        }
    }
}

/// The locations of one step, up to the limit.
///
/// Body sizes are not in an index, so the limit's bytes count the smallest possible body of each record; the reader applies the
/// exact limit.
struct ReadPlan {
    places: Vec<FrameLocation>,
    limit: ReadLimit,
    body_bytes: usize,
    frame_bytes: usize,
}

impl ReadPlan {
    fn new(limit: ReadLimit) -> Self {
        Self { places: Vec::new(), limit, body_bytes: 0, frame_bytes: 0 }
    }

    /// How many locations can be needed at most.
    fn places_max(limit: ReadLimit) -> usize {
        limit.records.clamp(1, STEP_PLACES)
    }

    /// Adds a location; `false` if there is no room for it.
    fn take(&mut self, place: FrameLocation) -> bool {
        let body_bytes = self.body_bytes + place.bytes.saturating_sub(HEADER_BYTES_MAX);
        let frame_bytes = self.frame_bytes + place.bytes;
        let full = self.places.len() >= Self::places_max(self.limit)
            || body_bytes > self.limit.bytes
            || frame_bytes > STEP_BYTES;
        if full && !self.places.is_empty() {
            return false;
        }
        self.body_bytes = body_bytes;
        self.frame_bytes = frame_bytes;
        self.places.push(place);
        true
    }
}
