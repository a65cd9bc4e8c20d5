//! Memory for a page of events, from before it is read until its response has been sent.
//!
//! - The size of a page is known only when it has been read. So the reader first reserves memory for a large page, or less if
//!   there is less, reads at most that many bytes, and then releases what the page does not need.
//! - A reader that waits has no reservation: it reserves when there is something to read.
//! - The reservation belongs to the task that reads ([`PageBudget::scope`]). A read outside of such a scope is not for a response
//!   and reserves nothing.

use super::{ByteBudget, ByteReservation};
use contract::{Result, limits};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most bytes of events in one page; the first event is always included.
pub(crate) const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The minimum reservation for a page: an event of the largest size, and its envelope.
pub(crate) const PAGE_ROOM_MIN: usize = limits::EVENT_BYTES_MAX + 128 * 1024;
/// A page reserves at most this fraction of the free budget, so that the first few readers do not take everything.
const SHARE: usize = 4;

tokio::task_local! {
    static PAGE: PageBudget;
}

/// The reservation of one response.
#[derive(Clone)]
pub(crate) struct PageBudget(Arc<PageBudgetState>);

struct PageBudgetState {
    budget: ByteBudget,
    largest: usize,
    room: Mutex<Option<ByteReservation>>,
}

impl PageBudget {
    /// For pages of at most `largest` bytes, charged to the caller of the current task.
    pub(crate) fn new(budget: &ByteBudget, largest: usize) -> Self {
        Self(Arc::new(PageBudgetState { budget: budget.for_caller(), largest, room: Mutex::default() }))
    }

    /// Runs `read`; its pages are reserved here.
    pub(crate) async fn scope<F: Future>(&self, read: F) -> F::Output {
        PAGE.scope(self.clone(), read).await
    }

    /// Takes the reservation of the page that was read.
    pub(crate) fn take_reservation(&self) -> Option<ByteReservation> {
        self.room().take()
    }

    async fn take(&self, most: usize) -> Result<usize> {
        let PageBudgetState { budget, largest, .. } = &*self.0;
        drop(self.take_reservation());
        let largest = most.min(*largest);
        let fair = (budget.free() / SHARE).clamp(PAGE_ROOM_MIN, largest.max(PAGE_ROOM_MIN));
        let room = match budget.try_reserve(fair) {
            Ok(room) => room,
            Err(_) => budget.reserve(PAGE_ROOM_MIN).await?,
        };
        let bytes = room.bytes().min(largest);
        *self.room() = Some(room);
        Ok(bytes)
    }

    fn room(&self) -> MutexGuard<'_, Option<ByteReservation>> {
        self.0.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reserves memory for a page of at most `events` events; returns how many bytes it may have.
pub(crate) async fn reserve_page(events: usize) -> Result<usize> {
    let most = events.saturating_mul(PAGE_ROOM_MIN).min(PAGE_BYTES_MAX);
    match PAGE.try_with(Clone::clone) {
        Ok(page) => page.take(most).await,
        Err(_) => Ok(PAGE_BYTES_MAX),
    }
}

/// Reduces the reservation to the bytes of the page.
pub(crate) fn shrink_page(bytes: usize) {
    let _ = PAGE.try_with(|page| {
        let mut room = page.room();
        match bytes {
            0 => *room = None,
            bytes => room.iter_mut().for_each(|room| room.shrink_to(bytes)),
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pages_get_smaller_as_the_budget_is_used_up_and_are_refused_when_nothing_is_left() {
        let budget = ByteBudget::new(16 * 1024 * 1024, "full");
        let mut pages = Vec::new();
        let mut sizes = Vec::new();
        let refused = loop {
            let page = PageBudget::new(&budget, PAGE_BYTES_MAX);
            match page.scope(reserve_page(100)).await {
                Ok(bytes) => sizes.push(bytes),
                Err(error) => break error,
            }
            pages.push(page);
        };
        assert_eq!(sizes.first(), Some(&(4 * 1024 * 1024)));
        assert_eq!(sizes.last(), Some(&PAGE_ROOM_MIN));
        assert!(sizes.is_sorted_by(|one, next| one >= next), "{sizes:?}");
        assert_eq!(refused.retry_after_seconds(), Some(1));
        pages.clear();
        assert_eq!(budget.free(), 16 * 1024 * 1024);
    }

    #[tokio::test]
    async fn a_page_keeps_its_bytes_and_an_empty_one_nothing() {
        let budget = ByteBudget::new(64 * 1024 * 1024, "full");
        let page = PageBudget::new(&budget, PAGE_BYTES_MAX);
        page.scope(async {
            assert_eq!(reserve_page(100).await.unwrap(), PAGE_BYTES_MAX);
            shrink_page(0);
            assert_eq!(budget.free(), 64 * 1024 * 1024, "a waiting reader has no reservation");
            assert_eq!(reserve_page(1).await.unwrap(), PAGE_ROOM_MIN);
            shrink_page(1000);
        })
        .await;
        assert_eq!(page.take_reservation().map(|room| room.bytes()), Some(1000));
        assert_eq!(budget.free(), 64 * 1024 * 1024);
        assert_eq!(reserve_page(1).await.unwrap(), PAGE_BYTES_MAX, "outside of a response nothing is reserved");
    }
}
