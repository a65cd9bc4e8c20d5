//! The event of a job, as far as it is known. Of one that is damaged or was removed, the header and what the job's row
//! keeps.

use crate::events::damage_detail;
use crate::ledger::{JobRow, JobSlot, Ledger};
use crate::subscriptions::EventSummary;
use contract::{Position, Sequence};
use log::{ReadLimit, ReadRange, Record, RecordHeader, TopicNumber};

const ONE: ReadLimit = ReadLimit { records: 1, bytes: 0 };

/// Whether the event of a job can be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventCondition {
    Intact,
    /// Its body cannot be read.
    Damaged,
    /// Retention removed it, or `repair` cut it out.
    Removed,
}

/// The event of a job.
#[derive(Clone)]
pub(super) struct JobEvent {
    /// The event. If it is not intact, the body has only its type and its message group, as far as they are known.
    pub(super) record: Record,
    pub(super) condition: EventCondition,
}

impl JobEvent {
    pub(super) const fn intact(record: Record) -> Self {
        Self { record, condition: EventCondition::Intact }
    }

    /// A damaged event, whose job has this slot.
    pub(super) fn damaged(header: RecordHeader, event_type: Option<&str>, slot: Option<&JobSlot>) -> Self {
        let record = Record { header, body: known_body(event_type, slot.and_then(group_in)) };
        Self { record, condition: EventCondition::Damaged }
    }

    /// A removed event of a job that was given up: its type is not known.
    pub(super) fn removed(topic: TopicNumber, sequence: Sequence, row: &JobRow) -> Self {
        let digest = row.digest.as_ref();
        let header = RecordHeader {
            position: Position::ZERO,
            topic,
            sequence,
            time: digest.map_or(row.since, |digest| digest.arrived),
            id: row.event.as_u128(),
            facets: None,
        };
        let group = digest.and_then(|digest| digest.group.as_deref());
        Self { record: Record { header, body: known_body(None, group) }, condition: EventCondition::Removed }
    }

    /// The intact event.
    pub(super) fn readable(&self) -> Option<&Record> {
        (self.condition == EventCondition::Intact).then_some(&self.record)
    }

    /// Why it cannot be delivered.
    pub(super) fn error(&self) -> Option<String> {
        match self.condition {
            EventCondition::Intact => None,
            EventCondition::Damaged => Some(damage_detail(self.record.header.sequence)),
            EventCondition::Removed => Some("The event was removed from the topic.".to_owned()),
        }
    }
}

/// What is known of a body that cannot be read.
fn known_body(event_type: Option<&str>, group: Option<&str>) -> bytes::Bytes {
    serde_json::json!({"type": event_type.unwrap_or_default(), "messageGroup": group}).to_string().into()
}

fn group_in(slot: &JobSlot) -> Option<&str> {
    match slot {
        JobSlot::Open(row) => row.digest.as_ref()?.group.as_deref(),
        JobSlot::Ended(_) => None,
    }
}

/// The message group of a damaged event: that of an intact event of its aggregate, the one before it or else the one
/// behind it. The group itself is in the body.
pub(super) async fn group_by_aggregate(ledger: &Ledger, header: &RecordHeader) -> Option<String> {
    let mark = header.facets?.aggregate?;
    let number = mark.sequence.get();
    for after in [number.checked_sub(2), Some(number)].into_iter().flatten() {
        let page = ledger.log().read(ReadRange::Aggregate(mark.key, contract::AggregateSequence(after)), ONE).await;
        let near = page.ok().and_then(|page| page.into_iter().next());
        if let Some(group) = near.and_then(|record| EventSummary::at(&record.body)?.group()) {
            return Some(group);
        }
    }
    None
}
