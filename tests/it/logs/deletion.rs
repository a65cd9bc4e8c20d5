//! Deleting a topic that has its own log: after a crash between the two logs, the deletion is decided as it was
//! requested.

use super::*;
use contract::NewProjection;

const NAME: &str = "side";

async fn opened(folder: &Path) -> Broker {
    open(Config::folder(folder)).await
}

async fn projected(broker: &Broker) {
    broker.put_projection("table", NewProjection::of_topic(topic_id(NAME))).await.unwrap();
}

/// A topic in its own log with two events; a projection reads it if it `is_used`.
async fn filled(folder: &Path, is_used: bool) {
    let broker = opened(folder).await;
    register(&broker, topic(NAME, r#"{"location":"side"}"#)).await.unwrap();
    for id in [1, 2] {
        publish(&broker, NAME, id).await.unwrap();
    }
    if is_used {
        projected(&broker).await;
    }
    broker.close().await;
}

/// The state left by a broker that crashes after the default log has recorded the start of a deletion, and before the
/// topic's own log has decided.
async fn marked_only(folder: &Path, forced: bool) {
    let log = Arc::new(FileLog::open_folder(folder, FileLogOptions::default()).unwrap());
    let ledger = Ledger::open(log, log_clock(), Some(folder.join("state")), 1000, 0, Arc::default()).await.unwrap();
    let placed = serde_json::to_value(&ledger.registry().placed(&topic_id(NAME)).unwrap().placed).unwrap();
    let mut entry = serde_json::json!({"fact": "topicPlaced", "placed": placed});
    entry["placed"]["deleting"] = true.into();
    if forced {
        entry["placed"]["forced"] = true.into();
    }
    ledger.submit(AppendNote(serde_json::from_value(entry).unwrap())).await.unwrap();
    ledger.close().await;
}

#[tokio::test]
async fn a_crash_makes_no_forced_deletion_of_one_that_is_refused() {
    let folder = TempDir::new().unwrap();
    filled(folder.path(), true).await;
    marked_only(folder.path(), false).await;
    for _ in 0..2 {
        let broker = opened(folder.path()).await;
        assert_eq!(sequences(&broker, &topic_id(NAME)).await, [1, 2]);
        broker.projection("table").await.unwrap();
        assert_eq!(broker.delete_topic(&topic_id(NAME), false).await.unwrap_err().kind(), Kind::InvalidState);
        broker.close().await;
    }
    let broker = opened(folder.path()).await;
    assert_eq!(publish(&broker, NAME, 3).await.unwrap().sequence, Sequence(3));
    broker.close().await;
}

#[tokio::test]
async fn a_deletion_that_nothing_forbids_or_that_was_forced_is_finished_after_a_crash() {
    for (is_used, forced) in [(false, false), (true, true)] {
        let folder = TempDir::new().unwrap();
        filled(folder.path(), is_used).await;
        marked_only(folder.path(), forced).await;
        let broker = opened(folder.path()).await;
        assert_eq!(broker.read(TopicRead::all(topic_id(NAME))).await.unwrap_err().kind(), Kind::NotFound);
        assert_eq!(broker.projection("table").await.unwrap_err().kind(), Kind::NotFound);
        let again = broker.register_topic(topic(NAME, r#"{"location":"side"}"#)).await.unwrap();
        assert!(matches!(again, RegisterOutcome::Created(_)));
        assert_eq!(sequences(&broker, &topic_id(NAME)).await, Vec::<u64>::new());
        broker.close().await;
    }
}

#[tokio::test]
async fn a_refused_deletion_writes_nothing() {
    let folder = TempDir::new().unwrap();
    filled(folder.path(), true).await;
    let written = || {
        let segment = folder.path().join("log/00000000000000000001.1.log");
        std::fs::read(segment).unwrap().windows(10).filter(|bytes| bytes == b"\"deleting\"").count()
    };
    let broker = opened(folder.path()).await;
    assert_eq!(broker.delete_topic(&topic_id(NAME), false).await.unwrap_err().kind(), Kind::InvalidState);
    assert_eq!(written(), 0, "the topic was marked before the check for its users");
    broker.delete_topic(&topic_id(NAME), true).await.unwrap();
    assert_eq!(written(), 1);
    broker.close().await;
}

#[tokio::test]
async fn a_deletion_in_a_log_that_failed_changes_nothing() {
    let folder = TempDir::new().unwrap();
    filled(folder.path(), false).await;
    let small = || Config {
        storage: StorageConfig { segment_bytes: 2000, ..StorageConfig::folder(folder.path()) },
        ..Config::default()
    };
    let broker = open(small()).await;
    let (there, away) = (folder.path().join("logs/side/log"), folder.path().join("logs/side/away"));
    std::fs::rename(&there, &away).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    for id in 3.. {
        if publish(&broker, NAME, id).await.is_err() {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "the log must fail");
    }
    assert_eq!(broker.delete_topic(&topic_id(NAME), true).await.unwrap_err().kind(), Kind::Unavailable);
    broker.close().await;
    drop(broker);
    std::fs::rename(&away, &there).unwrap();
    let broker = open(small()).await;
    assert!(broker.failures().is_empty());
    assert!(sequences(&broker, &topic_id(NAME)).await.len() >= 2);
    broker.close().await;
}

#[tokio::test]
async fn a_topic_whose_log_is_not_there_is_not_taken_for_deleted() {
    let folder = TempDir::new().unwrap();
    filled(folder.path(), true).await;
    marked_only(folder.path(), false).await;
    let (there, away) = (folder.path().join("logs/side"), folder.path().join("logs/away"));
    std::fs::rename(&there, &away).unwrap();
    let error = Broker::open(Config::folder(folder.path())).await.err().unwrap().to_string();
    assert!(error.contains("file://side") && error.contains("mounted"), "{error}");
    std::fs::remove_dir_all(&there).unwrap();
    std::fs::rename(&away, &there).unwrap();
    let broker = opened(folder.path()).await;
    assert_eq!(sequences(&broker, &topic_id(NAME)).await, [1, 2]);
    broker.close().await;
}

const MARKER: &str = "deleted-with-its-topic";

/// A topic in the folder `logs/side` with events that carry the marker.
async fn marked(broker: &Broker) {
    register(broker, topic(NAME, r#"{"location":"side"}"#)).await.unwrap();
    for id in [1, 2] {
        let data = RawValue::from_string(format!("{{\"note\":\"{MARKER}\"}}")).unwrap();
        broker.publish(NewEvent { data, ..event(NAME, id) }, None).await.unwrap();
    }
}

/// How many files below a folder hold the marker.
fn marked_files(folder: &Path) -> usize {
    let mut found = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found += marked_files(&path);
        } else {
            let bytes = std::fs::read(&path).unwrap();
            found += usize::from(bytes.windows(MARKER.len()).any(|part| part == MARKER.as_bytes()));
        }
    }
    found
}

async fn append(folder: &Path, entries: Vec<serde_json::Value>) {
    let log = Arc::new(FileLog::open_folder(folder, FileLogOptions::default()).unwrap());
    let ledger = Ledger::open(log, log_clock(), Some(folder.join("state")), 1000, 0, Arc::default()).await.unwrap();
    for entry in entries {
        ledger.submit(AppendNote(serde_json::from_value(entry).unwrap())).await.unwrap();
    }
    ledger.close().await;
}

/// A log without topics was neither erased nor opened again, so deleted events stayed in its files for good.
#[tokio::test]
async fn the_files_of_a_log_whose_last_topic_is_deleted_hold_none_of_its_events() {
    let folder = TempDir::new().unwrap();
    let broker = opened(folder.path()).await;
    broker.register_topic(topic("other", r#"{"location":"side"}"#)).await.unwrap();
    marked(&broker).await;
    assert!(marked_files(folder.path()) > 0);
    broker.delete_topic(&topic_id(NAME), false).await.unwrap();
    assert_eq!(sequences(&broker, &topic_id("other")).await, Vec::<u64>::new(), "the log has another topic");
    broker.delete_topic(&topic_id("other"), false).await.unwrap();
    assert_eq!(marked_files(folder.path()), 0);
    broker.close().await;
    drop(broker);
    assert_eq!(marked_files(folder.path()), 0);
    let broker = opened(folder.path()).await;
    assert_eq!(marked_files(folder.path()), 0);
    // The folder can be used again.
    marked(&broker).await;
    assert_eq!(sequences(&broker, &topic_id(NAME)).await, [1, 2]);
    broker.close().await;
}

/// The default log no longer knew the log after the topic's deletion, so a start after a crash did not open it.
#[tokio::test]
async fn a_log_whose_last_topic_was_deleted_before_a_crash_is_erased_at_the_next_start() {
    let folder = TempDir::new().unwrap();
    let broker = opened(folder.path()).await;
    marked(&broker).await;
    broker.close().await;
    drop(broker);
    let id = topic_id(NAME);
    let deleted =
        |number: u32| serde_json::json!({"fact": "topicDeleted", "topic": id, "number": number, "through": 2});
    append(&folder.path().join("logs/side"), vec![deleted(1)]).await;
    append(folder.path(), vec![deleted(0)]).await;
    assert!(marked_files(folder.path()) > 0);
    let broker = opened(folder.path()).await;
    assert_eq!(marked_files(folder.path()), 0);
    assert_eq!(broker.topic(&id).await.unwrap_err().kind(), Kind::NotFound);
    broker.close().await;
    drop(broker);
    // It is erased: a folder that is removed by now is not missed.
    std::fs::remove_dir_all(folder.path().join("logs/side")).unwrap();
    let broker = opened(folder.path()).await;
    assert!(broker.degradations().is_empty() && !folder.path().join("logs/side").exists());
    broker.close().await;
}

/// Deleting every topic of a log left the log open: it counted against the limit of logs until the next start.
#[tokio::test]
async fn a_log_whose_last_topic_is_deleted_gives_its_place_back() {
    let folder = TempDir::new().unwrap();
    let broker = opened(folder.path()).await;
    let named = |number: usize| topic(&format!("t{number}"), &format!(r#"{{"location":"memory://{number}"}}"#));
    marked(&broker).await;
    for number in 1..contract::limits::LOGS_MAX {
        broker.register_topic(named(number)).await.unwrap();
    }
    assert_eq!(broker.register_topic(named(1000)).await.unwrap_err().kind(), Kind::Overloaded);
    for deleted in [topic_id(NAME), named(1).id] {
        broker.delete_topic(&deleted, false).await.unwrap();
    }
    drop(FolderLock::acquire(&folder.path().join("logs/side")).expect("the log is closed"));
    for number in [1000, 1001] {
        broker.register_topic(named(number)).await.unwrap();
    }
    assert_eq!(broker.register_topic(named(1002)).await.unwrap_err().kind(), Kind::Overloaded);
    broker.close().await;
}

/// A registration that is refused after its log was opened left an open log without topics.
#[tokio::test]
async fn a_refused_topic_leaves_no_log_open() {
    let folder = TempDir::new().unwrap();
    let broker = opened(folder.path()).await;
    let broken = topic(NAME, r#"{"location":"side"}"#);
    broker.close().await;
    broker.register_topic(broken).await.unwrap_err();
    drop(FolderLock::acquire(&folder.path().join("logs/side")).expect("the log is closed"));
}
