//! The events of a topic as they arrive: [`TopicStream`], read into the contract's types.

use crate::client::Client;
use crate::connection::{StreamPart, TopicStream};
use crate::query::{self, QueryParams};
use crate::response;
use crate::transport::error_of;
use contract::{Claim, ReadOffset, Result, StoredEvent, TopicRead, limits};
use uuid::Uuid;

/// The events of a topic as they arrive. It ends when it is dropped.
///
/// If the broker ends the stream or the connection breaks off, it is opened again after the last event, without a limit on
/// tries; a refusal that is not transient is returned by [`EventStream::next`].
#[derive(Debug)]
pub struct EventStream {
    stream: TopicStream,
}

/// An event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamedEvent {
    /// The event.
    pub event: StoredEvent,
    /// Its claim, if it was assigned to a member of a shared group.
    pub claim: Option<Claim>,
}

impl Client {
    /// Follows a topic: the events after the offset of the read, then new events as they arrive.
    ///
    /// ```no_run
    /// # use contract::{TopicId, TopicRead};
    /// # async fn example(client: event_broker_client::Client) -> contract::Result<()> {
    /// let topic = TopicId::parse("gts.hx.core.events.topic.v1~")?;
    /// let mut events = client.follow(TopicRead::all(topic)).await?;
    /// loop {
    ///     let streamed = events.next().await?;
    ///     println!("{} {}", streamed.event.sequence, streamed.event.event()?.data);
    /// }
    /// # }
    /// ```
    pub async fn follow(&self, read: TopicRead) -> Result<EventStream> {
        self.open_stream(query::of_read(&read, None), read.offset).await
    }

    /// Follows the topic of a consumer with its filter.
    pub async fn follow_as(&self, consumer: Uuid, offset: ReadOffset) -> Result<EventStream> {
        self.open_stream(query::of_consumer(consumer, offset, limits::READ_EVENTS_MAX, None), offset).await
    }

    async fn open_stream(&self, mut query: QueryParams, offset: ReadOffset) -> Result<EventStream> {
        query.retain(|(name, _)| name != "offset");
        let transport = self.transport();
        let stream = transport.connection.follow(query, offset, transport.schedule()).await.map_err(error_of)?;
        Ok(EventStream { stream })
    }
}

impl EventStream {
    /// The next event. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<StreamedEvent> {
        loop {
            match self.stream.next().await.map_err(error_of)? {
                StreamPart::Event(text) => return response::streamed_event(text.into()),
                StreamPart::Interrupted => tracing::debug!(offset = %self.offset(), "the stream of events ended"),
            }
        }
    }

    /// Where the stream continues: after every event that was returned, and after those before it that do not match.
    pub const fn offset(&self) -> ReadOffset {
        self.stream.offset()
    }
}
