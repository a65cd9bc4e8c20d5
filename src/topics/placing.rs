//! Topics that live in a log of their own.
//!
//! ```text
//!  default log    TopicPlaced (not numbered) ─────────────────────▶ TopicPlaced (numbered) ──▶ answer
//!  its own log               └──────────▶ TopicRegistered ─────────────────┘
//! ```
//!
//! - The default log decides on a definition; the topic's own log follows it ([`settle`]).
//! - A crash between two appends is repaired when the broker is opened, or by the next identical registration.
//! - A log that has numbered a topic must always know it: if it does not, it is lost or not mounted, and the broker
//!   refuses to open.
//! - The contents of a memory log end with the process. Its topics continue beyond every sequence that they can have
//!   assigned, so that an old offset is detected, and no number identifies two events.

use super::{ChangeTopic, RegisterTopic, deletion, existing_topic};
use crate::ledger::{Command, Decision, Entry, Ledger, LogLocation, PlacedTopic, TopicPlacement};
use crate::logs::{LogFailure, LogRef, Logs, SideLog};
use contract::{Error, Kind, NewTopic, RegisterOutcome, Result, Sequence, Timestamp, Topic, TopicId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// More events than a memory log can store in its lifetime: 10,000 a second for three years.
const LIFE_EVENTS: u64 = 1 << 40;

/// Registers a topic in another log.
pub(super) async fn register(logs: Arc<Logs>, topic: NewTopic, home: LogLocation) -> Result<RegisterOutcome<Topic>> {
    run_to_completion(async move {
        let _turn = logs.lock_placement().await;
        let default = logs.default_ledger();
        if let Some(known) = existing_topic(&default.registry(), &topic)?.cloned() {
            settle_one(&logs, &topic.id).await?;
            return Ok(RegisterOutcome::Unchanged(known));
        }
        let LogRef::Side(side) = logs.open(&home).await? else { return default.submit(RegisterTopic(topic)).await };
        let registered = place(&logs, &side, topic).await;
        if !logs.is_used(&side.location) {
            // The topic is refused: a log without topics takes no place.
            logs.close_unused(&side).await;
        }
        registered
    })
    .await
}

async fn place(logs: &Logs, side: &SideLog, topic: NewTopic) -> Result<RegisterOutcome<Topic>> {
    // Checked before the default log records the topic: what is recorded there, the topic's own log must follow.
    side.ledger.check_room()?;
    let id = topic.id.clone();
    let found_since = side.ledger.registry().topic(&id).map(|known| known.topic.created_at);
    let place = PlaceTopic { topic, home: side.location.clone(), found_since };
    let registered = logs.default_ledger().submit(place).await?;
    settle_one(logs, &id).await?;
    Ok(registered)
}

/// Changes a topic that lives in another log.
pub(super) async fn change(logs: Arc<Logs>, change: ChangeTopic) -> Result<Topic> {
    run_to_completion(async move {
        let id = change.id.clone();
        let topic = logs.default_ledger().submit(change).await?;
        let _turn = logs.lock_placement().await;
        settle_one(&logs, &id).await?;
        Ok(topic)
    })
    .await
}

/// Opens every log in which topics live, and applies the definitions of the default log to it.
pub(crate) async fn reopen_side_logs(logs: &Logs) -> Result<(), LogFailure> {
    let named = |home: &LogLocation, error| LogFailure { log: home.to_string(), error };
    let default = logs.default_ledger();
    if let Some(first) = default.registry().placed_topics().find(|known| in_memory(known)) {
        default.submit(RecordMemoryEmptied).await.map_err(|error| named(&first.placed.location, error))?;
    }
    let mut homes: BTreeMap<LogLocation, Vec<TopicPlacement>> = BTreeMap::new();
    for known in default.registry().placed_topics() {
        if known.placed.deleting && in_memory(known) {
            // Nothing else is left of the topic.
            let id = &known.placed.topic.definition.id;
            default
                .submit(deletion::ForgetTopic(id.clone()))
                .await
                .map_err(|error| named(&known.placed.location, error))?;
            continue;
        }
        homes.entry(known.placed.location.clone()).or_default().push(known.placed.clone());
    }
    for (home, topics) in homes {
        let found = reopen_side_log(logs, &home, topics).await;
        found.map_err(|error| named(&home, error))?;
    }
    Ok(())
}

async fn reopen_side_log(logs: &Logs, home: &LogLocation, topics: Vec<TopicPlacement>) -> Result<()> {
    // In memory, topics are numbered in the order in which they come here: by their ids.
    let side = logs.reopen(home, topics.iter().map(|placed| placed.floor).collect()).await?;
    let registry = side.ledger.registry();
    let (deleting, mut topics): (Vec<_>, Vec<_>) = topics.into_iter().partition(|placed| placed.deleting);
    let lost = |placed: &TopicPlacement| placed.numbered && registry.topic(&placed.topic.definition.id).is_none();
    // A topic that is being deleted may already be deleted in that log; but the log has assigned numbers then.
    let is_blank = registry.next_topic_number() == 1 && deleting.iter().any(|placed| placed.numbered);
    if !matches!(home, LogLocation::Memory(_)) && (is_blank || topics.iter().any(lost)) {
        return Err(Error::new(
            Kind::Unavailable,
            "It does not know a topic that lives in it: is its disk mounted? Mount it, or restore its folder.",
        ));
    }
    for placed in deleting {
        if !deletion::finish(logs, &side, &placed).await? {
            topics.push(TopicPlacement { deleting: false, forced: false, ..placed });
        }
    }
    settle(logs.default_ledger(), &side, topics).await
}

/// Applies the definition in the default log to a topic's own log; does nothing for a topic of the default log.
async fn settle_one(logs: &Logs, id: &TopicId) -> Result<()> {
    let Some(known) = logs.default_ledger().registry().placed(id).cloned() else { return Ok(()) };
    let side = logs.side_log(&known.placed.location)?;
    settle(logs.default_ledger(), &side, vec![known.placed.clone()]).await
}

async fn settle(default: &Ledger, side: &SideLog, topics: Vec<TopicPlacement>) -> Result<()> {
    let unnumbered = topics.iter().filter(|placed| !placed.numbered);
    let unnumbered: Vec<_> = unnumbered.map(|placed| placed.topic.definition.id.clone()).collect();
    side.ledger.submit(AdoptDefinitions(topics)).await?;
    match unnumbered.is_empty() {
        true => Ok(()),
        false => default.submit(MarkNumbered(unnumbered)).await,
    }
}

fn in_memory(known: &PlacedTopic) -> bool {
    matches!(known.placed.location, LogLocation::Memory(_))
}

/// Runs work that must be completed even if the caller disconnects.
pub(super) async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|failed| Err(Error::new(Kind::Unavailable, "The broker is closing.").with_source(failed)))
}

/// In the default log: a topic lives in another log.
struct PlaceTopic {
    topic: NewTopic,
    home: LogLocation,
    /// When the topic was created, if its log knows it already: the log may be older than this broker's default log.
    found_since: Option<Timestamp>,
}

impl Command for PlaceTopic {
    type Answer = RegisterOutcome<Topic>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        if let Some(known) = existing_topic(decision.registry(), &self.topic)? {
            return Ok(RegisterOutcome::Unchanged(known.clone()));
        }
        let created_at = self.found_since.unwrap_or_else(|| Timestamp::from_millis(decision.now()));
        let topic = Topic { definition: self.topic.clone(), created_at };
        let placed = TopicPlacement {
            topic: topic.clone(),
            location: self.home.clone(),
            floor: Sequence::ZERO,
            numbered: false,
            deleting: false,
            forced: false,
        };
        decision.add_entry(Entry::TopicPlaced { placed })?;
        Ok(RegisterOutcome::Created(topic))
    }

    fn bytes(&self) -> usize {
        self.topic.description.as_ref().map_or(0, String::len)
    }
}

/// In the default log: these topics are numbered in their own log.
struct MarkNumbered(Vec<TopicId>);

impl Command for MarkNumbered {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        for id in &self.0 {
            let known = decision.registry().placed(id).map(|known| known.placed.clone());
            if let Some(placed) = known.filter(|placed| !placed.numbered) {
                decision.add_entry(Entry::TopicPlaced { placed: TopicPlacement { numbered: true, ..placed } })?;
            }
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.0.len() * size_of::<TopicId>()
    }
}

/// In the default log: the contents of memory logs are gone.
struct RecordMemoryEmptied;

impl Command for RecordMemoryEmptied {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        let in_memory = decision.registry().placed_topics().filter(|known| in_memory(known));
        if let Some(last) = in_memory.map(|known| known.placed.floor).max() {
            decision.add_entry(Entry::MemoryEmptied { floor: Sequence(last.0.saturating_add(LIFE_EVENTS)) })?;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// In a topic's own log: the definitions are those of the default log.
struct AdoptDefinitions(Vec<TopicPlacement>);

impl Command for AdoptDefinitions {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        for TopicPlacement { topic, floor, .. } in &self.0 {
            match decision.registry().topic(&topic.definition.id) {
                Some(known) if known.topic == *topic => (),
                Some(_) => drop(decision.add_entry(Entry::TopicChanged { topic: topic.clone() })?),
                None => assign_number(topic, *floor, decision)?,
            }
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.0.len() * size_of::<TopicPlacement>()
    }
}

fn assign_number(topic: &Topic, floor: Sequence, decision: &mut Decision<'_>) -> Result<()> {
    let number = decision.registry().next_topic_number();
    decision.add_due_entry(Entry::TopicRegistered { number, topic: topic.clone() })?;
    if floor > Sequence::ZERO {
        decision.add_entry(Entry::TopicTrimmed { number, through: floor })?;
    }
    Ok(())
}
