//! Topics.

use super::BrokerWrites;
use crate::broker::Broker;
use crate::ledger::{Ledger, ReplyRecorder};
use crate::topics;
use contract::api::{BoxFuture, TopicApi};
use contract::{
    CompactRequest, Cursor, DryRunReport, Error, EventCount, IdPattern, Kind, NewTopic, Page, RegisterOutcome,
    RepublishOutcome, RepublishRequest, RepublishTarget, Result, Topic, TopicChange, TopicId, TopicSegments,
    TrimRequest,
};

impl BrokerWrites<'_> {
    pub(crate) async fn register_topic(
        self,
        topic: NewTopic,
        recorder: ReplyRecorder<RegisterOutcome<Topic>>,
    ) -> Result<RegisterOutcome<Topic>> {
        topics::register(&self.refreshed().await?.logs, topic, recorder).await
    }

    pub(crate) async fn change_topic(
        self,
        id: &TopicId,
        change: TopicChange,
        recorder: ReplyRecorder<Topic>,
    ) -> Result<Topic> {
        topics::change(&self.refreshed().await?.logs, id, change, recorder).await
    }

    pub(crate) async fn republish(
        self,
        id: &TopicId,
        order: RepublishRequest,
        recorder: ReplyRecorder<RepublishOutcome>,
    ) -> Result<RepublishOutcome> {
        id.check_unreserved("/id")?;
        topics::check_republish(&order)?;
        let (broker, order, keep) = (self.refreshed().await?, &order, &recorder);
        let (logs, found) = (&broker.logs, broker.logs.find(id)?);
        match order.target {
            RepublishTarget::Topic => topics::republish_to_topic(logs, &found, order, keep).await,
            RepublishTarget::Group => topics::republish_to_group(logs, &found, order, keep).await,
            RepublishTarget::Subscriptions => broker.subscriptions(None).republish(&found, order, keep).await,
        }
    }

    pub(crate) async fn delete_topic(self, id: &TopicId, force: bool, recorder: ReplyRecorder<()>) -> Result<()> {
        let broker = self.refreshed().await?;
        broker.check_deletable(id)?;
        let members = |ledger: &Ledger| broker.consumers().members_of_topic(ledger, id);
        let ended = topics::delete(&broker.logs, id, force, members, recorder).await?;
        ended.into_iter().for_each(|consumer| broker.sessions.end(consumer));
        broker.retention.forget(id);
        Ok(())
    }

    async fn trim_topic(self, id: &TopicId, trim: TrimRequest) -> Result<EventCount> {
        id.check_unreserved("/id")?;
        let broker = self.refreshed().await?;
        let found = broker.logs.find(id)?;
        let ledger = broker.logs.ledger(&found.log);
        topics::may_erase(ledger, trim.erase)?;
        let counted = topics::trim_on_request(ledger, &found.topic, &trim).await?;
        topics::erase(ledger, trim.erase).await?;
        Ok(counted)
    }

    async fn compact_topic(self, id: &TopicId, order: CompactRequest) -> Result<EventCount> {
        id.check_unreserved("/id")?;
        let broker = self.refreshed().await?;
        let found = broker.logs.find(id)?;
        let age = broker.policy.config.storage.retention_millis();
        let tombstones = topics::tombstones(&broker.logs.default_ledger().registry());
        let ledger = broker.logs.ledger(&found.log);
        topics::may_erase(ledger, order.erase)?;
        let counted = topics::compact_now(ledger, &found.topic, age, &tombstones).await?;
        topics::erase(ledger, order.erase).await?;
        Ok(counted)
    }
}

impl TopicApi for Broker {
    fn register_topic(&self, topic: NewTopic) -> BoxFuture<'_, Result<RegisterOutcome<Topic>>> {
        Box::pin(self.writes().register_topic(topic, ReplyRecorder::disabled()))
    }

    fn topic<'a>(&'a self, id: &'a TopicId) -> BoxFuture<'a, Result<Topic>> {
        Box::pin(self.with_refresh(move || async move { topics::get(&self.logs.default_ledger().registry(), id) }))
    }

    fn topics<'a>(
        &'a self,
        pattern: Option<&'a IdPattern>,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Topic>>> {
        Box::pin(async move {
            self.reader().check_limit(limit)?;
            Ok(topics::list(&self.logs.default_ledger().registry(), pattern, cursor, limit))
        })
    }

    fn change_topic<'a>(&'a self, topic: &'a TopicId, change: TopicChange) -> BoxFuture<'a, Result<Topic>> {
        Box::pin(self.writes().change_topic(topic, change, ReplyRecorder::disabled()))
    }

    fn segments<'a>(&'a self, topic: &'a TopicId) -> BoxFuture<'a, Result<TopicSegments>> {
        Box::pin(self.with_refresh(move || topics::segments(&self.logs, topic)))
    }

    fn republish<'a>(&'a self, topic: &'a TopicId, order: RepublishRequest) -> BoxFuture<'a, Result<RepublishOutcome>> {
        Box::pin(self.writes().republish(topic, order, ReplyRecorder::disabled()))
    }

    fn trim_topic<'a>(&'a self, topic: &'a TopicId, trim: TrimRequest) -> BoxFuture<'a, Result<EventCount>> {
        Box::pin(self.writes().trim_topic(topic, trim))
    }

    fn compact_topic<'a>(&'a self, topic: &'a TopicId, order: CompactRequest) -> BoxFuture<'a, Result<EventCount>> {
        Box::pin(self.writes().compact_topic(topic, order))
    }

    fn delete_topic<'a>(&'a self, topic: &'a TopicId, force: bool) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.writes().delete_topic(topic, force, ReplyRecorder::disabled()))
    }

    fn plan_topic_deletion<'a>(&'a self, topic: &'a TopicId) -> BoxFuture<'a, Result<DryRunReport>> {
        Box::pin(async move {
            self.refresh().await?;
            self.check_deletable(topic)?;
            topics::dry_run(&self.logs, topic).await
        })
    }
}

impl Broker {
    /// Refuses to delete a topic that the broker needs.
    fn check_deletable(&self, id: &TopicId) -> Result<()> {
        id.check_unreserved("/id")?;
        if self.policy.config.default_topic.as_ref() == Some(id) {
            let detail =
                "This is the broker's default topic; name another one in the configuration (`default_topic`) first.";
            return Err(Error::new(Kind::InvalidState, detail));
        }
        Ok(())
    }
}
