//! A segment's head: the first 64 bytes of its file.
//!
//! - Written and synced before the first record; never changed afterwards.
//! - A rewritten segment's head also says where it ends, since no later append will show it.

use super::file_names::SegmentName;
use bytes::{Buf, BufMut};
use contract::Position;

/// Bytes of the head; the first frame follows it.
pub(crate) const HEAD_BYTES: usize = 64;

const MAGIC: &[u8; 8] = b"EVLOG\r\n\x1A";
const VERSION: u32 = 1;
const SALT_AT: usize = 56;

/// A segment's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHead {
    /// Its file.
    pub(crate) name: SegmentName,
    /// When it was created: the time of the record it was created for.
    pub(crate) created: i64,
    /// No record in it is older than this: the time of the last record before it.
    pub(crate) time_floor: i64,
    /// The start value of its frames' checksums; random, so that no body can look like a frame.
    pub(crate) salt: u32,
    /// Set if rewritten.
    pub(crate) rewritten: Option<RewrittenExtent>,
}

/// The extent of a rewritten segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RewrittenExtent {
    /// The last position that the segment covers, including removed records and segments merged into it.
    pub(crate) through: Position,
    /// Bytes of the file.
    pub(crate) bytes: u64,
}

impl SegmentHead {
    /// The bytes on disk.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES);
        out.put_slice(MAGIC);
        out.put_u32_le(VERSION);
        out.put_u32_le(self.name.generation);
        out.put_u64_le(self.name.base.get());
        out.put_i64_le(self.created);
        out.put_i64_le(self.time_floor);
        out.put_u64_le(self.rewritten.map_or(0, |rewritten| rewritten.through.get()));
        out.put_u64_le(self.rewritten.map_or(0, |rewritten| rewritten.bytes));
        out.put_u32_le(self.salt);
        out.put_u32_le(crc32c::crc32c(&out));
        out
    }

    /// `None` if `bytes` are not the head of `name`.
    pub(crate) fn decode(bytes: &[u8], name: SegmentName) -> Option<Self> {
        let (content, mut checksum) = bytes.get(..HEAD_BYTES)?.split_at_checked(HEAD_BYTES - 4)?;
        let mut fields = content.strip_prefix(MAGIC)?;
        let version = fields.try_get_u32_le().ok()?;
        let generation = fields.try_get_u32_le().ok()?;
        let base = Position(fields.try_get_u64_le().ok()?);
        let created = fields.try_get_i64_le().ok()?;
        let time_floor = fields.try_get_i64_le().ok()?;
        let through = Position(fields.try_get_u64_le().ok()?);
        let bytes = fields.try_get_u64_le().ok()?;
        let salt = fields.try_get_u32_le().ok()?;
        let rewritten = (generation > 1).then_some(RewrittenExtent { through, bytes });
        let intact = checksum.try_get_u32_le().ok()? == crc32c::crc32c(content);
        let head = Self { name: SegmentName { base, generation }, created, time_floor, salt, rewritten };
        (intact && version == VERSION && head.name == name).then_some(head)
    }

    /// Whether this is the head of a segment, intact, but of another version than this one.
    pub(crate) fn is_of_another_version(bytes: &[u8; HEAD_BYTES]) -> bool {
        let (content, mut checksum) = bytes.split_at(HEAD_BYTES - 4);
        let intact = checksum.try_get_u32_le().is_ok_and(|checksum| checksum == crc32c::crc32c(content));
        let mut fields = content.strip_prefix(MAGIC).unwrap_or_default();
        intact && fields.try_get_u32_le().is_ok_and(|version| version != VERSION)
    }

    /// A head for `name` with the salt of a damaged one. Its times are not used.
    pub(crate) fn with_salt_of(bytes: &[u8; HEAD_BYTES], name: SegmentName) -> Self {
        let mut salt = bytes.get(SALT_AT..).unwrap_or_default();
        let salt = salt.try_get_u32_le().unwrap_or_default();
        Self { name, created: i64::MAX, time_floor: i64::MIN, salt, rewritten: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_back_and_any_flipped_bit_is_noticed() {
        for (generation, rewritten) in [(1, None), (2, Some(RewrittenExtent { through: Position(9), bytes: 500 }))] {
            let name = SegmentName { base: Position(4), generation };
            let head = SegmentHead { name, created: -5, time_floor: -7, salt: 99, rewritten };
            let bytes = head.encode();
            assert_eq!(bytes.len(), HEAD_BYTES);
            assert_eq!(SegmentHead::decode(&bytes, name), Some(head));
            for bit in 0..HEAD_BYTES * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(SegmentHead::decode(&flipped, name), None, "bit {bit}");
            }
        }
    }
}
