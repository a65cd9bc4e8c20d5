//! The registry: topics and event types. It is small, immutable once it is published, and shared by all readers.
//!
//! - A change makes a new registry; readers of the old one keep a consistent view.
//! - The default log's registry also holds the definitions of topics in side logs; the registry of a side log
//!   numbers its own topics.
//! - A definition is identified by the position of the entry that made it, so staleness is one comparison.

mod placements;

use super::type_tag::tag;
use crate::ledger::facts::entry::{DICTIONARY_BASELINE, Entry};
use crate::ledger::facts::placement::{LogLocation, TopicPlacement};
use contract::{
    EventType, EventTypeId, IsoDuration, NewTopic, NewVersion, Position, RegisteredVersion, SchemaVersion, Sequence,
    Timestamp, Topic, TopicId, VersionStatus, limits,
};
use log::{RecordHeader, TopicNumber};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::watch;

/// Topics and event types as of one position.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    /// The entry that changed it last.
    version: Position,
    /// By number; topic `n` is at index `n - 1`. A deleted topic leaves its index empty: its number is never used
    /// again.
    topics: Vec<Option<Arc<RegisteredTopic>>>,
    names: BTreeMap<TopicId, NamedTopic>,
    types: BTreeMap<EventTypeId, Arc<RegisteredType>>,
    /// Logs in files whose last topic was deleted, and whose files may still hold bytes of its events.
    unerased: BTreeSet<LogLocation>,
    /// The version of the dictionary that the log needs; 0 if no entry names one.
    dictionary: u32,
}

/// The topic that a name refers to.
#[derive(Debug, Clone)]
enum NamedTopic {
    /// A topic of this log.
    Here(TopicNumber),
    /// A topic of a side log.
    Elsewhere(Arc<PlacedTopic>),
}

impl NamedTopic {
    const fn here(&self) -> Option<TopicNumber> {
        match self {
            Self::Here(number) => Some(*number),
            Self::Elsewhere(_) => None,
        }
    }

    const fn elsewhere(&self) -> Option<&Arc<PlacedTopic>> {
        match self {
            Self::Here(_) => None,
            Self::Elsewhere(known) => Some(known),
        }
    }
}

/// A registered topic, with its tail and state.
#[derive(Debug)]
pub struct RegisteredTopic {
    /// Its number in the log.
    pub number: TopicNumber,
    /// Its definition.
    pub topic: Topic,
    /// The position of the entry that holds this definition.
    pub defined_at: Position,
    /// Its last durable sequence; waiting readers watch it.
    pub tail: watch::Sender<Sequence>,
    /// Whether it was deleted. Not told by the tail alone: an append would wake everyone who waits only for this.
    deletion: watch::Sender<bool>,
    /// Idempotency keys stored at or before this time, in milliseconds, were outside the window when the window was
    /// last changed. They stay forgotten, however long the window is now.
    pub forgotten_through: i64,
}

/// A topic in a side log.
#[derive(Debug)]
pub struct PlacedTopic {
    /// Its definition and its log.
    pub placed: TopicPlacement,
    /// The position of the entry that holds this definition.
    pub defined_at: Position,
}

/// A registered event type.
#[derive(Debug, Clone)]
pub struct RegisteredType {
    /// Its definition, its versions lowest first.
    pub event_type: EventType,
    /// The position of the entry that holds this definition.
    pub defined_at: Position,
    /// Its tag in the headers of records.
    pub tag: u64,
    /// The size of its schemas, in bytes.
    schema_bytes: usize,
    /// The position of the entry with each version's schema; with the tag it identifies a compiled schema.
    schemas_at: BTreeMap<SchemaVersion, Position>,
}

impl RegisteredType {
    /// One of its schema versions.
    #[must_use]
    pub fn version(&self, version: SchemaVersion) -> Option<&RegisteredVersion> {
        self.event_type.versions.iter().find(|known| known.definition.version == version)
    }

    /// The position of the entry with a version's schema.
    #[must_use]
    pub fn schema_at(&self, version: SchemaVersion) -> Position {
        self.schemas_at.get(&version).copied().unwrap_or(self.defined_at)
    }

    fn set_version(&mut self, version: RegisteredVersion, defined_at: Position) {
        let number = version.definition.version;
        let versions = &mut self.event_type.versions;
        match versions.binary_search_by_key(&number, |known| known.definition.version) {
            Ok(at) => {
                let Some(known) = versions.get_mut(at) else { return };
                if known.definition != version.definition {
                    self.schemas_at.insert(number, defined_at);
                }
                *known = version;
            }
            Err(at) => {
                self.schemas_at.insert(number, defined_at);
                versions.insert(at, version);
            }
        }
    }
}

impl RegisteredTopic {
    /// Its idempotency window, in milliseconds.
    #[must_use]
    pub fn idempotent_millis(&self) -> i64 {
        let default = limits::IDEMPOTENT_HOURS_DEFAULT * 3_600_000;
        self.topic.definition.idempotent_retention.as_ref().map_or(default, IsoDuration::millis)
    }

    /// Whether an idempotency key stored at `time` still counts at `now`.
    ///
    /// A key counts while it has been inside the window at every moment since. So a window that is raised later
    /// revives no key, and a row can be dropped as soon as its key does not count, without changing any later response.
    #[must_use]
    pub fn remembers(&self, time: i64, now: i64) -> bool {
        time > self.forgotten_through && now.saturating_sub(time) < self.idempotent_millis()
    }

    /// Publishes its last durable sequence, and wakes waiting readers.
    pub(in crate::ledger) fn show_tail(&self, tail: Sequence) {
        self.tail.send_if_modified(|shown| std::mem::replace(shown, tail) != tail);
    }

    /// Its last durable sequence.
    #[must_use]
    pub fn tail(&self) -> Sequence {
        *self.tail.borrow()
    }

    /// Publishes that it was deleted, and wakes waiting readers.
    pub(in crate::ledger) fn show_deleted(&self) {
        self.show_tail(DELETED);
        self.deletion.send_replace(true);
    }

    /// Whether this is the same topic, perhaps with another definition. A topic that was created again under the name of
    /// a deleted one is another topic, and so is one of another log with the same number.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.tail.same_channel(&other.tail)
    }

    /// Whether it was deleted since this value was looked up.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.tail() == DELETED
    }

    /// Waits until it is deleted.
    pub async fn deleted(&self) {
        // The sender cannot be dropped meanwhile: this borrows it.
        let _ = self.deletion.subscribe().wait_for(|is_deleted| *is_deleted).await;
    }

    /// Fails with `NotFound` if the topic was deleted.
    pub fn check_exists(&self) -> contract::Result<()> {
        if self.is_deleted() { Err(contract::Error::not_found("topic")) } else { Ok(()) }
    }
}

/// The tail that waiting readers of a deleted topic see. No topic reaches it.
const DELETED: Sequence = Sequence(u64::MAX);

impl Registry {
    /// The entry that changed it last.
    #[must_use]
    pub const fn version(&self) -> Position {
        self.version
    }

    /// One topic.
    #[must_use]
    pub fn topic(&self, id: &TopicId) -> Option<&Arc<RegisteredTopic>> {
        self.topic_numbered(self.names.get(id)?.here()?)
    }

    /// The topic with this number.
    #[must_use]
    pub fn topic_numbered(&self, number: TopicNumber) -> Option<&Arc<RegisteredTopic>> {
        self.topics.get((number.0 as usize).checked_sub(1)?)?.as_ref()
    }

    /// Whether the topic with this number was deleted.
    #[must_use]
    pub fn is_deleted(&self, number: TopicNumber) -> bool {
        let place = (number.0 as usize).checked_sub(1).and_then(|index| self.topics.get(index));
        place.is_some_and(Option::is_none)
    }

    /// The numbers of deleted topics.
    pub fn deleted_numbers(&self) -> impl Iterator<Item = u32> {
        (1..).zip(&self.topics).filter(|(_, topic)| topic.is_none()).map(|(number, _)| number)
    }

    /// The definition of a topic, in whichever log it is.
    #[must_use]
    pub fn definition(&self, id: &TopicId) -> Option<&Topic> {
        self.define(self.names.get(id)?)
    }

    /// The definitions of all topics in all logs, in order of their ids.
    pub fn definitions(&self) -> impl DoubleEndedIterator<Item = &Topic> {
        self.names.values().filter_map(|named| self.define(named))
    }

    fn define<'a>(&'a self, named: &'a NamedTopic) -> Option<&'a Topic> {
        match named {
            NamedTopic::Here(number) => Some(&self.topic_numbered(*number)?.topic),
            NamedTopic::Elsewhere(known) => Some(&known.placed.topic),
        }
    }

    /// All topics of this log in order of their ids.
    pub fn topics(&self) -> impl DoubleEndedIterator<Item = &Arc<RegisteredTopic>> {
        self.names.values().filter_map(|named| self.topic_numbered(named.here()?))
    }

    /// How many topics there are in all logs.
    #[must_use]
    pub fn topic_count(&self) -> usize {
        self.names.len()
    }

    /// The number that the next topic gets.
    #[must_use]
    pub fn next_topic_number(&self) -> u32 {
        u32::try_from(self.topics.len() + 1).unwrap_or(u32::MAX)
    }

    /// One event type; with or without the trailing `~`.
    #[must_use]
    pub fn event_type(&self, id: &EventTypeId) -> Option<&Arc<RegisteredType>> {
        self.types.get(id)
    }

    /// All event types in order of their ids.
    pub fn event_types(&self) -> impl DoubleEndedIterator<Item = &Arc<RegisteredType>> {
        self.types.values()
    }

    /// How many event types there are.
    #[must_use]
    pub fn event_type_count(&self) -> usize {
        self.types.len()
    }

    /// The version of the dictionary that the log needs.
    pub(in crate::ledger) fn dictionary(&self) -> u32 {
        self.dictionary.max(DICTIONARY_BASELINE)
    }

    pub(in crate::ledger) const fn set_dictionary(&mut self, dictionary: u32) {
        self.dictionary = dictionary;
    }

    /// The longest idempotency window of any topic, in milliseconds.
    #[must_use]
    pub fn longest_window_millis(&self) -> i64 {
        self.topics.iter().flatten().map(|topic| topic.idempotent_millis()).max().unwrap_or(0)
    }

    /// Folds one fact. Total: a fact about an unknown topic, or about something else, changes nothing.
    pub fn apply(&mut self, entry: Entry, RecordHeader { position, time, .. }: RecordHeader) {
        self.version = position;
        match entry {
            Entry::DictionaryRaised { dictionary, .. } => self.set_dictionary(dictionary),
            Entry::TopicRegistered { number, topic } => {
                self.add_topic(number, topic, position, (Sequence::ZERO, i64::MIN));
            }
            Entry::TopicChanged { topic } => self.change_topic(topic, position, time),
            Entry::TopicPlaced { placed } => self.place(placed, position),
            Entry::TopicDeleted { topic, number, .. } => self.delete_topic(&topic, number),
            Entry::LogErased { location } => drop(self.unerased.remove(&location)),
            Entry::MemoryEmptied { floor } => self.empty_memory(floor),
            Entry::EventTypeRegistered { event_type } => self.add_type(event_type, position),
            Entry::VersionsChanged { event_type, versions } => self.change_type(&event_type, position, |known| {
                versions.into_iter().for_each(|version| known.set_version(version, position));
            }),
            Entry::EventTypeArchived { event_type } => {
                self.change_type(&event_type, position, |known| known.event_type.archived = true);
            }
            Entry::EventTypeDeleted { event_type } => drop(self.types.remove(&event_type)),
            _ => (),
        }
    }

    /// Adds a topic with its last sequence, and the time up to which its idempotency keys are forgotten.
    pub(in crate::ledger) fn add_topic(
        &mut self,
        number: u32,
        topic: Topic,
        defined_at: Position,
        (tail, forgotten_through): (Sequence, i64),
    ) {
        self.version = self.version.max(defined_at);
        // A damaged log may have lost the fact that registered a topic: its number is not used again.
        while u32::try_from(self.topics.len() + 1).is_ok_and(|next| next < number)
            && let Some(lost) = lost_topic(self.next_topic_number())
        {
            self.push_topic(lost, defined_at, (Sequence::ZERO, i64::MIN));
        }
        let known = (number as usize).checked_sub(1).and_then(|index| self.topics.get_mut(index));
        let known = match known {
            None => return self.push_topic(topic, defined_at, (tail, forgotten_through)),
            // A deleted topic does not come back.
            Some(None) => return,
            Some(Some(known)) => known,
        };
        // A repair appended the registration again.
        let number = TopicNumber(number);
        self.names.remove(&known.topic.definition.id);
        self.names.insert(topic.definition.id.clone(), NamedTopic::Here(number));
        let (tail, deletion, forgotten_through) = (known.tail.clone(), known.deletion.clone(), known.forgotten_through);
        *known = Arc::new(RegisteredTopic { number, topic, defined_at, tail, deletion, forgotten_through });
    }

    fn push_topic(&mut self, topic: Topic, defined_at: Position, (tail, forgotten_through): (Sequence, i64)) {
        let number = TopicNumber(self.next_topic_number());
        self.names.insert(topic.definition.id.clone(), NamedTopic::Here(number));
        let (tail, deletion) = (watch::Sender::new(tail), watch::Sender::new(false));
        let registered = RegisteredTopic { number, topic, defined_at, tail, deletion, forgotten_through };
        self.topics.push(Some(Arc::new(registered)));
    }

    /// Marks the next number as that of a deleted topic.
    pub(in crate::ledger) fn push_deleted(&mut self) {
        self.topics.push(None);
    }

    /// Removes a topic: of this log, or, if `number` is 0, of a side log.
    fn delete_topic(&mut self, id: &TopicId, number: u32) {
        let is_meant = |named: &NamedTopic| named.here().map_or(0, |here| here.0) == number;
        if self.names.get(id).is_some_and(is_meant)
            && let Some(NamedTopic::Elsewhere(known)) = self.names.remove(id)
        {
            let location = &known.placed.location;
            if !matches!(location, LogLocation::Memory(_)) && !self.is_placed_in(location) {
                self.unerased.insert(location.clone());
            }
        }
        if let Some(place) = (number as usize).checked_sub(1).and_then(|index| self.topics.get_mut(index)) {
            *place = None;
        }
    }

    fn change_topic(&mut self, topic: Topic, defined_at: Position, time: i64) {
        let number = self.names.get(&topic.definition.id).and_then(NamedTopic::here).unwrap_or_default();
        if let Some(Some(known)) = self.topics.get_mut((number.0 as usize).wrapping_sub(1)) {
            // The watch is shared with the old value: readers that wait on it must still be woken.
            let (tail, deletion) = (known.tail.clone(), known.deletion.clone());
            let forgotten_through = known.forgotten_through.max(time.saturating_sub(known.idempotent_millis()));
            *known = Arc::new(RegisteredTopic { number, topic, defined_at, tail, deletion, forgotten_through });
        }
    }

    /// Adds an event type.
    pub(in crate::ledger) fn add_type(&mut self, mut event_type: EventType, defined_at: Position) {
        let id = event_type.definition.id.clone();
        self.version = self.version.max(defined_at);
        let tag = tag(id.key());
        if event_type.versions.is_empty() {
            event_type.versions.extend(first_version(&event_type));
        }
        event_type.versions.sort_by_key(|version| version.definition.version);
        let schemas_at = event_type.versions.iter().map(|known| (known.definition.version, defined_at)).collect();
        let schema_bytes = event_type.schema_bytes();
        self.types.insert(id, Arc::new(RegisteredType { event_type, defined_at, tag, schema_bytes, schemas_at }));
    }

    fn change_type(&mut self, id: &EventTypeId, defined_at: Position, change: impl FnOnce(&mut RegisteredType)) {
        if let Some(known) = self.types.get_mut(id) {
            let known = Arc::make_mut(known);
            known.defined_at = defined_at;
            change(known);
            known.schema_bytes = known.event_type.schema_bytes();
        }
    }

    /// The size of the schemas of all event types, in bytes.
    pub(crate) fn schema_bytes(&self) -> usize {
        self.types.values().map(|known| known.schema_bytes).sum()
    }
}

/// A placeholder for a topic whose registration is lost.
fn lost_topic(number: u32) -> Option<Topic> {
    let id = format!("gts.hx.core.events.topic.v1~hx.broker.lost_{number}.v1").parse().ok()?;
    Some(Topic { definition: NewTopic::new(id), created_at: Timestamp::from_millis(0) })
}

/// The version that `dataSchema` alone means. Types registered before there were versions are stored without any.
fn first_version(event_type: &EventType) -> Option<RegisteredVersion> {
    let schema = event_type.definition.data_schema.clone()?;
    Some(RegisteredVersion {
        definition: NewVersion::json_schema(SchemaVersion::FIRST, schema),
        status: VersionStatus::Current,
        created_at: event_type.created_at,
        finalised_at: Some(event_type.created_at),
        deprecated_at: None,
    })
}
