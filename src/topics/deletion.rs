//! Deletes a topic: its events, and everything that is recorded about it.
//!
//! ```text
//!  default log              TopicPlaced (deleting) ─────────────────▶ TopicDeleted ──▶ answer  (a topic of another log)
//!  its own log    users? ──────────┘     └──────────▶ TopicDeleted ──────────┘    └──▶ events removed
//! ```
//!
//! - It is refused while subscriptions, consumers or projections use the topic, unless they are to be deleted, too. All
//!   of that is one append.
//! - Its number is never assigned again, so a later topic of the same name has other keys and aggregates.
//! - Events are removed after the entry is durable. An interrupted removal is resumed when the broker is opened, or by
//!   the retention chore.
//! - The mark in the default log says whether the users of the topic are deleted, too. If a deletion is interrupted
//!   after it, it is resumed as requested, when the broker is opened ([`super::placing`]) or by the retention chore. If
//!   the topic's own log refuses then, the mark is removed.

use super::placing::run_to_completion;
use super::retention::{RecordTrim, may_remove, not_removed};
use super::unused_logs::close_unused_logs;
use crate::ledger::{Command, Decision, DispatchFact, Entry, Ledger, ReplyRecorder, TopicPlacement};
use crate::logs::{LogRef, Logs, SideLog};
use contract::{DryRunReport, Error, Kind, Result, Sequence, TopicId};
use log::TopicNumber;
use std::sync::Arc;
use uuid::Uuid;

/// How many users of a topic a refusal names.
const USERS_NAMED: usize = 5;

/// The name under which users of a topic are deleted.
const BROKER: &str = "event-broker";

/// Deletes a topic; returns the consumers that were deleted with it. `members` are the consumers of a log that are
/// live, and those whose sessions have ended.
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
            let (here, side, id) = (Arc::clone(logs), Arc::clone(side), id.clone());
            let location = side.location.clone();
            run_to_completion(async move { delete_elsewhere(&here, &side, &id, delete, recorder).await }).await?;
            if !logs.is_used(&location) {
                close_unused_logs(logs).await;
                return Ok(live);
            }
        }
    }
    if let Err(error) = remove_deleted(&ledger).await {
        tracing::warn!(%error, topic = %id, "events of a deleted topic could not be removed yet; this is retried");
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
    // Checked before anything is written: after a crash, a marked deletion is completed.
    let find = FindTopicUsers { id: id.clone(), number: delete.number, over: delete.over.clone() };
    side.ledger.submit(find).await?.check(delete.force)?;
    default.submit(MarkDeleting { id: id.clone(), deleting: true, forced: delete.force }).await?;
    match side.ledger.submit(delete).await {
        Err(refusal) if is_refusal(&refusal) => {
            default.submit(MarkDeleting::none(id)).await?;
            Err(refusal)
        }
        // It is not known whether it is deleted there: the mark stays until that log can be read.
        Err(unknown) => Err(unknown),
        Ok(()) => default.submit_recording(ForgetTopic(id.clone()), recorder).await,
    }
}

/// Whether the error proves that nothing was done.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), Kind::InvalidState | Kind::NotFound | Kind::Overloaded)
}

/// Resumes the interrupted deletion of a topic that lives in another log; returns whether the topic is deleted. It is
/// not if its own log refuses the deletion as it was requested.
pub(super) async fn finish(logs: &Logs, side: &SideLog, placed: &TopicPlacement) -> Result<bool> {
    let (id, default) = (&placed.topic.definition.id, logs.default_ledger());
    let number = side.ledger.registry().topic(id).map(|known| known.number);
    if let Some(number) = number {
        let delete = DeleteTopic { id: id.clone(), number, force: placed.forced, over: Vec::new() };
        match side.ledger.submit(delete).await {
            Err(refusal) if refusal.kind() == Kind::InvalidState => {
                tracing::warn!(topic = %id, "an interrupted deletion is refused, so the topic stays: {refusal}");
                default.submit(MarkDeleting::none(id)).await?;
                return Ok(false);
            }
            deleted => deleted?,
        }
    }
    default.submit(ForgetTopic(id.clone())).await?;
    Ok(true)
}

/// Resumes every deletion of a topic in another log that was interrupted while the broker kept running. Returns the
/// first failure.
pub(super) async fn finish_deletions(logs: &Arc<Logs>) -> Result<()> {
    if !is_any_marked(logs) {
        return Ok(());
    }
    let logs = Arc::clone(logs);
    run_to_completion(async move {
        // A deletion holds this lock: a mark that is found under it belongs to an interrupted one.
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

/// Removes the remaining events of deleted topics, in every log.
pub(crate) async fn finish_removals(logs: &Logs) {
    for ledger in logs.ledgers() {
        if let Err(error) = remove_deleted(&ledger).await {
            tracing::warn!(%error, "events of deleted topics could not be removed yet; this is retried");
        }
    }
}

/// Removes the remaining events of deleted topics. A topic that fails does not affect the others; returns the first
/// failure.
pub(crate) async fn remove_deleted(ledger: &Ledger) -> Result<()> {
    let mut outcome = Ok(());
    for (number, through) in ledger.query_state(crate::ledger::LedgerState::unremoved).await? {
        let removed = match ledger.log().remove(number, through).await {
            Ok(()) => ledger.submit(RecordTrim { number, through, is_removed: true }).await,
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
    /// Live consumers; and those whose sessions have ended, by the log's time or as this process knows.
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

    /// The number of users of each kind, with some of their names.
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

    /// Refuses if there are users, unless they are to be deleted, too.
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

/// Refuses an unknown topic, or one that has another number.
fn check_known(decision: &Decision<'_>, id: &TopicId, number: TopicNumber) -> Result<()> {
    let is_known = decision.registry().topic(id).is_some_and(|known| known.number == number);
    if is_known { Ok(()) } else { Err(Error::not_found("topic")) }
}

/// In a topic's own log: the topic is deleted.
struct DeleteTopic {
    id: TopicId,
    number: TopicNumber,
    /// Whether its users are deleted, too.
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

/// In the default log: a topic of another log is being deleted, or no longer is.
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

/// In the default log: a topic of another log is deleted.
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
