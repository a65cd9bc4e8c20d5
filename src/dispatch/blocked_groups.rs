//! Blocked message groups: which job blocks which group, and how many jobs wait behind it.

use super::actions::available_actions;
use super::job_event::EventCondition;
use super::job_list::SCANNED_MAX;
use super::jobs::{DispatchJobs, EventLane, job_id, read};
use crate::events::TopicScanPage;
use crate::filters::FilterStats;
use crate::ledger::{JobKey, Ledger, SubscriptionRow};
use crate::subscriptions::EventSummary;
use contract::{BlockedGroup, Cursor, DispatchMode, Error, JobStatus, Page, Result, Sequence, Timestamp};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use uuid::Uuid;

/// Rows read under one lock of the state.
const ROWS_PER_LOCK: usize = 256;

/// A blocked group.
struct BlockedHead {
    group: String,
    /// The lane of the job that blocks it: the subscription, or a replay.
    lane: Uuid,
    head: Sequence,
    /// Live jobs behind this wait for it.
    floor: Sequence,
    since: i64,
    status: JobStatus,
    /// Whether the event of that job can be delivered.
    condition: EventCondition,
    waiting: u64,
}

impl DispatchJobs<'_> {
    /// The page after `cursor` of a subscription's blocked message groups, in the order of the jobs that block them,
    /// with the number of jobs that wait in each.
    pub(crate) async fn groups(
        &self,
        (ledger, row): (Arc<Ledger>, SubscriptionRow),
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<BlockedGroup>> {
        self.reader.check_limit(limit)?;
        let after = match cursor {
            None => Sequence::ZERO,
            // A cursor of another list is after all groups.
            Some(Cursor::After(place)) => Sequence(place.parse().unwrap_or(u64::MAX)),
            Some(Cursor::Before(_)) => return Err(Error::invalid("/cursor", "is not a cursor of this list")),
        };
        let lane = EventLane { ledger, lane: row.id, row, replay: None };
        if lane.row.definition.mode != DispatchMode::BlockOnError {
            return Ok(Page { items: Vec::new(), next: None, prev: None });
        }
        let (mut groups, next) = self.blocked(&lane, after, limit).await?;
        if next.is_none() {
            self.blocked_by_replays(&lane, limit, &mut groups).await?;
        }
        let is_lower_bound = !self.count_waiting(&lane, &mut groups).await?;
        let code = &lane.row.definition.code;
        let items = groups.into_iter().map(|it| BlockedGroup {
            message_group: format!("{code}:{}", it.group),
            blocked_by: job_id(JobKey { lane: it.lane, sequence: it.head }),
            since: Timestamp::from_millis(it.since),
            waiting: it.waiting,
            waiting_is_lower_bound: is_lower_bound,
            verbs: available_actions((it.status, it.condition), it.waiting, is_lower_bound),
        });
        let next = next.map(|sequence| Cursor::After(sequence.to_string()));
        Ok(Page { items: items.collect(), next, prev: None })
    }

    /// At most `limit` groups whose heads are after a sequence; and where to resume, if there may be more.
    ///
    /// The head of a group is its first open row. So the rows up to `after` are looked at too: a group that is among them was
    /// on an earlier page, and its later rows block nothing.
    async fn blocked(
        &self,
        lane: &EventLane,
        after: Sequence,
        limit: usize,
    ) -> Result<(Vec<BlockedHead>, Option<Sequence>)> {
        let (mut groups, mut left, mut at) = (Vec::<BlockedHead>::new(), SCANNED_MAX, Sequence::ZERO);
        let mut seen = HashSet::<String>::new();
        loop {
            let rows: Vec<_> = {
                let rows = lane.ledger.dispatch();
                let of = rows.lane(lane.lane);
                of.into_iter().flat_map(|of| of.rows_after(at)).take(ROWS_PER_LOCK).collect()
            };
            if rows.is_empty() {
                return Ok((groups, None));
            }
            for (sequence, row) in rows {
                let is_behind = sequence > after;
                if is_behind && (groups.len() == limit || left == 0) {
                    return Ok((groups, Some(at.max(after))));
                }
                at = sequence;
                let group = match &row.digest {
                    Some(digest) => digest.group.clone(),
                    // Older versions kept no group; of those on earlier pages it is not read again.
                    None if !is_behind => None,
                    None => {
                        left -= 1;
                        let event = self.job_event(lane, sequence).await?;
                        event.and_then(|event| EventSummary::at(&event.record.body)?.group())
                    }
                };
                let Some(group) = group.filter(|group| seen.insert(group.clone()) && is_behind) else { continue };
                let Some(event) = self.job_event(lane, sequence).await? else { continue };
                let (status, condition) = (self.view(lane, &event).status, event.condition);
                let (lane, head, since) = (lane.lane, sequence, row.since);
                groups.push(BlockedHead { group, lane, head, floor: head, since, status, condition, waiting: 0 });
            }
            tokio::task::yield_now().await;
        }
    }

    /// Adds groups that a replayed job blocks, after all others.
    async fn blocked_by_replays(&self, lane: &EventLane, limit: usize, groups: &mut Vec<BlockedHead>) -> Result<()> {
        let (floor, replays) = {
            let rows = lane.ledger.dispatch();
            let of_it = rows.replays().filter(|(_, replay)| replay.subscription == lane.row.id);
            let replays: Vec<_> = of_it.map(|(id, replay)| (id, *replay)).collect();
            (rows.lane(lane.lane).map_or(Sequence::ZERO, |of| of.recorded_through()), replays)
        };
        for (id, replay) in replays {
            let replayed = EventLane { lane: id, replay: Some(replay), ..lane.clone() };
            let (blocked, _) = self.blocked(&replayed, Sequence::ZERO, limit.saturating_sub(groups.len())).await?;
            for it in blocked {
                if groups.iter().all(|known| known.group != it.group) {
                    groups.push(BlockedHead { floor, ..it });
                }
            }
        }
        Ok(())
    }

    /// Counts the jobs behind each head; true if the topic was read to its end.
    async fn count_waiting(&self, lane: &EventLane, groups: &mut [BlockedHead]) -> Result<bool> {
        let Some(mut after) = groups.iter().map(|it| it.floor).min() else { return Ok(true) };
        let filters = self.filters(lane)?;
        let places: HashMap<String, usize> =
            groups.iter().enumerate().map(|(place, it)| (it.group.clone(), place)).collect();
        let (mut failures, mut left) = (FilterStats::default(), SCANNED_MAX);
        while left > 0 {
            let page = match read(lane, &mut after).await? {
                TopicScanPage::Intact(page) => page,
                // Its group is not known. It waits for no other job: it is given up when its turn comes.
                TopicScanPage::Damaged(header) => {
                    (after, left) = (header.sequence, left - 1);
                    continue;
                }
            };
            let Some(last) = page.last().map(|record| record.header.sequence) else { return Ok(true) };
            for record in &page {
                let group = EventSummary::at(&record.body).and_then(|summary| summary.group());
                let Some(place) = group.and_then(|group| places.get(&group)) else { continue };
                let sequence = record.header.sequence;
                let rows = lane.ledger.dispatch();
                let waits = rows
                    .lane(lane.lane)
                    .is_some_and(|of| !of.is_ended(sequence) && lane.is_job(&filters, of, record, &mut failures));
                if let Some(blocked) = groups.get_mut(*place).filter(|it| waits && sequence > it.floor) {
                    blocked.waiting += 1;
                }
            }
            left = left.saturating_sub(page.len());
            after = last;
            tokio::task::yield_now().await;
        }
        Ok(matches!(read(lane, &mut after).await?, TopicScanPage::Intact(page) if page.is_empty()))
    }
}
