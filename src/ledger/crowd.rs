//! Who is about to come back: the next batch is worth more once everybody is in it.
//!
//! Whoever was just answered usually asks again. A log that is busy with one batch is given the next one once they all have;
//! with fewer, larger batches it does more. Those who do not come back are waited for through one more answer and no longer.

/// How many records there will be once everybody who was answered is back.
pub(super) struct Crowd {
    wanted: usize,
    /// How many were answered last, and how many records had ever come by then.
    answered: usize,
    arrived: usize,
}

impl Default for Crowd {
    /// Nobody was answered yet: nobody knows.
    fn default() -> Self {
        Self { wanted: usize::MAX, answered: 0, arrived: 0 }
    }
}

impl Crowd {
    pub(super) const fn wanted(&self) -> usize {
        self.wanted
    }

    /// `amount` records were answered, while `waiting` wait to be taken and `arrived` have ever come.
    pub(super) const fn answered(&mut self, amount: usize, waiting: usize, arrived: usize) {
        let late = self.answered.saturating_sub(arrived.saturating_sub(self.arrived));
        *self = Self { wanted: waiting + late + amount, answered: amount, arrived };
    }

    /// `amount` records were taken: they wait no more.
    pub(super) fn left(&mut self, amount: usize) {
        self.wanted = self.wanted.saturating_sub(amount).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_who_was_answered_is_waited_for() {
        let mut crowd = Crowd::default();
        assert_eq!(crowd.wanted(), usize::MAX);
        // Sixteen callers: eight are answered while the other eight wait, and those are taken.
        crowd.answered(8, 8, 16);
        assert_eq!(crowd.wanted(), 16);
        crowd.left(8);
        assert_eq!(crowd.wanted(), 8);
        // Five of the eight are back when the others are answered: the three count as well.
        crowd.answered(8, 5, 21);
        assert_eq!(crowd.wanted(), 16);
        crowd.left(5);
        assert_eq!(crowd.wanted(), 11);
    }

    #[test]
    fn those_who_stay_away_are_forgotten() {
        let mut crowd = Crowd::default();
        crowd.answered(8, 0, 8);
        crowd.answered(8, 0, 8);
        assert_eq!(crowd.wanted(), 16);
        // The eight answered last are back; of the first eight nobody speaks any more.
        crowd.answered(1, 8, 16);
        assert_eq!(crowd.wanted(), 9);
    }

    #[test]
    fn nobody_is_missed_where_more_come_than_left() {
        let mut crowd = Crowd::default();
        crowd.answered(2, 0, 2);
        crowd.left(5);
        assert_eq!(crowd.wanted(), 1);
        crowd.answered(5, 3, 40);
        assert_eq!(crowd.wanted(), 8);
    }
}
