//! Fail-over behind a proxy that sends new connections to the new server and leaves existing ones on the old one.

use crate::support::{Deadline, batch, open};
use contract::Position;
use log::testing::{NO_LIMIT, in_time};
use log::{Log, LogError, ReadRange, Record};
use log_postgres::testing::TestServer;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_blocking;

/// Forwards new connections to the current server.
struct Proxy {
    port: u16,
    behind: Arc<AtomicU16>,
}

impl Proxy {
    async fn start(behind: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, behind) = (listener.local_addr().unwrap().port(), Arc::new(AtomicU16::new(behind)));
        let now = Arc::clone(&behind);
        tokio::spawn(async move {
            while let Ok((mut caller, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", now.load(Ordering::SeqCst))).await;
                let Ok(mut server) = server else { continue };
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut caller, &mut server).await });
            }
        });
        Self { port, behind }
    }
}

fn ids(records: &[Record]) -> Vec<u128> {
    records.iter().map(|record| record.header.id).collect()
}

/// The result of `ask`, repeated while the connection is made again.
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

#[tokio::test(flavor = "multi_thread")]
async fn whoever_appends_reads_from_the_server_that_it_appends_to() {
    let (primary, standby, url) = spawn_blocking(|| {
        let primary = TestServer::start();
        let url = primary.create_database();
        let standby = primary.start_standby("one");
        (primary, standby, url)
    })
    .await
    .unwrap();
    let at = |port: u16| url.replace(&format!(":{}/", primary.port()), &format!(":{port}/"));
    let proxy = Proxy::start(primary.port()).await;
    let log = open(&at(proxy.port)).await;
    log.append(Position::ZERO, batch(Position::ZERO, 1, 1)).await.unwrap();
    assert_eq!(ids(&log.follow(Position::ZERO, NO_LIMIT).await.unwrap().records), [1]);
    tokio::task::block_in_place(|| {
        standby.wait_for_all_of(&primary);
        standby.promote();
    });
    // The servers have different second records, and the same number of records.
    log.append(Position(1), batch(Position(1), 2, 1)).await.unwrap();
    let other = open(&at(standby.port())).await;
    other.append(Position(1), batch(Position(1), 3, 1)).await.unwrap();
    proxy.behind.store(standby.port(), Ordering::SeqCst);
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'INSERT INTO events%'";
    assert_eq!(tokio::task::block_in_place(|| primary.sql("postgres", cut)), "1", "the connection that appends");

    // Nothing is appended before the log was read, from the server that it is appended to.
    let deadline = Deadline::begin();
    while *log.tail().borrow() != Position(2) || log.trouble().is_some() {
        deadline.check("the tail");
        tokio::task::yield_now().await;
    }
    let refused = in_time(log.append(Position(2), batch(Position(2), 4, 1))).await;
    assert!(matches!(refused, Err(LogError::Unavailable(_))), "{refused:?}");
    assert_eq!(ids(&at_last(|| log.follow(Position(1), NO_LIMIT)).await.records), [3]);
    // All other reads use that server from then on.
    assert_eq!(ids(&at_last(|| log.read(ReadRange::All(Position::ZERO), NO_LIMIT)).await), [1, 3]);
    at_last(|| log.append(Position(2), batch(Position(2), 5, 1))).await;
    assert_eq!(ids(&other.read(ReadRange::All(Position::ZERO), NO_LIMIT).await.unwrap()), [1, 3, 5]);
}
