//! What the heads of requests take before they are whole, over all HTTP/1 connections.
//!
//! - Hyper holds a head until its end has come, which may take as long as `server.header_timeout_secs`. Most fit into what a
//!   connection has anyway; beyond that a connection takes room, and ends where there is none.
//! - The bytes of a body are none of a head: they are counted elsewhere (`body`).

use crate::memory::{AddressUsage, ByteBudget, ByteReservation};
use contract::Result;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a connection reads into without asking, in bytes.
const FREE_BYTES: usize = 8 * 1024;

/// One connection's.
pub(crate) struct HeadMeter {
    budget: ByteBudget,
    /// Bytes of the head that is being read.
    bytes: AtomicUsize,
    /// Whether a body is being read instead.
    is_body: AtomicBool,
    reservation: Mutex<Option<ByteReservation>>,
}

/// A body that is being read; what comes after it is the next head.
pub(crate) struct BodyReading(Arc<HeadMeter>);

impl HeadMeter {
    /// For a connection of this address.
    pub(crate) fn new(budget: &ByteBudget, usage: &Arc<AddressUsage>) -> Arc<Self> {
        let budget = budget.charged_to(usage);
        Arc::new(Self { budget, bytes: AtomicUsize::new(0), is_body: AtomicBool::new(false), reservation: Mutex::default() })
    }

    /// So many bytes were read; `Err`: there is no room for them.
    pub(crate) fn read(&self, bytes: usize) -> Result<()> {
        if self.is_body.load(Ordering::Relaxed) {
            return Ok(());
        }
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if bytes <= FREE_BYTES {
            return Ok(());
        }
        let mut held = self.reservation.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *held {
            Some(reservation) => reservation.grow_to(bytes),
            None => {
                *held = Some(self.budget.try_reserve(bytes)?);
                Ok(())
            }
        }
    }

    /// The head is whole; its request has a body or not.
    pub(crate) fn parsed(self: &Arc<Self>, has_body: bool) -> Option<BodyReading> {
        if self.bytes.swap(0, Ordering::Relaxed) > FREE_BYTES {
            *self.reservation.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        self.is_body.store(has_body, Ordering::Relaxed);
        has_body.then(|| BodyReading(Arc::clone(self)))
    }
}

impl Drop for BodyReading {
    fn drop(&mut self) {
        self.0.is_body.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_head_takes_room_until_it_is_whole_and_a_body_takes_none() {
        let budget = ByteBudget::new(20_000, "full");
        let meter = HeadMeter::new(&budget, &Arc::default());
        meter.read(FREE_BYTES).unwrap();
        assert_eq!(budget.free(), 20_000, "a usual head takes nothing");
        meter.read(1000).unwrap();
        assert_eq!(budget.free(), 20_000 - FREE_BYTES - 1000);
        assert!(meter.read(20_000).is_err(), "more than there is");
        let body = meter.parsed(true);
        assert_eq!(budget.free(), 20_000);
        meter.read(1_000_000).unwrap();
        drop(body);
        assert!(meter.read(20_001).is_err(), "it is the next head");
    }
}
