//! Which events of a topic are jobs of a lane: what the subscription's filter says, and the filters it had before.
//!
//! - A change of the filter applies to jobs that have not begun, and to events that arrive later. An event that an earlier
//!   filter did not match was never a job, and does not become one: so every filter in force since its arrival must match.
//! - No secret is needed to tell: jobs can be listed though the secrets of a subscription cannot be decrypted.

use crate::filters::FilterStats;
use crate::ledger::{JobInterest, LaneProgress, PastFilter, SubscriptionRow};
use crate::subscriptions::CompiledSubscription;
use contract::{Result, Sequence};
use log::{Record, RecordHeader};
use std::sync::Arc;

/// A filter that a subscription had.
pub(super) struct EarlierFilter {
    /// The topic's tail when it was replaced: events up to here arrived while it was in force.
    tail: Sequence,
    /// `None`: this version does not accept it any more.
    compiled: Option<CompiledSubscription>,
}

/// The filters of a lane: the current one, and those before it.
pub(super) struct LaneFilters {
    current: CompiledSubscription,
    earlier: Vec<EarlierFilter>,
}

impl EarlierFilter {
    /// The filters that `row` had before, the oldest first.
    pub(super) fn all(past: &[PastFilter], row: &SubscriptionRow) -> Vec<Self> {
        let compile = |filter: &PastFilter| {
            let definition = Arc::new(filter.applied_to(&row.definition));
            let row = SubscriptionRow { definition, ..row.clone() };
            let compiled = CompiledSubscription::without_secrets(&row);
            if let Err(error) = &compiled {
                tracing::debug!(%error, subscription = row.definition.code, "an earlier filter is not valid any more");
            }
            Self { tail: filter.tail, compiled: compiled.ok() }
        };
        past.iter().map(compile).collect()
    }
}

/// Whether the earlier filters that were in force since the arrival of an unsettled event match it.
pub(super) fn earlier_match(earlier: &[EarlierFilter], record: &Record, failures: &mut FilterStats) -> bool {
    let since_arrival = earlier.iter().filter(|filter| record.header.sequence <= filter.tail);
    let mut known = since_arrival.filter_map(|filter| filter.compiled.as_ref());
    known.all(|filter| filter.matches(record, failures))
}

/// The same of a damaged event: whether they may match it.
pub(super) fn earlier_may_match(earlier: &[EarlierFilter], header: &RecordHeader, event_type: Option<&str>) -> bool {
    let since_arrival = earlier.iter().filter(|filter| header.sequence <= filter.tail);
    let mut known = since_arrival.filter_map(|filter| filter.compiled.as_ref());
    known.all(|filter| filter.may_match(header, event_type))
}

impl LaneFilters {
    pub(super) fn new(row: &SubscriptionRow, past: &[PastFilter]) -> Result<Self> {
        Ok(Self { current: CompiledSubscription::without_secrets(row)?, earlier: EarlierFilter::all(past, row) })
    }

    /// Whether an event is a job of a lane whose first job is after `lane.start`.
    pub(super) fn is_job(&self, lane: &LaneProgress, record: &Record, failures: &mut FilterStats) -> bool {
        self.is_job_if(lane, record.header.sequence, |filter| filter.matches(record, failures))
    }

    /// Whether a damaged event may be a job of a lane: what only its body tells counts as met.
    pub(super) fn may_be_job(&self, lane: &LaneProgress, header: &RecordHeader, event_type: Option<&str>) -> bool {
        self.is_job_if(lane, header.sequence, |filter| filter.may_match(header, event_type))
    }

    fn is_job_if(
        &self,
        lane: &LaneProgress,
        sequence: Sequence,
        mut is_matched_by: impl FnMut(&CompiledSubscription) -> bool,
    ) -> bool {
        let (first, end, current) = match lane.interest(sequence) {
            JobInterest::Job => return true,
            _ if sequence <= lane.start => return false,
            JobInterest::Filters { first, end, current } => (first, end, current),
        };
        let mut earlier = self.earlier.get(first..end).unwrap_or_default().iter();
        // Nothing is known to be a job by a filter that is not valid any more; where the current one decides, it is skipped.
        earlier.all(|filter| filter.compiled.as_ref().map_or(current, &mut is_matched_by))
            && (!current || is_matched_by(&self.current))
    }
}
