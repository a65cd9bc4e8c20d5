//! Deleting a topic: its events, and everything that was said of it.
//!
//! ```text
//!  default log    TopicPlaced (deleting) ─────────────────▶ TopicDeleted ──▶ answer      (a topic of another log)
//!  its own log              └──────────▶ TopicDeleted ──────────┘    └──▶ events removed
//! ```
//!
//! - Refused while subscriptions, consumers or projections use it, unless they are to go, too. All of that is one append.
//! - Its number is never given again, so keys and aggregates of a later topic of its name are others.
//! - Events are removed after the fact is durable. A removal that is cut short goes on when the broker is opened, or with
//!   the retention chore.
//! - A crash between two logs is repaired when the broker is opened ([`super::placing`]).

use super::placing::to_its_end;
use super::retention::{Trimmed, may_remove, not_removed};
use crate::ledger::{Command, Decision, DispatchFact, Entry, Keep, Ledger, Placed};
use crate::logs::{Logs, Place, Side};
use contract::{DryRun, Error, Kind, Result, Sequence, TopicId};
use log::TopicNumber;
use std::sync::Arc;
use uuid::Uuid;

/// How many users of a topic a refusal names.
const USERS_NAMED: usize = 5;

/// Who deletes what uses a topic.
const BROKER: &str = "event-broker";

/// Deletes a topic; answers which consumers went with it. `members` are the consumers of a log that live, and those whose
/// sessions are over.
pub(crate) async fn delete(
    logs: &Arc<Logs>,
    id: &TopicId,
    force: bool,
    members: impl Fn(&Ledger) -> (Vec<Uuid>, Vec<Uuid>),
    keep: Keep<()>,
) -> Result<Vec<Uuid>> {
    let found = logs.find(id)?;
    let ledger = Arc::clone(logs.ledger(&found.place));
    may_remove(&ledger).await?;
    let (live, over) = members(&ledger);
    let number = found.topic.number;
    let delete = DeleteTopic { id: id.clone(), number, force, over };
    match &found.place {
        Place::Default => {
            let _names = logs.names().read().await;
            ledger.submit_keeping(delete, keep).await?;
        }
        Place::Side(side) => {
            let (logs, side, id) = (Arc::clone(logs), Arc::clone(side), id.clone());
            to_its_end(async move { delete_elsewhere(&logs, &side, &id, delete, keep).await }).await?;
        }
    }
    if let Err(error) = remove_deleted(&ledger).await {
        tracing::warn!(%error, topic = %id, "events of a deleted topic could not be removed yet; it is tried again");
    }
    Ok(live)
}

/// Deletes a topic that lives in another log.
async fn delete_elsewhere(
    logs: &Arc<Logs>,
    side: &Side,
    id: &TopicId,
    delete: DeleteTopic,
    keep: Keep<()>,
) -> Result<()> {
    let _turn = logs.turn().await;
    let _names = logs.names().write().await;
    let default = logs.default_ledger();
    default.submit(Mark { id: id.clone(), deleting: true }).await?;
    if let Err(refusal) = side.ledger.submit(delete).await {
        default.submit(Mark { id: id.clone(), deleting: false }).await?;
        return Err(refusal);
    }
    default.submit_keeping(Forget(id.clone()), keep).await
}

/// Goes on with the deletion of a topic that lives in another log, where a crash had cut it short.
pub(super) async fn finish(logs: &Logs, side: &Side, id: &TopicId, keep: Keep<()>) -> Result<()> {
    let number = side.ledger.registry().topic(id).map(|known| known.number);
    if let Some(number) = number {
        side.ledger.submit(DeleteTopic { id: id.clone(), number, force: true, over: Vec::new() }).await?;
    }
    logs.default_ledger().submit_keeping(Forget(id.clone()), keep).await
}

/// Goes on removing the events of deleted topics, in every log.
pub(crate) async fn finish_removals(logs: &Logs) {
    for ledger in logs.ledgers() {
        if let Err(error) = remove_deleted(&ledger).await {
            tracing::warn!(%error, "events of deleted topics could not be removed yet; it is tried again");
        }
    }
}

/// Removes what is left of the events of deleted topics.
pub(super) async fn remove_deleted(ledger: &Ledger) -> Result<()> {
    for (number, through) in ledger.ask(crate::ledger::State::unremoved).await? {
        ledger.log().remove(number, through).await.map_err(not_removed)?;
        ledger.submit(Trimmed { number, through }).await?;
    }
    Ok(())
}

/// What deleting a topic by force would do.
pub(crate) async fn dry_run(logs: &Logs, id: &TopicId) -> Result<DryRun> {
    let found = logs.find(id)?;
    let count = super::segments(logs, id).await?.segments.iter().map(|segment| segment.amount).sum();
    let ledger = logs.ledger(&found.place);
    let users = ledger.submit(FindUsers { id: id.clone(), number: found.topic.number }).await?;
    let mut effects = users.sentences();
    effects.push("Offsets of groups and what handlers have done in this topic would be forgotten.".to_owned());
    Ok(DryRun { count, effects })
}

/// What uses a topic.
struct Users {
    subscriptions: Vec<(Uuid, String)>,
    /// Those that live; and those whose sessions are over, by the log's time or as this process knows.
    consumers: Vec<Uuid>,
    over: Vec<Uuid>,
    projections: Vec<String>,
}

impl Users {
    fn of(decision: &Decision<'_>, id: &TopicId, number: TopicNumber, over: &[Uuid]) -> Self {
        let now = decision.now();
        let subscriptions = decision.dispatch().of_topic(number.0);
        let members = decision.readers().of_topic(id);
        let is_over = |it: &crate::ledger::ConsumerEntry| it.deadline() <= now || over.contains(&it.consumer.id);
        let (over, live): (Vec<_>, Vec<_>) = members.into_iter().partition(is_over);
        let ids = |entries: Vec<crate::ledger::ConsumerEntry>| entries.iter().map(|it| it.consumer.id).collect();
        Self {
            subscriptions: subscriptions.into_iter().map(|row| (row.id, row.definition.code.clone())).collect(),
            consumers: ids(live),
            over: ids(over),
            projections: decision.projections().of_topic(id),
        }
    }

    /// How many of each kind, with the names of some.
    fn counted(&self) -> Vec<String> {
        let named = |names: Vec<String>, what: &str| {
            let more = if names.len() > USERS_NAMED { ", …" } else { "" };
            let some: Vec<_> = names.iter().take(USERS_NAMED).map(String::as_str).collect();
            (!names.is_empty()).then(|| format!("{} {what} ({}{more})", names.len(), some.join(", ")))
        };
        let codes = self.subscriptions.iter().map(|(_, code)| code.clone()).collect();
        let consumers = self.consumers.iter().map(Uuid::to_string).collect();
        let kinds = [
            named(codes, "subscription(s)"),
            named(consumers, "consumer(s)"),
            named(self.projections.clone(), "projection(s)"),
        ];
        kinds.into_iter().flatten().collect()
    }

    fn sentences(&self) -> Vec<String> {
        self.counted().into_iter().map(|users| format!("{users} would be deleted.")).collect()
    }
}

/// Looks up what uses a topic.
struct FindUsers {
    id: TopicId,
    number: TopicNumber,
}

impl Command for FindUsers {
    type Answer = Users;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Users> {
        Ok(Users::of(decision, &self.id, self.number, &[]))
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// In a topic's own log: it is gone.
struct DeleteTopic {
    id: TopicId,
    number: TopicNumber,
    /// Whether what uses it goes, too.
    force: bool,
    /// Consumers that this process knows to be over, perhaps before their deadlines.
    over: Vec<Uuid>,
}

impl Command for DeleteTopic {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        let Self { id, number, force, over } = self;
        if decision.registry().topic(id).is_none_or(|known| known.number != *number) {
            return Err(Error::not_found("topic"));
        }
        let users = Users::of(decision, id, *number, over);
        let counted = users.counted();
        if !force && !counted.is_empty() {
            let detail = format!(
                "{} use this topic. Delete them first, or have them deleted with it (`?force=true`).",
                counted.join(" and ")
            );
            return Err(Error::new(Kind::InvalidState, detail));
        }
        let ids: Vec<_> = users.consumers.into_iter().chain(users.over).collect();
        if !ids.is_empty() {
            decision.add_entry(Entry::ConsumersExpired { ids })?;
        }
        for (id, code) in users.subscriptions {
            let by = Some(BROKER.to_owned());
            let what = DispatchFact::SubscriptionDeleted { id, code: Some(code), by };
            decision.add_entry(Entry::Dispatch { what })?;
        }
        for name in users.projections {
            decision.add_entry(Entry::ProjectionDeleted { name })?;
        }
        let through = decision.tail(*number);
        decision.add_entry(Entry::TopicDeleted { topic: id.clone(), number: number.0, through })?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.over.len() * size_of::<Uuid>()
    }
}

/// In the default log: a topic of another log is being deleted, or is not after all.
struct Mark {
    id: TopicId,
    deleting: bool,
}

impl Command for Mark {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        let known = decision.registry().placed(&self.id).ok_or_else(|| Error::not_found("topic"))?;
        let placed = Placed { deleting: self.deleting, ..known.placed.clone() };
        decision.add_entry(Entry::TopicPlaced { placed })?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// In the default log: a topic of another log is gone.
pub(super) struct Forget(pub(super) TopicId);

impl Command for Forget {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        if decision.registry().placed(&self.0).is_some_and(|known| known.placed.deleting) {
            let (topic, through) = (self.0.clone(), Sequence::ZERO);
            decision.add_entry(Entry::TopicDeleted { topic, number: 0, through })?;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        0
    }
}
