//! The data dictionary: every bookkeeping fact of the broker's own, one doc comment each.
//!
//! Facts are past tense and carry the whole thing as it is from then on, so that applying one needs nothing else.
//! They are JSON on disk: a member may be added with a default, none may change its meaning.
//!
//! Whoever adds a kind, or a member that an older broker must not overlook, once a release has [`DICTIONARY`] in it:
//! raises that number and says so in [`Entry::since`]. The first such fact is then preceded by `dictionaryRaised`, at
//! which older brokers stop. A kind that older brokers may skip has a member `ignorable: true` instead. Nothing else is
//! skipped: a fact that cannot be read stops the ledger.

mod concern;
mod subject;

pub(in crate::ledger) use concern::EntryConcern;

use super::carried_rows::CarriedRows;
use super::placement::TopicPlacement;
use crate::ledger::decide::idempotency::{self, StoredReply};
use crate::ledger::facts::dispatch::DispatchFact;
use crate::ledger::state::claims::ClaimKey;
use crate::ledger::state::dead_letters::StoredDeadLetter;
use crate::ledger::state::dispatch::JobKey;
use contract::{
    ClaimError, Consumer, EventType, EventTypeId, FencingToken, Generation, NewHandler, NewProjection, Offset,
    Position, RegisteredVersion, Sequence, Topic, TopicId,
};
use log::{LogError, Record};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The version of this dictionary.
pub(in crate::ledger) const DICTIONARY: u32 = 2;
/// The version of a log that says nothing of it.
pub(in crate::ledger) const DICTIONARY_BASELINE: u32 = 1;

/// One fact, as the body of a record of topic 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "camelCase")]
pub enum Entry {
    /// What comes from here on needs this version of the dictionary, or a later one.
    DictionaryRaised {
        /// The version.
        dictionary: u32,
        /// The version of the broker that wrote it.
        by: String,
    },
    /// A topic exists from here on, under this number in the log.
    TopicRegistered {
        /// Its number in this log, dense from 1.
        number: u32,
        /// The topic.
        topic: Topic,
    },
    /// A topic's definition is this from here on.
    TopicChanged {
        /// The topic as it is now; its id says which.
        topic: Topic,
    },
    /// A topic lives in another log from here on, defined so. Its number, its events and all that belongs to them are
    /// facts of that log; that it exists, and where, is one of the default log.
    TopicPlaced {
        /// The topic and its log.
        placed: TopicPlacement,
    },
    /// A topic is gone from here on: its events, what handlers and groups have done there, and its open dead letters. Its
    /// number is not given again.
    TopicDeleted {
        /// The topic.
        topic: TopicId,
        /// Its number in this log; 0 where it lived in another one.
        number: u32,
        /// Its last sequence.
        through: Sequence,
    },
    /// Memory logs are empty from here on: the topics that live in them go on behind this sequence.
    MemoryEmptied {
        /// Every sequence such a topic may have given is at or below it.
        floor: Sequence,
    },
    /// An event type exists from here on.
    EventTypeRegistered {
        /// The event type.
        event_type: EventType,
    },
    /// Schema versions of an event type are these from here on; its others stay as they are.
    VersionsChanged {
        /// The event type.
        event_type: EventTypeId,
        /// The versions that are new or changed, whole.
        versions: Vec<RegisteredVersion>,
    },
    /// An event type takes no more events from here on.
    EventTypeArchived {
        /// The event type.
        event_type: EventTypeId,
    },
    /// An archived event type is gone from here on; no event of it is stored. Its name may be registered again.
    EventTypeDeleted {
        /// The event type.
        event_type: EventTypeId,
    },
    /// Events are about to go; these rows of theirs stay true.
    HistoryCarried {
        /// The rows.
        carried: CarriedRows,
    },
    /// A topic's beginning is gone from here on.
    TopicTrimmed {
        /// The topic's number.
        number: u32,
        /// The last sequence that went.
        through: Sequence,
    },
    /// Events of a topic were lost to damage, and `repair` has cut them out. Their numbers stay taken.
    EventsLost {
        /// The topic's number.
        number: u32,
        /// First and last sequence of each run of them.
        runs: Vec<(Sequence, Sequence)>,
    },
    /// Facts were lost to damage, and `repair` says what they had come to: consumers, offsets, projections, claims, dead
    /// letters, subscriptions and jobs are these from here on.
    PartsCarried {
        /// Which piece of the text this is, from 1.
        piece: u32,
        /// How many pieces there are.
        of: u32,
        /// The piece.
        text: String,
    },
    /// A consumer exists from here on; its session begins.
    ConsumerCreated {
        /// The consumer.
        consumer: Consumer,
    },
    /// A consumer's session began anew at the time of this record.
    ConsumerSeen {
        /// Which one.
        id: Uuid,
    },
    /// A consumer is gone because somebody said so.
    ConsumerDeleted {
        /// Which one.
        id: Uuid,
    },
    /// Consumers are gone because their sessions ran out.
    ConsumersExpired {
        /// Which ones.
        ids: Vec<Uuid>,
    },
    /// A group says how far it has come in a topic.
    OffsetCommitted {
        /// The group.
        group: String,
        /// The topic.
        topic: TopicId,
        /// What it has seen.
        offset: Offset,
    },
    /// Somebody moved a group's offset in a topic, back or forth.
    OffsetReset {
        /// The group.
        group: String,
        /// The topic.
        topic: TopicId,
        /// Where it stands from here on.
        offset: Offset,
    },
    /// A projection is defined so from here on. One that is new stands at 0, in its first generation.
    ProjectionPut {
        /// Its name.
        name: String,
        /// What it reads.
        definition: NewProjection,
    },
    /// A projection is gone.
    ProjectionDeleted {
        /// Its name.
        name: String,
    },
    /// A projection's view has come this far.
    CheckpointMoved {
        /// Its name.
        name: String,
        /// What is applied.
        offset: Offset,
    },
    /// A projection's view is to be rebuilt.
    ProjectionReset {
        /// Its name.
        name: String,
        /// Where it begins anew.
        offset: Offset,
        /// The generation that begins.
        generation: Generation,
    },
    /// A request under a key was answered so. Whoever sends it again gets this answer.
    AnswerKept {
        /// Fingerprint of the key and its scope.
        #[serde(with = "idempotency::digits")]
        key: u128,
        /// Fingerprint of the request.
        digest: u64,
        /// The answer.
        answer: StoredReply,
        /// When it was kept first, in milliseconds, where the entry that said so is reclaimed: it lives no longer for that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept_at: Option<i64>,
    },
    /// A handler's work is to be tried so from here on.
    HandlerPut {
        /// Its name.
        name: String,
        /// What somebody said; the rest is the configuration's.
        definition: NewHandler,
    },
    /// An event was claimed: for the first time, again, or over the head of somebody who fell silent. The position of
    /// this entry is the token.
    ClaimTaken {
        /// Which event, by which handler.
        claim: ClaimKey,
        /// The event's id.
        event: Uuid,
        /// Who does the work.
        owner: String,
        /// How long it holds without a heartbeat, in milliseconds.
        lease_millis: i64,
        /// Which attempt it is.
        attempt: u32,
    },
    /// A claim's lease began anew at the time of this record.
    ClaimExtended {
        /// Which one.
        claim: ClaimKey,
    },
    /// The work is done, once and for all.
    ClaimDone {
        /// Which claim.
        claim: ClaimKey,
        /// By whom.
        token: FencingToken,
    },
    /// Claims were given back: their events may be claimed again at once.
    ClaimsReleased {
        /// The handler.
        handler: String,
        /// The topic's number in this log.
        topic: u32,
        /// The events.
        sequences: Vec<Sequence>,
        /// Whether the attempts count: the worker did not give them back itself, its session ended. Then the lease is
        /// over, and the token holds until somebody else claims the event.
        spent: bool,
    },
    /// An attempt failed.
    ClaimFailed {
        /// Which claim.
        claim: ClaimKey,
        /// Why.
        error: ClaimError,
        /// When the next one may begin, in milliseconds; none: it is given up, and the next entry says so.
        retry_at: Option<i64>,
    },
    /// Work was given up.
    DeadLettered {
        /// What, why, and what was tried.
        letter: Box<StoredDeadLetter>,
    },
    /// Somebody wants work that was given up tried again.
    Redriven {
        /// Which letter.
        letter: Uuid,
        /// The claim it was.
        claim: Option<ClaimKey>,
        /// Who.
        by: String,
        /// Why.
        reason: Option<String>,
        /// The event that takes the place of the old one, which needs no more work then.
        new_event: Option<Uuid>,
        /// The job it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<JobKey>,
    },
    /// A group divides a topic among its members from here on: each event is handed to one of them, as a claim.
    GroupBegan {
        /// The group, and the handler of that name.
        group: String,
        /// The topic's number in this log.
        topic: u32,
        /// It begins behind this.
        offset: Offset,
    },
    /// Events are none of a dividing group's business: its filter does not take them, or they are gone.
    EventsPassed {
        /// The group.
        group: String,
        /// The topic's number in this log.
        topic: u32,
        /// First and last sequence of each run of them.
        runs: Vec<(Sequence, Sequence)>,
    },
    /// A dividing group is to be handed again what it has finished of these events.
    EventsRepeated {
        /// The group.
        group: String,
        /// The topic's number in this log.
        topic: u32,
        /// The first of them.
        from: Sequence,
        /// The last of them.
        to: Sequence,
    },
    /// Somebody moved a dividing group: it goes on behind this, whatever it has finished there.
    GroupMoved {
        /// The group.
        group: String,
        /// The topic's number in this log.
        topic: u32,
        /// Where it stands from here on.
        offset: Offset,
    },
    /// Somebody decided that work that was given up need not be done.
    Discarded {
        /// Which letter.
        letter: Uuid,
        /// The claim it was.
        claim: Option<ClaimKey>,
        /// Who.
        by: String,
        /// Why.
        reason: String,
        /// The job it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<JobKey>,
    },
    /// A handler is gone: its policy, its open claims, and what it has finished. Its open dead letters are closed.
    HandlerDeleted {
        /// Its name.
        name: String,
        /// Topics that the group of its name divided: the offsets there are gone, too.
        topics: Vec<TopicId>,
    },
    /// A group is gone: all its offsets.
    GroupDeleted {
        /// The group.
        group: String,
        /// Numbers of the topics that it divided: what the handler of its name has finished there, its open claims and
        /// dead letters go with it.
        topics: Vec<u32>,
    },
    /// Something about subscriptions, jobs or pools.
    Dispatch {
        /// What.
        what: DispatchFact,
    },
    /// Somebody begins to write down the small state, so that the entries up to then can go. The
    /// position of this entry names the snapshot.
    SnapshotBegan {},
    /// A piece of the small state as of one position behind `snapshotBegan`. It changes nothing.
    SnapshotPart {
        /// Which snapshot.
        snapshot: Position,
        /// Which piece, from 1.
        part: u32,
        /// Whether it is the last one.
        is_last: bool,
        /// A piece of JSON text.
        text: String,
    },
    /// A snapshot is whole, and what else is still true of the entries up to it was written again. They may go.
    SnapshotTaken {
        /// Which snapshot.
        snapshot: Position,
        /// The last entry that may go.
        through: Sequence,
        /// The time of the state that it describes, in milliseconds.
        at: i64,
        /// Bytes of the bodies of the entries that may go.
        reclaimed_bytes: u64,
        /// Those of the kept answers among them.
        reclaimed_answer_bytes: u64,
        /// Bytes that were written instead.
        live_bytes: u64,
    },
}

impl Entry {
    /// The fact in a record's body; `None` where it is one of a newer version that may be skipped.
    pub(in crate::ledger) fn of(record: &Record) -> Result<Option<Self>, LogError> {
        let position = record.header.position;
        match serde_json::from_slice(&record.body) {
            Ok(Self::DictionaryRaised { dictionary, by }) if dictionary > DICTIONARY => {
                let reason = format!("was written by version {by} of the broker; run that version");
                Err(LogError::Unsupported { position, reason })
            }
            Ok(entry) => Ok(Some(entry)),
            Err(cause) => match serde_json::from_slice::<EntryOutline>(&record.body) {
                Ok(EntryOutline { ignorable: true, .. }) => Ok(None),
                Ok(EntryOutline { fact, .. }) => {
                    Err(LogError::Unsupported { position, reason: unreadable(&fact, &cause) })
                }
                Err(_) => Err(LogError::Unsupported { position, reason: format!("is no fact: {cause}") }),
            },
        }
    }

    /// The first version of the dictionary that has this fact as it is.
    pub(in crate::ledger) const fn since(&self) -> u32 {
        match self {
            Self::TopicDeleted { .. }
            | Self::EventTypeDeleted { .. }
            | Self::SnapshotBegan {}
            | Self::SnapshotPart { .. }
            | Self::SnapshotTaken { .. }
            | Self::AnswerKept { kept_at: Some(_), .. } => 2,
            Self::TopicPlaced { placed } if placed.deleting => 2,
            _ => DICTIONARY_BASELINE,
        }
    }
}

/// What every fact has.
#[derive(Deserialize)]
struct EntryOutline {
    fact: String,
    #[serde(default)]
    ignorable: bool,
}

pub(in crate::ledger) fn unreadable(fact: &str, cause: &serde_json::Error) -> String {
    let cause = cause.to_string();
    // The list of everything that is known helps nobody.
    let cause = cause.split(", expected").next().unwrap_or_default();
    format!(
        "is a fact `{fact}` that this version ({}) cannot read ({cause}); run the version that wrote it, or a later one",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests;
