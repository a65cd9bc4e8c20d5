//! Where the log ends, as far as this process knows.

use contract::Position;
use tokio::sync::watch;

/// The tail that readers watch. It rises; only a look at the log itself can find that it fell.
#[derive(Default)]
pub(crate) struct KnownTail(watch::Sender<Position>);

impl KnownTail {
    pub(crate) fn watch(&self) -> watch::Receiver<Position> {
        self.0.subscribe()
    }

    /// Shows a tail that can be read; an earlier one that comes late changes nothing and wakes nobody.
    pub(crate) fn show(&self, tail: Position) {
        self.0.send_if_modified(|shown| {
            let later = tail > *shown;
            *shown = tail.max(*shown);
            later
        });
    }

    /// What is shown now.
    pub(crate) fn shown(&self) -> Position {
        *self.0.borrow()
    }

    /// Shows the tail that a look has found. `shown` is what was shown before the look began, and could be read then: an
    /// earlier tail means that the log went back.
    pub(crate) fn found(&self, tail: Position, shown: Position) {
        match tail < shown {
            true => drop(self.0.send_replace(tail)),
            false => self.show(tail),
        }
    }

    /// Takes a notification.
    pub(crate) fn on_notification(&self, payload: &str) {
        match payload.parse() {
            Ok(tail) => self.show(Position(tail)),
            Err(_) => tracing::warn!("a notification that is no position was heard on the log's channel"),
        }
    }
}
