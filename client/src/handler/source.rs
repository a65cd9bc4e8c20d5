//! The source of a handler's events: one trait, so that the runner does not depend on how work is divided.
//!
//! - [`PollingSource`] reads the topic as a member of the group named like the handler, and commits the group's offset.
//!   Several such runners read the same events; claims decide which one works on an event.
//! - [`SharedGroupSource`](super::shared_group_source::SharedGroupSource) receives events from the group, each with its
//!   claim.

use super::options::{HandlerOptions, StartPosition};
use super::work::HeldClaim;
use crate::client::Client;
use contract::api::*;
use contract::{
    BoxFuture, Distribution, Error, EventPage, GroupTopic, IsoDuration, Kind, NewConsumer, Offset, ReadOffset, Result,
    StoredEvent, TopicId, TopicRead,
};
use std::time::Duration;
use tokio::sync::Mutex;
use uuid::Uuid;

/// How long one poll waits for events.
const POLL: Duration = Duration::from_secs(20);
/// The session of a member.
const SESSION_SECONDS: i64 = 90;

/// A source of events.
pub(super) trait EventSource: Send + Sync {
    /// Whether the broker divides the work: events arrive claimed, unfinished events are assigned again, and the broker moves
    /// the offset.
    fn is_divided(&self) -> bool;
    /// The offset to start after.
    fn begin(&self) -> BoxFuture<'_, Result<Offset>>;
    /// The events after an offset; waits if there are none yet.
    fn next(&self, after: Offset, limit: usize) -> BoxFuture<'_, Result<EventBatch>>;
    /// Commits an offset; never backwards.
    fn commit(&self, offset: Offset) -> BoxFuture<'_, Result<()>>;
    /// Deletes the consumer at the broker, if it can be reached.
    fn leave(&self) -> BoxFuture<'_, ()>;
}

/// Events, and the offset up to which the source was read.
pub(super) struct EventBatch {
    pub(super) arrivals: Vec<IncomingEvent>,
    pub(super) next: Offset,
}

/// An event, with its claim if the source has claimed it.
pub(super) struct IncomingEvent {
    pub(super) event: StoredEvent,
    pub(super) held_claim: Option<HeldClaim>,
}

/// Polls a topic as a member of the handler's group.
pub(super) struct PollingSource {
    pub(super) client: Client,
    pub(super) consumer: NewConsumer,
    start: StartPosition,
    /// The consumer's id; created when needed, and again when it has expired.
    member: Mutex<Option<Uuid>>,
}

impl PollingSource {
    pub(super) fn new(client: Client, name: &str, topic: TopicId, options: &HandlerOptions) -> Self {
        let consumer = NewConsumer {
            types: options.types.clone(),
            subject_types: options.subject_types.clone(),
            cel: options.filter.clone(),
            session_timeout: Some(IsoDuration::seconds(SESSION_SECONDS)),
            ..NewConsumer::new(name, topic)
        };
        Self { client, consumer, start: options.start, member: Mutex::new(None) }
    }

    pub(super) async fn member(&self) -> Result<Uuid> {
        let mut member = self.member.lock().await;
        if let Some(id) = *member {
            return Ok(id);
        }
        let id = self.client.create_consumer(self.consumer.clone()).await?.id;
        *member = Some(id);
        Ok(id)
    }

    /// Sends a request as a member; if the member has expired, once more as a new one.
    async fn as_member<T, F>(&self, send: impl Fn(Uuid) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let id = self.member().await?;
        match send(id).await {
            Err(error) if error.kind() == Kind::NotFound => {
                self.member.lock().await.take_if(|known| *known == id);
                send(self.member().await?).await
            }
            answer => answer,
        }
    }

    /// The offset after which this runner begins.
    async fn start_offset(&self) -> Result<Offset> {
        let is_shared = self.consumer.distribution == Some(Distribution::Shared);
        if self.start == StartPosition::Latest && !is_shared {
            return self.latest_start().await;
        }
        self.member().await?;
        let GroupTopic { committed_offset, tail, .. } = self.joined_topic().await?;
        Ok(match self.start {
            StartPosition::Latest if committed_offset == Offset::ZERO => tail,
            _ => committed_offset,
        })
    }

    /// The committed offset. A group without one commits the tail first, so that a restart resumes there.
    ///
    /// A group that has committed 0 (the topic was empty) and one that has committed nothing look alike while members are
    /// live. In both cases 0 is right if no event is older than the oldest member, and the tail is right otherwise.
    async fn latest_start(&self) -> Result<Offset> {
        // Before this runner joins: a group without members is listed only for its offset.
        if let Some(known) = self.group_topic().await? {
            let has_offset = known.committed_offset > Offset::ZERO || known.members.is_empty();
            if has_offset || self.joined_before_first_event(&known).await? {
                return Ok(known.committed_offset);
            }
        }
        self.member().await?;
        let tail = self.joined_topic().await?.tail;
        Ok(self.as_member(|id| self.client.commit_offset(id, tail)).await?.committed_offset)
    }

    /// Whether a live member of the group was created before the first event that the topic has.
    async fn joined_before_first_event(&self, group: &GroupTopic) -> Result<bool> {
        let mut first = TopicRead::all(self.consumer.topic.clone()).after(ReadOffset::Earliest);
        first.limit = 1;
        let Some(first) = self.client.read(first).await?.items.into_iter().next() else { return Ok(true) };
        for member in &group.members {
            match self.client.consumer(member.consumer_id).await {
                Ok(consumer) if consumer.created_at <= first.created_at => return Ok(true),
                Ok(_) => (),
                // It has expired since the group was read.
                Err(error) if error.kind() == Kind::NotFound => (),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// The group's row for the topic, which is there because this runner is a member.
    async fn joined_topic(&self) -> Result<GroupTopic> {
        let missing = || Error::new(Kind::Unavailable, "The group does not list its topic.");
        self.group_topic().await?.ok_or_else(missing)
    }

    async fn group_topic(&self) -> Result<Option<GroupTopic>> {
        match self.client.consumer_group(&self.consumer.consumer_group).await {
            Ok(group) => Ok(group.topics.into_iter().find(|it| it.topic == self.consumer.topic)),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A page of events, as a member.
    pub(super) async fn page(&self, after: Offset, limit: usize) -> Result<EventPage> {
        // The beginning is the first stored event.
        let after = if after == Offset::ZERO { ReadOffset::Earliest } else { after.into() };
        self.as_member(|id| self.client.wait_as(id, after, limit, POLL)).await
    }

    async fn poll(&self, after: Offset, limit: usize) -> Result<EventBatch> {
        let page = self.page(after, limit).await?;
        let arrivals = page.items.into_iter().map(|event| IncomingEvent { event, held_claim: None });
        Ok(EventBatch { arrivals: arrivals.collect(), next: page.next_offset })
    }
}

impl EventSource for PollingSource {
    fn is_divided(&self) -> bool {
        false
    }

    fn begin(&self) -> BoxFuture<'_, Result<Offset>> {
        Box::pin(self.start_offset())
    }

    fn next(&self, after: Offset, limit: usize) -> BoxFuture<'_, Result<EventBatch>> {
        Box::pin(self.poll(after, limit))
    }

    fn commit(&self, offset: Offset) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.as_member(|id| self.client.commit_offset(id, offset)).await.map(drop) })
    }

    fn leave(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(id) = self.member.lock().await.take()
                && let Err(error) = self.client.delete_consumer(id).await
            {
                tracing::debug!(%error, consumer = %id, "the consumer is not deleted; its session will expire");
            }
        })
    }
}
