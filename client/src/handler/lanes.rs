//! Lanes: queues of waiting events, one per aggregate, in order.
//!
//! - At most one event of a lane is in flight, the first; the next one follows when it is settled.
//! - Lanes take turns. An event without an aggregate is a lane of its own.
//! - A sleeping lane keeps only the sequences of its events, so that a lane that is blocked for long needs little memory.

use super::work::HeldClaim;
use contract::{Sequence, StoredEvent, SubjectNormalisation};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};

/// The aggregate of an event; `Alone` for an event without one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum LaneKey {
    Aggregate { subject_type: String, subject: String },
    Alone(Sequence),
}

/// Which subjects share a lane. Subjects of one aggregate must share one; others may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SubjectMatching {
    /// Subjects with the same bytes.
    Exact,
    /// Subjects that differ only in white space at their ends.
    Trimmed,
    /// Subjects with the same digits: neither case nor composition changes a digit.
    Digits,
}

impl SubjectMatching {
    /// For a topic with these normalisations.
    pub(super) fn of(normalisations: &[SubjectNormalisation]) -> Self {
        match normalisations {
            [] => Self::Exact,
            all if all.iter().all(|it| *it == SubjectNormalisation::Trim) => Self::Trimmed,
            _ => Self::Digits,
        }
    }

    fn lane(self, subject: &str) -> String {
        match self {
            Self::Exact => subject.to_owned(),
            Self::Trimmed => subject.trim().to_owned(),
            Self::Digits => subject.chars().filter(char::is_ascii_digit).collect(),
        }
    }
}

impl LaneKey {
    /// The lane of an event.
    pub(super) fn of(event: &StoredEvent, matching: SubjectMatching) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct SubjectFields<'a> {
            #[serde(borrow)]
            subject: Option<Cow<'a, str>>,
            #[serde(borrow)]
            subject_type: Option<Cow<'a, str>>,
        }
        let about: SubjectFields<'_> = serde_json::from_slice(&event.text).unwrap_or_default();
        match about.subject {
            Some(subject) if event.aggregate_sequence.get() > 0 => {
                let subject_type = about.subject_type.unwrap_or_default();
                // Types are compared without a trailing `~`.
                let subject_type = subject_type.strip_suffix('~').unwrap_or(&subject_type).to_owned();
                Self::Aggregate { subject_type, subject: matching.lane(&subject) }
            }
            _ => Self::Alone(event.sequence),
        }
    }
}

/// An event in a lane.
#[derive(Debug)]
pub(super) struct WaitingEvent {
    pub(super) sequence: Sequence,
    /// The event; absent if it must be read again.
    pub(super) event: Option<StoredEvent>,
    /// The claim that it arrived with.
    pub(super) taken: Option<HeldClaim>,
    /// Whether it may have been claimed by a request whose response was lost.
    pub(super) in_doubt: bool,
    /// How often in a row it was `held`.
    pub(super) held: u32,
}

impl WaitingEvent {
    pub(super) const fn new(event: StoredEvent, held_claim: Option<HeldClaim>) -> Self {
        Self { sequence: event.sequence, event: Some(event), taken: held_claim, in_doubt: false, held: 0 }
    }
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum LaneState {
    Ready,
    Working,
    /// It waits until it is woken.
    Waiting,
    Asleep,
}

#[derive(Debug)]
struct Lane {
    queue: VecDeque<WaitingEvent>,
    standing: LaneState,
}

/// All lanes.
#[derive(Debug, Default)]
pub(super) struct LaneQueue {
    lanes: HashMap<LaneKey, Lane>,
    ready: VecDeque<LaneKey>,
    /// Every event that waits or is in flight.
    known: HashSet<Sequence>,
    /// Events whose text is in memory.
    texts: usize,
}

impl LaneQueue {
    /// Whether an event is known already.
    pub(super) fn knows(&self, sequence: Sequence) -> bool {
        self.known.contains(&sequence)
    }

    /// The number of events whose text is in memory, and of all events.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.texts, self.known.len())
    }

    /// Adds an event in order. A known event is not added again, unless it arrives with a claim: that is a new attempt, which
    /// was assigned while the report of the previous one is still unanswered.
    pub(super) fn push(&mut self, key: LaneKey, mut waiting: WaitingEvent) {
        if !self.known.insert(waiting.sequence) && waiting.taken.is_none() {
            return;
        }
        let Some(lane) = self.lanes.get_mut(&key) else {
            self.texts += usize::from(waiting.event.is_some());
            self.ready.push_back(key.clone());
            self.lanes.insert(key, Lane { queue: VecDeque::from([waiting]), standing: LaneState::Ready });
            return;
        };
        let at = lane.queue.partition_point(|other| other.sequence <= waiting.sequence);
        if lane.standing == LaneState::Asleep && waiting.taken.is_none() {
            waiting.event = None;
        }
        self.texts += usize::from(waiting.event.is_some());
        lane.queue.insert(at, waiting);
    }

    /// The next event to work on.
    pub(super) fn next(&mut self) -> Option<(LaneKey, WaitingEvent)> {
        let key = self.ready.pop_front()?;
        let lane = self.lanes.get_mut(&key)?;
        let waiting = lane.queue.pop_front()?;
        debug_assert_eq!(lane.standing, LaneState::Ready, "at most one event of a lane is in flight");
        lane.standing = LaneState::Working;
        self.texts -= usize::from(waiting.event.is_some());
        Some((key, waiting))
    }

    /// The event in flight is settled.
    pub(super) fn settle(&mut self, key: &LaneKey, sequence: Sequence) {
        self.known.remove(&sequence);
        let Some(lane) = self.lanes.get_mut(key) else { return };
        if lane.queue.is_empty() {
            self.lanes.remove(key);
        } else {
            lane.standing = LaneState::Ready;
            self.ready.push_back(key.clone());
        }
    }

    /// The event in flight will be tried again after its lane is woken. If that takes long, the texts of the lane's events are
    /// dropped and read again later.
    pub(super) fn put_back(&mut self, key: &LaneKey, waiting: WaitingEvent, is_long: bool) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        debug_assert_eq!(lane.standing, LaneState::Working, "only an event in flight is put back");
        self.texts += usize::from(waiting.event.is_some());
        let at = lane.queue.partition_point(|other| other.sequence < waiting.sequence);
        lane.queue.insert(at, waiting);
        for other in lane.queue.iter_mut().filter(|other| is_long && other.taken.is_none()) {
            self.texts -= usize::from(other.event.take().is_some());
        }
        lane.standing = if is_long { LaneState::Asleep } else { LaneState::Waiting };
    }

    /// Wakes a lane that waits or sleeps.
    pub(super) fn wake(&mut self, key: &LaneKey) {
        if let Some(lane) = self.lanes.get_mut(key)
            && matches!(lane.standing, LaneState::Waiting | LaneState::Asleep)
        {
            lane.standing = LaneState::Ready;
            self.ready.push_back(key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use contract::{AggregateSequence, Position, Timestamp};
    use uuid::Uuid;

    fn event(sequence: u64, subject: &str) -> StoredEvent {
        let text = match subject {
            "" => "{}".to_owned(),
            _ => format!(r#"{{"subject":"{subject}","subjectType":"gts.a.b.c.d.v1~"}}"#),
        };
        StoredEvent {
            position: Position(sequence),
            sequence: Sequence(sequence),
            aggregate_sequence: AggregateSequence(u64::from(!subject.is_empty())),
            id: Uuid::from_u128(sequence.into()),
            created_at: Timestamp::from_millis(0),
            text: Bytes::from(text),
        }
    }

    fn key(sequence: u64, subject: &str) -> LaneKey {
        LaneKey::of(&event(sequence, subject), SubjectMatching::Exact)
    }

    fn taken(sequence: u64, token: u64) -> HeldClaim {
        let claim = serde_json::json!({
            "id": "c", "handler": "h", "topic": "gts.hx.core.events.topic.v1~", "sequence": sequence, "token": token,
            "eventId": Uuid::nil(), "attempt": 1, "owner": "o", "status": "claimed", "lease": "PT1S",
            "heartbeat": "PT1S", "claimedAt": "2025-12-03T12:05:00.000Z",
        });
        HeldClaim { claim: serde_json::from_value(claim).unwrap(), until: tokio::time::Instant::now() }
    }

    fn lanes(events: &[(u64, &str)]) -> LaneQueue {
        let mut lanes = LaneQueue::default();
        for (sequence, subject) in events {
            let event = event(*sequence, subject);
            lanes.push(LaneKey::of(&event, SubjectMatching::Exact), WaitingEvent::new(event, None));
        }
        lanes
    }

    fn given(lanes: &mut LaneQueue) -> Vec<u64> {
        std::iter::from_fn(|| lanes.next()).map(|(_, waiting)| waiting.sequence.get()).collect()
    }

    #[test]
    fn of_each_aggregate_one_is_given_out_at_a_time() {
        let mut lanes = lanes(&[(1, "a"), (2, "a"), (3, "b"), (4, ""), (5, ""), (6, "b")]);
        assert_eq!(given(&mut lanes), [1, 3, 4, 5]);
        lanes.settle(&key(3, "b"), Sequence(3));
        assert_eq!(given(&mut lanes), [6]);
        lanes.settle(&key(1, "a"), Sequence(1));
        assert_eq!(given(&mut lanes), [2]);
        for (sequence, subject) in [(2, "a"), (6, "b"), (4, ""), (5, "")] {
            lanes.settle(&key(sequence, subject), Sequence(sequence));
        }
        assert_eq!((lanes.sizes(), lanes.lanes.len()), ((0, 0), 0));
    }

    #[test]
    fn a_lane_that_sleeps_keeps_its_order_and_lets_its_texts_go() {
        let mut lanes = lanes(&[(1, "a"), (2, "a"), (3, "a")]);
        let (key, first) = lanes.next().unwrap();
        lanes.put_back(&key, first, true);
        assert_eq!((given(&mut lanes), lanes.sizes()), (vec![], (0, 3)));
        let late = event(4, "a");
        lanes.push(LaneKey::of(&late, SubjectMatching::Exact), WaitingEvent::new(late, None));
        // A redriven event is inserted at the front.
        let redriven = event(0, "a");
        lanes.push(LaneKey::of(&redriven, SubjectMatching::Exact), WaitingEvent::new(redriven, None));
        assert_eq!(lanes.sizes(), (0, 5));
        lanes.wake(&key);
        lanes.wake(&key);
        for sequence in 0..=4 {
            assert_eq!(given(&mut lanes), [sequence]);
            lanes.settle(&key, Sequence(sequence));
        }
    }

    #[test]
    fn subjects_that_a_topic_takes_for_one_share_a_lane() {
        use SubjectNormalisation::{CaseFold, Nfc, Trim};
        for (normalisations, one, other, is_one) in [
            (&[][..], "a1", "A1", false),
            (&[], "a", " a", false),
            (&[Trim], " a", "a ", true),
            (&[Trim], "a", "A", false),
            (&[CaseFold], "straße 1", "STRASSE 1", true),
            (&[Nfc], "\u{e9} 1", "e\u{301} 1", true),
            (&[Trim, CaseFold, Nfc], " \u{c9}1", "e\u{301}1", true),
            (&[CaseFold], "order-1", "order-2", false),
        ] {
            let matching = SubjectMatching::of(normalisations);
            let keys = [one, other].map(|subject| LaneKey::of(&event(1, subject), matching));
            assert_eq!(keys[0] == keys[1], is_one, "{normalisations:?} {one} {other}");
        }
    }

    /// A shared group assigns the next attempt as soon as it knows that one has failed; the worker may learn that later.
    #[test]
    fn an_attempt_that_is_handed_out_while_the_one_before_is_not_settled_waits_for_that() {
        let mut lanes = LaneQueue::default();
        for token in [5, 9] {
            lanes.push(key(1, "a"), WaitingEvent::new(event(1, "a"), Some(taken(1, token))));
        }
        let token = |lanes: &mut LaneQueue| lanes.next().map(|(_, waiting)| waiting.taken.unwrap().claim.token.get());
        assert_eq!((token(&mut lanes), token(&mut lanes)), (Some(5), None));
        lanes.settle(&key(1, "a"), Sequence(1));
        assert_eq!(token(&mut lanes), Some(9));
        lanes.settle(&key(1, "a"), Sequence(1));
        assert_eq!((lanes.sizes(), lanes.lanes.len()), ((0, 0), 0));
    }

    #[test]
    fn an_event_is_taken_in_once() {
        let mut lanes = lanes(&[(1, "a"), (1, "a")]);
        assert!(lanes.knows(Sequence(1)));
        assert_eq!(given(&mut lanes), [1]);
        lanes.push(key(1, "a"), WaitingEvent::new(event(1, "a"), None));
        assert_eq!(given(&mut lanes), [] as [u64; 0]);
    }
}
