//! Deleting a topic: its events, and everything that was said of it.
//!
//! ```text
//!  default log              TopicPlaced (deleting) ─────────────────▶ TopicDeleted ──▶ answer  (a topic of another log)
//!  its own log    users? ──────────┘     └──────────▶ TopicDeleted ──────────┘    └──▶ events removed
//! ```
//!
//! - Refused while subscriptions, consumers or projections use it, unless they are to go, too. All of that is one append.
//! - Its number is never given again, so keys and aggregates of a later topic of its name are others.
//! - Events are removed after the fact is durable. A removal that is cut short goes on when the broker is opened, or with
//!   the retention chore.
//! - The mark in the default log says whether what uses the topic goes, too. Cut short after it, the deletion goes on as it
//!   was asked for, when the broker is opened ([`super::placing`]) or with the retention chore: if its own log refuses
//!   then, the mark is taken back.

use super::placing::run_to_completion;
use super::retention::{RecordTrim, may_remove, not_removed};
use crate::ledger::{Command, Decision, DispatchFact, Entry, Ledger, ReplyRecorder, TopicPlacement};
use crate::logs::{LogRef, Logs, SideLog};
use contract::{DryRunReport, Error, Kind, Result, Sequence, TopicId};
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
    recorder: ReplyRecorder<()>,
) -> Result<Vec<Uuid>> {
    let found = logs.find(id)?;
    let ledger = Arc::clone(logs.ledger(&found.log));
    may_remove(&ledger).await?;
    let (live, over) = members(&ledger);
    let number = found.topic.number;
    let delete = DeleteTopic { id: id.clone(), number, force, over };
    match &found.log {
        LogRef::Default => {
            let _names = logs.names().read().await;
            ledger.submit_recording(delete, recorder).await?;
        }
        LogRef::Side(side) => {
            let (logs, side, id) = (Arc::clone(logs), Arc::clone(side), id.clone());
            run_to_completion(async move { delete_elsewhere(&logs, &side, &id, delete, recorder).await }).await?;
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
    side: &SideLog,
    id: &TopicId,
    delete: DeleteTopic,
    recorder: ReplyRecorder<()>,
) -> Result<()> {
    let _turn = logs.lock_placement().await;
    let _names = logs.names().write().await;
    let default = logs.default_ledger();
    // Before anything is written: a mark is a promise to go on after a crash.
    let find = FindTopicUsers { id: id.clone(), number: delete.number, over: delete.over.clone() };
    side.ledger.submit(find).await?.check(delete.force)?;
    default.submit(MarkDeleting { id: id.clone(), deleting: true, forced: delete.force }).await?;
    match side.ledger.submit(delete).await {
        Err(refusal) if is_refusal(&refusal) => {
            default.submit(MarkDeleting::none(id)).await?;
            Err(refusal)
        }
        // Whether it is deleted there is not known: the mark stays until that log can tell.
        Err(unknown) => Err(unknown),
        Ok(()) => default.submit_recording(ForgetTopic(id.clone()), recorder).await,
    }
}

/// Whether it is certain that nothing was done.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), Kind::InvalidState | Kind::NotFound | Kind::Overloaded)
}

/// Goes on with the deletion of a topic that lives in another log, where it was cut short; answers whether the topic is gone.
/// It is not where its own log refuses, by what was asked for.
pub(super) async fn finish(logs: &Logs, side: &SideLog, placed: &TopicPlacement) -> Result<bool> {
    let (id, default) = (&placed.topic.definition.id, logs.default_ledger());
    let number = side.ledger.registry().topic(id).map(|known| known.number);
    if let Some(number) = number {
        let delete = DeleteTopic { id: id.clone(), number, force: placed.forced, over: Vec::new() };
        match side.ledger.submit(delete).await {
            Err(refusal) if refusal.kind() == Kind::InvalidState => {
                tracing::warn!(topic = %id, "a deletion that was cut short is refused, and the topic stays: {refusal}");
                default.submit(MarkDeleting::none(id)).await?;
                return Ok(false);
            }
            deleted => deleted?,
        }
    }
    default.submit(ForgetTopic(id.clone())).await?;
    Ok(true)
}

/// Goes on with every deletion of a topic in another log that was cut short while the broker ran on. The first failure is
/// answered.
pub(super) async fn finish_deletions(logs: &Arc<Logs>) -> Result<()> {
    if !is_any_marked(logs) {
        return Ok(());
    }
    let logs = Arc::clone(logs);
    run_to_completion(async move {
        // Whoever deletes has the turn: what is marked while nobody has it was cut short.
        let _turn = logs.lock_placement().await;
        let _names = logs.names().write().await;
        let registry = logs.default_ledger().registry();
        let mut outcome = Ok(());
        for known in registry.placed_topics().filter(|known| known.placed.deleting) {
            let finished = match logs.side_log(&known.placed.location) {
                Ok(side) => finish(&logs, &side, &known.placed).await.map(drop),
                Err(error) => Err(error),
            };
            outcome = outcome.and(finished);
        }
        outcome
    })
    .await
}

fn is_any_marked(logs: &Logs) -> bool {
    logs.default_ledger().registry().placed_topics().any(|known| known.placed.deleting)
}

/// Goes on removing the events of deleted topics, in every log.
pub(crate) async fn finish_removals(logs: &Logs) {
    for ledger in logs.ledgers() {
        if let Err(error) = remove_deleted(&ledger).await {
            tracing::warn!(%error, "events of deleted topics could not be removed yet; it is tried again");
        }
    }
}

/// Removes what is left of the events of deleted topics. A topic that fails keeps no other from it; the first failure is
/// answered.
pub(super) async fn remove_deleted(ledger: &Ledger) -> Result<()> {
    let mut outcome = Ok(());
    for (number, through) in ledger.query_state(crate::ledger::LedgerState::unremoved).await? {
        let removed = match ledger.log().remove(number, through).await {
            Ok(()) => ledger.submit(RecordTrim { number, through }).await,
            Err(error) => Err(not_removed(error)),
        };
        outcome = outcome.and(removed);
    }
    outcome
}

/// What deleting a topic by force would do.
pub(crate) async fn dry_run(logs: &Logs, id: &TopicId) -> Result<DryRunReport> {
    let found = logs.find(id)?;
    let count = super::segments(logs, id).await?.segments.iter().map(|segment| segment.amount).sum();
    let ledger = logs.ledger(&found.log);
    let users = ledger.submit(FindTopicUsers { id: id.clone(), number: found.topic.number, over: Vec::new() }).await?;
    let mut effects = users.sentences();
    effects.push("Offsets of groups and what handlers have done in this topic would be forgotten.".to_owned());
    Ok(DryRunReport { count, effects })
}

/// What uses a topic.
struct TopicUsers {
    subscriptions: Vec<(Uuid, String)>,
    /// Those that live; and those whose sessions are over, by the log's time or as this process knows.
    consumers: Vec<Uuid>,
    over: Vec<Uuid>,
    projections: Vec<String>,
}

impl TopicUsers {
    fn of(decision: &Decision<'_>, id: &TopicId, number: TopicNumber, over: &[Uuid]) -> Self {
        let now = decision.now();
        let subscriptions = decision.dispatch().of_topic(number.0);
        let members = decision.consumers().of_topic(id);
        let is_over = |it: &crate::ledger::ConsumerRow| it.deadline() <= now || over.contains(&it.consumer.id);
        let (over, live): (Vec<_>, Vec<_>) = members.into_iter().partition(is_over);
        let ids = |entries: Vec<crate::ledger::ConsumerRow>| entries.iter().map(|it| it.consumer.id).collect();
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

    /// Refuses while there are some, unless they are to go, too.
    fn check(&self, force: bool) -> Result<()> {
        let counted = self.counted();
        if force || counted.is_empty() {
            return Ok(());
        }
        let detail = format!(
            "{} use this topic. Delete them first, or have them deleted with it (`?force=true`).",
            counted.join(" and ")
        );
        Err(Error::new(Kind::InvalidState, detail))
    }

    fn sentences(&self) -> Vec<String> {
        self.counted().into_iter().map(|users| format!("{users} would be deleted.")).collect()
    }
}

/// Looks up what uses a topic.
struct FindTopicUsers {
    id: TopicId,
    number: TopicNumber,
    /// Consumers that this process knows to be over, perhaps before their deadlines.
    over: Vec<Uuid>,
}

impl Command for FindTopicUsers {
    type Answer = TopicUsers;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<TopicUsers> {
        check_known(decision, &self.id, self.number)?;
        Ok(TopicUsers::of(decision, &self.id, self.number, &self.over))
    }

    fn bytes(&self) -> usize {
        self.over.len() * size_of::<Uuid>()
    }
}

/// Refuses a topic that is not there, or not under this number.
fn check_known(decision: &Decision<'_>, id: &TopicId, number: TopicNumber) -> Result<()> {
    let is_known = decision.registry().topic(id).is_some_and(|known| known.number == number);
    if is_known { Ok(()) } else { Err(Error::not_found("topic")) }
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
        check_known(decision, id, *number)?;
        let users = TopicUsers::of(decision, id, *number, over);
        users.check(*force)?;
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
struct MarkDeleting {
    id: TopicId,
    deleting: bool,
    forced: bool,
}

impl MarkDeleting {
    fn none(id: &TopicId) -> Self {
        Self { id: id.clone(), deleting: false, forced: false }
    }
}

impl Command for MarkDeleting {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        let known = decision.registry().placed(&self.id).ok_or_else(|| Error::not_found("topic"))?;
        let placed = TopicPlacement { deleting: self.deleting, forced: self.forced, ..known.placed.clone() };
        decision.add_entry(Entry::TopicPlaced { placed })?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// In the default log: a topic of another log is gone.
pub(super) struct ForgetTopic(pub(super) TopicId);

impl Command for ForgetTopic {
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
