//! Reading records at known locations: few large reads, every checksum verified, bodies shared instead of copied.

use super::Disk;
use super::frame::{self, FrameFlaw};
use super::index::FrameLocation;
use crate::{ReadRange, Record, RecordHeader};
use bytes::Bytes;
use std::io;

/// Locations no further apart than this are read at once: the bytes between them cost less than another call.
const GAP_BYTES: u64 = 8 * 1024;

/// The bytes at some locations of one file.
pub(crate) struct FetchedFrames {
    bytes: Bytes,
    /// Where each location begins in `bytes`.
    starts: Vec<usize>,
}

/// A run of the file that is read at once.
struct ReadExtent {
    offset: u64,
    end: u64,
}

/// Reads all of `places`, which ascend.
pub(crate) fn fetch(disk: &dyn Disk, file: &str, places: &[FrameLocation]) -> io::Result<FetchedFrames> {
    let mut extents: Vec<ReadExtent> = Vec::new();
    let mut starts = Vec::with_capacity(places.len());
    let mut total = 0;
    for place in places {
        let end = place.offset + place.bytes as u64;
        match extents.last_mut() {
            Some(extent) if place.offset >= extent.end && place.offset - extent.end <= GAP_BYTES => {
                total += (end - extent.end) as usize;
                extent.end = end;
            }
            _ => {
                total += place.bytes;
                extents.push(ReadExtent { offset: place.offset, end });
            }
        }
        starts.push(total - place.bytes);
    }
    let mut bytes = vec![0; total];
    let mut rest = bytes.as_mut_slice();
    for extent in &extents {
        let Some((target, behind)) = rest.split_at_mut_checked((extent.end - extent.offset) as usize) else { break };
        // Bytes beyond the end of the file stay zero, which is no frame.
        disk.read(file, extent.offset, target)?;
        rest = behind;
    }
    let fetched = FetchedFrames { bytes: Bytes::from(bytes), starts };
    let wanted = places.iter().map(|place| place.bytes).sum::<usize>();
    Ok(if total > 2 * wanted { fetched.compacted(places, wanted) } else { fetched })
}

impl FetchedFrames {
    /// The same without the bytes between the locations: records keep the buffer alive, and would keep all of it.
    fn compacted(&self, places: &[FrameLocation], wanted: usize) -> Self {
        let mut bytes = Vec::with_capacity(wanted);
        let mut starts = Vec::with_capacity(places.len());
        for (number, place) in places.iter().enumerate() {
            starts.push(bytes.len());
            bytes.extend_from_slice(self.frame(number, place));
        }
        Self { bytes: Bytes::from(bytes), starts }
    }

    /// The frame at the `number`-th location, not decoded.
    pub(crate) fn frame(&self, number: usize, place: &FrameLocation) -> &[u8] {
        let start = self.starts.get(number).copied().unwrap_or(self.bytes.len());
        self.bytes.get(start..start + place.bytes).unwrap_or_default()
    }

    /// The record at the `number`-th location; it must be the one that `range` expects there. Its body is verified if
    /// `check_body`.
    pub(crate) fn record(
        &self,
        (number, place): (usize, &FrameLocation),
        range: ReadRange,
        salt: u32,
        check_body: bool,
    ) -> Result<Record, FrameFlaw> {
        let bytes = self.frame(number, place);
        let frame = frame::decode(bytes, salt)?;
        let body = bytes.get(frame.header_bytes..).unwrap_or_default();
        if check_body {
            frame.check(body)?;
        }
        if frame.bytes() != place.bytes || !is_promised(&frame.header, place.number, range) {
            return Err(FrameFlaw::Field);
        }
        Ok(Record { header: frame.header, body: self.bytes.slice_ref(body) })
    }
}

fn is_promised(header: &RecordHeader, number: u64, range: ReadRange) -> bool {
    match range {
        ReadRange::All(_) => header.position.get() == number,
        ReadRange::Topic(topic, _) => header.topic == topic && header.sequence.get() == number,
        ReadRange::Aggregate(key, _) => header
            .facets
            .and_then(|facets| facets.aggregate)
            .is_some_and(|mark| mark.key == key && mark.sequence.get() == number),
    }
}
