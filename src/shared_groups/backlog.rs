//! The backlog: what a group has not finished yet, as far as this process has looked, and what of it may be handed out.
//!
//! - Of one aggregate only the first unfinished event may be handed out; events without one are free.
//! - What was tried before goes first, so that nothing waits for long because its holder died; the rest by sequence.
//! - What is offered to a member stands aside until that is decided.
//! - What cannot be handed out before some time is looked at again then.
//!
//! How claims stand is asked ([`Look`]), never remembered beyond what was found.

use super::poll_queue::PollQueue;
use contract::{Position, Sequence};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use uuid::Uuid;

/// Most runs of passed events told at a time.
pub(super) const RUNS_MAX: usize = 4096;

/// How an event's claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventAvailability {
    /// There is nothing to do any more.
    Finished,
    /// Somebody may have it.
    Free,
    /// Somebody may have it, and somebody has had it before.
    Again,
    /// Nobody may have it before then, in milliseconds.
    Until(i64),
    /// Nobody may have it before somebody does something about it.
    Stuck,
}

/// Whether an event was tried before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TryOrder {
    Again,
    First,
}

/// What is known of a group's work in a topic.
#[derive(Default)]
pub(super) struct GroupBacklog {
    /// Which generation of the group this is about.
    generation: Option<Position>,
    /// Everything up to here was looked at.
    scanned: Sequence,
    /// What is not finished, with its aggregate.
    pending: BTreeMap<Sequence, Option<u128>>,
    /// By aggregate, in order.
    queues: HashMap<u128, VecDeque<Sequence>>,
    /// What may be handed out: first what was tried before.
    ready: BTreeSet<(TryOrder, Sequence)>,
    /// When to look again.
    times: BTreeSet<(i64, Sequence)>,
    /// What is offered, and to whom.
    offered: BTreeMap<Sequence, Uuid>,
    /// What is none of the group's business, and the log does not know it yet.
    passed: Vec<(Sequence, Sequence)>,
    /// Polls that wait.
    pub(super) line: PollQueue,
}

impl GroupBacklog {
    /// Begins anew: this generation, behind the group's watermark.
    pub(super) fn begin(&mut self, generation: Position, watermark: Sequence) {
        let Self { offered, line, .. } = std::mem::take(self);
        *self = Self { generation: Some(generation), scanned: watermark, offered, line, ..Self::default() };
    }

    /// Nothing here is to be believed any more.
    pub(super) const fn invalidate(&mut self) {
        self.generation = None;
    }

    pub(super) const fn generation(&self) -> Option<Position> {
        self.generation
    }

    /// Everything up to here was looked at.
    pub(super) const fn scanned(&self) -> Sequence {
        self.scanned
    }

    /// How many events are not finished, as far as anybody has looked.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// How many events may be handed out.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Whether an event waits to be finished.
    pub(super) fn is_pending(&self, sequence: Sequence) -> bool {
        self.pending.contains_key(&sequence)
    }

    /// When the next event may become free, in milliseconds.
    pub(super) fn next_time(&self) -> Option<i64> {
        self.times.first().map(|(at, _)| *at)
    }

    /// Takes in the next event.
    pub(super) fn add(
        &mut self,
        sequence: Sequence,
        aggregate: Option<u128>,
        look: &impl Fn(Sequence) -> EventAvailability,
    ) {
        self.scanned = self.scanned.max(sequence);
        self.pending.insert(sequence, aggregate);
        if let Some(key) = aggregate {
            self.queues.entry(key).or_default().push_back(sequence);
        }
        self.settle(sequence, look);
    }

    /// Passes over everything behind what was looked at, through this one.
    pub(super) fn pass_through(&mut self, to: Sequence) {
        let from = self.scanned.next();
        if from > to {
            return;
        }
        self.scanned = to;
        match self.passed.last_mut() {
            Some(last) if last.1.next() == from => last.1 = to,
            _ => self.passed.push((from, to)),
        }
    }

    /// Goes on without a word about this one: it is finished, or the log knows that it is passed.
    pub(super) fn skip(&mut self, sequence: Sequence) {
        self.scanned = self.scanned.max(sequence);
    }

    /// Whether there is something to tell of what was passed.
    pub(super) const fn has_passed(&self) -> bool {
        !self.passed.is_empty()
    }

    /// Whether there is so much to tell of it that it should be told now.
    pub(super) const fn has_passed_much(&self) -> bool {
        self.passed.len() >= RUNS_MAX
    }

    /// What was passed, to be told; the first of it where that is much.
    pub(super) fn take_passed(&mut self) -> Vec<(Sequence, Sequence)> {
        let rest = self.passed.split_off(self.passed.len().min(RUNS_MAX));
        std::mem::replace(&mut self.passed, rest)
    }

    /// An event's claim has changed.
    pub(super) fn settle(&mut self, sequence: Sequence, look: &impl Fn(Sequence) -> EventAvailability) {
        let mut next = Some(sequence);
        while let Some(sequence) = next {
            next = self.settle_one(sequence, look(sequence));
        }
    }

    /// Looks again at everything whose time has come.
    pub(super) fn recheck_due(&mut self, now: i64, look: &impl Fn(Sequence) -> EventAvailability) {
        while let Some((at, sequence)) = self.times.first().copied().filter(|(at, _)| *at <= now) {
            self.times.remove(&(at, sequence));
            self.settle(sequence, look);
        }
    }

    /// Offers the first `count` events to a member; answers them in order of their sequences.
    pub(super) fn offer(&mut self, member: Uuid, count: usize) -> Vec<Sequence> {
        let first = (0..count).map_while(|_| self.ready.pop_first());
        let mut offered: Vec<_> = first.map(|(_, sequence)| sequence).collect();
        offered.sort_unstable();
        self.offered.extend(offered.iter().map(|sequence| (*sequence, member)));
        offered
    }

    /// An offer is decided, one way or the other.
    pub(super) fn end_offer(&mut self, sequences: &[Sequence], look: &impl Fn(Sequence) -> EventAvailability) {
        for sequence in sequences {
            self.offered.remove(sequence);
            self.settle(*sequence, look);
        }
    }

    /// How many events are offered to a member.
    pub(super) fn offered_to(&self, member: Uuid) -> usize {
        self.offered.values().filter(|known| **known == member).count()
    }

    /// What an event's standing means for it; answers the next one to look at.
    fn settle_one(&mut self, sequence: Sequence, look: EventAvailability) -> Option<Sequence> {
        let aggregate = *self.pending.get(&sequence)?;
        self.ready.remove(&(TryOrder::Again, sequence));
        self.ready.remove(&(TryOrder::First, sequence));
        if look == EventAvailability::Finished {
            self.pending.remove(&sequence);
            return self.leave(sequence, aggregate?);
        }
        let first = aggregate.and_then(|key| self.queues.get(&key)?.front().copied());
        let may_have = first.is_none_or(|first| first == sequence) && !self.offered.contains_key(&sequence);
        match look {
            EventAvailability::Free if may_have => _ = self.ready.insert((TryOrder::First, sequence)),
            EventAvailability::Again if may_have => _ = self.ready.insert((TryOrder::Again, sequence)),
            EventAvailability::Until(at) => _ = self.times.insert((at, sequence)),
            _ => (),
        }
        None
    }

    /// An event leaves its aggregate's queue; answers who is first then, if that is new.
    fn leave(&mut self, sequence: Sequence, key: u128) -> Option<Sequence> {
        let queue = self.queues.get_mut(&key)?;
        if queue.front() != Some(&sequence) {
            queue.retain(|known| *known != sequence);
            return None;
        }
        queue.pop_front();
        let first = queue.front().copied();
        if first.is_none() {
            self.queues.remove(&key);
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const MEMBER: Uuid = Uuid::from_u128(1);

    /// A backlog behind 0, and claims as a test has them.
    #[derive(Default)]
    struct World {
        backlog: GroupBacklog,
        claims: RefCell<BTreeMap<u64, EventAvailability>>,
    }

    impl World {
        fn of(aggregates: &[Option<u128>]) -> Self {
            let mut world = Self::default();
            world.backlog.begin(Position(1), Sequence::ZERO);
            for (sequence, aggregate) in (1..).zip(aggregates) {
                world.backlog.add(Sequence(sequence), *aggregate, &|_| EventAvailability::Free);
            }
            world
        }

        fn now(&mut self, sequence: u64, look: EventAvailability) {
            self.claims.borrow_mut().insert(sequence, look);
            let look = |sequence: Sequence| {
                self.claims.borrow().get(&sequence.get()).copied().unwrap_or(EventAvailability::Free)
            };
            self.backlog.settle(Sequence(sequence), &look);
        }

        fn offer(&mut self, count: usize) -> Vec<u64> {
            self.backlog.offer(MEMBER, count).into_iter().map(Sequence::get).collect()
        }

        fn ready(&self) -> Vec<u64> {
            self.backlog.ready.iter().map(|(_, sequence)| sequence.get()).collect()
        }
    }

    #[test]
    fn of_an_aggregate_only_the_first_is_ready_until_it_is_finished() {
        let mut world = World::of(&[Some(7), Some(7), Some(8), None, Some(7), None]);
        assert_eq!(world.ready(), [1, 3, 4, 6]);
        world.now(1, EventAvailability::Until(50));
        assert_eq!(world.ready(), [3, 4, 6]);
        world.now(1, EventAvailability::Finished);
        assert_eq!(world.ready(), [2, 3, 4, 6]);
        world.now(2, EventAvailability::Stuck);
        assert_eq!(world.ready(), [3, 4, 6]);
        world.now(5, EventAvailability::Finished);
        world.now(2, EventAvailability::Finished);
        assert_eq!((world.ready(), world.backlog.len()), (vec![3, 4, 6], 3));
        assert!(!world.backlog.queues.contains_key(&7));
    }

    #[test]
    fn what_is_finished_all_at_once_does_not_hold_up_what_follows() {
        let mut world = World::of(&[Some(7), Some(7), Some(7)]);
        world.claims.borrow_mut().insert(2, EventAvailability::Finished);
        world.now(1, EventAvailability::Finished);
        assert_eq!(world.ready(), [3]);
    }

    #[test]
    fn what_is_offered_stands_aside_until_that_is_decided() {
        let mut world = World::of(&[Some(7), None, None]);
        assert_eq!(world.offer(2), [1, 2]);
        assert_eq!((world.ready(), world.backlog.offered_to(MEMBER)), (vec![3], 2));
        world.now(1, EventAvailability::Free);
        assert_eq!(world.ready(), [3]);
        world.backlog.end_offer(&[Sequence(1), Sequence(2)], &|_| EventAvailability::Free);
        assert_eq!((world.ready(), world.backlog.offered_to(MEMBER)), (vec![1, 2, 3], 0));
    }

    #[test]
    fn what_waits_for_a_time_is_looked_at_then() {
        let mut world = World::of(&[Some(7), Some(8)]);
        world.now(1, EventAvailability::Until(50));
        world.now(2, EventAvailability::Until(60));
        assert_eq!(world.backlog.next_time(), Some(50));
        world.backlog.recheck_due(49, &|_| EventAvailability::Free);
        assert_eq!(world.ready(), [0_u64; 0]);
        world.backlog.recheck_due(50, &|_| EventAvailability::Free);
        assert_eq!((world.ready(), world.backlog.next_time()), (vec![1], Some(60)));
    }

    #[test]
    fn what_was_tried_before_goes_first() {
        let mut world = World::of(&[None, None, Some(7), Some(7)]);
        world.now(3, EventAvailability::Again);
        assert_eq!(world.offer(2), [1, 3]);
        world.now(4, EventAvailability::Again);
        assert_eq!(world.ready(), [2]);
    }

    #[test]
    fn what_is_passed_is_told_in_runs() {
        let mut world = World::of(&[None]);
        for to in [2, 3, 3] {
            world.backlog.pass_through(Sequence(to));
        }
        world.backlog.add(Sequence(4), None, &|_| EventAvailability::Free);
        world.backlog.pass_through(Sequence(9));
        let runs = vec![(Sequence(2), Sequence(3)), (Sequence(5), Sequence(9))];
        assert_eq!((world.backlog.take_passed(), world.backlog.has_passed()), (runs, false));
        assert_eq!(world.backlog.scanned(), Sequence(9));
    }
}
