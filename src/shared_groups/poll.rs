//! A member's poll: its share of the events that are ready, now or as soon as there are any.
//!
//! - The first of the waiting polls is woken by an append, by a change of the group's claims, and when a lease, a back-off or a
//!   session ends; it wakes others if there are events for them. Nothing polls on an interval.
//! - An assignment is decided before it is in a response. If the client has disconnected by then, the leases expire and the
//!   events go to others.

use super::decide::{AssignEvents, AssignOutcome, BeginSharing};
use super::group::{MemberDemand, OfferedEvents, QueueTicket, SharedGroup};
use super::poll_queue::WaitRole;
use super::scan::FetchedEvents;
use super::{PeerSource, SharedGroups};
use crate::claims::{ClaimDefaults, MemberOffer, OfferedEvent, view};
use crate::events::{EventReader, before_earliest, original_of, stored_event};
use crate::filters::CompiledFilter;
use crate::ledger::{ClaimRow, Ledger, RegisteredTopic, answer_or_repeat, decide_while_unknown};
use contract::{Claim, Consumer, EventPage, NewHandler, Offset, ReadOffset, Result, StoredEvent, limits};
use log::{Record, RecordHeader};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// How many events a process scans for at most before it hands them out.
const ENOUGH_MAX: usize = 4096;
/// A waiting poll records the events that its group has passed no later than this.
const RECORD_PASSED_AFTER: Duration = Duration::from_secs(1);
/// A waiting poll looks for expired sessions no more often than this, in milliseconds.
const SESSIONS_MILLIS_MIN: i64 = 250;

/// A poll of a member of a shared group.
pub(crate) struct SharedPoll<'a> {
    pub(crate) groups: &'a SharedGroups,
    pub(crate) ledger: &'a Arc<Ledger>,
    pub(crate) topic: Arc<RegisteredTopic>,
    pub(crate) consumer: Arc<Consumer>,
    pub(crate) filter: &'a CompiledFilter,
    pub(crate) reader: &'a EventReader<'a>,
    pub(crate) defaults: ClaimDefaults,
    /// The handler's policy in the default log, if another log decides its claims.
    pub(crate) policy: Option<NewHandler>,
    /// The other members.
    pub(crate) peers: &'a dyn PeerSource,
    pub(crate) limit: usize,
}

/// What a poll returns.
#[derive(Default)]
struct PolledEvents {
    items: Vec<StoredEvent>,
    claims: Vec<Claim>,
}

impl SharedPoll<'_> {
    /// The events for the member that are ready now.
    pub(crate) async fn read(&self, offset: ReadOffset) -> Result<EventPage> {
        let group = self.begin(offset).await?;
        let polled = self.take(&group, None, true).await?;
        Ok(self.page(polled))
    }

    /// The same, but waits for events until the timeout.
    pub(crate) async fn wait(&self, offset: ReadOffset, timeout: Duration) -> Result<EventPage> {
        let deadline = Instant::now() + timeout;
        let group = self.begin(offset).await?;
        let (mut version, mut tail, mut closing) =
            (group.feed.version(), self.topic.tail.subscribe(), self.ledger.closing());
        let (mut ticket, mut record_at): (Option<QueueTicket>, _) = (None, None);
        loop {
            self.topic.check_exists()?;
            version.borrow_and_update();
            tail.borrow_and_update();
            let records_passed = record_at.is_some_and(|at| Instant::now() >= at) || Instant::now() >= deadline;
            let polled = self.take(&group, ticket.as_ref().map(|ticket| ticket.ticket), records_passed).await?;
            if !polled.items.is_empty() || Instant::now() >= deadline {
                return Ok(self.page(polled));
            }
            let ticket = ticket.get_or_insert_with(|| group.take_ticket());
            let role = ticket.wait_in_queue(self.ledger, self.ledger.now(), &self.demand(&group));
            if role == WaitRole::First {
                let in_time = || Instant::now() + RECORD_PASSED_AFTER;
                record_at = group.lock().has_passed().then(|| record_at.unwrap_or_else(in_time));
            }
            let wake_at = match role {
                WaitRole::First => {
                    record_at.unwrap_or(deadline).min(deadline).min(Instant::now() + self.next_time(&group))
                }
                WaitRole::Behind => deadline,
                WaitRole::Aside => deadline.min(Instant::now() + self.next_time(&group)),
            };
            tokio::select! {
                () = ticket.call.notified() => (),
                _ = version.changed(), if role != WaitRole::Behind => (),
                _ = tail.changed(), if role == WaitRole::First => (),
                () = self.topic.deleted() => (),
                _ = closing.wait_for(|closing| *closing) => {
                    self.ledger.check_open()?;
                    return Ok(self.page(PolledEvents::default()));
                }
                () = tokio::time::sleep_until(wake_at) => (),
            }
        }
    }

    /// How long until an event may become free by itself: a lease, a back-off or a session ends.
    fn next_time(&self, group: &SharedGroup) -> Duration {
        let (now, free) = (self.ledger.now(), group.lock().next_time());
        let free = free.map(|at| at.saturating_sub(now).max(1));
        // The lower bound keeps the poll from spinning on a session that cannot be ended now, because its own poll waits or the
        // log's server cannot be reached.
        let ended = self.peers.next_deadline().map(|at| at.saturating_sub(now).max(SESSIONS_MILLIS_MIN));
        let wait = [free, ended].into_iter().flatten().min();
        wait.map_or(Duration::from_secs(limits::WAIT_SECONDS_MAX), |millis| {
            Duration::from_millis(millis.unsigned_abs())
        })
    }

    /// The member's group; it distributes the topic from its first poll on.
    async fn begin(&self, offset: ReadOffset) -> Result<Arc<SharedGroup>> {
        let (group, number) = (&self.consumer.consumer_group, self.topic.number);
        if self.ledger.claims().group_progress(group, number.0).is_none() {
            let (group, topic) = (group.clone(), self.consumer.topic.clone());
            let offset = match offset {
                ReadOffset::Behind(offset) => offset,
                ReadOffset::Earliest => before_earliest(self.ledger, number).await?,
                // No group starts after the tail, which only the decision knows for certain.
                ReadOffset::Latest => Offset(u64::MAX),
            };
            self.ledger.submit(BeginSharing { group, topic, number, offset }).await?;
        }
        Ok(self.groups.of(&self.consumer, self.ledger, &self.topic))
    }

    /// Takes the member's share of the events that are ready. If other members are faster several times in a row, it is empty.
    async fn take(&self, group: &Arc<SharedGroup>, ticket: Option<u64>, records_passed: bool) -> Result<PolledEvents> {
        if self.peers.next_deadline().is_some_and(|at| at <= self.ledger.now()) {
            self.peers.expire().await;
        }
        let polled = decide_while_unknown((), |()| async move {
            let demand = self.demand(group);
            group.scan_further(self, demand.limit.saturating_mul(demand.members).min(ENOUGH_MAX)).await?;
            let mut offered = group.offer(self.ledger, self.ledger.now(), &demand, ticket);
            let must_record = {
                let backlog = group.lock();
                backlog.has_passed_much() || (records_passed && backlog.has_passed())
            };
            if must_record || !offered.sequences.is_empty() {
                offered.with_passed();
            }
            match offered.sequences.is_empty() && offered.passed.is_empty() {
                true => Ok(ControlFlow::Break(PolledEvents::default())),
                false => self.assign(offered).await.map(answer_or_repeat),
            }
        });
        Ok(polled.await?.break_value().unwrap_or_default())
    }

    fn demand(&self, group: &SharedGroup) -> MemberDemand {
        let most = self.consumer.max_in_flight.unwrap_or(limits::IN_FLIGHT_DEFAULT);
        MemberDemand {
            member: self.consumer.id,
            owner: self.consumer.id.to_string(),
            limit: self.limit,
            in_flight_max: most as usize,
            members: group.members(self.peers, self.consumer.id, self.ledger.now()),
        }
    }

    /// Has an offer decided; `None` if the member got nothing, and should scan again.
    async fn assign(&self, mut offered: OfferedEvents) -> Result<Option<PolledEvents>> {
        let Some(generation) = offered.generation else { return Ok(None) };
        let FetchedEvents { records, damaged } = self.fetch(&offered.sequences).await?;
        let offers = records.iter().map(|record| {
            let RecordHeader { sequence, id, .. } = record.header;
            OfferedEvent { sequence, key: original_of(record).unwrap_or(sequence), event: Uuid::from_u128(id) }
        });
        let command = AssignEvents {
            member: self.consumer.id,
            generation,
            offering: self.offering(),
            offers: offers.collect(),
            damaged: damaged.iter().map(damaged_offer).collect(),
            passed: offered.passed.clone(),
        };
        let AssignOutcome::Assigned(assigned) = self.ledger.submit(command).await? else { return Ok(None) };
        offered.mark_decided();
        for header in damaged {
            tracing::error!(sequence = %header.sequence, group = self.consumer.consumer_group, topic = %self.consumer.topic,
                "an event is damaged on disk and was given up; run `event-broker verify` on the data folder");
        }
        Ok((!assigned.is_empty()).then(|| self.polled_events(records, assigned)))
    }

    fn offering(&self) -> MemberOffer {
        MemberOffer {
            handler: self.consumer.consumer_group.clone(),
            topic: Arc::clone(&self.topic),
            owner: self.consumer.id.to_string(),
            policy: self.policy.clone(),
            defaults: self.defaults,
        }
    }

    fn polled_events(&self, records: Vec<Record>, assigned: Vec<(OfferedEvent, ClaimRow)>) -> PolledEvents {
        let (offering, mut polled) = (self.offering(), PolledEvents::default());
        let mut assigned = assigned.into_iter().peekable();
        for record in records {
            let is_this = |(event, _): &(OfferedEvent, ClaimRow)| event.sequence == record.header.sequence;
            let Some((event, row)) = assigned.next_if(is_this) else { continue };
            polled.claims.push(view(&offering.key(event.key), &self.consumer.topic, &row, self.defaults));
            polled.items.push(stored_event(record));
        }
        debug_assert!(assigned.peek().is_none(), "every assigned event is in the response");
        polled
    }

    fn page(&self, PolledEvents { items, claims }: PolledEvents) -> EventPage {
        let (group, number) = (&self.consumer.consumer_group, self.topic.number.0);
        let watermark = self.ledger.claims().group_progress(group, number).map(|progress| progress.watermark());
        EventPage { items, claims, next_offset: watermark.unwrap_or_default().into(), tail: self.topic.tail().into() }
    }
}

/// An event that is given up: its own sequence identifies it, since its body does not tell whether it is a copy.
const fn damaged_offer(header: &RecordHeader) -> OfferedEvent {
    let RecordHeader { sequence, id, .. } = *header;
    OfferedEvent { sequence, key: sequence, event: Uuid::from_u128(id) }
}
