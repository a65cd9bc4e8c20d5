//! Where the log ends, as far as this process knows.

use contract::Position;
use tokio::sync::watch;

/// The tail that readers watch. It only rises.
#[derive(Default)]
pub(crate) struct Tail(watch::Sender<Position>);

impl Tail {
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

    /// Takes a notification.
    pub(crate) fn heard(&self, payload: &str) {
        match payload.parse() {
            Ok(tail) => self.show(Position(tail)),
            Err(_) => tracing::warn!("a notification that is no position was heard on the log's channel"),
        }
    }
}
