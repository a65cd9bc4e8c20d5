//! A Bloom filter of one byte per key: it shows for certain that a segment does not contain a key.
//!
//! With 8 bits and 5 probes per key about one absent key in fifty is a false positive.

const BITS_PER_KEY: usize = 8;
const PROBES: u64 = 5;

/// A filter of the keys in a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BloomFilter {
    words: Vec<u64>,
}

impl BloomFilter {
    /// A filter of these keys.
    pub(crate) fn of(keys: impl ExactSizeIterator<Item = u128>) -> Self {
        let mut words = vec![0u64; Self::words_of(keys.len())];
        let bits = words.len() as u64 * 64;
        for key in keys {
            for bit in probes(key, bits) {
                if let Some(word) = words.get_mut((bit / 64) as usize) {
                    *word |= 1 << (bit % 64);
                }
            }
        }
        Self { words }
    }

    /// Bytes of a filter of so many keys.
    pub(crate) fn bytes_of(keys: usize) -> usize {
        Self::words_of(keys) * 8
    }

    fn words_of(keys: usize) -> usize {
        (keys * BITS_PER_KEY).div_ceil(64)
    }

    /// `false` only if the key is not among them.
    pub(crate) fn may_hold(&self, key: u128) -> bool {
        let bits = self.words.len() as u64 * 64;
        bits > 0
            && probes(key, bits)
                .all(|bit| self.words.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 == 1))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Self {
        Self { words: bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect() }
    }
}

/// The bits of a key, by double hashing. Ids come from outside, so both halves are mixed well.
fn probes(key: u128, bits: u64) -> impl Iterator<Item = u64> {
    let first = mix(key as u64 ^ mix((key >> 64) as u64));
    let step = mix(first) | 1;
    (0..PROBES).map(move |probe| {
        let hash = first.wrapping_add(probe.wrapping_mul(step));
        ((u128::from(hash) * u128::from(bits)) >> 64) as u64
    })
}

/// The finaliser of splitmix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_every_key_and_few_others() {
        let filter = BloomFilter::of((0..10_000_u32).map(u128::from));
        let filter = BloomFilter::decode(&filter.encode());
        assert!((0..10_000).all(|key| filter.may_hold(key)));
        let vain = (10_000..110_000).filter(|key| filter.may_hold(*key)).count();
        assert!(vain < 4_000, "{vain} of 100000 absent keys would be looked for in vain");
        assert!(!BloomFilter::of(std::iter::empty()).may_hold(1));
    }
}
