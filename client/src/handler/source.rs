//! Where a handler's events come from: one trait, so that how work is divided is not the runner's business.
//!
//! - [`Polling`] reads the topic as a member of the group named like the handler, and commits the group's offset. Several
//!   such runners read the same events; claims decide who works on which.
//! - [`Shared`](super::shared::Shared) is handed events by the group, each with its claim.

use super::options::{HandlerOptions, StartPosition};
use super::work::HeldClaim;
use crate::client::Client;
use contract::{
    BoxFuture, Error, EventBroker, EventPage, GroupTopic, IsoDuration, Kind, NewConsumer, Offset, ReadOffset, Result,
    StoredEvent, TopicId,
};
use std::time::Duration;
use tokio::sync::Mutex;
use uuid::Uuid;

/// How long one poll waits for events.
const POLL: Duration = Duration::from_secs(20);
/// A member lives this long without polling.
const SESSION_SECONDS: i64 = 90;

/// Where events come from.
pub(super) trait EventSource: Send + Sync {
    /// Whether the broker divides the work: events come claimed, what is not finished comes again, and how far the handler
    /// has come is the broker's business.
    fn is_divided(&self) -> bool;
    /// Behind which offset to begin.
    fn begin(&self) -> BoxFuture<'_, Result<Offset>>;
    /// What comes behind an offset, waited for where there is nothing yet.
    fn next(&self, after: Offset, limit: usize) -> BoxFuture<'_, Result<EventBatch>>;
    /// Records how far the handler has come; never backwards.
    fn commit(&self, offset: Offset) -> BoxFuture<'_, Result<()>>;
    /// Takes leave of the broker, if it listens.
    fn leave(&self) -> BoxFuture<'_, ()>;
}

/// Events, and how far the source was read.
pub(super) struct EventBatch {
    pub(super) arrivals: Vec<IncomingEvent>,
    pub(super) next: Offset,
}

/// An event, with its claim where the source has claimed it.
pub(super) struct IncomingEvent {
    pub(super) event: StoredEvent,
    pub(super) held_claim: Option<HeldClaim>,
}

/// Polls a topic as a member of the handler's group.
pub(super) struct PollingSource {
    pub(super) client: Client,
    pub(super) wanted: NewConsumer,
    start: StartPosition,
    /// Which member it is; made when needed, and made again when it has expired.
    member: Mutex<Option<Uuid>>,
}

impl PollingSource {
    pub(super) fn new(client: Client, name: &str, topic: TopicId, options: &HandlerOptions) -> Self {
        let wanted = NewConsumer {
            types: options.types.clone(),
            subject_types: options.subject_types.clone(),
            cel: options.filter.clone(),
            session_timeout: Some(IsoDuration::seconds(SESSION_SECONDS)),
            ..NewConsumer::new(name, topic)
        };
        Self { client, wanted, start: options.start, member: Mutex::new(None) }
    }

    pub(super) async fn member(&self) -> Result<Uuid> {
        let mut member = self.member.lock().await;
        if let Some(id) = *member {
            return Ok(id);
        }
        let id = self.client.create_consumer(self.wanted.clone()).await?.id;
        *member = Some(id);
        Ok(id)
    }

    /// Does something as a member; once more as a new one, where the old one has expired.
    async fn as_member<T, F>(&self, ask: impl Fn(Uuid) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let id = self.member().await?;
        match ask(id).await {
            Err(error) if error.kind() == Kind::NotFound => {
                self.member.lock().await.take_if(|known| *known == id);
                ask(self.member().await?).await
            }
            answer => answer,
        }
    }

    async fn committed(&self) -> Result<Offset> {
        self.member().await?;
        let group = self.client.consumer_group(&self.wanted.consumer_group).await?;
        let mut topics = group.topics.into_iter();
        let Some(GroupTopic { committed_offset, tail, .. }) = topics.find(|it| it.topic == self.wanted.topic) else {
            return Err(Error::new(Kind::Unavailable, "The group does not show its topic."));
        };
        Ok(match self.start {
            StartPosition::Latest if committed_offset == Offset::ZERO => tail,
            _ => committed_offset,
        })
    }

    /// A page of events, as a member.
    pub(super) async fn page(&self, after: Offset, limit: usize) -> Result<EventPage> {
        // From the beginning means from the first event there is.
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
        Box::pin(self.committed())
    }

    fn next(&self, after: Offset, limit: usize) -> BoxFuture<'_, Result<EventBatch>> {
        Box::pin(self.poll(after, limit))
    }

    fn commit(&self, offset: Offset) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.as_member(|id| self.client.commit_offset(id, offset)).await.map(drop) })
    }

    fn leave(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(id) = self.member.lock().await.take() {
                // Its session ends by itself where this fails.
                let _ = self.client.delete_consumer(id).await;
            }
        })
    }
}
