//! Synchronous standbys: nothing is acknowledged, and nothing is returned to a reader, that they do not have.

use crate::support::{Deadline, batch, open, open_with};
use contract::Position;
use log::testing::{NO_LIMIT, in_time};
use log::{Log, LogError, ReadRange, RecordQuery, TopicNumber};
use log_postgres::PostgresLog;
use log_postgres::testing::{ServerOptions, ShutdownMode, TestServer};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinHandle, spawn_blocking};

/// A server whose commits wait for its standby, and an empty database there.
struct Pair {
    primary: Arc<TestServer>,
    standby: Arc<TestServer>,
    url: String,
}

impl Pair {
    async fn start() -> Self {
        spawn_blocking(|| {
            let primary = TestServer::start();
            let url = primary.create_database();
            let standby = primary.start_standby("one");
            primary.require_standbys("one");
            Self { primary: Arc::new(primary), standby: Arc::new(standby), url }
        })
        .await
        .unwrap()
    }

    /// Runs blocking work with the servers.
    async fn with<T: Send + 'static>(&self, work: impl FnOnce(&TestServer, &TestServer) -> T + Send + 'static) -> T {
        let (primary, standby) = (Arc::clone(&self.primary), Arc::clone(&self.standby));
        spawn_blocking(move || work(&primary, &standby)).await.unwrap()
    }
}

const WAITS: &str = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')";

fn appending(log: &Arc<PostgresLog>, after: u64, id: u128) -> JoinHandle<Result<(), LogError>> {
    let log = Arc::clone(log);
    tokio::spawn(async move { log.append(Position(after), batch(Position(after), id, 1)).await })
}

/// Reads everything, as soon as the log can be read.
async fn ids_at_last(log: &PostgresLog) -> Vec<u128> {
    let deadline = Deadline::begin();
    loop {
        deadline.check("the log to be readable");
        match log.read(ReadRange::All(Position::ZERO), NO_LIMIT).await {
            Ok(records) => return records.iter().map(|record| record.header.id).collect(),
            Err(LogError::Unavailable(_)) => tokio::task::yield_now().await,
            Err(other) => panic!("{other}"),
        }
    }
}

/// Fails if `log` returns anything after position 1 to a reader.
async fn shows_only_the_first(log: &PostgresLog, who: &str) {
    let all = in_time(log.read(ReadRange::All(Position::ZERO), NO_LIMIT)).await;
    assert!(matches!(all, Err(LogError::Unavailable(_))), "{who}: {all:?}");
    let topic = at_last(|| log.read(ReadRange::Topic(TopicNumber(1), contract::Sequence::ZERO), NO_LIMIT)).await;
    assert_eq!(topic.len(), 1, "{who}");
    assert_eq!(at_last(|| log.find(RecordQuery::Id(2))).await, None, "{who}");
    let segments = at_last(|| log.segments(TopicNumber(1))).await;
    assert_eq!(segments[0].end_sequence.get(), 1, "{who}");
}

/// The result of `ask`, repeated while the server starts again.
async fn at_last<T, F: Future<Output = Result<T, LogError>>>(ask: impl Fn() -> F) -> T {
    let deadline = Deadline::begin();
    loop {
        deadline.check("an answer");
        match in_time(ask()).await {
            Err(LogError::Unavailable(_)) => tokio::task::yield_now().await,
            answer => return answer.unwrap_or_else(|error| panic!("{error}")),
        }
    }
}

/// The batch is committed, and its response waits for a standby that is gone. Cancelling the wait makes the batch visible in SQL,
/// although the standby does not have it: it was acknowledged, and shown, as if it had.
async fn a_wait_that_is_cut_short(cut: impl FnOnce(&TestServer) + Send + 'static) {
    let pair = Pair::start().await;
    let (log, other) = (Arc::new(open(&pair.url).await), open(&pair.url).await);
    log.append(Position(0), batch(Position(0), 1, 1)).await.unwrap();
    assert_eq!(ids_at_last(&other).await, [1]);
    pair.with(|_, standby| standby.stop(ShutdownMode::Immediate)).await;
    let append = appending(&log, 1, 2);
    pair.with(|primary, _| primary.wait_until(WAITS)).await;
    pair.with(|primary, _| cut(primary)).await;
    let answer = in_time(append).await.unwrap();
    assert!(matches!(answer, Err(LogError::Unavailable(_))), "acknowledged without the standby: {answer:?}");
    let url = pair.url.clone();
    let visible = pair.with(move |primary, _| primary.sql(&url, "SELECT count(*) FROM event_broker.events")).await;
    assert_eq!(visible, "2", "the wait was not cut short");
    shows_only_the_first(&log, "the one that appended").await;
    shows_only_the_first(&other, "another one").await;
    pair.with(|_, standby| standby.start_again()).await;
    assert_eq!(in_time(ids_at_last(&log)).await, [1, 2]);
    assert_eq!(in_time(ids_at_last(&other)).await, [1, 2]);
    let deadline = Deadline::begin();
    while in_time(log.append(Position(2), batch(Position(2), 3, 1))).await.is_err() {
        deadline.check("an append");
    }
    let name = pair.url.rsplit('/').next().unwrap().to_owned();
    let there = pair.with(move |_, standby| standby.sql(&name, "SELECT count(*) FROM event_broker.events")).await;
    assert_eq!(there, "3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_whose_session_is_ended_before_a_standby_has_it_is_neither_acknowledged_nor_shown() {
    a_wait_that_is_cut_short(|primary| {
        let end = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        assert_eq!(primary.sql("postgres", end), "1");
    })
    .await;
}

/// PostgreSQL reports success, after a warning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_whose_wait_for_a_standby_is_cancelled_is_neither_acknowledged_nor_shown() {
    a_wait_that_is_cut_short(|primary| {
        let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        assert_eq!(primary.sql("postgres", cancel), "1");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_that_only_a_restarted_server_has_is_neither_acknowledged_nor_shown() {
    a_wait_that_is_cut_short(|primary| {
        primary.stop(ShutdownMode::Immediate);
        primary.start_again();
    })
    .await;
}

/// The broker itself times out: it must not cancel the wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_that_waits_for_a_standby_longer_than_the_broker_is_neither_acknowledged_nor_shown() {
    let pair = Pair::start().await;
    let hasty = |options: &mut log_postgres::PostgresOptions| options.answer_timeout = Duration::from_secs(1);
    let log = Arc::new(open_with(&pair.url, hasty).await);
    log.append(Position(0), batch(Position(0), 1, 1)).await.unwrap();
    pair.with(|_, standby| standby.stop(ShutdownMode::Immediate)).await;
    let answer = in_time(appending(&log, 1, 2)).await.unwrap();
    assert!(matches!(answer, Err(LogError::Unavailable(_))), "{answer:?}");
    // Long enough for two more sessions to be tried.
    for _ in 0..3 {
        let unknown = in_time(log.read(ReadRange::All(Position::ZERO), NO_LIMIT)).await;
        assert!(matches!(unknown, Err(LogError::Unavailable(_))), "{unknown:?}");
        // A reader that does not need the end of the log gets what the standby has.
        let known = in_time(log.read_committed(ReadRange::All(Position::ZERO), NO_LIMIT)).await.unwrap();
        assert_eq!(known.len(), 1);
    }
    let url = pair.url.clone();
    let visible = pair.with(move |primary, _| primary.sql(&url, "SELECT count(*) FROM event_broker.events")).await;
    assert_eq!(visible, "1", "somebody ended the wait");
    pair.with(|_, standby| standby.start_again()).await;
    assert_eq!(in_time(ids_at_last(&log)).await, [1, 2]);
}

/// A broker that starts while a standby is gone cannot know what the standby has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_is_not_opened_while_a_synchronous_standby_is_away() {
    let pair = Pair::start().await;
    let log = open(&pair.url).await;
    log.append(Position(0), batch(Position(0), 1, 1)).await.unwrap();
    pair.with(|_, standby| standby.stop(ShutdownMode::Immediate)).await;
    let hasty = log_postgres::PostgresOptions {
        answer_timeout: Duration::from_secs(1),
        ..log_postgres::PostgresOptions::default()
    };
    let refused = in_time(PostgresLog::open(&pair.url, hasty)).await.err().unwrap().to_string();
    assert!(refused.contains("synchronous standbys"), "{refused}");
    pair.with(|_, standby| standby.start_again()).await;
    assert_eq!(ids_at_last(&open(&pair.url).await).await, [1]);
}

/// A setting that is weakened while the broker is connected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn synchronous_commit_that_is_weakened_while_connected_is_overruled() {
    let pair = Pair::start().await;
    let log = Arc::new(open(&pair.url).await);
    let mut after = 0;
    for weak in ["off", "local", "remote_write"] {
        log.append(Position(after), batch(Position(after), 1, 1)).await.unwrap();
        pair.with(move |primary, standby| {
            primary.set_system("synchronous_commit", weak);
            standby.stop(ShutdownMode::Immediate);
        })
        .await;
        let append = appending(&log, after + 1, 2);
        pair.with(|primary, _| primary.wait_until(WAITS)).await;
        assert!(!append.is_finished(), "acknowledged with {weak}");
        pair.with(|_, standby| standby.start_again()).await;
        in_time(append).await.unwrap().unwrap();
        after += 2;
    }
}

/// PostgreSQL reads a changed configuration also between an insert and its commit. A commit that had found the setting strong
/// enough did not wait for the disk then, and a crash lost an acknowledged event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn synchronous_commit_that_is_weakened_during_an_append_loses_nothing() {
    let settings = vec![("wal_writer_delay".to_owned(), "10s".to_owned())];
    let options = ServerOptions { settings, ..ServerOptions::default() };
    let server = Arc::new(spawn_blocking(|| TestServer::start_with(options)).await.unwrap());
    let url = server.create_database();
    let log = Arc::new(open(&url).await);
    // Every insert waits here, before its commit, while another session holds the lock.
    let gate = "CREATE TABLE event_broker.gate (); \
        CREATE FUNCTION event_broker.pass() RETURNS trigger LANGUAGE plpgsql AS \
        $$ BEGIN LOCK TABLE event_broker.gate IN ACCESS SHARE MODE; RETURN NULL; END $$; \
        CREATE TRIGGER pass AFTER INSERT ON event_broker.events FOR EACH STATEMENT EXECUTE FUNCTION event_broker.pass()";
    server.sql(&url, gate);
    let (holder, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    holder.batch_execute("BEGIN; LOCK TABLE event_broker.gate IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let append = appending(&log, 0, 1);
    let during = Arc::clone(&server);
    spawn_blocking(move || {
        during.wait_until("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock')");
        during.set_system("synchronous_commit", "off");
    })
    .await
    .unwrap();
    holder.batch_execute("COMMIT").await.unwrap();
    in_time(append).await.unwrap().unwrap();
    let stored = spawn_blocking(move || {
        server.stop(ShutdownMode::Immediate);
        server.start_again();
        server.sql(&url, "SELECT count(*) FROM event_broker.events")
    });
    assert_eq!(stored.await.unwrap(), "1");
}

/// In every function that appends, and never weaker than an administrator sets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_commit_of_the_log_has_synchronous_commit_at_full_strength() {
    let url = TestServer::shared().create_database();
    drop(open(&url).await.append(Position(0), Vec::new()).await);
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("SET search_path = event_broker, pg_temp; SELECT begin_session(1, 1, 1000)").await.unwrap();
    let append = format!("append(0, false, 1000, 1, 1{})", ", '{}'".repeat(35));
    for (setting, expected) in
        [("off", "on"), ("local", "on"), ("remote_write", "on"), ("on", "on"), ("remote_apply", "remote_apply")]
    {
        for way in ["claim(0, false, 1, now(), 1, 1)", &append, "begin_session(1, 2, 1000)"] {
            client.batch_execute(&format!("SET synchronous_commit = {setting}; BEGIN; SELECT {way}")).await.unwrap();
            let at_commit: String = client.query_one("SHOW synchronous_commit", &[]).await.unwrap().get(0);
            client.batch_execute("ROLLBACK").await.unwrap();
            assert_eq!(at_commit, expected, "{way} with {setting}");
        }
    }
}
