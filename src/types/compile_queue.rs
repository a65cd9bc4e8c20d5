//! The queue of schemas to compile: one at a time, events before registrations.
//!
//! - An event that waits for its schema goes before registrations, which get one turn in four. So registrations do not
//!   delay events, and events do not block registrations for ever.
//! - Of the waiting events, the oldest and the one with the smallest schema take turns. So large schemas do not delay
//!   small ones, and small ones do not block large ones for ever.
//! - The cost of compiling a schema is bounded (`schema/patterns.rs` and the modules of the languages), and a turn is
//!   for one schema. So every turn ends soon, whether or not its caller still waits.

use super::busy;
use contract::Result;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// The purpose of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CompileWork {
    /// Events wait for a schema of this size, in bytes, once it is compiled.
    FirstUse { bytes: usize },
    /// A schema is registered, or compared with another.
    Registration,
}

#[derive(Default)]
pub(super) struct CompileQueue(Mutex<QueueState>);

#[derive(Default)]
struct QueueState {
    is_busy: bool,
    /// How many turns were granted.
    turns: u64,
    /// In the order of arrival.
    waiting: Vec<WaitingWork>,
}

struct WaitingWork {
    work: CompileWork,
    start: oneshot::Sender<CompileTurn>,
}

/// The right to compile; it passes to the next work when it is dropped.
pub(super) struct CompileTurn(Arc<CompileQueue>);

/// Most registrations that wait; each holds the schemas it carries.
const REGISTRATIONS_WAITING_MAX: usize = 64;

impl CompileQueue {
    /// Waits for a turn. A caller that stops waiting leaves the queue.
    pub(super) async fn turn(self: &Arc<Self>, work: CompileWork) -> Result<CompileTurn> {
        let (start, started) = oneshot::channel();
        {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.waiting.retain(|waiting| !waiting.start.is_closed());
            let registrations = state.waiting.iter().filter(|waiting| waiting.work == CompileWork::Registration);
            if work == CompileWork::Registration && registrations.count() >= REGISTRATIONS_WAITING_MAX {
                return Err(busy(WAITING));
            }
            if !state.is_busy {
                state.is_busy = true;
                state.turns += 1;
                return Ok(CompileTurn(Arc::clone(self)));
            }
            state.waiting.push(WaitingWork { work, start });
        }
        started.await.map_err(|_| busy(WAITING))
    }

    /// Removes the next waiting work; `None` if nothing waits.
    fn next(&self) -> Option<WaitingWork> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting.retain(|waiting| !waiting.start.is_closed());
        let waiting: Vec<_> = state.waiting.iter().map(|waiting| waiting.work).collect();
        let Some(index) = choose(&waiting, state.turns) else {
            state.is_busy = false;
            return None;
        };
        state.turns += 1;
        Some(state.waiting.remove(index))
    }
}

impl Drop for CompileTurn {
    fn drop(&mut self) {
        if let Some(next) = self.0.next() {
            // A caller that has just left drops the turn, which passes it on.
            let _ = next.start.send(CompileTurn(Arc::clone(&self.0)));
        }
    }
}

pub(super) const WAITING: &str = "Other schemas are being compiled; try again.";

/// Which waiting work, oldest first, gets the turn with this number.
fn choose(waiting: &[CompileWork], turn: u64) -> Option<usize> {
    let registration = waiting.iter().position(|work| *work == CompileWork::Registration);
    let events = || {
        let events = waiting.iter().enumerate().filter_map(|(index, work)| match work {
            CompileWork::FirstUse { bytes } => Some((*bytes, index)),
            CompileWork::Registration => None,
        });
        let chosen = if turn.is_multiple_of(2) { events.min_by_key(|(_, index)| *index) } else { events.min() };
        chosen.map(|(_, index)| index)
    };
    if turn.is_multiple_of(4) { registration.or_else(events) } else { events().or(registration) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn events_go_before_registrations_and_none_waits_for_ever() {
        let large = CompileWork::FirstUse { bytes: 900 };
        let small = CompileWork::FirstUse { bytes: 1 };
        let order = |waiting: &[CompileWork]| {
            let mut left: Vec<_> = waiting.iter().copied().enumerate().collect();
            let mut order = Vec::new();
            for turn in 1.. {
                let works: Vec<_> = left.iter().map(|(_, work)| *work).collect();
                let Some(next) = choose(&works, turn) else { break };
                order.push(left.remove(next).0);
            }
            order
        };
        let registration = CompileWork::Registration;
        assert_eq!(order(&[]), [0_usize; 0]);
        assert_eq!(order(&[registration, registration, large]), [2, 0, 1]);
        assert_eq!(order(&[registration, large, large, small]), [3, 1, 2, 0]);
        assert_eq!(order(&[registration, large, large, large, large, small]), [5, 1, 2, 0, 3, 4]);
        assert_eq!(order(&[large, small, small, small, small]), [1, 0, 2, 3, 4]);
    }

    #[tokio::test]
    async fn a_caller_that_stops_waiting_passes_its_turn_on() {
        let queue = Arc::new(CompileQueue::default());
        let first = queue.turn(CompileWork::Registration).await.unwrap();
        let mut gone = Box::pin(queue.turn(CompileWork::Registration));
        let mut last = Box::pin(queue.turn(CompileWork::Registration));
        assert!((&mut gone).now_or_never().is_none());
        assert!((&mut last).now_or_never().is_none());
        drop(gone);
        drop(first);
        drop(last.await.unwrap());
        // Given and not taken up.
        let first = queue.turn(CompileWork::Registration).await.unwrap();
        let mut gone = Box::pin(queue.turn(CompileWork::Registration));
        assert!((&mut gone).now_or_never().is_none());
        drop(first);
        drop(gone);
        drop(queue.turn(CompileWork::Registration).await.unwrap());
    }

    #[tokio::test]
    async fn registrations_that_are_too_many_to_wait_are_refused_and_events_are_not() {
        let queue = Arc::new(CompileQueue::default());
        let held = queue.turn(CompileWork::Registration).await.unwrap();
        let mut waiting: Vec<_> =
            (0..REGISTRATIONS_WAITING_MAX).map(|_| Box::pin(queue.turn(CompileWork::Registration))).collect();
        for registration in &mut waiting {
            assert!(registration.now_or_never().is_none());
        }
        assert!(queue.turn(CompileWork::Registration).await.is_err());
        let mut event = Box::pin(queue.turn(CompileWork::FirstUse { bytes: 1 }));
        assert!((&mut event).now_or_never().is_none());
        drop(held);
        event.await.unwrap();
    }
}
