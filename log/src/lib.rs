//! The log under the broker: records in one total order, durable when the engine says so.
//!
//! - Compare-and-append is the only writing verb; numbering and meaning are decided above, never here.
//! - A record is shown to readers only once it is durable.
//! - After a failed write or sync an engine is poisoned: it appends nothing until it is opened again.
//! - Damage is found by checksum and named by file and offset; a damaged record is never served.
//!
//! What the records mean is the broker's `ledger`'s business; an engine looks at headers only to index them.

mod crash;
mod error;
pub mod file;
mod memory;
mod record;
mod room;
#[cfg(feature = "testing")]
pub mod testing;

pub use crash::{CRASH_POINTS, crash_point};
pub use error::{FileDamage, LogError};
pub use memory::MemoryLog;
pub use record::{AggregateMark, EventFacets, IdempotencyMark, Record, RecordHeader, TopicNumber};
pub use room::StorageRoom;

use contract::{AggregateSequence, BoxFuture, Position, Segment, Sequence};
use tokio::sync::watch;

/// One totally ordered log of records, durable by the time an append answers.
///
/// ```text
///  position   1   2   3   4   5   6   7   8   9  10
///            [a] [b]  ·   ·  [a] [b] [a] [a]  ?   ?
///                     └───┘               │   └───┘ not durable: nobody sees them
///                     removed             tail = 8
///  topic a    1       ·   ·   4       5   6          sequences: 2 and 3 were removed
///                             └ earliest of topic a once 1 is removed too
/// ```
///
/// Positions are dense: the batch after tail `n` starts at `n + 1`. Sequences are dense per topic, aggregate sequences
/// per aggregate; all three come in with the records, and the caller answers for them. A removed record leaves a hole;
/// no number is used twice.
pub trait Log: Send + Sync {
    /// Puts `batch` behind `after`, whole or not at all, if `after` is still the tail.
    ///
    /// - `Ok`: durable, and visible to every reader that asks from now on.
    /// - [`LogError::TailMoved`]: another writer was first; nothing was written. Told before anything else is checked.
    /// - [`LogError::Poisoned`]: this append, or an earlier one, failed half way. Whether the batch will be there after
    ///   reopening is not known, but if it is, it is whole.
    /// - [`LogError::Full`]: there is no room; nothing was written, and [`Log::room`] says so from now on. What is appended then
    ///   must free space: the engine may have kept room for that.
    /// - [`LogError::Unavailable`]: the engine's server is away. Unlike a poisoned log this one recovers by itself. By the
    ///   time a read works again, the batch is at its positions or never will be: nothing of it is still on its way.
    /// - An empty batch is `Ok` and does nothing but compare; it wakes nobody.
    ///
    /// Where several processes share a log, the one whose compare failed has the next turn, for as long as it takes to
    /// read what is new and decide again; so a busy writer cannot keep another from writing.
    ///
    /// Positions in `batch` must run densely from `after + 1`, and times must not fall behind the last record ever stored
    /// (removed or not); anything else is [`LogError::Misnumbered`] and writes nothing. Sequences are the caller's word.
    /// An aggregate's records all lie in one topic. Appends happen in the order in which they were first polled; one
    /// that was begun before another had ended fails if that one does. An append whose future is dropped may still happen.
    fn append(&self, after: Position, batch: Vec<Record>) -> BoxFuture<'_, Result<(), LogError>>;

    /// Records of `range`, in its order, as many as `limit` allows but at least one if there is one.
    ///
    /// - Behind the tail, or in a topic or aggregate nobody wrote to: empty.
    /// - `Topic` reading that would start inside what was removed: [`LogError::Trimmed`] with the first sequence left
    ///   (or the one after the last removed, where none is left). Reading from `earliest - 1` works.
    /// - `All` and `Aggregate` skip holes.
    /// - Limits are exact: a read does not stop early because a file ends.
    fn read(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<Record>, LogError>>;

    /// The headers of the records `read` would give, whatever has become of their bodies.
    ///
    /// For whoever needs no more: the fold of an event, and trimming. A record whose body is damaged ([`LogError::Damaged`]
    /// to its readers) is among them as long as its header is intact; the limit's bytes count bodies as `read` does.
    fn headers(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<RecordHeader>, LogError>> {
        Box::pin(async move { Ok(self.read(range, limit).await?.into_iter().map(|record| record.header).collect()) })
    }

    /// The same for a reader who does not ask where the log ends: what is known to be durable by now.
    ///
    /// `read` of `All` tells the caller that appends what became of its appends. An engine whose server does not confirm
    /// that at the moment refuses it, and can still give what was confirmed before.
    fn read_committed(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<Record>, LogError>> {
        self.read(range, limit)
    }

    /// Reads `Range::All(after)` on behalf of the caller that appends.
    ///
    /// An engine whose connection was lost and made again does not know whether the log behind it is still the one that
    /// its caller has read. For a caller that has called this before, it answers every append with
    /// [`LogError::Unavailable`] until this is called again; the caller compares what it gets with what it knows.
    fn follow(&self, after: Position, limit: ReadLimit) -> BoxFuture<'_, Result<FollowedPage, LogError>> {
        Box::pin(async move {
            let records = self.read(ReadRange::All(after), limit).await?;
            Ok(FollowedPage { records, connection: Some(0) })
        })
    }

    /// The last durable position; changes when an append becomes visible. 0 while the log is empty. It falls only where a
    /// shared log went back: where its server was replaced by one that had not received everything, or was restored.
    fn tail(&self) -> watch::Receiver<Position>;

    /// The header of the one record `what` describes among those not removed, `None` where there is none. Id 0 is no id.
    fn find(&self, what: RecordQuery) -> BoxFuture<'_, Result<Option<RecordHeader>, LogError>>;

    /// The runs of records that hold `topic`'s events, oldest first, without what was removed.
    fn segments(&self, topic: TopicNumber) -> BoxFuture<'_, Result<Vec<Segment>, LogError>>;

    /// Lets go of `topic`'s records up to and including `through`. Durable and seen by readers on `Ok`; the space comes
    /// back when the engine gets to it. Removing twice, or less than before, or from a topic nobody wrote to, does nothing;
    /// removing more than there is removes what there is. Numbers stay taken.
    fn remove(&self, topic: TopicNumber, through: Sequence) -> BoxFuture<'_, Result<(), LogError>>;

    /// Erases the bytes of everything that was removed from the engine's storage; `Ok` when they are gone. What is removed
    /// meanwhile may be erased with it.
    ///
    /// [`LogError::Forbidden`] where the engine cannot say when they are: see [`Log::erases`].
    fn erase(&self) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async { Ok(()) })
    }

    /// Whether [`Log::erase`] works here.
    fn erases(&self) -> bool {
        true
    }

    /// Whether `remove` is allowed here; [`LogError::Forbidden`] says what is missing. Nothing changes.
    ///
    /// Answers the time of the engine's server, in milliseconds since 1970 began, where it has one: what is removed for its age
    /// should be old by that clock too.
    fn may_remove(&self) -> BoxFuture<'_, Result<Option<i64>, LogError>> {
        Box::pin(async { Ok(None) })
    }

    /// The time of the engine's server, in milliseconds since 1970 began, where it has a clock of its own.
    fn server_time(&self) -> BoxFuture<'_, Result<Option<i64>, LogError>> {
        Box::pin(async { Ok(None) })
    }

    /// Whether somebody else may append to it while it is open here.
    fn is_shared(&self) -> bool {
        false
    }

    /// Waits until the engine has given back the space of what was removed, as far as it can.
    fn give_space_back(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// How much room its storage has. Asked before every decision, so it must not wait for the storage.
    fn room(&self) -> StorageRoom {
        StorageRoom::Ample
    }

    /// Whether there is room for nothing but what frees space: what is removed, and what has to be remembered of it.
    fn is_full(&self) -> bool {
        self.room() == StorageRoom::Full
    }

    /// What an operator should know about its storage (room, connections), as a sentence without paths; `None` while all is well.
    fn storage_warning(&self) -> Option<String> {
        None
    }

    /// Whether an append may hold up the thread that polls it, which then should be one of its own.
    fn blocks(&self) -> bool {
        true
    }
}

/// What [`Log::follow`] has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowedPage {
    /// Records behind the position that was asked for.
    pub records: Vec<Record>,
    /// The connection they were read over. Pages and appends over the same connection are of the same log; over another
    /// one the log may have been replaced by an older copy. `None` where the engine cannot tell which connection it was.
    pub connection: Option<u64>,
}

/// Which records to read, and in which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadRange {
    /// Every record behind this position, in global order.
    All(Position),
    /// A topic's records behind this sequence, in topic order.
    Topic(TopicNumber, Sequence),
    /// An aggregate's records behind this number, in aggregate order.
    Aggregate(u128, AggregateSequence),
}

/// Where a read stops. The first record is always given, however large, and even if `records` is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimit {
    /// Most records.
    pub records: usize,
    /// Most bytes of bodies.
    pub bytes: usize,
}

/// One record, described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordQuery {
    /// The first record stored under this id.
    Id(u128),
    /// The first record stored at or after this time (in milliseconds), of one topic or of all.
    Time(Option<TopicNumber>, i64),
    /// The last record of this aggregate.
    Aggregate(u128),
}
