//! Memory: budgets of bytes for request bodies, imports, heads, responses and connections.
//!
//! - A [`ByteReservation`] is a part of a budget. It grows as bytes arrive, shrinks when less is needed, and ends when it is
//!   dropped.
//! - Nothing is reserved for bytes that are only announced: a client holds no more than it has sent.
//! - One address holds at most its share of a budget ([`AddressLimit`]).

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

/// Reservations grow in steps of this size while the final size is unknown.
pub(crate) const ROOM_STEP: usize = 64 * 1024;
/// How long a caller waits for a reservation before it is refused.
pub(crate) const ROOM_WAIT: Duration = Duration::from_secs(2);

/// Bytes of one kind that may be held at a time.
#[derive(Clone)]
pub(crate) struct ByteBudget {
    free: Arc<Semaphore>,
    /// The part that is kept for reservations of at most [`ROOM_STEP`] bytes, so that large ones do not displace small ones.
    reserve: usize,
    /// The detail of the refusal when nothing is free.
    refusal: &'static str,
    /// The share of one address.
    address_limit: Option<AddressLimit>,
    /// The address that is charged; `None`: that of the current task.
    caller: Option<Arc<AddressUsage>>,
}

impl ByteBudget {
    pub(crate) fn new(bytes: usize, refusal: &'static str) -> Self {
        let free = Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS)));
        Self { free, reserve: 0, refusal, address_limit: None, caller: None }
    }

    /// The same, with a limit per address.
    pub(crate) fn with_address_limit(self, limit: AddressLimit) -> Self {
        Self { address_limit: Some(limit), ..self }
    }

    /// The same, charged to this address.
    pub(crate) fn charged_to(&self, usage: &Arc<AddressUsage>) -> Self {
        Self { caller: Some(Arc::clone(usage)), ..self.clone() }
    }

    /// The same, charged to the caller of the current task, whichever task reserves.
    pub(crate) fn for_caller(&self) -> Self {
        let caller = self.caller.clone().or_else(|| self.address_limit.and_then(|_| address::caller()));
        Self { caller, ..self.clone() }
    }

    /// The same, with a part kept for small reservations.
    pub(crate) fn with_reserve(self, reserve: usize) -> Self {
        Self { reserve, ..self }
    }

    /// Reserves bytes at once, or fails.
    pub(crate) fn try_reserve(&self, bytes: usize) -> Result<ByteReservation> {
        let mut reservation = self.for_caller().nothing()?;
        reservation.add(bytes, 0)?;
        Ok(reservation)
    }

    /// Reserves bytes; waits up to [`ROOM_WAIT`].
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<ByteReservation> {
        let mut reservation = self.for_caller().nothing()?;
        reservation.grow_soon_to(bytes).await?;
        Ok(reservation)
    }

    /// An empty reservation.
    fn nothing(self) -> Result<ByteReservation> {
        let permit = Arc::clone(&self.free).try_acquire_many_owned(0).map_err(|_| self.refused())?;
        Ok(ByteReservation { permit, budget: self })
    }

    /// The free bytes that the caller may reserve.
    pub(crate) fn free(&self) -> usize {
        let free = self.free.available_permits();
        self.account().map_or(free, |(account, limit)| free.min(limit.bytes.saturating_sub(account.bytes())))
    }

    /// The account of the caller, if there is one.
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
        let detail = "The memory budget of this address is used up; send fewer concurrent requests, or retry shortly.";
        Error::new(Kind::Overloaded, detail).with_retry_after(1)
    }
}

fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A part of a budget, until it is dropped.
pub(crate) struct ByteReservation {
    permit: OwnedSemaphorePermit,
    budget: ByteBudget,
}

impl ByteReservation {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.permit.num_permits()
    }

    /// Grows to at least this size at once, or fails.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<()> {
        if bytes > self.bytes() {
            let more = bytes - self.bytes();
            let is_large = bytes > ROOM_STEP;
            // Checked and reserved in two steps: concurrent callers may use a little of the reserve, which is harmless.
            if is_large && self.budget.free.available_permits() < more.saturating_add(self.budget.reserve) {
                return Err(self.budget.refused());
            }
            let reserve = self.budget.address_limit.filter(|_| is_large).map_or(0, |limit| limit.reserve);
            self.add(more, reserve)?;
        }
        Ok(())
    }

    /// Adds bytes, if the caller leaves `reserve` of its share.
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

    /// Grows to at least this size; waits up to [`ROOM_WAIT`].
    pub(crate) async fn grow_soon_to(&mut self, bytes: usize) -> Result<()> {
        let Some(more) = bytes.checked_sub(self.bytes()).filter(|more| *more > 0) else { return Ok(()) };
        if self.add(more, 0).is_ok() {
            return Ok(());
        }
        let give_up = Instant::now() + ROOM_WAIT;
        // The caller's share first: while it waits for that, it holds nothing of the common budget.
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

    /// Releases the bytes beyond this size.
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
    async fn a_reservation_grows_shrinks_and_ends() {
        let budget = ByteBudget::new(100, "full");
        let mut reservation = budget.try_reserve(10).unwrap();
        reservation.grow_to(60).unwrap();
        reservation.grow_to(20).unwrap();
        assert_eq!((reservation.bytes(), budget.free()), (60, 40));
        let refused = reservation.grow_to(101).unwrap_err();
        assert_eq!((refused.kind(), refused.retry_after_seconds()), (Kind::Overloaded, Some(1)));
        assert_eq!((reservation.bytes(), budget.free()), (60, 40), "a refusal reserves nothing");
        assert!(reservation.grow_soon_to(101).await.is_err());
        reservation.shrink_to(30);
        assert_eq!((reservation.bytes(), budget.free()), (30, 70));
        drop(reservation);
        assert_eq!(budget.free(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_has_at_most_its_share_and_others_have_the_rest() {
        let budget = ByteBudget::new(100, "full").with_address_limit(AddressLimit::of_answers(60));
        let (one, other) = (Arc::<AddressUsage>::default(), Arc::<AddressUsage>::default());
        let take = |usage: &Arc<AddressUsage>, bytes| at_once_on_behalf_of(usage, || budget.try_reserve(bytes));
        let mut held = take(&one, 50).unwrap();
        assert!(take(&one, 11).is_err() && held.grow_to(61).is_err(), "more than its share");
        assert_eq!(at_once_on_behalf_of(&one, || budget.for_caller().free()), 10);
        let others = take(&other, 50).unwrap();
        assert!(take(&other, 1).is_err(), "nothing is left");
        assert!(on_behalf_of(Arc::clone(&one), budget.reserve(11)).await.is_err());
        drop(others);
        // A waiting caller gets what its address releases elsewhere; one that stops waiting holds nothing.
        let waiting = on_behalf_of(Arc::clone(&one), budget.reserve(40));
        let (waiting, ()) = tokio::join!(waiting, async { held.shrink_to(20) });
        assert_eq!((waiting.unwrap().bytes(), held.bytes()), (40, 20));
        drop(held);
        let all = take(&one, 60).unwrap();
        assert_eq!((all.bytes(), budget.free()), (60, 40), "the whole share is free again");
    }

    #[test]
    fn large_reservations_of_an_address_leave_some_of_its_share_to_small_ones() {
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
    fn large_reservations_leave_some_to_small_ones() {
        let budget = ByteBudget::new(8 * ROOM_STEP, "full").with_reserve(2 * ROOM_STEP);
        let mut large = budget.try_reserve(0).unwrap();
        assert!(large.grow_to(7 * ROOM_STEP).is_err());
        large.grow_to(6 * ROOM_STEP).unwrap();
        let mut small = budget.try_reserve(0).unwrap();
        small.grow_to(ROOM_STEP).unwrap();
        assert!(small.grow_to(ROOM_STEP + 1).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_caller_gets_what_others_release() {
        let budget = ByteBudget::new(100, "full");
        let reservation = budget.try_reserve(100).unwrap();
        let (waiting, ()) = tokio::join!(budget.reserve(50), async move { drop(reservation) });
        assert_eq!(waiting.unwrap().bytes(), 50);
    }
}
