//! Memory for the heads of requests, over all HTTP/1 connections.
//!
//! - Hyper holds a head until its end has arrived, which may take as long as `server.header_timeout_secs`; its handler may hold
//!   it longer; and hyper's buffer stays as large as the largest head was. Most heads fit into what a connection has anyway.
//!   A connection with a larger one reserves room, keeps it until it ends, and is closed if there is none.
//! - While room is scarce, such a connection is closed after its response, so that others can have the room.
//! - The bytes of a body are not counted here, but in `body`.

use crate::memory::{AddressUsage, ByteBudget, ByteReservation};
use contract::Result;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a connection may read without a reservation, in bytes.
const FREE_BYTES: usize = 8 * 1024;
/// Room is scarce when less than this is free, in bytes.
const SCARCE_BYTES: usize = 4 * 1024 * 1024;

/// The meter of one connection.
pub(crate) struct HeadMeter {
    budget: ByteBudget,
    /// Bytes of the head that is being read.
    bytes: AtomicUsize,
    /// The number of the request whose body is being read instead; 0: none.
    body: AtomicU64,
    /// Requests so far.
    requests: AtomicU64,
    /// Whether the connection has had a head that needed room.
    was_large: AtomicBool,
    reservation: Mutex<Option<ByteReservation>>,
}

/// A body that is being read; the bytes after it belong to the next head.
pub(crate) struct BodyReading {
    meter: Arc<HeadMeter>,
    request: u64,
}

impl HeadMeter {
    /// For a connection from this address.
    pub(crate) fn new(budget: &ByteBudget, usage: &Arc<AddressUsage>) -> Arc<Self> {
        Arc::new(Self {
            budget: budget.charged_to(usage),
            bytes: AtomicUsize::new(0),
            body: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            was_large: AtomicBool::new(false),
            reservation: Mutex::default(),
        })
    }

    /// Counts bytes that were read. `Err`: there is no room for them.
    pub(crate) fn read(&self, bytes: usize) -> Result<()> {
        if self.body.load(Ordering::Relaxed) > 0 {
            return Ok(());
        }
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if bytes <= FREE_BYTES {
            return Ok(());
        }
        self.was_large.store(true, Ordering::Relaxed);
        let mut held = self.reservation.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *held {
            Some(reservation) => reservation.grow_to(bytes),
            None => {
                *held = Some(self.budget.try_reserve(bytes)?);
                Ok(())
            }
        }
    }

    /// The head is complete; its request has a body or not.
    pub(crate) fn parsed(self: &Arc<Self>, has_body: bool) -> Option<BodyReading> {
        self.bytes.store(0, Ordering::Relaxed);
        let request = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        self.body.store(if has_body { request } else { 0 }, Ordering::Relaxed);
        has_body.then(|| BodyReading { meter: Arc::clone(self), request })
    }

    /// Whether the connection holds room that others may need soon.
    pub(crate) fn is_scarce(&self) -> bool {
        self.was_large.load(Ordering::Relaxed) && self.budget.free() < SCARCE_BYTES
    }
}

impl Drop for BodyReading {
    fn drop(&mut self) {
        // The end of a discarded body may be noticed after the next request was parsed, whose body this is not.
        let _ = self.meter.body.compare_exchange(self.request, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_whose_end_is_noticed_late_does_not_end_the_next_one() {
        let meter = HeadMeter::new(&ByteBudget::new(100_000, "full"), &Arc::default());
        let first = meter.parsed(true);
        let second = meter.parsed(true);
        drop(first);
        meter.read(1_000_000).unwrap();
        drop(second);
        assert!(meter.read(1_000_000).is_err());
    }

    #[test]
    fn a_large_head_keeps_its_room_until_the_connection_ends_and_a_body_takes_none() {
        let all = SCARCE_BYTES + 20_000;
        let budget = ByteBudget::new(all, "full");
        let meter = HeadMeter::new(&budget, &Arc::default());
        meter.read(FREE_BYTES).unwrap();
        assert_eq!(budget.free(), all, "a usual head reserves nothing");
        meter.read(1000).unwrap();
        assert_eq!(budget.free(), all - FREE_BYTES - 1000);
        assert!(!meter.is_scarce());
        assert!(meter.read(all).is_err(), "there is not as much room");
        let body = meter.parsed(true);
        assert_eq!(budget.free(), all - FREE_BYTES - 1000, "hyper's buffer is still as large");
        meter.read(10 * all).unwrap();
        drop(body);
        meter.read(20_001).unwrap();
        assert!(meter.is_scarce(), "little is left for others");
        assert!(meter.read(all).is_err(), "these bytes belong to the next head");
        drop(meter);
        assert_eq!(budget.free(), all);
    }
}
