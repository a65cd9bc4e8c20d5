//! Who is about to come back: the next batch is worth more once everybody is in it.
//!
//! Whoever was just answered usually asks again. A log that is busy with one batch is given the next one once they all have;
//! with fewer, larger batches it does more. Those who do not come back are waited for through one more answer and no longer.

/// How many records there will be once everybody who was answered is back.
pub(in crate::ledger) struct AdaptiveBatch {
    min_records: usize,
    /// How many were answered last, and how many records had ever come by then.
    answered: usize,
    arrived: usize,
}

impl Default for AdaptiveBatch {
    /// Nobody was answered yet: nobody knows.
    fn default() -> Self {
        Self { min_records: usize::MAX, answered: 0, arrived: 0 }
    }
}

impl AdaptiveBatch {
    pub(in crate::ledger) const fn min_records(&self) -> usize {
        self.min_records
    }

    /// `amount` records were answered, while `waiting` wait to be taken and `arrived` have ever come.
    pub(in crate::ledger) const fn note_answered(&mut self, amount: usize, waiting: usize, arrived: usize) {
        let late = self.answered.saturating_sub(arrived.saturating_sub(self.arrived));
        *self = Self { min_records: waiting + late + amount, answered: amount, arrived };
    }

    /// `amount` records were taken: they wait no more.
    pub(in crate::ledger) fn note_taken(&mut self, amount: usize) {
        self.min_records = self.min_records.saturating_sub(amount).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_who_was_answered_is_waited_for() {
        let mut batch_size = AdaptiveBatch::default();
        assert_eq!(batch_size.min_records(), usize::MAX);
        // Sixteen callers: eight are answered while the other eight wait, and those are taken.
        batch_size.note_answered(8, 8, 16);
        assert_eq!(batch_size.min_records(), 16);
        batch_size.note_taken(8);
        assert_eq!(batch_size.min_records(), 8);
        // Five of the eight are back when the others are answered: the three count as well.
        batch_size.note_answered(8, 5, 21);
        assert_eq!(batch_size.min_records(), 16);
        batch_size.note_taken(5);
        assert_eq!(batch_size.min_records(), 11);
    }

    #[test]
    fn those_who_stay_away_are_forgotten() {
        let mut batch_size = AdaptiveBatch::default();
        batch_size.note_answered(8, 0, 8);
        batch_size.note_answered(8, 0, 8);
        assert_eq!(batch_size.min_records(), 16);
        // The eight answered last are back; of the first eight nobody speaks any more.
        batch_size.note_answered(1, 8, 16);
        assert_eq!(batch_size.min_records(), 9);
    }

    #[test]
    fn nobody_is_missed_where_more_come_than_left() {
        let mut batch_size = AdaptiveBatch::default();
        batch_size.note_answered(2, 0, 2);
        batch_size.note_taken(5);
        assert_eq!(batch_size.min_records(), 1);
        batch_size.note_answered(5, 3, 40);
        assert_eq!(batch_size.min_records(), 8);
    }
}
