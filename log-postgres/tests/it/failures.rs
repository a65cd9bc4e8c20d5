//! A server that stops, connections that break, a full disk: nothing acknowledged is lost, nothing is stored twice, and the
//! engine recovers by itself.

use crate::support::{Deadline, Ledger, batch, check, everything, open, open_with};
use contract::Position;
use log::testing::{NO_LIMIT, in_time};
use log::{Log, LogError, ReadRange, Record};
use log_postgres::PostgresLog;
use log_postgres::testing::{ServerOptions, ShutdownMode, TestServer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};

const SIZE: u64 = 3;

/// A writer that continues after every failure, until it is stopped.
struct Load {
    stop: Arc<AtomicBool>,
    stored: watch::Receiver<usize>,
    task: JoinHandle<Ledger>,
}

impl Load {
    fn start(log: Arc<PostgresLog>, first_id: u128) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (count, stored) = watch::channel(0);
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut ledger = Ledger::default();
            for id in first_id.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                if ledger.put(&*log, id, SIZE).await.is_err() {
                    decided(&log, &ledger, id).await;
                }
                count.send_replace(ledger.stored.len());
            }
            ledger
        });
        Self { stop, stored, task }
    }

    /// Waits for this many more acknowledgements.
    async fn more(&mut self, more: usize) {
        let now = *self.stored.borrow();
        in_time(self.stored.wait_for(|stored| *stored >= now + more)).await.unwrap();
    }

    async fn end(self) -> Ledger {
        self.stop.store(true, Ordering::Relaxed);
        in_time(self.task).await.unwrap()
    }
}

/// What the trait promises after `Unavailable`: once reading works, the batch is complete at its positions or
/// nowhere, and stays so.
async fn decided(log: &PostgresLog, ledger: &Ledger, id: u128) {
    assert_eq!(ledger.unsure.last(), Some(&id));
    let there = read_at_last(log).await.iter().filter(|record| record.header.id == id).count() as u64;
    assert!(there == 0 || there == SIZE, "{there} records of {id}");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_under_load_loses_nothing_acknowledged() {
    let options = ServerOptions { fsync: true, ..ServerOptions::default() };
    let server = Arc::new(spawn_blocking(|| TestServer::start_with(options)).await.unwrap());
    let url = server.create_database();
    let logs = [Arc::new(open(&url).await), Arc::new(open(&url).await)];
    let mut loads = [(0, 1), (1, 1_000_000)].map(|(log, id)| Load::start(Arc::clone(&logs[log]), id));
    for how in [ShutdownMode::Fast, ShutdownMode::Immediate, ShutdownMode::Immediate] {
        for load in &mut loads {
            load.more(10).await;
        }
        let stopped = Arc::clone(&server);
        spawn_blocking(move || stopped.stop(how)).await.unwrap();
        // Every call fails in the same way until it is back, and at once.
        for log in &logs {
            let refused = in_time(log.append(Position(0), batch(Position(0), 7, 1))).await;
            assert!(matches!(refused, Err(LogError::Unavailable(_))), "{refused:?}");
            let refused = in_time(log.read(ReadRange::All(Position(0)), NO_LIMIT)).await;
            assert!(matches!(refused, Err(LogError::Unavailable(_))), "{refused:?}");
            assert!(log.trouble().is_some());
        }
        let started = Arc::clone(&server);
        spawn_blocking(move || started.start_again()).await.unwrap();
    }
    for load in &mut loads {
        load.more(10).await;
    }
    let [first, second] = loads;
    let ledgers = [first.end().await, second.end().await];
    assert!(logs.iter().all(|log| log.trouble().is_none()));
    check(&everything(&*logs[0]).await, &ledgers, SIZE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_break_under_load_lose_nothing_acknowledged() {
    let server = TestServer::shared();
    let url = server.create_database();
    let logs = [Arc::new(open(&url).await), Arc::new(open(&url).await)];
    let mut loads = [(0, 1), (1, 1_000_000)].map(|(log, id)| Load::start(Arc::clone(&logs[log]), id));
    for _ in 0..15 {
        for load in &mut loads {
            load.more(3).await;
        }
        let url = url.clone();
        spawn_blocking(move || server.kill_connections_to(&url)).await.unwrap();
    }
    for load in &mut loads {
        load.more(3).await;
    }
    let [first, second] = loads;
    let ledgers = [first.end().await, second.end().await];
    assert!(ledgers.iter().any(|ledger| !ledger.unsure.is_empty()), "nothing was ever cut half way");
    check(&everything(&*logs[1]).await, &ledgers, SIZE);
}

/// The response is lost, not the append: once reading shows whether the batch is there, that does not change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_given_up_does_not_come_in_later() {
    let server = TestServer::shared();
    let url = server.create_database();
    let log = Arc::new(open_with(&url, |options| options.answer_timeout = Duration::from_secs(2)).await);
    log.append(Position(0), batch(Position(0), 1, 1)).await.unwrap();
    // Another session holds the lock, so the append waits on the server until the client gives up.
    let class_and_object = "1163282770, 'event_broker.entries'::regclass::oid::int";
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    let holding = tokio::spawn(connection);
    client.batch_execute(&format!("SELECT pg_advisory_lock({class_and_object})")).await.unwrap();
    let given_up = in_time(log.append(Position(1), batch(Position(1), 2, 1))).await;
    assert!(matches!(given_up, Err(LogError::Unavailable(_))), "{given_up:?}");
    drop(client);
    let _ = holding.await.unwrap();
    let mut wanted: Vec<_> = in_time(read_at_last(&log)).await.iter().map(|record| record.header.id).collect();
    assert!(wanted == [1] || wanted == [1, 2], "{wanted:?}");
    let after = Position(wanted.len() as u64);
    in_time(log.append(after, batch(after, 3, 1))).await.unwrap();
    wanted.push(3);
    let ids: Vec<_> = everything(&*log).await.iter().map(|record| record.header.id).collect();
    assert_eq!(ids, wanted);
}

/// A database on a disk that is nearly full. If the machine permits no such disk, its server raises the same error.
async fn on_a_small_disk() -> (TestServer, String) {
    let real = TestServer::can_have_small_disk();
    let options = ServerOptions { small_disk: real.then_some(24 << 20), ..ServerOptions::default() };
    let server = spawn_blocking(|| TestServer::start_with(options)).await.unwrap();
    let space = if real { "TABLESPACE small" } else { "" };
    if real {
        server.sql("postgres", &format!("CREATE TABLESPACE small LOCATION '{}'", server.small_disk().display()));
    }
    server.sql("postgres", &format!("CREATE DATABASE small {space} TEMPLATE template0"));
    let url = server.url("small");
    drop(open(&url).await);
    server.sql(&url, "CREATE TABLE filler AS SELECT repeat(md5(n::text), 30) FROM generate_series(1, 4000) AS n");
    if !real {
        let full = "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
            IF NEW.event_id > 5000 AND to_regclass('public.filler') IS NOT NULL THEN \
            RAISE EXCEPTION 'No space left on device' USING ERRCODE = 'disk_full'; END IF; RETURN NEW; END $$; \
            CREATE TRIGGER full_disk BEFORE INSERT ON event_broker.events FOR EACH ROW EXECUTE FUNCTION full_disk()";
        server.sql(&url, full);
    }
    (server, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_told_and_passes_when_there_is_room() {
    let (server, url) = on_a_small_disk().await;
    let log = open(&url).await;
    let mut ledger = Ledger::default();
    let mut id = 0;
    let full = loop {
        id += 1;
        if let Err(error) = ledger.put(&log, id, 500).await {
            break error.to_string();
        }
        assert!(id < 1000, "the disk does not fill");
    };
    assert!(full.contains("No space left on device"), "{full}");
    let before = everything(&log).await;
    assert_eq!(before.len(), ledger.stored.len() * 500, "nothing of the refused batch is there");
    server.sql(&url, "DROP TABLE filler");
    in_time(ledger.put(&log, id + 1, 500)).await.unwrap();
    check(&everything(&log).await, &[ledger], 500);
}

/// Transient errors: nothing was written, and the engine continues when the cause is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_takes_no_writes_is_unavailable() {
    let server = TestServer::shared();
    let url = server.create_database();
    let log = open(&url).await;
    let name = url.rsplit('/').next().unwrap();
    server.sql("postgres", &format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
    server.kill_connections_to(&url);
    let mut ledger = Ledger::default();
    let deadline = Deadline::begin();
    while let Err(error) = in_time(ledger.put(&log, 1, 1)).await {
        deadline.check("the refusal of a read-only database");
        if error.to_string().contains("read-only") {
            break;
        }
    }
    assert!(ledger.stored.is_empty());
    server.sql("postgres", &format!("ALTER DATABASE {name} RESET default_transaction_read_only"));
    server.kill_connections_to(&url);
    let deadline = Deadline::begin();
    while in_time(ledger.put(&log, 2, 1)).await.is_err() {
        deadline.check("an append");
    }
    check(&everything(&log).await, &[ledger], 1);
}

/// A full notification queue, because of any listener, and an internal error of PostgreSQL are transient: the broker continues
/// without a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_passes_does_not_fail_the_log() {
    let server = TestServer::shared();
    let url = server.create_database();
    let log = open(&url).await;
    let mut ledger = Ledger::default();
    for (id, code) in [(10, "54000"), (20, "XX000"), (30, "55P03"), (40, "53200")] {
        let refuse = format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             RAISE EXCEPTION 'not now' USING ERRCODE = '{code}'; END $$; \
             CREATE TRIGGER refuse BEFORE INSERT ON event_broker.events FOR EACH ROW EXECUTE FUNCTION refuse()"
        );
        server.sql(&url, &refuse);
        let refused = in_time(ledger.put(&log, id, SIZE)).await;
        assert!(matches!(refused, Err(LogError::Unavailable(_))), "{code}: {refused:?}");
        server.sql(&url, "DROP FUNCTION refuse CASCADE");
        in_time(ledger.put(&log, id + 1, SIZE)).await.unwrap();
    }
    check(&everything(&log).await, &[ledger], SIZE);
}

/// A connection to a server that hangs is closed in time, and made again when the server continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_is_given_up_in_time() {
    let server = spawn_blocking(TestServer::start).await.unwrap();
    let url = server.create_database();
    // Long enough for a server that is only slow.
    let log = open_with(&url, |options| options.answer_timeout = Duration::from_secs(5)).await;
    let mut ledger = Ledger::default();
    ledger.put(&log, 1, SIZE).await.unwrap();
    server.pause();
    let refused = in_time(ledger.put(&log, 2, SIZE)).await;
    assert!(matches!(refused, Err(LogError::Unavailable(_))), "{refused:?}");
    server.resume();
    let (mut id, deadline) = (3, Deadline::begin());
    while in_time(ledger.put(&log, id, SIZE)).await.is_err() {
        deadline.check("an append");
        id += 1;
    }
    decided(&log, &Ledger { unsure: vec![2], ..Ledger::default() }, 2).await;
    check(&everything(&log).await, &[ledger], SIZE);
}
