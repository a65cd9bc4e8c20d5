//! While the log's server is away: what is under way waits, what is new is refused, and the log is asked again and again.
//!
//! - An append that ended half way is stored whole or not at all, and none behind one that is not. What is so is seen by
//!   reading their positions; until then nobody is told anything about them.
//! - Whoever has waited too long is told that the outcome is not known. A repetition with the same id happens once.
//! - Nothing is given up: when the server is back the ledger goes on by itself.

use super::appender::{AppendBatch, AppendNumber};
use contract::{Error, Kind, Position};
use log::Record;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::Sleep;

/// The log is asked again after this long at first; every time twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(20);
/// And at least this often.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The log has this long to answer, each time it is asked.
pub(in crate::ledger) const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Commands under way wait about this long for the server before they are told that their outcome is not known.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
const RETRY_AFTER_SECONDS: u32 = 2;

/// What the writer remembers while the log's server is away.
pub(in crate::ledger) struct LogOutage {
    /// What new commands are told.
    refusal: Error,
    next_try: Pin<Box<Sleep>>,
    retry_budget: RetryBudget,
    /// Appends that ended half way: their records, one behind the other, and how many there are up to the end of each.
    unsure: Vec<Record>,
    ends: Vec<(AppendNumber, usize)>,
    /// How many of them were found where they belong.
    found: usize,
    /// Something else was found there.
    ends_here: bool,
}

/// How long it has been going on. A server that can be read but not written to is away every time an append is tried, so
/// this ends only when one succeeds.
#[derive(Clone, Copy)]
pub(in crate::ledger) struct RetryBudget {
    wait: Duration,
    /// How long those that wait have waited.
    waited: Duration,
}

impl RetryBudget {
    const NEW: Self = Self { wait: FIRST_WAIT, waited: Duration::ZERO };

    /// Whether those that wait have waited long enough.
    pub(in crate::ledger) fn is_exhausted(self) -> bool {
        self.waited >= ANSWER_DEADLINE
    }

    /// The next wait is twice as long.
    fn grow(&mut self, answer: Duration) {
        self.waited += self.wait + answer;
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
    }
}

impl LogOutage {
    /// Because of `refusal`; `batches` are of appends that ended half way. `patience` is that of the last time, if nothing
    /// was written since.
    pub(in crate::ledger) fn new(refusal: Error, batches: Vec<AppendBatch>, retry_budget: Option<RetryBudget>) -> Self {
        let refusal = refusal.with_retry_after(RETRY_AFTER_SECONDS);
        let retry_budget = retry_budget.unwrap_or(RetryBudget::NEW);
        let next_try = Box::pin(tokio::time::sleep(retry_budget.wait));
        let (mut unsure, mut ends) = (Vec::new(), Vec::new());
        for AppendBatch { turn, records } in batches {
            if !records.is_empty() {
                unsure.extend(records);
                ends.push((turn, unsure.len()));
            }
        }
        Self { refusal, next_try, retry_budget, unsure, ends, found: 0, ends_here: false }
    }

    /// How long it has been going on.
    pub(in crate::ledger) const fn retry_budget(&self) -> RetryBudget {
        self.retry_budget
    }

    /// What new commands are told.
    pub(in crate::ledger) const fn refusal(&self) -> &Error {
        &self.refusal
    }

    /// Ends when the log is to be asked again; never where it is not away.
    pub(in crate::ledger) async fn next_try(outage: Option<&mut Self>) {
        match outage {
            Some(outage) => outage.next_try.as_mut().await,
            None => std::future::pending().await,
        }
    }

    /// The log was asked and took so long to answer; the next time is later.
    pub(in crate::ledger) fn note_attempt(&mut self, answer: Duration) {
        self.retry_budget.grow(answer);
        self.next_try = Box::pin(tokio::time::sleep(self.retry_budget.wait));
    }

    /// The next records behind the last durable one are these.
    pub(in crate::ledger) fn compare(&mut self, page: &[Record]) {
        let left = self.unsure.get(self.found..).unwrap_or_default();
        if !self.ends_here {
            let ours = left.iter().zip(page).take_while(|(ours, there)| ours == there).count();
            self.ends_here = ours < left.len().min(page.len());
            self.found += ours;
        }
    }

    /// The last append that ended half way and is stored, and its last position.
    pub(in crate::ledger) fn stored(&self) -> Option<(AppendNumber, Position)> {
        let (turn, end) = self.ends.iter().rfind(|(_, end)| *end <= self.found)?;
        self.unsure.get(end.checked_sub(1)?).map(|record| (*turn, record.header.position))
    }

    /// What those are told who waited too long.
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
    async fn an_append_is_stored_only_if_all_of_it_is_found_where_it_belongs() {
        let ours = |numbers| records(numbers, "ours");
        let theirs = |numbers| records(numbers, "theirs");
        for (name, pages, stored) in [
            ("nothing came", vec![], None),
            ("the first", vec![ours(5..=7)], Some(Position(7))),
            ("the first, in two pages", vec![ours(5..=5), ours(6..=7)], Some(Position(7))),
            ("the first, and the beginning of the second", vec![ours(5..=8)], Some(Position(7))),
            ("the first, and somebody else's", vec![ours(5..=7), theirs(8..=9)], Some(Position(7))),
            (
                "the first, and somebody else's in one page",
                vec![[ours(5..=7), theirs(8..=9)].concat()],
                Some(Position(7)),
            ),
            ("both", vec![ours(5..=9)], Some(Position(9))),
            ("both, in two pages", vec![ours(5..=7), ours(8..=9)], Some(Position(9))),
            ("both, and more", vec![ours(5..=11)], Some(Position(9))),
            ("somebody else's", vec![theirs(5..=7)], None),
            ("somebody else's first", vec![theirs(5..=5), ours(6..=9)], None),
            ("the beginning only", vec![ours(5..=6)], None),
        ] {
            let batches =
                [5..=7, 8..=9].map(|numbers| AppendBatch { turn: AppendNumber::default(), records: ours(numbers) });
            let mut outage = LogOutage::new(LogOutage::outcome_unknown(), batches.into(), None);
            pages.iter().for_each(|page| outage.compare(page));
            assert_eq!(outage.stored().map(|(_, through)| through), stored, "{name}");
        }
    }

    #[tokio::test]
    async fn without_an_append_under_way_nothing_is_stored() {
        for batches in [vec![], vec![AppendBatch { turn: AppendNumber::default(), records: Vec::new() }]] {
            let mut outage = LogOutage::new(LogOutage::outcome_unknown(), batches, None);
            outage.compare(&records(5..=7, "theirs"));
            assert_eq!(outage.stored(), None);
        }
    }

    #[test]
    fn patience_ends_whether_the_server_refuses_or_is_silent() {
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
