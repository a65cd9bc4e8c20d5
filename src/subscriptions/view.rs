//! Subscriptions as they are shown: the definition with every default, and the progress of their jobs.

use super::compiled::effective;
use crate::ledger::{Ledger, SubscriptionRow};
use contract::{Offset, Subscription, SubscriptionStatus, TargetBreaker, Timestamp};
use uuid::Uuid;

/// A subscription that was just created, as it is shown.
pub(crate) fn new_view(row: &SubscriptionRow) -> Subscription {
    Subscription {
        id: row.id,
        definition: effective(&row.definition),
        auth_type: row.auth_type.clone(),
        status: if row.paused.is_some() { SubscriptionStatus::Paused } else { SubscriptionStatus::Active },
        pause: row.paused.clone(),
        settled_through: Offset::ZERO,
        open_jobs: 0,
        held: None,
        replays: 0,
        breaker: None,
        created_at: Timestamp::from_millis(row.created_at),
        updated_at: Timestamp::from_millis(row.updated_at),
    }
}

/// The progress of a subscription, as of the last durable record.
#[derive(Clone, Copy)]
pub(super) struct SubscriptionProgress {
    settled_through: Offset,
    open_jobs: u64,
    replays: u64,
    breaker: Option<TargetBreaker>,
}

impl SubscriptionProgress {
    pub(super) fn of(ledger: &Ledger, id: Uuid, breaker: Option<TargetBreaker>) -> Self {
        let rows = ledger.dispatch();
        let lane = rows.lane(id);
        Self {
            settled_through: lane.map_or(Offset::ZERO, |lane| lane.recorded_through().into()),
            open_jobs: lane.map_or(0, |lane| lane.open_count() as u64),
            replays: rows.replays().filter(|(_, replay)| replay.subscription == id).count() as u64,
            breaker,
        }
    }

    /// A subscription with this progress, as it is shown.
    pub(super) fn into_view(self, row: &SubscriptionRow) -> Subscription {
        let Self { settled_through, open_jobs, replays, breaker } = self;
        Subscription { settled_through, open_jobs, replays, breaker, ..new_view(row) }
    }
}
