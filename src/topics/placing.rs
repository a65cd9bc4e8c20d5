//! Placing: topics that live in a log of their own choice.
//!
//! ```text
//!  default log    TopicPlaced (not numbered) ─────────────────────▶ TopicPlaced (numbered) ──▶ answer
//!  its own log               └──────────▶ TopicRegistered ─────────────────┘
//! ```
//!
//! - The default log has the first word and the last about a definition; a topic's own log follows ([`settle`]).
//! - A crash between two appends is repaired when the broker is opened, or by the next identical registration.
//! - A log that has numbered a topic must know it for ever: one that does not is lost or not mounted, and the broker
//!   does not open.
//! - What a memory log held is gone with the process. Its topics go on behind every sequence they can have given, so
//!   that a reader from before is told, and no number means two events.

use super::{Change, Register, deletion, known_as};
use crate::ledger::{Command, Decision, Entry, Home, Ledger, Placed, PlacedTopic};
use crate::logs::{LogFailure, Logs, Place, Side};
use contract::{Error, Kind, NewTopic, Registered, Result, Sequence, Timestamp, Topic, TopicId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// More events than a topic can be given in one life of a memory log: 10,000 a second for three years.
const LIFE_EVENTS: u64 = 1 << 40;

/// Registers a topic in another log.
pub(super) async fn register(logs: Arc<Logs>, topic: NewTopic, home: Home) -> Result<Registered<Topic>> {
    to_its_end(async move {
        let _turn = logs.turn().await;
        let default = logs.default_ledger();
        if let Some(known) = known_as(&default.registry(), &topic)?.cloned() {
            settle_one(&logs, &topic.id).await?;
            return Ok(Registered::Unchanged(known));
        }
        let Place::Side(side) = logs.open(&home).await? else { return default.submit(Register(topic)).await };
        // Before the default log knows of it: what it has said, the topic's own log must follow.
        side.ledger.check_room()?;
        let id = topic.id.clone();
        let found_since = side.ledger.registry().topic(&id).map(|known| known.topic.created_at);
        let registered = default.submit(Assign { topic, home: side.home.clone(), found_since }).await?;
        settle_one(&logs, &id).await?;
        Ok(registered)
    })
    .await
}

/// Changes a topic that lives in another log.
pub(super) async fn change(logs: Arc<Logs>, change: Change) -> Result<Topic> {
    to_its_end(async move {
        let id = change.id.clone();
        let topic = logs.default_ledger().submit(change).await?;
        let _turn = logs.turn().await;
        settle_one(&logs, &id).await?;
        Ok(topic)
    })
    .await
}

/// Opens every log that topics live in, and has it follow the default log.
pub(crate) async fn find_again(logs: &Logs) -> Result<(), LogFailure> {
    let named = |home: &Home, error| LogFailure { log: home.to_string(), error };
    let default = logs.default_ledger();
    if let Some(first) = default.registry().placed_topics().find(|known| in_memory(known)) {
        default.submit(BeginAgain).await.map_err(|error| named(&first.placed.home, error))?;
    }
    let mut homes: BTreeMap<Home, Vec<Placed>> = BTreeMap::new();
    for known in default.registry().placed_topics() {
        if known.placed.deleting && in_memory(known) {
            // Nothing else is left of it.
            let id = &known.placed.topic.definition.id;
            default.submit(deletion::Forget(id.clone())).await.map_err(|error| named(&known.placed.home, error))?;
            continue;
        }
        homes.entry(known.placed.home.clone()).or_default().push(known.placed.clone());
    }
    for (home, topics) in homes {
        let found = find_home_again(logs, &home, topics).await;
        found.map_err(|error| named(&home, error))?;
    }
    Ok(())
}

async fn find_home_again(logs: &Logs, home: &Home, topics: Vec<Placed>) -> Result<()> {
    // In memory topics are numbered as they come here: in order of their ids.
    let side = logs.reopen(home, topics.iter().map(|placed| placed.floor).collect()).await?;
    let registry = side.ledger.registry();
    let (deleting, mut topics): (Vec<_>, Vec<_>) = topics.into_iter().partition(|placed| placed.deleting);
    let lost = |placed: &Placed| placed.numbered && registry.topic(&placed.topic.definition.id).is_none();
    // One that is being deleted may be gone there already; but its log has given numbers then.
    let is_blank = registry.next_topic_number() == 1 && deleting.iter().any(|placed| placed.numbered);
    if !matches!(home, Home::Memory(_)) && (is_blank || topics.iter().any(lost)) {
        return Err(Error::new(
            Kind::Unavailable,
            "It does not know a topic that lives in it: is its disk mounted? Mount it, or restore its folder.",
        ));
    }
    for placed in deleting {
        if !deletion::finish(logs, &side, &placed).await? {
            topics.push(Placed { deleting: false, forced: false, ..placed });
        }
    }
    settle(logs.default_ledger(), &side, topics).await
}

/// Has a topic's own log follow the default log; does nothing for a topic of the default log.
async fn settle_one(logs: &Logs, id: &TopicId) -> Result<()> {
    let Some(known) = logs.default_ledger().registry().placed(id).cloned() else { return Ok(()) };
    let side = logs.side(&known.placed.home)?;
    settle(logs.default_ledger(), &side, vec![known.placed.clone()]).await
}

async fn settle(default: &Ledger, side: &Side, topics: Vec<Placed>) -> Result<()> {
    let unnumbered = topics.iter().filter(|placed| !placed.numbered);
    let unnumbered: Vec<_> = unnumbered.map(|placed| placed.topic.definition.id.clone()).collect();
    side.ledger.submit(Follow(topics)).await?;
    match unnumbered.is_empty() {
        true => Ok(()),
        false => default.submit(Number(unnumbered)).await,
    }
}

fn in_memory(known: &PlacedTopic) -> bool {
    matches!(known.placed.home, Home::Memory(_))
}

/// Runs work that must not stop half way because its caller hung up.
pub(super) async fn to_its_end<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|failed| Err(Error::new(Kind::Unavailable, "The broker is closing.").with_source(failed)))
}

/// In the default log: a topic lives elsewhere.
struct Assign {
    topic: NewTopic,
    home: Home,
    /// A log that is older than this broker's memory may know the topic already.
    found_since: Option<Timestamp>,
}

impl Command for Assign {
    type Answer = Registered<Topic>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        if let Some(known) = known_as(decision.registry(), &self.topic)? {
            return Ok(Registered::Unchanged(known.clone()));
        }
        let created_at = self.found_since.unwrap_or_else(|| Timestamp::from_millis(decision.now()));
        let topic = Topic { definition: self.topic.clone(), created_at };
        let placed = Placed {
            topic: topic.clone(),
            home: self.home.clone(),
            floor: Sequence::ZERO,
            numbered: false,
            deleting: false,
            forced: false,
        };
        decision.add_entry(Entry::TopicPlaced { placed })?;
        Ok(Registered::Created(topic))
    }

    fn bytes(&self) -> usize {
        self.topic.description.as_ref().map_or(0, String::len)
    }
}

/// In the default log: these topics have numbers in their own.
struct Number(Vec<TopicId>);

impl Command for Number {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        for id in &self.0 {
            let known = decision.registry().placed(id).map(|known| known.placed.clone());
            if let Some(placed) = known.filter(|placed| !placed.numbered) {
                decision.add_entry(Entry::TopicPlaced { placed: Placed { numbered: true, ..placed } })?;
            }
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.0.len() * size_of::<TopicId>()
    }
}

/// In the default log: whatever was in memory is gone.
struct BeginAgain;

impl Command for BeginAgain {
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

/// In a topic's own log: it is defined as the default log says.
struct Follow(Vec<Placed>);

impl Command for Follow {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        for Placed { topic, floor, .. } in &self.0 {
            match decision.registry().topic(&topic.definition.id) {
                Some(known) if known.topic == *topic => (),
                Some(_) => drop(decision.add_entry(Entry::TopicChanged { topic: topic.clone() })?),
                None => number(topic, *floor, decision)?,
            }
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.0.len() * size_of::<Placed>()
    }
}

fn number(topic: &Topic, floor: Sequence, decision: &mut Decision<'_>) -> Result<()> {
    let number = decision.registry().next_topic_number();
    decision.add_due_entry(Entry::TopicRegistered { number, topic: topic.clone() })?;
    if floor > Sequence::ZERO {
        decision.add_entry(Entry::TopicTrimmed { number, through: floor })?;
    }
    Ok(())
}
