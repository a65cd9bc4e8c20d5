//! Flipped bits in the log below a whole broker: intact data is served, errors name damaged data, and nothing else is
//! affected.

mod headers;
mod salvage;

use crate::cli::run;
use crate::scenario::{copy_folder, subject_type_id, topic_id, type_id};
use contract::api::*;
use contract::{
    EventFilter, Kind, LogRead, NewEvent, NewEventType, NewTopic, Offset, Position, PublishOutcome, TopicRead,
};
use event_broker::{Broker, Config};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use uuid::Uuid;

const EVENTS: u128 = 60;

pub(crate) fn event(id: u128) -> NewEvent {
    let data = serde_json::value::to_raw_value(&serde_json::json!({"text": "x".repeat(300)})).unwrap();
    let event_type = type_id("placed").parse().unwrap();
    let mut event = NewEvent::new(event_type, "test", data).about(subject_type_id("order"), (id % 7).to_string());
    event.id = Some(Uuid::from_u128(id));
    event.tenant = Some(Uuid::from_u128(1));
    event
}

/// Segments of about ten events.
fn config(folder: &Path) -> Config {
    let mut config = Config::folder(folder);
    config.storage.segment_bytes = 8 * 1024;
    config
}

pub(crate) async fn open(folder: &Path) -> Broker {
    Broker::open(config(folder)).await.unwrap()
}

/// A folder with events 1 to 60, closed cleanly.
pub(crate) async fn filled() -> TempDir {
    let folder = TempDir::new().unwrap();
    let broker = open(folder.path()).await;
    broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    for id in 1..=EVENTS {
        broker.publish(event(id), None).await.unwrap();
    }
    broker.close().await;
    folder
}

/// A frame of a segment file, as `docs/format.md` draws it.
struct RecordFrame {
    file: PathBuf,
    offset: usize,
    header: usize,
    position: u64,
    topic: u32,
    body: String,
}

/// Every frame of a folder's log, in order.
fn frames(folder: &Path) -> Vec<RecordFrame> {
    let files = fs::read_dir(folder.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|ending| ending == "log")).collect();
    files.sort();
    let mut frames = Vec::new();
    for file in files {
        let bytes = fs::read(&file).unwrap();
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let short = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let mut offset = 64;
        while bytes.get(offset..offset + 2) == Some(&[0xEB, 0x0F]) {
            let (flags, length) = (bytes[offset + 3], short(offset + 4) as usize);
            let bits = [(2, 32), (4, 24), (8, 24)].iter().filter(|(flag, _)| flags & flag != 0);
            let header = 64 + bits.map(|(_, bytes)| bytes).sum::<usize>();
            let body = String::from_utf8_lossy(&bytes[offset + header..offset + header + length]).into_owned();
            let (position, topic) = (number(offset + 16), short(offset + 32));
            frames.push(RecordFrame { file: file.clone(), offset, header, position, topic, body });
            offset += header + length;
        }
    }
    frames
}

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
}

/// The frame that holds an event.
fn frame_of(folder: &Path, id: u128) -> RecordFrame {
    let wanted = Uuid::from_u128(id).to_string();
    frames(folder).into_iter().find(|frame| frame.topic > 0 && frame.body.contains(&wanted)).unwrap()
}

/// Flips one bit of an event's body.
pub(crate) fn spoil(folder: &Path, id: u128) {
    let frame = frame_of(folder, id);
    flip(&frame.file, frame.offset + frame.header + 5);
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// All files of the folder's log with their bytes.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(folder.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.map(|path| (path.clone(), fs::read(&path).unwrap())).collect();
    files.sort();
    files
}

async fn sequences(broker: &Broker) -> Vec<u128> {
    let (mut found, mut read) = (Vec::new(), TopicRead::all(topic_id("default")));
    loop {
        let page = broker.read(read.clone()).await.unwrap();
        found.extend(page.items.iter().map(|event| u128::from(event.sequence.0)));
        if page.items.is_empty() {
            return found;
        }
        read.offset = page.next_offset.into();
    }
}

/// Runs `repair --dry-run`, which must change nothing, then `repair`. Afterwards the folder verifies, and a second
/// repair finds nothing to do.
fn repair(folder: &Path) -> serde_json::Value {
    let before = contents(folder);
    let dry = run(&["repair", "--data", text(folder), "--dry-run", "--json"]).expect(0).json();
    assert!(contents(folder) == before, "a dry run changes nothing");
    let done = run(&["repair", "--data", text(folder), "--json"]).expect(0).json();
    assert_eq!((&dry[0]["findings"], &dry[0]["lost"]), (&done[0]["findings"], &done[0]["lost"]));
    run(&["verify", "--data", text(folder)]).expect(0);
    assert!(run(&["repair", "--data", text(folder)]).expect(0).out.contains("nothing to do"));
    done[0].clone()
}

/// The fold needs only an event's header, which is intact. Only reads of the event itself fail.
#[tokio::test]
async fn a_bad_body_does_not_keep_a_broker_without_tables_from_opening() {
    let folder = filled().await;
    spoil(folder.path(), 25);
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    let broker = open(folder.path()).await;
    let mut first_pages = TopicRead::all(topic_id("default"));
    first_pages.limit = 24;
    assert_eq!(broker.read(first_pages).await.unwrap().items.len(), 24);
    assert_eq!(broker.event(Uuid::from_u128(25)).await.unwrap_err().kind(), Kind::Unavailable);
    let again = broker.publish(event(24), None).await.unwrap();
    assert_eq!(again.outcome, PublishOutcome::Duplicate { payload_mismatch: false });
    let next = broker.publish(event(EVENTS + 1), None).await.unwrap().event;
    assert_eq!(
        (u128::from(next.sequence.0), next.aggregate_sequence.0),
        (61, 9),
        "the damaged event's numbers are not reused"
    );
}

#[tokio::test]
async fn a_page_ends_before_a_damaged_event_and_the_next_read_names_it() {
    let folder = filled().await;
    spoil(folder.path(), 25);
    let broker = open(folder.path()).await;
    let mut read = TopicRead::all(topic_id("default"));
    let page = broker.read(read.clone()).await.unwrap();
    assert_eq!(
        (page.items.len(), page.next_offset, page.tail),
        (24, Offset(24), Offset(60)),
        "intact events are returned"
    );
    read.offset = page.next_offset.into();
    for reply in [broker.read(read.clone()).await, broker.wait(read.clone(), std::time::Duration::from_secs(9)).await] {
        let error = reply.unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(error.detail().contains("sequence 25") && error.detail().contains("offset=25"), "{}", error.detail());
        assert!(error.detail().contains("event-broker repair"), "{}", error.detail());
    }
    read.offset = Offset(25).into();
    assert_eq!(broker.read(read).await.unwrap().items.len(), 35, "a reader can skip the damaged event");

    let mut log = LogRead { after: Position::ZERO, limit: 100, filter: EventFilter::default() };
    let page = broker.read_log(log.clone()).await.unwrap();
    assert_eq!(page.items.len(), 24);
    log.after = page.next_position;
    let error = broker.read_log(log.clone()).await.unwrap_err();
    let position = frame_of(folder.path(), 26).position - 1;
    assert!(error.detail().contains(&format!("after={position}")), "{}", error.detail());
    log.after = Position(position);
    assert_eq!(broker.read_log(log).await.unwrap().items.len(), 35);
}

/// A clean stop leaves a checkpoint that covers the last batch: it was acknowledged, so it cannot be a torn append.
#[tokio::test]
async fn damage_in_the_last_batch_that_was_acknowledged_is_never_cut() {
    let folder = filled().await;
    let last = frame_of(folder.path(), EVENTS);
    flip(&last.file, last.offset + 20);
    let before = contents(folder.path());
    let refusal = Broker::open(config(folder.path())).await.err().unwrap().to_string();
    assert!(refusal.contains(&format!("at offset {}", last.offset)) && refusal.contains(text(&last.file)), "{refusal}");
    assert!(refusal.contains(&format!("event-broker repair --data {} --dry-run", text(folder.path()))), "{refusal}");
    assert!(contents(folder.path()) == before, "a refused open changes nothing");
    let verified = run(&["verify", "--data", text(folder.path())]).expect(1);
    assert!(verified.out.contains(&format!("at offset {}", last.offset)), "{}", verified.out);
    let backup = folder.path().with_extension("backup");
    let refused = run(&["backup", "--data", text(folder.path()), "--output", text(&backup)]).expect(1);
    assert!(refused.err.contains("event-broker repair"), "{}", refused.err);

    let done = repair(folder.path());
    assert_eq!(done["lost"]["positions"][0]["first"], last.position);
    let kept = folder.path().join("cut").join(done["kept"][0].as_str().unwrap());
    assert!(fs::metadata(kept).unwrap().len() > 0, "the bytes that repair cut are kept");
    let broker = open(folder.path()).await;
    assert_eq!(sequences(&broker).await, (1..EVENTS).collect::<Vec<_>>());
    let next = broker.publish(event(EVENTS + 1), None).await.unwrap().event;
    assert_eq!(u128::from(next.sequence.0), EVENTS + 1, "the lost event's sequence is not reused");
    assert!(next.position.0 > last.position);
}

#[tokio::test]
async fn a_repaired_log_keeps_the_numbers_of_what_it_lost_even_when_the_tables_are_lost_too() {
    let folder = filled().await;
    // The last two events of the topic: no later event shows that they existed.
    for id in [EVENTS - 1, EVENTS] {
        spoil(folder.path(), id);
    }
    let done = repair(folder.path());
    assert_eq!(done["lost"]["events"].as_array().unwrap().len(), 2, "{done}");
    assert_eq!(done["lost"]["events"][1]["id"], Uuid::from_u128(EVENTS).to_string());
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    let broker = open(folder.path()).await;
    assert_eq!(sequences(&broker).await, (1..=EVENTS - 2).collect::<Vec<_>>());
    // No event follows them; a poll waits instead of reading repeatedly.
    let mut read = TopicRead::all(topic_id("default"));
    read.offset = Offset(58).into();
    assert!(broker.wait(read, std::time::Duration::from_millis(50)).await.unwrap().items.is_empty());
    let again = broker.publish(event(EVENTS), None).await.unwrap_err();
    assert_eq!(again.kind(), Kind::Trimmed, "an event acknowledged once is not stored twice");
    let next = broker.publish(event(EVENTS + 4), None).await.unwrap().event;
    // Events 60 and 64 belong to one aggregate.
    assert_eq!((u128::from(next.sequence.0), next.aggregate_sequence.0), (EVENTS + 1, 10));
}

/// Two topics; the fact that registered the first one is damaged.
async fn without_registration() -> TempDir {
    let folder = TempDir::new().unwrap();
    let broker = open(folder.path()).await;
    for name in ["first", "second"] {
        broker.register_topic(NewTopic::new(topic_id(name))).await.unwrap();
        let mut known = NewEventType::new(type_id(&format!("in_{name}")).parse().unwrap());
        known.topic = Some(topic_id(name));
        broker.register_event_type(known).await.unwrap();
        let mut event = event(7);
        event.event_type = type_id(&format!("in_{name}")).parse().unwrap();
        event.id = Some(Uuid::new_v4());
        broker.publish(event, None).await.unwrap();
    }
    broker.close().await;
    drop(broker);
    let wanted = format!("\"id\":\"{}\"", topic_id("first"));
    let is_it = |frame: &RecordFrame| frame.body.contains("topicRegistered") && frame.body.contains(&wanted);
    let fact = frames(folder.path()).into_iter().find(is_it).unwrap();
    flip(&fact.file, fact.offset + fact.header + 5);
    folder
}

#[tokio::test]
async fn a_lost_registration_gives_its_number_to_no_other_topic() {
    for has_tables in [true, false] {
        let folder = without_registration().await;
        if !has_tables {
            fs::remove_dir_all(folder.path().join("state")).unwrap();
            let refusal = Broker::open(config(folder.path())).await.err().unwrap().to_string();
            assert!(
                refusal.contains("damaged"),
                "the broker cannot open without the fact in a damaged entry: {refusal}"
            );
        }
        let done = repair(folder.path());
        let said = if has_tables { &done["saidAgain"] } else { &done["renamed"] };
        assert_eq!(said[0], topic_id("first").to_string(), "{done}");
        // From here on only the log holds the fact.
        fs::remove_dir_all(folder.path().join("state")).unwrap();
        let broker = open(folder.path()).await;
        for name in ["first", "second"] {
            let page = broker.read(TopicRead::all(topic_id(name))).await.unwrap();
            assert_eq!(page.items.len(), 1, "{name}");
            let stored = String::from_utf8(page.items[0].text.to_vec()).unwrap();
            assert!(stored.contains(&format!("in_{name}")), "{name}: {stored}");
        }
        broker.register_topic(NewTopic::new(topic_id("third"))).await.unwrap();
        assert!(broker.read(TopicRead::all(topic_id("third"))).await.unwrap().items.is_empty());
    }
}

#[tokio::test]
async fn every_state_that_is_refused_can_be_repaired() {
    let whole = filled().await;
    let logs: Vec<_> = contents(whole.path())
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| path.extension().is_some_and(|it| it == "log"))
        .collect();
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let (middle, last) = (name(&logs[logs.len() / 2]), name(logs.last().unwrap()));
    type DamageFn<'a> = Box<dyn Fn(&Path) + 'a>;
    let harms: [(&str, DamageFn<'_>); 9] = [
        ("a damaged head", Box::new(|folder| flip(&folder.join("log").join(&middle), 30))),
        ("a missing segment", Box::new(|folder| fs::remove_file(folder.join("log").join(&middle)).unwrap())),
        ("a missing last segment", Box::new(|folder| fs::remove_file(folder.join("log").join(&last)).unwrap())),
        ("an empty segment", Box::new(|folder| fs::write(folder.join("log").join(&middle), "").unwrap())),
        (
            "a file with garbage",
            Box::new(|folder| {
                fs::write(folder.join("log/00000000000000000200.1.log"), vec![7; 3000]).unwrap();
            }),
        ),
        ("garbage marks", Box::new(|folder| fs::write(folder.join("log/trimmed.9"), "x").unwrap())),
        (
            "a missing log",
            Box::new(|folder| {
                fs::remove_dir_all(folder.join("log")).unwrap();
                fs::create_dir(folder.join("log")).unwrap();
            }),
        ),
        (
            "a state folder that is a file",
            Box::new(|folder| {
                fs::remove_dir_all(folder.join("state")).unwrap();
                fs::write(folder.join("state"), "x").unwrap();
            }),
        ),
        (
            "a damaged header",
            Box::new(|folder| {
                let frame = frame_of(folder, 31);
                flip(&frame.file, frame.offset + 20);
                let index = frame.file.with_extension("idx");
                fs::remove_file(index).unwrap();
            }),
        ),
    ];
    for (what, harm) in harms {
        let folder = TempDir::new().unwrap();
        copy_folder(whole.path(), folder.path()).unwrap();
        harm(folder.path());
        let refusal = Broker::open(config(folder.path())).await;
        assert!(refusal.is_err(), "opening with {what} is refused");
        drop(refusal);
        let done = run(&["repair", "--data", text(folder.path())]).expect(0);
        run(&["verify", "--data", text(folder.path())]).expect(0);
        let broker =
            Broker::open(config(folder.path())).await.unwrap_or_else(|error| panic!("{what}: {error}\n{}", done.out));
        let _ = broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await;
        let next = broker.publish(event(EVENTS + 1), None).await.unwrap().event;
        assert_eq!(u128::from(next.sequence.0), EVENTS + 1, "{what}: a sequence is never reused\n{}", done.out);
    }
}
