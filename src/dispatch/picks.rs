//! Picking: the planner chooses the next job, by pool, priority and turn, and marks it as in flight.

use super::lane::{AfterAttempt, LaneKey, LaneQueueing, PlannedJob, PlannerPick};
use super::planner::{InFlightJob, Planner, PoolPlace, bytes_of};
use super::pool_queue::{DeliveryClass, is_slow};
use std::sync::Arc;

impl Planner {
    /// The next job to send or to let expire.
    pub(crate) fn next(&mut self, now: i64) -> Option<PlannerPick> {
        if let Some(expired) = self.next_expired(now) {
            return Some(expired);
        }
        while let Some((due, key)) = self.timers.first().copied().filter(|(due, _)| *due <= now) {
            self.timers.remove(&(due, key));
            if let Some(lane) = self.lanes.get_mut(&key) {
                lane.queued = LaneQueueing::No;
            }
            self.queue(key, now);
        }
        let pools: Vec<String> =
            self.pools.iter().filter(|(_, pool)| !pool.ready.is_empty()).map(|(code, _)| code.clone()).collect();
        for pool in pools {
            while let Some((key, class)) = self.next_lane(&pool, now) {
                if let Some(pick) = self.take(key, (&pool, class), now) {
                    return Some(pick);
                }
            }
        }
        None
    }

    /// The lane whose turn it is in a pool, and how its delivery counts.
    fn next_lane(&mut self, code: &str, now: i64) -> Option<(LaneKey, DeliveryClass)> {
        self.slow_down(now);
        loop {
            let pool = self.pools.get_mut(code)?;
            if !pool.has_room(now) {
                return None;
            }
            let (concurrency, lanes, bytes) = (pool.concurrency, &self.lanes, &self.in_flight_bytes);
            let may_begin = |key: LaneKey, class: DeliveryClass| {
                // A deleted lane is removed from the queue when its turn comes.
                let Some(lane) = lanes.get(&key) else { return true };
                let next = lane.next_bytes(now);
                pool.ready.has_share(concurrency, lane.share, &lane.origin, class)
                    && bytes.has_room(lane.class(now), lane.in_flight_bytes, next, lanes.len() <= 1)
            };
            let (class, rank, key) = pool.ready.next(concurrency, may_begin)?;
            let Some(lane) = self.lanes.get_mut(&key) else {
                pool.ready.remove(class, rank, key);
                continue;
            };
            if lane.class(now) == class {
                pool.ready.remove(class, rank, key);
                lane.queued = LaneQueueing::No;
                return Some((key, class));
            }
            self.queue(key, now);
        }
    }

    /// Takes the next job of a lane; `None` if it had to be put back.
    fn take(&mut self, key: LaneKey, place: (&str, DeliveryClass), now: i64) -> Option<PlannerPick> {
        let lane = self.lanes.get_mut(&key)?;
        let first = lane.due.first_entry().filter(|first| first.key().0 <= now);
        let Some(job) = first.map(|first| first.remove()) else {
            self.queue(key, now);
            return None;
        };
        if !job.has_row && !self.has_row_left(key) {
            self.park(key, job, now);
            return None;
        }
        match now >= job.expires {
            true => Some(self.expire(key, job, now)),
            false => self.send(key, job, place, now),
        }
    }

    /// Starts a delivery; `None` if the job had to be put back.
    fn send(
        &mut self,
        key: LaneKey,
        mut job: PlannedJob,
        (pool, class): (&str, DeliveryClass),
        now: i64,
    ) -> Option<PlannerPick> {
        let lane = self.lanes.get_mut(&key)?;
        let scope = lane.rules.scope;
        let target = Arc::clone(job.target.as_ref().unwrap_or(&lane.rules.target));
        if let Some(group) = job.in_group() {
            let group = self.groups.entry(scope).or_default().entry(group).or_default();
            match group.begin(key, job) {
                Some(begun) => job = begun,
                None => {
                    self.queue(key, now);
                    return None;
                }
            }
        }
        let is_probe = match self.breakers.admit(&target, now) {
            Ok(is_probe) => is_probe,
            Err(until) => {
                job.awaits_breaker = true;
                self.return_job((key, scope), job, AfterAttempt::Waits { until, tried: false, counts: false }, now);
                return None;
            }
        };
        lane.share.begin(class);
        let origin = Arc::clone(&lane.origin);
        lane.in_flight_bytes += job.event.bytes as usize;
        self.in_flight_bytes.begin(class, job.event.bytes as usize);
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.begin(class, &origin);
        }
        if class == DeliveryClass::Quick {
            self.quick_flights.insert((now, key, job.sequence));
        }
        job.awaits_breaker = false;
        let probes = is_probe.then_some(target);
        let place = PoolPlace { pool: pool.to_owned(), class, origin };
        Some(PlannerPick::Send(key, self.mark_in_flight(key, job, Some(place), probes, now)))
    }

    /// Deliveries that began as quick ones and take too long count as slow from now on.
    fn slow_down(&mut self, now: i64) {
        while let Some((_, key, sequence)) =
            self.quick_flights.first().copied().filter(|(began, ..)| is_slow(*began, now))
        {
            self.quick_flights.pop_first();
            let Some(flight) = self.in_flight.get_mut(&(key, sequence)) else { continue };
            let Some(place) = &mut flight.place else { continue };
            place.class = DeliveryClass::Slow;
            self.in_flight_bytes.slow_down(flight.job.event.bytes as usize);
            if let Some(pool) = self.pools.get_mut(&place.pool) {
                pool.ready.slow_down(&place.origin);
            }
            if let Some(lane) = self.lanes.get_mut(&key) {
                lane.share.slow_down();
            }
        }
    }

    /// Lets a job expire that reached its maximum age.
    pub(super) fn expire(&mut self, key: LaneKey, job: PlannedJob, now: i64) -> PlannerPick {
        PlannerPick::Expire(key, self.mark_in_flight(key, job, None, None, now))
    }

    /// Marks a job as in flight.
    fn mark_in_flight(
        &mut self,
        key: LaneKey,
        job: PlannedJob,
        place: Option<PoolPlace>,
        probes: Option<Arc<str>>,
        now: i64,
    ) -> PlannedJob {
        let Some(lane) = self.lanes.get_mut(&key) else { return job };
        let stored = lane.cached.remove(&job.sequence);
        self.cached = self.cached.saturating_sub(bytes_of(stored.as_ref()));
        self.rowless_in_flight += usize::from(!job.has_row);
        debug_assert!(!self.in_flight.contains_key(&(key, job.sequence)), "a job is in flight twice");
        let flight = InFlightJob { place, scope: lane.rules.scope, job: job.clone(), began: now, probes };
        self.in_flight.insert((key, job.sequence), flight);
        self.queue(key, now);
        PlannedJob { stored, ..job }
    }
}

#[cfg(test)]
mod tests {
    use crate::dispatch::lane::{AfterAttempt, EventArrival, LaneKey, LaneRules, NewJob, PlannerPick};
    use crate::dispatch::planner::Planner;
    use contract::{DispatchMode, Pool, Sequence};
    use uuid::Uuid;

    /// A pool of 64 with so many lanes to a receiver that hangs, and one lane, the last, to another receiver.
    fn planner(hanging: u64) -> (Planner, LaneKey) {
        let mut planner = Planner::default();
        planner.set_pools(&[Pool { code: "p".to_owned(), concurrency: 64, rate_per_minute: None }], 0);
        for lane in 0..=hanging {
            let target = if lane == hanging { "http://other/".to_owned() } else { format!("http://hangs/{lane}") };
            let rules = LaneRules {
                scope: key(lane).lane,
                pool: "p".to_owned(),
                priority: 99,
                mode: DispatchMode::Immediate,
                target: target.as_str().into(),
                delay_millis: 0,
                max_age_millis: i64::MAX,
                ages_from: None,
                is_replay: false,
                paused: false,
            };
            planner.put_lane(key(lane), rules, Sequence::ZERO, 0);
        }
        (planner, key(hanging))
    }

    fn key(lane: u64) -> LaneKey {
        LaneKey { lane: Uuid::from_u128(u128::from(lane) + 1), part: 0 }
    }

    fn offer(planner: &mut Planner, key: LaneKey, sequence: u64, now: i64) {
        let event = EventArrival { time: now, bytes: 1 };
        planner.offer(key, NewJob { sequence: Sequence(sequence), group: None, event, stored: None }, now);
    }

    fn sent(planner: &mut Planner, now: i64) -> Vec<(LaneKey, Sequence)> {
        let picks = std::iter::from_fn(|| planner.next(now)).map(|pick| match pick {
            PlannerPick::Send(key, job) => (key, job.sequence),
            PlannerPick::Expire(..) => panic!("nothing expires"),
        });
        picks.collect()
    }

    /// Thirty subscriptions of one receiver, quick until it began to hang, filled the pool.
    #[test]
    fn many_quick_lanes_of_a_receiver_that_begins_to_hang_leave_room_for_another() {
        let (mut planner, other) = planner(30);
        (0..=30).for_each(|lane| offer(&mut planner, key(lane), 1, 0));
        for (key, sequence) in sent(&mut planner, 0) {
            planner.job_ended(key, sequence, AfterAttempt::Over, 10);
        }
        (0..30).for_each(|lane| (2..10).for_each(|sequence| offer(&mut planner, key(lane), sequence, 20)));
        let begun = sent(&mut planner, 20).len();
        assert_eq!(begun, 48, "three quarters");
        for now in [20, 5000] {
            offer(&mut planner, other, now as u64, now);
            assert_eq!(sent(&mut planner, now), [(other, Sequence(now as u64))]);
            planner.job_ended(other, Sequence(now as u64), AfterAttempt::Over, now + 5);
        }
    }

    /// After every restart nothing is known of a lane, and eighty of them took all places as quick ones.
    #[test]
    fn lanes_that_were_never_tried_leave_room_for_another_receiver() {
        let (mut planner, other) = planner(80);
        (0..80).for_each(|lane| offer(&mut planner, key(lane), 1, 0));
        assert_eq!(sent(&mut planner, 0).len(), 36);
        offer(&mut planner, other, 1, 0);
        assert_eq!(sent(&mut planner, 0), [(other, Sequence(1))]);
    }
}
