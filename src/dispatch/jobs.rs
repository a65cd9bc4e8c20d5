//! Jobs as they are shown: one, or a list of them, and the groups that do not move.
//!
//! - What a job is, is worked out from the log when somebody asks: its event, its subscription, its row if it has one.
//! - A list looks through a bounded part of the log at a time; its cursor says how far.

use super::Context;
use super::face::{Face, Moment};
use super::listing::{Listing, place};
use super::verbs::would_do;
use crate::clock::Clock;
use crate::events::Reader;
use crate::filters::FilterFailures;
use crate::ledger::{JobEnd, JobKey, JobSlot, Ledger, ReplayRow, SubscriptionRow, TaskRow, read_failed};
use crate::logs::Logs;
use crate::subscriptions::{Peek, Terms, Vault};
use contract::{
    BlockedGroup, Cursor, DispatchJob, DispatchMode, Error, JobFilter, JobStatus, Page, ProducerId, Result, Sequence,
    Timestamp,
};
use log::{Limit, LogError, Range, Record, TopicNumber};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

const PAGE: Limit = Limit { records: 512, bytes: 1024 * 1024 };
/// Most events looked at for one page of a list, or for the groups of one subscription.
const LOOKED_AT_MAX: usize = 20_000;

/// The jobs of all logs, on behalf of one caller.
pub(crate) struct Jobs<'a> {
    pub(crate) logs: &'a Logs,
    pub(crate) reader: Reader<'a>,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) vault: &'a Vault,
    pub(crate) context: &'a Context,
    pub(crate) by: Option<&'a ProducerId>,
}

/// A subscription's lane, or one of its replays'.
#[derive(Clone)]
pub(super) struct LaneOf {
    pub(super) ledger: Arc<Ledger>,
    pub(super) row: SubscriptionRow,
    pub(super) lane: Uuid,
    pub(super) replay: Option<ReplayRow>,
}

/// Which job an id stands for.
pub(super) enum Named {
    Event(LaneOf, Sequence),
    Task(Arc<Ledger>, TaskRow),
}

/// The id of a job.
pub(super) fn job_id(key: JobKey) -> String {
    format!("{}-{}", key.lane.simple(), key.sequence)
}

impl Jobs<'_> {
    /// One job.
    pub(crate) async fn get(&self, id: &str) -> Result<DispatchJob> {
        match self.named(id)? {
            Named::Task(ledger, task) => Ok(self.view_task(&ledger, &task)),
            Named::Event(lane, sequence) => {
                let record = record_at(&lane, sequence).await?.ok_or_else(not_found)?;
                let terms = Terms::of(&lane.row, self.vault)?;
                self.check_is_job(&lane, &terms, &record)?;
                Ok(self.view(&lane, &record))
            }
        }
    }

    /// Jobs by lane and sequence, the page behind `cursor`.
    pub(crate) async fn list(
        &self,
        filter: &JobFilter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<DispatchJob>> {
        self.reader.check_limit(limit)?;
        let after = match cursor {
            None => String::new(),
            Some(Cursor::After(place)) => place.clone(),
            Some(Cursor::Before(_)) => return Err(Error::invalid("/cursor", "is not a cursor of this list")),
        };
        let mut list = Listing { filter, after, limit, items: Vec::new(), left: LOOKED_AT_MAX, stopped_at: None };
        let event = match filter.event {
            Some(id) => Some(self.reader.locate(id).await.map_err(|_| Error::not_found("event"))?.1),
            None => None,
        };
        for lane in self.lanes(filter.subscription.as_deref())? {
            if list.is_full() {
                break;
            }
            match &event {
                Some(header) if header.topic.0 != lane.row.number => (),
                Some(header) => self.list_one(&lane, header.sequence, &mut list).await?,
                None => self.list_lane(&lane, &mut list).await?,
            }
        }
        if filter.subscription.is_none() && filter.event.is_none() {
            self.list_tasks(&mut list);
        }
        Ok(list.page())
    }

    async fn list_one(&self, lane: &LaneOf, sequence: Sequence, list: &mut Listing<'_>) -> Result<()> {
        let Some(record) = record_at(lane, sequence).await? else { return Ok(()) };
        let terms = Terms::of(&lane.row, self.vault)?;
        if self.check_is_job(lane, &terms, &record).is_ok() {
            list.add(place(lane.lane, sequence), self.view(lane, &record));
        }
        Ok(())
    }

    async fn list_lane(&self, lane: &LaneOf, list: &mut Listing<'_>) -> Result<()> {
        // What has a row, or ended otherwise than by delivery, is found without looking through the topic.
        let known: Option<Vec<Sequence>> = {
            let rows = lane.ledger.dispatch();
            let Some(of) = rows.lane(lane.lane) else { return Ok(()) };
            match list.filter.status {
                Some(JobStatus::Error) => Some(of.open().map(|(sequence, _)| sequence).collect()),
                Some(JobStatus::Cancelled) => Some(of.ended_otherwise(JobEnd::Cancelled).collect()),
                Some(JobStatus::Expired) => Some(of.ended_otherwise(JobEnd::Expired).collect()),
                _ => None,
            }
        };
        if let Some(known) = known {
            for sequence in known {
                if list.is_full() {
                    return Ok(());
                }
                self.list_one(lane, sequence, list).await?;
            }
            return Ok(());
        }
        let terms = Terms::of(&lane.row, self.vault)?;
        let start = lane.ledger.dispatch().lane(lane.lane).map_or(Sequence::ZERO, |lane| lane.start);
        let mut after = list.behind(lane.lane).max(start);
        let mut failures = FilterFailures::default();
        while !list.is_full() {
            let page = read(lane, &mut after).await?;
            let Some(last) = page.last().map(|record| record.header.sequence) else { return Ok(()) };
            for record in &page {
                let sequence = record.header.sequence;
                if lane.replay.is_some_and(|replay| sequence > replay.to) {
                    return Ok(());
                }
                if list.is_full() {
                    return Ok(());
                }
                list.look(place(lane.lane, sequence));
                if terms.wants(record, &mut failures) {
                    list.add(place(lane.lane, sequence), self.view(lane, record));
                }
            }
            after = last;
        }
        Ok(())
    }

    fn list_tasks(&self, list: &mut Listing<'_>) {
        let ledger = self.logs.default_ledger();
        let tasks: Vec<_> = ledger.dispatch().tasks().cloned().collect();
        for task in tasks {
            // Behind all lanes: no UUID begins so.
            list.add(format!("tasks {:020}", task.number.get()), self.view_task(ledger, &task));
        }
    }

    /// Message groups of a subscription that do not move, and how many jobs wait in each.
    pub(crate) async fn groups(&self, lane: (Arc<Ledger>, SubscriptionRow)) -> Result<Vec<BlockedGroup>> {
        let (ledger, row) = lane;
        let lane = LaneOf { ledger, lane: row.id, row, replay: None };
        if lane.row.definition.mode != DispatchMode::BlockOnError {
            return Ok(Vec::new());
        }
        let open: Vec<_> = {
            let rows = lane.ledger.dispatch();
            let of = rows.lane(lane.lane);
            of.map(|of| of.open().map(|(sequence, row)| (sequence, row.since)).collect()).unwrap_or_default()
        };
        let (mut groups, mut statuses) = (BTreeMap::<String, (Sequence, i64, u64)>::new(), BTreeMap::new());
        for (sequence, since) in &open {
            let Some(record) = record_at(&lane, *sequence).await? else { continue };
            if let Some(group) = Peek::at(&record.body).and_then(|peek| peek.group()) {
                groups.entry(group).or_insert((*sequence, *since, 0));
                statuses.insert(*sequence, self.view(&lane, &record).status);
            }
        }
        self.count_waiting(&lane, &mut groups).await?;
        let code = &lane.row.definition.code;
        let rows = groups.into_iter().map(|(group, (sequence, since, waiting))| BlockedGroup {
            message_group: format!("{code}:{group}"),
            blocked_by: job_id(JobKey { lane: lane.lane, sequence }),
            since: Timestamp::from_millis(since),
            waiting,
            verbs: statuses.get(&sequence).map(|status| would_do(*status, waiting)).unwrap_or_default(),
        });
        Ok(rows.collect())
    }

    async fn count_waiting(&self, lane: &LaneOf, groups: &mut BTreeMap<String, (Sequence, i64, u64)>) -> Result<()> {
        let Some(mut after) = groups.values().map(|(sequence, ..)| *sequence).min() else { return Ok(()) };
        let terms = Terms::of(&lane.row, self.vault)?;
        let (mut failures, mut left) = (FilterFailures::default(), LOOKED_AT_MAX);
        while left > 0 {
            let page = read(lane, &mut after).await?;
            let Some(last) = page.last().map(|record| record.header.sequence) else { break };
            for record in page.iter().filter(|record| terms.wants(record, &mut failures)) {
                let group = Peek::at(&record.body).and_then(|peek| peek.group());
                let Some((head, _, waiting)) = group.and_then(|group| groups.get_mut(&group)) else { continue };
                let sequence = record.header.sequence;
                let is_over = lane.ledger.dispatch().lane(lane.lane).is_none_or(|of| of.is_over(sequence));
                if sequence > *head && !is_over {
                    *waiting += 1;
                }
            }
            left = left.saturating_sub(page.len());
            after = last;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Which job an id stands for.
    pub(super) fn named(&self, id: &str) -> Result<Named> {
        let parsed = id.rsplit_once('-').and_then(|(lane, sequence)| {
            let lane = Uuid::try_parse(lane).ok().filter(|_| lane.len() == 32)?;
            Some((lane, Sequence(sequence.parse().ok().filter(|it| *it > 0)?)))
        });
        if let Some((lane, sequence)) = parsed {
            let found = self.lanes(None)?.into_iter().find(|it| it.lane == lane);
            return found.map(|lane| Named::Event(lane, sequence)).ok_or_else(not_found);
        }
        let task = Uuid::try_parse(id).map_err(|_| not_found())?;
        let ledger = self.logs.default_ledger();
        let row = ledger.dispatch().task(task).cloned().ok_or_else(not_found)?;
        Ok(Named::Task(Arc::clone(ledger), row))
    }

    /// Every lane of events, or those of one subscription, in order.
    fn lanes(&self, subscription: Option<&str>) -> Result<Vec<LaneOf>> {
        let mut lanes = Vec::new();
        for ledger in self.logs.ledgers() {
            let rows = ledger.dispatch();
            let is_meant = |row: &&SubscriptionRow| {
                subscription.is_none_or(|it| row.definition.code == it || row.id.to_string() == it)
            };
            for row in rows.subscriptions().filter(is_meant) {
                let of = |lane, replay| LaneOf { ledger: Arc::clone(&ledger), row: row.clone(), lane, replay };
                lanes.push(of(row.id, None));
                let replays = rows.replays().filter(|(_, replay)| replay.subscription == row.id);
                lanes.extend(replays.map(|(id, replay)| of(id, Some(*replay))));
            }
        }
        if lanes.is_empty() && subscription.is_some() {
            return Err(Error::not_found("subscription"));
        }
        lanes.sort_unstable_by_key(|it| it.lane);
        Ok(lanes)
    }

    /// Refuses an event that is no job of a lane.
    pub(super) fn check_is_job(&self, lane: &LaneOf, terms: &Terms, record: &Record) -> Result<()> {
        let sequence = record.header.sequence;
        let rows = lane.ledger.dispatch();
        let of = rows.lane(lane.lane).ok_or_else(not_found)?;
        let is_row = matches!(of.slot(sequence), Some(JobSlot::Open(_)));
        let is_in = sequence > of.start && lane.replay.is_none_or(|replay| sequence <= replay.to);
        match is_row || (is_in && terms.wants(record, &mut FilterFailures::default())) {
            true => Ok(()),
            false => Err(not_found()),
        }
    }

    /// A job as it is shown.
    pub(super) fn view(&self, lane: &LaneOf, record: &Record) -> DispatchJob {
        self.look(&Face::Event(Box::new((lane.clone(), record.clone()))))
    }

    /// A task as it is shown.
    pub(super) fn view_task(&self, ledger: &Arc<Ledger>, row: &TaskRow) -> DispatchJob {
        self.look(&Face::Task(Arc::clone(ledger), row.clone()))
    }

    fn look(&self, face: &Face) -> DispatchJob {
        face.shown(self.moment(face))
    }

    /// How a job stands now.
    pub(super) fn moment(&self, face: &Face) -> Moment {
        let key = face.key();
        let (slot, recent) = {
            let rows = face.ledger().dispatch();
            let of = rows.lane(key.lane);
            (of.and_then(|of| of.slot(key.sequence)), of.map(|of| of.recent(key.sequence)).unwrap_or_default())
        };
        Moment { slot, recent, now: self.clock.now(), is_flying: self.context.is_flying(key) }
    }
}

fn not_found() -> Error {
    Error::not_found("job")
}

/// The event of a job; nothing once it is gone.
pub(super) async fn record_at(lane: &LaneOf, sequence: Sequence) -> Result<Option<Record>> {
    let range = Range::Topic(TopicNumber(lane.row.number), Sequence(sequence.get().saturating_sub(1)));
    match lane.ledger.log().read(range, Limit { records: 1, bytes: 0 }).await {
        Ok(page) => Ok(page.into_iter().next().filter(|record| record.header.sequence == sequence)),
        Err(LogError::Trimmed(_)) => Ok(None),
        Err(error) => Err(read_failed(error)),
    }
}

async fn read(lane: &LaneOf, after: &mut Sequence) -> Result<Vec<Record>> {
    loop {
        match lane.ledger.log().read(Range::Topic(TopicNumber(lane.row.number), *after), PAGE).await {
            Err(LogError::Trimmed(earliest)) if earliest.get() > after.get() + 1 => {
                *after = Sequence(earliest.get() - 1);
            }
            page => return page.map_err(read_failed),
        }
    }
}
