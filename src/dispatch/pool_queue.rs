//! The queue of a pool: whose turn it is, and how much of the pool one lane and one receiver may take.
//!
//! - The lower priority number goes first; equals take turns. Waiting raises the rank: after [`AGE_STEP`] deliveries of
//!   others a lane ranks like the next lower number, so no lane starves.
//! - A delivery is quick if the lane's last one took no longer than a second and, while others of the lane are in flight,
//!   one of them ended within the last second. Everything else is slow: a lane that was never tried too, and a quick delivery
//!   that is in flight for more than a second. All slow ones together leave a quarter of the pool to the quick ones.
//! - No lane, and no origin (the lanes of one receiver), takes more than three quarters of what the others leave it: of the
//!   pool, and of the share of slow deliveries. So however many deliveries hang, a lane of another receiver finds a place.
//!   A lane or an origin that has the pool to itself uses all of it.
//! - All replays together take a quarter of the pool at most, at least one delivery at a time.
//! - A pool of less than four has no such reserve: a slow lane delays the others.

use super::lane::LaneKey;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// So many deliveries of others raise the rank of a waiting lane by one priority number.
pub(super) const AGE_STEP: u64 = 8;
/// A delivery that takes longer, in milliseconds, is slow.
const QUICK_MILLIS: i64 = 1000;

/// How a delivery counts in its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeliveryClass {
    Quick,
    Slow,
    Replay,
}

impl DeliveryClass {
    const ALL: [Self; 3] = [Self::Quick, Self::Slow, Self::Replay];
}

/// How quick the last delivery of a lane was.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LanePace {
    /// Whether the last one that ended was quick, and when it ended.
    last: Option<(bool, i64)>,
}

impl LanePace {
    /// A delivery that began then has ended.
    pub(super) const fn end(&mut self, began: i64, now: i64) {
        self.last = Some((!is_slow(began, now), now));
    }

    /// What the next delivery counts as, with so many in flight.
    pub(super) const fn class(&self, in_flight: u32, now: i64) -> DeliveryClass {
        match self.last {
            // If many are in flight and none ends, they may hang.
            Some((true, ended_at)) if in_flight == 0 || now.saturating_sub(ended_at) <= QUICK_MILLIS => {
                DeliveryClass::Quick
            }
            _ => DeliveryClass::Slow,
        }
    }
}

/// Whether a delivery takes longer than a quick one.
pub(super) const fn is_slow(began: i64, now: i64) -> bool {
    now.saturating_sub(began) > QUICK_MILLIS
}

/// What a lane, or an origin, has in flight in a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PoolShare {
    pub(super) in_flight: u32,
    /// Those of them that are slow or replayed.
    pub(super) slow: u32,
}

impl PoolShare {
    pub(super) const fn begin(&mut self, class: DeliveryClass) {
        self.in_flight += 1;
        if !matches!(class, DeliveryClass::Quick) {
            self.slow += 1;
        }
    }

    pub(super) const fn end(&mut self, class: DeliveryClass) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if !matches!(class, DeliveryClass::Quick) {
            self.slow = self.slow.saturating_sub(1);
        }
    }

    /// A quick delivery became a slow one.
    pub(super) const fn slow_down(&mut self) {
        self.slow += 1;
    }

    /// Whether this lane or origin may begin another delivery, beside all that are in flight.
    const fn has_share(self, concurrency: u32, all: Self, class: DeliveryClass) -> bool {
        let fits = has_share(concurrency, all.in_flight, self.in_flight);
        fits && (matches!(class, DeliveryClass::Quick) || has_share(most(concurrency), all.slow, self.slow))
    }
}

/// The receiver of a lane's deliveries in a pool.
#[derive(Debug, Default)]
struct PoolOrigin {
    /// Lanes that may send to it.
    lanes: u32,
    share: PoolShare,
}

/// The lanes of a pool that have a job to send, and what is in flight.
#[derive(Debug, Default)]
pub(super) struct PoolQueue {
    quick: BTreeSet<(u64, LaneKey)>,
    slow: BTreeSet<(u64, LaneKey)>,
    replays: BTreeSet<(u64, LaneKey)>,
    /// Deliveries that were started.
    begun: u64,
    share: PoolShare,
    replays_in_flight: u32,
    /// Lanes that may send in this pool.
    lanes: u32,
    origins: HashMap<Arc<str>, PoolOrigin>,
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

    /// The rank of a lane that starts to wait now: the lowest goes first.
    pub(super) fn rank(&self, priority: u32) -> u64 {
        self.begun.saturating_add(u64::from(priority) * AGE_STEP)
    }

    pub(super) fn insert(&mut self, class: DeliveryClass, rank: u64, lane: LaneKey) {
        self.of(class).insert((rank, lane));
    }

    pub(super) fn remove(&mut self, class: DeliveryClass, rank: u64, lane: LaneKey) {
        self.of(class).remove(&(rank, lane));
    }

    /// Whether a lane may send in this pool.
    pub(super) const fn is_used(&self) -> bool {
        self.lanes > 0
    }

    /// A lane may send in this pool from now on.
    pub(super) fn add_lane(&mut self, origin: &Arc<str>) {
        self.lanes += 1;
        self.origins.entry(Arc::clone(origin)).or_default().lanes += 1;
    }

    /// A lane may no longer send in this pool.
    pub(super) fn remove_lane(&mut self, origin: &Arc<str>) {
        debug_assert!(self.lanes > 0, "a lane leaves a pool that has none");
        self.lanes = self.lanes.saturating_sub(1);
        if let Some(known) = self.origins.get_mut(origin) {
            known.lanes = known.lanes.saturating_sub(1);
        }
        self.forget_unused(origin);
    }

    fn forget_unused(&mut self, origin: &Arc<str>) {
        if self.origins.get(origin).is_some_and(|it| it.lanes == 0 && it.share.in_flight == 0) {
            self.origins.remove(origin);
        }
    }

    /// The lane whose turn it is, among those that `may` start another delivery.
    pub(super) fn next(
        &self,
        concurrency: u32,
        may: impl Fn(LaneKey, DeliveryClass) -> bool,
    ) -> Option<(DeliveryClass, u64, LaneKey)> {
        let slow_fits = self.lanes <= 1 || self.share.slow < most(concurrency);
        let first = |class: DeliveryClass| {
            let (set, is_open) = match class {
                DeliveryClass::Quick => (&self.quick, true),
                DeliveryClass::Slow => (&self.slow, slow_fits),
                DeliveryClass::Replay => {
                    (&self.replays, slow_fits && self.replays_in_flight < (concurrency / 4).max(1))
                }
            };
            let found = is_open.then(|| set.iter().find(|(_, lane)| may(*lane, class))).flatten();
            found.map(|(rank, lane)| (*rank, *lane, class))
        };
        let next = DeliveryClass::ALL.into_iter().filter_map(first).min_by_key(|(rank, lane, _)| (*rank, *lane));
        next.map(|(rank, lane, class)| (class, rank, lane))
    }

    /// Whether a lane with this in flight may begin another delivery to its origin.
    pub(super) fn has_share(&self, concurrency: u32, lane: PoolShare, origin: &str, class: DeliveryClass) -> bool {
        if self.lanes <= 1 {
            return true;
        }
        let of_origin = self.origins.get(origin).map(|it| it.share).unwrap_or_default();
        lane.has_share(concurrency, self.share, class)
            && (self.origins.len() <= 1 || of_origin.has_share(concurrency, self.share, class))
    }

    pub(super) fn begin(&mut self, class: DeliveryClass, origin: &Arc<str>) {
        self.begun += 1;
        self.share.begin(class);
        self.origins.entry(Arc::clone(origin)).or_default().share.begin(class);
        self.replays_in_flight += u32::from(class == DeliveryClass::Replay);
    }

    /// A quick delivery is in flight for so long that it is a slow one.
    pub(super) fn slow_down(&mut self, origin: &Arc<str>) {
        self.share.slow_down();
        if let Some(known) = self.origins.get_mut(origin) {
            known.share.slow_down();
        }
    }

    pub(super) fn end(&mut self, class: DeliveryClass, origin: &Arc<str>) {
        self.share.end(class);
        if let Some(known) = self.origins.get_mut(origin) {
            known.share.end(class);
        }
        if class == DeliveryClass::Replay {
            self.replays_in_flight = self.replays_in_flight.saturating_sub(1);
        }
        self.forget_unused(origin);
    }
}

/// Whether one that has `own` of all in flight may begin another: three quarters of what the others leave it.
const fn has_share(places: u32, all: u32, own: u32) -> bool {
    own < most(places.saturating_sub(all.saturating_sub(own)))
}

/// The origin of a URL: its scheme, host and port.
pub(super) fn origin_of(target: &str) -> Arc<str> {
    let path = target.match_indices('/').nth(2).map_or(target.len(), |(at, _)| at);
    target.get(..path).unwrap_or(target).into()
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

    /// With strict priority a backlog at `sequence` 1 starved subscriptions with a higher one for ever.
    #[test]
    fn whoever_waits_gets_a_turn_after_as_many_deliveries_as_priority_is_worth() {
        for (one, other, passed) in [(1, 99, 784), (99, 100, 8), (5, 6, 8), (7, 7, 1), (0, 1000, 8000)] {
            let mut queue = PoolQueue { begun: 1000, ..PoolQueue::default() };
            queue.insert(DeliveryClass::Quick, queue.rank(other), lane(2));
            queue.insert(DeliveryClass::Quick, queue.rank(one), lane(1));
            let mut count = 0;
            loop {
                let Some((class, rank, next)) = queue.next(1, |_, _| true) else { panic!("nobody's turn") };
                if next == lane(2) {
                    break;
                }
                queue.remove(class, rank, next);
                queue.begin(class, &"http://a".into());
                queue.end(class, &"http://a".into());
                queue.insert(class, queue.rank(one), next);
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
                let mut queue = PoolQueue { lanes: 2, ..PoolQueue::default() };
                queue.insert(class, 0, lane(1));
                let begun = (0..1000).take_while(|_| {
                    let next = queue.next(concurrency, |_, _| true);
                    next.inspect(|(class, ..)| queue.begin(*class, &"http://a".into())).is_some()
                });
                assert_eq!(begun.count(), most, "{concurrency} {class:?}");
            }
        }
    }

    #[test]
    fn a_lane_is_slow_until_it_was_quick_after_a_slow_delivery_and_while_none_comes_back() {
        let mut pace = LanePace::default();
        assert_eq!([0, 1].map(|in_flight| pace.class(in_flight, 0)), [DeliveryClass::Slow; 2], "never tried");
        pace.end(0, 1000);
        assert_eq!(pace.class(40, 2000), DeliveryClass::Quick);
        assert_eq!(pace.class(40, 2001), DeliveryClass::Slow, "forty, and none came back for a second");
        assert_eq!(pace.class(0, 5000), DeliveryClass::Quick);
        assert_eq!(pace.class(1, 5001), DeliveryClass::Slow, "the first of a burst did not come back yet");
        pace.end(5000, 6001);
        assert_eq!(pace.class(0, 6001), DeliveryClass::Slow);
    }

    /// How many of class `class` one lane, or one origin with a lane each, begins beside `others` of that class.
    fn begun(concurrency: u32, class: DeliveryClass, others: u32, is_one_lane: bool) -> u32 {
        let (hanging, other): (Arc<str>, Arc<str>) = ("http://hangs".into(), "http://other".into());
        let mut queue = PoolQueue::default();
        queue.add_lane(&hanging);
        queue.add_lane(&other);
        (0..others).for_each(|_| queue.begin(class, &other));
        let mut lane = PoolShare::default();
        for count in 0..1000 {
            if queue.share.in_flight == concurrency || !queue.has_share(concurrency, lane, &hanging, class) {
                return count;
            }
            queue.begin(class, &hanging);
            if is_one_lane {
                lane.begin(class);
            }
        }
        1000
    }

    /// One slow lane took the whole share of the slow ones, and thirty lanes to one receiver the whole pool.
    #[test]
    fn neither_a_lane_nor_an_origin_takes_all_that_others_need() {
        for is_one_lane in [true, false] {
            for (class, most) in [(DeliveryClass::Quick, 48), (DeliveryClass::Slow, 36)] {
                assert_eq!(begun(64, class, 0, is_one_lane), most, "{class:?}");
            }
            assert_eq!(begun(64, DeliveryClass::Slow, 8, is_one_lane), 30, "three quarters of forty");
            assert_eq!(begun(2, DeliveryClass::Slow, 0, is_one_lane), 2, "a small pool has nothing to leave");
        }
    }

    #[test]
    fn an_origin_is_all_before_the_path_of_a_url() {
        for (target, origin) in
            [("http://a:80/x/y", "http://a:80"), ("https://b/", "https://b"), ("https://b", "https://b"), ("", "")]
        {
            assert_eq!(&*origin_of(target), origin);
        }
    }
}
