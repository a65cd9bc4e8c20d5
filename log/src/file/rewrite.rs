//! Copying the remaining records of a sealed segment to a file of the next generation.
//!
//! Order: write the new file, sync it, sync the folder, switch readers to it, remove the old one, sync the folder. Before the
//! last step both exist, and the lower generation is used; so after a power cut only the work is repeated.

use super::disk::discard;
use super::fetch::fetch;
use super::frame;
use super::index::{FrameLocation, LiveIndex, LookupError, SegmentIndex};
use super::segment_head::{HEAD_BYTES, RewrittenExtent, SegmentHead};
use super::state::{SealedSegment, SharedLog};
use super::trim_marks::TrimMarks;
use crate::{ReadLimit, ReadRange, Record, crash_point};
use bytes::Bytes;
use contract::Sequence;
use std::sync::Arc;

const NO_LIMIT: ReadLimit = ReadLimit { records: usize::MAX, bytes: usize::MAX };
/// Bytes copied at once, unless one record is longer.
const STEP_BYTES: usize = 1024 * 1024;

/// Rewrites a segment without what `trim_marks` hide. `None` if a record to keep is damaged: then the old file stays, so that
/// its other records remain readable. A new file that is not used is removed: a full disk needs the room.
pub(crate) fn rewrite(
    shared: &SharedLog,
    segment: &Arc<SealedSegment>,
    trim_marks: &TrimMarks,
) -> Result<Option<Arc<SealedSegment>>, LookupError> {
    let kept = kept_places(shared, segment, trim_marks)?;
    let head = SegmentHead { name: segment.name().next_generation(), ..segment.head };
    let written = write(shared, segment, head, &kept);
    let Ok(Some(rewritten)) = written else {
        discard(&*shared.disk, &head.name.file())?;
        return written;
    };
    if !shared.state_mut().replace(segment, Arc::clone(&rewritten)) {
        discard(&*shared.disk, &head.name.file())?;
        return Err(LookupError::Gone);
    }
    discard(&*shared.disk, &segment.name().file())?;
    discard(&*shared.disk, &segment.name().index_file())?;
    crash_point("rewrite.after_remove_old");
    shared.disk.sync(None)?;
    Ok(Some(rewritten))
}

/// Writes the new file, durably.
fn write(
    shared: &SharedLog,
    segment: &Arc<SealedSegment>,
    mut head: SegmentHead,
    kept: &[FrameLocation],
) -> Result<Option<Arc<SealedSegment>>, LookupError> {
    let file = head.name.file();
    discard(&*shared.disk, &file)?;
    crash_point("rewrite.before_write");
    let mut live = LiveIndex::new(head.name.base, HEAD_BYTES as u64);
    if !copy(shared, segment, &head, kept, &mut live)? {
        return Ok(None);
    }
    head.rewritten = Some(RewrittenExtent { through: segment.through(), bytes: live.bytes() });
    shared.disk.write(&file, 0, &head.encode())?;
    shared.disk.sync(Some(&file))?;
    crash_point("rewrite.after_sync");
    shared.disk.sync(None)?;
    crash_point("rewrite.after_folder_sync");
    let Some(summary) = live.summary() else { return Ok(None) };
    Ok(Some(Arc::new(SealedSegment { head, summary, index: SegmentIndex::Live(live) })))
}

/// The locations of the records to keep, in order. They come from the index, so damage in removed records does not matter.
pub(super) fn kept_places(
    shared: &SharedLog,
    segment: &SealedSegment,
    trim_marks: &TrimMarks,
) -> Result<Vec<FrameLocation>, LookupError> {
    let mut kept = Vec::new();
    for topic in &segment.summary.topics {
        let mut after = trim_marks.removed_through(topic.topic);
        loop {
            let places = segment.index.places(&*shared.disk, ReadRange::Topic(topic.topic, after), NO_LIMIT)?;
            let Some(last) = places.last() else { break };
            after = Sequence(last.number);
            kept.extend(places);
        }
    }
    kept.sort_unstable_by_key(|place| place.offset);
    Ok(kept)
}

/// Copies the records at `kept` to the end of the file of `head`, whose index is `live`. `false` if one of them is damaged.
///
/// A frame is copied as it is where both files have the same salt. Otherwise its header gets a new checksum.
pub(super) fn copy(
    shared: &SharedLog,
    segment: &SealedSegment,
    head: &SegmentHead,
    mut kept: &[FrameLocation],
    live: &mut LiveIndex,
) -> Result<bool, LookupError> {
    let salt = segment.head.salt;
    while let Some((places, rest)) = step(kept) {
        kept = rest;
        let fetched = fetch(&*shared.disk, &segment.name().file(), places)?;
        let offset = live.bytes();
        let mut out = Vec::new();
        for (number, place) in places.iter().enumerate() {
            let bytes = fetched.frame(number, place);
            let Ok(frame) = frame::decode(bytes, salt) else { return Ok(false) };
            let body = bytes.get(frame.header_bytes..).unwrap_or_default();
            if frame.bytes() != bytes.len() || frame.check(body).is_err() {
                return Ok(false);
            }
            match salt == head.salt {
                true => out.extend_from_slice(bytes),
                false => {
                    let record = Record { header: frame.header, body: Bytes::copy_from_slice(body) };
                    frame::encode(&record, frame.slot, head.salt, &mut out);
                }
            }
            live.push(&frame.header, bytes.len());
        }
        shared.disk.write(&head.name.file(), offset, &out)?;
    }
    Ok(true)
}

/// The first locations, as many as are copied at once, and the rest.
fn step(places: &[FrameLocation]) -> Option<(&[FrameLocation], &[FrameLocation])> {
    let mut bytes = 0;
    let fitting = places.iter().take_while(|place| {
        bytes += place.bytes;
        bytes <= STEP_BYTES
    });
    let count = fitting.count().max(1);
    places.split_at_checked(count)
}
