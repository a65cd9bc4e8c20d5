//! A session that was given up cannot append any more, whatever its role, and whenever it continues.

use crate::support::{Deadline, batch, everything, open, open_with};
use contract::Position;
use log::testing::{NO_LIMIT, in_time};
use log::{Log, LogError, ReadRange, Record};
use log_postgres::PostgresLog;
use log_postgres::testing::TestServer;
use std::path::Path;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio_postgres::{Client, NoTls};

/// The lock that orders appends.
const LOCK: &str = "1163282770, 'event_broker.entries'::regclass::oid::int";

/// A server, and the URL of a database for a role that sets another role after login: its sessions are hidden from it.
async fn hidden() -> (TestServer, String) {
    let server = spawn_blocking(TestServer::start).await.unwrap();
    let url = server.create_database();
    server.run_file(&url, Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/roles.sql")), &[]);
    drop(open(&url).await);
    server.sql(&url, "CREATE ROLE hidden LOGIN IN ROLE event_broker_application");
    server.sql(&url, "ALTER ROLE hidden SET role TO event_broker_application");
    server.run_file(&url, Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/roles.sql")), &[]);
    let hidden = server.url_as("hidden", url.rsplit('/').next().unwrap());
    let seen = "SELECT backend_start IS NULL FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    assert_eq!(server.sql(&hidden, seen), "t");
    (server, hidden)
}

async fn open_hasty(url: &str) -> PostgresLog {
    open_with(url, |options| options.answer_timeout = Duration::from_secs(1)).await
}

/// Reads everything, as soon as the log can be read.
async fn read_at_last(log: &PostgresLog) -> Vec<Record> {
    let deadline = Deadline::begin();
    loop {
        deadline.check("the log to be readable");
        match log.read(ReadRange::All(Position::ZERO), NO_LIMIT).await {
            Ok(records) => return records,
            Err(LogError::Unavailable(_)) => tokio::task::yield_now().await,
            Err(other) => panic!("{other}"),
        }
    }
}

fn ids(records: &[Record]) -> Vec<u128> {
    records.iter().map(|record| record.header.id).collect()
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("SET search_path = event_broker, pg_temp").await.unwrap();
    client
}

/// The lock is held for longer than the broker waits for its append; then the old append is first in the queue. If its
/// session could not be seen, it was taken for gone, and one publish was stored twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_of_a_hidden_session_that_was_given_up_is_found_or_never_comes_in() {
    let (server, url) = hidden().await;
    let log = open_hasty(&url).await;
    log.append(Position(0), batch(Position(0), 1, 1)).await.unwrap();
    let holder = connect(&server.url(url.rsplit('/').next().unwrap())).await;
    holder.batch_execute(&format!("SELECT pg_advisory_lock({LOCK})")).await.unwrap();
    let given_up = in_time(log.append(Position(1), batch(Position(1), 2, 1))).await;
    assert!(matches!(given_up, Err(LogError::Unavailable(_))), "{given_up:?}");
    // Whether it will be stored is not known yet, so the read fails.
    let unknown = in_time(log.read(ReadRange::All(Position::ZERO), NO_LIMIT)).await;
    assert!(matches!(unknown, Err(LogError::Unavailable(_))), "{unknown:?}");
    holder.batch_execute(&format!("SELECT pg_advisory_unlock({LOCK})")).await.unwrap();
    let found = in_time(read_at_last(&log)).await;
    if found.len() == 1 {
        in_time(log.append(Position(1), batch(Position(1), 2, 1))).await.unwrap();
    }
    assert_eq!(ids(&everything(&log).await), [1, 2], "one publish is one event");
}

/// The process of the old session was stopped before it had read the statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_that_reaches_a_hidden_session_after_it_was_given_up_is_refused() {
    let (server, url) = hidden().await;
    let log = open_hasty(&url).await;
    log.append(Position(0), batch(Position(0), 1, 1)).await.unwrap();
    let writer = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%claim(%' AND pid <> pg_backend_pid()";
    let pid = server.sql("postgres", writer);
    server.stop_backend(&pid);
    let given_up = in_time(log.append(Position(1), batch(Position(1), 2, 1))).await;
    assert!(matches!(given_up, Err(LogError::Unavailable(_))), "{given_up:?}");
    assert_eq!(ids(&in_time(read_at_last(&log)).await), [1]);
    let _server = spawn_blocking(move || {
        server.wake_backend(&pid);
        server
    })
    .await
    .unwrap();
    assert_eq!(ids(&everything(&log).await), [1], "what was read as not there came in later");
    log.append(Position(1), batch(Position(1), 3, 1)).await.unwrap();
    assert_eq!(ids(&everything(&log).await), [1, 3]);
}

/// The basis of the two tests above, in SQL: of the sessions of one process only the last may append; those of other processes
/// are not affected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_last_session_of_a_process_may_append() {
    let url = TestServer::shared().create_database();
    let log = open(&url).await;
    log.append(Position(0), batch(Position(0), 1, 1)).await.unwrap();
    let client = connect(&url).await;
    let begin = "SELECT begin_session($1, $2, 1000)";
    let claim = "SELECT claim(1, false, 1, now(), $1, $2)";
    let tail: i64 = client.query_one(begin, &[&7_i64, &1_i64]).await.unwrap().get(0);
    assert_eq!(tail, 1);
    client.query_one(begin, &[&8_i64, &1_i64]).await.unwrap();
    client.query_one(begin, &[&7_i64, &2_i64]).await.unwrap();
    for (instance, epoch, expected) in
        [(7_i64, 2_i64, None), (8, 1, None), (7, 1, Some("57EB1")), (9, 1, Some("57EB1"))]
    {
        let said = client.query_one(claim, &[&instance, &epoch]).await.map(|row| assert!(row.get::<_, bool>(0)));
        let code = said.err().and_then(|error| error.code().map(|code| code.code().to_owned()));
        assert_eq!(code.as_deref(), expected, "{instance} {epoch}");
    }
    // A late one does not replace a later one.
    let late = client.query_one(begin, &[&7_i64, &1_i64]).await.unwrap_err();
    assert_eq!(late.code().unwrap().code(), "57EB1");
    // So do `compare`, and `append`, which brokers of the version before call.
    let compare = "SELECT outcome FROM compare(1, false, 0, NULL, $1, $2, 1000)";
    assert_eq!(client.query_one(compare, &[&7_i64, &2_i64]).await.unwrap().get::<_, i32>(0), 0);
    let refused = client.query_one(compare, &[&7_i64, &1_i64]).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "57EB1");
    let append = format!("SELECT outcome FROM append(1, false, 1000, $1, $2{})", ", '{}'".repeat(35));
    let outcome = client.query_one(&append, &[&7_i64, &2_i64]).await.unwrap().get::<_, i32>(0);
    assert_eq!(outcome, 0);
    let refused = client.query_one(&append, &[&7_i64, &1_i64]).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "57EB1");
    log.append(Position(1), batch(Position(1), 2, 1)).await.unwrap();
}

/// A later session that the process did not begin: it went on with the next number, which was refused for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_entered_by_somebody_else_does_not_stop_a_broker() {
    let url = TestServer::shared().create_database();
    let log = open(&url).await;
    log.append(Position(0), batch(Position(0), 1, 1)).await.unwrap();
    let enter =
        "SELECT event_broker.begin_session((SELECT instance FROM event_broker.sessions), 9223372036854775807, 1000)";
    TestServer::shared().sql(&url, enter);
    let deadline = Deadline::begin();
    while in_time(log.append(Position(1), batch(Position(1), 2, 1))).await.is_err() {
        deadline.check("an append");
    }
    assert_eq!(ids(&everything(&log).await), [1, 2]);
}

/// However often connections are lost and processes are started, there is one row for each of the latest processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_of_sessions_does_not_grow_without_end() {
    let server = TestServer::shared();
    let url = server.create_database();
    let log = open(&url).await;
    let (mut after, deadline) = (0, Deadline::begin());
    for _ in 0..3 {
        while in_time(log.append(Position(after), batch(Position(after), 1, 1))).await.is_err() {
            deadline.check("an append");
        }
        after += 1;
        server.kill_connections_to(&url);
    }
    while in_time(log.append(Position(after), batch(Position(after), 1, 1))).await.is_err() {
        deadline.check("an append");
    }
    let rows = "SELECT count(*), max(epoch) >= 4 FROM event_broker.sessions";
    assert_eq!(server.sql(&url, rows), "1|t");
    let many = "UPDATE event_broker.sessions SET begun_at = '2000-01-01'; \
        INSERT INTO event_broker.sessions SELECT n, 1, now() - n * interval '1 s' FROM generate_series(1, 10500) AS n";
    server.sql(&url, many);
    drop(open(&url).await.append(Position(0), Vec::new()).await);
    assert_eq!(server.sql(&url, "SELECT count(*) <= 10001 FROM event_broker.sessions"), "t");
    // The first one's row is gone. It begins a new session.
    while in_time(log.append(Position(after + 1), batch(Position(after + 1), 2, 1))).await.is_err() {
        deadline.check("an append");
    }
    assert_eq!(everything(&log).await.len() as u64, after + 2);
}

/// A broker of an earlier version still runs: its functions are still there, under the same lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_of_the_version_before_appends_beside_a_new_one() {
    let url = TestServer::shared().create_database();
    let log = open(&url).await;
    log.append(Position(0), batch(Position(0), 1, 1)).await.unwrap();
    let old = connect(&url).await;
    let insert = "INSERT INTO entries (position, sequence, stored_at, aggregate_seq, body) \
        SELECT 2, 1, now(), 0, 'x' FROM claim(1, false, 1, now()) AS claimed WHERE claimed";
    assert_eq!(old.execute(insert, &[]).await.unwrap(), 1);
    let append = format!("SELECT outcome FROM append(2, false, 1000{})", ", '{}'".repeat(35));
    assert_eq!(old.query_one(&append, &[]).await.unwrap().get::<_, i32>(0), 0);
    let behind = log.append(Position(1), batch(Position(1), 2, 1)).await;
    assert!(matches!(behind, Err(LogError::TailMoved(Position(2)))), "{behind:?}");
    assert_eq!(everything(&log).await.len(), 2);
}
