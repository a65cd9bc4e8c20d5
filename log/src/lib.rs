//! The log under the broker: records in one total order, durable when the engine says so.
//!
//! - Compare-and-append is the only writing verb; numbering and meaning are decided above, never here.
//! - A record is shown to readers only once it is durable.
//! - After a failed write or sync an engine is poisoned: it appends nothing until it is opened again.
//! - Damage is found by checksum and named by file and offset; a damaged record is never served.
//!
//! What the records mean is decided in the broker's `ledger`; an engine reads headers only to index them.

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

/// One totally ordered log of records, durable by the time an append returns.
///
/// ```text
///  position   1   2   3   4   5   6   7   8   9  10
///            [a] [b]  ·   ·  [a] [b] [a] [a]  ?   ?
///                     └───┘               │   └───┘ not durable: not visible
///                     removed             tail = 8
///  topic a    1       ·   ·   4       5   6          sequences: 2 and 3 were removed
///                             └ earliest of topic a once 1 is removed too
/// ```
///
/// Positions are dense: the batch after tail `n` starts at `n + 1`. Sequences are dense per topic, aggregate sequences
/// per aggregate; the caller assigns all three and is responsible for them. A removed record leaves a hole; no number is
/// used twice.
pub trait Log: Send + Sync {
    /// Appends `batch` after `after`, completely or not at all, if `after` is still the tail.
    ///
    /// - `Ok`: durable, and visible to every read that begins from now on.
    /// - [`LogError::TailMoved`]: another writer was first; nothing was written. This is checked before anything else.
    /// - [`LogError::Poisoned`]: this append, or an earlier one, failed half way. Whether the batch is there after
    ///   reopening is not known, but if it is, it is complete.
    /// - [`LogError::Full`]: there is no room; nothing was written, and [`Log::room`] says so from now on. From then on
    ///   only append what frees space: the engine may have kept room for that.
    /// - [`LogError::Unavailable`]: the engine's server cannot be reached. Unlike a poisoned log this one recovers by itself.
    ///   When a read works again, the batch is at its positions or never will be: nothing of it is still in flight.
    /// - An empty batch only compares; if it is `Ok`, no reader is woken.
    ///
    /// If several processes share a log, the one whose comparison failed has the next turn, for as long as it takes to read
    /// the new records and decide again; so a busy writer cannot starve another.
    ///
    /// Positions in `batch` must be dense from `after + 1`, and times must not be earlier than that of the last record ever
    /// stored (removed or not); otherwise the result is [`LogError::Misnumbered`], and nothing is written. Sequences are not checked.
    /// An aggregate's records all lie in one topic. Appends happen in the order in which they were first polled; one
    /// that began before another had ended fails if that one does. An append whose future is dropped may still happen.
    fn append(&self, after: Position, batch: Vec<Record>) -> BoxFuture<'_, Result<(), LogError>>;

    /// Reads records of `range`, in its order, as many as `limit` allows, but at least one if there is one.
    ///
    /// - After the tail, or in a topic or aggregate without records: empty.
    /// - A `Topic` range that starts among removed records: [`LogError::Trimmed`] with the first sequence left (or the one
    ///   after the last removed, if none is left). Reading from `earliest - 1` works.
    /// - `All` and `Aggregate` skip holes.
    /// - Limits are exact: a read does not stop early because a file ends.
    fn read(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<Record>, LogError>>;

    /// Reads the headers of the records that `read` would return, even if their bodies are damaged.
    ///
    /// The fold of an event and trimming need no more. A record whose body is damaged ([`LogError::Damaged`] for `read`) is
    /// included as long as its header is intact; the limit's bytes count bodies as in `read`.
    fn headers(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<RecordHeader>, LogError>> {
        Box::pin(async move { Ok(self.read(range, limit).await?.into_iter().map(|record| record.header).collect()) })
    }

    /// Reads what is known to be durable by now, for a reader that does not need the end of the log.
    ///
    /// `read` of `All` shows the caller that appends which of its appends are stored. If the engine's server cannot confirm
    /// that at the moment, `read` fails, and this still returns what was confirmed before.
    fn read_committed(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<Record>, LogError>> {
        self.read(range, limit)
    }

    /// Reads `Range::All(after)` on behalf of the caller that appends.
    ///
    /// An engine whose connection was lost and made again does not know whether the log behind it is still the one that
    /// its caller has read. For a caller that has called this before, every append fails with [`LogError::Unavailable`]
    /// until this is called again; the caller compares the result with its state.
    fn follow(&self, after: Position, limit: ReadLimit) -> BoxFuture<'_, Result<FollowedPage, LogError>> {
        Box::pin(async move {
            let records = self.read(ReadRange::All(after), limit).await?;
            Ok(FollowedPage { records, connection: Some(0) })
        })
    }

    /// The last durable position; changes when an append becomes visible. 0 while the log is empty. It falls only if a shared
    /// log went back: if its server was replaced by one that had not received everything, or was restored.
    fn tail(&self) -> watch::Receiver<Position>;

    /// Finds the header of the record that `what` describes among those not removed. Id 0 matches none.
    fn find(&self, what: RecordQuery) -> BoxFuture<'_, Result<Option<RecordHeader>, LogError>>;

    /// Lists the runs of records that hold `topic`'s events, oldest first, without removed ones.
    fn segments(&self, topic: TopicNumber) -> BoxFuture<'_, Result<Vec<Segment>, LogError>>;

    /// Removes `topic`'s records up to and including `through`. On `Ok` the removal is durable and visible to readers; the
    /// space is freed later. Removing twice, or less than before, or from a topic without records, does nothing; removing more
    /// than there is removes what there is. Numbers are not assigned again.
    fn remove(&self, topic: TopicNumber, through: Sequence) -> BoxFuture<'_, Result<(), LogError>>;

    /// Erases the bytes of all removed records from the engine's storage; `Ok` when they are gone. Records that are removed in
    /// the meantime may be erased too.
    ///
    /// [`LogError::Forbidden`] if the engine does not know when they are gone: see [`Log::erases`].
    fn erase(&self) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async { Ok(()) })
    }

    /// Whether the engine supports [`Log::erase`].
    fn erases(&self) -> bool {
        true
    }

    /// Checks whether `remove` is allowed, without a change; [`LogError::Forbidden`] names the missing privilege.
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

    /// Whether other processes may append while it is open here.
    fn is_shared(&self) -> bool {
        false
    }

    /// Waits until the engine has given back the space of what was removed, as far as it can.
    fn give_space_back(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// How much room its storage has. Called before every decision, so it must not wait for the storage.
    fn room(&self) -> StorageRoom {
        StorageRoom::Ample
    }

    /// Whether there is room only for what frees space: removals, and what must be stored because of them.
    fn is_full(&self) -> bool {
        self.room() == StorageRoom::Full
    }

    /// What an operator should know about its storage (room, connections), as a sentence without paths; `None` while all is well.
    fn storage_warning(&self) -> Option<String> {
        None
    }

    /// Whether an append may block the thread that polls it; then it should have a thread of its own.
    fn blocks(&self) -> bool {
        true
    }
}

/// What [`Log::follow`] has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowedPage {
    /// Records after the position that was asked for.
    pub records: Vec<Record>,
    /// The connection they were read over. Pages and appends over the same connection belong to the same log; over another one
    /// the log may have been replaced by an older copy. `None` if the engine does not know the connection.
    pub connection: Option<u64>,
}

/// Which records to read, and in which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadRange {
    /// Every record after this position, in global order.
    All(Position),
    /// A topic's records after this sequence, in topic order.
    Topic(TopicNumber, Sequence),
    /// An aggregate's records after this number, in aggregate order.
    Aggregate(u128, AggregateSequence),
}

/// Where a read stops. The first record is always returned, however large, even if `records` is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimit {
    /// The limit of records.
    pub records: usize,
    /// The limit of bytes of bodies.
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
