//! A shared group as a source: the broker assigns each event to one member, with its claim.
//!
//! - A member receives no more events than it works on at the same time, so that no lease runs while an event waits.
//! - If the response to a poll was lost, the events that it assigned are found by their claims, whose owner is the member.

use super::options::HandlerOptions;
use super::source::{EventBatch, EventSource, IncomingEvent, PollingSource};
use super::work::HeldClaim;
use crate::client::Client;
use contract::api::*;
use contract::{
    BoxFuture, Claim, ClaimStatus, Cursor, Kind, Offset, Page, Result, StoredEvent, TopicId, TopicRead, limits,
};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::Instant;

/// Pages of open claims that are searched for the member's own.
const PAGES_MAX: usize = 50;

/// Receives events as a member of the handler's shared group.
pub(super) struct SharedGroupSource {
    member: PollingSource,
    /// Whether the last poll may have assigned events in a response that was lost.
    in_doubt: AtomicBool,
}

impl SharedGroupSource {
    pub(super) fn new(client: Client, name: &str, topic: TopicId, options: &HandlerOptions) -> Self {
        let mut member = PollingSource::new(client, name, topic, options);
        let parallel = u32::try_from(options.parallel.max(1)).unwrap_or(limits::IN_FLIGHT_MAX);
        member.consumer.max_in_flight = Some(parallel.min(limits::IN_FLIGHT_MAX));
        member.consumer = member.consumer.shared();
        Self { member, in_doubt: AtomicBool::new(false) }
    }

    async fn poll(&self, after: Offset, limit: usize) -> Result<EventBatch> {
        if self.in_doubt.load(Ordering::Relaxed) {
            let arrivals = self.assigned_before().await?;
            self.in_doubt.store(false, Ordering::Relaxed);
            if !arrivals.is_empty() {
                return Ok(EventBatch { arrivals, next: after });
            }
        }
        // Until the response arrives.
        self.in_doubt.store(true, Ordering::Relaxed);
        let sent_at = Instant::now();
        let page = self.member.page(after, limit).await?;
        self.in_doubt.store(false, Ordering::Relaxed);
        let assigned = page.items.into_iter().zip(page.claims);
        let arrivals = assigned.map(|(event, claim)| {
            // It was claimed at an unknown time while the poll waited.
            IncomingEvent { event, held_claim: Some(HeldClaim { until: sent_at + claim.lease.std_duration(), claim }) }
        });
        Ok(EventBatch { arrivals: arrivals.collect(), next: page.next_offset })
    }

    /// The member's own claims with their events. Some of them may be known already.
    async fn assigned_before(&self) -> Result<Vec<IncomingEvent>> {
        let owner = self.member.member().await?.to_string();
        let (client, consumer) = (&self.member.client, &self.member.consumer);
        let is_ours = |claim: &Claim| {
            claim.status == ClaimStatus::Claimed && claim.owner == owner && claim.topic == consumer.topic
        };
        let (mut found, mut cursor) = (Vec::new(), None::<Cursor>);
        for _ in 0..PAGES_MAX {
            let page = client.open_claims(&consumer.consumer_group, cursor.as_ref(), limits::READ_EVENTS_MAX).await?;
            let Page { items, next, .. } = page;
            for claim in items.into_iter().filter(is_ours) {
                if let Some(event) = self.event_of(&claim).await? {
                    // Before the work starts, a heartbeat finds out whether the claim is still live.
                    found.push(IncomingEvent { event, held_claim: Some(HeldClaim { claim, until: Instant::now() }) });
                }
            }
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        Ok(found)
    }

    async fn event_of(&self, claim: &Claim) -> Result<Option<StoredEvent>> {
        let before = Offset(claim.sequence.get().saturating_sub(1));
        let mut read = TopicRead::all(claim.topic.clone()).after(before);
        read.limit = 1;
        match self.member.client.read(read).await {
            // Retention has removed it. The claim may be of a republished copy.
            Err(error) if error.kind() == Kind::Trimmed => match self.member.client.event(claim.event_id).await {
                Err(error) if error.kind() == Kind::NotFound => Ok(None),
                event => event.map(Some),
            },
            page => Ok(page?.items.into_iter().find(|event| event.sequence == claim.sequence)),
        }
    }
}

impl EventSource for SharedGroupSource {
    fn is_divided(&self) -> bool {
        true
    }

    fn begin(&self) -> BoxFuture<'_, Result<Offset>> {
        self.member.begin()
    }

    fn next(&self, after: Offset, limit: usize) -> BoxFuture<'_, Result<EventBatch>> {
        Box::pin(self.poll(after, limit))
    }

    fn commit(&self, _: Offset) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn leave(&self) -> BoxFuture<'_, ()> {
        self.member.leave()
    }
}
