//! Pages that feeders read. A damaged event is a page of its own, with what its header tells.

use super::feeder::PAGE;
use super::job_event::group_by_aggregate;
use super::lane::{EventArrival, LaneKey, NewJob};
use super::planner::Planner;
use crate::events::{TopicScanPage, read_page, type_by_header};
use crate::ledger::{DispatchRows, Ledger, Registry, tag};
use crate::subscriptions::CompiledSubscription;
use contract::{DispatchMode, Result, Sequence};
use log::{Record, RecordHeader, TopicNumber};
use uuid::Uuid;

/// A page of a topic, with what is known of a damaged event.
pub(super) enum FeederPage {
    Intact(Vec<Record>),
    Damaged(DamagedEvent),
}

/// A damaged event.
pub(super) struct DamagedEvent {
    pub(super) header: RecordHeader,
    pub(super) event_type: Option<String>,
    /// The fingerprint of its aggregate's message group.
    group: Option<u64>,
}

impl FeederPage {
    /// A page behind `scanned`, which skips removed events.
    pub(super) async fn read(
        ledger: &Ledger,
        types: &Registry,
        number: TopicNumber,
        scanned: &mut Sequence,
    ) -> Result<Self> {
        Ok(match read_page(ledger, number, scanned, PAGE).await? {
            TopicScanPage::Intact(page) => Self::Intact(page),
            TopicScanPage::Damaged(header) => {
                tracing::error!(sequence = %header.sequence, event = %Uuid::from_u128(header.id),
                    "an event is damaged on disk and cannot be delivered; run `event-broker verify` on the data folder");
                let group = group_by_aggregate(ledger, &header).await.as_deref().map(tag);
                Self::Damaged(DamagedEvent { header, event_type: type_by_header(types, &header), group })
            }
        })
    }

    pub(super) fn last(&self) -> Option<Sequence> {
        match self {
            Self::Intact(page) => page.last().map(|record| record.header.sequence),
            Self::Damaged(event) => Some(event.header.sequence),
        }
    }
}

impl DamagedEvent {
    /// Offers it to a lane like any event, so that it keeps its turn; the delivery finds that it is damaged.
    pub(super) fn offer(
        &self,
        rows: &DispatchRows,
        key: LaneKey,
        subscription: &CompiledSubscription,
        planner: &mut Planner,
        now: i64,
    ) {
        let sequence = self.header.sequence;
        if rows.lane(key.lane).is_none_or(|lane| lane.slot(sequence).is_some()) {
            return;
        }
        let group = self.group.filter(|_| subscription.mode != DispatchMode::Immediate);
        let event = EventArrival { time: self.header.time, bytes: 0 };
        planner.offer(key, NewJob { sequence, group, event, stored: None }, now);
    }
}
