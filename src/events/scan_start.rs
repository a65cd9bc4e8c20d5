//! Where a read of a topic starts: at an offset, or at either end of what is there.

use crate::ledger::{Ledger, read_failed};
use contract::{Offset, ReadOffset, Result, Sequence};
use log::{LogError, ReadLimit, ReadRange, TopicNumber};

/// Where a scan of a topic starts, and what it does if retention has removed that place.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScanStart {
    /// The scan starts after this offset.
    pub(super) after: Offset,
    /// Whether it continues with the first event that is left, instead of being refused. This holds for the whole
    /// request, because retention may run while it waits or scans.
    pub(super) skips_removed: bool,
}

impl ScanStart {
    /// The start for `offset` in a topic whose last sequence is `tail`.
    pub(super) fn new(offset: ReadOffset, tail: Sequence) -> Self {
        match offset {
            ReadOffset::Behind(after) => Self { after, skips_removed: false },
            ReadOffset::Earliest => Self { after: Offset::ZERO, skips_removed: true },
            ReadOffset::Latest => Self { after: tail.into(), skips_removed: false },
        }
    }
}

/// The offset before the first event that is left; the tail if none is.
pub(crate) async fn before_earliest(ledger: &Ledger, topic: TopicNumber) -> Result<Offset> {
    match ledger.log().headers(ReadRange::Topic(topic, Sequence::ZERO), ReadLimit { records: 1, bytes: 0 }).await {
        Ok(_) => Ok(Offset::ZERO),
        Err(LogError::Trimmed(earliest)) => Ok(before(earliest)),
        Err(error) => Err(read_failed(error)),
    }
}

/// The offset whose next event is `sequence`.
pub(super) fn before(sequence: Sequence) -> Offset {
    Offset(sequence.get().saturating_sub(1))
}
