//! What a command decides on: the durable state, plus what was decided since but is not durable yet.
//!
//! - Decisions see everything decided before them, durable or not; readers see only what is durable.
//! - What a decision adds can be undone to a mark, so that an atomic unit leaves nothing when one of its events is
//!   refused.
//! - When the append succeeds, its records are applied to the state and leave the overlay; when it fails, the whole
//!   overlay is dropped.

use super::growth::{check_room, disk_full};
use super::overlay::{Overlay, UndoMark};
use super::stored_reply;
use crate::ledger::disk::row_codec::{AggregateHead, IdempotencyRow};
use crate::ledger::facts::carried_state;
use crate::ledger::facts::entry::{Entry, EntryConcern};
use crate::ledger::state::LedgerState;
use crate::ledger::state::claims::DecidedClaims;
use crate::ledger::state::consumers::DecidedConsumers;
use crate::ledger::state::dead_letters::DecidedDeadLetters;
use crate::ledger::state::dispatch::DecidedDispatch;
use crate::ledger::state::projections::DecidedProjections;
use crate::ledger::state::registry::Registry;
use bytes::Bytes;
use contract::{AggregateSequence, Error, Kind, Position, Result, Sequence};
use log::{AggregateMark, EventFacets, IdempotencyMark, Record, RecordHeader, StorageRoom, TopicNumber};

/// The state that a command decides on, and the overlay that takes its records.
pub struct Decision<'a> {
    state: &'a LedgerState,
    overlay: &'a mut Overlay,
    now: i64,
    /// How much free space the log has.
    pub(in crate::ledger) room: StorageRoom,
}

/// An event that needs only its numbers.
pub struct EventDraft {
    /// Its topic.
    pub topic: TopicNumber,
    /// Its id.
    pub id: u128,
    /// Fingerprint of its type.
    pub type_tag: u64,
    /// Fingerprint of its subject type.
    pub subject_type_tag: u64,
    /// Its tenant, or 0.
    pub tenant: u128,
    /// Its aggregate, if it has one.
    pub aggregate: Option<u128>,
    /// Its idempotency key, if it has one.
    pub idempotency: Option<IdempotencyMark>,
    /// Its JSON without the assigned members.
    pub text: Bytes,
    /// Where the assigned members are inserted in the text.
    pub splice: usize,
}

impl<'a> Decision<'a> {
    /// A decision on `state` and everything in `overlay`, at `now` by the log's time.
    pub fn new(state: &'a LedgerState, overlay: &'a mut Overlay, now: i64) -> Self {
        let now = now.max(state.time).max(overlay.time());
        overlay.commit();
        Self { state, overlay, now, room: StorageRoom::Ample }
    }

    /// The time of this decision, in milliseconds; never before the time of an earlier record.
    #[must_use]
    pub const fn now(&self) -> i64 {
        self.now
    }

    /// The time that decides what has become of something stored at `stored`: earlier than [`Self::now`] for what was
    /// stored before a start with a clock in doubt.
    #[must_use]
    pub const fn time_for(&self, stored: i64) -> i64 {
        self.state.clock_hold.time_for(stored, self.now)
    }

    /// Topics and event types.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        self.overlay.registry.as_deref().unwrap_or(&self.state.registry)
    }

    /// The last position decided so far.
    #[must_use]
    pub fn position(&self) -> Position {
        self.overlay.position().max(self.state.position)
    }

    /// A topic's last sequence.
    #[must_use]
    pub fn tail(&self, topic: TopicNumber) -> Sequence {
        self.overlay.tails.get(&topic).copied().unwrap_or_else(|| self.state.tail(topic))
    }

    /// The last event of an aggregate.
    pub fn head(&self, aggregate: u128) -> Result<Option<AggregateHead>> {
        match self.overlay.heads.get(&aggregate) {
            Some(head) => Ok(Some(*head)),
            None => self.state.head(aggregate),
        }
    }

    /// The event stored under this idempotency key, however long ago.
    pub fn stored_key(&self, key: u128) -> Result<Option<IdempotencyRow>> {
        match self.overlay.keys.get(&key) {
            Some(remembered) => Ok(Some(*remembered)),
            None => self.state.stored_key(key),
        }
    }

    /// The reply stored under this idempotency key of a request, however long ago.
    pub fn recorded_reply(&self, key: u128) -> Result<Option<IdempotencyRow>> {
        match self.overlay.tables.reply(key) {
            Some(remembered) => Ok(Some(remembered)),
            None => self.state.stored_key(key),
        }
    }

    /// Consumers and the offsets of groups.
    #[must_use]
    pub fn consumers(&self) -> DecidedConsumers<'_> {
        self.overlay.tables.consumers(&self.state.tables, self.now)
    }

    /// Projections and their checkpoints.
    #[must_use]
    pub fn projections(&self) -> DecidedProjections<'_> {
        self.overlay.tables.projections(&self.state.tables, self.now)
    }

    /// Claims and the policies of handlers.
    #[must_use]
    pub fn claims(&self) -> DecidedClaims<'_> {
        self.overlay.tables.claims(&self.state.tables, self.now)
    }

    /// Dead letters.
    #[must_use]
    pub fn dead_letters(&self) -> DecidedDeadLetters<'_> {
        self.overlay.tables.dead_letters(&self.state.tables, self.now)
    }

    /// Subscriptions, jobs and pools.
    #[must_use]
    pub fn dispatch(&self) -> DecidedDispatch<'_> {
        self.overlay.tables.dispatch(&self.state.tables, self.now)
    }

    /// The current point of this decision, for [`Decision::undo`].
    #[must_use]
    pub fn mark(&self) -> UndoMark {
        self.overlay.mark()
    }

    /// Undoes everything since `mark`.
    pub fn undo(&mut self, mark: UndoMark) {
        self.overlay.undo(mark);
    }

    /// Adds an event. Returns its record as it will be stored.
    pub fn add_event(&mut self, draft: &EventDraft) -> Result<Record> {
        check_room(self.room)?;
        self.check_topic(draft.topic)?;
        let position = self.position().next();
        let sequence = self.tail(draft.topic).next();
        let aggregate = draft.aggregate.map(|key| self.next_in_aggregate(key)).transpose()?;
        let facets = EventFacets {
            type_tag: draft.type_tag,
            subject_type_tag: draft.subject_type_tag,
            tenant: draft.tenant,
            aggregate,
            idempotency: draft.idempotency,
        };
        let header =
            RecordHeader { position, topic: draft.topic, sequence, time: self.now, id: draft.id, facets: Some(facets) };
        let body = self.overlay.assigned_text(draft, &header);
        let record = Record { header, body };
        self.overlay.add(&record);
        Ok(record)
    }

    /// Refuses a record of a topic that was deleted since it was looked up.
    fn check_topic(&self, number: TopicNumber) -> Result<()> {
        match self.registry().is_deleted(number) {
            true => Err(Error::not_found("topic")),
            false => Ok(()),
        }
    }

    /// Records that the following entries need this version of the dictionary, unless the log says so already.
    pub(in crate::ledger) fn raise_dictionary(&mut self, dictionary: u32) -> Result<()> {
        if dictionary <= self.registry().dictionary() {
            return Ok(());
        }
        let by = env!("CARGO_PKG_VERSION").to_owned();
        self.put_entry(Entry::DictionaryRaised { dictionary, by }).map(drop)
    }

    /// Records again which version of the dictionary the log needs: the first such entry is about to be removed.
    pub(in crate::ledger) fn repeat_dictionary(&mut self) -> Result<()> {
        let (dictionary, by) = (self.registry().dictionary(), env!("CARGO_PKG_VERSION").to_owned());
        self.put_entry(Entry::DictionaryRaised { dictionary, by }).map(drop)
    }

    /// The durable state.
    pub(crate) const fn durable(&self) -> &LedgerState {
        self.state
    }

    /// Whether the disk is so full that only what frees space may be stored.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.room == StorageRoom::Full
    }

    /// Adds a fact of the broker. Returns its position. Refused if it makes the log grow and there is no free space.
    pub fn add_entry(&mut self, entry: Entry) -> Result<Position> {
        if entry.grows() {
            check_room(self.room)?;
        }
        if self.is_full() && !entry.frees() {
            return Err(disk_full());
        }
        self.add_due_entry(entry)
    }

    /// Adds a fact whatever the free space is. For a fact that follows from one that is durable in another log, or that
    /// repeats an earlier one.
    pub fn add_due_entry(&mut self, entry: Entry) -> Result<Position> {
        if let Some(number) = entry.topic_number() {
            self.check_topic(TopicNumber(number))?;
        }
        self.raise_dictionary(entry.since())?;
        self.put_entry(entry)
    }

    /// Records the current state of everything that lost facts may have changed: how far topics were trimmed, and the
    /// tables that change row by row.
    pub fn carry_state(&mut self) -> Result<()> {
        let failed = |error| Error::new(Kind::Unavailable, "The state could not be written.").with_source(error);
        for entry in carried_state::pieces(&self.state.tables).map_err(failed)? {
            self.add_entry(entry)?;
        }
        let trimmed: Vec<_> =
            (0..).zip(&self.state.trimmed).filter(|(_, through)| **through > Sequence::ZERO).collect();
        for (number, through) in trimmed {
            self.add_entry(Entry::TopicTrimmed { number, through: *through })?;
        }
        Ok(())
    }

    fn put_entry(&mut self, entry: Entry) -> Result<Position> {
        let body = serde_json::to_vec(&entry)
            .map_err(|error| Error::new(Kind::Unavailable, "An entry could not be written.").with_source(error))?;
        let header = RecordHeader {
            position: self.position().next(),
            topic: TopicNumber::LEDGER,
            sequence: self.tail(TopicNumber::LEDGER).next(),
            time: self.now,
            id: 0,
            facets: None,
        };
        self.overlay.add(&Record { header, body: body.into() });
        match entry.concern() {
            EntryConcern::Registry => self.note_registered(entry, header),
            // Only a repair replaces all tables, and it decides nothing else.
            EntryConcern::History | EntryConcern::AllTables | EntryConcern::Usage => (),
            EntryConcern::Tables => self.overlay.tables.decide(&self.state.tables, &entry, &header),
            EntryConcern::Topic => {
                self.overlay.tables.decide(&self.state.tables, &entry, &header);
                self.note_registered(entry, header);
            }
            EntryConcern::Keys => {
                if let Some((key, row)) = stored_reply::row(&entry, header.position, header.time) {
                    self.overlay.tables.decide_reply(key, row);
                }
            }
        }
        Ok(header.position)
    }

    fn note_registered(&mut self, entry: Entry, header: RecordHeader) {
        let mut registry = self.registry().clone();
        registry.apply(entry, header);
        self.overlay.replace_registry(registry);
    }

    fn next_in_aggregate(&self, key: u128) -> Result<AggregateMark> {
        let last = self.head(key)?.map_or(AggregateSequence::ZERO, |head| head.aggregate_sequence);
        Ok(AggregateMark { key, sequence: last.next() })
    }
}
