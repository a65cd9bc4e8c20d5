//! Bytes of the events that deliveries in flight hold in memory, and whether one more delivery may start.
//!
//! - A pool may have thousands of deliveries in flight, and an event may have a mebibyte: so bytes are limited too.
//! - The shares follow the rules for places in a pool ([`super::pool_queue`]): slow deliveries and replays together
//!   leave a quarter to the others, and no lane takes more than three quarters of what the others leave, unless it is
//!   alone.

use super::pool_queue::DeliveryClass;
use contract::limits::DELIVERY_BYTES_MAX;

/// Bytes of all deliveries in flight.
#[derive(Debug, Default)]
pub(super) struct InFlightBytes {
    all: usize,
    /// Those of slow deliveries and replays.
    slow: usize,
}

impl InFlightBytes {
    /// Whether a lane with `of_lane` bytes in flight may start a delivery of `next` bytes more.
    pub(super) fn has_room(&self, class: DeliveryClass, of_lane: usize, next: usize, is_alone: bool) -> bool {
        if next == 0 || self.all == 0 {
            return true;
        }
        let left_by_others = DELIVERY_BYTES_MAX.saturating_sub(self.all.saturating_sub(of_lane));
        let has_share = || {
            let is_quick = class == DeliveryClass::Quick;
            of_lane + next <= most(left_by_others) && (is_quick || self.slow + next <= most(DELIVERY_BYTES_MAX))
        };
        self.all + next <= DELIVERY_BYTES_MAX && (is_alone || has_share())
    }

    pub(super) fn begin(&mut self, class: DeliveryClass, bytes: usize) {
        self.all += bytes;
        if class != DeliveryClass::Quick {
            self.slow += bytes;
        }
    }

    /// A quick delivery became a slow one.
    pub(super) const fn slow_down(&mut self, bytes: usize) {
        self.slow += bytes;
    }

    pub(super) fn end(&mut self, class: DeliveryClass, bytes: usize) {
        self.all = self.all.saturating_sub(bytes);
        if class != DeliveryClass::Quick {
            self.slow = self.slow.saturating_sub(bytes);
        }
    }
}

/// Three quarters.
const fn most(bytes: usize) -> usize {
    bytes - bytes / 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::lane::{AfterAttempt, EventArrival, LaneKey, LaneRules, NewJob, PlannerPick};
    use crate::dispatch::planner::Planner;
    use contract::{DispatchMode, Pool, Sequence};
    use uuid::Uuid;

    const EVENT: usize = 1024 * 1024;

    /// How many deliveries of a mebibyte a lane may have in flight beside others with so many bytes.
    fn begun(class: DeliveryClass, others: usize, is_alone: bool) -> usize {
        let mut bytes = InFlightBytes::default();
        bytes.begin(DeliveryClass::Quick, others);
        let mut of_lane = 0;
        while bytes.has_room(class, of_lane, EVENT, is_alone) {
            bytes.begin(class, EVENT);
            of_lane += EVENT;
        }
        of_lane / EVENT
    }

    #[test]
    fn no_lane_takes_all_of_the_bytes_unless_it_is_alone() {
        assert_eq!(
            [DeliveryClass::Quick, DeliveryClass::Slow, DeliveryClass::Replay].map(|class| begun(class, 0, false)),
            [48; 3]
        );
        assert_eq!([DeliveryClass::Quick, DeliveryClass::Slow].map(|class| begun(class, 0, true)), [64; 2]);
        assert_eq!(begun(DeliveryClass::Quick, 48 * EVENT, false), 12, "three quarters of what is left");
        assert_eq!(begun(DeliveryClass::Quick, 64 * EVENT, false), 0);
    }

    #[test]
    fn slow_lanes_together_leave_a_quarter() {
        let mut bytes = InFlightBytes::default();
        bytes.begin(DeliveryClass::Slow, 40 * EVENT);
        bytes.begin(DeliveryClass::Replay, 8 * EVENT);
        assert!(
            !bytes.has_room(DeliveryClass::Slow, 0, EVENT, false)
                && !bytes.has_room(DeliveryClass::Replay, 0, EVENT, false)
        );
        assert!(bytes.has_room(DeliveryClass::Quick, 0, EVENT, false));
        bytes.end(DeliveryClass::Replay, 8 * EVENT);
        assert!(bytes.has_room(DeliveryClass::Slow, 0, EVENT, false));
    }

    #[test]
    fn what_holds_nothing_always_goes_and_so_does_the_only_delivery() {
        let mut bytes = InFlightBytes::default();
        assert!(bytes.has_room(DeliveryClass::Slow, 0, 2 * DELIVERY_BYTES_MAX, false));
        bytes.begin(DeliveryClass::Slow, 2 * DELIVERY_BYTES_MAX);
        assert!(bytes.has_room(DeliveryClass::Slow, 0, 0, false) && !bytes.has_room(DeliveryClass::Quick, 0, 1, false));
    }

    fn lane(number: u128) -> (LaneKey, LaneRules) {
        let key = LaneKey { lane: Uuid::from_u128(number), part: 0 };
        let rules = LaneRules {
            scope: key.lane,
            pool: "p".to_owned(),
            priority: 99,
            mode: DispatchMode::Immediate,
            target: "http://a/".into(),
            delay_millis: 0,
            max_age_millis: i64::MAX,
            ages_from: None,
            is_replay: false,
            paused: false,
        };
        (key, rules)
    }

    fn send_all(planner: &mut Planner) -> Vec<(LaneKey, Sequence)> {
        let picks = std::iter::from_fn(|| planner.next(0)).map(|pick| match pick {
            PlannerPick::Send(key, job) => (key, job.sequence),
            PlannerPick::Expire(..) => panic!("nothing expires"),
        });
        picks.collect()
    }

    /// A pool of thousands had as many events of a mebibyte in memory.
    #[test]
    fn a_large_pool_has_no_more_bytes_under_way_than_may_be_and_others_find_room() {
        let mut planner = Planner::default();
        planner.set_pools(&[Pool { code: "p".to_owned(), concurrency: 10_000, rate_per_minute: None }], 0);
        let ((busy, rules), (other, others_rules)) = (lane(1), lane(2));
        planner.put_lane(busy, rules.clone(), Sequence::ZERO, 0);
        let offer = |planner: &mut Planner, key, sequence| {
            let event = EventArrival { time: 0, bytes: EVENT as u32 };
            planner.offer(key, NewJob { sequence: Sequence(sequence), group: None, event, stored: None }, 0);
        };
        (1..=200).for_each(|sequence| offer(&mut planner, busy, sequence));
        let begun = send_all(&mut planner);
        assert_eq!(begun.len(), 64, "alone");
        for (key, sequence) in &begun {
            planner.job_ended(*key, *sequence, AfterAttempt::Over, 0);
        }
        planner.put_lane(other, others_rules, Sequence::ZERO, 0);
        let begun = send_all(&mut planner);
        assert_eq!(begun.len(), 48, "not alone");
        offer(&mut planner, other, 1);
        assert_eq!(send_all(&mut planner), [(other, Sequence(1))]);
        // Deliveries in flight count although their lane is rebuilt.
        planner.put_lane(busy, rules, Sequence(200), 0);
        (201..=300).for_each(|sequence| offer(&mut planner, busy, sequence));
        assert_eq!(send_all(&mut planner), []);
        for (key, sequence) in &begun[..8] {
            planner.job_ended(*key, *sequence, AfterAttempt::Over, 0);
        }
        assert_eq!(send_all(&mut planner).len(), 7, "three quarters of what the other leaves it");
    }
}
