//! How many of a kind there may be at a time: in all, and from one address.
//!
//! The counters take no more memory than what they count: an address is forgotten with the last that came from it.

use crate::memory::AddressUsage;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A limited number of things that come from addresses.
pub(crate) struct AddressLimiter {
    max: usize,
    max_per_address: usize,
    counts: Mutex<AddressCounts>,
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

/// One of them; it counts until it is dropped.
pub(crate) struct AddressPermit {
    limiter: Arc<AddressLimiter>,
    address: IpAddr,
    usage: Arc<AddressUsage>,
}

/// Where a request comes from, and what requests from there hold.
#[derive(Clone)]
pub(crate) struct PeerAddress {
    pub(crate) address: IpAddr,
    pub(crate) usage: Arc<AddressUsage>,
}

impl AddressLimiter {
    pub(crate) fn new(max: usize, max_per_address: usize) -> Arc<Self> {
        Arc::new(Self { max, max_per_address, counts: Mutex::default() })
    }

    /// One more from this address, if there may be one.
    pub(crate) fn try_acquire(self: &Arc<Self>, address: IpAddr) -> Option<AddressPermit> {
        let address = network_of(address);
        let mut counted = self.lock_counts();
        if counted.total >= self.max {
            return None;
        }
        let here = counted.by_address.entry(address).or_default();
        if here.count >= self.max_per_address {
            return None;
        }
        here.count += 1;
        let usage = Arc::clone(&here.usage);
        counted.total += 1;
        Some(AddressPermit { limiter: Arc::clone(self), address, usage })
    }

    fn lock_counts(&self) -> MutexGuard<'_, AddressCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AddressPermit {
    /// Its address, with what all of its members hold.
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

/// What counts as one address: of IPv6 the network of a host, which has 2^64 addresses to itself.
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
        limiter.try_acquire(address.parse().unwrap())
    }

    #[test]
    fn there_are_so_many_in_all_and_from_one_address_and_none_is_remembered() {
        let limiter = AddressLimiter::new(3, 2);
        let (one, two) = (enter(&limiter, "10.0.0.1").unwrap(), enter(&limiter, "::ffff:10.0.0.1").unwrap());
        assert!(enter(&limiter, "10.0.0.1").is_none(), "three from one address");
        let other = enter(&limiter, "2001:db8::1").unwrap();
        assert!(enter(&limiter, "10.0.0.2").is_none(), "four in all");
        drop(one);
        let again = enter(&limiter, "2001:db8::ffff").unwrap();
        assert_eq!(limiter.lock_counts().by_address.len(), 2, "one network is one address");
        drop((two, other, again));
        assert!(limiter.lock_counts().by_address.is_empty());
    }
}
