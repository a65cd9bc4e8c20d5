//! The memory engine keeps every promise of `Log`, and returns the same as the model.

use bytes::Bytes;
use contract::{BoxFuture, Position, Sequence, Timestamp};
use log::testing::model::agree;
use log::testing::{LogProbe, MemoryEngine, NO_LIMIT, RecordNumbering, RecordSetters};
use log::{Log, MemoryLog, ReadRange, TopicNumber};
use std::pin::pin;
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

log::conformance!(MemoryEngine::default());

#[tokio::test]
async fn two_hundred_seeds_agree_with_the_model() {
    for seed in 0..200 {
        agree(&MemoryEngine::default(), seed, 100).await;
    }
}

#[tokio::test]
async fn a_long_run_agrees_with_the_model() {
    agree(&MemoryEngine::default(), 1_000_003, 1500).await;
}

#[tokio::test]
async fn the_log_is_one_segment_begun_with_its_first_record() {
    let engine = MemoryEngine::default();
    let mut probe = LogProbe::open(&engine).await;
    probe.put_at(2, &[1000]).await;
    probe.put_at(1, &[2000, 3000]).await;
    let segments = probe.segments(1).await;
    assert_eq!(segments.len(), 1);
    assert_eq!(segments[0].location, "memory://");
    assert_eq!(segments[0].created_at, Timestamp::from_millis(1000));
    assert_eq!(segments[0].start_time, Timestamp::from_millis(2000));
}

#[tokio::test]
async fn a_removed_body_is_let_go_and_a_stored_one_is_not_copied() {
    let log = MemoryLog::new();
    let mut numbering = RecordNumbering::default();
    let body = Bytes::from(vec![7; 1 << 16]);
    let batch = (0..2000).map(|_| numbering.event(1, 10).body(body.clone())).collect();
    log.append(Position::ZERO, batch).await.unwrap();
    assert!(!body.is_unique(), "the log shares the body it was given");
    log.remove(TopicNumber(1), Sequence(1999)).await.unwrap();
    assert!(!body.is_unique(), "one record is left");
    log.remove(TopicNumber(1), Sequence(2000)).await.unwrap();
    assert!(body.is_unique(), "nothing that was removed is held");
}

/// The tail is shown outside the lock: a reader that holds the watch while it reads must not block the writer for ever.
/// Both are threads of their own, because a blocked one could not time out.
#[test]
fn a_reader_may_hold_the_watch_while_it_reads() {
    let log = Arc::new(MemoryLog::new());
    let both = Arc::new(Barrier::new(2));
    let (read, reading) = mpsc::channel();
    let (written, writing) = mpsc::channel();
    let (reader, ready) = (Arc::clone(&log), Arc::clone(&both));
    std::thread::spawn(move || {
        let tail = reader.tail();
        ready.wait();
        for _ in 0..100_000 {
            let held = tail.borrow();
            now(reader.read(ReadRange::All(*held), NO_LIMIT)).unwrap();
        }
        read.send(()).unwrap();
    });
    std::thread::spawn(move || {
        let mut numbering = RecordNumbering::default();
        both.wait();
        while reading.try_recv() == Err(mpsc::TryRecvError::Empty) {
            let after = numbering.tail();
            now(log.append(after, vec![numbering.entry(1)])).unwrap();
        }
        written.send(()).unwrap();
    });
    writing.recv_timeout(Duration::from_secs(60)).expect("reader and writer wait for each other");
}

/// The result of work that never has to wait.
fn now<T>(work: BoxFuture<'_, T>) -> T {
    let Poll::Ready(answer) = pin!(work).poll(&mut Context::from_waker(Waker::noop())) else {
        unreachable!("the memory engine waits for nobody")
    };
    answer
}
