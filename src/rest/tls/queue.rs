//! How many handshakes are under way at the same time: in total, and from one address. Further ones wait for their turn.
//!
//! - A handshake costs a millisecond of processor time and memory for messages of the peer, before anything of the peer is
//!   known. So their number is bounded, apart from the number of connections.
//! - Peers of one address wait in a queue of their own: however many of them stall, others have places left.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Most handshakes under way.
const HANDSHAKES_MAX: usize = 256;
/// Most of them from one address.
const HANDSHAKES_PER_ADDRESS_MAX: usize = 64;

/// The queue of all handshakes.
pub(super) struct HandshakeQueue {
    all: Semaphore,
    /// The queues of addresses that have a handshake under way or waiting.
    by_address: Mutex<HashMap<IpAddr, AddressPlaces>>,
}

struct AddressPlaces {
    /// Handshakes of this address that are under way or wait.
    count: usize,
    places: Arc<Semaphore>,
}

/// One handshake in the queue of its address, which is forgotten with the last one.
pub(super) struct AddressQueue<'a> {
    queue: &'a HandshakeQueue,
    address: IpAddr,
    places: Arc<Semaphore>,
}

impl Default for HandshakeQueue {
    fn default() -> Self {
        Self { all: Semaphore::new(HANDSHAKES_MAX), by_address: Mutex::default() }
    }
}

impl HandshakeQueue {
    /// The queue of this address.
    pub(super) fn of(&self, address: IpAddr) -> AddressQueue<'_> {
        let mut addresses = self.lock_addresses();
        let here = addresses.entry(address).or_insert_with(|| AddressPlaces {
            count: 0,
            places: Arc::new(Semaphore::new(HANDSHAKES_PER_ADDRESS_MAX)),
        });
        here.count += 1;
        AddressQueue { queue: self, address, places: Arc::clone(&here.places) }
    }

    fn lock_addresses(&self) -> MutexGuard<'_, HashMap<IpAddr, AddressPlaces>> {
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AddressQueue<'_> {
    /// Waits for a place, first among those of this address and then among all.
    pub(super) async fn enter(&self) -> Option<(SemaphorePermit<'_>, SemaphorePermit<'_>)> {
        // The semaphores are never closed.
        Some((self.places.acquire().await.ok()?, self.queue.all.acquire().await.ok()?))
    }
}

impl Drop for AddressQueue<'_> {
    fn drop(&mut self) {
        let mut addresses = self.queue.lock_addresses();
        if let Some(here) = addresses.get_mut(&self.address) {
            here.count -= 1;
            if here.count == 0 {
                addresses.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn one_address_that_stalls_leaves_places_to_others_and_is_forgotten_afterwards() {
        let queue = HandshakeQueue::default();
        let [one, other] = ["10.0.0.1", "10.0.0.2"].map(|address| queue.of(address.parse().unwrap()));
        let mut stalled = Vec::new();
        while let Some(permits) = one.enter().now_or_never() {
            stalled.push(permits.unwrap());
        }
        assert_eq!(stalled.len(), HANDSHAKES_PER_ADDRESS_MAX);
        assert!(other.enter().now_or_never().is_some());
        stalled.pop();
        assert!(one.enter().now_or_never().is_some(), "the next one has its turn");
        drop(stalled);
        assert_eq!(queue.lock_addresses().len(), 2);
        drop((one, other));
        assert!(queue.lock_addresses().is_empty());
    }

    #[test]
    fn handshakes_beyond_the_maximum_wait_for_their_turn() {
        let queue = HandshakeQueue::default();
        let addresses: Vec<_> = (0..8).map(|n| queue.of(IpAddr::from([10, 0, 0, n]))).collect();
        let mut under_way = Vec::new();
        for address in &addresses {
            under_way.extend(std::iter::from_fn(|| address.enter().now_or_never().flatten()));
        }
        assert_eq!(under_way.len(), HANDSHAKES_MAX);
        let mut next = std::pin::pin!(addresses[7].enter());
        assert!(next.as_mut().now_or_never().is_none());
        under_way.pop();
        assert!(next.now_or_never().is_some());
    }
}
