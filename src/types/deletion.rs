//! Deletes an archived event type of which no event is stored.
//!
//! ```text
//!  archived ──▶ each log: tails of its topics ──▶ headers up to them ──▶ EventTypeDeleted, if it is still the same definition
//! ```
//!
//! - An archived type accepts no more events: the decision of every publish checks its type, in a side log, too. So no
//!   events of the type are added once it is known to be archived, and the logs can be searched before the decision.
//!   This also holds for several brokers on one database: a decision on an older state loses the compare.
//! - Republished events are copies of stored ones, and refused once those are removed.
//! - One search runs at a time, with one page of headers in memory. Headers contain the type's tag, so nothing else is
//!   compared; there is no index by type.
//! - A search that is ended by the request's time limit is resumed by the next request.

use super::versions::{decided, find};
use crate::ledger::{
    Command, Decision, Entry, Ledger, LogLocation, RegisteredType, ReplyRecorder, answer_or_repeat, decide_until_known,
    read_failed,
};
use crate::logs::Logs;
use contract::{Error, EventTypeId, Kind, Position, Result, Sequence, TopicId};
use log::{LogError, ReadLimit, ReadRange, TopicNumber};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Mutex as AsyncMutex;

/// How many headers are read at a time.
const PAGE: ReadLimit = ReadLimit { records: 2048, bytes: 4 * 1024 * 1024 };
/// For how many types the progress of a search is remembered.
const SEARCHES_MAX: usize = 4;

/// Deletes an event type.
pub(crate) async fn delete(
    logs: &Logs,
    searches: &TypeSearches,
    id: &EventTypeId,
    recorder: ReplyRecorder<()>,
) -> Result<()> {
    let default = logs.default_ledger();
    let _turn = searches.turn.lock().await;
    decide_until_known((), |()| async {
        // Another broker may have just archived it.
        default.refresh().await?;
        let known = find(default, id)?;
        check_archived(&known)?;
        if let Some(stored) = find_event(logs, searches, &known).await? {
            return Err(stored.refusal());
        }
        let command = Delete { id: id.clone(), seen: known.defined_at };
        let deleted = default.submit_recording(command, recorder.map_answer(decided)).await?;
        if deleted.is_some() {
            searches.forget(&known);
        }
        Ok(answer_or_repeat(deleted))
    })
    .await
}

fn check_archived(known: &RegisteredType) -> Result<()> {
    match known.event_type.archived {
        true => Ok(()),
        false => {
            let detail = "The event type is not archived, so it still takes events. Archive it first \
                          (POST /v1/event-types/{id}:archive).";
            Err(Error::new(Kind::InvalidState, detail))
        }
    }
}

/// A stored event of the type.
struct StoredEvent {
    topic: TopicId,
    sequence: Sequence,
}

impl StoredEvent {
    fn refusal(&self) -> Error {
        let Self { topic, sequence } = self;
        let detail = format!(
            "Events of this type are stored: the first one found is sequence {sequence} of the topic {topic}. They must go \
             first: by the topic's `retention`, with POST /v1/topics/{{id}}:trim, or with the topic (DELETE /v1/topics/{{id}})."
        );
        Error::new(Kind::InvalidState, detail)
    }
}

/// Finds an event of an archived type in any log.
async fn find_event(logs: &Logs, searches: &TypeSearches, known: &RegisteredType) -> Result<Option<StoredEvent>> {
    let likely = known.event_type.definition.topic.as_ref();
    for (home, ledger) in logs.housed_ledgers() {
        // This command is decided in the order of the log: a publish that was decided before it is stored when it
        // returns, and one that is decided after it finds the type archived.
        let mut topics = ledger.submit(FindTails).await?;
        topics.sort_by_key(|topic| Some(&topic.id) != likely);
        for topic in topics {
            let place = (home.clone(), topic.number);
            if let Some(sequence) = find_in_topic(&ledger, searches, known, (&place, topic.tail)).await? {
                return Ok(Some(StoredEvent { topic: topic.id, sequence }));
            }
        }
    }
    Ok(None)
}

async fn find_in_topic(
    ledger: &Ledger,
    searches: &TypeSearches,
    known: &RegisteredType,
    (place, tail): (&SearchedPlace, Sequence),
) -> Result<Option<Sequence>> {
    let mut after = searches.reached(known, place);
    while after < tail {
        let page = match ledger.log().headers(ReadRange::Topic(place.1, after), PAGE).await {
            Ok(page) => page,
            Err(LogError::Trimmed(earliest)) if earliest.get() > after.get() + 1 => {
                after = Sequence(earliest.get() - 1);
                continue;
            }
            Err(error) => return Err(read_failed(error)),
        };
        let is_of_type = |header: &&log::RecordHeader| header.facets.is_some_and(|facets| facets.type_tag == known.tag);
        if let Some(found) = page.iter().find(is_of_type) {
            return Ok(Some(found.sequence));
        }
        let Some(last) = page.last() else { break };
        after = last.sequence;
        searches.note(known, place, after);
    }
    Ok(None)
}

/// A topic of a log; the default log has no location.
type SearchedPlace = (Option<LogLocation>, TopicNumber);

/// How far topics were searched without finding an event of an archived type.
///
/// The result stays valid: an archived type accepts no events, and neither sequences nor numbers of topics are assigned
/// again.
#[derive(Default)]
pub(crate) struct TypeSearches {
    searches: Mutex<VecDeque<TypeSearch>>,
    /// Held during a search, so that one page of headers is in memory, however many requests there are.
    turn: AsyncMutex<()>,
}

struct TypeSearch {
    tag: u64,
    /// The archived definition; a type that is registered again under the name has another one.
    defined_at: Position,
    reached: BTreeMap<SearchedPlace, Sequence>,
}

impl TypeSearches {
    fn reached(&self, known: &RegisteredType, place: &SearchedPlace) -> Sequence {
        let searches = self.lock();
        let search = searches.iter().find(|search| search.is_of(known));
        search.and_then(|search| search.reached.get(place).copied()).unwrap_or_default()
    }

    fn note(&self, known: &RegisteredType, place: &SearchedPlace, sequence: Sequence) {
        let mut searches = self.lock();
        if !searches.iter().any(|search| search.is_of(known)) {
            searches.truncate(SEARCHES_MAX - 1);
            let (tag, defined_at) = (known.tag, known.defined_at);
            searches.push_front(TypeSearch { tag, defined_at, reached: BTreeMap::new() });
        }
        if let Some(search) = searches.iter_mut().find(|search| search.is_of(known)) {
            let reached = search.reached.entry(place.clone()).or_default();
            *reached = sequence.max(*reached);
        }
    }

    fn forget(&self, known: &RegisteredType) {
        self.lock().retain(|search| !search.is_of(known));
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<TypeSearch>> {
        self.searches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TypeSearch {
    fn is_of(&self, known: &RegisteredType) -> bool {
        (self.tag, self.defined_at) == (known.tag, known.defined_at)
    }
}

/// A topic with its last sequence.
struct TopicTail {
    id: TopicId,
    number: TopicNumber,
    tail: Sequence,
}

/// Looks up the tails of a log's topics.
struct FindTails;

impl Command for FindTails {
    type Answer = Vec<TopicTail>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        let topics = decision.registry().topics().map(|topic| {
            let (id, number) = (topic.topic.definition.id.clone(), topic.number);
            TopicTail { id, number, tail: decision.tail(number) }
        });
        Ok(topics.collect())
    }

    fn bytes(&self) -> usize {
        0
    }
}

struct Delete {
    id: EventTypeId,
    /// The definition of which no event is stored.
    seen: Position,
}

impl Command for Delete {
    /// `None`: look again.
    type Answer = Option<()>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        let known = decision.registry().event_type(&self.id).ok_or_else(|| Error::not_found("event type"))?;
        if known.defined_at != self.seen {
            return Ok(None);
        }
        check_archived(known)?;
        decision.add_entry(Entry::EventTypeDeleted { event_type: self.id.clone() })?;
        Ok(Some(()))
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}
