//! Reads the lines of a body while they arrive, in bounded memory.
//!
//! - At most one line is held. One that is too long is discarded while it arrives, and counts as one line.
//! - A line must arrive at the minimum rate. Between lines there may be pauses, in which the caller stores what it holds.
//! - The last line needs no line feed. An incomplete line at the end of a broken body is discarded.

use crate::memory::{ByteReservation, ROOM_STEP};
use crate::rest::AppState;
use crate::rest::body::ArrivalRate;
use crate::rest::problem::Problem;
use axum::body::Body;
use bytes::{Buf, Bytes, BytesMut};
use contract::limits;
use std::time::Duration;

/// Longest line: an event with all its assigned members.
pub(super) const LINE_BYTES_MAX: usize = limits::EVENT_BYTES_MAX + 64 * 1024;

/// How long lines are held for a batch when no more arrive.
const GATHER_TIME: Duration = Duration::from_secs(1);

/// One line of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ImportLine {
    Text(Bytes),
    TooLong,
    /// No line has arrived for a while, and the caller holds lines that can be stored.
    Pause,
}

/// A body that is being received, line by line.
pub(super) struct LineReader {
    body: Body,
    splitter: LineSplitter,
    ended: bool,
    /// The digest of all bytes so far, if the import has an idempotency key.
    digest: Option<blake3::Hasher>,
    /// Room for the line that is arriving, and for lines that were returned and are not stored yet.
    room: ByteReservation,
}

impl LineReader {
    pub(super) fn of(body: Body, digest: Option<blake3::Hasher>, reservation: ByteReservation) -> Self {
        Self { body, splitter: LineSplitter::default(), ended: false, digest, room: reservation }
    }

    /// Gives back the room of the lines that were returned.
    pub(super) fn release_stored(&mut self) {
        self.room.shrink_to(self.splitter.buffer.capacity().max(ROOM_STEP));
    }

    /// The digest of the bytes that have arrived.
    pub(super) const fn digest(&self) -> Option<&blake3::Hasher> {
        self.digest.as_ref()
    }

    /// The next line; `None` at the end of the body. The caller still holds `held` bytes of the lines before it.
    pub(super) async fn next(&mut self, app: &AppState, held: usize) -> Result<Option<ImportLine>, Problem> {
        let mut rate = ArrivalRate::begin();
        loop {
            if let Some(line) = self.splitter.line() {
                return Ok(Some(line));
            }
            if self.ended {
                return Ok(self.splitter.last());
            }
            // Half a line is held, so the rest must come at the minimum rate; between two lines there may be a pause.
            let is_between_lines = self.splitter.buffer.is_empty();
            let chunk = rate.next_chunk(app, &mut self.body);
            let chunk = match held {
                0 => chunk.await?,
                _ => match tokio::time::timeout(GATHER_TIME, chunk).await {
                    Ok(chunk) => chunk?,
                    Err(_) => return Ok(Some(ImportLine::Pause)),
                },
            };
            if is_between_lines {
                rate = ArrivalRate::begin();
            }
            match chunk {
                Some(piece) => {
                    if let Some(digest) = &mut self.digest {
                        digest.update(&piece);
                    }
                    self.room.grow_soon_to(held + self.splitter.capacity_with(&piece)).await?;
                    self.splitter.add(&piece);
                }
                None => self.ended = true,
            }
        }
    }
}

/// Splits bytes into lines.
#[derive(Default)]
struct LineSplitter {
    buffer: BytesMut,
    /// The length of the beginning of the buffer that has no line feed.
    searched: usize,
    /// The arriving line is already too long; nothing of it is kept.
    too_long: bool,
}

impl LineSplitter {
    /// The capacity of the buffer with these bytes: it grows by doubling.
    fn capacity_with(&self, bytes: &[u8]) -> usize {
        (self.buffer.len() + bytes.len()).next_power_of_two().max(self.buffer.capacity())
    }

    fn add(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete line.
    fn line(&mut self) -> Option<ImportLine> {
        let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
        let Some(at) = unsearched.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            if self.searched > LINE_BYTES_MAX || self.too_long {
                self.too_long = true;
                self.buffer.clear();
                self.searched = 0;
            }
            return None;
        };
        let text = self.buffer.split_to(self.searched + at).freeze();
        self.buffer.advance(1);
        Some(self.finish(text))
    }

    /// The rest at the end of the body.
    fn last(&mut self) -> Option<ImportLine> {
        let text = self.buffer.split().freeze();
        (!text.is_empty() || self.too_long).then(|| self.finish(text))
    }

    fn finish(&mut self, text: Bytes) -> ImportLine {
        self.searched = 0;
        match std::mem::take(&mut self.too_long) || text.len() > LINE_BYTES_MAX {
            true => ImportLine::TooLong,
            false => ImportLine::Text(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every line of `pieces`, and the most bytes in the buffer.
    fn split(pieces: &[&[u8]]) -> (Vec<ImportLine>, usize) {
        let (mut splitter, mut lines, mut held) = (LineSplitter::default(), Vec::new(), 0);
        for piece in pieces {
            splitter.add(piece);
            held = held.max(splitter.buffer.len());
            while let Some(line) = splitter.line() {
                lines.push(line);
            }
        }
        lines.extend(splitter.last());
        (lines, held)
    }

    fn text(text: &'static str) -> ImportLine {
        ImportLine::Text(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn lines_are_the_same_wherever_the_pieces_end() {
        let whole = b"one\n\ntwo\r\nthree";
        let expected = [text("one"), text(""), text("two\r"), text("three")];
        for at in 0..whole.len() {
            let (first, second) = whole.split_at(at);
            assert_eq!(split(&[first, second]).0, expected, "{at}");
        }
        assert_eq!(split(&[b"one\n"]).0, [text("one")]);
        assert_eq!(split(&[]).0, []);
    }

    #[test]
    fn a_line_that_is_too_long_is_one_line_and_is_not_held() {
        let long = vec![b'x'; LINE_BYTES_MAX];
        let piece = vec![b'x'; 64 * 1024];
        let mut pieces: Vec<&[u8]> = vec![b"one\n"];
        pieces.extend(std::iter::repeat_n(piece.as_slice(), 1000));
        pieces.push(b"x\ntwo\n");
        let (lines, held) = split(&pieces);
        assert_eq!(lines, [text("one"), ImportLine::TooLong, text("two")]);
        assert!(held <= LINE_BYTES_MAX + piece.len(), "{held} bytes were held");
        assert_eq!(split(&[&long, b"x"]).0, [ImportLine::TooLong]);
        assert_eq!(split(&[&long, b"x\n"]).0, [ImportLine::TooLong]);
        assert_eq!(split(&[&long]).0, [ImportLine::Text(Bytes::from(long.clone()))]);
    }
}
