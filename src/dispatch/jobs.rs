//! Jobs as they are shown, one at a time, and which events are jobs.
//!
//! - A job is derived from the log on request: from its event, its subscription, and its row if it has one.
//!
//! Lists are the business of `job_list`, blocked message groups of `blocked_groups`, filters of `lane_filter`.

use super::DispatchContext;
use super::job_event::{EventCondition, JobEvent};
use super::job_view::{JobSnapshot, JobSubject};
use super::lane_filter::LaneFilters;
use crate::events::{EventLookup, EventReader, TopicScanPage, find_event, read_page, type_by_header};
use crate::filters::FilterStats;
use crate::ledger::{JobKey, JobSlot, LaneProgress, Ledger, ReplayRow, SubscriptionRow, TaskRow, read_failed};
use crate::logs::Logs;
use crate::secrets::SecretGuard;
use crate::subscriptions::SecretVault;
use contract::{DispatchJob, Error, ProducerId, Result, Sequence};
use log::{LogError, ReadLimit, ReadRange, Record, RecordHeader, TopicNumber};
use std::sync::Arc;
use uuid::Uuid;

const PAGE: ReadLimit = ReadLimit { records: 512, bytes: 1024 * 1024 };

/// The jobs of all logs, on behalf of one caller.
pub(crate) struct DispatchJobs<'a> {
    pub(crate) logs: &'a Logs,
    pub(crate) reader: EventReader<'a>,
    pub(crate) vault: &'a SecretVault,
    pub(crate) secrets: &'a SecretGuard,
    pub(crate) context: &'a DispatchContext,
    pub(crate) by: Option<&'a ProducerId>,
}

/// The lane of a subscription or of a replay.
#[derive(Clone)]
pub(super) struct EventLane {
    pub(super) ledger: Arc<Ledger>,
    pub(super) row: SubscriptionRow,
    pub(super) lane: Uuid,
    pub(super) replay: Option<ReplayRow>,
}

/// The job that an id names.
pub(super) enum JobRef {
    Event(EventLane, Sequence),
    Task(Arc<Ledger>, TaskRow),
}

/// The id of a job.
pub(super) fn job_id(key: JobKey) -> String {
    format!("{}-{}", key.lane.simple(), key.sequence)
}

impl DispatchJobs<'_> {
    /// One job by its id.
    pub(crate) async fn get(&self, id: &str) -> Result<DispatchJob> {
        match self.job_ref(id)? {
            JobRef::Task(ledger, task) => Ok(self.view_task(&ledger, &task)),
            JobRef::Event(lane, sequence) => {
                let event = self.job_event(&lane, sequence).await?.ok_or_else(not_found)?;
                self.check_is_job(&lane, &event)?;
                Ok(self.view(&lane, &event))
            }
        }
    }

    /// Which job an id stands for.
    pub(super) fn job_ref(&self, id: &str) -> Result<JobRef> {
        let parsed = id.rsplit_once('-').and_then(|(lane, sequence)| {
            let lane = Uuid::try_parse(lane).ok().filter(|_| lane.len() == 32)?;
            Some((lane, Sequence(sequence.parse().ok().filter(|it| *it > 0)?)))
        });
        if let Some((lane, sequence)) = parsed {
            let found = self.logs.ledgers().into_iter().find_map(|ledger| lane_of(&ledger, lane));
            return found.map(|lane| JobRef::Event(lane, sequence)).ok_or_else(not_found);
        }
        let task = Uuid::try_parse(id).map_err(|_| not_found())?;
        let ledger = self.logs.default_ledger();
        let row = ledger.dispatch().task(task).cloned().ok_or_else(not_found)?;
        Ok(JobRef::Task(Arc::clone(ledger), row))
    }

    /// Refuses an event that is not a job of a lane.
    pub(super) fn check_is_job(&self, lane: &EventLane, event: &JobEvent) -> Result<()> {
        let filters = self.filters(lane)?;
        let header = &event.record.header;
        if self.context.is_in_flight(JobKey { lane: lane.lane, sequence: header.sequence }) {
            return Ok(());
        }
        let event_type = self.type_by_header(header);
        let rows = lane.ledger.dispatch();
        let of = rows.lane(lane.lane).ok_or_else(not_found)?;
        let is_job = match event.condition {
            EventCondition::Damaged => lane.may_be_job(&filters, of, header, event_type.as_deref()),
            // Of a removed one the job has a row, which is sufficient.
            EventCondition::Intact | EventCondition::Removed => {
                lane.is_job(&filters, of, &event.record, &mut FilterStats::default())
            }
        };
        if is_job { Ok(()) } else { Err(not_found()) }
    }

    /// The event of a job; `None` if it was removed and the job is over. One that was given up is shown without its event, as
    /// it may block its message group, and a person can cancel or complete it.
    pub(super) async fn job_event(&self, lane: &EventLane, sequence: Sequence) -> Result<Option<JobEvent>> {
        let topic = TopicNumber(lane.row.number);
        let found = find_event(&lane.ledger, topic, sequence).await?;
        let slot = || lane.ledger.dispatch().lane(lane.lane).and_then(|of| of.slot(sequence));
        Ok(match found {
            Some(EventLookup::Intact(record)) => Some(JobEvent::intact(record)),
            Some(EventLookup::Damaged(header)) => Some(self.damaged_event(&header, slot().as_ref())),
            None => match slot() {
                Some(JobSlot::Open(row)) => Some(JobEvent::removed(topic, sequence, &row)),
                Some(JobSlot::Ended(_)) | None => None,
            },
        })
    }

    /// A damaged event, whose job has this slot.
    pub(super) fn damaged_event(&self, header: &RecordHeader, slot: Option<&JobSlot>) -> JobEvent {
        JobEvent::damaged(*header, self.type_by_header(header).as_deref(), slot)
    }

    /// The name of an event's type, if it is registered: a damaged event does not tell it.
    pub(super) fn type_by_header(&self, header: &RecordHeader) -> Option<String> {
        type_by_header(&self.logs.default_ledger().registry(), header)
    }

    /// The filters of a lane.
    pub(super) fn filters(&self, lane: &EventLane) -> Result<LaneFilters> {
        let past = lane.ledger.dispatch().lane(lane.lane).map(|of| of.past_filters().to_vec()).unwrap_or_default();
        LaneFilters::new(&lane.row, &past)
    }

    /// A job as it is shown.
    pub(super) fn view(&self, lane: &EventLane, event: &JobEvent) -> DispatchJob {
        self.current_view(&JobSubject::Event(Box::new((lane.clone(), event.clone()))))
    }

    /// A task as it is shown.
    pub(super) fn view_task(&self, ledger: &Arc<Ledger>, row: &TaskRow) -> DispatchJob {
        self.current_view(&JobSubject::Task(Arc::clone(ledger), row.clone()))
    }

    fn current_view(&self, subject: &JobSubject) -> DispatchJob {
        subject.view(self.job_snapshot(subject))
    }

    /// The state of a job now.
    pub(super) fn job_snapshot(&self, subject: &JobSubject) -> JobSnapshot {
        let key = subject.key();
        let (slot, recent) = {
            let rows = subject.ledger().dispatch();
            let of = rows.lane(key.lane);
            (of.and_then(|of| of.slot(key.sequence)), of.map(|of| of.recent(key.sequence)).unwrap_or_default())
        };
        JobSnapshot { slot, recent, now: subject.ledger().now(), is_in_flight: self.context.is_in_flight(key) }
    }
}

impl EventLane {
    /// Whether an event is a job of this lane.
    pub(super) fn is_job(
        &self,
        filters: &LaneFilters,
        progress: &LaneProgress,
        record: &Record,
        failures: &mut FilterStats,
    ) -> bool {
        self.is_in_range(record.header.sequence) && filters.is_job(progress, record, failures)
    }

    /// Whether a damaged event may be one.
    pub(super) fn may_be_job(
        &self,
        filters: &LaneFilters,
        progress: &LaneProgress,
        header: &RecordHeader,
        event_type: Option<&str>,
    ) -> bool {
        self.is_in_range(header.sequence) && filters.may_be_job(progress, header, event_type)
    }

    fn is_in_range(&self, sequence: Sequence) -> bool {
        self.replay.is_none_or(|replay| sequence <= replay.to)
    }
}

/// A lane of events of a log, by its id.
pub(super) fn lane_of(ledger: &Arc<Ledger>, lane: Uuid) -> Option<EventLane> {
    let rows = ledger.dispatch();
    let replay = rows.replay(lane).copied();
    let row = rows.subscription(replay.map_or(lane, |replay| replay.subscription))?.clone();
    Some(EventLane { ledger: Arc::clone(ledger), row, lane, replay })
}

fn not_found() -> Error {
    Error::not_found("job")
}

/// The last event after `start` that was removed with all before it; `start` if none was.
pub(super) async fn removed_through(lane: &EventLane, start: Sequence) -> Result<Sequence> {
    let range = ReadRange::Topic(TopicNumber(lane.row.number), start);
    match lane.ledger.log().headers(range, ReadLimit { records: 1, bytes: 0 }).await {
        Err(LogError::Trimmed(earliest)) => Ok(Sequence(earliest.get().saturating_sub(1)).max(start)),
        page => page.map(|_| start).map_err(read_failed),
    }
}

/// A page of a lane's topic after `after`, which skips removed events.
pub(super) async fn read(lane: &EventLane, after: &mut Sequence) -> Result<TopicScanPage> {
    read_page(&lane.ledger, TopicNumber(lane.row.number), after, PAGE).await
}
