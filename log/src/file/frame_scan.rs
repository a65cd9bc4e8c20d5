//! Reading a segment frame by frame, for recovery, rebuilding an index and verifying.
//!
//! - Frames follow each other after the head; if the rest of the file is zeros, there are no more.
//! - Nothing is decided here: a flaw is reported with its offset, and its meaning depends on the caller.

use super::frame::{self, FrameFlaw, FrameHeader, HEADER_BYTES_MAX, MARKER};
use super::index::LiveIndex;
use super::segment_head::{HEAD_BYTES, SegmentHead};
use super::{Disk, file_names::SegmentName};
use std::io;

/// Bytes read at once.
const WINDOW_BYTES: usize = 1024 * 1024;

/// A frame that was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScannedFrame {
    /// Where it begins.
    pub(crate) offset: u64,
    /// Its header, which matches its checksum.
    pub(crate) frame: FrameHeader,
    /// Whether its body matches too.
    pub(crate) body: Result<(), FrameFlaw>,
}

/// The result of a step.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "used where it is created, one at a time")]
pub(crate) enum ScanStep {
    /// A frame.
    Frame(ScannedFrame),
    /// Nothing but zeros, or the end of the file.
    End,
    /// Bytes that are not a frame.
    Flaw(FrameFlaw),
}

/// A scan of one file.
pub(crate) struct FrameScanner<'a> {
    disk: &'a dyn Disk,
    file: String,
    salt: u32,
    check_bodies: bool,
    /// Where the next frame should begin.
    offset: u64,
    window: Vec<u8>,
    window_at: u64,
}

/// Reads a segment's head. `None` if it is not valid.
pub(crate) fn read_head(disk: &dyn Disk, name: SegmentName) -> io::Result<Option<SegmentHead>> {
    let mut bytes = [0; HEAD_BYTES];
    let filled = disk.read(&name.file(), 0, &mut bytes)?;
    Ok(if filled == HEAD_BYTES { SegmentHead::decode(&bytes, name) } else { None })
}

/// Whether a file contains only zeros from `offset` on.
pub(crate) fn zeros_from(disk: &dyn Disk, file: &str, mut offset: u64) -> io::Result<bool> {
    let mut window = vec![0; WINDOW_BYTES];
    loop {
        let filled = disk.read(file, offset, &mut window)?;
        if window.iter().take(filled).any(|byte| *byte != 0) {
            return Ok(false);
        }
        if filled < window.len() {
            return Ok(true);
        }
        offset += filled as u64;
    }
}

/// The index of a segment that was scanned.
pub(crate) enum ScannedIndex {
    Intact(Box<LiveIndex>),
    /// At this offset there are bytes that are not a frame.
    Damaged(u64, FrameFlaw),
}

/// Indexes a sealed segment by its headers. Bodies are verified when they are read: a bad one affects only its record.
pub(crate) fn index(disk: &dyn Disk, head: &SegmentHead) -> io::Result<ScannedIndex> {
    let mut live = LiveIndex::new(head.name.base, HEAD_BYTES as u64);
    let mut walk = FrameScanner::headers(disk, head);
    loop {
        match walk.step()? {
            ScanStep::Frame(found) => live.push(&found.frame.header, found.frame.bytes()),
            ScanStep::End => return Ok(ScannedIndex::Intact(Box::new(live))),
            ScanStep::Flaw(flaw) => return Ok(ScannedIndex::Damaged(walk.offset(), flaw)),
        }
    }
}

impl<'a> FrameScanner<'a> {
    /// A scan that verifies headers and bodies.
    pub(crate) fn whole(disk: &'a dyn Disk, head: &SegmentHead) -> Self {
        Self::new(disk, head, true)
    }

    /// A scan that does not verify bodies.
    pub(crate) fn headers(disk: &'a dyn Disk, head: &SegmentHead) -> Self {
        Self::new(disk, head, false)
    }

    fn new(disk: &'a dyn Disk, head: &SegmentHead, check_bodies: bool) -> Self {
        let file = head.name.file();
        let offset = HEAD_BYTES as u64;
        Self { disk, file, salt: head.salt, check_bodies, offset, window: Vec::new(), window_at: 0 }
    }

    /// Where the next frame should begin.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next frame. After a flaw it stays where it is.
    pub(crate) fn step(&mut self) -> io::Result<ScanStep> {
        let (salt, check_bodies) = (self.salt, self.check_bodies);
        let decoded = frame::decode(self.view(HEADER_BYTES_MAX)?, salt);
        let frame = match decoded {
            Ok(frame) => frame,
            Err(_) if zeros_from(self.disk, &self.file, self.offset)? => return Ok(ScanStep::End),
            Err(flaw) => return Ok(ScanStep::Flaw(flaw)),
        };
        let view = self.view(frame.bytes())?;
        if view.len() < frame.bytes() {
            return Ok(ScanStep::Flaw(FrameFlaw::Short));
        }
        let body = view.get(frame.header_bytes..).unwrap_or_default();
        let body = if check_bodies { frame.check(body) } else { Ok(()) };
        let offset = self.offset;
        self.offset += frame.bytes() as u64;
        Ok(ScanStep::Frame(ScannedFrame { offset, frame, body }))
    }

    /// Continues at another offset.
    pub(crate) fn resume(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// The first frame header from `offset` on that `wanted` accepts. The salt ensures that it is a header, and not a body that
    /// looks like one.
    pub(crate) fn search(mut self, offset: u64, wanted: impl Fn(&FrameHeader) -> bool) -> io::Result<Option<u64>> {
        self.offset = offset;
        self.window.clear();
        loop {
            let salt = self.salt;
            let view = self.view(WINDOW_BYTES)?;
            let whole_file = view.len() < WINDOW_BYTES;
            let starts = view.windows(MARKER.len()).enumerate().filter(|(_, start)| *start == MARKER);
            let mut frames = starts.filter_map(|(at, _)| Some((at, frame::decode(view.get(at..)?, salt).ok()?)));
            if let Some((at, _)) = frames.find(|(_, frame)| wanted(frame)) {
                return Ok(Some(self.offset + at as u64));
            }
            if whole_file {
                return Ok(None);
            }
            // A header may begin in this window and end in the next.
            self.offset += (WINDOW_BYTES - HEADER_BYTES_MAX) as u64 + 1;
        }
    }

    /// Up to `bytes` bytes from the current offset; fewer only at the end of the file.
    fn view(&mut self, bytes: usize) -> io::Result<&[u8]> {
        let start = self.offset.wrapping_sub(self.window_at) as usize;
        if self.window.len() < start.saturating_add(bytes) {
            self.window_at = self.offset;
            self.window = vec![0; bytes.max(WINDOW_BYTES)];
            let filled = self.disk.read(&self.file, self.offset, &mut self.window)?;
            self.window.truncate(filled);
        }
        let start = (self.offset - self.window_at) as usize;
        let rest = self.window.get(start..).unwrap_or_default();
        Ok(rest.get(..bytes).unwrap_or(rest))
    }
}
