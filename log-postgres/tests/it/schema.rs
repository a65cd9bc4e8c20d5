//! The schema: made once whoever comes first, refused from the future, and plain to read in SQL.

use crate::support::{TestEngine, everything, open, open_with};
use contract::{Position, Sequence};
use log::testing::{RecordSetters, in_time, record};
use log::{Log, ReadLimit, ReadRange, Record, RecordQuery, TopicNumber};
use log_postgres::testing::TestServer;
use log_postgres::{PostgresLog, PostgresOptions};
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_four_that_open_at_once_one_migrates() {
    let test = TestEngine::new();
    let mut opening = JoinSet::new();
    for _ in 0..4 {
        let url = test.url.clone();
        opening.spawn(async move { open(&url).await });
    }
    let logs = in_time(opening.join_all()).await;
    let versions = "SELECT string_agg(version::text, ' ' ORDER BY version) FROM event_broker.migrations";
    assert_eq!(TestServer::shared().sql(&test.url, versions), "1 2 3 4 5 6 7");
    let transactions = "SELECT count(DISTINCT xmin::text) FROM event_broker.migrations";
    assert_eq!(TestServer::shared().sql(&test.url, transactions), "1");
    logs[0].append(Position(0), vec![record(1, 1, 1)]).await.unwrap();
    assert_eq!(everything(&logs[3]).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_from_the_future_is_refused() {
    let test = TestEngine::new();
    drop(open(&test.url).await);
    TestServer::shared().sql(&test.url, "INSERT INTO event_broker.migrations (version, name) VALUES (8, 'telepathy')");
    let refused = PostgresLog::open(&test.url, PostgresOptions::default()).await.err().unwrap().to_string();
    assert!(refused.contains("at version 8, this program knows 7"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_logs_in_two_schemas_of_one_database_do_not_meet() {
    let test = TestEngine::new();
    let one = open(&test.url).await;
    let other = open_with(&test.url, |options| options.schema = "other_1".to_owned()).await;
    one.append(Position(0), vec![record(1, 1, 1).body("one")]).await.unwrap();
    other.append(Position(0), vec![record(1, 1, 1).body("other")]).await.unwrap();
    other.append(Position(1), vec![record(2, 1, 2).body("other")]).await.unwrap();
    assert_eq!((everything(&one).await.len(), everything(&other).await.len()), (1, 2));
    assert_eq!((*one.tail().borrow(), *other.tail().borrow()), (Position(1), Position(2)));
    for wrong in ["", "pg_mine", "Mine", "a\"b", "a.b", &"x".repeat(60)] {
        let options = PostgresOptions { schema: wrong.to_owned(), ..PostgresOptions::default() };
        assert!(PostgresLog::open(&test.url, options).await.is_err(), "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_there_is_no_server_opening_says_so() {
    for (url, expected) in [
        ("postgres://postgres@127.0.0.1:1/x", "cannot be reached"),
        (&*TestServer::shared().url("nowhere"), "database \"nowhere\" does not exist"),
        ("not an address", "no address"),
    ] {
        let refused = in_time(PostgresLog::open(url, PostgresOptions::default())).await.err().unwrap().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
}

/// An event with every member, and one with only the required ones.
fn two_events() -> [Record; 2] {
    let full = r#"{"id":"0196f6f0-0000-7000-8000-000000000001","type":"gts.vendor.orders.order.placed.v1~",
        "topic":"gts.hx.core.events.topic.v1~orders","position":1,"sequence":1,"aggregateSequence":1,
        "storedAt":"2025-12-03T12:00:00.001Z","occurredAt":"2025-12-03T12:00:00.000123Z","source":"shop",
        "subject":"order-\"7\"","subjectType":"gts.vendor.orders.order.v1~",
        "tenant":"0196f6f0-0000-7000-8000-0000000000aa","dataVersion":"2.1","correlationId":"c","causationId":"d",
        "deduplicationId":"dedup","requestId":"r","actor":{"type":"user","id":"u1"},
        "context":{"appId":"app","envId":"env","more":"x"},"data":{"total":12.50,"note":"ä"}}"#;
    let bare = r#"{"id":"0196f6f0-0000-7000-8000-000000000002","type":"t","topic":"o","position":2,"sequence":2,
        "storedAt":"2025-12-03T12:00:00.002Z","occurredAt":"2025-12-03T12:00:00Z","source":"shop","data":{}}"#;
    let full = record(1, 7, 1).id(1).aggregate(99, 1).idempotency(5, 6).body(full);
    [full, record(2, 7, 2).id(2).idempotency(0xAB, 6).body(bare)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_sees_what_an_event_says() {
    let test = TestEngine::new();
    let log = open(&test.url).await;
    let events = two_events();
    log.append(Position(0), events.to_vec()).await.unwrap();
    assert_eq!(everything(&log).await, events);
    let columns = "SELECT event_id, topic, topic_number, topic_seq, aggregate_type, aggregate_id, aggregate_seq, event_type, \
        event_version, data_version, actor_type, actor_id, org_id, request_id, idempotency_key, correlation_id, \
        causation_id, app_id, env_id, payload, extract(epoch FROM occurred_at) FROM event_broker.events ORDER BY event_id";
    let expected = [
        "1|gts.hx.core.events.topic.v1~orders|7|1|gts.vendor.orders.order.v1~|order-\"7\"|1|\
         gts.vendor.orders.order.placed.v1~|2|2.1|user|u1|0196f6f0-0000-7000-8000-0000000000aa|r|dedup|c|d|app|env|\
         {\"note\": \"ä\", \"total\": 12.50}|1764763200.000123",
        "2|o|7|2|||0|t|1||system|||\
         |00000000-0000-0000-0000-0000000000ab|||||{}|1764763200.000000",
    ];
    assert_eq!(TestServer::shared().sql(&test.url, columns), expected.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_is_named_by_its_fact() {
    let test = TestEngine::new();
    let log = open(&test.url).await;
    let entry = record(1, 0, 1).body(r#"{"fact":"topicTrimmed","number":1,"through":5}"#);
    log.append(Position(0), vec![entry, record(2, 0, 2).body("not JSON")]).await.unwrap();
    let facts = "SELECT string_agg(coalesce(fact, '-'), ' ' ORDER BY position) FROM event_broker.entries";
    assert_eq!(TestServer::shared().sql(&test.url, facts), "topicTrimmed -");
}

/// `jsonb` cannot store all JSON. Such an event is stored nevertheless; only its payload column is empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_that_jsonb_refuses_is_stored_all_the_same() {
    let test = TestEngine::new();
    let log = open(&test.url).await;
    let long = format!("1{}", "0".repeat(200_000));
    let data = [
        r#"{"a":1}"#,
        r#"{"a":"\u0000"}"#,
        r#"{"a":1e400000}"#,
        r#"{"a":1e-20000}"#,
        r#"{"a":"\ud800"}"#,
        &format!(r#"{{"a":{long}}}"#),
        r#"{"a":1e4000,"b":-0.0,"c":"\\u0000"}"#,
        r#"{"a":{"b":[]},"a":2}"#,
    ];
    let event =
        |(data, at): (&&str, u64)| record(at, 1, at).body(format!(r#"{{"type":"t","topic":"o","data":{data}}}"#));
    let events: Vec<_> = data.iter().zip(1..).map(event).collect();
    log.append(Position(0), events.clone()).await.unwrap();
    assert_eq!(everything(&log).await, events);
    let there = "SELECT string_agg((payload IS NOT NULL)::int::text, '' ORDER BY event_id) FROM event_broker.events";
    assert_eq!(TestServer::shared().sql(&test.url, there), "10000011");
}

/// If our own check for `jsonb` misses a value, PostgreSQL's refusal of it does not fail the batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_that_only_postgres_refuses_does_not_stop_an_append() {
    let test = TestEngine::new();
    let log = open(&test.url).await;
    let refuses = "CREATE FUNCTION event_broker.refuse() RETURNS trigger LANGUAGE plpgsql AS \
        $$ BEGIN IF NEW.payload IS NOT NULL THEN RAISE EXCEPTION 'no' USING ERRCODE = '22P02'; END IF; RETURN NEW; END $$; \
        CREATE TRIGGER refuse BEFORE INSERT ON event_broker.events FOR EACH ROW EXECUTE FUNCTION event_broker.refuse()";
    TestServer::shared().sql(&test.url, refuses);
    let events = two_events();
    log.append(Position(0), events.to_vec()).await.unwrap();
    assert_eq!(everything(&log).await, events);
}

/// The largest members the broker lets through fit the indexes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_names_fit_the_indexes() {
    let test = TestEngine::new();
    let log = open(&test.url).await;
    let mut random = log::testing::SeededRandom::new(9);
    // Bytes that do not compress, in the alphabet of names.
    let mut name =
        |length: usize| -> String { random.bytes(length).iter().map(|b| char::from(b'!' + b % 90)).collect() };
    let mut text = |length: usize| serde_json::to_string(&name(length).replace(['"', '\\'], "x")).unwrap();
    let body = format!(
        r#"{{"type":{},"topic":{},"subject":{},"subjectType":{},"tenant":{},"requestId":{},"data":{{}}}}"#,
        text(512),
        text(512),
        text(1024),
        text(512),
        text(36),
        text(512),
    );
    let event = record(1, 1, 1).id(1).aggregate(3, 1).body(body);
    log.append(Position(0), vec![event.clone()]).await.unwrap();
    assert_eq!(everything(&log).await, [event]);
    assert_eq!(TestServer::shared().sql(&test.url, "SELECT length(aggregate_id) FROM event_broker.events"), "1024");
}

/// The database checks numbers too: an assigned number is not assigned again, and an aggregate counts within its topic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_given_twice_is_refused_by_the_database() {
    let test = TestEngine::new();
    let log = open(&test.url).await;
    let body = |topic: &str| format!(r#"{{"type":"t","topic":"{topic}","subject":"s","data":{{}}}}"#);
    log.append(Position(0), vec![record(1, 1, 1).aggregate(9, 1).body(body("a"))]).await.unwrap();
    for wrong in [record(2, 1, 1), record(2, 1, 2).aggregate(9, 1), record(2, 1, 2).aggregate(8, 1).body(body("a"))] {
        let refused = log.append(Position(1), vec![wrong]).await;
        assert!(matches!(refused, Err(log::LogError::Misnumbered(_))), "{refused:?}");
    }
    log.append(Position(1), vec![record(2, 2, 1).aggregate(8, 1).body(body("b"))]).await.unwrap();
    assert_eq!(everything(&log).await.len(), 2);
}

/// A read without a limit consists of pages with limits, in records and in bytes, and nothing is lost between them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_larger_than_a_page_is_whole() {
    let test = TestEngine::new();
    let log = open(&test.url).await;
    let sizes = [3 << 20, 5 << 20, 1, 12 << 20, 0, 9 << 20, 100, 8 << 20, 1];
    let batch: Vec<_> = sizes.iter().zip(1..).map(|(size, at)| record(at, 1, at).body(vec![b'x'; *size])).collect();
    log.append(Position(0), batch.clone()).await.unwrap();
    assert!(everything(&log).await == batch);
    let read = |records, bytes| log.read(ReadRange::All(Position(0)), ReadLimit { records, bytes });
    for (records, bytes, expected) in
        [(9, 8 << 20, 2), (9, (20 << 20) + 1, 5), (9, 20 << 20, 3), (4, usize::MAX, 4), (9, (29 << 20) + 101, 7)]
    {
        let read = read(records, bytes).await.unwrap();
        assert!(read == batch[..expected], "{records} records, {bytes} bytes: {}", read.len());
    }
    let small: Vec<_> = (10..=5000).map(|at| record(at, 1, at)).collect();
    log.append(Position(9), small.clone()).await.unwrap();
    assert!(everything(&log).await == [batch, small].concat());
    assert_eq!(read(4097, usize::MAX).await.unwrap().len(), 4097);
}

/// Several thousand records and several MiB in one append, and removal in more than one step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_batch_goes_in_whole_and_out_in_steps() {
    let test = TestEngine::new();
    let log = open(&test.url).await;
    let body = vec![b'x'; 2000];
    let batch: Vec<_> = (1..=8000).map(|at| record(at, 1, at).id(at.into()).body(body.clone())).collect();
    in_time(log.append(Position(0), batch.clone())).await.unwrap();
    assert!(everything(&log).await == batch);
    in_time(log.remove(TopicNumber(1), Sequence(7999))).await.unwrap();
    assert_eq!(everything(&log).await, batch[7999..]);
    assert_eq!(log.find(RecordQuery::Id(7999)).await.unwrap(), None);
}
