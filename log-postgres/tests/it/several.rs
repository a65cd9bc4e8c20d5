//! Several engines on one database: one order, fair turns, and none waits for one that has stopped.

use crate::support::{Deadline, Ledger, TestEngine, batch, check, everything, open, open_with};
use contract::{Position, Sequence};
use log::testing::{NO_LIMIT, in_time};
use log::{Log, LogError, ReadRange, Record, TopicNumber};
use log_postgres::PostgresLog;
use log_postgres::testing::TestServer;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const BATCHES: usize = 150;

/// All engines write as fast as they can, and each engine's reader follows.
async fn hammer(engines: usize) {
    let test = TestEngine::new();
    let mut writers = JoinSet::new();
    let mut readers = JoinSet::new();
    let finished = Arc::new(AtomicUsize::new(0));
    let begin = Arc::new(Barrier::new(engines));
    for engine in 0..engines {
        // A turn longer than any pause of a busy machine, so that losing twice can only be unfair.
        let log = Arc::new(open_with(&test.url, |options| options.turn = Duration::from_secs(60)).await);
        readers.spawn(follow(Arc::clone(&log), (engines * BATCHES * 2) as u64));
        let (finished, begin) = (Arc::clone(&finished), Arc::clone(&begin));
        writers.spawn(async move {
            begin.wait().await;
            let mut ledger = Ledger::default();
            let mut before_first = 0;
            for number in 0..BATCHES {
                ledger.put(&*log, (engine * BATCHES + number + 1) as u128, 2).await.unwrap();
                before_first += usize::from(finished.load(Ordering::Relaxed) == 0);
            }
            finished.fetch_add(1, Ordering::Relaxed);
            (ledger, before_first)
        });
    }
    let done = in_time(writers.join_all()).await;
    let orders = in_time(readers.join_all()).await;
    let stored = everything(&open(&test.url).await).await;
    assert_eq!(stored.len(), engines * BATCHES * 2);
    assert!(orders.iter().all(|order| *order == stored), "not every reader saw the same order");
    let (ledgers, progress): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    check(&stored, &ledgers, 2);
    assert!(ledgers.iter().any(|ledger| ledger.lost > 0), "they never met");
    assert!(ledgers.iter().all(|ledger| ledger.lost_twice == 0), "somebody was overtaken on its turn");
    assert!(progress.iter().all(|batches| *batches > BATCHES / 10), "somebody starved: {progress:?}");
}

/// The records that a reader gets which continues whenever the tail moves.
async fn follow(log: Arc<PostgresLog>, last: u64) -> Vec<Record> {
    let mut tail = log.tail();
    let mut seen: Vec<Record> = Vec::new();
    let deadline = Deadline::begin();
    while (seen.len() as u64) < last {
        deadline.check("the last record");
        let shown = *tail.wait_for(|tail| tail.get() > seen.len() as u64).await.unwrap();
        let read = log.read(ReadRange::All(Position(seen.len() as u64)), NO_LIMIT).await.unwrap();
        assert!(read.len() as u64 >= shown.get() - seen.len() as u64, "shown before it can be read");
        for record in read {
            assert_eq!(record.header.position.get(), seen.len() as u64 + 1, "a number was passed");
            seen.push(record);
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_busy_engines_take_turns_and_show_one_order() {
    hammer(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_busy_engines_take_turns_and_show_one_order() {
    hammer(3).await;
}

/// Another engine wrote just as many records: the tail is where the second append expects it, but the records are not its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_sent_behind_one_that_is_overtaken_fails_with_it() {
    let test = TestEngine::new();
    let (winner, loser) = (open(&test.url).await, open(&test.url).await);
    winner.append(Position(0), batch(Position(0), 1, 2)).await.unwrap();
    let (first, second) = tokio::join!(
        loser.append(Position(0), batch(Position(0), 11, 2)),
        loser.append(Position(2), batch(Position(2), 13, 1))
    );
    assert!(matches!(first, Err(LogError::TailMoved(Position(2)))), "{first:?}");
    assert!(matches!(second, Err(LogError::TailMoved(Position(2)))), "{second:?}");
    let (third, fourth) = tokio::join!(
        loser.append(Position(2), batch(Position(2), 14, 2)),
        loser.append(Position(4), batch(Position(4), 16, 1))
    );
    assert!(third.is_ok() && fourth.is_ok(), "{third:?} {fourth:?}");
    let ids: Vec<u128> = everything(&winner).await.iter().map(|record| record.header.id).collect();
    assert_eq!(ids, [1, 1, 14, 14, 16]);
}

/// The loser of a comparison has nothing to append: its session releases the turn by itself, and continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loser_with_nothing_to_say_gives_its_turn_back() {
    let test = TestEngine::new();
    let winner = open(&test.url).await;
    let loser = open_with(&test.url, |options| options.turn = Duration::from_secs(2)).await;
    winner.append(Position(0), batch(Position(0), 1, 1)).await.unwrap();
    let lost = loser.append(Position(0), batch(Position(0), 2, 1)).await;
    assert!(matches!(lost, Err(LogError::TailMoved(Position(1)))), "{lost:?}");
    assert_eq!(turns(&test.url), "1");
    in_time(winner.append(Position(1), batch(Position(1), 3, 1))).await.unwrap();
    assert_eq!(turns(&test.url), "0");
    loser.append(Position(2), batch(Position(2), 4, 1)).await.unwrap();
    assert_eq!(everything(&winner).await.len(), 3);
}

/// The process of the loser of a comparison is stopped, with its timers: the server ends its session.
#[test]
fn a_loser_that_stands_still_holds_up_nobody_for_long() {
    let test = TestEngine::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let here = runtime();
    let winner = here.block_on(open(&test.url));
    here.block_on(winner.append(Position(0), batch(Position(0), 1, 1))).unwrap();
    let still = runtime();
    let loser = still.block_on(open_with(&test.url, |options| options.turn = Duration::from_millis(400)));
    let lost = still.block_on(loser.append(Position(0), batch(Position(0), 2, 1)));
    assert!(matches!(lost, Err(LogError::TailMoved(Position(1)))), "{lost:?}");
    // From here on `still` is not polled.
    assert_eq!(turns(&test.url), "1");
    let begun = Instant::now();
    here.block_on(in_time(winner.append(Position(1), batch(Position(1), 3, 1)))).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    // It continues, finds its session gone, and reconnects.
    let mut ledger = Ledger::default();
    let deadline = Deadline::begin();
    while still.block_on(in_time(ledger.put(&loser, 4, 1))).is_err() {
        deadline.check("an append");
    }
    check(&here.block_on(everything(&winner)), &[stored(&[1, 3]), ledger], 1);
}

/// How many sessions hold a turn in the database at `url`.
fn turns(url: &str) -> String {
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted \
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    TestServer::shared().sql(url, held)
}

fn stored(ids: &[u128]) -> Ledger {
    Ledger { stored: ids.to_vec(), ..Ledger::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_elsewhere_wakes_a_reader_at_once() {
    let test = TestEngine::new();
    let (here, there) = (open(&test.url).await, open(&test.url).await);
    let mut tail = there.tail();
    let mut delays = Vec::new();
    for at in 0..41 {
        here.append(Position(at), batch(Position(at), 1, 1)).await.unwrap();
        let begun = Instant::now();
        in_time(tail.wait_for(|tail| *tail == Position(at + 1))).await.unwrap();
        delays.push(begun.elapsed());
        let read = there.read(ReadRange::All(Position(at)), NO_LIMIT).await.unwrap();
        assert_eq!(read.len(), 1);
    }
    delays.sort();
    // The poll once per second would take half a second.
    assert!(delays[20] < Duration::from_millis(50), "{delays:?}");
}

/// A notification was lost: the tail is polled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_announced_is_found_by_looking() {
    let test = TestEngine::new();
    let log = open(&test.url).await;
    let mut tail = log.tail();
    let row = "INSERT INTO event_broker.entries (position, sequence, stored_at, aggregate_seq, body) \
               VALUES (1, 1, now(), 0, 'x')";
    TestServer::shared().sql(&test.url, row);
    in_time(tail.wait_for(|tail| *tail == Position(1))).await.unwrap();
}

/// The connections belong to the runtime that the log was opened on; a caller may have another one, without timers or sockets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_thread_may_ask() {
    let test = TestEngine::new();
    let log = Arc::new(open(&test.url).await);
    let asked = Arc::clone(&log);
    let asking = std::thread::spawn(move || {
        let bare = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for after in 0..5 {
            bare.block_on(asked.append(Position(after), batch(Position(after), 1, 1))).unwrap();
        }
        TestServer::shared().kill_connections_to(&test.url);
        let deadline = Deadline::begin();
        while bare.block_on(asked.append(Position(5), batch(Position(5), 1, 1))).is_err() {
            deadline.check("an append");
        }
        bare.block_on(asked.remove(log::TopicNumber(1), contract::Sequence(1))).unwrap();
        bare.block_on(everything(&*asked)).len()
    });
    assert_eq!(tokio::task::spawn_blocking(|| asking.join().unwrap()).await.unwrap(), 5);
}

/// Any role that can connect may send a notification. One with a number that is not there made every broker refuse requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notification_of_a_stranger_does_not_move_the_tail() {
    let test = TestEngine::new();
    let (log, other) = (open(&test.url).await, open(&test.url).await);
    let mut tail = log.tail();
    TestServer::shared().sql(&test.url, r#"NOTIFY "event_broker.event_broker", '9999999'"#);
    other.append(Position(0), batch(Position(0), 1, 1)).await.unwrap();
    in_time(tail.changed()).await.unwrap();
    assert_eq!(*tail.borrow(), Position(1));
}

/// The loser of two removals found its rows gone, and took the removal for complete while the other was still at it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_beside_another_one_is_complete_only_when_nothing_is_left() {
    let test = TestEngine::new();
    let log = open(&test.url).await;
    log.append(Position(0), batch(Position(0), 1, 12_000)).await.unwrap();
    let (other, connection) = tokio_postgres::connect(&test.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let first_step = "BEGIN; SET LOCAL search_path = event_broker; SET LOCAL event_broker.removing = 'on'; \
        SELECT remove_some(1, 12000, 5000)";
    other.batch_execute(first_step).await.unwrap();
    let removal = tokio::spawn(async move { log.remove(TopicNumber(1), Sequence(12_000)).await });
    let waits = "SELECT EXISTS (SELECT FROM pg_stat_activity \
        WHERE datname = current_database() AND wait_event_type = 'Lock')";
    let deadline = Deadline::begin();
    while TestServer::shared().sql(&test.url, waits) != "t" {
        deadline.check("the removal waits for the other one");
    }
    other.batch_execute("COMMIT").await.unwrap();
    in_time(removal).await.unwrap().unwrap();
    assert_eq!(TestServer::shared().sql(&test.url, "SELECT count(*) FROM event_broker.events"), "0");
}
