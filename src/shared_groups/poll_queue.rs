//! The queue of polls that wait for work, in the order in which they came.
//!
//! - The first one watches for changes, for all. The others sleep until they are woken, so that the cost of a change does not
//!   depend on how many wait.
//! - A poll that leaves the front of the queue wakes the next one, which watches from then on.

use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// Polls by their tickets.
#[derive(Default)]
pub(super) struct PollQueue {
    waiting: BTreeMap<u64, Arc<Notify>>,
    tickets: u64,
}

/// What a waiting poll does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitRole {
    /// It is the first: it watches for changes.
    First,
    /// It sleeps until it is woken.
    Behind,
    /// It can take nothing, so it is not in the queue; it watches for its own claims to end.
    Aside,
}

impl PollQueue {
    /// A ticket for the end of the queue. It does not join the queue yet.
    pub(super) const fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Joins the queue, or stays in it.
    pub(super) fn join(&mut self, request: u64, call: &Arc<Notify>) -> WaitRole {
        self.waiting.entry(request).or_insert_with(|| Arc::clone(call));
        let is_first = self.waiting.first_key_value().is_some_and(|(first, _)| *first == request);
        if is_first { WaitRole::First } else { WaitRole::Behind }
    }

    /// Leaves the queue; returns whether it was in it.
    pub(super) fn leave(&mut self, request: u64) -> bool {
        let was_first = self.waiting.first_key_value().is_some_and(|(first, _)| *first == request);
        let was_there = self.waiting.remove(&request).is_some();
        if was_first {
            self.wake(1);
        }
        was_there
    }

    /// Wakes the first `count` polls.
    pub(super) fn wake(&self, count: usize) {
        self.waiting.values().take(count).for_each(|call| call.notify_one());
    }

    /// How many polls are before a ticket, counted up to `most`; all of them, if there is no ticket.
    pub(super) fn ahead_of(&self, request: Option<u64>, most: usize) -> usize {
        match request {
            None => self.waiting.len().min(most),
            Some(request) => self.waiting.range(..request).take(most).count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn is_called(call: &Arc<Notify>) -> bool {
        call.notified().now_or_never().is_some()
    }

    #[test]
    fn who_came_first_stands_in_front_and_is_the_only_one_to_watch() {
        let (mut line, calls) = (PollQueue::default(), [(); 3].map(|()| Arc::new(Notify::new())));
        let tickets = [(); 3].map(|()| line.ticket());
        let join = |line: &mut PollQueue, at: usize| line.join(tickets[at], &calls[at]);
        assert_eq!([0, 1, 2].map(|at| join(&mut line, at)), [WaitRole::First, WaitRole::Behind, WaitRole::Behind]);
        assert_eq!([Some(tickets[0]), Some(tickets[2]), None].map(|it| line.ahead_of(it, 9)), [0, 2, 3]);
        assert_eq!(line.ahead_of(None, 2), 2);
        assert!(calls.iter().all(|call| !is_called(call)));
        // A poll that leaves the front wakes the next one, and no other.
        assert!(line.leave(tickets[0]) && !line.leave(tickets[0]));
        assert_eq!([0, 1, 2].map(|at| is_called(&calls[at])), [false, true, false]);
        assert_eq!(join(&mut line, 1), WaitRole::First);
        // It has its old place again.
        assert_eq!(join(&mut line, 0), WaitRole::First);
        line.leave(tickets[2]);
        line.wake(9);
        assert_eq!([0, 1, 2].map(|at| is_called(&calls[at])), [true, true, false]);
    }
}
