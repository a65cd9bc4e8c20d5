//! Random commands compared with a naive model: every reply is equal, on every engine, across reopening, crashes and
//! rebuilds.
//!
//! The model keeps a plain list of events and scans it for every query. A random run is written as a scenario whose
//! expected replies come from the model, so a failure reads like any other test.

use crate::scenario::check;
use proptest::prelude::*;

const WINDOW_MILLIS: i64 = 60_000;
/// Type `n` belongs to topic `TOPIC_OF[n]`; topic 1 refuses different data under a known key.
const TOPIC_OF: [usize; 3] = [0, 0, 1];

#[derive(Debug, Clone)]
enum BrokerStep {
    Publish(ModelItem),
    Batch(bool, Vec<ModelItem>),
    Read { topic: usize, after: u64, limit: usize },
    History { topic: usize, subject: u8, after: u64 },
    Log,
    Advance(i64),
    Trim { topic: usize, through: u64 },
    Open(&'static str),
}

#[derive(Debug, Clone)]
struct ModelItem {
    event_type: usize,
    subject: u8,
    id: Option<u8>,
    dedup: Option<u8>,
    expected: Option<u64>,
    sequence: Option<u64>,
    data: u8,
}

fn item() -> impl Strategy<Value = ModelItem> {
    let rarely = |share: f64, range: std::ops::Range<u64>| proptest::option::weighted(share, range);
    (
        0..3_usize,
        0..3_u8,
        proptest::option::weighted(0.6, 0..6_u8),
        proptest::option::weighted(0.15, 0..2_u8),
        rarely(0.3, 0..4),
        rarely(0.1, 1..8),
        0..2_u8,
    )
        .prop_map(|(event_type, subject, id, dedup, expected, sequence, data)| ModelItem {
            event_type,
            subject,
            id,
            dedup,
            expected,
            sequence,
            data,
        })
}

fn step() -> impl Strategy<Value = BrokerStep> {
    prop_oneof![
        8 => item().prop_map(BrokerStep::Publish),
        4 => (any::<bool>(), proptest::collection::vec(item(), 1..6)).prop_map(|(all, items)| BrokerStep::Batch(all, items)),
        3 => (0..2_usize, 0..12_u64, 1..5_usize).prop_map(|(topic, after, limit)| BrokerStep::Read { topic, after, limit }),
        2 => (0..2_usize, 0..3_u8, 0..4_u64).prop_map(|(topic, subject, after)| BrokerStep::History { topic, subject, after }),
        1 => Just(BrokerStep::Log),
        2 => (0..40_000_i64).prop_map(BrokerStep::Advance),
        1 => (0..2_usize, 0..6_u64).prop_map(|(topic, through)| BrokerStep::Trim { topic, through }),
        2 => prop_oneof![Just("reopen"), Just("crash"), Just("rebuild")].prop_map(BrokerStep::Open),
    ]
}

#[derive(Debug, Clone, PartialEq)]
enum ModelKey {
    Event(u8, usize, u8),
    Dedup(u8, usize),
}

#[derive(Debug, Clone)]
struct ModelEvent {
    topic: usize,
    subject: u8,
    key: Option<ModelKey>,
    time: i64,
    data: u8,
    sequence: u64,
    aggregate: u64,
}

#[derive(Debug, Clone, Default)]
struct BrokerModel {
    now: i64,
    events: Vec<ModelEvent>,
    trimmed: [u64; 2],
}

impl BrokerModel {
    fn of_topic(&self, topic: usize) -> impl Iterator<Item = &ModelEvent> {
        self.events.iter().filter(move |event| event.topic == topic)
    }

    fn tail(&self, topic: usize) -> u64 {
        self.of_topic(topic).count() as u64
    }

    fn head(&self, topic: usize, subject: u8) -> u64 {
        self.of_topic(topic).filter(|event| event.subject == subject).count() as u64
    }

    fn is_gone(&self, event: &ModelEvent) -> bool {
        event.sequence <= self.trimmed[event.topic]
    }

    /// `Ok` with the index of the original event if the item is a duplicate; `Err` for a reused key.
    fn repeated(&self, item: &ModelItem) -> Result<Option<usize>, String> {
        let topic = TOPIC_OF[item.event_type];
        let Some(key) = key(item) else { return Ok(None) };
        let known = self.events.iter().rposition(|event| event.topic == topic && event.key.as_ref() == Some(&key));
        let Some(known) = known.filter(|known| self.now - self.events[*known].time < WINDOW_MILLIS) else {
            return Ok(None);
        };
        match topic == 1 && self.events[known].data != item.data {
            true => Err("EVENT_ID_REUSE".to_owned()),
            false => Ok(Some(known)),
        }
    }

    /// The index of the new event or of the original, and whether it is new.
    fn publish(&mut self, item: &ModelItem) -> Result<(usize, bool), String> {
        if let Some(known) = self.repeated(item)? {
            return Ok((known, false));
        }
        let topic = TOPIC_OF[item.event_type];
        let next = self.tail(topic) + 1;
        match item.sequence {
            Some(sequence) if sequence < next => return Err("SEQUENCE_EXISTS".to_owned()),
            Some(sequence) if sequence > next => return Err("INVALID_SEQUENCE".to_owned()),
            _ => (),
        }
        let head = self.head(topic, item.subject);
        if item.expected.is_some_and(|expected| expected != head) {
            return Err(format!("EXPECTED_SEQUENCE actual {head}"));
        }
        self.events.push(ModelEvent {
            topic,
            subject: item.subject,
            key: key(item),
            time: self.now,
            data: item.data,
            sequence: next,
            aggregate: head + 1,
        });
        Ok((self.events.len() - 1, true))
    }

    fn batch(&mut self, items: &[ModelItem], all: bool) -> Vec<String> {
        let mut answers = vec![String::new(); items.len()];
        let mut units: Vec<Vec<usize>> = Vec::new();
        for index in 0..items.len() {
            let topic = |index: usize| TOPIC_OF[items[index].event_type];
            match units.iter_mut().find(|unit| all || topic(unit[0]) == topic(index)) {
                Some(unit) => unit.push(index),
                None => units.push(vec![index]),
            }
        }
        for unit in units {
            self.unit(items, &unit, &mut answers);
        }
        answers
    }

    fn unit(&mut self, items: &[ModelItem], unit: &[usize], answers: &mut [String]) {
        let before = self.clone();
        let mut outcomes: Vec<Result<(usize, bool), String>> = Vec::new();
        for &index in unit {
            let failed = outcomes.iter().any(Result::is_err);
            outcomes.push(match failed {
                false => self.publish(&items[index]),
                true => {
                    self.repeated(&items[index]).and_then(|known| known.map(|known| (known, false)).ok_or_else(aborted))
                }
            });
        }
        if outcomes.iter().any(Result::is_err) {
            let kept = before.events.len();
            for outcome in &mut outcomes {
                if matches!(outcome, Ok((index, _)) if *index >= kept) {
                    *outcome = Err(aborted());
                }
            }
            *self = before;
        }
        for (&index, outcome) in unit.iter().zip(outcomes) {
            answers[index] = self.describe(outcome);
        }
    }

    fn describe(&self, outcome: Result<(usize, bool), String>) -> String {
        let (index, new) = match outcome {
            Ok(outcome) => outcome,
            Err(code) => return code,
        };
        let event = &self.events[index];
        match new {
            true => format!("created {} aggregate {}", event.sequence, event.aggregate),
            false if self.is_gone(event) => format!("TRIMMED earliest {}", self.trimmed[event.topic] + 1),
            false => format!("duplicate {}", event.sequence),
        }
    }

    fn read(&self, topic: usize, after: u64, limit: usize) -> String {
        let tail = self.tail(topic);
        if after < self.trimmed[topic] {
            return format!("TRIMMED earliest {}", self.trimmed[topic] + 1);
        }
        let items: Vec<_> = (after + 1..=tail).take(limit).collect();
        let next = items.last().copied().unwrap_or(after);
        let items: Vec<_> = items.iter().map(u64::to_string).collect();
        format!("{} next {next} tail {tail}", items.join(" "))
    }

    fn history(&self, topic: usize, subject: u8, after: u64) -> String {
        let items: Vec<_> = self
            .of_topic(topic)
            .filter(|event| event.subject == subject && event.aggregate > after && !self.is_gone(event))
            .collect();
        let next = items.last().map_or(after, |event| event.aggregate);
        let texts: Vec<_> = items.iter().map(|event| format!("{}@{}", event.aggregate, event.sequence)).collect();
        format!("{} next {next} of {}", texts.join(" "), self.head(topic, subject))
    }

    fn log(&self) -> String {
        let there = self.events.iter().filter(|event| !self.is_gone(event));
        there.map(|event| format!("t{}/{}", event.topic, event.sequence)).collect::<Vec<_>>().join(" ")
    }

    fn trim(&mut self, topic: usize, through: u64) -> String {
        let through = through.min(self.tail(topic)).max(self.trimmed[topic]);
        let removed = through - self.trimmed[topic];
        self.trimmed[topic] = through;
        format!("removed {removed}")
    }

    /// One line of a scenario, with the reply that the model expects.
    fn line(&mut self, step: &BrokerStep) -> String {
        match step {
            BrokerStep::Publish(item) => {
                let outcome = self.publish(item);
                format!("publish {} -> {}", text(item), self.describe(outcome))
            }
            BrokerStep::Batch(all, items) => {
                let verb = if *all { "batch-all" } else { "batch" };
                let texts: Vec<_> = items.iter().map(text).collect();
                format!("{verb} {} -> {}", texts.join(" ; "), self.batch(items, *all).join(" | "))
            }
            BrokerStep::Read { topic, after, limit } => {
                format!("read t{topic} after={after} limit={limit} -> {}", self.read(*topic, *after, *limit))
            }
            BrokerStep::History { topic, subject, after } => {
                format!("history t{topic} s{subject} after={after} -> {}", self.history(*topic, *subject, *after))
            }
            BrokerStep::Log => format!("log -> {}", self.log()),
            BrokerStep::Advance(millis) => {
                self.now += millis;
                format!("advance {millis}")
            }
            BrokerStep::Trim { topic, through } => {
                format!("trim t{topic} {through} -> {}", self.trim(*topic, *through))
            }
            BrokerStep::Open(how) => (*how).to_owned(),
        }
    }
}

fn key(item: &ModelItem) -> Option<ModelKey> {
    match (item.dedup, item.id) {
        (Some(dedup), _) => Some(ModelKey::Dedup(dedup, TOPIC_OF[item.event_type])),
        (None, Some(id)) => Some(ModelKey::Event(id, item.event_type, item.subject)),
        (None, None) => None,
    }
}

fn aborted() -> String {
    "BATCH_ABORTED".to_owned()
}

fn text(item: &ModelItem) -> String {
    let mut text = format!("p{} s{}", item.event_type, item.subject);
    let mut add = |name: &str, value: Option<u64>| {
        if let Some(value) = value {
            text += &format!(" {name}={value}");
        }
    };
    add("id", item.id.map(u64::from));
    add("dedup", item.dedup.map(u64::from));
    add("expected", item.expected);
    add("sequence", item.sequence);
    text + &format!(r#" data={{"n":{}}}"#, item.data)
}

fn scenario(steps: &[BrokerStep]) -> String {
    let mut lines = vec![
        "topic t0 window=PT1M -> created".to_owned(),
        "topic t1 window=PT1M mismatch=reject -> created".to_owned(),
    ];
    lines.extend((0..3).map(|n| format!("type p{n} topic=t{} -> created", TOPIC_OF[n])));
    let mut model = BrokerModel::default();
    lines.extend(steps.iter().map(|step| model.line(step)));
    lines.extend([0, 1].map(|topic| {
        let trimmed = model.trimmed[topic];
        format!("read t{topic} after={trimmed} -> {}", model.read(topic, trimmed, 100))
    }));
    lines.join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_broker_agrees_with_the_model(steps in proptest::collection::vec(step(), 1..40)) {
        check(&scenario(&steps));
    }
}
