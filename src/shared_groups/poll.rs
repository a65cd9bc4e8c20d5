//! A member's poll: its share of what is ready now, or as soon as there is something.
//!
//! - The first of the polls that wait is woken by an append, by whatever changes of the group's claims, and when a lease,
//!   a back-off or a session ends; it calls others where there is something for them. Nothing polls on an interval.
//! - What is given is decided before it is answered. Where the caller is gone by then, the lease gives it to others.

use super::decide::{AssignEvents, AssignOutcome, BeginSharing};
use super::group::{MemberDemand, OfferedEvents, QueueTicket, SharedGroup};
use super::poll_queue::WaitRole;
use super::{PeerSource, SharedGroups};
use crate::claims::{ClaimDefaults, MemberOffer, OfferedEvent, view};
use crate::events::{EventReader, before_earliest, stored_event};
use crate::filters::CompiledFilter;
use crate::ledger::{ClaimRow, Ledger, RegisteredTopic};
use contract::{Claim, Consumer, EventPage, NewHandler, Offset, ReadOffset, Result, Sequence, StoredEvent, limits};
use log::Record;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// How often a poll looks again because somebody was faster, before it waits.
const TRIES_MAX: usize = 8;
/// How many events a process looks for at most before it shares them out.
const ENOUGH_MAX: usize = 4096;
/// A poll that waits tells what its group has passed no later than this.
const TELL_AFTER: Duration = Duration::from_secs(1);
/// A poll that waits looks for ended sessions no more often than this, in milliseconds.
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
    /// What the default log says of the handler, where claims are decided in another.
    pub(crate) policy: Option<NewHandler>,
    /// Who else shares the work.
    pub(crate) peers: &'a dyn PeerSource,
    pub(crate) limit: usize,
}

/// What a poll has got.
#[derive(Default)]
struct PolledEvents {
    items: Vec<StoredEvent>,
    claims: Vec<Claim>,
}

impl SharedPoll<'_> {
    /// What there is for the member now.
    pub(crate) async fn read(&self, offset: ReadOffset) -> Result<EventPage> {
        let group = self.begin(offset).await?;
        let got = self.take(&group, None, true).await?;
        Ok(self.page(got))
    }

    /// The same, or as soon as there is something, or nothing when the time is up.
    pub(crate) async fn wait(&self, offset: ReadOffset, timeout: Duration) -> Result<EventPage> {
        let deadline = Instant::now() + timeout;
        let group = self.begin(offset).await?;
        let (mut version, mut tail, mut closing) =
            (group.feed.version(), self.topic.tail.subscribe(), self.ledger.closing());
        let (mut place, mut tell_at): (Option<QueueTicket>, _) = (None, None);
        loop {
            self.topic.check_exists()?;
            version.borrow_and_update();
            tail.borrow_and_update();
            let tells = tell_at.is_some_and(|at| Instant::now() >= at) || Instant::now() >= deadline;
            let got = self.take(&group, place.as_ref().map(|place| place.ticket), tells).await?;
            if !got.items.is_empty() || Instant::now() >= deadline {
                return Ok(self.page(got));
            }
            let place = place.get_or_insert_with(|| group.take_ticket());
            let role = place.wait_in_queue(self.ledger, self.ledger.now(), &self.demand(&group));
            if role == WaitRole::First {
                tell_at = group.lock().has_passed().then(|| tell_at.unwrap_or_else(|| Instant::now() + TELL_AFTER));
            }
            let wake_at = match role {
                WaitRole::First => {
                    tell_at.unwrap_or(deadline).min(deadline).min(Instant::now() + self.next_time(&group))
                }
                WaitRole::Behind => deadline,
                WaitRole::Aside => deadline.min(Instant::now() + self.next_time(&group)),
            };
            tokio::select! {
                () = place.call.notified() => (),
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

    /// How long until something may become free by itself: a lease or a back-off ends, or a session.
    fn next_time(&self, group: &SharedGroup) -> Duration {
        let (now, free) = (self.ledger.now(), group.lock().next_time());
        let free = free.map(|at| at.saturating_sub(now).max(1));
        // A session that cannot be ended now, because its poll waits or the log is away, is not asked about all the time.
        let ended = self.peers.next_deadline().map(|at| at.saturating_sub(now).max(SESSIONS_MILLIS_MIN));
        let wait = [free, ended].into_iter().flatten().min();
        wait.map_or(Duration::from_secs(limits::WAIT_SECONDS_MAX), |millis| {
            Duration::from_millis(millis.unsigned_abs())
        })
    }

    /// The member's group; it divides the topic from the first poll on.
    async fn begin(&self, offset: ReadOffset) -> Result<Arc<SharedGroup>> {
        let (group, number) = (&self.consumer.consumer_group, self.topic.number);
        if self.ledger.claims().group_progress(group, number.0).is_none() {
            let (group, topic) = (group.clone(), self.consumer.topic.clone());
            let offset = match offset {
                ReadOffset::Behind(offset) => offset,
                ReadOffset::Earliest => before_earliest(self.ledger, number).await?,
                // No group begins behind the tail, which only the decision knows for certain.
                ReadOffset::Latest => Offset(u64::MAX),
            };
            self.ledger.submit(BeginSharing { group, topic, number, offset }).await?;
        }
        Ok(self.groups.of(&self.consumer, self.ledger, number.0))
    }

    /// Takes the member's share of what is ready; nothing, where nothing is.
    async fn take(&self, group: &Arc<SharedGroup>, request: Option<u64>, tells: bool) -> Result<PolledEvents> {
        if self.peers.next_deadline().is_some_and(|at| at <= self.ledger.now()) {
            self.peers.expire().await;
        }
        for _ in 0..TRIES_MAX {
            let wants = self.demand(group);
            group.scan_further(self, wants.limit.saturating_mul(wants.members).min(ENOUGH_MAX)).await?;
            let mut offered = group.offer(self.ledger, self.ledger.now(), &wants, request);
            let must_tell = {
                let backlog = group.lock();
                backlog.has_passed_much() || (tells && backlog.has_passed())
            };
            if must_tell || !offered.sequences.is_empty() {
                offered.with_passed();
            }
            if offered.sequences.is_empty() && offered.passed.is_empty() {
                break;
            }
            if let Some(got) = self.assign(offered).await? {
                return Ok(got);
            }
        }
        Ok(PolledEvents::default())
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

    /// Has an offer decided; `None` where nothing came of it and it is worth looking again.
    async fn assign(&self, mut offered: OfferedEvents) -> Result<Option<PolledEvents>> {
        let Some(generation) = offered.generation else { return Ok(None) };
        let records = self.fetch(&offered.sequences).await?;
        let offers = records.iter().map(|record| {
            let Record { header, .. } = record;
            OfferedEvent { sequence: header.sequence, event: Uuid::from_u128(header.id) }
        });
        let command = AssignEvents {
            member: self.consumer.id,
            generation,
            offering: self.offering(),
            offers: offers.collect(),
            passed: offered.passed.clone(),
        };
        let AssignOutcome::Given(given) = self.ledger.submit(command).await? else { return Ok(None) };
        offered.mark_decided();
        Ok((!given.is_empty()).then(|| self.polled_events(records, given)))
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

    fn polled_events(&self, records: Vec<Record>, given: Vec<(Sequence, ClaimRow)>) -> PolledEvents {
        let (offering, mut got) = (self.offering(), PolledEvents::default());
        let mut given = given.into_iter().peekable();
        for record in records {
            let Some((sequence, row)) = given.next_if(|(sequence, _)| *sequence == record.header.sequence) else {
                continue;
            };
            got.claims.push(view(&offering.key(sequence), &self.consumer.topic, &row, self.defaults));
            got.items.push(stored_event(record));
        }
        got
    }

    fn page(&self, PolledEvents { items, claims }: PolledEvents) -> EventPage {
        let (group, number) = (&self.consumer.consumer_group, self.topic.number.0);
        let come = self.ledger.claims().group_progress(group, number).map(|division| division.watermark());
        EventPage { items, claims, next_offset: come.unwrap_or_default().into(), tail: self.topic.tail().into() }
    }
}
