//! Memory: budgets of bytes for request bodies that are held and for answers that are being sent.
//!
//! - A [`Room`] is a part of a budget. It grows as bytes arrive, shrinks when less is needed, and is given back when it is
//!   dropped.
//! - Nothing is taken for what is only announced: a client holds no more room than it has sent bytes.

mod page;

pub(crate) use page::{PAGE_BYTES_MAX, PAGE_ROOM_MIN, PageRoom, page_bytes, page_has};

use contract::{Error, Kind, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Room is taken in steps of this size while the final size is not known.
pub(crate) const ROOM_STEP: usize = 64 * 1024;
/// How long a caller that can wait does so, before it is refused.
pub(crate) const ROOM_WAIT: Duration = Duration::from_secs(2);

/// Bytes of one kind that may be held at a time.
#[derive(Clone)]
pub(crate) struct ByteBudget {
    free: Arc<Semaphore>,
    /// What is left to rooms of at most [`ROOM_STEP`] bytes, so that large ones do not keep out small ones.
    reserve: usize,
    /// What a caller is told when there is no room.
    refusal: &'static str,
}

impl ByteBudget {
    pub(crate) fn new(bytes: usize, refusal: &'static str) -> Self {
        Self { free: Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))), reserve: 0, refusal }
    }

    /// The same, of which so many bytes are left to small rooms.
    pub(crate) fn with_reserve(self, reserve: usize) -> Self {
        Self { reserve, ..self }
    }

    /// Room for so many bytes: now or not at all.
    pub(crate) fn take(&self, bytes: usize) -> Result<Room> {
        let permit = Arc::clone(&self.free).try_acquire_many_owned(permits(bytes)).map_err(|_| self.refused())?;
        Ok(Room { permit, budget: self.clone() })
    }

    /// The same, but it may take a moment.
    pub(crate) async fn take_soon(&self, bytes: usize) -> Result<Room> {
        if let Ok(room) = self.take(bytes) {
            return Ok(room);
        }
        let waiting = Arc::clone(&self.free).acquire_many_owned(permits(bytes));
        match tokio::time::timeout(ROOM_WAIT, waiting).await {
            Ok(Ok(permit)) => Ok(Room { permit, budget: self.clone() }),
            _ => Err(self.refused()),
        }
    }

    /// Bytes that nobody holds.
    pub(crate) fn free(&self) -> usize {
        self.free.available_permits()
    }

    #[cold]
    fn refused(&self) -> Error {
        Error::new(Kind::Overloaded, self.refusal).with_retry_after(1)
    }
}

fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A part of a budget.
pub(crate) struct Room {
    permit: OwnedSemaphorePermit,
    budget: ByteBudget,
}

impl Room {
    /// How many bytes it is for.
    pub(crate) fn bytes(&self) -> usize {
        self.permit.num_permits()
    }

    /// Grows to at least so many bytes, now or not at all.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<()> {
        if bytes > self.bytes() {
            let more = bytes - self.bytes();
            // Read and taken in two steps: a few that do so at once may use some of the reserve, which does no harm.
            if bytes > ROOM_STEP && self.budget.free() < more.saturating_add(self.budget.reserve) {
                return Err(self.budget.refused());
            }
            self.permit.merge(self.budget.take(more)?.permit);
        }
        Ok(())
    }

    /// The same, but it may take a moment.
    pub(crate) async fn grow_soon_to(&mut self, bytes: usize) -> Result<()> {
        if bytes > self.bytes() {
            self.permit.merge(self.budget.take_soon(bytes - self.bytes()).await?.permit);
        }
        Ok(())
    }

    /// Gives back what is beyond so many bytes.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if let Some(excess) = self.bytes().checked_sub(bytes) {
            drop(self.permit.split(excess));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn room_grows_shrinks_and_is_given_back() {
        let budget = ByteBudget::new(100, "full");
        let mut room = budget.take(10).unwrap();
        room.grow_to(60).unwrap();
        room.grow_to(20).unwrap();
        assert_eq!((room.bytes(), budget.free()), (60, 40));
        let refused = room.grow_to(101).unwrap_err();
        assert_eq!((refused.kind(), refused.retry_after_seconds()), (Kind::Overloaded, Some(1)));
        assert_eq!((room.bytes(), budget.free()), (60, 40), "a refusal takes nothing");
        assert!(room.grow_soon_to(101).await.is_err());
        room.shrink_to(30);
        assert_eq!((room.bytes(), budget.free()), (30, 70));
        drop(room);
        assert_eq!(budget.free(), 100);
    }

    #[test]
    fn large_rooms_leave_some_to_small_ones() {
        let budget = ByteBudget::new(8 * ROOM_STEP, "full").with_reserve(2 * ROOM_STEP);
        let mut large = budget.take(0).unwrap();
        assert!(large.grow_to(7 * ROOM_STEP).is_err());
        large.grow_to(6 * ROOM_STEP).unwrap();
        let mut small = budget.take(0).unwrap();
        small.grow_to(ROOM_STEP).unwrap();
        assert!(small.grow_to(ROOM_STEP + 1).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn who_can_wait_gets_what_others_give_back() {
        let budget = ByteBudget::new(100, "full");
        let room = budget.take(100).unwrap();
        let (waiting, ()) = tokio::join!(budget.take_soon(50), async move { drop(room) });
        assert_eq!(waiting.unwrap().bytes(), 50);
    }
}
