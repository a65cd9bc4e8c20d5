//! Claims as a decision sees them: the durable rows, and over them the overlay of what was decided since.

use super::fold::GroupProgressChange;
use super::{ClaimKey, ClaimRow, ClaimRows, ClaimSlot, ClaimState, ClaimsFold, FinishedBy};
use crate::ledger::decide::overlay_map::OverlayMap;
use crate::ledger::state::claims::group_progress::GroupProgress;
use crate::ledger::state::table::{DecidedTable, OverlayWriter, TableOverlay as _, overlay_of};
use contract::{Error, Kind, NewHandler, Position, Result, Sequence, limits};
use std::collections::BTreeSet;

/// Claims decided but not durable yet.
#[derive(Default)]
pub struct ClaimsOverlay {
    slots: OverlayMap<ClaimKey, ClaimSlot>,
    /// The highest sequence finished, by handler and topic.
    highest: OverlayMap<(String, u32), Sequence>,
    policies: OverlayMap<String, NewHandler>,
    /// Shared groups in a topic: the entry that began the generation.
    divisions: OverlayMap<(String, u32), Position>,
    /// Ranges of events that are to be worked on again, by handler and topic.
    cleared: OverlayMap<(String, u32), Vec<(Sequence, Sequence)>>,
    /// Handlers and topics whose durable rows are deleted.
    gone: OverlayMap<(String, u32), ()>,
}

overlay_of!(ClaimsOverlay { slots, highest, policies, divisions, cleared, gone });

impl ClaimsOverlay {
    fn slot(&self, durable: &ClaimRows, key: &ClaimKey) -> Option<ClaimSlot> {
        match self.slots.get(key) {
            Some(decided) => decided.cloned(),
            None if self.is_gone(&key.handler, key.topic) => None,
            None => durable.slot(key).filter(|slot| !self.is_cleared(key, slot)),
        }
    }

    /// Whether the durable rows were deleted.
    fn is_gone(&self, handler: &str, topic: u32) -> bool {
        !self.gone.is_empty() && self.gone.get(&(handler.to_owned(), topic)).is_some()
    }

    /// Whether an event that is durably finished is to be worked on again.
    fn is_cleared(&self, key: &ClaimKey, slot: &ClaimSlot) -> bool {
        if self.cleared.is_empty() || !is_repeatable(slot) {
            return false;
        }
        let runs = self.cleared.get(&(key.handler.clone(), key.topic)).flatten();
        let is_within = |(from, to): &(Sequence, Sequence)| (*from..=*to).contains(&key.sequence);
        runs.is_some_and(|runs| runs.iter().any(is_within))
    }

    fn highest(&self, durable: &ClaimRows, place: &(String, u32)) -> Sequence {
        let decided = self.highest.get(place).flatten().copied().unwrap_or_default();
        if self.is_gone(&place.0, place.1) {
            return decided;
        }
        decided.max(durable.highest(&place.0, place.1))
    }
}

impl ClaimsFold for OverlayWriter<'_, ClaimRows> {
    fn known(&self, key: &ClaimKey) -> Option<ClaimSlot> {
        self.overlay.slot(self.durable, key)
    }

    fn is_contended(&self, key: &ClaimKey) -> bool {
        let is_cleared = || self.durable.slot(key).is_some_and(|slot| self.overlay.is_cleared(key, &slot));
        self.durable.is_contended(key) || is_cleared()
    }

    fn put(&mut self, key: &ClaimKey, slot: ClaimSlot) {
        if matches!(slot, ClaimSlot::Finished(_)) {
            let place = (key.handler.clone(), key.topic);
            if self.overlay.highest(self.durable, &place) < key.sequence {
                self.overlay.highest.set(self.at, place, Some(key.sequence));
            }
        }
        self.overlay.slots.set(self.at, key.clone(), Some(slot));
    }

    fn put_policy(&mut self, handler: &str, policy: NewHandler) {
        self.overlay.policies.set(self.at, handler.to_owned(), Some(policy));
    }

    /// Decisions do not need it: the events are removed when the entry is durable.
    fn trim(&mut self, _: u32, _: Sequence, _: i64) {}

    fn apply_group_progress(&mut self, group: &str, topic: u32, change: &GroupProgressChange<'_>, at: Position) {
        let key = (group.to_owned(), topic);
        let is_divided = self.overlay.generation(self.durable, &key).is_some();
        let runs = match change {
            GroupProgressChange::Began(_) if is_divided => return,
            GroupProgressChange::Began(_) => Vec::new(),
            GroupProgressChange::Passed(_) => return,
            GroupProgressChange::Repeated { .. } | GroupProgressChange::Moved(_) if !is_divided => return,
            GroupProgressChange::Repeated { from, to, copies } => {
                [(*from, *to)].into_iter().chain(copies.iter().map(|(key, _)| (*key, *key))).collect()
            }
            GroupProgressChange::Moved(offset) => {
                let watermark =
                    self.durable.group_progress(group, topic).map(GroupProgress::watermark).unwrap_or_default();
                let offset = Sequence::from(*offset);
                let start = || self.durable.start_of_repeat(group, topic, offset.next());
                if offset < watermark { vec![(start(), Sequence(u64::MAX))] } else { Vec::new() }
            }
        };
        self.overlay.divisions.set(at, key.clone(), Some(at));
        runs.into_iter().for_each(|run| self.clear(key.clone(), run));
    }

    fn forget(&mut self, handler: &str, topic: Option<u32>) {
        let slots = self.overlay.slots.iter().map(|(key, _)| (key.handler.as_str(), key.topic));
        let begun = self.overlay.divisions.iter().map(|((group, topic), _)| (group.as_str(), *topic));
        let decided = slots.chain(begun).filter(|(name, _)| *name == handler).map(|(_, topic)| topic);
        let topics: BTreeSet<_> = decided.chain(self.durable.topics(handler)).collect();
        for gone in topics.into_iter().filter(|known| topic.is_none_or(|topic| topic == *known)) {
            let place = (handler.to_owned(), gone);
            let is_meant = |key: &&ClaimKey| key.handler == handler && key.topic == gone;
            let keys: Vec<_> = self.overlay.slots.iter().map(|(key, _)| key).filter(is_meant).cloned().collect();
            keys.into_iter().for_each(|key| self.overlay.slots.set(self.at, key, None));
            self.overlay.highest.set(self.at, place.clone(), None);
            self.overlay.divisions.set(self.at, place.clone(), None);
            self.overlay.cleared.set(self.at, place.clone(), None);
            self.overlay.gone.set(self.at, place, Some(()));
        }
        if topic.is_none() {
            self.overlay.policies.set(self.at, handler.to_owned(), None);
        }
    }

    /// Only the durable rows say which handlers are unused.
    fn touch(&mut self, _: &str, _: i64) {}
}

/// Whether an event is finished, and can be handed out again by a reset or a republish.
const fn is_repeatable(slot: &ClaimSlot) -> bool {
    matches!(slot, ClaimSlot::Finished(finish) if !matches!(finish, FinishedBy::Replaced))
}

impl OverlayWriter<'_, ClaimRows> {
    fn clear(&mut self, key: (String, u32), run: (Sequence, Sequence)) {
        let is_meant = |slot: &(&ClaimKey, &ClaimSlot)| {
            let (claim, slot) = slot;
            let is_ours = claim.handler == key.0 && claim.topic == key.1 && (run.0..=run.1).contains(&claim.sequence);
            is_ours && is_repeatable(slot)
        };
        let decided: Vec<_> = self.overlay.slots.iter().filter(is_meant).map(|(claim, _)| claim.clone()).collect();
        decided.into_iter().for_each(|claim| self.overlay.slots.set(self.at, claim, None));
        let mut runs = self.overlay.cleared.get(&key).flatten().cloned().unwrap_or_default();
        runs.push(run);
        self.overlay.cleared.set(self.at, key, Some(runs));
    }
}

impl ClaimsOverlay {
    fn generation(&self, durable: &ClaimRows, key: &(String, u32)) -> Option<Position> {
        match self.divisions.get(key) {
            Some(decided) => decided.copied(),
            None if self.is_gone(&key.0, key.1) => None,
            None => durable.group_progress(&key.0, key.1).map(GroupProgress::generation),
        }
    }
}

/// Claims as a decision sees them: durable, or decided and not durable yet.
pub type DecidedClaims<'a> = DecidedTable<'a, ClaimRows>;

impl DecidedClaims<'_> {
    /// The durable rows.
    #[must_use]
    pub fn durable(&self) -> &ClaimRows {
        &self.durable
    }

    /// What is known of an event.
    #[must_use]
    pub fn slot(&self, key: &ClaimKey) -> Option<ClaimSlot> {
        self.overlay.slot(&self.durable, key)
    }

    /// Whether an event is finished.
    #[must_use]
    pub fn is_finished(&self, key: &ClaimKey) -> bool {
        match self.overlay.slots.get(key) {
            Some(decided) => matches!(decided, Some(ClaimSlot::Finished(_))),
            None => {
                self.durable.is_finished(&key.handler, key.topic, key.sequence)
                    && matches!(self.slot(key), Some(ClaimSlot::Finished(_)))
            }
        }
    }

    /// Whether an event is finished, and can be handed out again.
    #[must_use]
    pub fn is_repeatable(&self, key: &ClaimKey) -> bool {
        self.slot(key).as_ref().is_some_and(is_repeatable)
    }

    /// How many events of a range a handler has finished and can be handed again.
    #[must_use]
    pub fn finished_count(&self, handler: &str, topic: u32, from: Sequence, to: Sequence) -> u64 {
        let key = |sequence| ClaimKey { handler: handler.to_owned(), topic, sequence };
        let durable = self.durable.finished(handler, topic, from, to);
        let still = durable.filter(|sequence| self.is_finished(&key(*sequence))).count();
        let decided = self.overlay.slots.iter().filter(|(known, slot)| {
            let is_ours = known.handler == handler && known.topic == topic && (from..=to).contains(&known.sequence);
            is_ours && is_repeatable(slot) && !self.durable.is_finished(handler, topic, known.sequence)
        });
        (still + decided.count()) as u64
    }

    /// The generation of a shared group in a topic, if it distributes it.
    #[must_use]
    pub fn generation(&self, group: &str, topic: u32) -> Option<Position> {
        self.overlay.generation(&self.durable, &(group.to_owned(), topic))
    }

    /// Numbers of the topics that a shared group distributes.
    #[must_use]
    pub fn shared_topics(&self, group: &str) -> Vec<u32> {
        let decided =
            self.overlay.divisions.iter().filter(|((name, _), _)| name == group).map(|((_, topic), _)| *topic);
        let topics: BTreeSet<_> = self.durable.topics(group).chain(decided).collect();
        topics.into_iter().filter(|topic| self.generation(group, *topic).is_some()).collect()
    }

    /// When an unused handler was last used; `None` if it is in use, or something about it is being decided.
    #[must_use]
    pub fn unused_since(&self, handler: &str) -> Option<i64> {
        let is_busy = self.overlay.slots.iter().any(|(key, _)| key.handler == handler)
            || self.overlay.policies.get(&handler.to_owned()).is_some()
            || self.overlay.divisions.iter().any(|((name, _), _)| name == handler);
        self.durable.unused_since(handler).filter(|_| !is_busy)
    }

    /// The durable watermark of a shared group in a topic.
    #[must_use]
    pub fn watermark(&self, group: &str, topic: u32) -> Option<Sequence> {
        self.overlay.generation(&self.durable, &(group.to_owned(), topic))?;
        self.durable.group_progress(group, topic).map(GroupProgress::watermark)
    }

    /// The highest sequence of the topic that the handler has finished.
    #[must_use]
    pub fn highest(&self, handler: &str, topic: u32) -> Sequence {
        self.overlay.highest(&self.durable, &(handler.to_owned(), topic))
    }

    /// A handler's policy, if this log has one.
    #[must_use]
    pub fn policy(&self, handler: &str) -> Option<&NewHandler> {
        match self.overlay.policies.get(&handler.to_owned()) {
            Some(decided) => decided,
            None => self.durable.policy(handler),
        }
    }

    /// Refuses a new handler or one more open claim at the limit. Decisions that are not durable yet do not count.
    pub fn check_room(&self, handler: &str) -> Result<()> {
        let ClaimRows { handlers, open, .. } = &*self.durable;
        let (most, what, help) = if handlers.len() >= limits::HANDLERS_MAX && !handlers.contains_key(handler) {
            let help = "Delete those that are no longer used (`DELETE /v1/handlers/{name}`), or use a known name.";
            (limits::HANDLERS_MAX, "handlers", help)
        } else if *open >= limits::OPEN_CLAIMS_MAX {
            let help = "Finish or release some, and discard or redrive dead letters.";
            (limits::OPEN_CLAIMS_MAX, "open claims", help)
        } else {
            return Ok(());
        };
        let detail = format!("This broker has {most} {what}, as many as it may have. {help}");
        Err(Error::new(Kind::Overloaded, detail).with_retry_after(60))
    }

    /// Events whose live claims an owner holds, in order.
    #[must_use]
    pub fn held_by(&self, handler: &str, topic: u32, owner: &str, now: i64) -> Vec<Sequence> {
        let key = |sequence| ClaimKey { handler: handler.to_owned(), topic, sequence };
        let is_held = |slot: &ClaimSlot| match slot {
            ClaimSlot::Open(ClaimRow { owner: by, standing: ClaimState::Live { until }, .. }) => {
                by == owner && *until > now
            }
            _ => false,
        };
        let durable = self.durable.held(handler, topic, owner);
        let still = durable.filter(|sequence| self.slot(&key(*sequence)).as_ref().is_some_and(is_held));
        let decided = self
            .overlay
            .slots
            .iter()
            .filter(|(key, slot)| key.handler == handler && key.topic == topic && is_held(slot));
        let held: BTreeSet<_> = still.chain(decided.map(|(key, _)| key.sequence)).collect();
        held.into_iter().collect()
    }

    /// The first event up to `through`, other than that of `but`, whose claim is open and no dead letter. An event up to
    /// `removed` that no worker has at `now` is left out: it is removed, so nobody can finish it.
    #[must_use]
    pub fn first_unfinished(&self, but: &ClaimKey, through: Sequence, removed: Sequence, now: i64) -> Option<Sequence> {
        let ClaimKey { handler, topic, sequence: own } = but;
        let key = |sequence| ClaimKey { sequence, ..but.clone() };
        let is_begun = |sequence: Sequence, slot: &ClaimSlot| match slot {
            ClaimSlot::Open(row) if matches!(row.standing, ClaimState::Dead { .. }) => false,
            ClaimSlot::Open(row) => sequence > removed || row.outlives_its_event(now),
            ClaimSlot::Finished(_) => false,
        };
        let durable = self.durable.unfinished(handler, *topic).take_while(|sequence| *sequence <= through);
        let mut still = durable.filter(|sequence| sequence != own);
        let still = still.find(|sequence| self.slot(&key(*sequence)).is_some_and(|slot| is_begun(*sequence, &slot)));
        let decided = self.overlay.slots.iter().filter(|(key, slot)| {
            let is_ours =
                key.topic == *topic && key.sequence <= through && key.sequence != *own && key.handler == *handler;
            is_ours && is_begun(key.sequence, slot)
        });
        decided.map(|(key, _)| key.sequence).chain(still).min()
    }
}

#[cfg(test)]
mod tests {
    use crate::ledger::decide::decision::Decision;
    use crate::ledger::decide::overlay::Overlay;
    use crate::ledger::disk::table::DiskTables;
    use crate::ledger::facts::entry::Entry;
    use crate::ledger::state::LedgerState;
    use crate::ledger::state::claims::{ClaimKey, ClaimSlot, ClaimState, FinishedBy};
    use contract::{FencingToken, Sequence};
    use uuid::Uuid;

    fn key(sequence: u64) -> ClaimKey {
        ClaimKey { handler: "billing".to_owned(), topic: 1, sequence: Sequence(sequence) }
    }

    fn take(decision: &mut Decision<'_>, sequence: u64) -> FencingToken {
        let (claim, owner) = (key(sequence), "w".to_owned());
        let entry = Entry::ClaimTaken { claim, event: Uuid::from_u128(1), owner, lease_millis: 10, attempt: 1 };
        FencingToken(decision.add_entry(entry).unwrap().get())
    }

    fn finish(decision: &mut Decision<'_>, sequence: u64, token: FencingToken) {
        decision.add_entry(Entry::ClaimDone { claim: key(sequence), token }).unwrap();
    }

    #[test]
    fn what_is_decided_counts_before_it_is_durable_and_is_the_same_afterwards() {
        let (mut state, mut overlay) = (LedgerState::new(DiskTables::in_memory(|_| 0)), Overlay::default());
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
        assert_eq!(decision.claims().slot(&key(7)), Some(ClaimSlot::Finished(FinishedBy::First)));
        let Some(ClaimSlot::Open(row)) = decision.claims().slot(&key(9)) else { panic!("9 is open") };
        assert_eq!((row.token, row.standing), (other, ClaimState::Live { until: 15 }));
        for record in overlay.take_records() {
            state.apply(&record).unwrap();
            overlay.remove_durable(&record);
            assert_eq!(seen(&Decision::new(&state, &mut overlay, 5)), (Sequence(7), true, false));
        }
        assert!(state.tables.claims().is_finished("billing", 1, Sequence(7)));
        assert_eq!(state.tables.claims().slot(&key(9)), Some(ClaimSlot::Open(row)));
    }
}
