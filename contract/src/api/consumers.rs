//! Consumers, and the committed offsets of their groups.

use super::BoxFuture;
use crate::{
    Consumer, ConsumerGroup, Cursor, EventPage, GroupReset, GroupTopic, NewConsumer, Offset, Page, ReadOffset, Result,
};
use std::time::Duration;
use uuid::Uuid;

/// Consumers and consumer groups. A consumer that was deleted or has expired is not found, in every method.
pub trait ConsumerApi: Send + Sync {
    /// Creates a consumer. It lives for its session; every poll and commit restarts the session.
    fn create_consumer(&self, consumer: NewConsumer) -> BoxFuture<'_, Result<Consumer>>;
    /// One consumer.
    fn consumer(&self, id: Uuid) -> BoxFuture<'_, Result<Consumer>>;
    /// Consumers in the order of their ids; only those of one group if it is named.
    fn consumers<'a>(
        &'a self,
        group: Option<&'a str>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Consumer>>>;
    /// Deletes a consumer. A poll of it that waits ends with *not found*. The group's offsets stay; the claims of a member
    /// of a shared group are released.
    fn delete_consumer(&self, id: Uuid) -> BoxFuture<'_, Result<()>>;
    /// A page of events for a consumer, without waiting.
    fn read_as(&self, consumer: Uuid, offset: ReadOffset, limit: usize) -> BoxFuture<'_, Result<EventPage>>;
    /// A page of events for a consumer. If there is no event yet, waits for one until the time-out; the session does not
    /// expire meanwhile.
    fn wait_as(
        &self,
        consumer: Uuid,
        offset: ReadOffset,
        limit: usize,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<EventPage>>;
    /// Commits an offset for a consumer's group. An offset below the committed one changes nothing: the committed offset is
    /// returned.
    fn commit_offset(&self, consumer: Uuid, offset: Offset) -> BoxFuture<'_, Result<GroupTopic>>;
    /// Groups in the order of their names.
    fn consumer_groups<'a>(
        &'a self,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<ConsumerGroup>>>;
    /// One group. A group exists while it has a live consumer or a committed offset.
    fn consumer_group<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ConsumerGroup>>;
    /// Deletes a group: its offsets, and for a shared group also what it has finished. Refused while it has live consumers.
    fn delete_group<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>>;
    /// Moves a group's offset forwards or backwards; creates the group if it does not exist.
    fn reset_group<'a>(&'a self, name: &'a str, reset: GroupReset) -> BoxFuture<'a, Result<ConsumerGroup>>;
}
