//! Cached verdicts by tag, so that the text is parsed once per type and not once per event.
//!
//! - The cache is bounded: a new tag replaces an older one; the older one is only decided again.
//! - It is shared between tasks without a lock: an entry is one word, so it is read completely or not at all.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many tags are remembered.
const SLOTS: usize = 256;

/// Verdicts by tag.
pub(super) struct VerdictCache {
    /// The tag with its lowest bit replaced by the verdict; 0 is an empty slot.
    slots: Box<[AtomicU64]>,
}

impl VerdictCache {
    /// An empty cache.
    pub(super) fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The cached verdict for `tag`, or that of `decide`.
    pub(super) fn verdict(&self, tag: u64, decide: impl FnOnce() -> bool) -> bool {
        let key = tag & !1;
        let Some(slot) = self.slots.get((tag >> 1) as usize % SLOTS).filter(|_| key != 0) else { return decide() };
        let known = slot.load(Ordering::Relaxed);
        if known & !1 == key {
            return known & 1 == 1;
        }
        let verdict = decide();
        slot.store(key | u64::from(verdict), Ordering::Relaxed);
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_tag_is_decided_once_and_a_forgotten_one_again() {
        let memo = VerdictCache::new();
        let asked = Cell::new(0);
        let ask = |tag: u64, answer: bool| memo.verdict(tag, || (asked.set(asked.get() + 1), answer).1);
        for (tag, truth, answer, asked_by_then) in [
            (0x1111_0000, true, true, 1),
            (0x1111_0000, false, true, 1),
            (0x2222_0002, false, false, 2),
            (0x2222_0002, true, false, 2),
            (0x1111_0000, false, true, 2),
            (0x3333_0000, false, false, 3), // takes the slot of the first
            (0x1111_0000, true, true, 4),
            (0, true, true, 5), // no tag, no memory
            (0, false, false, 6),
        ] {
            assert_eq!((ask(tag, truth), asked.get()), (answer, asked_by_then), "{tag:x}");
        }
    }
}
