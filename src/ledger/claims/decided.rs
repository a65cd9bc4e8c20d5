//! Claims as a decision sees them: durable rows, and over them what was decided since.

use super::{ClaimKey, ClaimRows, Rows, Slot};
use crate::ledger::layer::Layer;
use contract::{NewHandler, Position, Sequence, limits};
use std::sync::RwLockReadGuard;

/// Claims decided but not durable yet.
#[derive(Default)]
pub(in crate::ledger) struct ClaimsLayer {
    slots: Layer<ClaimKey, Slot>,
    /// The highest sequence finished, by handler and topic.
    highest: Layer<(String, u32), Sequence>,
    policies: Layer<String, NewHandler>,
}

impl ClaimsLayer {
    pub(in crate::ledger) fn undo(&mut self, after: Position) {
        self.slots.undo(after);
        self.highest.undo(after);
        self.policies.undo(after);
    }

    pub(in crate::ledger) fn settle(&mut self, through: Position) {
        self.slots.settle(through);
        self.highest.settle(through);
        self.policies.settle(through);
    }

    fn slot(&self, durable: &ClaimRows, key: &ClaimKey) -> Option<Slot> {
        match self.slots.get(key) {
            Some(decided) => decided.cloned(),
            None => durable.slot(key),
        }
    }

    fn highest(&self, durable: &ClaimRows, place: &(String, u32)) -> Sequence {
        let decided = self.highest.get(place).flatten().copied().unwrap_or_default();
        decided.max(durable.highest(&place.0, place.1))
    }
}

/// The layer with what it lies on, ready to take in the entry at `at`.
pub(in crate::ledger) struct Layered<'a> {
    pub(in crate::ledger) durable: &'a ClaimRows,
    pub(in crate::ledger) layer: &'a mut ClaimsLayer,
    pub(in crate::ledger) at: Position,
}

impl Rows for Layered<'_> {
    fn known(&self, key: &ClaimKey) -> Option<Slot> {
        self.layer.slot(self.durable, key)
    }

    fn put(&mut self, key: &ClaimKey, slot: Slot) {
        if matches!(slot, Slot::Finished(_)) {
            let place = (key.handler.clone(), key.topic);
            if self.layer.highest(self.durable, &place) < key.sequence {
                self.layer.highest.set(self.at, place, Some(key.sequence));
            }
        }
        self.layer.slots.set(self.at, key.clone(), Some(slot));
    }

    fn put_policy(&mut self, handler: &str, policy: NewHandler) {
        self.layer.policies.set(self.at, handler.to_owned(), Some(policy));
    }

    /// What goes with a trim is what nobody can ask for any more.
    fn trim(&mut self, _: u32, _: Sequence, _: i64) {}
}

/// Claims as a decision sees them: durable or decided.
pub struct DecidedClaims<'a> {
    pub(in crate::ledger) durable: RwLockReadGuard<'a, ClaimRows>,
    pub(in crate::ledger) layer: &'a ClaimsLayer,
}

impl DecidedClaims<'_> {
    /// What is known of an event.
    #[must_use]
    pub fn slot(&self, key: &ClaimKey) -> Option<Slot> {
        self.layer.slot(&self.durable, key)
    }

    /// Whether an event is finished.
    #[must_use]
    pub fn is_finished(&self, key: &ClaimKey) -> bool {
        match self.layer.slots.get(key) {
            Some(decided) => matches!(decided, Some(Slot::Finished(_))),
            None => self.durable.is_finished(&key.handler, key.topic, key.sequence),
        }
    }

    /// The highest sequence of the topic that the handler has finished.
    #[must_use]
    pub fn highest(&self, handler: &str, topic: u32) -> Sequence {
        self.layer.highest(&self.durable, &(handler.to_owned(), topic))
    }

    /// How a handler's work is to be tried, if somebody said so in this log.
    #[must_use]
    pub fn policy(&self, handler: &str) -> Option<&NewHandler> {
        match self.layer.policies.get(&handler.to_owned()) {
            Some(decided) => decided,
            None => self.durable.policy(handler),
        }
    }

    /// Whether this handler may be known, and have one more claim open. What is not durable yet may go beyond it.
    #[must_use]
    pub fn has_room(&self, handler: &str) -> bool {
        let ClaimRows { handlers, open } = &*self.durable;
        let knows = handlers.len() < limits::HANDLERS_MAX || handlers.contains_key(handler);
        knows && *open < limits::OPEN_CLAIMS_MAX
    }
}

#[cfg(test)]
mod tests {
    use crate::ledger::claims::{ClaimKey, Finish, Slot, Standing};
    use crate::ledger::decision::{Decision, Overlay};
    use crate::ledger::entry::Entry;
    use crate::ledger::state::State;
    use crate::ledger::table::Tables;
    use contract::{Sequence, Token};
    use uuid::Uuid;

    fn key(sequence: u64) -> ClaimKey {
        ClaimKey { handler: "billing".to_owned(), topic: 1, sequence: Sequence(sequence) }
    }

    fn take(decision: &mut Decision<'_>, sequence: u64) -> Token {
        let (claim, owner) = (key(sequence), "w".to_owned());
        let entry = Entry::ClaimTaken { claim, event: Uuid::from_u128(1), owner, lease_millis: 10, attempt: 1 };
        Token(decision.add_entry(entry).unwrap().get())
    }

    fn finish(decision: &mut Decision<'_>, sequence: u64, token: Token) {
        decision.add_entry(Entry::ClaimDone { claim: key(sequence), token }).unwrap();
    }

    #[test]
    fn what_is_decided_counts_before_it_is_durable_and_is_the_same_afterwards() {
        let (mut state, mut overlay) = (State::new(Tables::in_memory(|_| 0)), Overlay::default());
        let mut decision = Decision::new(&state, &mut overlay, 5);
        let token = take(&mut decision, 7);
        finish(&mut decision, 7, token);
        let other = take(&mut decision, 9);
        let mark = decision.mark();
        finish(&mut decision, 9, other);
        let seen = |decision: &Decision<'_>| {
            let claims = decision.claims();
            (claims.highest("billing", 1), claims.is_finished(&key(7)), claims.is_finished(&key(9)))
        };
        assert_eq!(seen(&decision), (Sequence(9), true, true));
        decision.undo(mark);
        assert_eq!(seen(&decision), (Sequence(7), true, false));
        assert_eq!(decision.claims().slot(&key(7)), Some(Slot::Finished(Finish::First)));
        let Some(Slot::Open(row)) = decision.claims().slot(&key(9)) else { panic!("9 is open") };
        assert_eq!((row.token, row.standing), (other, Standing::Live { until: 15 }));
        for record in overlay.take_records() {
            state.apply(&record);
            overlay.settled(&record);
            assert_eq!(seen(&Decision::new(&state, &mut overlay, 5)), (Sequence(7), true, false));
        }
        assert!(state.parts.claims().is_finished("billing", 1, Sequence(7)));
        assert_eq!(state.parts.claims().slot(&key(9)), Some(Slot::Open(row)));
    }
}
