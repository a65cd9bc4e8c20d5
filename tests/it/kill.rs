//! The real process, killed: no acknowledged event is lost, none is stored twice, and all numbers stay dense.
//!
//! The process under test is `event-broker bench --acks`: eight callers publish, and the process prints one line per
//! acknowledged event to a pipe. After each kill the folder is verified, opened, and compared with the lines.

use contract::api::*;
use contract::{AggregateRead, AggregateSequence, LogRead, Position, StoredEvent};
use event_broker::{Broker, Config};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Small segments, so that a run rolls and seals several.
const SEGMENT_BYTES: &str = "65536";
const TOPICS: u32 = 3;

/// Everything that one data folder has acknowledged so far.
#[derive(Default)]
pub(crate) struct AcknowledgedEvents {
    /// Topic and sequence, by event id.
    pub(crate) acked: HashMap<String, (u32, u64)>,
}

impl AcknowledgedEvents {
    /// Reads the complete lines of a process's output, and kills the process after `enough` lines; returns whether a
    /// kill was needed.
    fn listen(&mut self, child: &mut Child, enough: usize) -> bool {
        let output = child.stdout.take().unwrap();
        let mut reader = BufReader::new(output);
        let mut heard = 0;
        loop {
            let mut line = String::new();
            let count = reader.read_line(&mut line).unwrap();
            if count == 0 {
                break;
            }
            // A line cut off by the kill does not count.
            if line.ends_with('\n') {
                self.note(&line);
                heard += 1;
            }
            if heard == enough {
                // Kill in the middle of the work, then read what is left in the pipe.
                let _ = child.kill();
            }
        }
        let _ = child.wait();
        heard >= enough
    }

    pub(crate) fn note(&mut self, line: &str) {
        let words: Vec<_> = line.split_whitespace().collect();
        let ["ack", topic, sequence, id] = words[..] else { panic!("unexpected line {line:?}") };
        let before = self.acked.insert(id.to_owned(), (topic.parse().unwrap(), sequence.parse().unwrap()));
        assert!(before.is_none(), "{id} was acknowledged twice");
    }

    /// Opens the folder and compares its contents with what was acknowledged.
    pub(crate) async fn hold_against(&self, folder: &Path) -> usize {
        let report =
            log::file::verify(folder, event_broker::acknowledged_state(folder).unwrap().acknowledged, |_| ()).unwrap();
        assert!(report.damages.is_empty(), "{:?}", report.damages);
        let broker = Broker::open(Config::folder(folder)).await.unwrap();
        let events = read_everything(&broker).await;
        check_numbers(&events);
        check_order_of_callers(&events);
        let stored: HashMap<_, _> =
            events.iter().map(|(topic, event)| (event.id.to_string(), (*topic, event.sequence.0))).collect();
        assert_eq!(stored.len(), events.len(), "an event id is stored twice");
        let earliest =
            |topic| events.iter().find(|(of, _)| *of == topic).map_or(u64::MAX, |(_, event)| event.sequence.0);
        let earliest: Vec<_> = (0..TOPICS).map(earliest).collect();
        for (id, place) in &self.acked {
            let trimmed = place.1 < earliest[place.0 as usize];
            assert!(trimmed || stored.get(id) == Some(place), "acknowledged event {id} is not at {place:?}");
        }
        check_heads(&broker, &events).await;
        broker.close().await;
        events.len()
    }
}

/// Every event in global order, with its sequence in its topic.
async fn read_everything(broker: &Broker) -> Vec<(u32, StoredEvent)> {
    let mut events = Vec::new();
    let mut after = Position::ZERO;
    loop {
        let page = broker.read_log(LogRead { after, limit: 100, filter: Default::default() }).await.unwrap();
        after = page.next_position;
        for event in page.items {
            let topic = event.event().unwrap().topic;
            let number = topic.as_str().split("bench").nth(1).unwrap().trim_end_matches(".v1").parse().unwrap();
            events.push((number, event));
        }
        if after == page.tail {
            return events;
        }
    }
}

fn check_numbers(events: &[(u32, StoredEvent)]) {
    let mut sequences = BTreeMap::<u32, u64>::new();
    let mut aggregates = HashMap::<(u32, String), u64>::new();
    let mut position = 0;
    for (topic, event) in events {
        // A trimmed topic starts at a later sequence; from there on it is dense like any other.
        sequences.entry(*topic).or_insert(event.sequence.0 - 1);
        let subject = event.event().unwrap().subject.unwrap();
        aggregates.entry((*topic, subject.clone())).or_insert(event.aggregate_sequence.0 - 1);
        assert!(event.position.0 > position, "positions must rise");
        position = event.position.0;
        let sequence = sequences.entry(*topic).or_default();
        *sequence += 1;
        assert_eq!(event.sequence.0, *sequence, "the sequences of topic {topic} must be dense");
        let aggregate = aggregates.entry((*topic, subject)).or_default();
        *aggregate += 1;
        assert_eq!(event.aggregate_sequence.0, *aggregate, "aggregate sequences must be dense");
    }
}

/// A caller continues only after a response, so its counts rise by one up to the beginning of the next run.
fn check_order_of_callers(events: &[(u32, StoredEvent)]) {
    let mut counts = HashMap::<(u128, u64), u64>::new();
    for (_, event) in events {
        let data: serde_json::Value = serde_json::from_str(event.event().unwrap().data.get()).unwrap();
        let (caller, count) = (data["caller"].as_u64().unwrap(), data["count"].as_u64().unwrap());
        let run = event.id.as_u128() >> 96;
        let expected = counts.entry((run, caller)).or_insert(count);
        assert_eq!(count, *expected, "counts of caller {caller} in run {run}");
        *expected += 1;
    }
}

/// The tables hold the same value for every aggregate as its events.
async fn check_heads(broker: &Broker, events: &[(u32, StoredEvent)]) {
    let mut seen = HashSet::new();
    for (_, event) in events.iter().rev() {
        let parsed = event.event().unwrap();
        let subject = parsed.subject.unwrap();
        if !seen.insert((parsed.topic.to_string(), subject.clone())) {
            continue;
        }
        let read = AggregateRead {
            topic: parsed.topic,
            subject_type: parsed.subject_type,
            subject,
            after: AggregateSequence::ZERO,
            limit: 1,
        };
        let aggregate = broker.aggregate(read).await.unwrap();
        assert_eq!(aggregate.last_event.as_ref(), Some(event));
    }
}

pub(crate) fn publisher(folder: &Path, run: u32) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_event-broker"));
    command
        .args(["bench", "--acks", "--callers", "8", "--events", "100000000", "--segment-bytes", SEGMENT_BYTES])
        .args(["--topics", &TOPICS.to_string(), "--run", &run.to_string(), "--append", "--data"])
        .arg(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    command
}

/// How many times the long test kills the process: 20 in CI, `EVENT_BROKER_KILLS=200` for a longer run.
fn kills() -> u32 {
    std::env::var("EVENT_BROKER_KILLS").map_or(20, |text| text.parse().unwrap())
}

#[tokio::test]
async fn a_process_killed_at_random_moments_keeps_every_promise() {
    let mut folder = TempDir::new().unwrap();
    let mut promises = AcknowledgedEvents::default();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for run in 0..kills() {
        // Start a fresh folder from time to time: otherwise the time to read everything back grows with the square of
        // the kills.
        if run % 10 == 0 {
            folder = TempDir::new().unwrap();
            promises = AcknowledgedEvents::default();
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let enough = usize::try_from(random >> 54).unwrap() + 1;
        let mut child = publisher(folder.path(), run).spawn().unwrap();
        promises.listen(&mut child, enough);
        let stored = promises.hold_against(folder.path()).await;
        assert!(stored >= promises.acked.len() && stored > 0);
    }
}

#[cfg(feature = "crash-points")]
#[tokio::test]
async fn a_process_that_dies_at_any_crash_point_keeps_every_promise() {
    for point in log::CRASH_POINTS {
        // The first time a point is reached, and once after many operations.
        for count in [1, 3] {
            let folder = TempDir::new().unwrap();
            let mut promises = AcknowledgedEvents::default();
            // Earlier data to recover, so that the crash points of reopening are reached too.
            let mut first = publisher(folder.path(), 0).spawn().unwrap();
            promises.listen(&mut first, 200);
            let mut child = publisher(folder.path(), 1)
                // Every durable step happens often: rolls, seals, trims, rewrites, checkpoints.
                .args(["--keep", "300", "--checkpoint-rows", "500"])
                .env("EVENT_BROKER_CRASH_AT", format!("{point}:{count}"))
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let killed = promises.listen(&mut child, 50_000);
            assert!(!killed, "{point} was not reached {count} times");
            promises.hold_against(folder.path()).await;
        }
    }
}
