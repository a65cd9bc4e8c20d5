//! Several tasks on one log.

use crate::testing::{Engine, LogProbe, LogRefusal, NO_LIMIT, RecordSetters, assert_dense, record};
use crate::{Log, LogError, ReadLimit, ReadRange, Record, RecordQuery, TopicNumber};
use contract::{Position, Sequence};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet, yield_now};

/// Refusals, empty batches and removals do not wake readers; an append does.
pub async fn the_tail_moves_only_when_records_become_readable(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    let mut tail = probe.log().tail();
    assert_eq!(*tail.borrow_and_update(), Position::ZERO);
    probe.put_entries(&[1, 2]).await;
    assert!(tail.has_changed().unwrap(), "an append was not shown");
    assert_eq!(*tail.borrow_and_update(), Position(2));
    assert_eq!(probe.append(Position(1), vec![record(2, 1, 2)]).await, Err(LogRefusal::TailMoved(Position(2))));
    assert_eq!(probe.append(Position(2), vec![record(9, 1, 2)]).await, Err(LogRefusal::Misnumbered));
    assert_eq!(probe.append(Position(2), vec![]).await, Ok(()));
    probe.remove(1, 1).await;
    assert!(!tail.has_changed().unwrap(), "nothing new can be read");
    assert_eq!(probe.tail(), Position(2));
}

/// Readers that only wait for the tail are woken by every append, and can read up to it at once.
pub async fn the_tail_wakes_and_shows_only_what_can_be_read(engine: &dyn Engine) {
    const BATCHES: usize = 100;
    let mut probe = LogProbe::open(engine).await;
    let last = (1..=BATCHES).map(|batch| 1 + batch as u64 % 3).sum();
    let mut readers = [(); 2].map(|()| ReaderTask::spawn(|looks| follow_the_tail(probe.log(), last, looks)));
    for batch in 1..=BATCHES {
        probe.put_events(&[(1, 10), (1, 11), (1, 10)][..1 + batch % 3]).await;
        assert_eq!(probe.tail(), probe.numbering.tail(), "an append that answered is not shown");
        // Sometimes the readers catch up; otherwise they may find several appends at once.
        if batch % 2 == 0 {
            for reader in &mut readers {
                reader.reaches(probe.tail().get()).await;
            }
        }
    }
    ReaderTask::end(readers).await;
}

async fn follow_the_tail(log: Arc<dyn Log>, last: u64, looks: watch::Sender<u64>) {
    let mut tail = log.tail();
    let mut seen = Position::ZERO;
    while seen.get() < last {
        let shown = *tail.wait_for(|tail| *tail != seen).await.unwrap();
        assert!(shown > seen, "the tail fell from {seen} to {shown}");
        let read =
            log.read(ReadRange::All(Position(shown.get() - 1)), ReadLimit { records: 1, bytes: 0 }).await.unwrap();
        assert_eq!(read.first().map(|record| record.header.position), Some(shown), "shown before it can be read");
        let found = log.find(RecordQuery::Id(u128::from(shown.get()))).await.unwrap();
        assert_eq!(found.map(|header| header.position), Some(shown), "shown before it can be found");
        seen = shown;
        looks.send_replace(seen.get());
    }
}

/// A range, by the number it starts after.
type RangeBehind = fn(u64) -> ReadRange;

/// Batches of seventy over two topics: whenever one looks, there are seventies.
pub async fn readers_see_a_batch_whole_or_not_at_all(engine: &dyn Engine) {
    const BATCHES: u64 = 100;
    let mut probe = LogProbe::open(engine).await;
    let ranges: [(RangeBehind, u64); 3] = [
        (|after| ReadRange::All(Position(after)), 70),
        (|after| ReadRange::Topic(TopicNumber(1), Sequence(after)), 40),
        (|after| ReadRange::Topic(TopicNumber(2), Sequence(after)), 30),
    ];
    let mut readers =
        ranges.map(|(behind, each)| ReaderTask::spawn(|looks| count(probe.log(), behind, each, BATCHES * each, looks)));
    for _ in 0..BATCHES {
        probe.put_entries(&[1, 2, 1, 1, 2, 1, 2].repeat(10)).await;
        for reader in &mut readers {
            reader.looks_again().await;
        }
    }
    ReaderTask::end(readers).await;
}

async fn count(log: Arc<dyn Log>, behind: RangeBehind, each: u64, last: u64, looks: watch::Sender<u64>) {
    let mut count = 0;
    while count < last {
        count += log.read(behind(count), NO_LIMIT).await.unwrap().len() as u64;
        assert_eq!(count % each, 0, "{:?} shows a part of a batch", behind(0));
        looks.send_modify(|looks| *looks += 1);
        yield_now().await;
    }
}

/// The loser gets the winner's tail, and nothing of its batch is in the log.
pub async fn of_two_appends_behind_one_tail_one_wins(engine: &dyn Engine) {
    let probe = LogProbe::open(engine).await;
    let mut won = Vec::new();
    for after in 0..50 {
        let offer = |id| vec![record(after + 1, 1, after + 1).id(id)];
        let both = [1, 2].map(|id| {
            let (log, batch) = (probe.log(), offer(id));
            tokio::spawn(async move { log.append(Position(after), batch).await.map_err(LogRefusal::from) })
        });
        let [first, second] = both;
        won.extend(match (first.await.unwrap(), second.await.unwrap()) {
            (Ok(()), Err(lost)) if lost == LogRefusal::TailMoved(Position(after + 1)) => offer(1),
            (Err(lost), Ok(())) if lost == LogRefusal::TailMoved(Position(after + 1)) => offer(2),
            answers => panic!("two appends behind {after} were answered {answers:?}"),
        });
    }
    assert_eq!(probe.all(0).await, won);
    assert_eq!(probe.reopen().await.all(0).await, won);
}

/// No append waits for the result of the one before.
pub async fn appends_begun_behind_each_other_happen_in_order(engine: &dyn Engine) {
    let probe = LogProbe::open(engine).await;
    let log = probe.log();
    let batch =
        |after: u64, count| (after + 1..=after + count).map(|number| record(number, 1, number)).collect::<Vec<_>>();
    let (first, second, third) = tokio::join!(
        log.append(Position(0), batch(0, 2)),
        log.append(Position(2), batch(2, 1)),
        log.append(Position(3), batch(3, 70))
    );
    drop(log);
    assert!(first.is_ok() && second.is_ok() && third.is_ok(), "{first:?} {second:?} {third:?}");
    assert_eq!(probe.all(0).await, batch(0, 73));
    assert_eq!(probe.reopen().await.all(0).await, batch(0, 73));
}

/// Compare, lose, read what is new, try again: the records of all are stored, once each.
pub async fn eight_writers_racing_leave_a_dense_log(engine: &dyn Engine) {
    const WRITERS: u128 = 8;
    const EACH: u128 = 20;
    let probe = LogProbe::open(engine).await;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let log = probe.log();
        writers.spawn(async move {
            for event in 0..EACH {
                put_in_spite_of_others(log.as_ref(), writer * EACH + event + 1).await;
            }
        });
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    drop(writers);
    let stored = probe.reopen().await.all(0).await;
    assert_dense(&stored);
    let ids: Vec<_> = stored.iter().map(|record| record.header.id).collect();
    assert_eq!(ids.len() as u128, WRITERS * EACH);
    assert_eq!(ids.into_iter().collect::<BTreeSet<_>>(), (1..=WRITERS * EACH).collect::<BTreeSet<_>>());
}

/// Appends a record with this id to a log of one topic.
async fn put_in_spite_of_others(log: &dyn Log, id: u128) {
    let mut tail = *log.tail().borrow();
    loop {
        let next = tail.next().get();
        match log.append(tail, vec![record(next, 1, next).id(id)]).await {
            Ok(()) => return,
            Err(LogError::TailMoved(moved)) => {
                assert!(moved > tail, "told to go from {tail} to {moved}");
                tail = moved;
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// A reader of the beginning gets the beginning or an error that it was removed; it never starts later without an error.
pub async fn a_read_that_races_removal_is_whole_or_trimmed(engine: &dyn Engine) {
    const LAST: u64 = 3000;
    let mut probe = LogProbe::open(engine).await;
    for _ in 0..3 {
        probe.put_entries(&[1; 1000]).await;
    }
    let mut readers = [(); 2].map(|()| ReaderTask::spawn(|looks| read_until_all_is_gone(probe.log(), LAST, looks)));
    for through in (0..=LAST).step_by(50) {
        probe.remove(1, through).await;
        for reader in &mut readers {
            reader.looks_again().await;
        }
    }
    ReaderTask::end(readers).await;
}

async fn read_until_all_is_gone(log: Arc<dyn Log>, last: u64, looks: watch::Sender<u64>) {
    let mut after = 0;
    while after < last {
        match log.read(ReadRange::Topic(TopicNumber(1), Sequence(after)), NO_LIMIT).await {
            Ok(read) => starts_at(&read, after + 1),
            Err(LogError::Trimmed(earliest)) => {
                assert!(earliest.get() > after + 1, "told {earliest} when reading behind {after}");
                after = earliest.get() - 1;
            }
            Err(other) => panic!("{other}"),
        }
        looks.send_modify(|looks| *looks += 1);
        yield_now().await;
    }
}

fn starts_at(read: &[Record], sequence: u64) {
    let first = read.first().map(|record| record.header.sequence);
    assert_eq!(first, Some(Sequence(sequence)), "started later in silence");
    assert!(read.windows(2).all(|pair| pair[1].header.sequence == pair[0].header.sequence.next()), "a gap in a read");
}

/// A task that reads repeatedly and reports its progress: without that a writer is done before the first read.
struct ReaderTask {
    looks: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

impl ReaderTask {
    fn spawn<F: Future<Output = ()> + Send + 'static>(read: impl FnOnce(watch::Sender<u64>) -> F) -> Self {
        let (sender, looks) = watch::channel(0);
        Self { looks, task: tokio::spawn(read(sender)) }
    }

    /// Waits until it came this far, or ended; if it failed, [`Reader::end`] says so.
    async fn reaches(&mut self, goal: u64) {
        let _ = self.looks.wait_for(|looks| *looks >= goal).await;
    }

    async fn looks_again(&mut self) {
        let looks = *self.looks.borrow();
        self.reaches(looks + 1).await;
    }

    async fn end(readers: impl IntoIterator<Item = Self>) {
        for reader in readers {
            reader.task.await.unwrap();
        }
    }
}
