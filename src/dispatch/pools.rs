//! Pools: how many deliveries are in flight, and how many may start. Whose turn it is, is decided by `pool_queue`.
//!
//! - A full pool delays only its own lanes.
//! - In a minute exactly as many deliveries start as the rate says, if enough jobs wait: nothing is lost to rounding,
//!   however often the pool is asked. Time is the log's, which never falls.

use super::pool_queue::{DeliveryClass, PoolQueue};
use contract::Pool;
use std::sync::Arc;

/// One pool in use.
pub(super) struct PoolPlan {
    pub(super) concurrency: u32,
    rate_per_minute: Option<u32>,
    pub(super) in_flight: u32,
    /// Deliveries that may start now, in units of [`TOKEN`].
    tokens: i64,
    refilled_at: i64,
    /// Lanes with a job to send.
    pub(super) ready: PoolQueue,
}

/// The price of one delivery. Each millisecond adds exactly the rate per minute, so there is no remainder to lose.
const TOKEN: i64 = 60_000;

impl PoolPlan {
    pub(super) fn new(pool: &Pool, now: i64) -> Self {
        let mut plan = Self {
            concurrency: pool.concurrency,
            rate_per_minute: pool.rate_per_minute,
            in_flight: 0,
            tokens: TOKEN,
            refilled_at: now,
            ready: PoolQueue::default(),
        };
        plan.tokens = plan.burst();
        plan
    }

    /// Applies a changed definition; deliveries in flight are not affected.
    pub(super) fn change(&mut self, pool: &Pool) {
        (self.concurrency, self.rate_per_minute) = (pool.concurrency, pool.rate_per_minute);
        self.tokens = self.tokens.min(self.tokens_max());
    }

    /// Whether deliveries are in flight in it, or lanes use it.
    pub(super) fn is_used(&self) -> bool {
        self.in_flight > 0 || self.ready.is_used() || !self.ready.is_empty()
    }

    /// Tokens for one second of the rate, at least for one delivery.
    fn burst(&self) -> i64 {
        self.rate_per_minute.map_or(TOKEN, |rate| (i64::from(rate) * 1000).max(TOKEN))
    }

    /// The most tokens a pool may hold: the burst. If that is one delivery, almost one more, so that a rate of one per
    /// second is kept although the pool is asked a moment late.
    fn tokens_max(&self) -> i64 {
        let second = self.rate_per_minute.map_or(0, |rate| i64::from(rate) * 1000);
        self.burst().max((TOKEN + second).min(2 * TOKEN - 1))
    }

    fn refill(&mut self, now: i64) {
        let Some(rate) = self.rate_per_minute else { return };
        let millis = now.saturating_sub(self.refilled_at).clamp(0, 60_000);
        self.tokens = (self.tokens + millis * i64::from(rate)).min(self.tokens_max());
        self.refilled_at = self.refilled_at.max(now);
    }

    /// Whether a delivery may start.
    pub(super) fn has_room(&mut self, now: i64) -> bool {
        self.refill(now);
        self.in_flight < self.concurrency && (self.rate_per_minute.is_none() || self.tokens >= TOKEN)
    }

    /// When the next delivery may start, if only the rate prevents it.
    pub(super) fn next_token(&self) -> Option<i64> {
        let rate = i64::from(self.rate_per_minute?).max(1);
        let is_short = self.in_flight < self.concurrency && self.tokens < TOKEN && !self.ready.is_empty();
        let short = TOKEN - self.tokens;
        is_short.then(|| self.refilled_at + ((short + rate - 1) / rate).max(1))
    }

    pub(super) fn begin(&mut self, class: DeliveryClass, origin: &Arc<str>) {
        self.in_flight += 1;
        self.ready.begin(class, origin);
        if self.rate_per_minute.is_some() {
            self.tokens -= TOKEN;
        }
    }

    pub(super) fn end(&mut self, class: DeliveryClass, origin: &Arc<str>) {
        debug_assert!(self.in_flight > 0, "a delivery ends in a pool that has none in flight");
        self.in_flight = self.in_flight.saturating_sub(1);
        self.ready.end(class, origin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::lane::LaneKey;

    fn pool(concurrency: u32, rate_per_minute: Option<u32>) -> Pool {
        Pool { code: "p".to_owned(), concurrency, rate_per_minute }
    }

    #[test]
    fn no_more_begin_in_a_minute_than_the_rate_allows() {
        let mut plan = PoolPlan::new(&pool(1000, Some(120)), 0);
        plan.ready.insert(DeliveryClass::Quick, 0, LaneKey::default());
        let mut begun = 0;
        for now in 0..60_000 {
            while plan.has_room(now) {
                plan.begin(DeliveryClass::Quick, &"http://a".into());
                begun += 1;
            }
            if now == 0 {
                assert_eq!((begun, plan.next_token()), (2, Some(500)));
            }
        }
        assert!((118..=122).contains(&begun), "{begun}");
    }

    /// How many begin in each minute where many wait, in a pool that is asked again after each of `waits` in turn.
    fn begun(rate: u32, minutes: usize, waits: &[i64]) -> Vec<u32> {
        let mut plan = PoolPlan::new(&pool(u32::MAX, Some(rate)), 0);
        plan.ready.insert(DeliveryClass::Quick, 0, LaneKey::default());
        let (mut begun, mut now) = (vec![0; minutes + 1], 0);
        for wait in waits.iter().cycle() {
            let Some(count) = begun.get_mut(now as usize / 60_000) else { break };
            while plan.has_room(now) {
                plan.begin(DeliveryClass::Quick, &"http://a".into());
                *count += 1;
            }
            now += wait;
        }
        begun.truncate(minutes);
        begun
    }

    #[test]
    fn a_busy_broker_that_asks_at_odd_moments_sends_as_many_as_the_rate_says() {
        let table: [(u32, &[i64]); 9] = [
            (119, &[1]),
            (119, &[7, 3, 1, 251, 13]),
            (119, &[499, 2]),
            (110, &[5, 60, 1]),
            (100, &[333]),
            (60, &[700]),
            (10, &[50, 1, 900]),
            (1, &[997]),
            (6000, &[1, 2, 3]),
        ];
        for (rate, waits) in table {
            let begun = begun(rate, 6, waits);
            // The first minute begins with a second's worth.
            let first = rate + (rate / 60).max(1);
            assert!((rate..=first).contains(&begun[0]), "{rate} {waits:?}: {begun:?}");
            let rest: u32 = begun[1..].iter().sum();
            assert!(rest.abs_diff(5 * rate) <= 1, "{rate} {waits:?}: {begun:?}");
        }
    }

    #[test]
    fn a_time_that_falls_neither_stalls_a_pool_nor_gives_it_more() {
        let mut plan = PoolPlan::new(&pool(1000, Some(60)), 1_000_000);
        assert!(plan.has_room(1_000_000));
        plan.begin(DeliveryClass::Quick, &"http://a".into());
        assert!(!plan.has_room(400_000));
        assert!(!plan.has_room(1_000_999));
        assert!(plan.has_room(1_001_000));
    }

    #[test]
    fn no_more_than_a_seconds_worth_begins_at_once_however_long_nothing_was_sent() {
        for (rate, most) in [(1, 1), (59, 1), (60, 1), (119, 1), (120, 2), (600, 10)] {
            let mut plan = PoolPlan::new(&pool(1000, Some(rate)), 0);
            let mut begun = 0;
            while plan.has_room(3_600_000) {
                plan.begin(DeliveryClass::Quick, &"http://a".into());
                begun += 1;
            }
            assert_eq!(begun, most, "{rate}");
        }
    }

    #[test]
    fn a_change_counts_at_once() {
        let mut plan = PoolPlan::new(&pool(2, None), 0);
        plan.begin(DeliveryClass::Quick, &"http://a".into());
        plan.begin(DeliveryClass::Quick, &"http://a".into());
        assert!(!plan.has_room(0));
        plan.change(&pool(3, None));
        assert!(plan.has_room(0));
        plan.change(&pool(1, None));
        plan.end(DeliveryClass::Quick, &"http://a".into());
        assert!(!plan.has_room(0));
        plan.end(DeliveryClass::Quick, &"http://a".into());
        assert!(plan.has_room(0));
    }
}
