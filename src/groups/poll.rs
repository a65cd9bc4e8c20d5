//! A member's poll: its share of what is ready now, or as soon as there is something.
//!
//! - The first of the polls that wait is woken by an append, by whatever changes of the group's claims, and when a lease,
//!   a back-off or a session ends; it calls others where there is something for them. Nothing polls on an interval.
//! - What is given is decided before it is answered. Where the caller is gone by then, the lease gives it to others.

use super::decide::{Begin, HandOut, Handed};
use super::group::{Group, Offered, Place, Wants};
use super::line::Role;
use super::{Groups, Peers};
use crate::claims::{Defaults, Offer, Offering, view};
use crate::events::{Reader, before_earliest, stored_event};
use crate::filters::Compiled;
use crate::ledger::{ClaimRow, Ledger, TopicEntry};
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
pub(crate) struct Poll<'a> {
    pub(crate) groups: &'a Groups,
    pub(crate) ledger: &'a Arc<Ledger>,
    pub(crate) topic: Arc<TopicEntry>,
    pub(crate) consumer: Arc<Consumer>,
    pub(crate) filter: &'a Compiled,
    pub(crate) reader: &'a Reader<'a>,
    pub(crate) defaults: Defaults,
    /// What the default log says of the handler, where claims are decided in another.
    pub(crate) policy: Option<NewHandler>,
    /// Who else shares the work.
    pub(crate) peers: &'a dyn Peers,
    pub(crate) limit: usize,
}

/// What a poll has got.
#[derive(Default)]
struct Got {
    items: Vec<StoredEvent>,
    claims: Vec<Claim>,
}

impl Poll<'_> {
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
        let (mut place, mut tell_at): (Option<Place>, _) = (None, None);
        loop {
            self.topic.check_exists()?;
            version.borrow_and_update();
            tail.borrow_and_update();
            let tells = tell_at.is_some_and(|at| Instant::now() >= at) || Instant::now() >= deadline;
            let got = self.take(&group, place.as_ref().map(|place| place.ticket), tells).await?;
            if !got.items.is_empty() || Instant::now() >= deadline {
                return Ok(self.page(got));
            }
            let place = place.get_or_insert_with(|| group.line_up());
            let role = place.stand(self.ledger, self.ledger.now(), &self.wants(&group));
            if role == Role::First {
                tell_at = group.lock().has_passed().then(|| tell_at.unwrap_or_else(|| Instant::now() + TELL_AFTER));
            }
            let wake_at = match role {
                Role::First => tell_at.unwrap_or(deadline).min(deadline).min(Instant::now() + self.next_time(&group)),
                Role::Behind => deadline,
                Role::Aside => deadline.min(Instant::now() + self.next_time(&group)),
            };
            tokio::select! {
                () = place.call.notified() => (),
                _ = version.changed(), if role != Role::Behind => (),
                _ = tail.changed(), if role == Role::First => (),
                () = self.topic.deleted() => (),
                _ = closing.wait_for(|closing| *closing) => {
                    self.ledger.check_open()?;
                    return Ok(self.page(Got::default()));
                }
                () = tokio::time::sleep_until(wake_at) => (),
            }
        }
    }

    /// How long until something may become free by itself: a lease or a back-off ends, or a session.
    fn next_time(&self, group: &Group) -> Duration {
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
    async fn begin(&self, offset: ReadOffset) -> Result<Arc<Group>> {
        let (group, number) = (&self.consumer.consumer_group, self.topic.number);
        if self.ledger.claims().division(group, number.0).is_none() {
            let (group, topic) = (group.clone(), self.consumer.topic.clone());
            let offset = match offset {
                ReadOffset::Behind(offset) => offset,
                ReadOffset::Earliest => before_earliest(self.ledger, number).await?,
                // No group begins behind the tail, which only the decision knows for certain.
                ReadOffset::Latest => Offset(u64::MAX),
            };
            self.ledger.submit(Begin { group, topic, number, offset }).await?;
        }
        Ok(self.groups.of(&self.consumer, self.ledger, number.0))
    }

    /// Takes the member's share of what is ready; nothing, where nothing is.
    async fn take(&self, group: &Arc<Group>, ticket: Option<u64>, tells: bool) -> Result<Got> {
        if self.peers.next_deadline().is_some_and(|at| at <= self.ledger.now()) {
            self.peers.expire().await;
        }
        for _ in 0..TRIES_MAX {
            let wants = self.wants(group);
            group.look_further(self, wants.limit.saturating_mul(wants.members).min(ENOUGH_MAX)).await?;
            let mut offered = group.offer(self.ledger, self.ledger.now(), &wants, ticket);
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
            if let Some(got) = self.hand_out(offered).await? {
                return Ok(got);
            }
        }
        Ok(Got::default())
    }

    fn wants(&self, group: &Group) -> Wants {
        let most = self.consumer.max_in_flight.unwrap_or(limits::IN_FLIGHT_DEFAULT);
        Wants {
            member: self.consumer.id,
            owner: self.consumer.id.to_string(),
            limit: self.limit,
            in_flight_max: most as usize,
            members: group.members(self.peers, self.consumer.id, self.ledger.now()),
        }
    }

    /// Has an offer decided; `None` where nothing came of it and it is worth looking again.
    async fn hand_out(&self, mut offered: Offered) -> Result<Option<Got>> {
        let Some(generation) = offered.generation else { return Ok(None) };
        let records = self.fetch(&offered.sequences).await?;
        let offers = records.iter().map(|record| {
            let Record { header, .. } = record;
            Offer { sequence: header.sequence, event: Uuid::from_u128(header.id) }
        });
        let command = HandOut {
            member: self.consumer.id,
            generation,
            offering: self.offering(),
            offers: offers.collect(),
            passed: offered.passed.clone(),
        };
        let Handed::Given(given) = self.ledger.submit(command).await? else { return Ok(None) };
        offered.decided();
        Ok((!given.is_empty()).then(|| self.got(records, given)))
    }

    fn offering(&self) -> Offering {
        Offering {
            handler: self.consumer.consumer_group.clone(),
            topic: Arc::clone(&self.topic),
            owner: self.consumer.id.to_string(),
            policy: self.policy.clone(),
            defaults: self.defaults,
        }
    }

    fn got(&self, records: Vec<Record>, given: Vec<(Sequence, ClaimRow)>) -> Got {
        let (offering, mut got) = (self.offering(), Got::default());
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

    fn page(&self, Got { items, claims }: Got) -> EventPage {
        let (group, number) = (&self.consumer.consumer_group, self.topic.number.0);
        let come = self.ledger.claims().division(group, number).map(|division| division.watermark());
        EventPage { items, claims, next_offset: come.unwrap_or_default().into(), tail: self.topic.tail().into() }
    }
}
