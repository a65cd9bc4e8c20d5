//! Pools in use: how many deliveries run, how many may begin, and whose turn it is.
//!
//! - A full pool holds up nobody but its own lanes.
//! - Of the lanes that wait, the one with the lowest priority number goes first; among equals the one that waited longest.

use super::lane::LaneKey;
use contract::Pool;
use std::collections::BTreeSet;

/// One pool in use.
pub(super) struct PoolPlan {
    pub(super) concurrency: u32,
    rate_per_minute: Option<u32>,
    pub(super) flying: u32,
    /// Deliveries that may begin now, in thousandths.
    tokens: i64,
    refilled_at: i64,
    /// Lanes with something to send: priority, when they last had their turn, which.
    pub(super) ready: BTreeSet<(u32, u64, LaneKey)>,
}

const TOKEN: i64 = 1000;

impl PoolPlan {
    pub(super) fn new(pool: &Pool, now: i64) -> Self {
        let mut plan = Self {
            concurrency: pool.concurrency,
            rate_per_minute: pool.rate_per_minute,
            flying: 0,
            tokens: TOKEN,
            refilled_at: now,
            ready: BTreeSet::new(),
        };
        plan.tokens = plan.tokens_max();
        plan
    }

    /// The pool is another one from now on; what runs, runs.
    pub(super) fn change(&mut self, pool: &Pool) {
        (self.concurrency, self.rate_per_minute) = (pool.concurrency, pool.rate_per_minute);
        self.tokens = self.tokens.min(self.tokens_max());
    }

    /// A second's worth may begin at once.
    fn tokens_max(&self) -> i64 {
        self.rate_per_minute.map_or(TOKEN, |rate| (i64::from(rate) * TOKEN / 60).max(TOKEN))
    }

    fn refill(&mut self, now: i64) {
        let Some(rate) = self.rate_per_minute else { return };
        let millis = now.saturating_sub(self.refilled_at).clamp(0, 60_000);
        let gained = millis * i64::from(rate) * TOKEN / 60_000;
        if gained > 0 {
            self.tokens = (self.tokens + gained).min(self.tokens_max());
            self.refilled_at = now;
        }
    }

    /// Whether a delivery may begin.
    pub(super) fn has_room(&mut self, now: i64) -> bool {
        self.refill(now);
        self.flying < self.concurrency && (self.rate_per_minute.is_none() || self.tokens >= TOKEN)
    }

    /// When it may, where only the rate is in the way.
    pub(super) fn next_token(&self) -> Option<i64> {
        let rate = i64::from(self.rate_per_minute?);
        let is_short = self.flying < self.concurrency && self.tokens < TOKEN && !self.ready.is_empty();
        let (short, gain) = ((TOKEN - self.tokens) * 60_000, rate * TOKEN);
        is_short.then(|| self.refilled_at + ((short + gain - 1) / gain).max(1))
    }

    pub(super) fn begin(&mut self) {
        self.flying += 1;
        if self.rate_per_minute.is_some() {
            self.tokens -= TOKEN;
        }
    }

    pub(super) fn end(&mut self) {
        self.flying = self.flying.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(concurrency: u32, rate_per_minute: Option<u32>) -> Pool {
        Pool { code: "p".to_owned(), concurrency, rate_per_minute }
    }

    #[test]
    fn no_more_begin_in_a_minute_than_the_rate_allows() {
        let mut plan = PoolPlan::new(&pool(1000, Some(120)), 0);
        plan.ready.insert((0, 0, LaneKey::default()));
        let mut begun = 0;
        for now in 0..60_000 {
            while plan.has_room(now) {
                plan.begin();
                begun += 1;
            }
            if now == 0 {
                assert_eq!((begun, plan.next_token()), (2, Some(500)));
            }
        }
        assert!((118..=122).contains(&begun), "{begun}");
    }

    #[test]
    fn a_change_counts_at_once() {
        let mut plan = PoolPlan::new(&pool(2, None), 0);
        plan.begin();
        plan.begin();
        assert!(!plan.has_room(0));
        plan.change(&pool(3, None));
        assert!(plan.has_room(0));
        plan.change(&pool(1, None));
        plan.end();
        assert!(!plan.has_room(0));
        plan.end();
        assert!(plan.has_room(0));
    }
}
