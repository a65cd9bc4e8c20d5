//! Random numbers that a seed repeats.

/// A small generator (splitmix64): the same seed gives the same numbers, on every machine.
#[derive(Debug, Clone)]
pub struct SeededRandom(u64);

impl SeededRandom {
    /// The numbers of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Any wide number.
    pub fn wide(&mut self) -> u128 {
        (u128::from(self.number()) << 64) | u128::from(self.number())
    }

    /// A number from 0 to `last`, both included.
    pub fn through(&mut self, last: u64) -> u64 {
        let number = self.number();
        last.checked_add(1).map_or(number, |count| number % count)
    }

    /// True once in `many`.
    pub fn once_in(&mut self, many: u64) -> bool {
        self.through(many - 1) == 0
    }

    /// One of `these`.
    pub fn pick<'a, T>(&mut self, these: &'a [T]) -> &'a T {
        &these[usize::try_from(self.through(these.len() as u64 - 1)).unwrap()]
    }

    /// This many bytes of any value.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        std::iter::repeat_with(|| self.number().to_le_bytes()).flatten().take(length).collect()
    }
}
