//! The slot of an HTTP/1 connection for its parked poll: empty, with a request that waits, or with its response.

use super::waiting_request::ParkedFuture;
use crate::rest::address_limiter::AddressPermit;
use crate::rest::connection_memory::ConnectionBudget;
use crate::rest::connection_timer::ConnectionTimer;
use crate::rest::problem::HandlerResult;
use crate::rest::socket::HttpSocket;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

/// A poll that is answered within this time gains nothing from being parked.
pub(super) const QUICK_RESPONSE: Duration = Duration::from_secs(1);
/// Many polls that start together are parked one after the other: each connection waits one step longer than the one before,
/// up to the number of steps.
pub(super) const STAGGER_STEP: Duration = Duration::from_millis(64);
pub(super) const STAGGER_STEPS: u32 = 32;

/// The slot; clones share it.
#[derive(Clone)]
pub(crate) struct ParkingSlot(Arc<ParkingSlotState>);

struct ParkingSlotState {
    timer: ConnectionTimer,
    phase: Mutex<SlotPhase>,
    /// How long a poll stays on its connection if the last one was quick.
    stay_time: Duration,
    was_quick: AtomicBool,
    /// Of the connection; `None`: it has enough memory.
    memory: Option<ConnectionBudget>,
}

#[derive(Default)]
enum SlotPhase {
    #[default]
    Empty,
    Waiting(ParkedRequest),
    Answered(HandlerResult),
}

/// A request that waits without a connection.
pub(crate) struct ParkedRequest {
    /// The head, to serve the request again when its response is there.
    pub(super) request_head: Vec<u8>,
    pub(super) future: ParkedFuture,
    pub(super) received_at: Instant,
    /// Counts the request among those that wait.
    pub(super) _permit: AddressPermit,
}

impl ParkingSlot {
    /// The slot of a new connection with memory from this budget.
    pub(crate) fn new(memory: Option<ConnectionBudget>) -> Self {
        static CONNECTIONS: AtomicU32 = AtomicU32::new(0);
        let stay_time = QUICK_RESPONSE + STAGGER_STEP * (CONNECTIONS.fetch_add(1, Ordering::Relaxed) % STAGGER_STEPS);
        let (timer, phase, was_quick) = (ConnectionTimer::default(), Mutex::default(), AtomicBool::new(false));
        Self(Arc::new(ParkingSlotState { timer, phase, stay_time, was_quick, memory }))
    }

    /// The timer of the connection.
    pub(crate) fn timer(&self) -> &ConnectionTimer {
        &self.0.timer
    }

    /// Takes the request that is to wait without its connection, if there is one.
    pub(crate) fn take_parked(&self) -> Option<ParkedRequest> {
        let mut phase = self.lock_phase();
        // Called after every request, so a response must not be moved out and back.
        if !matches!(*phase, SlotPhase::Waiting(_)) {
            return None;
        }
        match std::mem::take(&mut *phase) {
            SlotPhase::Waiting(parked) => Some(parked),
            SlotPhase::Empty | SlotPhase::Answered(_) => None,
        }
    }

    /// Empties the slot when a request has its response: what was left for it must not reach another request.
    pub(crate) fn clear(&self) {
        *self.lock_phase() = SlotPhase::Empty;
    }

    /// Parks a request: its connection is taken apart.
    pub(super) fn park(&self, request: ParkedRequest) {
        let mut phase = self.lock_phase();
        debug_assert!(matches!(*phase, SlotPhase::Empty), "an HTTP/1 connection serves one request at a time");
        *phase = SlotPhase::Waiting(request);
    }

    /// Leaves the response of a parked request, for the request that is served again.
    pub(super) fn store_response(&self, response: HandlerResult) {
        *self.lock_phase() = SlotPhase::Answered(response);
    }

    /// Takes the response of a request that was parked and is served again.
    pub(super) fn take_response(&self) -> Option<HandlerResult> {
        let mut phase = self.lock_phase();
        match std::mem::take(&mut *phase) {
            SlotPhase::Answered(response) => Some(response),
            _ => None,
        }
    }

    /// The response, if it is there before the poll has to be parked.
    pub(super) async fn wait_on_connection(&self, future: &mut ParkedFuture) -> Option<HandlerResult> {
        let is_scarce = || self.0.memory.as_ref().is_some_and(ConnectionBudget::is_scarce);
        if self.0.was_quick.load(Ordering::Relaxed) && !is_scarce() {
            return self.0.timer.timeout(self.0.stay_time, future).await;
        }
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(response) => Poll::Ready(Some(response)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    #[cfg(test)]
    pub(super) fn set_was_quick(&self, was_quick: bool) {
        self.0.was_quick.store(was_quick, Ordering::Relaxed);
    }

    fn lock_phase(&self) -> MutexGuard<'_, SlotPhase> {
        self.0.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ParkedRequest {
    /// Waits for the response, leaves it in the slot and returns the request head. `None`: the peer has left.
    pub(super) async fn wait(mut self, socket: &mut HttpSocket, parking: &ParkingSlot) -> Option<Vec<u8>> {
        let response = poll_fn(|context| match self.future.as_mut().poll(context) {
            Poll::Ready(response) => Poll::Ready(Some(response)),
            Poll::Pending if socket.has_lost_its_peer_while_parked(context) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        let response = response.await?;
        parking.0.was_quick.store(self.received_at.elapsed() < QUICK_RESPONSE, Ordering::Relaxed);
        parking.store_response(response);
        Some(self.request_head)
    }
}
