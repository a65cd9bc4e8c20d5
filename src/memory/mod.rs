//! Memory: budgets of bytes for request bodies that are held and for answers that are being sent.
//!
//! - A [`Room`] is a part of a budget. It grows as bytes arrive, shrinks when less is needed, and is given back when it is
//!   dropped.
//! - Nothing is taken for what is only announced: a client holds no more room than it has sent bytes.
//! - One address has no more than its share of a budget ([`AddressLimit`]).

mod address;
mod page;

pub(crate) use address::{AddressLimit, AddressUsage, at_once_on_behalf_of, on_behalf_of};
pub(crate) use page::{PAGE_BYTES_MAX, PAGE_ROOM_MIN, PageBudget, reserve_page, shrink_page};

use address::{AddressAccount, AddressCharge};
use contract::{Error, Kind, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

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
    /// What one address may have of it.
    address_limit: Option<AddressLimit>,
    /// Whose rooms these are; without one, the task that takes them knows.
    caller: Option<Arc<AddressUsage>>,
}

impl ByteBudget {
    pub(crate) fn new(bytes: usize, refusal: &'static str) -> Self {
        let free = Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS)));
        Self { free, reserve: 0, refusal, address_limit: None, caller: None }
    }

    /// The same, of which one address has no more than this.
    pub(crate) fn with_address_limit(self, limit: AddressLimit) -> Self {
        Self { address_limit: Some(limit), ..self }
    }

    /// The same for this caller.
    pub(crate) fn charged_to(&self, usage: &Arc<AddressUsage>) -> Self {
        Self { caller: Some(Arc::clone(usage)), ..self.clone() }
    }

    /// The same for the caller that the task at work knows, wherever its rooms are taken.
    pub(crate) fn for_caller(&self) -> Self {
        let caller = self.caller.clone().or_else(|| self.address_limit.and_then(|_| address::caller()));
        Self { caller, ..self.clone() }
    }

    /// The same, of which so many bytes are left to small rooms.
    pub(crate) fn with_reserve(self, reserve: usize) -> Self {
        Self { reserve, ..self }
    }

    /// Room for so many bytes: now or not at all.
    pub(crate) fn try_reserve(&self, bytes: usize) -> Result<ByteReservation> {
        let mut room = self.for_caller().nothing()?;
        room.add(bytes, 0)?;
        Ok(room)
    }

    /// The same, but it may take a moment.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<ByteReservation> {
        let mut room = self.for_caller().nothing()?;
        room.grow_soon_to(bytes).await?;
        Ok(room)
    }

    /// A room for nothing yet.
    fn nothing(self) -> Result<ByteReservation> {
        let permit = Arc::clone(&self.free).try_acquire_many_owned(0).map_err(|_| self.refused())?;
        Ok(ByteReservation { permit, budget: self })
    }

    /// Bytes that nobody holds, and that the caller may hold.
    pub(crate) fn free(&self) -> usize {
        let free = self.free.available_permits();
        self.account().map_or(free, |(account, limit)| free.min(limit.bytes.saturating_sub(account.bytes())))
    }

    /// Where its caller's bytes are counted, if they are.
    fn account(&self) -> Option<(&AddressAccount, AddressLimit)> {
        let (caller, limit) = (self.caller.as_ref()?, self.address_limit?);
        Some(((limit.account)(caller), limit))
    }

    #[cold]
    fn refused(&self) -> Error {
        Error::new(Kind::Overloaded, self.refusal).with_retry_after(1)
    }

    #[cold]
    fn refused_to_address(&self) -> Error {
        let detail =
            "The server holds as much for this address as it may; send fewer requests at a time, or come back shortly.";
        Error::new(Kind::Overloaded, detail).with_retry_after(1)
    }
}

fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A part of a budget.
pub(crate) struct ByteReservation {
    permit: OwnedSemaphorePermit,
    budget: ByteBudget,
}

impl ByteReservation {
    /// How many bytes it is for.
    pub(crate) fn bytes(&self) -> usize {
        self.permit.num_permits()
    }

    /// Grows to at least so many bytes, now or not at all.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<()> {
        if bytes > self.bytes() {
            let more = bytes - self.bytes();
            let is_large = bytes > ROOM_STEP;
            // Read and taken in two steps: a few that do so at once may use some of the reserve, which does no harm.
            if is_large && self.budget.free.available_permits() < more.saturating_add(self.budget.reserve) {
                return Err(self.budget.refused());
            }
            let reserve = self.budget.address_limit.filter(|_| is_large).map_or(0, |limit| limit.reserve);
            self.add(more, reserve)?;
        }
        Ok(())
    }

    /// Takes so many bytes more, where its caller leaves `reserve` of its share.
    fn add(&mut self, bytes: usize, reserve: usize) -> Result<()> {
        let account = self.budget.account();
        if account.is_some_and(|(account, limit)| !account.charge(bytes, limit.bytes.saturating_sub(reserve))) {
            return Err(self.budget.refused_to_address());
        }
        match Arc::clone(&self.budget.free).try_acquire_many_owned(permits(bytes)) {
            Ok(permit) => {
                self.permit.merge(permit);
                Ok(())
            }
            Err(_) => {
                account.iter().for_each(|(account, _)| account.refund(bytes));
                Err(self.budget.refused())
            }
        }
    }

    /// The same as [`Room::grow_to`], but it may take a moment.
    pub(crate) async fn grow_soon_to(&mut self, bytes: usize) -> Result<()> {
        let Some(more) = bytes.checked_sub(self.bytes()).filter(|more| *more > 0) else { return Ok(()) };
        if self.add(more, 0).is_ok() {
            return Ok(());
        }
        let give_up = Instant::now() + ROOM_WAIT;
        // The caller's share first: who waits for it holds nothing that others could have.
        let charge = match self.budget.account() {
            Some((account, limit)) => {
                let charge = tokio::time::timeout_at(give_up, account.charge_soon(more, limit.bytes)).await;
                Some(charge.map_err(|_| self.budget.refused_to_address())?)
            }
            None => None,
        };
        let waiting = Arc::clone(&self.budget.free).acquire_many_owned(permits(more));
        let Ok(Ok(permit)) = tokio::time::timeout_at(give_up, waiting).await else { return Err(self.budget.refused()) };
        charge.into_iter().for_each(AddressCharge::keep);
        self.permit.merge(permit);
        Ok(())
    }

    /// Gives back what is beyond so many bytes.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if let Some(excess) = self.bytes().checked_sub(bytes) {
            drop(self.permit.split(excess));
            self.budget.account().iter().for_each(|(account, _)| account.refund(excess));
        }
    }
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        self.budget.account().iter().for_each(|(account, _)| account.refund(self.bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn room_grows_shrinks_and_is_given_back() {
        let budget = ByteBudget::new(100, "full");
        let mut room = budget.try_reserve(10).unwrap();
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

    #[tokio::test(start_paused = true)]
    async fn one_address_has_no_more_than_its_share_and_others_have_the_rest() {
        let budget = ByteBudget::new(100, "full").with_address_limit(AddressLimit::of_answers(60));
        let (one, other) = (Arc::<AddressUsage>::default(), Arc::<AddressUsage>::default());
        let take = |usage: &Arc<AddressUsage>, bytes| at_once_on_behalf_of(usage, || budget.try_reserve(bytes));
        let mut held = take(&one, 50).unwrap();
        assert!(take(&one, 11).is_err() && held.grow_to(61).is_err(), "more than its share");
        assert_eq!(at_once_on_behalf_of(&one, || budget.for_caller().free()), 10);
        let others = take(&other, 50).unwrap();
        assert!(take(&other, 1).is_err(), "there is no more");
        assert!(on_behalf_of(Arc::clone(&one), budget.reserve(11)).await.is_err());
        drop(others);
        // Who waits gets what its own address gives back, also from elsewhere; who stops waiting holds nothing.
        let waiting = on_behalf_of(Arc::clone(&one), budget.reserve(40));
        let (waiting, ()) = tokio::join!(waiting, async { held.shrink_to(20) });
        assert_eq!((waiting.unwrap().bytes(), held.bytes()), (40, 20));
        drop(held);
        let all = take(&one, 60).unwrap();
        assert_eq!((all.bytes(), budget.free()), (60, 40), "all of its share is free again");
    }

    #[test]
    fn large_rooms_of_an_address_leave_some_of_its_share_to_small_ones() {
        let limit = AddressLimit::of_bodies(4 * ROOM_STEP, 2 * ROOM_STEP);
        let budget = ByteBudget::new(100 * ROOM_STEP, "full").with_address_limit(limit);
        let usage = Arc::<AddressUsage>::default();
        let nothing = || at_once_on_behalf_of(&usage, || budget.try_reserve(0)).unwrap();
        let mut large = nothing();
        large.grow_to(2 * ROOM_STEP).unwrap();
        assert!(large.grow_to(3 * ROOM_STEP).is_err());
        nothing().grow_to(ROOM_STEP).unwrap();
    }

    #[test]
    fn large_rooms_leave_some_to_small_ones() {
        let budget = ByteBudget::new(8 * ROOM_STEP, "full").with_reserve(2 * ROOM_STEP);
        let mut large = budget.try_reserve(0).unwrap();
        assert!(large.grow_to(7 * ROOM_STEP).is_err());
        large.grow_to(6 * ROOM_STEP).unwrap();
        let mut small = budget.try_reserve(0).unwrap();
        small.grow_to(ROOM_STEP).unwrap();
        assert!(small.grow_to(ROOM_STEP + 1).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn who_can_wait_gets_what_others_give_back() {
        let budget = ByteBudget::new(100, "full");
        let room = budget.try_reserve(100).unwrap();
        let (waiting, ()) = tokio::join!(budget.reserve(50), async move { drop(room) });
        assert_eq!(waiting.unwrap().bytes(), 50);
    }
}
