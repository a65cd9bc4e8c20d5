//! The data dictionary: every bookkeeping fact of the broker, one doc comment each.
//!
//! Facts are in the past tense and carry the complete new value, so that applying one needs nothing else.
//! They are JSON on disk: a member may be added with a default, and no member may change its meaning.
//!
//! To add a kind of fact, or a member that an older broker must not ignore, after a release with the current
//! [`DICTIONARY`]: raise that number and name it in [`Entry::since`]. The first such fact is then preceded by
//! `dictionaryRaised`, at which older brokers stop. A kind that older brokers may skip has a member `ignorable: true`
//! instead. Nothing else is skipped: a fact that cannot be read stops the ledger.

mod concern;
mod since;
mod subject;

pub(in crate::ledger) use concern::EntryConcern;

use super::carried_rows::CarriedRows;
use super::placement::{LogLocation, TopicPlacement};
use crate::ledger::decide::stored_reply::{self, StoredReply};
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
/// The version of a log without `dictionaryRaised`.
pub(in crate::ledger) const DICTIONARY_BASELINE: u32 = 1;

/// One fact, as the body of a record of topic 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "camelCase")]
pub enum Entry {
    /// The following entries need this version of the dictionary, or a later one.
    DictionaryRaised {
        /// The version.
        dictionary: u32,
        /// The version of the broker that wrote it.
        by: String,
    },
    /// A topic was registered under this number in the log.
    TopicRegistered {
        /// Its number in this log, dense from 1.
        number: u32,
        /// The topic.
        topic: Topic,
    },
    /// A topic's definition was replaced.
    TopicChanged {
        /// The new definition; its id names the topic.
        topic: Topic,
    },
    /// A topic was placed in another log, with this definition. Its number, its events and everything that belongs to
    /// them are facts of that log; that it exists, and in which log, is a fact of the default log.
    TopicPlaced {
        /// The topic and its log.
        placed: TopicPlacement,
    },
    /// A topic was deleted, with its events, the progress of handlers and groups in it, and its open dead letters. Its
    /// number is never assigned again.
    TopicDeleted {
        /// The topic.
        topic: TopicId,
        /// Its number in this log; 0 if it was in another log.
        number: u32,
        /// Its last sequence.
        through: Sequence,
    },
    /// A log that no topic is placed in any more was erased: it holds no bytes of removed events, and need not be opened
    /// again for that.
    LogErased {
        /// The log.
        location: LogLocation,
    },
    /// Memory logs were emptied: the topics in them continue after this sequence.
    MemoryEmptied {
        /// Every sequence that such a topic can have assigned is at or below this.
        floor: Sequence,
    },
    /// An event type was registered.
    EventTypeRegistered {
        /// The event type.
        event_type: EventType,
    },
    /// Schema versions of an event type were added or replaced; its other versions are unchanged.
    VersionsChanged {
        /// The event type.
        event_type: EventTypeId,
        /// The versions that are new or changed, complete.
        versions: Vec<RegisteredVersion>,
    },
    /// An event type was archived: it accepts no more events.
    EventTypeArchived {
        /// The event type.
        event_type: EventTypeId,
    },
    /// An archived event type was deleted; no event of it is stored. Its name can be registered again.
    EventTypeDeleted {
        /// The event type.
        event_type: EventTypeId,
    },
    /// Events are about to be removed; these rows of theirs remain valid.
    HistoryCarried {
        /// The rows.
        carried: CarriedRows,
    },
    /// A topic was trimmed.
    TopicTrimmed {
        /// The topic's number.
        number: u32,
        /// The last sequence that was removed.
        through: Sequence,
    },
    /// Events of a topic were lost to damage, and `repair` has cut them out. Their numbers are never assigned again.
    EventsLost {
        /// The topic's number.
        number: u32,
        /// First and last sequence of each range of events.
        runs: Vec<(Sequence, Sequence)>,
    },
    /// Facts were lost to damage, and `repair` stored the state that they had led to. It replaces all consumers,
    /// offsets, projections, claims, dead letters, subscriptions and jobs.
    PartsCarried {
        /// Which piece of the text this is, from 1.
        piece: u32,
        /// How many pieces there are.
        of: u32,
        /// The piece.
        text: String,
    },
    /// A consumer was created; its session begins.
    ConsumerCreated {
        /// The consumer.
        consumer: Consumer,
    },
    /// A consumer's session was restarted at the time of this record.
    ConsumerSeen {
        /// The consumer.
        id: Uuid,
    },
    /// A consumer was deleted by a request.
    ConsumerDeleted {
        /// The consumer.
        id: Uuid,
    },
    /// Consumers were deleted because their sessions expired.
    ConsumersExpired {
        /// The consumers.
        ids: Vec<Uuid>,
    },
    /// A group committed its offset in a topic.
    OffsetCommitted {
        /// The group.
        group: String,
        /// The topic.
        topic: TopicId,
        /// The last sequence that it has read.
        offset: Offset,
    },
    /// A group's offset in a topic was reset, backward or forward.
    OffsetReset {
        /// The group.
        group: String,
        /// The topic.
        topic: TopicId,
        /// The new offset.
        offset: Offset,
    },
    /// A projection was registered or redefined. A new one begins with checkpoint 0, in its first generation.
    ProjectionPut {
        /// Its name.
        name: String,
        /// What it reads.
        definition: NewProjection,
    },
    /// A projection was deleted.
    ProjectionDeleted {
        /// Its name.
        name: String,
    },
    /// A projection's checkpoint was moved.
    CheckpointMoved {
        /// Its name.
        name: String,
        /// The last sequence that its view has applied.
        offset: Offset,
    },
    /// A projection was reset: its view is to be rebuilt.
    ProjectionReset {
        /// Its name.
        name: String,
        /// The offset that it restarts from.
        offset: Offset,
        /// The new generation.
        generation: Generation,
    },
    /// The reply to a request with an idempotency key was stored. A repetition of the request receives this reply.
    AnswerKept {
        /// Fingerprint of the key and its scope.
        #[serde(with = "stored_reply::digits")]
        key: u128,
        /// Fingerprint of the request.
        digest: u64,
        /// The reply.
        answer: StoredReply,
        /// When it was first stored, in milliseconds, if that entry is being reclaimed: its lifetime is not extended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept_at: Option<i64>,
    },
    /// A handler's policy was defined.
    HandlerPut {
        /// Its name.
        name: String,
        /// The members that the request set; the others come from the configuration.
        definition: NewHandler,
    },
    /// An event was claimed: for the first time, again, or after the previous lease expired. The position of this entry
    /// is the fencing token.
    ClaimTaken {
        /// The event and the handler.
        claim: ClaimKey,
        /// The event's id.
        event: Uuid,
        /// The worker.
        owner: String,
        /// How long the lease lasts without a heartbeat, in milliseconds.
        lease_millis: i64,
        /// The number of the attempt.
        attempt: u32,
    },
    /// A claim's lease was restarted at the time of this record.
    ClaimExtended {
        /// The claim.
        claim: ClaimKey,
    },
    /// A claim was completed.
    ClaimDone {
        /// The claim.
        claim: ClaimKey,
        /// The token of the worker that completed it.
        token: FencingToken,
    },
    /// Claims were released: their events can be claimed again at once.
    ClaimsReleased {
        /// The handler.
        handler: String,
        /// The topic's number in this log.
        topic: u32,
        /// The events.
        sequences: Vec<Sequence>,
        /// Whether the attempts count: the worker did not release the claims itself, its session ended. Then the leases
        /// have expired, and each token stays valid until another worker claims the event.
        spent: bool,
    },
    /// An attempt failed.
    ClaimFailed {
        /// The claim.
        claim: ClaimKey,
        /// The error.
        error: ClaimError,
        /// When the next attempt may begin, in milliseconds; none: the claim is given up, as the next entry records.
        retry_at: Option<i64>,
    },
    /// A claim or a job was given up.
    DeadLettered {
        /// The dead letter, with the error and the attempts.
        letter: Box<StoredDeadLetter>,
    },
    /// A dead letter was redriven: its claim or job is to be tried again.
    Redriven {
        /// The dead letter.
        letter: Uuid,
        /// Its claim, if it was one.
        claim: Option<ClaimKey>,
        /// The operator.
        by: String,
        /// The reason that the operator named.
        reason: Option<String>,
        /// The corrected event that replaces the old one. The old event then needs no more work.
        new_event: Option<Uuid>,
        /// The sequence that identifies the replaced event, if it was a republished copy: other copies are replaced, too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        original: Option<Sequence>,
        /// Its job, if it was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<JobKey>,
    },
    /// A shared group began to divide a topic among its members: each event is assigned to one of them, as a claim.
    GroupBegan {
        /// The group, and the handler of that name.
        group: String,
        /// The topic's number in this log.
        topic: u32,
        /// The first event is the one after this offset.
        offset: Offset,
    },
    /// Events were skipped by a shared group: they do not match its filter, or they are removed.
    EventsPassed {
        /// The group.
        group: String,
        /// The topic's number in this log.
        topic: u32,
        /// First and last sequence of each range of events.
        runs: Vec<(Sequence, Sequence)>,
    },
    /// A shared group was reset to repeat these events: those that it has finished are assigned again.
    EventsRepeated {
        /// The group.
        group: String,
        /// The topic's number in this log.
        topic: u32,
        /// The first of them.
        from: Sequence,
        /// The last of them.
        to: Sequence,
        /// Republished copies among them whose originals are not: the sequence that identifies each, and where it is stored.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        copies: Vec<(Sequence, Sequence)>,
    },
    /// A shared group's offset was reset: it continues after this, whatever it has finished there.
    GroupMoved {
        /// The group.
        group: String,
        /// The topic's number in this log.
        topic: u32,
        /// The new offset.
        offset: Offset,
    },
    /// A dead letter was discarded: its claim or job need not be done.
    Discarded {
        /// The dead letter.
        letter: Uuid,
        /// Its claim, if it was one.
        claim: Option<ClaimKey>,
        /// The operator.
        by: String,
        /// The reason that the operator named.
        reason: String,
        /// Its job, if it was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<JobKey>,
    },
    /// A handler was deleted, with its policy, its open claims and its finished claims. Its open dead letters are
    /// closed.
    HandlerDeleted {
        /// Its name.
        name: String,
        /// Topics that the shared group of its name divided: the offsets there are deleted, too.
        topics: Vec<TopicId>,
    },
    /// A group was deleted, with all its offsets.
    GroupDeleted {
        /// The group.
        group: String,
        /// Numbers of the topics that it divided as a shared group: there the finished claims, open claims and dead
        /// letters of the handler of its name are deleted, too.
        topics: Vec<u32>,
    },
    /// A fact about subscriptions, jobs or pools.
    Dispatch {
        /// The fact.
        what: DispatchFact,
    },
    /// A broker began to write a snapshot of the small state, so that the entries before it can be removed. The
    /// position of this entry identifies the snapshot.
    SnapshotBegan {},
    /// A part of the small state as of one position after `snapshotBegan`. It changes no state.
    SnapshotPart {
        /// The snapshot.
        snapshot: Position,
        /// The number of the part, from 1.
        part: u32,
        /// Whether it is the last part.
        is_last: bool,
        /// A piece of JSON text.
        text: String,
    },
    /// A snapshot is complete, and the table rows that old entries put were written again. Those entries can be
    /// removed.
    SnapshotTaken {
        /// The snapshot.
        snapshot: Position,
        /// The last entry that can be removed.
        through: Sequence,
        /// The time of the state in the snapshot, in milliseconds.
        at: i64,
        /// Bytes of the bodies of the entries that can be removed.
        reclaimed_bytes: u64,
        /// Bytes of the stored replies among them.
        reclaimed_answer_bytes: u64,
        /// Bytes that were written in their place.
        live_bytes: u64,
    },
}

impl Entry {
    /// The fact in a record's body; `None` for a fact of a newer version that may be skipped.
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
}

/// The members that every fact has.
#[derive(Deserialize)]
struct EntryOutline {
    fact: String,
    #[serde(default)]
    ignorable: bool,
}

pub(in crate::ledger) fn unreadable(fact: &str, cause: &serde_json::Error) -> String {
    let cause = cause.to_string();
    // The error lists every known kind; that does not help the reader.
    let cause = cause.split(", expected").next().unwrap_or_default();
    format!(
        "is a fact `{fact}` that this version ({}) cannot read ({cause}); run the version that wrote it, or a later one",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests;
