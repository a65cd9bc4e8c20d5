//! Adaptive batching: the next append is delayed until the callers that were just answered have submitted again.
//!
//! A caller that was just answered usually submits its next command at once. While one append is in flight, the next
//! one waits for these commands: fewer, larger batches give a higher throughput. Callers that do not submit again are
//! waited for until the next answer and no longer.

/// The number of records to wait for: those of every caller that was answered and is expected to submit again.
pub(in crate::ledger) struct AdaptiveBatch {
    min_records: usize,
    /// The number of records answered last, and the number of records received up to then.
    answered: usize,
    arrived: usize,
}

impl Default for AdaptiveBatch {
    /// Before the first answer there is no estimate.
    fn default() -> Self {
        Self { min_records: usize::MAX, answered: 0, arrived: 0 }
    }
}

impl AdaptiveBatch {
    pub(in crate::ledger) const fn min_records(&self) -> usize {
        self.min_records
    }

    /// `amount` records were answered, while `waiting` are pending and `arrived` were received in total.
    pub(in crate::ledger) const fn note_answered(&mut self, amount: usize, waiting: usize, arrived: usize) {
        let late = self.answered.saturating_sub(arrived.saturating_sub(self.arrived));
        *self = Self { min_records: waiting + late + amount, answered: amount, arrived };
    }

    /// `amount` records were taken by an append: they are no longer pending.
    pub(in crate::ledger) fn note_taken(&mut self, amount: usize) {
        self.min_records = self.min_records.saturating_sub(amount).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_batch_waits_for_every_caller_that_was_answered() {
        let mut batch_size = AdaptiveBatch::default();
        assert_eq!(batch_size.min_records(), usize::MAX);
        // Sixteen callers: eight are answered while the other eight wait, and those are taken.
        batch_size.note_answered(8, 8, 16);
        assert_eq!(batch_size.min_records(), 16);
        batch_size.note_taken(8);
        assert_eq!(batch_size.min_records(), 8);
        // Five of the eight have submitted again when the others are answered: the other three are still expected.
        batch_size.note_answered(8, 5, 21);
        assert_eq!(batch_size.min_records(), 16);
        batch_size.note_taken(5);
        assert_eq!(batch_size.min_records(), 11);
    }

    #[test]
    fn callers_that_do_not_submit_again_are_forgotten() {
        let mut batch_size = AdaptiveBatch::default();
        batch_size.note_answered(8, 0, 8);
        batch_size.note_answered(8, 0, 8);
        assert_eq!(batch_size.min_records(), 16);
        // The eight answered last have submitted again; the first eight are no longer expected.
        batch_size.note_answered(1, 8, 16);
        assert_eq!(batch_size.min_records(), 9);
    }

    #[test]
    fn new_callers_make_up_for_missing_ones() {
        let mut batch_size = AdaptiveBatch::default();
        batch_size.note_answered(2, 0, 2);
        batch_size.note_taken(5);
        assert_eq!(batch_size.min_records(), 1);
        batch_size.note_answered(5, 3, 40);
        assert_eq!(batch_size.min_records(), 8);
    }
}
