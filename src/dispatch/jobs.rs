//! Jobs as they are shown, one at a time, and which events are jobs.
//!
//! - A job is derived from the log on request: from its event, its subscription, and its row if it has one.
//!
//! Lists are the business of `job_list`, blocked message groups of `blocked_groups`, filters of `lane_filter`.

use super::DispatchContext;
use super::job_view::{JobSnapshot, JobSubject};
use super::lane_filter::LaneFilters;
use crate::events::EventReader;
use crate::filters::FilterStats;
use crate::ledger::{JobKey, JobRow, JobSlot, LaneProgress, Ledger, ReplayRow, SubscriptionRow, TaskRow, read_failed};
use crate::logs::Logs;
use crate::secrets::SecretGuard;
use crate::subscriptions::SecretVault;
use contract::{DispatchJob, Error, Position, ProducerId, Result, Sequence};
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
                let record = job_record(&lane, sequence).await?.ok_or_else(not_found)?;
                self.check_is_job(&lane, &record)?;
                Ok(self.view(&lane, &record))
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
    pub(super) fn check_is_job(&self, lane: &EventLane, record: &Record) -> Result<()> {
        let filters = self.filters(lane)?;
        if self.context.is_in_flight(JobKey { lane: lane.lane, sequence: record.header.sequence }) {
            return Ok(());
        }
        let rows = lane.ledger.dispatch();
        let of = rows.lane(lane.lane).ok_or_else(not_found)?;
        match lane.is_job(&filters, of, record, &mut FilterStats::default()) {
            true => Ok(()),
            false => Err(not_found()),
        }
    }

    /// The filters of a lane.
    pub(super) fn filters(&self, lane: &EventLane) -> Result<LaneFilters> {
        let past = lane.ledger.dispatch().lane(lane.lane).map(|of| of.past_filters().to_vec()).unwrap_or_default();
        LaneFilters::new(&lane.row, &past)
    }

    /// A job as it is shown.
    pub(super) fn view(&self, lane: &EventLane, record: &Record) -> DispatchJob {
        self.current_view(&JobSubject::Event(Box::new((lane.clone(), record.clone()))))
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
        let is_in_range = self.replay.is_none_or(|replay| record.header.sequence <= replay.to);
        is_in_range && filters.is_job(progress, record, failures)
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

/// The event of a job; `None` if it was removed.
pub(super) async fn record_at(lane: &EventLane, sequence: Sequence) -> Result<Option<Record>> {
    let range = ReadRange::Topic(TopicNumber(lane.row.number), Sequence(sequence.get().saturating_sub(1)));
    match lane.ledger.log().read(range, ReadLimit { records: 1, bytes: 0 }).await {
        Ok(page) => Ok(page.into_iter().next().filter(|record| record.header.sequence == sequence)),
        Err(LogError::Trimmed(_)) => Ok(None),
        Err(error) => Err(read_failed(error)),
    }
}

/// The same; where the event was removed and the job given up, what the job's row keeps of the event. Such a job is shown, as it
/// may block its message group, and a person can cancel or complete it.
pub(super) async fn job_record(lane: &EventLane, sequence: Sequence) -> Result<Option<Record>> {
    if let Some(record) = record_at(lane, sequence).await? {
        return Ok(Some(record));
    }
    let row = lane.ledger.dispatch().lane(lane.lane).and_then(|of| of.slot(sequence));
    Ok(match row {
        Some(JobSlot::Open(row)) => Some(removed_event(lane, sequence, &row)),
        Some(JobSlot::Ended(_)) | None => None,
    })
}

/// A removed event, as far as it is known: its type is not.
fn removed_event(lane: &EventLane, sequence: Sequence, row: &JobRow) -> Record {
    let digest = row.digest.as_ref();
    let header = RecordHeader {
        position: Position::ZERO,
        topic: TopicNumber(lane.row.number),
        sequence,
        time: digest.map_or(row.since, |digest| digest.arrived),
        id: row.event.as_u128(),
        facets: None,
    };
    let group = digest.and_then(|digest| digest.group.as_ref());
    let body = serde_json::json!({"type": "", "messageGroup": group});
    Record { header, body: body.to_string().into() }
}

/// The last event behind `start` that was removed with all before it; `start` if none was.
pub(super) async fn removed_through(lane: &EventLane, start: Sequence) -> Result<Sequence> {
    let range = ReadRange::Topic(TopicNumber(lane.row.number), start);
    match lane.ledger.log().read(range, ReadLimit { records: 1, bytes: 0 }).await {
        Err(LogError::Trimmed(earliest)) => Ok(Sequence(earliest.get().saturating_sub(1)).max(start)),
        page => page.map(|_| start).map_err(read_failed),
    }
}

/// Whether this stands for an event that was removed.
pub(super) const fn is_removed(record: &Record) -> bool {
    record.header.facets.is_none()
}

/// A page of a lane's topic behind `after`, which skips removed events.
pub(super) async fn read(lane: &EventLane, after: &mut Sequence) -> Result<Vec<Record>> {
    loop {
        match lane.ledger.log().read(ReadRange::Topic(TopicNumber(lane.row.number), *after), PAGE).await {
            Err(LogError::Trimmed(earliest)) if earliest.get() > after.get() + 1 => {
                *after = Sequence(earliest.get() - 1);
            }
            page => return page.map_err(read_failed),
        }
    }
}
