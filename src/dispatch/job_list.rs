//! Lists of jobs, by lane and sequence.
//!
//! - A page costs what it contains: jobs with a row, and jobs that ended otherwise than by delivery, are known without
//!   reading the topic, and a list resumes at its cursor.
//! - Only jobs that were delivered or have not begun are found by reading the topic. One request reads a bounded part
//!   of it; the cursor says how far.

use super::job_event::JobEvent;
use super::job_list_builder::{JobListBuilder, place, task_place};
use super::jobs::{DispatchJobs, EventLane, lane_of, read, removed_through};
use crate::events::TopicScanPage;
use crate::filters::FilterStats;
use crate::ledger::{JobEnd, JobKey, JobState, KnownJob, Ledger, SubscriptionRow};
use contract::{Cursor, DispatchJob, Error, JobFilter, JobStatus, Kind, Page, Result, Sequence};
use std::sync::Arc;
use uuid::Uuid;

/// Most events read for one page of a list.
pub(super) const SCANNED_MAX: usize = 20_000;
/// Known jobs, or tasks, read under one lock of the state.
const KNOWN_PER_LOCK: usize = 1024;

impl DispatchJobs<'_> {
    /// The page of jobs after `cursor`, by lane and sequence.
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
        let mut list = JobListBuilder { filter, after, limit, items: Vec::new(), left: SCANNED_MAX, stopped_at: None };
        let lanes = self.lanes(filter.subscription.as_deref())?;
        let event = match filter.event {
            Some(id) => match self.reader.locate(id).await {
                Ok((place, header)) => Some((Arc::clone(self.logs.ledger(&place)), header)),
                // An event that is unknown or removed has no jobs.
                Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Trimmed) => return Ok(list.page()),
                Err(error) => return Err(error),
            },
            None => None,
        };
        for (lane, ledger) in lanes {
            if list.is_full() {
                break;
            }
            if list.is_past(lane) {
                continue;
            }
            let Some(lane) = lane_of(&ledger, lane) else { continue };
            match &event {
                Some((event_ledger, header))
                    if Arc::ptr_eq(event_ledger, &ledger) && header.topic.0 == lane.row.number =>
                {
                    self.list_event(&lane, header.sequence, &mut list).await?;
                }
                Some(_) => (),
                None => self.list_lane(&lane, &mut list).await?,
            }
        }
        if filter.subscription.is_none() && filter.event.is_none() {
            self.list_tasks(&mut list);
        }
        Ok(list.page())
    }

    /// All lanes of events, or those of one subscription, in order, each with its log.
    fn lanes(&self, subscription: Option<&str>) -> Result<Vec<(Uuid, Arc<Ledger>)>> {
        let id = subscription.and_then(|it| Uuid::try_parse(it).ok());
        let mut lanes = Vec::new();
        for ledger in self.logs.ledgers() {
            let rows = ledger.dispatch();
            let wanted = match subscription {
                None => None,
                Some(name) => match id.and_then(|id| rows.subscription(id)).or_else(|| rows.by_code(name)) {
                    Some(row) => Some(row.id),
                    None => continue,
                },
            };
            let is_wanted = |id: Uuid| wanted.is_none_or(|wanted| wanted == id);
            let subscriptions: Box<dyn Iterator<Item = &SubscriptionRow>> = match wanted {
                Some(id) => Box::new(rows.subscription(id).into_iter()),
                None => Box::new(rows.subscriptions()),
            };
            lanes.extend(subscriptions.map(|row| (row.id, Arc::clone(&ledger))));
            let replays = rows.replays().filter(|(_, replay)| is_wanted(replay.subscription));
            lanes.extend(replays.map(|(id, _)| (id, Arc::clone(&ledger))));
        }
        if lanes.is_empty() && subscription.is_some() {
            return Err(Error::not_found("subscription"));
        }
        lanes.sort_unstable_by_key(|(lane, _)| *lane);
        Ok(lanes)
    }

    /// The job of one event in a lane, if it is one.
    async fn list_event(&self, lane: &EventLane, sequence: Sequence, list: &mut JobListBuilder<'_>) -> Result<()> {
        let Some(event) = self.job_event(lane, sequence).await? else { return Ok(()) };
        if self.check_is_job(lane, &event).is_ok() {
            list.add(place(lane.lane, sequence), self.view(lane, &event));
        }
        Ok(())
    }

    async fn list_lane(&self, lane: &EventLane, list: &mut JobListBuilder<'_>) -> Result<()> {
        let Some((start, through)) = lane.ledger.dispatch().lane(lane.lane).map(|of| (of.start, of.recorded_through()))
        else {
            return Ok(());
        };
        match list.filter.status {
            // Given up or cancelled: always stored.
            Some(JobStatus::Error | JobStatus::Cancelled) => self.list_known(lane, Sequence(u64::MAX), list).await,
            Some(JobStatus::InProgress) => {
                let after = list.behind(lane.lane);
                for sequence in self.context.in_flight_of_lane(lane.lane).into_iter().filter(|it| *it > after) {
                    self.list_event(lane, sequence, list).await?;
                }
                Ok(())
            }
            // Below the settled offset such a job has a row or a bit.
            Some(JobStatus::Pending | JobStatus::Queued | JobStatus::Expired) => {
                self.list_known(lane, through, list).await?;
                self.list_scanned(lane, through.max(start), list).await
            }
            Some(JobStatus::Completed) => self.list_scanned(lane, start, list).await,
            None => {
                // Jobs that were given up are known though their events were removed.
                self.list_known(lane, removed_through(lane, start).await?, list).await?;
                self.list_scanned(lane, start, list).await
            }
        }
    }

    /// Adds jobs up to a sequence that are known without reading the topic.
    async fn list_known(&self, lane: &EventLane, through: Sequence, list: &mut JobListBuilder<'_>) -> Result<()> {
        let mut after = list.behind(lane.lane);
        loop {
            let known = match lane.ledger.dispatch().lane(lane.lane) {
                Some(of) => of.known_after(after, KNOWN_PER_LOCK),
                None => return Ok(()),
            };
            let Some((last, _)) = known.last().copied() else { return Ok(()) };
            for (sequence, job) in known {
                if sequence > through || list.is_full() {
                    return Ok(());
                }
                if !may_have_status(job, list.filter.status) {
                    continue;
                }
                list.note_scanned(place(lane.lane, sequence));
                if let Some(event) = self.job_event(lane, sequence).await? {
                    list.add(place(lane.lane, sequence), self.view(lane, &event));
                }
            }
            after = last;
            tokio::task::yield_now().await;
        }
    }

    /// Adds jobs after a sequence, found by reading the topic.
    async fn list_scanned(&self, lane: &EventLane, from: Sequence, list: &mut JobListBuilder<'_>) -> Result<()> {
        let filters = self.filters(lane)?;
        let mut after = list.behind(lane.lane).max(from);
        let mut failures = FilterStats::default();
        while !list.is_full() {
            let page = match read(lane, &mut after).await? {
                TopicScanPage::Intact(page) => page,
                TopicScanPage::Damaged(header) => {
                    if lane.replay.is_some_and(|replay| header.sequence > replay.to) {
                        return Ok(());
                    }
                    list.note_scanned(place(lane.lane, header.sequence));
                    self.list_event(lane, header.sequence, list).await?;
                    after = header.sequence;
                    continue;
                }
            };
            let Some(last) = page.last().map(|record| record.header.sequence) else { return Ok(()) };
            for record in &page {
                let sequence = record.header.sequence;
                if list.is_full() || lane.replay.is_some_and(|replay| sequence > replay.to) {
                    return Ok(());
                }
                list.note_scanned(place(lane.lane, sequence));
                let is_job = match lane.ledger.dispatch().lane(lane.lane) {
                    Some(of) => lane.is_job(&filters, of, record, &mut failures),
                    None => return Ok(()),
                };
                if is_job || self.context.is_in_flight(JobKey { lane: lane.lane, sequence }) {
                    list.add(place(lane.lane, sequence), self.view(lane, &JobEvent::intact(record.clone())));
                }
            }
            after = last;
        }
        Ok(())
    }

    fn list_tasks(&self, list: &mut JobListBuilder<'_>) {
        let ledger = self.logs.default_ledger();
        let mut after = list.task_behind();
        while !list.is_full() {
            let tasks: Vec<_> = ledger.dispatch().tasks_behind(after).take(KNOWN_PER_LOCK).cloned().collect();
            let Some(last) = tasks.last().map(|task| task.number) else { return };
            for task in tasks {
                if list.is_full() {
                    return;
                }
                list.note_scanned(task_place(task.number));
                list.add(task_place(task.number), self.view_task(ledger, &task));
            }
            after = last;
        }
    }
}

/// Whether a known job may have this status; for a waiting job the event decides.
const fn may_have_status(job: KnownJob, status: Option<JobStatus>) -> bool {
    let Some(status) = status else { return true };
    match job {
        KnownJob::Open(JobState::Waiting { .. }) => !matches!(status, JobStatus::Error | JobStatus::Cancelled),
        KnownJob::Open(JobState::Dead { expired: true, .. }) => matches!(status, JobStatus::Expired),
        KnownJob::Open(JobState::Dead { .. }) => matches!(status, JobStatus::Error),
        KnownJob::Ended(JobEnd::Cancelled) => matches!(status, JobStatus::Cancelled),
        KnownJob::Ended(JobEnd::Expired) => matches!(status, JobStatus::Expired),
        KnownJob::Ended(JobEnd::Completed) => matches!(status, JobStatus::Completed),
    }
}
