//! Random facts about few things, so that they meet. A fold takes any of them, sensible or not.

use crate::ledger::{
    ClaimKey, DeliveredJob, DispatchFact, Entry, EventDigest, JobKey, StoredDeadLetter, StoredTask, TASKS,
};
use contract::{
    ClaimAttempt, ClaimError, CleanupPolicy, Consumer, DeadLetterSource, DispatchMode, Distribution, EventType,
    FencingToken, Generation, JobAttempt, NewEventType, NewHandler, NewProjection, NewSubscription, NewTopic, Offset,
    Pool, Sequence, Timestamp, Topic, TopicId,
};
use log::testing::SeededRandom;
use uuid::Uuid;

/// How many topics there are.
pub(super) const TOPICS: u32 = 3;

fn topic_id(number: u32) -> TopicId {
    format!("gts.hx.core.events.topic.v1~vendor.t{number}.v1").parse().unwrap()
}

fn topic(number: u32) -> Topic {
    let mut definition = NewTopic::new(topic_id(number));
    definition.idempotent_retention = Some("PT1H".parse().unwrap());
    definition.cleanup = (number == 1).then_some(CleanupPolicy::Compact);
    Topic { definition, created_at: Timestamp::from_millis(5) }
}

/// The fact that registers a topic.
pub(super) fn registered(number: u32) -> Entry {
    Entry::TopicRegistered { number, topic: topic(number) }
}

/// Any fact. No two dead letters have one id.
pub(super) fn any(random: &mut SeededRandom, letter_count: &mut u64) -> Entry {
    match random.through(7) {
        0 => registry(random),
        1 | 2 => claims(random),
        3 => groups(random),
        4 => readers(random),
        5 => projections(random),
        6 => letters(random, letter_count),
        _ => Entry::Dispatch { what: dispatch(random) },
    }
}

fn small(random: &mut SeededRandom) -> u32 {
    u32::try_from(random.through(2)).unwrap() + 1
}

fn sequence(random: &mut SeededRandom) -> Sequence {
    Sequence(random.through(11) + 1)
}

fn id(random: &mut SeededRandom, kind: u128) -> Uuid {
    Uuid::from_u128(kind * 100 + u128::from(random.through(3)))
}

fn name(random: &mut SeededRandom) -> String {
    format!("h{}", random.through(2))
}

fn claim(random: &mut SeededRandom) -> ClaimKey {
    ClaimKey { handler: name(random), topic: small(random), sequence: sequence(random) }
}

fn registry(random: &mut SeededRandom) -> Entry {
    let number = small(random);
    let type_id: contract::EventTypeId =
        format!("gts.hyperspot.core.events.type.v1~vendor.made{number}.v1").parse().unwrap();
    match random.through(5) {
        0 => Entry::TopicChanged { topic: topic(number) },
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

fn claims(random: &mut SeededRandom) -> Entry {
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

fn groups(random: &mut SeededRandom) -> Entry {
    let (group, topic) = (name(random), small(random));
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

fn readers(random: &mut SeededRandom) -> Entry {
    // A consumer is of one group and one topic for as long as it lives.
    let number = u32::try_from(random.through(3)).unwrap();
    let (who, topic) = (Uuid::from_u128(200 + u128::from(number)), topic_id(number % TOPICS + 1));
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

fn projections(random: &mut SeededRandom) -> Entry {
    let (name, offset) = (name(random), Offset(random.through(9)));
    match random.through(5) {
        0 => Entry::ProjectionPut { name, definition: NewProjection::of_log() },
        1 => Entry::ProjectionDeleted { name },
        2 | 3 => Entry::CheckpointMoved { name, offset },
        4 => Entry::ProjectionReset { name, offset, generation: Generation(2) },
        _ => Entry::HandlerPut { name, definition: NewHandler { max_attempts: Some(3), ..NewHandler::default() } },
    }
}

fn letters(random: &mut SeededRandom, count: &mut u64) -> Entry {
    let known = *count - random.through((*count).min(4));
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
            *count += 1;
            let dead_letter = StoredDeadLetter {
                id: Uuid::from_u128(300 + u128::from(*count)),
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

fn job(random: &mut SeededRandom) -> JobKey {
    let lane = match random.through(4) {
        0 => TASKS,
        1 => id(random, 5),
        _ => id(random, 4),
    };
    JobKey { lane, sequence: sequence(random) }
}

fn dispatch(random: &mut SeededRandom) -> DispatchFact {
    let (subscription, job, event, by) = (id(random, 4), job(random), id(random, 1), "ops".to_owned());
    match random.through(15) {
        0..=2 => {
            let (code, number) = (format!("s{subscription}"), small(random));
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
