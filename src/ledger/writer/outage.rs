//! An outage: while the log's server cannot be reached, commands in flight wait, new ones are refused, and the log is
//! retried.
//!
//! - An append without a result is stored completely or not at all, and never after one that is not stored. Reading
//!   their positions shows which; until then their callers are not answered.
//! - A caller that has waited too long is told that the outcome is not known. A repetition with the same id is executed
//!   once.
//! - When the server can be reached again, the ledger resumes by itself.

use super::appender::{AppendBatch, AppendNumber};
use contract::{Error, Kind, Position};
use log::Record;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::Sleep;

/// The wait before the first retry; it doubles with every retry.
const FIRST_WAIT: Duration = Duration::from_millis(20);
/// The longest wait between two retries.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The time limit of one retry.
pub(in crate::ledger) const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Commands in flight wait about this long for the server before they are answered that their outcome is not known.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
const RETRY_AFTER_SECONDS: u32 = 2;

/// The writer's state during an outage.
pub(in crate::ledger) struct LogOutage {
    /// The error that new commands are refused with.
    refusal: Error,
    next_try: Pin<Box<Sleep>>,
    retry_budget: RetryBudget,
    /// Appends without a result: their records in order, and the number of records up to the end of each.
    unsure: Vec<Record>,
    ends: Vec<(AppendNumber, usize)>,
    /// How many of these records were found at their positions.
    found: usize,
    /// Another record was found at the next position.
    ends_here: bool,
}

/// How long an outage has lasted. A server that can be read but not written to fails every append, so
/// the budget is reset only when an append succeeds.
#[derive(Clone, Copy)]
pub(in crate::ledger) struct RetryBudget {
    wait: Duration,
    /// How long the waiting commands have waited.
    waited: Duration,
}

impl RetryBudget {
    const NEW: Self = Self { wait: FIRST_WAIT, waited: Duration::ZERO };

    /// Whether the waiting commands are to be answered without a result.
    pub(in crate::ledger) fn is_exhausted(self) -> bool {
        self.waited >= ANSWER_DEADLINE
    }

    /// Doubles the wait.
    fn grow(&mut self, answer: Duration) {
        self.waited += self.wait + answer;
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
    }
}

impl LogOutage {
    /// An outage that is reported as `refusal`; `batches` are those of appends without a result. `retry_budget` is that
    /// of the last outage, if nothing was written since.
    pub(in crate::ledger) fn new(refusal: Error, batches: Vec<AppendBatch>, retry_budget: Option<RetryBudget>) -> Self {
        let refusal = refusal.with_retry_after(RETRY_AFTER_SECONDS);
        let retry_budget = retry_budget.unwrap_or(RetryBudget::NEW);
        let next_try = Box::pin(tokio::time::sleep(retry_budget.wait));
        let (mut unsure, mut ends) = (Vec::new(), Vec::new());
        for AppendBatch { number, records } in batches {
            if !records.is_empty() {
                unsure.extend(records);
                ends.push((number, unsure.len()));
            }
        }
        Self { refusal, next_try, retry_budget, unsure, ends, found: 0, ends_here: false }
    }

    /// How long this outage has lasted.
    pub(in crate::ledger) const fn retry_budget(&self) -> RetryBudget {
        self.retry_budget
    }

    /// The error that new commands are refused with.
    pub(in crate::ledger) const fn refusal(&self) -> &Error {
        &self.refusal
    }

    /// Completes when the log is to be retried; never if there is no outage.
    pub(in crate::ledger) async fn next_try(outage: Option<&mut Self>) {
        match outage {
            Some(outage) => outage.next_try.as_mut().await,
            None => std::future::pending().await,
        }
    }

    /// Notes a retry that took this long, and schedules the next one.
    pub(in crate::ledger) fn note_attempt(&mut self, answer: Duration) {
        self.retry_budget.grow(answer);
        self.next_try = Box::pin(tokio::time::sleep(self.retry_budget.wait));
    }

    /// Compares the appends without a result with the next records in the log.
    pub(in crate::ledger) fn compare(&mut self, page: &[Record]) {
        let left = self.unsure.get(self.found..).unwrap_or_default();
        if !self.ends_here {
            let ours = left.iter().zip(page).take_while(|(ours, there)| ours == there).count();
            self.ends_here = ours < left.len().min(page.len());
            self.found += ours;
        }
    }

    /// The last append without a result that is stored, and its last position.
    pub(in crate::ledger) fn stored(&self) -> Option<(AppendNumber, Position)> {
        let (number, end) = self.ends.iter().rfind(|(_, end)| *end <= self.found)?;
        self.unsure.get(end.checked_sub(1)?).map(|record| (*number, record.header.position))
    }

    /// The error for callers that have waited too long.
    pub(in crate::ledger) fn outcome_unknown() -> Error {
        let detail = "The log cannot be reached, and whether the request was carried out is not known yet: repeat \
            it with the same id, and it happens once.";
        Error::new(Kind::Unavailable, detail).with_retry_after(RETRY_AFTER_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::Sequence;
    use log::{RecordHeader, TopicNumber};

    fn records(numbers: std::ops::RangeInclusive<u64>, body: &'static str) -> Vec<Record> {
        let record = |number| Record {
            header: RecordHeader {
                position: Position(number),
                topic: TopicNumber(1),
                sequence: Sequence(number),
                time: 1,
                id: number.into(),
                facets: None,
            },
            body: body.into(),
        };
        numbers.map(record).collect()
    }

    #[tokio::test]
    async fn an_append_is_stored_only_if_all_its_records_are_found_at_their_positions() {
        let ours = |numbers| records(numbers, "ours");
        let theirs = |numbers| records(numbers, "theirs");
        for (name, pages, stored) in [
            ("nothing came", vec![], None),
            ("the first", vec![ours(5..=7)], Some(Position(7))),
            ("the first, in two pages", vec![ours(5..=5), ours(6..=7)], Some(Position(7))),
            ("the first, and the beginning of the second", vec![ours(5..=8)], Some(Position(7))),
            ("the first, and another process's", vec![ours(5..=7), theirs(8..=9)], Some(Position(7))),
            (
                "the first, and another process's in one page",
                vec![[ours(5..=7), theirs(8..=9)].concat()],
                Some(Position(7)),
            ),
            ("both", vec![ours(5..=9)], Some(Position(9))),
            ("both, in two pages", vec![ours(5..=7), ours(8..=9)], Some(Position(9))),
            ("both, and more", vec![ours(5..=11)], Some(Position(9))),
            ("another process's", vec![theirs(5..=7)], None),
            ("another process's first", vec![theirs(5..=5), ours(6..=9)], None),
            ("the beginning only", vec![ours(5..=6)], None),
        ] {
            let batches =
                [5..=7, 8..=9].map(|numbers| AppendBatch { number: AppendNumber::default(), records: ours(numbers) });
            let mut outage = LogOutage::new(LogOutage::outcome_unknown(), batches.into(), None);
            pages.iter().for_each(|page| outage.compare(page));
            assert_eq!(outage.stored().map(|(_, through)| through), stored, "{name}");
        }
    }

    #[tokio::test]
    async fn without_an_append_in_flight_nothing_is_stored() {
        for batches in [vec![], vec![AppendBatch { number: AppendNumber::default(), records: Vec::new() }]] {
            let mut outage = LogOutage::new(LogOutage::outcome_unknown(), batches, None);
            outage.compare(&records(5..=7, "theirs"));
            assert_eq!(outage.stored(), None);
        }
    }

    #[test]
    fn the_retry_budget_ends_whether_the_server_refuses_or_does_not_respond() {
        for answer in [Duration::ZERO, ANSWER_MAX] {
            let (mut retry_budget, mut tries) = (RetryBudget::NEW, 0);
            while !retry_budget.is_exhausted() {
                retry_budget.grow(answer);
                tries += 1;
            }
            assert!(retry_budget.waited < ANSWER_DEADLINE + LONGEST_WAIT + ANSWER_MAX, "{answer:?}");
            assert!(tries > 5, "{answer:?}");
        }
    }
}
