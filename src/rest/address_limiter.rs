//! How many of a kind (connections, waiting requests) there may be at a time: in total, and from one address.
//!
//! - The last places may be reserved for addresses that have only few, so that a few addresses cannot take all of them.
//! - An address is forgotten with its last permit, so the counters use no more memory than what they count.

use crate::memory::AddressUsage;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Limits things that come from addresses.
pub(crate) struct AddressLimiter {
    max: usize,
    max_per_address: usize,
    /// Of `max`: for addresses with less than [`FEW`].
    reserve: usize,
    counts: Mutex<AddressCounts>,
}

/// An address with less than this may use the reserve.
const FEW: usize = 8;

/// The limit that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitReached {
    Total,
    Address,
}

#[derive(Default)]
struct AddressCounts {
    total: usize,
    by_address: HashMap<IpAddr, AddressEntry>,
}

#[derive(Default)]
struct AddressEntry {
    count: usize,
    usage: Arc<AddressUsage>,
}

/// The permit for one; it counts until it is dropped.
pub(crate) struct AddressPermit {
    limiter: Arc<AddressLimiter>,
    address: IpAddr,
    usage: Arc<AddressUsage>,
    has_few: bool,
}

/// The address of a request, and the memory that requests from it hold.
#[derive(Clone)]
pub(crate) struct PeerAddress {
    pub(crate) address: IpAddr,
    pub(crate) usage: Arc<AddressUsage>,
}

impl AddressLimiter {
    pub(crate) fn new(max: usize, max_per_address: usize) -> Arc<Self> {
        Self::with_reserve(max, max_per_address, 0)
    }

    /// The same, where the last `reserve` places are for addresses that have only few.
    pub(crate) fn with_reserve(max: usize, max_per_address: usize, reserve: usize) -> Arc<Self> {
        Arc::new(Self { max, max_per_address, reserve, counts: Mutex::default() })
    }

    /// A permit for one more from this address.
    pub(crate) fn try_acquire(self: &Arc<Self>, address: IpAddr) -> Result<AddressPermit, LimitReached> {
        let address = network_of(address);
        let mut counted = self.lock_counts();
        let free = self.max.saturating_sub(counted.total);
        let has = counted.by_address.get(&address).map_or(0, |here| here.count);
        if free == 0 || (free <= self.reserve && has >= FEW) {
            return Err(LimitReached::Total);
        }
        if has >= self.max_per_address {
            return Err(LimitReached::Address);
        }
        let here = counted.by_address.entry(address).or_default();
        here.count += 1;
        let usage = Arc::clone(&here.usage);
        counted.total += 1;
        Ok(AddressPermit { limiter: Arc::clone(self), address, usage, has_few: has < FEW })
    }

    fn lock_counts(&self) -> MutexGuard<'_, AddressCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AddressPermit {
    /// Whether its address had only few of them.
    pub(crate) const fn has_few(&self) -> bool {
        self.has_few
    }

    /// The address that it belongs to.
    pub(crate) fn peer(&self) -> PeerAddress {
        PeerAddress { address: self.address, usage: Arc::clone(&self.usage) }
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut counted = self.limiter.lock_counts();
        counted.total = counted.total.saturating_sub(1);
        if let Some(here) = counted.by_address.get_mut(&self.address) {
            here.count = here.count.saturating_sub(1);
            if here.count == 0 {
                counted.by_address.remove(&self.address);
            }
        }
    }
}

/// What counts as one address. A host with IPv6 has 2^64 addresses, so its whole /64 network counts as one.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(limiter: &Arc<AddressLimiter>, address: &str) -> Option<AddressPermit> {
        limiter.try_acquire(address.parse().unwrap()).ok()
    }

    #[test]
    fn permits_are_limited_in_total_and_per_address_and_an_address_without_any_is_forgotten() {
        let limiter = AddressLimiter::new(3, 2);
        let (one, two) = (enter(&limiter, "10.0.0.1").unwrap(), enter(&limiter, "::ffff:10.0.0.1").unwrap());
        assert!(enter(&limiter, "10.0.0.1").is_none(), "three from one address");
        let other = enter(&limiter, "2001:db8::1").unwrap();
        assert!(enter(&limiter, "10.0.0.2").is_none(), "four in total");
        drop(one);
        let again = enter(&limiter, "2001:db8::ffff").unwrap();
        assert_eq!(limiter.lock_counts().by_address.len(), 2, "one network is one address");
        drop((two, other, again));
        assert!(limiter.lock_counts().by_address.is_empty());
    }

    #[test]
    fn two_addresses_cannot_take_the_places_reserved_for_addresses_with_few() {
        let limiter = AddressLimiter::with_reserve(32, 16, 4);
        let mut held = Vec::new();
        for address in ["10.0.0.1", "10.0.0.2"] {
            held.extend(std::iter::from_fn(|| enter(&limiter, address)));
        }
        assert_eq!(held.len(), 28, "the reserve is left");
        let refused = limiter.try_acquire("10.0.0.2".parse().unwrap()).err();
        assert_eq!(refused, Some(LimitReached::Total));
        held.extend(std::iter::from_fn(|| enter(&limiter, "10.0.0.3")));
        assert_eq!(held.len(), 32, "a newcomer finds places");
    }
}
