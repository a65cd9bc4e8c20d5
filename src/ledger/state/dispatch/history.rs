//! A lane's history, as lists need it: which jobs are known without looking through the topic, and which events were
//! jobs under an earlier filter of the subscription.
//!
//! - Jobs that have begun when the filter changes stay jobs, delivered or not. An event that was not settled is a job if
//!   every filter since its arrival matches it. So a change never turns past events into jobs.

use super::lane::{JobEnd, JobRow, JobState, LaneProgress};
use contract::{NewSubscription, Sequence, TypeBinding};
use serde::{Deserialize, Serialize};
use std::ops::Bound;
use uuid::Uuid;

/// Most earlier filters that are kept: for events settled before them the oldest decides.
const FILTERS_KEPT: usize = 16;

/// An earlier filter of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PastFilter {
    /// Everything up to here was settled under it, or an earlier one.
    pub through: Sequence,
    /// The topic's tail when it was replaced: jobs that were in flight then are at or below it.
    pub tail: Sequence,
    event_types: Vec<TypeBinding>,
    filter: Option<String>,
    tenant: Option<Uuid>,
}

impl PastFilter {
    /// The definition with this filter.
    #[must_use]
    pub fn applied_to(&self, definition: &NewSubscription) -> NewSubscription {
        NewSubscription {
            event_types: self.event_types.clone(),
            filter: self.filter.clone(),
            tenant: self.tenant,
            ..definition.clone()
        }
    }
}

/// How to tell whether an event is a job of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobInterest {
    /// It is one: it has a row or a bit.
    Job,
    /// All filters that were in force between the arrival of the event and its settlement must match it: the earlier
    /// filters with the numbers `first..end`, and the current one if the event is not settled.
    Filters {
        /// The first of them.
        first: usize,
        /// After the last of them.
        end: usize,
        /// Whether the current filter decides too.
        current: bool,
    },
}

/// A job that is known without reading the topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownJob {
    /// It has a row.
    Open(JobState),
    /// It ended otherwise than by delivery.
    Ended(JobEnd),
}

/// Whether two definitions match the same events.
pub(super) fn has_same_filter(one: &NewSubscription, other: &NewSubscription) -> bool {
    one.event_types == other.event_types && one.filter == other.filter && one.tenant == other.tenant
}

impl LaneProgress {
    /// Jobs with a row after a sequence, in order.
    pub fn open_after(&self, after: Sequence) -> impl Iterator<Item = (Sequence, &JobRow)> {
        self.open.range((Bound::Excluded(after), Bound::Unbounded)).map(|(sequence, row)| (*sequence, &**row))
    }

    /// At most `max` jobs after a sequence that have a row or ended otherwise than by delivery, in order.
    #[must_use]
    pub fn known_after(&self, after: Sequence, max: usize) -> Vec<(Sequence, KnownJob)> {
        let ended = |bits: &roaring::RoaringTreemap, end: JobEnd| {
            let mut behind = bits.iter();
            behind.advance_to(after.get().saturating_add(1));
            let behind = behind.filter(|n| *n > after.get()).take(max);
            behind.map(|n| (Sequence(n), KnownJob::Ended(end))).collect::<Vec<_>>()
        };
        let open = self.open_after(after).take(max).map(|(sequence, row)| (sequence, KnownJob::Open(row.standing)));
        let mut known: Vec<_> = open.collect();
        known.extend(ended(&self.cancelled.0, JobEnd::Cancelled));
        known.extend(ended(&self.expired.0, JobEnd::Expired));
        known.sort_unstable_by_key(|(sequence, _)| *sequence);
        known.truncate(max);
        known
    }

    /// How to tell whether an event is a job.
    #[must_use]
    pub fn interest(&self, sequence: Sequence) -> JobInterest {
        let n = sequence.get();
        let is_known = self.open.contains_key(&sequence)
            || self.kept.0.contains(n)
            || self.cancelled.0.contains(n)
            || self.expired.0.contains(n);
        if is_known {
            return JobInterest::Job;
        }
        // Older versions stored no tail (0): such a filter counts for what was settled under it alone.
        let first = self.past.iter().position(|filter| sequence <= filter.tail).unwrap_or(self.past.len());
        match self.past.iter().position(|filter| sequence <= filter.through) {
            Some(last) => JobInterest::Filters { first: first.min(last), end: last + 1, current: false },
            None => JobInterest::Filters { first, end: self.past.len(), current: true },
        }
    }

    /// The filters before the one in force, the oldest first.
    #[must_use]
    pub fn past_filters(&self) -> &[PastFilter] {
        &self.past
    }

    /// The filter was changed; `old` has the one before, and the topic ends at `tail`.
    pub(super) fn change_filter(&mut self, old: &NewSubscription, tail: Sequence) {
        let through = self.recorded_through();
        self.kept.0 |= &self.done.0;
        self.kept.0.extend(self.open.range((Bound::Excluded(through), Bound::Unbounded)).map(|(it, _)| it.get()));
        if self.past.len() >= FILTERS_KEPT {
            self.past.remove(0);
        }
        self.past.push(PastFilter {
            through,
            tail,
            event_types: old.event_types.clone(),
            filter: old.filter.clone(),
            tenant: old.tenant,
        });
    }

    /// A job was delivered. If it may have been in flight when the filter changed, it is remembered as a job.
    pub(super) fn keep_delivered(&mut self, sequence: Sequence) {
        if self.past.last().is_some_and(|filter| sequence > filter.through && sequence <= filter.tail) {
            self.kept.0.insert(sequence.get());
        }
    }

    /// Drops the history of removed events.
    pub(super) fn forget_history(&mut self, through: Sequence) {
        self.kept.0.remove_range(..=through.get());
        self.past.retain(|filter| filter.tail > through);
    }
}
