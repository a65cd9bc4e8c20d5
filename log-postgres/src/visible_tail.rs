//! How far records may be returned: as far as synchronous standbys are known to have them, if there are any.

use contract::Position;
use std::sync::atomic::{AtomicU64, Ordering};

/// The last position that may be returned.
#[derive(Default)]
pub(crate) struct VisibleTail(AtomicU64);

impl VisibleTail {
    pub(crate) fn get(&self) -> Position {
        Position(self.0.load(Ordering::Acquire))
    }

    /// Everything up to `position` may be returned.
    pub(crate) fn raise(&self, position: Position) {
        self.0.fetch_max(position.get(), Ordering::AcqRel);
    }

    /// A new session has found the log's end at `tail`, and standbys have it. `before` is what could be returned before that
    /// query, and was stored: an earlier end means that the log went back.
    pub(crate) fn found(&self, tail: Position, before: Position) {
        match tail < before {
            true => self.0.store(tail.get(), Ordering::Release),
            false => self.raise(tail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_visible_tail_rises_unless_the_log_went_back() {
        let shown = VisibleTail::default();
        shown.raise(Position(5));
        shown.raise(Position(3));
        assert_eq!(shown.get(), Position(5));
        // The tail was raised while the new session queried it.
        shown.found(Position(4), Position(4));
        assert_eq!(shown.get(), Position(5));
        shown.found(Position(2), Position(5));
        assert_eq!(shown.get(), Position(2));
        shown.found(Position(9), Position(2));
        assert_eq!(shown.get(), Position(9));
    }
}
