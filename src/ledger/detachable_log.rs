//! The log as a ledger's readers use it: it can be released while the ledger is still referenced.
//!
//! A broker that is opened again needs the folder of the previous one, and its lock. A slow reader may hold the
//! previous ledger for any time; after the release its reads are refused.

use contract::{BoxFuture, Position, Segment, Sequence};
use log::{
    FollowedPage, Log, LogError, ReadLimit, ReadRange, Record, RecordHeader, RecordQuery, StorageRoom, TopicNumber,
};
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::watch;

/// The interval at which the release checks whether reads in flight have ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A log, until it is released.
pub(super) struct DetachableLog {
    held: RwLock<Option<Arc<HeldLog>>>,
    tail: watch::Receiver<Position>,
    is_shared: bool,
    blocks: bool,
}

/// Counts the operations that use the log through this value; the log may have other owners.
struct HeldLog(Arc<dyn Log>);

impl DetachableLog {
    pub(super) fn new(log: Arc<dyn Log>) -> Self {
        let (tail, is_shared, blocks) = (log.tail(), log.is_shared(), log.blocks());
        Self { held: RwLock::new(Some(Arc::new(HeldLog(log)))), tail, is_shared, blocks }
    }

    /// Releases the log, and waits until the operations that use it have ended.
    pub(super) async fn detach(&self) {
        let Some(held) = self.held.write().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let users = Arc::downgrade(&held);
        // Dropping a log may wait for a thread of its own. A panic in it does not keep the ledger from ending.
        let _ = tokio::task::spawn_blocking(move || drop(held)).await;
        while users.strong_count() > 0 {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn current(&self) -> Result<Arc<HeldLog>, LogError> {
        let released =
            || LogError::Unavailable(Arc::new(io::Error::other("the log was released; it is being opened again")));
        self.held.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(released)
    }
}

impl Log for DetachableLog {
    fn append(&self, after: Position, batch: Vec<Record>) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move { self.current()?.0.append(after, batch).await })
    }

    fn read(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<Record>, LogError>> {
        Box::pin(async move { self.current()?.0.read(range, limit).await })
    }

    fn read_committed(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<Record>, LogError>> {
        Box::pin(async move { self.current()?.0.read_committed(range, limit).await })
    }

    fn headers(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<RecordHeader>, LogError>> {
        Box::pin(async move { self.current()?.0.headers(range, limit).await })
    }

    fn follow(&self, after: Position, limit: ReadLimit) -> BoxFuture<'_, Result<FollowedPage, LogError>> {
        Box::pin(async move { self.current()?.0.follow(after, limit).await })
    }

    fn tail(&self) -> watch::Receiver<Position> {
        self.tail.clone()
    }

    fn find(&self, what: RecordQuery) -> BoxFuture<'_, Result<Option<RecordHeader>, LogError>> {
        Box::pin(async move { self.current()?.0.find(what).await })
    }

    fn segments(&self, topic: TopicNumber) -> BoxFuture<'_, Result<Vec<Segment>, LogError>> {
        Box::pin(async move { self.current()?.0.segments(topic).await })
    }

    fn remove(&self, topic: TopicNumber, through: Sequence) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move { self.current()?.0.remove(topic, through).await })
    }

    fn erase(&self) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move { self.current()?.0.erase().await })
    }

    fn erases(&self) -> bool {
        self.current().is_ok_and(|held| held.0.erases())
    }

    fn may_remove(&self) -> BoxFuture<'_, Result<Option<i64>, LogError>> {
        Box::pin(async move { self.current()?.0.may_remove().await })
    }

    fn server_time(&self) -> BoxFuture<'_, Result<Option<i64>, LogError>> {
        Box::pin(async move { self.current()?.0.server_time().await })
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn give_space_back(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Ok(held) = self.current() {
                held.0.give_space_back().await;
            }
        })
    }

    fn room(&self) -> StorageRoom {
        self.current().map_or(StorageRoom::Ample, |held| held.0.room())
    }

    fn storage_warning(&self) -> Option<String> {
        self.current().ok()?.0.storage_warning()
    }

    fn blocks(&self) -> bool {
        self.blocks
    }
}
