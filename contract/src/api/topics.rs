//! Topics: registering, changing, shrinking and deleting them.

use super::BoxFuture;
use crate::{
    CompactRequest, Cursor, DryRunReport, EventCount, IdPattern, NewTopic, Page, RegisterOutcome, RepublishOutcome,
    RepublishRequest, Result, Topic, TopicChange, TopicId, TopicSegments, TrimRequest,
};

/// Topics.
pub trait TopicApi: Send + Sync {
    /// Registers a topic. The same definition again is [`RegisterOutcome::Unchanged`]; another definition is refused.
    fn register_topic(&self, topic: NewTopic) -> BoxFuture<'_, Result<RegisterOutcome<Topic>>>;
    /// One topic.
    fn topic<'a>(&'a self, id: &'a TopicId) -> BoxFuture<'a, Result<Topic>>;
    /// Topics in the order of their ids; only those that match `pattern` if there is one. Internal topics are not listed.
    fn topics<'a>(
        &'a self,
        pattern: Option<&'a IdPattern>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Topic>>>;
    /// Changes the members of a topic that may change.
    fn change_topic<'a>(&'a self, topic: &'a TopicId, change: TopicChange) -> BoxFuture<'a, Result<Topic>>;
    /// The segments that hold a topic's events, oldest first.
    fn segments<'a>(&'a self, topic: &'a TopicId) -> BoxFuture<'a, Result<TopicSegments>>;
    /// Republishes events of a topic, for all its readers or for one shared group, and returns how many. The copies have
    /// the ids of the originals, so a reader can recognise them; in a topic that is compacted they have new ids.
    fn republish<'a>(&'a self, topic: &'a TopicId, order: RepublishRequest) -> BoxFuture<'a, Result<RepublishOutcome>>;
    /// Removes the oldest events of a topic now, and returns how many sequences were removed.
    fn trim_topic<'a>(&'a self, topic: &'a TopicId, trim: TrimRequest) -> BoxFuture<'a, Result<EventCount>>;
    /// Compacts a topic with `cleanup: compact` now, and returns how many sequences were removed.
    fn compact_topic<'a>(&'a self, topic: &'a TopicId, order: CompactRequest) -> BoxFuture<'a, Result<EventCount>>;
    /// Deletes a topic with its events and with what handlers and groups have done there. Refused while subscriptions,
    /// consumers or projections use it; `force` deletes them too.
    fn delete_topic<'a>(&'a self, topic: &'a TopicId, force: bool) -> BoxFuture<'a, Result<()>>;
    /// What deleting a topic by force would delete. Changes nothing.
    fn plan_topic_deletion<'a>(&'a self, topic: &'a TopicId) -> BoxFuture<'a, Result<DryRunReport>>;
}
