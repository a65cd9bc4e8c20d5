//! The bytes of a run file. All integers are little-endian.
//!
//! ```text
//! header   24   magic "ebtable\0" 8 │ version u32 │ bytes of a value u32 │ run number u64
//! block         1 to 64 rows, each : key u128 │ value;  then crc32c u32 of header, block number u64, rows
//! …             all blocks but the last are full; keys ascend over the whole file, no key twice
//! fences        per block: u64, the high half of its first key
//! filter        per filter block: 64 bytes
//! footer   36   rows u64 │ greatest stamp i64 │ filter blocks u64 │ crc32c u32 of the blocks' crc32c, in order
//!               │ crc32c u32 of fences and filter │ crc32c u32 of header and footer so far
//! ```
//!
//! - Each checksum covers the header, and with it the run's number: a block of another run, or of another place in this
//!   one, fails the check.
//! - The manifest repeats a file's length and footer checksum, so a file cannot stand in for another:
//!   through the checksum of checksums, that of the footer depends on every byte of the file.

use super::bloom_filter;

/// Rows in a full block: 2 or 2.5 KiB, what one lookup reads. (128 made a lookup in the page cache a quarter slower.)
pub(super) const BLOCK_ROWS: u64 = 64;
/// Bytes of the header.
pub(super) const HEADER_BYTES: u64 = 24;
/// Bytes of the footer.
pub(super) const FOOTER_BYTES: u64 = 36;

const MAGIC: &[u8; 8] = b"ebtable\0";
const VERSION: u32 = 1;
const KEY_BYTES: u64 = 16;
const CRC_BYTES: u64 = 4;
const FENCE_BYTES: u64 = 8;

/// The header of run `number` with values of `V` bytes.
pub(super) fn header<const V: usize>(number: u64) -> Vec<u8> {
    [&MAGIC[..], &VERSION.to_le_bytes(), &(V as u32).to_le_bytes(), &number.to_le_bytes()].concat()
}

/// The checksum of a block, from that of the header.
pub(super) fn block_crc(header_crc: u32, number: u64, rows: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(header_crc, &number.to_le_bytes()), rows)
}

/// Bytes of one row.
pub(super) const fn row_bytes<const V: usize>() -> u64 {
    KEY_BYTES + V as u64
}

/// Bytes of a full block.
pub(super) const fn block_bytes<const V: usize>() -> u64 {
    BLOCK_ROWS * row_bytes::<V>() + CRC_BYTES
}

/// The key and the value in a row's bytes.
pub(super) fn row<const V: usize>(bytes: &[u8]) -> Option<(u128, [u8; V])> {
    let (key, value) = bytes.split_first_chunk()?;
    Some((u128::from_le_bytes(*key), *value.first_chunk()?))
}

/// The end of a run file: describes its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunFooter {
    /// How many rows.
    pub(super) rows: u64,
    /// The greatest stamp of any row.
    pub(super) max_stamp: i64,
    /// How many blocks the filter has.
    pub(super) filter_blocks: u64,
    /// The checksum of the blocks' checksums. It is never checked by itself: it makes the footer's own depend on every
    /// row.
    pub(super) blocks_crc: u32,
    /// The checksum of fences and filter.
    pub(super) index_crc: u32,
}

impl RunFooter {
    /// The bytes on disk, and the checksum they end with.
    pub(super) fn encode(&self, header_crc: u32) -> (Vec<u8>, u32) {
        let fields = [
            &self.rows.to_le_bytes()[..],
            &self.max_stamp.to_le_bytes(),
            &self.filter_blocks.to_le_bytes(),
            &self.blocks_crc.to_le_bytes(),
            &self.index_crc.to_le_bytes(),
        ]
        .concat();
        let crc = crc32c::crc32c_append(header_crc, &fields);
        ([&fields[..], &crc.to_le_bytes()].concat(), crc)
    }

    /// The footer in these bytes and its checksum, if the checksum is right.
    pub(super) fn decode(bytes: &[u8; FOOTER_BYTES as usize], header_crc: u32) -> Option<(Self, u32)> {
        let (fields, crc) = bytes.split_last_chunk()?;
        let crc = u32::from_le_bytes(*crc);
        if crc != crc32c::crc32c_append(header_crc, fields) {
            return None;
        }
        let (rows, rest) = fields.split_first_chunk()?;
        let (max_stamp, rest) = rest.split_first_chunk()?;
        let (filter_blocks, rest) = rest.split_first_chunk()?;
        let (blocks_crc, rest) = rest.split_first_chunk()?;
        let footer = Self {
            rows: u64::from_le_bytes(*rows),
            max_stamp: i64::from_le_bytes(*max_stamp),
            filter_blocks: u64::from_le_bytes(*filter_blocks),
            blocks_crc: u32::from_le_bytes(*blocks_crc),
            index_crc: u32::from_le_bytes(*rest.first_chunk()?),
        };
        Some((footer, crc))
    }

    /// How many blocks the rows take.
    pub(super) fn blocks(&self) -> u64 {
        self.rows.div_ceil(BLOCK_ROWS)
    }

    /// Where the blocks end and the fences begin.
    pub(super) fn index_at<const V: usize>(&self) -> u64 {
        HEADER_BYTES + self.rows * row_bytes::<V>() + self.blocks() * CRC_BYTES
    }

    /// Bytes of fences and filter.
    pub(super) fn index_bytes(&self) -> u64 {
        self.blocks() * FENCE_BYTES + self.filter_blocks * bloom_filter::BLOCK_BYTES
    }

    /// Bytes of the whole file.
    pub(super) fn file_bytes<const V: usize>(&self) -> u64 {
        self.index_at::<V>() + self.index_bytes() + FOOTER_BYTES
    }
}
