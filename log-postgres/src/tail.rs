//! Where the log ends, as far as this process knows.

use contract::Position;
use tokio::sync::{Notify, watch};

/// The tail that readers watch. It rises; only a query of the log itself can find that it fell.
#[derive(Default)]
pub(crate) struct KnownTail {
    shown: watch::Sender<Position>,
    /// Another session says that it has appended.
    hinted: Notify,
}

impl KnownTail {
    pub(crate) fn watch(&self) -> watch::Receiver<Position> {
        self.shown.subscribe()
    }

    /// Shows a tail that can be read. An earlier tail that arrives late changes nothing and wakes no reader.
    pub(crate) fn show(&self, tail: Position) {
        self.shown.send_if_modified(|shown| {
            let later = tail > *shown;
            *shown = tail.max(*shown);
            later
        });
    }

    /// The tail that is shown now.
    pub(crate) fn shown(&self) -> Position {
        *self.shown.borrow()
    }

    /// Shows the tail that a query has found. `shown` is what was shown before the query began, and could be read then: an
    /// earlier tail means that the log went back.
    pub(crate) fn found(&self, tail: Position, shown: Position) {
        match tail < shown {
            true => drop(self.shown.send_replace(tail)),
            false => self.show(tail),
        }
    }

    /// Handles a notification; `is_own`: this session's own append sent it.
    ///
    /// Any role that can connect may send one, so the number of another session is only a reason to query the tail.
    pub(crate) fn on_notification(&self, payload: &str, is_own: bool) {
        match payload.parse().map(Position) {
            Ok(tail) if is_own => self.show(tail),
            Ok(tail) if tail <= self.shown() => {}
            Ok(_) => self.hinted.notify_one(),
            Err(error) => tracing::debug!(%error, "a notification on the log's channel has no position"),
        }
    }

    /// Waits until another session says that it has appended.
    pub(crate) async fn hinted(&self) {
        self.hinted.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_notification_of_another_session_does_not_move_the_tail() {
        let tail = KnownTail::default();
        let is_hinted = async || tokio::time::timeout(Duration::from_millis(1), tail.hinted()).await.is_ok();
        tail.show(Position(3));
        tail.on_notification("9999999", false);
        assert!(is_hinted().await);
        for payload in ["3", "1", "-1", "none"] {
            tail.on_notification(payload, false);
            assert!(!is_hinted().await, "{payload}");
        }
        assert_eq!(tail.shown(), Position(3));
        tail.on_notification("4", true);
        assert_eq!(tail.shown(), Position(4));
    }
}
