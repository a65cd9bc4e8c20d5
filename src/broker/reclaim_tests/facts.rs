//! Random facts about few things, so that they meet. A fold takes any of them, sensible or not.
//!
//! [`all_kinds`] lists every kind of fact; the histories must contain each of them.

use crate::ledger::{
    ClaimKey, DeliveredJob, DispatchFact, Entry, EventDigest, JobKey, LogLocation, StoredDeadLetter, StoredTask, TASKS,
    TopicPlacement,
};
use contract::{
    ClaimAttempt, ClaimError, CleanupPolicy, Consumer, DeadLetterSource, DispatchMode, Distribution, EventType,
    FencingToken, Generation, JobAttempt, NewEventType, NewHandler, NewProjection, NewSubscription, NewTopic,
    NewVersion, Offset, Pool, RegisteredVersion, SchemaVersion, Sequence, Timestamp, Topic, TopicId, VersionStatus,
};
use log::testing::SeededRandom;
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use uuid::Uuid;

/// How many topics there are at a time.
pub(super) const TOPICS: u32 = 3;

/// The source of random facts.
pub(super) struct FactRandom {
    random: SeededRandom,
    /// The numbers of the topics that are not deleted.
    pub(super) topics: Vec<u32>,
    letter_count: u64,
}

impl FactRandom {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: SeededRandom::new(seed), topics: (1..=TOPICS).collect(), letter_count: 0 }
    }

    /// The number of one of the topics.
    pub(super) fn topic(&mut self) -> u32 {
        let slot = self.slot();
        self.topics[slot]
    }

    /// The place of one of the topics in the list.
    pub(super) fn slot(&mut self) -> usize {
        usize::try_from(self.through(u64::from(TOPICS) - 1)).unwrap()
    }
}

impl Deref for FactRandom {
    type Target = SeededRandom;

    fn deref(&self) -> &SeededRandom {
        &self.random
    }
}

impl DerefMut for FactRandom {
    fn deref_mut(&mut self) -> &mut SeededRandom {
        &mut self.random
    }
}

/// The names of all kinds of facts: `fact` of entries, and `did` of facts about dispatch.
pub(super) fn all_kinds() -> BTreeSet<String> {
    let entries = expected(&serde_json::from_str::<Entry>(r#"{"fact":"?"}"#).unwrap_err());
    entries.into_iter().chain(expected(&serde_json::from_str::<DispatchFact>(r#"{"did":"?"}"#).unwrap_err())).collect()
}

/// The names that serde expected instead of `?`.
fn expected(unknown: &serde_json::Error) -> Vec<String> {
    let text = unknown.to_string();
    let (_, names) = text.split_once("expected one of ").expect("the error lists the names");
    names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The kinds of fact in the body of an entry.
pub(super) fn kinds_of(body: &[u8]) -> Vec<String> {
    let entry: serde_json::Value = serde_json::from_slice(body).unwrap();
    let names = [entry.get("fact"), entry.pointer("/what/did")];
    names.into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

pub(super) fn topic_id(number: u32) -> TopicId {
    format!("gts.hx.core.events.topic.v1~vendor.t{number}.v1").parse().unwrap()
}

/// A topic: one in three has the default window, which is the longest.
fn topic(number: u32) -> Topic {
    let mut definition = NewTopic::new(topic_id(number));
    let window = [None, Some("PT1H"), Some("PT10M")][number as usize % 3];
    definition.idempotent_retention = window.map(|window| window.parse().unwrap());
    definition.cleanup = (number % 3 == 1).then_some(CleanupPolicy::Compact);
    Topic { definition, created_at: Timestamp::from_millis(5) }
}

/// The fact that registers a topic.
pub(super) fn registered(number: u32) -> Entry {
    Entry::TopicRegistered { number, topic: topic(number) }
}

/// Any fact. No two dead letters have one id.
pub(super) fn any(random: &mut FactRandom) -> Entry {
    match random.through(8) {
        0 => registry(random),
        1 | 2 => claims(random),
        3 => groups(random),
        4 => readers(random),
        5 => projections(random),
        6 => letters(random),
        7 => placed(random),
        _ => Entry::Dispatch { what: dispatch(random) },
    }
}

fn small(random: &mut FactRandom) -> u32 {
    u32::try_from(random.through(2)).unwrap() + 1
}

fn sequence(random: &mut FactRandom) -> Sequence {
    Sequence(random.through(11) + 1)
}

fn id(random: &mut FactRandom, kind: u128) -> Uuid {
    Uuid::from_u128(kind * 100 + u128::from(random.through(3)))
}

fn name(random: &mut FactRandom) -> String {
    format!("h{}", random.through(2))
}

fn claim(random: &mut FactRandom) -> ClaimKey {
    ClaimKey { handler: name(random), topic: random.topic(), sequence: sequence(random) }
}

fn registry(random: &mut FactRandom) -> Entry {
    let number = random.topic();
    let type_id: contract::EventTypeId =
        format!("gts.hyperspot.core.events.type.v1~vendor.made{}.v1", small(random)).parse().unwrap();
    match random.through(7) {
        0 => {
            let mut topic = topic(number);
            if random.once_in(2) {
                topic.definition.idempotent_retention = Some("PT2H".parse().unwrap());
            }
            Entry::TopicChanged { topic }
        }
        5 | 6 => Entry::VersionsChanged { event_type: type_id, versions: vec![version(random)] },
        4 => Entry::EventTypeDeleted { event_type: type_id },
        1 => Entry::EventTypeArchived { event_type: type_id },
        2 => Entry::MemoryEmptied { floor: sequence(random) },
        3 => Entry::EventsLost { number, runs: vec![(Sequence(1), Sequence(1))] },
        _ => {
            let mut definition = NewEventType::new(type_id);
            definition.data_schema = Some(serde_json::json!({"title": "a \"quoted\" ü"}));
            let created_at = Timestamp::from_millis(7);
            let event_type = EventType { definition, created_at, versions: Vec::new(), archived: false };
            Entry::EventTypeRegistered { event_type }
        }
    }
}

fn version(random: &mut FactRandom) -> RegisteredVersion {
    let at = Timestamp::from_millis(8);
    let schema = serde_json::json!({"title": name(random)});
    let is_old = random.once_in(2);
    RegisteredVersion {
        definition: NewVersion::json_schema(SchemaVersion { major: 1, minor: small(random) }, schema),
        status: if is_old { VersionStatus::Deprecated } else { VersionStatus::Current },
        created_at: at,
        finalised_at: Some(at),
        deprecated_at: is_old.then_some(at),
    }
}

/// About topics in logs of their own.
fn placed(random: &mut FactRandom) -> Entry {
    let location = match random.through(2) {
        0 => LogLocation::Memory("m".to_owned()),
        1 => LogLocation::DataFolder("d".to_owned()),
        _ => LogLocation::Folder("/f".to_owned()),
    };
    let id: TopicId = format!("gts.hx.core.events.topic.v1~vendor.placed{}.v1", small(random)).parse().unwrap();
    match random.through(3) {
        0 => Entry::TopicDeleted { topic: id, number: 0, through: Sequence::ZERO },
        1 => Entry::LogErased { location },
        _ => {
            let topic = Topic { definition: NewTopic::new(id), created_at: Timestamp::from_millis(6) };
            let (floor, numbered) = (Sequence(random.through(1)), random.once_in(2));
            let (deleting, forced) = (random.once_in(3), random.once_in(2));
            Entry::TopicPlaced { placed: TopicPlacement { topic, location, floor, numbered, deleting, forced } }
        }
    }
}

fn claims(random: &mut FactRandom) -> Entry {
    let claim = claim(random);
    match random.through(7) {
        0..=2 => Entry::ClaimTaken {
            event: id(random, 1),
            owner: name(random),
            lease_millis: 30_000,
            attempt: small(random),
            claim,
        },
        3 => Entry::ClaimExtended { claim },
        4 | 5 => Entry::ClaimDone { claim, token: FencingToken(random.through(200)) },
        6 => Entry::ClaimFailed {
            claim,
            error: ClaimError::new("Timeout", "too slow"),
            retry_at: random.once_in(2).then_some(9),
        },
        _ => Entry::ClaimsReleased {
            handler: claim.handler,
            topic: claim.topic,
            sequences: vec![claim.sequence],
            spent: random.once_in(2),
        },
    }
}

fn groups(random: &mut FactRandom) -> Entry {
    let (group, topic) = (name(random), random.topic());
    let (from, to) = (sequence(random), sequence(random));
    let (from, to) = (from.min(to), from.max(to));
    match random.through(6) {
        0 | 1 => Entry::GroupBegan { group, topic, offset: Offset(random.through(3)) },
        2 => Entry::EventsPassed { group, topic, runs: vec![(from, to)] },
        3 => Entry::EventsRepeated { group, topic, from, to, copies: Vec::new() },
        4 => Entry::GroupMoved { group, topic, offset: Offset(from.get()) },
        5 => Entry::GroupDeleted { group, topics: vec![topic] },
        _ => Entry::HandlerDeleted { name: group, topics: vec![topic_id(topic)] },
    }
}

fn readers(random: &mut FactRandom) -> Entry {
    // A consumer is of one group and one topic for as long as it lives.
    let number = u32::try_from(random.through(3)).unwrap();
    let topic = topic_id(random.topics[(number % TOPICS) as usize]);
    let who = Uuid::from_u128(200 + u128::from(number));
    let (group, offset) = (format!("h{}", number % 2), Offset(random.through(9)));
    let at = Timestamp::from_millis(1_764_763_200_000);
    match random.through(6) {
        0 | 1 => Entry::ConsumerCreated {
            consumer: Consumer {
                id: who,
                consumer_group: group,
                topic,
                types: Vec::new(),
                subject_types: Vec::new(),
                cel: None,
                session_timeout: "PT30S".parse().unwrap(),
                distribution: if random.once_in(2) { Distribution::Broadcast } else { Distribution::Shared },
                max_in_flight: None,
                created_at: at,
                last_seen_at: at,
                expires_at: at,
            },
        },
        2 => Entry::ConsumerSeen { id: who },
        3 => Entry::ConsumerDeleted { id: who },
        4 => Entry::ConsumersExpired { ids: vec![who] },
        5 => Entry::OffsetCommitted { group, topic, offset },
        _ => Entry::OffsetReset { group, topic, offset },
    }
}

fn projections(random: &mut FactRandom) -> Entry {
    let (name, offset) = (name(random), Offset(random.through(9)));
    match random.through(5) {
        0 => Entry::ProjectionPut { name, definition: NewProjection::of_log() },
        1 => Entry::ProjectionDeleted { name },
        2 | 3 => Entry::CheckpointMoved { name, offset },
        4 => Entry::ProjectionReset { name, offset, generation: Generation(2) },
        _ => Entry::HandlerPut { name, definition: NewHandler { max_attempts: Some(3), ..NewHandler::default() } },
    }
}

fn letters(random: &mut FactRandom) -> Entry {
    let count = random.letter_count;
    let known = count - random.through(count.min(4));
    let (letter, claim) = (Uuid::from_u128(300 + u128::from(known)), claim(random));
    let (job, by) = (random.once_in(2).then(|| job(random)), "ops".to_owned());
    match random.through(3) {
        0 | 1 => {
            let (error, at) = (ClaimError::new("Timeout", "too slow"), Timestamp::from_millis(3));
            let attempt = ClaimAttempt {
                number: 1,
                token: FencingToken(7),
                owner: name(random),
                started_at: at,
                failed_at: at,
                error: error.clone(),
            };
            random.letter_count += 1;
            let dead_letter = StoredDeadLetter {
                id: Uuid::from_u128(300 + u128::from(count + 1)),
                source: if job.is_some() { DeadLetterSource::Subscription } else { DeadLetterSource::Handler },
                name: claim.handler,
                topic: topic_id(claim.topic),
                number: claim.topic,
                sequence: claim.sequence,
                event: id(random, 1),
                error,
                attempts: vec![attempt],
                superseded: random.once_in(4),
                job,
            };
            Entry::DeadLettered { letter: Box::new(dead_letter) }
        }
        2 => Entry::Redriven {
            letter,
            claim: job.is_none().then_some(claim),
            by,
            reason: None,
            new_event: random.once_in(2).then(|| id(random, 1)),
            original: random.once_in(4).then(|| Sequence(random.through(9))),
            job,
        },
        _ => Entry::Discarded { letter, claim: job.is_none().then_some(claim), by, reason: "because".to_owned(), job },
    }
}

fn job(random: &mut FactRandom) -> JobKey {
    let lane = match random.through(4) {
        0 => TASKS,
        1 => id(random, 5),
        _ => id(random, 4),
    };
    JobKey { lane, sequence: sequence(random) }
}

fn dispatch(random: &mut FactRandom) -> DispatchFact {
    let (subscription, job, event, by) = (id(random, 4), job(random), id(random, 1), "ops".to_owned());
    match random.through(18) {
        16 => DispatchFact::BreakerClosed { id: subscription, by },
        17 => DispatchFact::DispatchPaused { by, reason: random.once_in(2).then(|| "because".to_owned()) },
        18 => DispatchFact::DispatchResumed { by },
        0..=2 => {
            let (code, number) = (format!("s{subscription}"), random.topic());
            let definition = Box::new(NewSubscription::new(code, topic_id(number), "https://example.com/"));
            let start = Sequence(random.through(4));
            DispatchFact::SubscriptionPut { id: subscription, number, definition, sealed: None, auth_type: None, start }
        }
        3 => DispatchFact::SubscriptionPaused { id: subscription, by, reason: None },
        4 => DispatchFact::SubscriptionResumed { id: subscription },
        5 => {
            DispatchFact::SubscriptionDeleted { id: subscription, code: Some(format!("s{subscription}")), by: Some(by) }
        }
        6 => DispatchFact::PoolPut { pool: Pool { code: name(random), concurrency: 3, rate_per_minute: None } },
        7 => DispatchFact::PoolDeleted { code: name(random) },
        8 => {
            let task = StoredTask {
                code: "mail".to_owned(),
                target: "https://example.com/".to_owned(),
                payload: "{}".to_owned(),
                message_group: None,
                mode: DispatchMode::default(),
                pool: None,
                scheduled_for: None,
            };
            DispatchFact::TaskCreated { id: Uuid::from_u128(random.wide()), task: Box::new(task) }
        }
        9 => DispatchFact::ReplayOrdered { id: id(random, 5), subscription, from: Sequence(1), to: sequence(random) },
        10 | 11 => DispatchFact::JobsEnded {
            lane: job.lane,
            through: job.sequence,
            done: vec![DeliveredJob(job.sequence, 1, 5, 6, 200)],
            expired: Vec::new(),
        },
        12 => {
            let at = Timestamp::from_millis(4);
            let digest = random.once_in(2).then(|| EventDigest { arrived: 5, bytes: 2, group: Some("g".to_owned()) });
            let attempt = JobAttempt {
                number: 1,
                at,
                duration_ms: 3,
                status: Some(500),
                error: None,
                response: None,
                token: FencingToken(3),
            };
            DispatchFact::JobAttempted {
                job,
                event,
                attempt,
                retry_at: random.once_in(2).then_some(9),
                counts: true,
                digest,
            }
        }
        13 => DispatchFact::JobDeferred { job, event, until: 12, reason: None, digest: None },
        14 => match random.through(3) {
            0 => DispatchFact::JobCancelled { job, by },
            1 => DispatchFact::JobRetried { job, event, by, digest: None },
            2 => DispatchFact::JobExpired { job, event, digest: None },
            _ => DispatchFact::JobCompleted { job, by },
        },
        _ => DispatchFact::DispatchTaken { owner: id(random, 6), until: 20 },
    }
}
