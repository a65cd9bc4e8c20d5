//! A blocked Bloom filter: rules out most runs that do not hold a key, at the cost of one cache line.
//!
//! - There are no false negatives: a key that was added is always reported as possibly present.
//! - Keys are uniform, so their bits are used as they are: the high half chooses the block, six bits of the low half
//!   per word choose a bit in each of the block's eight words.
//! - A block is a range of keys: adding in key order walks the filter from front to back, and two neighbours can be
//!   or-ed into one when the filter turns out too large.

use std::io::{self, Read};

/// Bytes of one block: a cache line.
pub(super) const BLOCK_BYTES: u64 = 64;

/// Bits per key. With eight bits set per key, about one absent key in 200 passes the filter.
const BITS_PER_KEY: u64 = 12;
/// A new filter can be halved this often.
const HALVINGS: u32 = 4;

type FilterBlock = [u64; 8];

/// The filter of one run.
#[derive(Debug)]
pub(super) struct BloomFilter {
    blocks: Vec<FilterBlock>,
}

/// What the filters look up for a key, computed once for all runs.
#[derive(Debug)]
pub(super) struct KeyProbe {
    high: u64,
    bits: FilterBlock,
}

impl KeyProbe {
    /// The probe of `key`.
    pub(super) fn of(key: u128) -> Self {
        let (high, low) = ((key >> 64) as u64, key as u64);
        Self { high, bits: std::array::from_fn(|word| 1 << (low >> (6 * word) & 63)) }
    }

    fn block(&self, blocks: usize) -> usize {
        ((u128::from(self.high) * blocks as u128) >> 64) as usize
    }
}

impl BloomFilter {
    /// An empty filter with room for `keys`.
    pub(super) fn with_room(keys: u64) -> Self {
        let blocks = blocks_for(keys).next_multiple_of(1 << HALVINGS);
        Self { blocks: vec![FilterBlock::default(); blocks as usize] }
    }

    /// Adds a key.
    pub(super) fn add(&mut self, probe: &KeyProbe) {
        let number = probe.block(self.blocks.len());
        if let Some(block) = self.blocks.get_mut(number) {
            or(block, &probe.bits);
        }
    }

    /// Whether the key may have been added. `false` is certain.
    pub(super) fn may_hold(&self, probe: &KeyProbe) -> bool {
        let Some(block) = self.blocks.get(probe.block(self.blocks.len())) else { return false };
        // All eight words, without a branch for each.
        block.iter().zip(&probe.bits).fold(0, |missing, (word, bit)| missing | (bit & !word)) == 0
    }

    /// Releases the space that `keys` do not need: fewer were added than expected.
    pub(super) fn shrink_to(&mut self, keys: u64) {
        while self.blocks.len().is_multiple_of(2) && self.blocks.len() as u64 / 2 >= blocks_for(keys) {
            let halved = self.blocks.as_chunks::<2>().0.iter().map(|[left, right]| {
                let mut both = *left;
                or(&mut both, right);
                both
            });
            self.blocks = halved.collect();
        }
    }

    /// How many blocks there are.
    pub(super) fn len(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// The bytes on disk, block by block: words in order, each little-endian.
    pub(super) fn bytes(&self) -> impl Iterator<Item = [u8; BLOCK_BYTES as usize]> {
        self.blocks.iter().map(|block| {
            let mut bytes = [0; BLOCK_BYTES as usize];
            for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(block) {
                *to = word.to_le_bytes();
            }
            bytes
        })
    }

    /// Reads what [`bytes`](Self::bytes) wrote.
    pub(super) fn read(from: &mut impl Read, blocks: u64) -> io::Result<Self> {
        let mut filter = Self { blocks: Vec::with_capacity(blocks as usize) };
        for _ in 0..blocks {
            let mut bytes = [0; BLOCK_BYTES as usize];
            from.read_exact(&mut bytes)?;
            let mut block = FilterBlock::default();
            for (word, from) in block.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*from);
            }
            filter.blocks.push(block);
        }
        Ok(filter)
    }
}

fn blocks_for(keys: u64) -> u64 {
    (keys * BITS_PER_KEY).div_ceil(8 * BLOCK_BYTES).max(1)
}

fn or(block: &mut FilterBlock, bits: &FilterBlock) {
    for (word, bit) in block.iter_mut().zip(bits) {
        *word |= bit;
    }
}
