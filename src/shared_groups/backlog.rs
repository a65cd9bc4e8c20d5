//! The backlog: the unfinished events of a group, as far as this process has scanned, and which of them can be handed out.
//!
//! - Of one aggregate only the first unfinished event can be handed out; events without an aggregate are independent.
//! - Events that were tried before go first, so that they do not wait for long if their worker died; the others by sequence.
//! - An event that is offered to a member is not offered to another until the offer is decided.
//! - An event that cannot be handed out before some time is examined again then.
//! - **An event is in the backlog once.** Copies that republishing has stored are parked with it until it is finished, and are
//!   passed then. If it is not stored any more, or the group started after it, its first copy is in the backlog in its place.
//!
//! Events are named by the sequences at which they are stored, and their claims by the keys that identify them. The state of a
//! claim is looked up ([`EventAvailability`]) and not kept here.

use super::poll_queue::PollQueue;
use contract::{Position, Sequence};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use uuid::Uuid;

/// Most runs of passed events recorded at a time.
pub(super) const RUNS_MAX: usize = 4096;

/// Whether an event can be handed out, by its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventAvailability {
    /// It is finished.
    Finished,
    /// It can be handed out.
    Free,
    /// It can be handed out, and was tried before.
    Again,
    /// It cannot be handed out before this time, in milliseconds.
    Until(i64),
    /// It is a dead letter.
    Stuck,
}

/// Whether an event was tried before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TryOrder {
    Again,
    First,
}

/// An unfinished event.
struct PendingEvent {
    aggregate: Option<u128>,
    /// The sequence that identifies it: its original's, if it is a copy.
    key: Sequence,
}

/// An event that is in the topic more than once.
struct CopiedEvent {
    /// The one in the backlog.
    pending: Sequence,
    /// The others.
    parked: Vec<Sequence>,
}

/// What a process knows of a group's work in a topic.
#[derive(Default)]
pub(super) struct GroupBacklog {
    /// The group's generation for which this is valid.
    generation: Option<Position>,
    /// Everything up to here was scanned.
    scanned: Sequence,
    /// The unfinished events.
    pending: BTreeMap<Sequence, PendingEvent>,
    /// Those of them that have copies, or are copies, by the key.
    copied: HashMap<Sequence, CopiedEvent>,
    /// How many copies are parked.
    parked: usize,
    /// The unfinished events by aggregate, in order.
    queues: HashMap<u128, VecDeque<Sequence>>,
    /// The events that can be handed out: first those that were tried before.
    ready: BTreeSet<(TryOrder, Sequence)>,
    /// When to examine an event again.
    times: BTreeSet<(i64, Sequence)>,
    /// Events that are offered, and to which member.
    offered: BTreeMap<Sequence, Uuid>,
    /// Passed events that the log does not have yet.
    passed: Vec<(Sequence, Sequence)>,
    /// Polls that wait.
    pub(super) poll_queue: PollQueue,
}

impl GroupBacklog {
    /// Starts again: with this generation, after the group's watermark.
    pub(super) fn begin(&mut self, generation: Position, watermark: Sequence) {
        let Self { offered, poll_queue, .. } = std::mem::take(self);
        *self = Self { generation: Some(generation), scanned: watermark, offered, poll_queue, ..Self::default() };
    }

    /// Makes the next use start again.
    pub(super) const fn invalidate(&mut self) {
        self.generation = None;
    }

    pub(super) const fn generation(&self) -> Option<Position> {
        self.generation
    }

    /// Everything up to here was scanned.
    pub(super) const fn scanned(&self) -> Sequence {
        self.scanned
    }

    /// How many events are kept here, parked copies included.
    pub(super) fn len(&self) -> usize {
        self.pending.len() + self.parked
    }

    /// How many events can be handed out.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Where the event with this key is in the backlog.
    fn pending_at(&self, key: Sequence) -> Option<Sequence> {
        match self.copied.get(&key) {
            Some(copied) => Some(copied.pending),
            None => self.pending.contains_key(&key).then_some(key),
        }
    }

    /// When the next event may become free, in milliseconds.
    pub(super) fn next_time(&self) -> Option<i64> {
        self.times.first().map(|(at, _)| *at)
    }

    /// Adds the next event; one whose copy or original is here already is parked.
    pub(super) fn add(
        &mut self,
        sequence: Sequence,
        (key, aggregate): (Sequence, Option<u128>),
        look: &impl Fn(Sequence) -> EventAvailability,
    ) {
        debug_assert!(sequence > self.scanned, "events are added in order");
        self.scanned = self.scanned.max(sequence);
        if let Some(pending) = self.pending_at(key) {
            let copied = self.copied.entry(key).or_insert(CopiedEvent { pending, parked: Vec::new() });
            copied.parked.push(sequence);
            self.parked += 1;
            return;
        }
        if key != sequence {
            self.copied.insert(key, CopiedEvent { pending: sequence, parked: Vec::new() });
        }
        self.pending.insert(sequence, PendingEvent { aggregate, key });
        if let Some(aggregate) = aggregate {
            self.queues.entry(aggregate).or_default().push_back(sequence);
        }
        self.settle_from(sequence, look);
    }

    /// Passes everything that was not scanned yet, through this sequence.
    pub(super) fn pass_through(&mut self, to: Sequence) {
        let from = self.scanned.next();
        if from > to {
            return;
        }
        self.scanned = to;
        self.pass(from, to);
    }

    fn pass(&mut self, from: Sequence, to: Sequence) {
        match self.passed.last_mut() {
            Some(last) if last.1.next() == from => last.1 = to,
            _ => self.passed.push((from, to)),
        }
    }

    /// Skips an event that is finished, or that is passed in the log already.
    pub(super) fn skip(&mut self, sequence: Sequence) {
        self.scanned = self.scanned.max(sequence);
    }

    /// Whether there are passed events to record.
    pub(super) const fn has_passed(&self) -> bool {
        !self.passed.is_empty()
    }

    /// Whether there are so many of them that they should be recorded now.
    pub(super) const fn has_passed_much(&self) -> bool {
        self.passed.len() >= RUNS_MAX
    }

    /// The passed events to record; the first of them if there are very many.
    pub(super) fn take_passed(&mut self) -> Vec<(Sequence, Sequence)> {
        let rest = self.passed.split_off(self.passed.len().min(RUNS_MAX));
        std::mem::replace(&mut self.passed, rest)
    }

    /// The claim of the event with this key has changed.
    pub(super) fn settle(&mut self, key: Sequence, look: &impl Fn(Sequence) -> EventAvailability) {
        if let Some(sequence) = self.pending_at(key) {
            self.settle_from(sequence, look);
        }
    }

    /// Examines an event, and if it is finished, the next one of its aggregate.
    fn settle_from(&mut self, sequence: Sequence, look: &impl Fn(Sequence) -> EventAvailability) {
        let mut next = Some(sequence);
        while let Some(sequence) = next {
            next =
                self.pending.get(&sequence).map(|event| look(event.key)).and_then(|it| self.settle_one(sequence, it));
        }
    }

    /// Examines every event whose time has come.
    pub(super) fn recheck_due(&mut self, now: i64, look: &impl Fn(Sequence) -> EventAvailability) {
        while let Some((at, sequence)) = self.times.first().copied().filter(|(at, _)| *at <= now) {
            self.times.remove(&(at, sequence));
            self.settle_from(sequence, look);
        }
    }

    /// Offers the first `count` events to a member, and returns them in order of their sequences.
    pub(super) fn offer(&mut self, member: Uuid, count: usize) -> Vec<Sequence> {
        let first = (0..count).map_while(|_| self.ready.pop_first());
        let mut offered: Vec<_> = first.map(|(_, sequence)| sequence).collect();
        offered.sort_unstable();
        self.offered.extend(offered.iter().map(|sequence| (*sequence, member)));
        offered
    }

    /// An offer was accepted or not.
    pub(super) fn end_offer(&mut self, sequences: &[Sequence], look: &impl Fn(Sequence) -> EventAvailability) {
        for sequence in sequences {
            self.offered.remove(sequence);
            self.settle_from(*sequence, look);
        }
    }

    /// How many events are offered to a member.
    pub(super) fn offered_to(&self, member: Uuid) -> usize {
        self.offered.values().filter(|known| **known == member).count()
    }

    /// Applies an event's availability; returns the next event to examine.
    fn settle_one(&mut self, sequence: Sequence, look: EventAvailability) -> Option<Sequence> {
        let PendingEvent { aggregate, key } = *self.pending.get(&sequence)?;
        self.ready.remove(&(TryOrder::Again, sequence));
        self.ready.remove(&(TryOrder::First, sequence));
        if look == EventAvailability::Finished {
            self.pending.remove(&sequence);
            self.pass_copies(sequence, key);
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

    /// A finished event's copies are passed: in the log only the original's sequence is finished.
    fn pass_copies(&mut self, sequence: Sequence, key: Sequence) {
        if sequence != key {
            self.pass(sequence, sequence);
        }
        let Some(copied) = self.copied.remove(&key) else { return };
        debug_assert_eq!(copied.pending, sequence, "an event is in the backlog once");
        self.parked -= copied.parked.len();
        copied.parked.into_iter().for_each(|copy| self.pass(copy, copy));
    }

    /// Removes an event from its aggregate's queue; returns the event that is first then, if it is another one.
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

    /// A backlog after 0, and the state of the claims.
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
                let sequence = Sequence(sequence);
                world.backlog.add(sequence, (sequence, *aggregate), &|_| EventAvailability::Free);
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
    fn events_that_are_finished_at_the_same_time_do_not_hold_up_the_next_one() {
        let mut world = World::of(&[Some(7), Some(7), Some(7)]);
        world.claims.borrow_mut().insert(2, EventAvailability::Finished);
        world.now(1, EventAvailability::Finished);
        assert_eq!(world.ready(), [3]);
    }

    #[test]
    fn an_offered_event_is_not_offered_again_until_that_is_decided() {
        let mut world = World::of(&[Some(7), None, None]);
        assert_eq!(world.offer(2), [1, 2]);
        assert_eq!((world.ready(), world.backlog.offered_to(MEMBER)), (vec![3], 2));
        world.now(1, EventAvailability::Free);
        assert_eq!(world.ready(), [3]);
        world.backlog.end_offer(&[Sequence(1), Sequence(2)], &|_| EventAvailability::Free);
        assert_eq!((world.ready(), world.backlog.offered_to(MEMBER)), (vec![1, 2, 3], 0));
    }

    #[test]
    fn an_event_that_waits_for_a_time_is_examined_then() {
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
    fn events_that_were_tried_before_go_first() {
        let mut world = World::of(&[None, None, Some(7), Some(7)]);
        world.now(3, EventAvailability::Again);
        assert_eq!(world.offer(2), [1, 3]);
        world.now(4, EventAvailability::Again);
        assert_eq!(world.ready(), [2]);
    }

    #[test]
    fn passed_events_are_recorded_in_runs() {
        let mut world = World::of(&[None]);
        for to in [2, 3, 3] {
            world.backlog.pass_through(Sequence(to));
        }
        world.backlog.add(Sequence(4), (Sequence(4), None), &|_| EventAvailability::Free);
        world.backlog.pass_through(Sequence(9));
        let runs = vec![(Sequence(2), Sequence(3)), (Sequence(5), Sequence(9))];
        assert_eq!((world.backlog.take_passed(), world.backlog.has_passed()), (runs, false));
        assert_eq!(world.backlog.scanned(), Sequence(9));
    }

    /// A copy of a pending event was passed at once; retention removed the event, and nobody worked on either.
    #[test]
    fn copies_are_parked_until_the_event_is_finished() {
        let mut world = World::of(&[Some(7), None]);
        let free = |_| EventAvailability::Free;
        for (copy, key) in [(3, 1), (4, 9), (5, 9), (6, 1)] {
            world.backlog.add(Sequence(copy), (Sequence(key), Some(7)), &free);
        }
        assert_eq!((world.ready(), world.backlog.len(), world.backlog.has_passed()), (vec![1, 2], 6, false));
        world.now(1, EventAvailability::Finished);
        assert_eq!(world.backlog.take_passed(), [(Sequence(3), Sequence(3)), (Sequence(6), Sequence(6))]);
        assert_eq!((world.ready(), world.backlog.len()), (vec![2, 4], 3));
        assert_eq!(world.offer(2), [2, 4]);
        world.now(9, EventAvailability::Finished);
        assert_eq!(world.backlog.take_passed(), [(Sequence(4), Sequence(5))]);
        assert_eq!((world.backlog.len(), world.backlog.copied.len(), world.backlog.parked), (1, 0, 0));
    }
}
