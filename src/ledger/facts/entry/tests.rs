//! Every entry, written and read again.

use super::*;
use crate::ledger::decide::decision::Decision;
use crate::ledger::decide::overlay::Overlay;
use crate::ledger::decide::stored_reply::ReplyPiece;
use crate::ledger::disk::table::DiskTables;
use crate::ledger::facts::placement::LogLocation;
use crate::ledger::state::LedgerState;
use contract::{ClaimAttempt, ClaimOrder, DeadLetterSource};
use contract::{Distribution, NewEventType, NewTopic, NewVersion, Position, SchemaVersion, Timestamp, VersionStatus};

#[test]
fn entries_survive_the_trip_to_disk() {
    let created_at = Timestamp::from_millis(1_764_763_200_000);
    let mut topic = NewTopic::new("gts.hx.core.events.topic.v1~vendor.users.v1".parse().unwrap());
    topic.retention = Some("PT30D".parse().unwrap());
    let mut event_type =
        NewEventType::new("gts.hyperspot.core.events.type.v1~vendor.users.user_registered.v1".parse().unwrap());
    event_type.data_schema = Some(serde_json::json!({"type": "object", "required": ["userId"]}));
    let type_id = event_type.id.clone();
    let version = RegisteredVersion {
        definition: NewVersion::json_schema(SchemaVersion::FIRST, serde_json::json!({"type": "object"})),
        status: VersionStatus::Deprecated,
        created_at,
        finalised_at: Some(created_at),
        deprecated_at: Some(created_at),
    };
    let versions = vec![version];
    let event_type = EventType { definition: event_type, created_at, versions: versions.clone(), archived: true };
    let (id, group, topic_id, offset) = (Uuid::from_u128(7), "billing".to_owned(), topic.id.clone(), Offset(9));
    let consumer = Consumer {
        id,
        consumer_group: group.clone(),
        topic: topic_id.clone(),
        types: vec!["gts.vendor.*".parse().unwrap()],
        subject_types: Vec::new(),
        cel: Some("has(data)".to_owned()),
        session_timeout: "PT30S".parse().unwrap(),
        distribution: Distribution::Broadcast,
        max_in_flight: None,
        created_at,
        last_seen_at: created_at,
        expires_at: Timestamp::from_millis(created_at.millis() + 30_000),
    };
    let name = || "orders-table".to_owned();
    for entry in [
        Entry::TopicRegistered { number: 1, topic: Topic { definition: topic.clone(), created_at } },
        Entry::TopicChanged { topic: Topic { definition: topic.clone(), created_at } },
        Entry::TopicPlaced {
            placed: TopicPlacement {
                topic: Topic { definition: topic, created_at },
                location: LogLocation::DataFolder("var/lib/events".to_owned()),
                floor: Sequence(1 << 40),
                numbered: true,
                deleting: true,
                forced: true,
            },
        },
        Entry::TopicDeleted { topic: topic_id.clone(), number: 2, through: Sequence(7) },
        Entry::LogErased { location: LogLocation::Folder("/var/lib/events".to_owned()) },
        Entry::EventTypeRegistered { event_type },
        Entry::VersionsChanged { event_type: type_id.clone(), versions },
        Entry::EventTypeArchived { event_type: type_id.clone() },
        Entry::EventTypeDeleted { event_type: type_id },
        Entry::ConsumerCreated { consumer },
        Entry::ConsumerSeen { id },
        Entry::ConsumerDeleted { id },
        Entry::ConsumersExpired { ids: vec![id, Uuid::from_u128(8)] },
        Entry::OffsetCommitted { group: group.clone(), topic: topic_id.clone(), offset },
        Entry::OffsetReset { group, topic: topic_id.clone(), offset },
        Entry::ProjectionPut { name: name(), definition: NewProjection::of_topic(topic_id).filtered("has(data)") },
        Entry::ProjectionPut { name: name(), definition: NewProjection::of_log() },
        Entry::ProjectionDeleted { name: name() },
        Entry::CheckpointMoved { name: name(), offset },
        Entry::ProjectionReset { name: name(), offset, generation: Generation(2) },
        Entry::AnswerKept { key: u128::MAX - 1, digest: u64::MAX, answer: kept(), kept_at: None },
        Entry::AnswerKept { key: 1, digest: 2, answer: kept(), kept_at: Some(-5) },
    ]
    .into_iter()
    .chain(about_snapshots())
    .chain(about_claims(created_at))
    {
        let text = serde_json::to_vec(&entry).unwrap();
        assert_eq!(serde_json::from_slice::<Entry>(&text).unwrap(), entry);
    }
}

fn about_snapshots() -> [Entry; 3] {
    [
        Entry::SnapshotBegan {},
        Entry::SnapshotPart { snapshot: Position(7), part: 1, is_last: false, text: "{\"a\u{e4}".to_owned() },
        Entry::SnapshotTaken {
            snapshot: Position(7),
            through: Sequence(3),
            at: 5,
            reclaimed_bytes: 1,
            reclaimed_answer_bytes: 2,
            live_bytes: 3,
        },
    ]
}

fn kept() -> StoredReply {
    let body = vec![
        ReplyPiece::Text("{\"event\":".to_owned()),
        ReplyPiece::Event(Position(7)),
        ReplyPiece::Text("}".to_owned()),
    ];
    StoredReply { status: 201, headers: vec![("location".to_owned(), "/v1/events/7".to_owned())], body }
}

fn about_claims(at: Timestamp) -> Vec<Entry> {
    let claim = ClaimKey { handler: "billing".to_owned(), topic: 3, sequence: Sequence(9) };
    let (event, letter, error) = (Uuid::from_u128(1), Uuid::from_u128(2), ClaimError::new("Timeout", "too slow"));
    let owner = "w1".to_owned();
    let attempt = ClaimAttempt {
        number: 1,
        token: FencingToken(7),
        owner: owner.clone(),
        started_at: at,
        failed_at: at,
        error: error.clone(),
    };
    let dead = StoredDeadLetter {
        id: letter,
        source: DeadLetterSource::Handler,
        name: claim.handler.clone(),
        topic: "gts.hx.core.events.topic.v1~".parse().unwrap(),
        number: 3,
        sequence: claim.sequence,
        event,
        error: error.clone(),
        attempts: vec![attempt],
        superseded: true,
        job: None,
    };
    let definition = NewHandler {
        lease: Some("PT30S".parse().unwrap()),
        max_attempts: Some(3),
        backoff: Some("PT2S".parse().unwrap()),
        order: Some(ClaimOrder::Gapless),
    };
    let (by, reason) = ("ops".to_owned(), "because".to_owned());
    vec![
        Entry::HandlerPut { name: "billing".to_owned(), definition },
        Entry::GroupBegan { group: by.clone(), topic: 3, offset: Offset(2) },
        Entry::EventsPassed { group: by.clone(), topic: 3, runs: vec![(Sequence(3), Sequence(3))] },
        Entry::EventsRepeated { group: by.clone(), topic: 3, from: Sequence(1), to: Sequence(2), copies: Vec::new() },
        Entry::GroupMoved { group: by.clone(), topic: 3, offset: Offset(9) },
        Entry::ClaimTaken { claim: claim.clone(), event, owner, lease_millis: 30_000, attempt: 2 },
        Entry::ClaimExtended { claim: claim.clone() },
        Entry::ClaimDone { claim: claim.clone(), token: FencingToken(7) },
        Entry::ClaimFailed { claim: claim.clone(), error, retry_at: Some(1) },
        Entry::DeadLettered { letter: Box::new(dead) },
        Entry::Redriven {
            letter,
            claim: Some(claim.clone()),
            by: by.clone(),
            reason: None,
            new_event: Some(event),
            original: None,
            job: None,
        },
        Entry::Discarded { letter, claim: Some(claim), by, reason, job: None },
    ]
}

#[test]
fn the_dictionary_is_raised_once_before_the_first_fact_that_needs_it() {
    let (mut state, mut overlay) = (LedgerState::new(DiskTables::in_memory(|_| 0)), Overlay::default());
    let mut decision = Decision::new(&state, &mut overlay, 1);
    decision.raise_dictionary(DICTIONARY_BASELINE).unwrap();
    assert_eq!(decision.position(), Position::ZERO);
    let mark = decision.mark();
    for _ in 0..2 {
        decision.raise_dictionary(DICTIONARY + 1).unwrap();
        assert_eq!(decision.position(), Position(1));
    }
    // An undone entry is not in the overlay.
    decision.undo(mark);
    decision.raise_dictionary(DICTIONARY + 1).unwrap();
    let records = overlay.take_records();
    let raised = Entry::DictionaryRaised { dictionary: DICTIONARY + 1, by: env!("CARGO_PKG_VERSION").to_owned() };
    let read: Vec<Entry> = records.iter().map(|record| serde_json::from_slice(&record.body).unwrap()).collect();
    assert_eq!(read, [raised]);
    // This version cannot read what needs a later dictionary; the refusal changes nothing.
    assert!(matches!(state.apply(&records[0]), Err(LogError::Unsupported { .. })));
    assert_eq!(state.position(), Position::ZERO);
}
