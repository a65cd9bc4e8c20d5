//! Whose turn it is in a pool, and how much of it one lane may take.
//!
//! - The lower priority number goes first; equals take turns. Waiting counts: a lane that was passed [`AGE_STEP`] times is
//!   as good as one of the next lower number, so nobody waits for ever.
//! - A lane whose deliveries take long is slow. All slow lanes together leave a quarter of the pool to the others, and no
//!   lane takes more than three quarters of what the others leave it, unless it has the pool to itself. So whoever is
//!   quick finds a place at once, however many deliveries hang.
//! - All replays together take a quarter of the pool at most, at least one delivery at a time.
//! - In a pool of less than four nothing is left to leave: there a slow lane holds up the others.

use super::lane::LaneKey;
use std::collections::BTreeSet;

/// Deliveries of a pool that count for a waiting lane as much as one number of priority.
pub(super) const AGE_STEP: u64 = 8;
/// A delivery that takes longer, in milliseconds, makes its lane a slow one.
const QUICK_MILLIS: i64 = 1000;

/// What a lane's deliveries are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeliveryClass {
    /// The last one was quick, or nothing is known yet and none is under way.
    Quick,
    Slow,
    Replay,
}

impl DeliveryClass {
    const ALL: [Self; 3] = [Self::Quick, Self::Slow, Self::Replay];
}

/// How a lane's deliveries went lately.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LanePace {
    was_quick: Option<bool>,
    /// When one of them last ended, or the first of them began.
    moved_at: i64,
}

impl LanePace {
    /// A delivery begins, with so many under way before it.
    pub(super) const fn begin(&mut self, in_flight: u32, now: i64) {
        if in_flight == 0 {
            self.moved_at = now;
        }
    }

    /// A delivery that began then is over.
    pub(super) const fn end(&mut self, began: i64, now: i64) {
        self.was_quick = Some(now.saturating_sub(began) <= QUICK_MILLIS);
        self.moved_at = now;
    }

    /// What the next delivery counts as, with so many under way.
    pub(super) const fn class(&self, in_flight: u32, now: i64) -> DeliveryClass {
        let is_quick = match self.was_quick {
            None => in_flight == 0,
            // None of many coming back is a sign, too, before the first of them is over.
            Some(was_quick) => was_quick && (in_flight == 0 || now.saturating_sub(self.moved_at) <= QUICK_MILLIS),
        };
        if is_quick { DeliveryClass::Quick } else { DeliveryClass::Slow }
    }
}

/// The lanes of a pool with something to send, and what runs in it.
#[derive(Debug, Default)]
pub(super) struct PoolQueue {
    quick: BTreeSet<(u64, LaneKey)>,
    slow: BTreeSet<(u64, LaneKey)>,
    replays: BTreeSet<(u64, LaneKey)>,
    /// Deliveries that were begun.
    begun: u64,
    slow_in_flight: u32,
    replays_in_flight: u32,
    /// Lanes that may send in this pool.
    pub(super) lanes: u32,
}

impl PoolQueue {
    const fn of(&mut self, class: DeliveryClass) -> &mut BTreeSet<(u64, LaneKey)> {
        match class {
            DeliveryClass::Quick => &mut self.quick,
            DeliveryClass::Slow => &mut self.slow,
            DeliveryClass::Replay => &mut self.replays,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.quick.is_empty() && self.slow.is_empty() && self.replays.is_empty()
    }

    /// The place of a lane that begins to wait now: the lower goes first.
    pub(super) fn rank(&self, priority: u32) -> u64 {
        self.begun.saturating_add(u64::from(priority) * AGE_STEP)
    }

    pub(super) fn insert(&mut self, class: DeliveryClass, rank: u64, lane: LaneKey) {
        self.of(class).insert((rank, lane));
    }

    pub(super) fn remove(&mut self, class: DeliveryClass, rank: u64, lane: LaneKey) {
        self.of(class).remove(&(rank, lane));
    }

    /// The lane whose turn it is, of those that `may` begin another.
    pub(super) fn next(
        &self,
        concurrency: u32,
        may: impl Fn(LaneKey) -> bool,
    ) -> Option<(DeliveryClass, u64, LaneKey)> {
        let first = |class: DeliveryClass| {
            let (set, is_open) = match class {
                DeliveryClass::Quick => (&self.quick, true),
                DeliveryClass::Slow => (&self.slow, self.lanes <= 1 || self.slow_in_flight < most(concurrency)),
                DeliveryClass::Replay => {
                    let has_share = self.replays_in_flight < (concurrency / 4).max(1);
                    (&self.replays, has_share && (self.lanes <= 1 || self.slow_in_flight < most(concurrency)))
                }
            };
            let found = is_open.then(|| set.iter().find(|(_, lane)| may(*lane))).flatten();
            found.map(|(rank, lane)| (*rank, *lane, class))
        };
        let next = DeliveryClass::ALL.into_iter().filter_map(first).min_by_key(|(rank, lane, _)| (*rank, *lane));
        next.map(|(rank, lane, class)| (class, rank, lane))
    }

    /// Whether a lane with so many of all that fly may begin another.
    pub(super) const fn has_share(&self, concurrency: u32, in_flight: u32, of_lane: u32) -> bool {
        self.lanes <= 1 || of_lane < most(concurrency.saturating_sub(in_flight.saturating_sub(of_lane)))
    }

    pub(super) const fn begin(&mut self, class: DeliveryClass) {
        self.begun += 1;
        match class {
            DeliveryClass::Quick => (),
            DeliveryClass::Slow => self.slow_in_flight += 1,
            DeliveryClass::Replay => {
                self.slow_in_flight += 1;
                self.replays_in_flight += 1;
            }
        }
    }

    pub(super) const fn end(&mut self, class: DeliveryClass) {
        match class {
            DeliveryClass::Quick => (),
            DeliveryClass::Slow => self.slow_in_flight = self.slow_in_flight.saturating_sub(1),
            DeliveryClass::Replay => {
                self.slow_in_flight = self.slow_in_flight.saturating_sub(1);
                self.replays_in_flight = self.replays_in_flight.saturating_sub(1);
            }
        }
    }
}

/// Three quarters, rounded up; one at least.
const fn most(places: u32) -> u32 {
    let most = places - places / 4;
    if most == 0 { 1 } else { most }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn lane(number: u128) -> LaneKey {
        LaneKey { lane: Uuid::from_u128(number), part: 0 }
    }

    /// With strict priority a backlog at `sequence` 1 starved whoever had a higher one for ever.
    #[test]
    fn whoever_waits_gets_a_turn_after_as_many_deliveries_as_priority_is_worth() {
        for (one, other, passed) in [(1, 99, 784), (99, 100, 8), (5, 6, 8), (7, 7, 1), (0, 1000, 8000)] {
            let mut turns = PoolQueue { begun: 1000, ..PoolQueue::default() };
            turns.insert(DeliveryClass::Quick, turns.rank(other), lane(2));
            turns.insert(DeliveryClass::Quick, turns.rank(one), lane(1));
            let mut count = 0;
            loop {
                let Some((class, rank, next)) = turns.next(1, |_| true) else { panic!("nobody's turn") };
                if next == lane(2) {
                    break;
                }
                turns.remove(class, rank, next);
                turns.begin(class);
                turns.end(class);
                turns.insert(class, turns.rank(one), next);
                count += 1;
            }
            assert!((passed..=passed + 1).contains(&count), "{one} {other}: {count}");
        }
    }

    #[test]
    fn slow_lanes_leave_a_quarter_and_replays_take_one() {
        for (concurrency, slow, replays) in [(1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 3, 1), (8, 6, 2), (64, 48, 16)] {
            for (class, most) in
                [(DeliveryClass::Quick, 1000), (DeliveryClass::Slow, slow), (DeliveryClass::Replay, replays)]
            {
                let mut turns = PoolQueue { lanes: 2, ..PoolQueue::default() };
                turns.insert(class, 0, lane(1));
                let begun = (0..1000).take_while(|_| {
                    let next = turns.next(concurrency, |_| true);
                    next.inspect(|(class, ..)| turns.begin(*class)).is_some()
                });
                assert_eq!(begun.count(), most, "{concurrency} {class:?}");
            }
        }
    }

    #[test]
    fn a_lane_is_slow_after_a_slow_delivery_and_while_none_comes_back() {
        let mut pace = LanePace::default();
        assert_eq!(
            [0, 1].map(|in_flight| pace.class(in_flight, 0)),
            [DeliveryClass::Quick, DeliveryClass::Slow],
            "one to find out"
        );
        pace.begin(0, 0);
        pace.end(0, 1000);
        assert_eq!(pace.class(40, 2000), DeliveryClass::Quick);
        assert_eq!(pace.class(40, 2001), DeliveryClass::Slow, "forty, and none came back for a second");
        pace.begin(0, 5000);
        assert_eq!(pace.class(1, 5001), DeliveryClass::Quick);
        pace.end(5000, 6001);
        assert_eq!(pace.class(0, 6001), DeliveryClass::Slow);
    }
}
