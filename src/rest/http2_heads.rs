//! Memory for heads of requests over HTTP/2 that are not finished, over all connections.
//!
//! - A head that does not fit into one frame continues in others. Until the last one has arrived, `h2` holds what it has decoded
//!   and the rest of a header that is not complete. A few bytes may decode to many headers, so the size of the frames says little
//!   about the memory: every unfinished head reserves what the largest one takes. If there is no room, the connection is closed.
//! - A connection has one unfinished head at most; the frame that is being read is part of what a connection reserves anyway.
//! - HTTP/1 has another budget (`head_meter`), so that neither can take the room of the other.

use crate::memory::{AddressUsage, ByteBudget, ByteReservation};
use contract::{Error, Kind, Result};
use std::sync::Arc;

/// The memory of an unfinished head, in multiples of the largest one that is accepted (RFC 9113 counts 32 bytes per header; in
/// memory it takes about 120).
const DECODED_FACTOR: usize = 6;
/// The frames of a head may be this many times as long as the largest one that is accepted.
const FRAMES_FACTOR: usize = 2;

const FRAME_HEADER_BYTES: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Follows the frames that the client of one connection sends.
pub(crate) struct Http2HeadMeter {
    budget: ByteBudget,
    header_bytes_max: usize,
    /// The header of the next frame, as far as it has arrived.
    frame_header: Vec<u8>,
    /// What is left of the payload of the current frame.
    payload_left: usize,
    /// Whether the current frame is the last one of its head.
    ends_head: bool,
    /// Bytes in frames of the unfinished head.
    head_bytes: usize,
    reservation: Option<ByteReservation>,
}

impl Http2HeadMeter {
    /// For a connection from this address, with heads of at most `header_bytes_max`.
    pub(crate) fn new(budget: &ByteBudget, usage: &Arc<AddressUsage>, header_bytes_max: usize) -> Self {
        Self {
            budget: budget.charged_to(usage),
            header_bytes_max,
            frame_header: Vec::with_capacity(FRAME_HEADER_BYTES),
            payload_left: 0,
            ends_head: false,
            head_bytes: 0,
            reservation: None,
        }
    }

    /// Does not count this many bytes, which come before the first frame.
    pub(crate) const fn skip(&mut self, bytes: usize) {
        self.payload_left += bytes;
    }

    /// What an unfinished head reserves.
    pub(crate) const fn unfinished_bytes(header_bytes_max: usize) -> usize {
        DECODED_FACTOR * header_bytes_max
    }

    /// Follows bytes that were read, from the end of the connection preface ([`skip`](Self::skip)). `Err`: there is no room, or the head is too long.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> Result<()> {
        loop {
            let payload = bytes.len().min(self.payload_left);
            self.payload_left -= payload;
            bytes = bytes.get(payload..).unwrap_or_default();
            if self.payload_left > 0 {
                return Ok(());
            }
            if std::mem::take(&mut self.ends_head) {
                self.head_bytes = 0;
                self.reservation = None;
            }
            if bytes.is_empty() {
                return Ok(());
            }
            let more = bytes.len().min(FRAME_HEADER_BYTES - self.frame_header.len());
            let (header, rest) = bytes.split_at(more);
            self.frame_header.extend_from_slice(header);
            bytes = rest;
            if let [high, middle, low, kind, flags, ..] = *self.frame_header.as_slice()
                && self.frame_header.len() == FRAME_HEADER_BYTES
            {
                self.frame_header.clear();
                self.payload_left = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                self.begin_frame(kind, flags)?;
            }
        }
    }

    fn begin_frame(&mut self, kind: u8, flags: u8) -> Result<()> {
        if !matches!(kind, HEADERS | CONTINUATION) {
            return Ok(());
        }
        self.ends_head = flags & END_HEADERS != 0;
        if self.ends_head && self.reservation.is_none() {
            return Ok(());
        }
        self.head_bytes += self.payload_left;
        if self.head_bytes > FRAMES_FACTOR * self.header_bytes_max {
            return Err(Error::new(Kind::Overloaded, "The head of a request is too long."));
        }
        if self.reservation.is_none() {
            self.reservation = Some(self.budget.try_reserve(Self::unfinished_bytes(self.header_bytes_max))?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD_MAX: usize = 32 * 1024;
    const UNFINISHED: usize = Http2HeadMeter::unfinished_bytes(HEAD_MAX);

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], &vec![0; payload]].concat()
    }

    fn meter(budget: &ByteBudget) -> Http2HeadMeter {
        Http2HeadMeter::new(budget, &Arc::default(), HEAD_MAX)
    }

    #[test]
    fn an_unfinished_head_holds_room_until_its_last_byte_however_its_frames_arrive() {
        let data = frame(0, 0, 100);
        let frames =
            [frame(HEADERS, 0, 1000), frame(CONTINUATION, 0, 0), frame(CONTINUATION, END_HEADERS, 2000)].concat();
        let all = [data.clone(), frames, data].concat();
        for piece_bytes in [1, 8, 9, 10, 1000, all.len()] {
            let budget = ByteBudget::new(UNFINISHED, "full");
            let mut meter = meter(&budget);
            let mut sent = 0;
            for piece in all.chunks(piece_bytes) {
                meter.read(piece).unwrap();
                sent += piece.len();
                // The first frame of the head begins after 109 bytes, and the last one ends after 3136.
                let is_unfinished = (109 + 9..109 + 3027).contains(&sent);
                assert_eq!(budget.free() == 0, is_unfinished, "after {sent} bytes in pieces of {piece_bytes}");
            }
        }
    }

    #[test]
    fn a_head_in_one_frame_reserves_nothing_and_one_without_room_or_end_is_refused() {
        let budget = ByteBudget::new(UNFINISHED, "full");
        let (mut one, mut other) = (meter(&budget), meter(&budget));
        one.read(&frame(HEADERS, END_HEADERS, 16_000)[..9000]).unwrap();
        assert_eq!(budget.free(), UNFINISHED);
        other.read(&frame(HEADERS, 0, 16_000)).unwrap();
        let mut third = meter(&budget);
        assert!(third.read(&frame(HEADERS, 0, 1)).is_err(), "there is no room");
        for _ in 0..3 {
            other.read(&frame(CONTINUATION, 0, 16_000)).unwrap();
        }
        assert!(other.read(&frame(CONTINUATION, 0, 16_000)).is_err(), "more than twice the largest head");
        drop(other);
        assert_eq!(budget.free(), UNFINISHED);
    }
}
