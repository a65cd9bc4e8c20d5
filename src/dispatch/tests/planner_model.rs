//! The planner against a model: random publishing, reading, failures, deferrals, retries, replays, rebuilds and time.
//!
//! - The model has what the log would have: the state of every job. It checks every pick, and that every job ends.

use crate::dispatch::lane::{AfterAttempt, EventArrival, LaneKey, LaneRules, NewJob, PlannedJob, PlannerPick};
use crate::dispatch::planner::Planner;
use contract::{DispatchMode, Pool, Sequence};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

const SCOPE: Uuid = Uuid::from_u128(1);
const MAX_AGE: i64 = 100_000;
const CONCURRENCY: u32 = 4;
const REPLAYS_MAX: usize = 3;

#[derive(Debug, Clone, Copy)]
enum ModelAction {
    Publish(u64),
    /// This many events are read for a lane.
    Read(usize, u64),
    /// A delivery ends with this outcome.
    EndDelivery(usize, ModelOutcome),
    /// A lane is rebuilt.
    Rebuild(usize),
    /// The subscription pauses, or resumes.
    TogglePause,
    Replay(u64, u64),
    /// A person retries or cancels a job.
    Retry(usize),
    Cancel(usize),
    Advance(i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModelOutcome {
    Done,
    Again,
    Later,
    Dead,
}

/// The state of an open job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModelRow {
    Waiting { until: i64, tried: u32, aged_from: Option<i64> },
    Dead { tried: u32 },
}

struct ModelLane {
    key: LaneKey,
    /// The first and the last sequence; a live lane has no last.
    from: u64,
    to: u64,
    read: u64,
    over: BTreeSet<u64>,
    rows: BTreeMap<u64, ModelRow>,
}

struct PlannerModel {
    mode: DispatchMode,
    paused: bool,
    now: i64,
    /// Group and arrival of each event, from 1.
    events: Vec<(u64, i64)>,
    lanes: Vec<ModelLane>,
    planner: Planner,
    flights: Vec<(LaneKey, PlannedJob, bool)>,
}

impl PlannerModel {
    fn new(mode: DispatchMode) -> Self {
        let mut planner = Planner::default();
        planner.set_pools(&[Pool { code: "p".to_owned(), concurrency: CONCURRENCY, rate_per_minute: None }], 0);
        let mut model =
            Self { mode, paused: false, now: 0, events: Vec::new(), lanes: Vec::new(), planner, flights: Vec::new() };
        model.add_lane(SCOPE, 1, u64::MAX);
        model
    }

    fn add_lane(&mut self, lane: Uuid, from: u64, to: u64) {
        let key = LaneKey { lane, part: 0 };
        let (over, rows) = (BTreeSet::new(), BTreeMap::new());
        self.lanes.push(ModelLane { key, from, to, read: from - 1, over, rows });
        self.rebuild(self.lanes.len() - 1);
    }

    fn rules(&self, key: LaneKey) -> LaneRules {
        let is_replay = key.lane != SCOPE;
        LaneRules {
            scope: SCOPE,
            pool: "p".to_owned(),
            priority: 99,
            mode: self.mode,
            target: "http://a/".into(),
            delay_millis: 0,
            max_age_millis: MAX_AGE,
            ages_from: is_replay.then_some(0),
            is_replay,
            paused: self.paused,
        }
    }

    fn group(&self, sequence: u64) -> u64 {
        self.events[usize::try_from(sequence).unwrap() - 1].0
    }

    fn rebuild(&mut self, index: usize) {
        let (key, rows) = (self.lanes[index].key, self.lanes[index].rows.clone());
        self.lanes[index].read = self.lanes[index].from - 1;
        let rules = self.rules(key);
        let through = Sequence(self.lanes[index].read);
        self.planner.put_lane(key, rules.clone(), through, self.now);
        for (sequence, standing) in rows {
            let job = self.row_job(&rules, sequence, standing);
            self.planner.offer_row(key, job, matches!(standing, ModelRow::Dead { .. }), self.now);
        }
    }

    fn row_job(&self, rules: &LaneRules, sequence: u64, standing: ModelRow) -> PlannedJob {
        let (group, time) = self.events[usize::try_from(sequence).unwrap() - 1];
        let group = (self.mode != DispatchMode::Immediate).then_some(group);
        let (until, tried, aged_from) = match standing {
            ModelRow::Waiting { until, tried, aged_from } => (until, tried, aged_from),
            ModelRow::Dead { tried } => (i64::MAX, tried, None),
        };
        let expires = rules.expires(aged_from, time);
        PlannedJob {
            due: until.min(expires),
            expires,
            has_row: true,
            tried,
            ..rules.fresh(Sequence(sequence), group, EventArrival { time, bytes: 1 })
        }
    }

    /// Something was decided about a job: its lane is rebuilt, or the job alone is planned again.
    fn apply_change(&mut self, index: usize, sequence: u64, number: usize) {
        if number.is_multiple_of(2) {
            return self.rebuild(index);
        }
        let key = self.lanes[index].key;
        self.planner.remove_jobs(key, &BTreeSet::from([Sequence(sequence)]), self.now);
        if let Some(standing) = self.lanes[index].rows.get(&sequence).copied() {
            let job = self.row_job(&self.rules(key), sequence, standing);
            self.planner.offer_row(key, job, matches!(standing, ModelRow::Dead { .. }), self.now);
        }
    }

    fn read(&mut self, index: usize, count: u64) {
        let lane = &mut self.lanes[index];
        let last = (lane.read + count).min(self.events.len() as u64).min(lane.to);
        for sequence in lane.read + 1..=last {
            if lane.over.contains(&sequence) || lane.rows.contains_key(&sequence) {
                continue;
            }
            let (group, time) = self.events[usize::try_from(sequence).unwrap() - 1];
            let group = (self.mode != DispatchMode::Immediate).then_some(group);
            let offer =
                NewJob { sequence: Sequence(sequence), group, event: EventArrival { time, bytes: 1 }, stored: None };
            self.planner.offer(lane.key, offer, self.now);
        }
        lane.read = lane.read.max(last);
    }

    fn lane(&mut self, key: LaneKey) -> &mut ModelLane {
        self.lanes.iter_mut().find(|lane| lane.key == key).unwrap()
    }

    /// Takes everything the planner picks, and checks it.
    fn pick(&mut self) {
        while let Some(pick) = self.planner.next(self.now) {
            match pick {
                PlannerPick::Send(key, job) => {
                    self.judge(key, &job);
                    self.flights.push((key, job, false));
                }
                PlannerPick::Expire(key, job) => {
                    assert!(job.expires <= self.now, "{job:?} is too young");
                    self.flights.push((key, job, true));
                }
            }
        }
        let sent = self.flights.iter().filter(|(.., expires)| !expires);
        assert!(sent.clone().count() <= CONCURRENCY as usize);
        assert!(sent.filter(|(key, ..)| key.lane != SCOPE).count() <= 1, "replays take a quarter of four");
    }

    fn judge(&self, key: LaneKey, job: &PlannedJob) {
        let sequence = job.sequence.get();
        let lane = self.lanes.iter().find(|lane| lane.key == key).unwrap();
        assert!(!self.paused, "{sequence} is sent while paused");
        assert!(!lane.over.contains(&sequence), "{sequence} is over");
        assert!(!matches!(lane.rows.get(&sequence), Some(ModelRow::Dead { .. })), "{sequence} was given up");
        assert!(job.due <= self.now && job.expires > self.now);
        if self.mode == DispatchMode::Immediate {
            return;
        }
        let group = self.group(sequence);
        let together = self
            .flights
            .iter()
            .filter(|(.., expires)| !expires)
            .find(|(_, other, _)| self.group(other.sequence.get()) == group);
        assert!(together.is_none(), "{sequence} and {together:?} of one group at once");
        let before = (lane.from..sequence).filter(|it| self.group(*it) == group && !lane.over.contains(it));
        for earlier in before {
            let has_failed = match lane.rows.get(&earlier) {
                None => false,
                // A job that expired and was retried was overtaken before.
                Some(ModelRow::Waiting { tried, aged_from, .. }) => *tried > 0 || aged_from.is_some(),
                Some(ModelRow::Dead { .. }) => true,
            };
            assert!(self.mode == DispatchMode::NextOnError && has_failed, "{sequence} passes {earlier}");
        }
        let is_row = |of: &ModelLane| of.rows.keys().find(|it| self.group(**it) == group).copied();
        if self.mode == DispatchMode::BlockOnError && is_row(lane).is_none() {
            let blocked = self.lanes.iter().filter(|other| other.key != key).find_map(is_row);
            assert_eq!(blocked, None, "{sequence} of {key:?} goes in a blocked group");
        }
    }

    fn end_delivery(&mut self, index: usize, outcome: ModelOutcome) {
        let (key, job, expires) = self.flights.remove(index);
        let (sequence, now) = (job.sequence.get(), self.now);
        let lane = self.lane(key);
        if lane.over.contains(&sequence) {
            // Cancelled meanwhile.
            return self.planner.job_ended(key, job.sequence, AfterAttempt::Over, now);
        }
        let (tried, aged_from) = match lane.rows.get(&sequence) {
            Some(ModelRow::Waiting { tried, aged_from, .. }) => (*tried, *aged_from),
            _ => (0, None),
        };
        match if expires { ModelOutcome::Dead } else { outcome } {
            ModelOutcome::Done => {
                lane.rows.remove(&sequence);
                lane.over.insert(sequence);
                self.planner.job_ended(key, job.sequence, AfterAttempt::Over, now);
            }
            ModelOutcome::Again => {
                let until = now + 5000;
                lane.rows.insert(sequence, ModelRow::Waiting { until, tried: tried + 1, aged_from });
                let back = AfterAttempt::Waits { until, tried: true, counts: true };
                self.planner.job_ended(key, job.sequence, back, now);
            }
            ModelOutcome::Later => {
                let until = now + 7000;
                lane.rows.insert(sequence, ModelRow::Waiting { until, tried, aged_from });
                self.planner.deferred(key, job.sequence, until, now);
            }
            ModelOutcome::Dead => {
                lane.rows.insert(sequence, ModelRow::Dead { tried: tried + u32::from(!expires) });
                self.planner.job_ended(key, job.sequence, AfterAttempt::Dead, now);
            }
        }
    }

    /// A job with a row that is not in flight.
    fn row(&self, number: usize) -> Option<(usize, u64, ModelRow)> {
        let rows =
            self.lanes.iter().enumerate().flat_map(|(index, lane)| {
                lane.rows.iter().map(move |(sequence, standing)| (index, *sequence, *standing))
            });
        let rows: Vec<_> = rows
            .filter(|(index, sequence, _)| {
                let key = self.lanes[*index].key;
                !self.flights.iter().any(|(of, job, _)| *of == key && job.sequence.get() == *sequence)
            })
            .collect();
        (!rows.is_empty()).then(|| rows[number % rows.len()])
    }

    fn act(&mut self, action: ModelAction) {
        match action {
            ModelAction::Publish(group) => self.events.push((group, self.now)),
            ModelAction::Read(lane, count) => self.read(lane % self.lanes.len(), count),
            ModelAction::EndDelivery(number, outcome) if !self.flights.is_empty() => {
                self.end_delivery(number % self.flights.len(), outcome);
            }
            ModelAction::EndDelivery(..) => (),
            ModelAction::Rebuild(lane) => self.rebuild(lane % self.lanes.len()),
            ModelAction::TogglePause => {
                self.paused = !self.paused;
                (0..self.lanes.len()).for_each(|index| self.rebuild(index));
            }
            ModelAction::Replay(from, to) => {
                let to = to.min(self.events.len() as u64);
                if from <= to && self.lanes.len() <= REPLAYS_MAX {
                    self.add_lane(Uuid::from_u128(1 + self.lanes.len() as u128), from, to);
                }
            }
            ModelAction::Retry(number) => {
                if let Some((index, sequence, standing)) = self.row(number) {
                    let (ModelRow::Waiting { tried, .. } | ModelRow::Dead { tried }) = standing;
                    let again = ModelRow::Waiting { until: self.now, tried, aged_from: Some(self.now) };
                    self.lanes[index].rows.insert(sequence, again);
                    self.apply_change(index, sequence, number);
                }
            }
            ModelAction::Cancel(number) => {
                if let Some((index, sequence, _)) = self.row(number) {
                    self.lanes[index].rows.remove(&sequence);
                    self.lanes[index].over.insert(sequence);
                    self.apply_change(index, sequence, number);
                }
            }
            ModelAction::Advance(millis) => self.now += millis,
        }
        self.pick();
    }

    /// Everything is delivered once nothing fails and people resolve what was given up.
    fn finish(&mut self) {
        if self.paused {
            self.act(ModelAction::TogglePause);
        }
        let all = self.events.len() as u64;
        for _ in 0..100 * (self.events.len() + 10) {
            for lane in 0..self.lanes.len() {
                self.act(ModelAction::Read(lane, all));
            }
            while !self.flights.is_empty() {
                self.act(ModelAction::EndDelivery(0, ModelOutcome::Done));
            }
            let wants = |lane: &ModelLane| (lane.from..=lane.to.min(all)).all(|it| lane.over.contains(&it));
            if self.lanes.iter().all(wants) {
                return;
            }
            let dead = self.lanes.iter().flat_map(|lane| lane.rows.values());
            match dead.clone().any(|row| matches!(row, ModelRow::Dead { .. })) {
                true => (0..dead.count()).for_each(|number| self.act(ModelAction::Retry(number))),
                false => self.act(ModelAction::Advance(1000)),
            }
        }
        let left: Vec<_> = self.lanes.iter().map(|lane| (lane.key, &lane.over, &lane.rows)).collect();
        panic!("not all is delivered: {left:?} of {all}");
    }
}

fn action() -> impl Strategy<Value = ModelAction> {
    let outcome = prop_oneof![4 => Just(ModelOutcome::Done), 2 => Just(ModelOutcome::Again), 1 => Just(ModelOutcome::Later), 1 => Just(ModelOutcome::Dead)];
    prop_oneof![
        6 => (0..3_u64).prop_map(ModelAction::Publish),
        6 => (0..4_usize, 1..5_u64).prop_map(|(lane, count)| ModelAction::Read(lane, count)),
        8 => (0..4_usize, outcome).prop_map(|(number, outcome)| ModelAction::EndDelivery(number, outcome)),
        2 => (0..4_usize).prop_map(ModelAction::Rebuild),
        1 => Just(ModelAction::TogglePause),
        2 => (1..8_u64, 1..12_u64).prop_map(|(from, to)| ModelAction::Replay(from, to)),
        1 => (0..8_usize).prop_map(ModelAction::Retry),
        1 => (0..8_usize).prop_map(ModelAction::Cancel),
        3 => prop_oneof![Just(1000_i64), Just(5000), Just(7000), Just(60_000)].prop_map(ModelAction::Advance),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_two_of_a_group_overlap_nothing_passes_a_blocked_group_and_all_ends(
        mode in prop_oneof![
            Just(DispatchMode::Immediate),
            Just(DispatchMode::NextOnError),
            Just(DispatchMode::BlockOnError),
        ],
        actions in prop::collection::vec(action(), 1..80),
    ) {
        let mut model = PlannerModel::new(mode);
        actions.into_iter().for_each(|action| model.act(action));
        model.finish();
    }
}
